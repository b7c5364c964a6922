//! How well does a media player play? A real one, unmodified, in a VM with Linux: which frame it shows when.
//!
//! MPlayer plays the film that the initramfs holds, again and again, without a display, at the film's own pace and without leaving frames
//! out. It says each frame that it has shown on its status line: that is a unit, and what passed since the one before is a response time.
//! So units per second are the frames per second that somebody would have seen.
//!
//! Beside it there may be a thread that computes without end, of a class that gets the vCPU when the player does not want it: what the paper on VIT
//! (Park et al., J. KIISE 37(1), 2010) ran in the player's domain. Then the vCPU never sleeps, and that a timer ended does not wake it.
//!
//! With `call` the player is started by `vit` (preload.rs), as anybody's program would be, and the agent listens at the VM's port (agent.rs): nobody is told of
//! the player's timers until the host opts the VM in.
//!
//! Source: `man 1 mplayer` (Debian's 1.5). Left out: sound, a display.

use crate::agent;
use crate::clock::now_ns;
use crate::counters::Counters;
use crate::generator::Generator;
use crate::place::{Class, Place};
use std::io::{BufReader, Read};
use std::process::{Command, Stdio};
use std::time::Duration;

const PLAYER: &str = "/usr/bin/mplayer";
const FILM: &str = "/film.avi";
/// What tells the host.
const LIBRARY: &str = "/usr/lib/vsteer/libvsteer_vit.so";
/// Nothing of a user's, and none of the devices that a VM lacks.
const WORDS: &[&str] = &[
    "-noconfig",
    "all",
    "-nolirc",
    "-nojoystick",
    "-nomouseinput",
    "-noconsolecontrols",
    "-noautosub",
    "-nosound",
    "-vo",
    "null",
    "-loop",
    "0",
    FILM,
];

/// Plays for ever, or says why that ended.
pub fn play(background: bool, call: bool, counters: &Counters) -> String {
    if background {
        std::thread::spawn(compute);
    }
    match show(call, counters) {
        Ok(why) => why,
        Err(e) => format!("{PLAYER}: {e}"),
    }
}

/// Takes what nobody else on this vCPU wants.
fn compute() {
    if let Err(why) = (Place { class: Class::Idle, ..Place::default() }).take() {
        println!("vsteer-guest: {why}");
        return;
    }
    let mut generator = Generator::new(1);
    loop {
        generator.work();
    }
}

fn show(call: bool, counters: &Counters) -> std::io::Result<String> {
    // Which of the two the status line goes to differs between versions.
    let (said, out) = std::io::pipe()?;
    let mut player = if call {
        std::thread::spawn(|| match agent::run(std::iter::empty()) {
            Ok(never) => match never {},
            Err(why) => println!("vsteer-guest: vit-agent: {why}"),
        });
        // The library looks for it once, when it begins.
        while !std::fs::metadata(agent::FLAG).is_ok_and(|file| file.len() > 0) {
            std::thread::sleep(Duration::from_millis(10));
        }
        let mut vit = Command::new("/proc/self/exe");
        vit.args(["vit", "--library", LIBRARY, "--", PLAYER]);
        vit
    } else {
        Command::new(PLAYER)
    };
    player.args(WORDS).env("HOME", "/tmp").stdin(Stdio::null());
    let child = player.stdout(out.try_clone()?).stderr(out).spawn();
    // It holds the pipe's other end, which would never end then.
    drop(player);
    let mut player = child?;
    let mut last_ns = None;
    let mut words = Line::default();
    let mut last_words = String::new();
    for byte in BufReader::new(said).bytes() {
        match words.take(byte?) {
            Some(line) if line.starts_with("V:") => {
                let now_ns = now_ns();
                if let Some(last_ns) = last_ns.replace(now_ns) {
                    counters.unit_done();
                    counters.resp.record(now_ns - last_ns);
                }
            }
            Some(line) if !line.trim().is_empty() => last_words = line,
            _ => {}
        }
    }
    Ok(format!("{PLAYER} ended ({}): {last_words}", player.wait()?))
}

/// What is said up to the next end of a line: a status line ends where it is begun anew.
#[derive(Default)]
pub struct Line(Vec<u8>);

impl Line {
    pub fn take(&mut self, byte: u8) -> Option<String> {
        if byte == b'\r' || byte == b'\n' {
            return Some(String::from_utf8_lossy(&std::mem::take(&mut self.0)).into_owned());
        }
        self.0.push(byte);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_line_ends_where_the_next_begins() {
        let mut words = Line::default();
        let said = b"Playing /film.avi.\nV:   0.1   2/  2  0%\rV:   0.1   3/  3  0%\r\n";
        let lines: Vec<String> = said.iter().filter_map(|byte| words.take(*byte)).collect();
        assert_eq!(lines, ["Playing /film.avi.", "V:   0.1   2/  2  0%", "V:   0.1   3/  3  0%", ""]);
    }
}
