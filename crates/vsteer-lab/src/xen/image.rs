//! Builds the initramfs of Domain-0: vsteer-guest as the first program, Xen's tools with their libraries,
//! modules, the job.

use super::Options;
use super::packages::{PROGRAMS, Parts};
use crate::image::initramfs::{Initramfs, libraries, read, stripped};
use std::collections::BTreeMap;
use std::path::PathBuf;
use vsteer_core::Fault;

/// The modules with which Domain-0 talks to Xen.
const MODULES: &[&str] = &["xen-privcmd", "xen-evtchn", "xen-gntdev", "xen-gntalloc", "xenfs"];
const UNNAMED: &str = "libgcc_s.so.1";
/// The folder in which the dynamic linker looks.
const LIBRARIES: &str = "lib/x86_64-linux-gnu";

/// What domains with Linux boot.
pub struct Linux {
    /// The kernel, unpacked.
    pub vmlinux: Vec<u8>,
    pub initramfs: Vec<u8>,
}

/// Builds the initramfs.
///
/// # Errors
/// A missing program, library or module.
pub fn build(
    parts: &Parts,
    options: &Options,
    guest: &[u8],
    job: &str,
    files: &BTreeMap<String, String>,
    linux: Option<Linux>,
    serves: bool,
) -> Result<Vec<u8>, Fault> {
    let mut initramfs = Initramfs::new(&["proc", "sys", "run", "tmp", "var/lib", "var/log", "root"]);
    initramfs.put("init", 0o755, guest);
    initramfs.put("xen-job", 0o644, job.as_bytes());
    for (path, text) in files {
        initramfs.put(path.trim_start_matches('/'), 0o644, text.as_bytes());
    }
    if let Some(linux) = linux {
        initramfs.put("linux/vmlinux", 0o644, &linux.vmlinux);
        initramfs.put("linux/initramfs", 0o644, &linux.initramfs);
    }
    // Without this file, xl prints a message.
    initramfs.put("etc/xen/xl.conf", 0o644, b"");
    let mut needed: BTreeMap<String, PathBuf> = BTreeMap::new();
    for (name, program) in PROGRAMS.iter().zip(&parts.programs) {
        initramfs.put(&format!("bin/{name}"), 0o755, &read(program)?);
    }
    let service = options.vsteer.with_file_name("vsteer-serve");
    let own: Vec<&PathBuf> = if serves { vec![&options.vsteer, &service] } else { vec![&options.vsteer] };
    for program in &own {
        let name = program.file_name().unwrap_or_default().to_string_lossy();
        initramfs.put(&format!("bin/{name}"), 0o755, &stripped(program, &options.output)?);
    }
    for program in parts.programs.iter().chain(own) {
        for library in libraries(program, &parts.libraries)? {
            let file = library.file_name().unwrap_or_default().to_string_lossy().into_owned();
            // The dynamic linker is only found by its full path.
            let path = if file.starts_with("ld-linux") {
                library.to_string_lossy()[1..].to_owned()
            } else {
                format!("{LIBRARIES}/{file}")
            };
            needed.entry(path).or_insert(library);
        }
    }
    // No program names this library: the C library loads it when a thread is cancelled.
    let by_name = parts.libraries.iter().map(|f| f.join(UNNAMED)).find(|f| f.is_file());
    needed.extend(by_name.map(|file| (format!("{LIBRARIES}/{UNNAMED}"), file)));
    for (path, library) in &needed {
        initramfs.put(path, 0o755, &read(library)?);
    }
    initramfs.modules(&parts.kernel, MODULES)?;
    Ok(initramfs.finish())
}
