//! Builds the initramfs of a Linux domain, with the programs that are compiled here
//! ([`crate::image::programs`]).
//!
//! The domain contains nothing else except vsteer-guest, which starts the program.

use crate::image::initramfs::Initramfs;
use crate::image::programs::{COMPILED, compiled};
use std::path::Path;
use vsteer_core::Fault;

/// The initramfs of a Linux domain: the guest program and every program of [`COMPILED`]. `scratch` is a
/// folder for temporary files.
///
/// # Errors
/// As [`compiled`].
pub fn initramfs(guest: &[u8], scratch: &Path) -> Result<Vec<u8>, Fault> {
    let mut initramfs = Initramfs::new(&["proc", "sys", "tmp"]);
    initramfs.put("init", 0o755, guest);
    for program in COMPILED {
        initramfs.put(&format!("bin/{}", program.0), 0o755, &compiled(program, scratch)?);
    }
    Ok(initramfs.finish())
}
