//! How well does somebody's program run in this VM? One that says by itself whenever it has finished something.
//!
//! `run=NAME/WORD/WORD` starts /bin/NAME of the initramfs with these words. Each line of its output
//!
//!     WORD END_S TOOK_S
//!
//! is something finished: when, by CLOCK_REALTIME, and how long that took since it was asked for, s. It is a unit, a response time, and a request answered; all other lines
//! go to the console as they are. Two that do so: `loops`, parallel loops, whose regions these are; `vsteer-display`, whose frames they are.
//!
//! Left out: several programs; input.

use crate::answered::{Answered, Queue};
use crate::clock::now_ns;
use crate::counters::Counters;
use rustix::thread::{CpuSet, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};
use std::io::{BufRead, BufReader};
use std::os::fd::AsRawFd;
use std::process::{Command, Stdio};

/// Starts it, and counts until it ends, which none should come to; how it ended.
pub fn run(words: &[String], counters: &Counters, answered: Option<&Queue>) -> String {
    let program = format!("/bin/{}", words.first().map_or("", String::as_str));
    match follow(&program, words.get(1..).unwrap_or_default(), counters, answered) {
        Ok(how) => how,
        Err(e) => format!("{program}: {e}"),
    }
}

fn follow(
    program: &str,
    words: &[String],
    counters: &Counters,
    answered: Option<&Queue>,
) -> std::io::Result<String> {
    if std::process::id() == 1 {
        raise_loopback()?;
    }
    // Its threads may run on every vCPU, where this one, as each that works here, has one of its own.
    let mut all = CpuSet::new();
    (0..CpuSet::MAX_CPU).for_each(|cpu| all.set(cpu));
    sched_setaffinity(None, &all)?;
    let mut child = Command::new(program).args(words).stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
    let output = child.stdout.take().expect("it is a pipe");
    for line in BufReader::new(output).lines() {
        let line = line?;
        let Some((end_ns, took_ns)) = finished(&line) else {
            println!("{line}");
            continue;
        };
        counters.unit_done();
        counters.resp.record(took_ns);
        if let Some(queue) = answered {
            let end_ns = now_ns().saturating_sub(realtime_ns().saturating_sub(end_ns));
            queue.push(Answered { arrival_ns: end_ns.saturating_sub(took_ns), took_ns });
        }
    }
    Ok(format!("{program} ended ({})", child.wait()?))
}

/// Nobody else has done so in a VM whose first program this is, and programs talk to themselves.
#[allow(unsafe_code)]
fn raise_loopback() -> std::io::Result<()> {
    let socket = rustix::net::socket(rustix::net::AddressFamily::INET, rustix::net::SocketType::DGRAM, None)?;
    // SAFETY: an ifreq is plain data, of which zeros are a value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    request.ifr_name[..2].copy_from_slice(&[b'l' as libc::c_char, b'o' as libc::c_char]);
    request.ifr_ifru.ifru_flags = libc::IFF_UP as libc::c_short;
    // SAFETY: the call reads one ifreq at this address (`man 7 netdevice`).
    let done =
        unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS as libc::Ioctl, &raw const request) };
    if done == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

/// `WORD END_S TOOK_S`, ns.
fn finished(line: &str) -> Option<(u64, u64)> {
    let mut words = line.split_ascii_whitespace().skip(1);
    let mut ns = || {
        let s: f64 = words.next()?.parse().ok()?;
        (0.0..1e10).contains(&s).then_some((1e9 * s) as u64)
    };
    let times = (ns()?, ns()?);
    words.next().is_none().then_some(times)
}

fn realtime_ns() -> u64 {
    let t = clock_gettime(ClockId::Realtime);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_finished_has_three_words() {
        assert_eq!(finished("loop 12.5 0.25"), Some((12_500_000_000, 250_000_000)));
        for other in ["", "loop", "loop 12.5", "loop 12.5 x", "loop 12.5 -1", "loop 1 2 3", "loop inf 1"] {
            assert_eq!(finished(other), None, "{other}");
        }
    }

    #[test]
    fn a_program_that_is_not_there_is_named() {
        let counters = Counters::new();
        let how = run(&["no-such-program".to_owned()], &counters, None);
        assert!(how.starts_with("/bin/no-such-program: "), "{how}");
    }

    #[test]
    fn what_it_finishes_is_counted_and_how_it_ends_is_told() {
        let (counters, queue) = (Counters::new(), Queue::default());
        let words = ["sh", "-c", "echo said; echo loop $(date +%s).0 0.5; exit 3"].map(str::to_owned);
        let how = run(&words, &counters, Some(&queue));
        assert!(how.contains("exit status: 3"), "{how}");
        assert_eq!((counters.units(), counters.resp.sum_ns()), (1, 500_000_000));
        let told = crate::answered::line(&[queue], now_ns).unwrap();
        assert!(told.contains(",500000]"), "{told}");
    }
}
