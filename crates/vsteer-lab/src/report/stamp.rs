//! When, by the host's clock, did a guest's report arrive?
//!
//! A small process of the lab looks at the length of each console file every 20 ms and copies whole report
//! lines, each with the host's CLOCK_MONOTONIC, to a file of their own. A stamp is late by up to 20 ms, by the
//! time that this process waits for a CPU, and by the time that the VM took to deliver (seconds, if it is
//! starved): [`super::window`] corrects for the latter two. Looking is cheaper than being told: QEMU writes a
//! console byte by byte, and every byte would wake the one who is told. The process ends itself when the lab's
//! record is gone. Left out: what else a guest prints.

use crate::files::make_folder;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;
use vsteer_core::Fault;

/// From look to look.
pub const LOOK_EVERY: Duration = Duration::from_millis(20);
/// What a report starts with.
pub const REPORT_START: &str = "{\"vsteer_guest\":1,";

/// Now on the host's CLOCK_MONOTONIC, ns.
pub fn now_ns() -> u64 {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// Where the stamped reports of a VM are.
pub fn stamped_file(dir: &Path, vm: &str) -> PathBuf {
    dir.join("reports").join(format!("{vm}.jsonl"))
}

/// Where the console of a VM is.
pub fn console_file(dir: &Path, vm: &str) -> PathBuf {
    dir.join("vms").join(format!("{vm}.console"))
}

/// Follows one console.
struct Follower {
    console: PathBuf,
    output: File,
    read_bytes: u64,
    /// The beginning of a line whose end has not come yet.
    partial: Vec<u8>,
}

impl Follower {
    fn new(console: PathBuf, stamped: &Path) -> Result<Follower, Fault> {
        let output = File::options().create(true).append(true).open(stamped);
        let output = output.map_err(|e| Fault::io(format!("writing {}", stamped.display()), &e))?;
        Ok(Follower { console, output, read_bytes: 0, partial: Vec::new() })
    }

    /// Copies the lines that have come since the last look. A console that is shorter than before belongs to a
    /// VM that was started anew.
    fn look(&mut self) -> std::io::Result<()> {
        let length = match self.console.metadata() {
            Ok(metadata) => metadata.len(),
            Err(_) => return Ok(()),
        };
        if length == self.read_bytes {
            return Ok(());
        }
        if length < self.read_bytes {
            self.read_bytes = 0;
            self.partial.clear();
        }
        let host_ns = now_ns();
        let mut file = File::open(&self.console)?;
        file.seek(SeekFrom::Start(self.read_bytes))?;
        let mut fresh = Vec::new();
        file.take(length - self.read_bytes).read_to_end(&mut fresh)?;
        self.read_bytes += fresh.len() as u64;
        self.output.write_all(&stamp_lines(&mut self.partial, &fresh, host_ns))
    }
}

/// Appends `fresh` to `partial` and takes the whole report lines out, stamped.
fn stamp_lines(partial: &mut Vec<u8>, fresh: &[u8], host_ns: u64) -> Vec<u8> {
    partial.extend_from_slice(fresh);
    let Some(end) = partial.iter().rposition(|&b| b == b'\n') else { return Vec::new() };
    let whole: Vec<u8> = partial.drain(..=end).collect();
    let mut stamped = Vec::new();
    for line in whole.split(|&b| b == b'\n') {
        let line = line.trim_ascii();
        if line.starts_with(REPORT_START.as_bytes()) {
            stamped.extend_from_slice(format!("{{\"host_ns\":{host_ns},\"report\":").as_bytes());
            stamped.extend_from_slice(line);
            stamped.extend_from_slice(b"}\n");
        }
    }
    stamped
}

/// Stamps the reports of `vms` until the lab's record no longer bears `token`.
///
/// # Errors
/// A file of the lab cannot be written.
pub fn run(dir: &Path, token: &str, vms: &[String]) -> Result<(), Fault> {
    make_folder(&dir.join("reports"))?;
    let followers = vms.iter().map(|vm| Follower::new(console_file(dir, vm), &stamped_file(dir, vm)));
    let mut followers = followers.collect::<Result<Vec<_>, _>>()?;
    for look in 0_u64.. {
        // Once a second is enough to notice that the lab is gone.
        if look % 50 == 0 && !crate::state::bears_token(dir, token) {
            break;
        }
        for follower in &mut followers {
            let console = &follower.console.clone();
            follower
                .look()
                .map_err(|e| Fault::io(format!("copying reports of {}", console.display()), &e))?;
        }
        std::thread::sleep(LOOK_EVERY);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_report_lines_are_stamped() {
        let mut partial = Vec::new();
        assert_eq!(stamp_lines(&mut partial, b"[ 1.0] kernel\r\n{\"vsteer_guest\":1,\"se", 5), b"");
        let stamped =
            stamp_lines(&mut partial, b"q\":0}\r\n{\"other\":1}\n{\"vsteer_guest\":1,\"seq\":1}\nrest", 7);
        assert_eq!(
            String::from_utf8(stamped).unwrap(),
            "{\"host_ns\":7,\"report\":{\"vsteer_guest\":1,\"seq\":0}}\n\
             {\"host_ns\":7,\"report\":{\"vsteer_guest\":1,\"seq\":1}}\n"
        );
        assert_eq!(partial, b"rest");
    }

    #[test]
    fn a_console_that_grows_is_followed_and_one_started_anew_is_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let (console, stamped) = (folder.path().join("c"), folder.path().join("s"));
        let mut follower = Follower::new(console.clone(), &stamped).unwrap();
        follower.look().unwrap();
        let lines = || std::fs::read_to_string(&stamped).unwrap().lines().count();
        std::fs::write(&console, "{\"vsteer_guest\":1,\"seq\":0}\n{\"vsteer_guest\":1,\"seq\":1}\n").unwrap();
        follower.look().unwrap();
        follower.look().unwrap();
        assert_eq!(lines(), 2);
        std::fs::write(&console, "{\"vsteer_guest\":1,\"seq\":0}\n").unwrap();
        follower.look().unwrap();
        assert_eq!(lines(), 3);
    }
}
