//! What does a Linux domain run? A program in C that is compiled here, as a person would, and an initramfs for it.
//!
//! `loops` is a product of matrices by OpenMP (loops.c). It is linked with everything that it needs, so that the domain holds
//! nothing else but vsteer-guest, which starts it.

use crate::command;
use crate::files::write_file;
use crate::image::initramfs::{Initramfs, read};
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use vsteer_core::Fault;

/// The programs, by name.
pub const PROGRAMS: [(&str, &str); 1] = [("loops", include_str!("loops.c"))];
const LIMIT: Duration = Duration::from_secs(120);

/// The initramfs of a Linux domain: the guest program and every program of [`PROGRAMS`]. `scratch` is a folder for what is made on the way.
///
/// # Errors
/// No compiler, or one that has no OpenMP or no static C library: with what it said.
pub fn initramfs(guest: &[u8], scratch: &Path) -> Result<Vec<u8>, Fault> {
    let mut initramfs = Initramfs::new(&["proc", "sys", "tmp"]);
    initramfs.put("init", 0o755, guest);
    for (name, text) in PROGRAMS {
        let (source, built) = (scratch.join(format!("{name}.c")), scratch.join(name));
        write_file(&source, text)?;
        let mut gcc = Command::new("gcc");
        gcc.args(["-O2", "-fopenmp", "-static", "-s", "-o"]).arg(&built).arg(&source);
        let done = command::output(&mut gcc, LIMIT);
        let bytes = done.and_then(|_| read(&built));
        for file in [&source, &built] {
            let _ = std::fs::remove_file(file);
        }
        initramfs.put(&format!("bin/{name}"), 0o755, &bytes?);
    }
    Ok(initramfs.finish())
}
