//! Builds the initramfs of the emulated host: vsteer-guest as the first program, vsteer with its libraries,
//! modules, the job and its files.
//!
//! It is not compressed, because QEMU puts it into memory at once, and decompression would be emulated. If
//! `strip` is installed (it comes with the linker), `vsteer` is added without its debug sections, which saves
//! memory.
//!
//! If a case builds C sources ([`tree`]), it also has make, the compiler and the sources. If a VM has Linux
//! ([`linux`]), it also has QEMU and the files that QEMU boots.
//!
//! Left out: a shell, and everything else of a distribution.

use super::job::Job;
use super::{Options, linux, tree};
use crate::fetch::kernels::FullKernel;
use crate::image::initramfs::{Initramfs, libraries, read, stripped};
use crate::image::modules;
use crate::image::read_guest;
use vsteer_core::Fault;

/// Builds the initramfs.
///
/// # Errors
/// A missing program or module.
pub fn build(kernel: &FullKernel, options: &Options, job: &Job, text: &str) -> Result<Vec<u8>, Fault> {
    let mut initramfs = Initramfs::new(&["proc", "sys", "run", "tmp", "etc"]);
    initramfs.put("init", 0o755, &read_guest(&options.guest)?);
    initramfs.put("job", 0o644, text.as_bytes());
    for (path, text) in &job.files {
        initramfs.put(&path[1..], 0o644, text.as_bytes());
    }
    initramfs.put("bin/vsteer", 0o755, &stripped(&options.vsteer, &options.output)?);
    for library in libraries(&options.vsteer, &[])? {
        initramfs.put(&library.to_string_lossy()[1..], 0o755, &read(&library)?);
    }
    if job.builds() {
        tree::put(&mut initramfs)?;
    }
    if job.has_linux() {
        linux::put(&mut initramfs, kernel, options, job)?;
    }
    initramfs.modules(kernel, modules::KVM)?;
    Ok(initramfs.finish())
}
