//! What does one vCPU do, exactly?
//!
//! Every wait is to an absolute time, so lateness does not push the schedule ahead of itself: an expiry that
//! was slept through is counted too (no coordinated omission; G. Tene, "How NOT to Measure Latency"). A
//! request's demand is a number of work units, so a slower vCPU serves it more slowly, as it would in truth.
//! Left out: memory traffic and I/O; these VMs contend for the CPU only.

use crate::counters::Counters;
use crate::workload::Workload;
use rustix::thread::{ClockId, clock_nanosleep_absolute};
use rustix::time::{Timespec, clock_gettime};
use std::hint::black_box;

/// Steps of the generator in one work unit: about a microsecond natively, several under emulation.
const STEPS_PER_UNIT: u32 = 1_000;

/// Now on CLOCK_MONOTONIC, ns.
pub fn now_ns() -> u64 {
    let t = clock_gettime(ClockId::Monotonic);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// Sleeps until `due_ns`; returns at once where that has passed. A signal only makes it try again.
pub fn sleep_until(due_ns: u64) {
    let due = Timespec { tv_sec: (due_ns / 1_000_000_000) as i64, tv_nsec: (due_ns % 1_000_000_000) as i64 };
    while clock_nanosleep_absolute(ClockId::Monotonic, &due).is_err() {}
}

/// A source of work and of seeded numbers. SplitMix64 (Steele, Lea, Flood 2014) spreads the seed.
struct Generator(u64);

impl Generator {
    fn new(seed: u64) -> Self {
        let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        Generator((z ^ (z >> 31)) | 1)
    }

    /// xorshift64 (Marsaglia 2003).
    fn step(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// One work unit.
    fn work(&mut self) {
        for _ in 0..STEPS_PER_UNIT {
            self.step();
        }
        black_box(self.0);
    }

    /// Exponential with the given mean, by inversion.
    fn exponential(&mut self, mean: f64) -> f64 {
        let uniform = ((self.step() >> 11) as f64 + 0.5) / (1_u64 << 53) as f64;
        -mean * uniform.ln()
    }
}

/// Runs `workload` on the vCPU numbered `vcpu` for ever.
pub fn run(workload: &Workload, vcpu: u64, counters: &Counters) -> ! {
    let mut generator = Generator::new(vcpu + 1);
    let start_ns = now_ns();
    match *workload {
        Workload::Idle => loop {
            std::thread::park();
        },
        Workload::Burn => loop {
            generator.work();
            counters.unit_done();
        },
        Workload::Periodic { period_ns } => {
            let mut due_ns = start_ns;
            loop {
                due_ns += period_ns;
                wait(due_ns, counters);
            }
        }
        Workload::Server { rate_hz, mean_units, seed } => {
            // The work's own generator, so that the arrivals do not depend on the demands served.
            let mut arrivals = Generator::new(seed.wrapping_mul(0x1_0000_0001).wrapping_add(vcpu));
            let mut arrival_ns = start_ns;
            loop {
                arrival_ns += arrivals.exponential(1e9 / rate_hz) as u64;
                let demand_units = arrivals.exponential(mean_units).ceil() as u64;
                if now_ns() < arrival_ns {
                    wait(arrival_ns, counters);
                }
                for _ in 0..demand_units {
                    generator.work();
                    counters.unit_done();
                }
                counters.resp.record(now_ns() - arrival_ns);
            }
        }
        Workload::Burst { on_ns, off_ns } => {
            let mut begin_ns = start_ns;
            loop {
                burn_until(begin_ns + on_ns, &mut generator, counters);
                begin_ns += on_ns + off_ns;
                wait(begin_ns, counters);
            }
        }
        Workload::Waker { every_ns, sleep_ns } => loop {
            burn_until(now_ns() + every_ns, &mut generator, counters);
            wait(now_ns() + sleep_ns, counters);
        },
    }
}

/// Sleeps until `due_ns` and counts how late that was.
fn wait(due_ns: u64, counters: &Counters) {
    sleep_until(due_ns);
    counters.late.record(now_ns().saturating_sub(due_ns));
}

fn burn_until(end_ns: u64, generator: &mut Generator, counters: &Counters) {
    while now_ns() < end_ns {
        generator.work();
        counters.unit_done();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exponential_has_its_mean_and_the_seed_decides() {
        let sample = |seed| {
            let mut generator = Generator::new(seed);
            (0..100_000).map(|_| generator.exponential(200.0)).collect::<Vec<f64>>()
        };
        let draws = sample(1);
        let mean = draws.iter().sum::<f64>() / draws.len() as f64;
        // The mean of 1e5 draws has a standard error of 0.32 %: 2 % is six of them.
        assert!((mean - 200.0).abs() < 4.0, "mean {mean}");
        assert_eq!(draws[..10], sample(1)[..10]);
        assert_ne!(draws[..10], sample(2)[..10]);
    }

    #[test]
    fn sleeping_into_the_past_returns_and_is_counted_late() {
        let counters = [Counters::new()];
        wait(now_ns() - 5_000_000, &counters[0]);
        let read = crate::counters::read(&counters);
        assert!(read.late.sum_ns >= 5_000_000);
        assert_eq!(read.late.buckets.iter().sum::<u64>(), 1);
    }
}
