//! Adds what a VM of the emulated host needs to run Linux: QEMU, a kernel, and an initramfs.
//!
//! All parts come unmodified from this system: QEMU from its package, with the libraries that `ldd` lists;
//! the kernel is the emulated host's. In the VM, vsteer-guest is the first program. If a case plays a film,
//! the player is there too ([`film`]), and so are the programs that cases compile. QEMU's firmware is taken
//! from QEMU's search folders.
//!
//! Left out: a display, a disk: the guest has only its initramfs.

use super::job::Job;
use super::{Options, film};
use crate::accel;
use crate::command;
use crate::fetch::kernels::FullKernel;
use crate::image::initramfs::{Initramfs, read};
use crate::image::{programs, read_guest};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use vsteer_core::{Fault, FaultKind};

const LIMIT: Duration = Duration::from_secs(120);
/// The firmware with which a microvm boots a kernel.
const FIRMWARE: &[&str] = &["bios-microvm.bin", "linuxboot_dma.bin"];
/// The folder in which QEMU inside looks for firmware.
const FIRMWARE_FOLDER: &str = "usr/share/qemu";
/// The modules for the VM's port of virtio-serial, if a program in it uses that port.
const PORT: &[&str] = &["virtio_mmio", "virtio_console"];

/// Adds all parts.
///
/// # Errors
/// A missing program, or a film that cannot be made.
pub fn put(
    initramfs: &mut Initramfs,
    kernel: &FullKernel,
    options: &Options,
    job: &Job,
) -> Result<(), Fault> {
    let emulator = accel::emulator()?;
    initramfs.program("usr/bin/qemu-system-x86_64", &emulator)?;
    let folders = folders(&emulator)?;
    for name in FIRMWARE {
        let mut places = folders.iter().map(|folder| folder.join(name));
        let found = places.find(|file| file.is_file()).ok_or_else(|| {
            Fault::new(FaultKind::NothingThere, format!("QEMU's {name} is in none of its folders"))
                .help("apt-get install --no-install-recommends qemu-system-x86 seabios")
        })?;
        initramfs.put(&format!("{FIRMWARE_FOLDER}/{name}"), 0o644, &read(&found)?);
    }
    initramfs.put("guest/vmlinuz", 0o644, &read(&kernel.vmlinuz)?);
    let mut inside = Initramfs::new(&["proc", "sys", "tmp"]);
    inside.put("init", 0o755, &read_guest(&options.guest)?);
    if job.plays() {
        film::put(&mut inside, options)?;
        inside.modules(kernel, PORT)?;
    }
    for name in job.programs() {
        let known = programs::COMPILED.iter().find(|(known, _)| *known == name).ok_or_else(|| {
            let known: Vec<&str> = programs::COMPILED.iter().map(|(known, _)| *known).collect();
            Fault::new(FaultKind::Usage, format!("a VM of the emulated host that runs {name}"))
                .because(format!("there is no such program (there are {})", known.join(", ")))
        })?;
        inside.put(&format!("bin/{name}"), 0o755, &programs::compiled(*known, &options.output)?);
    }
    initramfs.put("guest/initramfs", 0o644, &inside.finish());
    Ok(())
}

/// The folders in which QEMU looks for firmware.
fn folders(emulator: &Path) -> Result<Vec<PathBuf>, Fault> {
    let text = command::output(Command::new(emulator).args(["-L", "help"]), LIMIT)?;
    Ok(text.lines().map(|line| PathBuf::from(line.trim())).collect())
}
