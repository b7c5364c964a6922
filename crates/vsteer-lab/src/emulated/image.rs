//! What does the emulated host boot? An initramfs: vsteer-guest as the first program, vsteer with its libraries,
//! modules, the job.
//!
//! Not compressed: QEMU puts it into memory at once, and unpacking would be emulated. `vsteer` is put in without its
//! debug sections where `strip` is installed (it comes with the linker), which saves the host memory.
//!
//! Left out: a shell, and everything else of a distribution.

use super::{Options, modules};
use crate::command::{self, find_program};
use crate::fetch::kernels::FullKernel;
use crate::image::initramfs::{Initramfs, libraries, read};
use crate::image::read_guest;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use vsteer_core::Fault;

const LIMIT: Duration = Duration::from_secs(60);

/// The initramfs.
///
/// # Errors
/// A program or module that is not there.
pub fn build(kernel: &FullKernel, options: &Options, job: &str) -> Result<Vec<u8>, Fault> {
    let mut initramfs = Initramfs::new(&["proc", "sys", "run", "tmp", "etc"]);
    initramfs.put("init", 0o755, &read_guest(&options.guest)?);
    initramfs.put("job", 0o644, job.as_bytes());
    let scratch = options.output.join("vsteer.stripped");
    initramfs.put("bin/vsteer", 0o755, &stripped(&options.vsteer, &scratch)?);
    for library in libraries(&options.vsteer, &[])? {
        initramfs.put(&library.to_string_lossy()[1..], 0o755, &read(&library)?);
    }
    initramfs.modules(kernel, modules::KVM)?;
    Ok(initramfs.finish())
}

fn stripped(program: &Path, scratch: &Path) -> Result<Vec<u8>, Fault> {
    let Some(strip) = find_program("strip") else { return read(program) };
    command::output(Command::new(strip).arg("-o").arg(scratch).arg("--").arg(program), LIMIT)?;
    let bytes = read(scratch)?;
    std::fs::remove_file(scratch).map_err(|e| Fault::io(format!("removing {}", scratch.display()), &e))?;
    Ok(bytes)
}
