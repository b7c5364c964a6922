//! Adds a player and a film to a VM with Linux (linux.rs).
//!
//! The player is MPlayer, unmodified from this system's package, with the libraries that `ldd` lists. ffmpeg
//! makes the film here, always the same: MPEG-4, 320x240, 20 frames per second, like the one in the paper on
//! VIT. It moves and has much noise, so that a frame takes 12 ms of the emulated pCPU, and the VM a quarter
//! of the pCPU's time. The decoder's work grows with the number of bits, and a film that compresses well
//! would need little CPU.
//!
//! Left out: sound, a display.

use super::Options;
use crate::command::{self, find_program};
use crate::image::initramfs::{Initramfs, read};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use vsteer_core::{Fault, FaultKind};

const LIMIT: Duration = Duration::from_secs(120);
/// The library that reports a program's timers to the host; it is built beside vsteer.
const LIBRARY: &str = "libvsteer_vit.so";
/// The length of the film, s; it is played repeatedly.
const LONG_S: u32 = 10;
const SOURCE: &str = "testsrc2=size=320x240:rate=20";
const NOISE: &str = "noise=alls=60:allf=t";
const QUALITY: &str = "2";

/// Adds the player, the film, and the library that reports the player's timers to the host.
///
/// # Errors
/// A missing program, or a film that cannot be made.
pub fn put(initramfs: &mut Initramfs, options: &Options) -> Result<(), Fault> {
    initramfs.program("usr/bin/mplayer", &program("mplayer", "mplayer")?)?;
    let library = options.vsteer.with_file_name(LIBRARY);
    if !library.is_file() {
        return Err(Fault::new(
            FaultKind::NothingThere,
            format!("no {LIBRARY} beside {}", options.vsteer.display()),
        )
        .help("cargo build -p vsteer-vit"));
    }
    initramfs.program(&format!("usr/lib/vsteer/{LIBRARY}"), &library)?;
    initramfs.put("film.avi", 0o644, &film(&options.output)?);
    Ok(())
}

/// Makes the film; `folder` is for temporary files.
fn film(folder: &Path) -> Result<Vec<u8>, Fault> {
    let scratch = folder.join("film.avi");
    let mut ffmpeg = Command::new(program("ffmpeg", "ffmpeg")?);
    // One thread, because a number of threads that depends on the machine would give another film.
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

fn program(name: &str, package: &str) -> Result<PathBuf, Fault> {
    find_program(name).ok_or_else(|| {
        Fault::new(FaultKind::NothingThere, format!("no {name} here, which a film needs"))
            .help(format!("apt-get install --no-install-recommends {package}"))
    })
}
