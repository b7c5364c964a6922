//! What does a VM with Linux (linux.rs) need to play a film? A player and a film.
//!
//! The player is MPlayer, from this system's package, unmodified, with the libraries that `ldd` names. The film is made here by ffmpeg, the same each time: MPEG-4, 320x240, 20 frames per second, as the one in the paper on VIT.
//! It moves and is full of noise, so that a frame takes 12 ms of the emulated pCPU, and the VM a quarter of its time: the decoder's work grows with the
//! bits, and a picture that compresses well would hardly need the pCPU.
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
/// What tells the host of a program's timers; it is built beside vsteer.
const LIBRARY: &str = "libvsteer_vit.so";
/// Of the film, s; it is played again and again.
const LONG_S: u32 = 10;
const SOURCE: &str = "testsrc2=size=320x240:rate=20";
const NOISE: &str = "noise=alls=60:allf=t";
const QUALITY: &str = "2";

/// Puts player, film and what tells the host of the player's timers into a VM's initramfs.
///
/// # Errors
/// A program that is not here, a film that cannot be made.
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

fn program(name: &str, package: &str) -> Result<PathBuf, Fault> {
    find_program(name).ok_or_else(|| {
        Fault::new(FaultKind::NothingThere, format!("no {name} here, which a film needs"))
            .help(format!("apt-get install --no-install-recommends {package}"))
    })
}
