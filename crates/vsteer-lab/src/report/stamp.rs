//! Records when a guest's report arrived, by the host's clock.
//!
//! A small process of the lab checks the length of each console file every 20 ms. It copies whole report
//! lines, each with the host's CLOCK_MONOTONIC, to a separate file. Lines about requests go to a log
//! ([`super::requests`]). A stamp is late by up to 20 ms, by this process's wait for a CPU, and by the time
//! that the VM took to deliver (seconds, if it gets no CPU). [`super::window`] corrects for the latter two.
//! Polling is cheaper than notifications: QEMU writes a console byte by byte, and every byte would wake the
//! receiver. The process ends itself when the lab's record is gone.
//!
//! A VM that is started again, or arrives elsewhere, continues the same console file. An incomplete line of
//! its former run may stand before its first new line and is skipped. If somebody emptied a console file, it
//! is read from its start. Left out: everything else that a guest prints.

use super::clock::now_ns;
use super::requests::{self, Offset, REQUESTS_START, Requests, requests_file};
use crate::files::make_folder;
use serde::Deserialize;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;
use vsteer_core::Fault;

/// The time between two checks.
pub const LOOK_EVERY: Duration = Duration::from_millis(20);
/// The start of a report.
pub const REPORT_START: &str = "{\"vsteer_guest\":1,";

/// Where the stamped reports of a VM are.
pub fn stamped_file(dir: &Path, vm: &str) -> PathBuf {
    dir.join("reports").join(format!("{vm}.jsonl"))
}

/// Where the console of a VM is.
pub fn console_file(dir: &Path, vm: &str) -> PathBuf {
    dir.join("vms").join(format!("{vm}.console"))
}

/// The fields of a report that are read here.
#[derive(Deserialize)]
struct Report {
    t_ns: u64,
}

/// The result of a check.
#[derive(Debug, Default, PartialEq, Eq)]
struct Fresh {
    /// Stamped reports, one line each.
    stamped: String,
    /// Lines of the request log.
    requests: String,
}

/// Converts a console's bytes, as they arrive, to stamped reports and requests.
#[derive(Default)]
struct Lines {
    /// The start of a line that is not complete yet.
    partial: Vec<u8>,
    offset: Offset,
}

impl Lines {
    /// Takes bytes that arrived at `host_ns` of the host's CLOCK_MONOTONIC, when CLOCK_REALTIME was ahead of
    /// it by `wall_ns`.
    fn take(&mut self, bytes: &[u8], host_ns: u64, wall_ns: i128) -> Fresh {
        self.partial.extend_from_slice(bytes);
        let mut fresh = Fresh::default();
        let Some(end) = self.partial.iter().rposition(|&b| b == b'\n') else { return fresh };
        let whole: Vec<u8> = self.partial.drain(..=end).collect();
        for line in String::from_utf8_lossy(&whole).lines() {
            self.line(line, host_ns, wall_ns, &mut fresh);
        }
        fresh
    }

    fn line(&mut self, line: &str, host_ns: u64, wall_ns: i128, fresh: &mut Fresh) {
        // The last start of a report in the line. An incomplete line of the VM's former run may stand before
        // it.
        let said = |start: &str| line.rfind(start).map(|at| line[at..].trim_end());
        if let Some(said) = said(REQUESTS_START) {
            if let Ok(requests) = serde_json::from_str::<Requests>(said) {
                self.offset.heard(requests.t_ns, host_ns);
                if let Some(offset_ns) = self.offset.ns() {
                    fresh.requests += &requests::lines(&requests, offset_ns + wall_ns);
                }
            }
        } else if let Some(said) = said(REPORT_START)
            && let Ok(report) = serde_json::from_str::<Report>(said)
        {
            self.offset.heard(report.t_ns, host_ns);
            fresh.stamped += &format!("{{\"host_ns\":{host_ns},\"report\":{said}}}\n");
        }
    }
}

/// Follows one console.
struct Follower {
    console: PathBuf,
    stamped: File,
    requests: File,
    read_bytes: u64,
    lines: Lines,
}

impl Follower {
    fn new(console: PathBuf, stamped: &Path, requests: &Path) -> Result<Follower, Fault> {
        let open = |path: &Path| {
            let file = File::options().create(true).append(true).open(path);
            file.map_err(|e| Fault::io(format!("writing {}", path.display()), &e))
        };
        let (stamped, requests) = (open(stamped)?, open(requests)?);
        Ok(Follower { console, stamped, requests, read_bytes: 0, lines: Lines::default() })
    }

