//! What does a VM of the emulated host need to play a film? QEMU, a kernel, and an initramfs with a player and a film.
//!
//! All of it is this system's own, unmodified: QEMU and MPlayer from its packages, with the libraries that `ldd` names; the kernel is the
//! emulated host's. The film is made here by ffmpeg, the same each time: MPEG-4, 320x240, 20 frames per second, as the one in the paper on VIT.
//! It moves and is full of noise, so that a frame takes 12 ms of the emulated pCPU, and the VM a quarter of its time: the decoder's work grows with the
//! bits, and a picture that compresses well would hardly need the pCPU.
//!
//! QEMU's firmware is looked for where QEMU looks. Left out: sound, a display, a disk: the guest has its initramfs alone.

use super::Options;
use crate::accel;
use crate::command::{self, find_program};
use crate::fetch::kernels::FullKernel;
use crate::image::initramfs::{Initramfs, read};
use crate::image::read_guest;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use vsteer_core::{Fault, FaultKind};

const LIMIT: Duration = Duration::from_secs(120);
/// What a microvm boots a kernel with.
const FIRMWARE: &[&str] = &["bios-microvm.bin", "linuxboot_dma.bin"];
/// What tells the host of a program's timers; it is built beside vsteer.
const LIBRARY: &str = "libvsteer_vit.so";
/// What the VM's port of virtio-serial needs.
const PORT: &[&str] = &["virtio_mmio", "virtio_console"];
/// Where QEMU inside looks.
const FIRMWARE_FOLDER: &str = "usr/share/qemu";
/// Of the film, s; it is played again and again.
const LONG_S: u32 = 10;
const SOURCE: &str = "testsrc2=size=320x240:rate=20";
const NOISE: &str = "noise=alls=60:allf=t";
const QUALITY: &str = "2";

/// Puts it all in.
///
/// # Errors
/// A program that is not here, a film that cannot be made.
pub fn put(initramfs: &mut Initramfs, kernel: &FullKernel, options: &Options) -> Result<(), Fault> {
    let emulator = accel::emulator()?;
    initramfs.program("usr/bin/qemu-system-x86_64", &emulator)?;
    let folders = folders(&emulator)?;
    for name in FIRMWARE {
        let mut places = folders.iter().map(|folder| folder.join(name));
        let found = places.find(|file| file.is_file()).ok_or_else(|| {
            Fault::new(FaultKind::NothingThere, format!("QEMU's {name} is in none of its folders"))
                .way_out("apt-get install --no-install-recommends qemu-system-x86 seabios")
        })?;
        initramfs.put(&format!("{FIRMWARE_FOLDER}/{name}"), 0o644, &read(&found)?);
    }
    initramfs.put("guest/vmlinuz", 0o644, &read(&kernel.vmlinuz)?);
    initramfs.put("guest/initramfs", 0o644, &guest(kernel, options)?);
    Ok(())
}

/// The initramfs of the VM.
fn guest(kernel: &FullKernel, options: &Options) -> Result<Vec<u8>, Fault> {
    let mut initramfs = Initramfs::new(&["proc", "sys", "tmp"]);
    initramfs.put("init", 0o755, &read_guest(&options.guest)?);
    initramfs.program("usr/bin/mplayer", &program("mplayer", "mplayer")?)?;
    let library = options.vsteer.with_file_name(LIBRARY);
    if !library.is_file() {
        return Err(Fault::new(
            FaultKind::NothingThere,
            format!("no {LIBRARY} beside {}", options.vsteer.display()),
        )
        .way_out("cargo build -p vsteer-vit"));
    }
    initramfs.program(&format!("usr/lib/vsteer/{LIBRARY}"), &library)?;
    initramfs.put("film.avi", 0o644, &film(&options.output)?);
    initramfs.modules(kernel, PORT)?;
    Ok(initramfs.finish())
}

/// Makes the film; `folder` is for its work.
fn film(folder: &Path) -> Result<Vec<u8>, Fault> {
    let scratch = folder.join("film.avi");
    let mut ffmpeg = Command::new(program("ffmpeg", "ffmpeg")?);
    // As many threads as there are pCPUs would make it another film elsewhere.
    ffmpeg
        .args(["-v", "error", "-y", "-bitexact", "-filter_threads", "1", "-f", "lavfi", "-i", SOURCE])
        .args(["-t", &LONG_S.to_string(), "-vf", NOISE, "-c:v", "mpeg4", "-q:v", QUALITY])
        .args(["-flags", "+bitexact", "-threads", "1"])
        .arg(&scratch);
    command::output(&mut ffmpeg, LIMIT)?;
    let film = read(&scratch)?;
    std::fs::remove_file(&scratch).map_err(|e| Fault::io(format!("removing {}", scratch.display()), &e))?;
    Ok(film)
}

/// Where QEMU looks for firmware.
fn folders(emulator: &Path) -> Result<Vec<PathBuf>, Fault> {
    let text = command::output(Command::new(emulator).args(["-L", "help"]), LIMIT)?;
    Ok(text.lines().map(|line| PathBuf::from(line.trim())).collect())
}

fn program(name: &str, package: &str) -> Result<PathBuf, Fault> {
    find_program(name).ok_or_else(|| {
        Fault::new(FaultKind::NothingThere, format!("no {name} here, which a film needs"))
            .way_out(format!("apt-get install --no-install-recommends {package}"))
    })
}
