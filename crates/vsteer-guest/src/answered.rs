//! Which requests has this VM answered since it last said so? A queue per vCPU, and the line that empties them.
//!
//! The thread that serves puts in, the one that reports takes out, once a second, so that the serving thread never writes to
//! the console and waits for nothing but a push or a swap of the queue. Times are told as distances, in whole us, so that 170
//! requests a second are 2 to 3 KB.
//!
//! Left out: VMs without an operating system, which keep their responses in their memory (vmm/abi.rs).

use std::fmt::Write;
use std::sync::{Mutex, PoisonError};

/// One request, by the guest's CLOCK_MONOTONIC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answered {
    /// When it arrived, ns.
    pub arrival_ns: u64,
    /// From then to its answer, ns.
    pub took_ns: u64,
}

impl Answered {
    fn done_ns(&self) -> u64 {
        self.arrival_ns + self.took_ns
    }
}

/// What one vCPU has answered and nobody has told yet.
#[derive(Default)]
pub struct Queue(Mutex<Vec<Answered>>);

impl Queue {
    pub fn push(&self, one: Answered) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(one);
    }

    fn take(&self) -> Vec<Answered> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The line that tells what the queues hold, with its line end, and empties them; `None` where they are empty. `now_ns` is
/// asked for the guest's CLOCK_MONOTONIC, ns, once they are, so that nothing was answered later than that.
pub fn line(queues: &[Queue], now_ns: impl Fn() -> u64) -> Option<String> {
    let mut all: Vec<Answered> = queues.iter().flat_map(Queue::take).collect();
    if all.is_empty() {
        return None;
    }
    let t_ns = now_ns();
    all.sort_by_key(Answered::done_ns);
    let mut s = String::with_capacity(64 + 20 * all.len());
    // Writing to a string does not fail.
    let _ = write!(s, "{{\"vsteer_requests\":1,\"t_ns\":{t_ns},\"ended\":[");
    for (i, one) in all.iter().enumerate() {
        let ago_us = t_ns.saturating_sub(one.done_ns()) / 1_000;
        let comma = if i > 0 { "," } else { "" };
        let _ = write!(s, "{comma}[{ago_us},{}]", one.took_ns / 1_000);
    }
    s.push_str("]}\n");
    Some(s)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The very line that vsteer-lab's parser is tested with: change both or neither.
    #[test]
    fn the_line_is_the_documented_one_and_tells_everything_once() {
        let queues = [Queue::default(), Queue::default()];
        assert_eq!(line(&queues, || 5), None);
        queues[0].push(Answered { arrival_ns: 8_000_000_000, took_ns: 6_600_999 });
        queues[0].push(Answered { arrival_ns: 8_900_000_000, took_ns: 100_000_000 });
        queues[1].push(Answered { arrival_ns: 8_100_000_000, took_ns: 1_700_000 });
        assert_eq!(
            line(&queues, || 9_000_123_456).unwrap(),
            "{\"vsteer_requests\":1,\"t_ns\":9000123456,\"ended\":[[993522,6600],[898423,1700],[123,100000]]}\n"
        );
        assert_eq!(line(&queues, || 5), None);
    }

    #[test]
    fn a_busy_second_fits_a_slow_port() {
        let queue = [Queue::default()];
        (0..170).for_each(|i| queue[0].push(Answered { arrival_ns: i * 5_800_000, took_ns: 60_000_000 }));
        let bytes = line(&queue, || 1_050_000_000).unwrap().len();
        // 115,200 baud are 11,520 bytes a second.
        assert!(bytes < 3_000, "{bytes}");
    }
}