    /// Copies the lines that arrived since the last check. If a console file is shorter than before, it was
    /// emptied.
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
            self.lines.partial.clear();
        }
        let host_ns = now_ns();
        let mut file = File::open(&self.console)?;
        file.seek(SeekFrom::Start(self.read_bytes))?;
        let mut bytes = Vec::new();
        file.take(length - self.read_bytes).read_to_end(&mut bytes)?;
        self.read_bytes += bytes.len() as u64;
        let fresh = self.lines.take(&bytes, host_ns, requests::wall_less_monotonic_ns());
        self.stamped.write_all(fresh.stamped.as_bytes())?;
        self.requests.write_all(fresh.requests.as_bytes())
    }
}

/// Stamps the reports of `vms` until the lab's record has another token or is gone.
///
/// # Errors
/// A file of the lab cannot be written.
pub fn run(dir: &Path, token: &str, vms: &[String]) -> Result<(), Fault> {
    make_folder(&dir.join("reports"))?;
    make_folder(&dir.join("requests"))?;
    let follower =
        |vm: &String| Follower::new(console_file(dir, vm), &stamped_file(dir, vm), &requests_file(dir, vm));
    let followers = vms.iter().map(follower);
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
        let mut lines = Lines::default();
        let none = lines.take(b"[ 1.0] kernel\r\n{\"vsteer_guest\":1,\"se", 5, 0);
        assert_eq!(none, Fresh::default());
        let more = b"q\":0,\"t_ns\":3}\r\n{\"other\":1}\n{\"vsteer_guest\":1,\"seq\":1,\"t_ns\":4}\nrest";
        let fresh = lines.take(more, 7, 0);
        assert_eq!(
            fresh.stamped,
            "{\"host_ns\":7,\"report\":{\"vsteer_guest\":1,\"seq\":0,\"t_ns\":3}}\n\
             {\"host_ns\":7,\"report\":{\"vsteer_guest\":1,\"seq\":1,\"t_ns\":4}}\n"
        );
        assert_eq!((fresh.requests.as_str(), lines.partial.as_slice()), ("", &b"rest"[..]));
    }

    #[test]
    fn requests_are_laid_to_the_hosts_clock_by_the_line_that_lagged_least() {
        let mut lines = Lines::default();
        // The report lags 1 ms, the requests 21 ms, behind a guest whose clock began at 40 s of the host's.
        let _ = lines.take(b"{\"vsteer_guest\":1,\"t_ns\":1000000000}\n", 41_001_000_000, 0);
        let line = b"{\"vsteer_requests\":1,\"t_ns\":1002000000,\"ended\":[[2000,1700]]}\r\n";
        let fresh = lines.take(line, 41_023_000_000, 1_767_225_600_000_000_000);
        assert_eq!(fresh.requests, "{\"ts\":1767225641.001000000,\"duration_us\":1700}\n");
        assert_eq!(fresh.stamped, "");
    }

    #[test]
    fn what_a_former_life_left_half_said_is_passed_over() {
        let mut lines = Lines::default();
        let _ = lines.take(b"{\"vsteer_guest\":1,\"t_ns\":90000000000}\n", 100_000_000_000, 0);
        // The VM ended in the middle of a line. Started again, it writes after that.
        let _ = lines.take(b"{\"vsteer_guest\":1,\"t_ns\":910", 101_000_000_000, 0);
        let glued = b"{\"vsteer_guest\":1,\"t_ns\":2000000000}\n{\"vsteer_guest\":1,\"se[ 0.1] kernel\n";
        let fresh = lines.take(glued, 110_000_000_000, 0);
        assert_eq!(
            fresh.stamped,
            "{\"host_ns\":110000000000,\"report\":{\"vsteer_guest\":1,\"t_ns\":2000000000}}\n"
        );
        let line = b"{\"vsteer_requests\":1,\"t_ns\":3000000000,\"ended\":[[0,5]]}\n";
        assert_eq!(
            lines.take(line, 111_000_000_000, 0).requests,
            "{\"ts\":111.000000000,\"duration_us\":5}\n"
        );
    }

    #[test]
    fn a_console_that_grows_is_followed_and_one_that_was_emptied_is_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let mut follower = Follower::new(at("c"), &at("s"), &at("r")).unwrap();
        follower.look().unwrap();
        let count = |name: &str| std::fs::read_to_string(at(name)).unwrap().lines().count();
        let report = "{\"vsteer_guest\":1,\"seq\":0,\"t_ns\":5}\n";
        std::fs::write(at("c"), format!("{report}{report}")).unwrap();
        follower.look().unwrap();
        follower.look().unwrap();
        assert_eq!((count("s"), count("r")), (2, 0));
        let requests = "{\"vsteer_requests\":1,\"t_ns\":9,\"ended\":[[0,1],[0,2]]}\n";
        File::options().append(true).open(at("c")).unwrap().write_all(requests.as_bytes()).unwrap();
        follower.look().unwrap();
        assert_eq!((count("s"), count("r")), (2, 2));
        std::fs::write(at("c"), report).unwrap();
        follower.look().unwrap();
        assert_eq!((count("s"), count("r")), (3, 2));
    }
}
