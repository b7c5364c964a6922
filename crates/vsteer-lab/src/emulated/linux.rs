//! What does a VM of the emulated host need to have a Linux? QEMU, a kernel, and an initramfs.
//!
//! All of it is this system's own, unmodified: QEMU from its package, with the libraries that `ldd` names; the kernel is the emulated host's. What runs in it
//! is vsteer-guest, as the first program, where a case plays a film the player ([`film`]), and what cases compile to run. QEMU's firmware is looked for where QEMU looks.
//!
//! Left out: a display, a disk: the guest has its initramfs alone.

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
/// What a microvm boots a kernel with.
const FIRMWARE: &[&str] = &["bios-microvm.bin", "linuxboot_dma.bin"];
/// Where QEMU inside looks.
const FIRMWARE_FOLDER: &str = "usr/share/qemu";
/// What the VM's port of virtio-serial needs, where something in it listens there.
const PORT: &[&str] = &["virtio_mmio", "virtio_console"];

/// Puts it all in.
///
/// # Errors
/// A program that is not here, a film that cannot be made.
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

/// Where QEMU looks for firmware.
fn folders(emulator: &Path) -> Result<Vec<PathBuf>, Fault> {
    let text = command::output(Command::new(emulator).args(["-L", "help"]), LIMIT)?;
    Ok(text.lines().map(|line| PathBuf::from(line.trim())).collect())
}
