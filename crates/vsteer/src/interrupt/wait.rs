//! Waits that end at a signal, or when a file descriptor becomes readable.

use super::Interrupt;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};
use vsteer_host::pace::Pace;

/// How often to look for a signal if none can be waited for.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Can be read from once a signal has come: waking up to look would cost CPU time of the VMs.
#[derive(Clone)]
pub(super) struct Signal(Option<Arc<UnixStream>>);

impl Signal {
    pub(super) fn listen(signals: &[i32]) -> Signal {
        let (read, written) = UnixStream::pair().ok().unzip();
        for signal in signals {
            if let Some(written) = written.as_ref().and_then(|w| w.try_clone().ok()) {
                let _ = signal_hook::low_level::pipe::register(*signal, written);
            }
        }
        Signal(read.map(Arc::new))
    }
}

impl Interrupt {
    /// Sleeps until `then`, until interrupted, or until something can be read from one of these.
    pub fn wait(&self, then: Option<Instant>, readable: &[BorrowedFd<'_>]) -> Woken {
        while !self.is_set() {
            let left = then.map(|then| then.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Woken::Time;
            }
            let signal = self.signal.0.as_ref().map(|s| PollFd::new(s, PollFlags::IN));
            // Without what a signal writes to, it is looked for.
            let most =
                if signal.is_some() { left } else { Some(left.map_or(LOOK_EVERY, |l| l.min(LOOK_EVERY))) };
            let timeout =
                most.map(|d| Timespec { tv_sec: d.as_secs() as i64, tv_nsec: i64::from(d.subsec_nanos()) });
            let others = readable.iter().map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN));
            let mut all: Vec<PollFd<'_>> = others.chain(signal).collect();
            // Interrupted or not: the flag and the clock say what to do.
            if poll(&mut all, timeout.as_ref()).is_ok_and(|n| n > 0) {
                // One whose other end is gone can be read from, too: that says so.
                let ready = |fd: &PollFd<'_>| !fd.revents().is_empty();
                if let Some(which) = all[..readable.len()].iter().position(ready) {
                    return Woken::Readable(which);
                }
            }
        }
        Woken::Interrupted
    }
}

impl Pace for Interrupt {
    fn sleep_until(&self, then: Instant) -> bool {
        self.wait(Some(then), &[]) == Woken::Interrupted
    }
}

/// Why a sleep ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Woken {
    Interrupted,
    /// It was time.
    Time,
    /// Something can be read from the one of this index, and perhaps from later ones.
    Readable(usize),
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The one test that raises a signal: flags are the process's.
    #[test]
    fn a_signal_ends_a_sleep_and_time_does() {
        let interrupt = Interrupt::listen_to_undo();
        let begun = Instant::now();
        assert!(!interrupt.sleep_until(begun + Duration::from_millis(30)));
        assert!(begun.elapsed() >= Duration::from_millis(30));
        let pid = rustix::process::getpid();
        let raiser = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(50));
            rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
        });
        assert!(interrupt.sleep_until(begun + Duration::from_secs(60)));
        assert!(begun.elapsed() < Duration::from_secs(30) && interrupt.is_set());
        raiser.join().unwrap();
    }
}
