//! What does this process cost the host that it steers, and how does it keep that cost small?
//!
//! After each piece of work the thread sleeps in proportion to how long the work took. The kernel tells the cost: CPU
//! time in the thread's `schedstat`, memory in the process's `statm` (proc(5)).
//!
//! Left out: the CPU time of threads that ask servers, which wait nearly all the time.

use std::cell::Cell;
use std::time::{Duration, Instant};

/// Estimates take at most this part of a pCPU, because the host is there for its VMs ...
const OF_A_PCPU: f64 = 0.1;
/// ... and less in a Domain-0, which handles the VMs' requests.
const OF_A_DOMAIN0: f64 = 0.04;
const REST_MOST: Duration = Duration::from_secs(2);

/// Alternates work and rest.
pub(super) struct Resting {
    since: Cell<Instant>,
    of_a_pcpu: f64,
}

impl Resting {
    /// Starts to work. `in_domain0`: does this process share its pCPUs with a Domain-0?
    pub fn new(in_domain0: bool) -> Resting {
        let of_a_pcpu = if in_domain0 { OF_A_DOMAIN0 } else { OF_A_PCPU };
        Resting { since: Cell::new(Instant::now()), of_a_pcpu }
    }

    /// Rests for the work since the last rest.
    pub fn rest(&self) {
        std::thread::sleep(rest_after(self.since.get().elapsed(), self.of_a_pcpu));
        self.since.set(Instant::now());
    }
}

/// How long to rest after `worked`, so that work takes this part of a pCPU.
fn rest_after(worked: Duration, of_a_pcpu: f64) -> Duration {
    worked.mul_f64(1.0 / of_a_pcpu - 1.0).min(REST_MOST)
}

/// CPU time of this thread until now, s (the first field of its schedstat: ns on a pCPU); 0 where the kernel does not
/// say.
pub(super) fn cpu_s() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split(' ').next().and_then(|ns| ns.parse::<f64>().ok()).map_or(0.0, |ns| ns / 1e9)
}

/// Resident memory of this process, bytes (the second field of its statm: pages); 0 where the kernel does not say.
pub(super) fn bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = text.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok());
    pages.unwrap_or(0) * rustix::param::page_size() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rests_are_in_proportion_to_work_and_end() {
        let ms = Duration::from_millis;
        assert_eq!(rest_after(ms(10), 0.1).as_millis(), 90);
        assert_eq!(rest_after(ms(10), 0.04).as_millis(), 240);
        assert_eq!(rest_after(ms(1000), 0.1), REST_MOST);
    }

    #[test]
    fn the_kernel_tells_what_this_process_uses() {
        // The kernel adds up a thread's time at its ticks.
        let begun = Instant::now();
        while cpu_s() == 0.0 && begun.elapsed() < Duration::from_secs(10) {
            std::hint::black_box(begun);
        }
        assert!(cpu_s() > 0.0 && bytes() > 1 << 20);
    }
}
