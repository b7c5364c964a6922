//! What does one vCPU do, exactly?
//!
//! Every wait is to an absolute time, so lateness does not push the schedule ahead of itself: an expiry that
//! was slept through is counted too (no coordinated omission; G. Tene, "How NOT to Measure Latency"). A
//! request's demand is a number of work units, so a slower vCPU serves it more slowly, as it would in truth.
//! Left out: memory traffic and I/O; these VMs contend for the CPU only.

use crate::counters::Counters;
use crate::generator::Generator;
use crate::workload::Workload;
use rustix::thread::{ClockId, clock_nanosleep_absolute};
use rustix::time::{Timespec, clock_gettime};

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

/// Exponential with the given mean, by inversion.
fn exponential(generator: &mut Generator, mean: f64) -> f64 {
    let uniform = ((generator.step() >> 11) as f64 + 0.5) / (1_u64 << 53) as f64;
    -mean * uniform.ln()
}

/// The requests that come to one vCPU of a server, for ever: how long after the one before, ns, and how many work
/// units each takes.
pub struct Arrivals {
    generator: Generator,
    mean_gap_ns: f64,
    mean_units: f64,
}

impl Arrivals {
    /// Poisson arrivals at `rate_hz` with exponential demands; `seed` and vCPU decide all of them.
    pub fn new(rate_hz: f64, mean_units: f64, seed: u64, vcpu: u64) -> Arrivals {
        let generator = Generator::new(seed.wrapping_mul(0x1_0000_0001).wrapping_add(vcpu));
        Arrivals { generator, mean_gap_ns: 1e9 / rate_hz, mean_units }
    }

    /// The next one's gap, ns, and demand, work units.
    pub fn draw(&mut self) -> (u64, u64) {
        let gap_ns = exponential(&mut self.generator, self.mean_gap_ns) as u64;
        (gap_ns, exponential(&mut self.generator, self.mean_units).ceil() as u64)
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
        Workload::Periodic { period_ns, work_units } => {
            let mut due_ns = start_ns;
            loop {
                due_ns += period_ns;
                wait(due_ns, counters);
                for _ in 0..work_units {
                    generator.work();
                    counters.unit_done();
                }
            }
        }
        Workload::Server { rate_hz, mean_units, seed } => {
            // The work's own generator, so that the arrivals do not depend on the demands served.
            let mut arrivals = Arrivals::new(rate_hz, mean_units, seed, vcpu);
            let mut arrival_ns = start_ns;
            loop {
                let (gap_ns, demand_units) = arrivals.draw();
                arrival_ns += gap_ns;
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
            (0..100_000).map(|_| exponential(&mut generator, 200.0)).collect::<Vec<f64>>()
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
        let read = crate::reading::read(&counters);
        assert!(read.late.sum_ns >= 5_000_000);
        assert_eq!(read.late.buckets.iter().sum::<u64>(), 1);
    }
}
