//! What does Domain-0 boot? An initramfs: vsteer-guest as the first program, Xen's tools with their libraries, modules, the
//! job.

use super::packages::{PROGRAMS, Parts};
use crate::emulated::image::{folder_with_parents, libraries, read};
use crate::emulated::modules;
use crate::image::cpio::Archive;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use vsteer_core::Fault;

/// What lets Domain-0 speak with Xen.
const MODULES: &[&str] = &["xen-privcmd", "xen-evtchn", "xen-gntdev", "xen-gntalloc", "xenfs"];
const UNNAMED: &str = "libgcc_s.so.1";
/// Where the dynamic linker looks.
const LIBRARIES: &str = "lib/x86_64-linux-gnu";

/// The initramfs.
///
/// # Errors
/// A program, library or module that is not there.
pub fn build(parts: &Parts, guest: &[u8], job: &str) -> Result<Vec<u8>, Fault> {
    let mut archive = Archive::new();
    let mut folders = BTreeSet::new();
    for folder in ["dev", "proc", "sys", "run", "tmp", "var/lib", "var/log", "root"] {
        folder_with_parents(&mut archive, &mut folders, Path::new(folder));
    }
    archive.character_device("dev/console", 5, 1);
    archive.character_device("dev/null", 1, 3);
    let mut put = |path: &str, permissions: u32, bytes: &[u8]| {
        let parent = Path::new(path).parent().unwrap_or(Path::new(""));
        folder_with_parents(&mut archive, &mut folders, parent);
        archive.file(path, permissions, bytes);
    };
    put("init", 0o755, guest);
    put("xen-job", 0o644, job.as_bytes());
    // xl says so where it is missing.
    put("etc/xen/xl.conf", 0o644, b"");
    let mut needed: BTreeMap<String, PathBuf> = BTreeMap::new();
    for (name, program) in PROGRAMS.iter().zip(&parts.programs) {
        put(&format!("bin/{name}"), 0o755, &read(program)?);
        for library in libraries(program, &parts.libraries)? {
            let file = library.file_name().unwrap_or_default().to_string_lossy().into_owned();
            // The dynamic linker is found by its path alone.
            let path = if file.starts_with("ld-linux") {
                library.to_string_lossy()[1..].to_owned()
            } else {
                format!("{LIBRARIES}/{file}")
            };
            needed.entry(path).or_insert(library);
        }
    }
    // No program names it: the C library loads it when a thread is cancelled.
    let by_name = parts.libraries.iter().map(|f| f.join(UNNAMED)).find(|f| f.is_file());
    needed.extend(by_name.map(|file| (format!("{LIBRARIES}/{UNNAMED}"), file)));
    for (path, library) in &needed {
        put(path, 0o755, &read(library)?);
    }
    for (i, (name, bytes)) in modules::closure(&parts.kernel, MODULES)?.iter().enumerate() {
        put(&format!("modules/{i:02}-{name}.ko"), 0o644, bytes);
    }
    Ok(archive.finish())
}
