//! How long did tasks stall because they waited for a CPU, for I/O or for memory? Pressure stall information (PSI).
//!
//! The kernel counts it for the host and for each cgroup of version 2. `some`: at least one task stalled. `full`: tasks
//! stalled and none could go on. On several pCPUs the kernel takes the mean over those that are not idle.
//!
//! Source: `Documentation/accounting/psi.rst` and `kernel/sched/psi.c`, Linux 6.12.
//!
//! Left out: `full` of the CPU, which is not defined for a host; interrupts, which count as overlap here.
//!
//! GAP(psi-async): I/O that a VMM submits without waiting (`aio=native`, `io_uring`) stalls no task of the host.

use serde::{Deserialize, Serialize};

/// A value for each kind of stall; `None`: not measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Stalls<T> {
    /// A task waited for a CPU, or its quota was used up.
    pub cpu_some: Option<T>,
    /// A task waited for I/O.
    pub io_some: Option<T>,
    /// Tasks waited for I/O and none could run.
    pub io_full: Option<T>,
    /// A task waited for memory: reclaim, swap, refaults.
    pub memory_some: Option<T>,
    /// Tasks waited for memory and none could go on.
    pub memory_full: Option<T>,
}

/// Time that was lost to each kind of stall; cumulative, ns.
pub type Pressure = Stalls<u64>;
/// Part of a window that was lost to each kind of stall, 0..=1.
pub type PressureShares = Stalls<f64>;

/// A kind of stall.
pub struct Stall {
    /// Column of recordings and exports, ns.
    pub name: &'static str,
    /// The kernel's file: `cpu`, `io` or `memory`.
    pub file: &'static str,
    /// The line in that file.
    pub line: &'static str,
    /// Meaning of the figure.
    pub meaning: &'static str,
}

/// Every kind of stall, in the order of [`Stalls::each`].
pub const STALLS: [Stall; 5] = [
    Stall {
        name: "psi_cpu_some_ns",
        file: "cpu",
        line: "some",
        meaning: "At least one task waited for a CPU; includes time held by a quota",
    },
    Stall { name: "psi_io_some_ns", file: "io", line: "some", meaning: "At least one task waited for I/O" },
    Stall {
        name: "psi_io_full_ns",
        file: "io",
        line: "full",
        meaning: "Tasks waited for I/O and none could run",
    },
    Stall {
        name: "psi_memory_some_ns",
        file: "memory",
        line: "some",
        meaning: "At least one task waited for memory: reclaim, swap, refaults",
    },
    Stall {
        name: "psi_memory_full_ns",
        file: "memory",
        line: "full",
        meaning: "Tasks waited for memory and none could go on",
    },
];

impl<T: Copy> Stalls<T> {
    /// From the values in the order of [`STALLS`].
    pub fn new([cpu_some, io_some, io_full, memory_some, memory_full]: [Option<T>; STALLS.len()]) -> Self {
        Stalls { cpu_some, io_some, io_full, memory_some, memory_full }
    }

    /// The values in the order of [`STALLS`].
    pub fn each(&self) -> [Option<T>; STALLS.len()] {
        [self.cpu_some, self.io_some, self.io_full, self.memory_some, self.memory_full]
    }

    /// These; `None` if none was measured.
    pub fn measured(self) -> Option<Self> {
        self.each().iter().any(Option::is_some).then_some(self)
    }
}

/// Stalled time cannot rise faster than time passes. It seems to by a little, because a poll of many threads takes a
/// while and a batch has one time. Beyond this many times as fast, the two readings are of different cgroups.
const FASTEST: u64 = 2;

impl PressureShares {
    /// Shares of the time between readings `(moment in ns, what had stalled until then)`, which are in order of time. A
    /// pair of readings between which the count fell or leapt does not count: the cgroup was made again.
    pub fn over(readings: &[(u64, Pressure)]) -> PressureShares {
        PressureShares::new(std::array::from_fn(|i| {
            let of: Vec<(u64, u64)> =
                readings.iter().filter_map(|(ns, p)| Some((*ns, p.each()[i]?))).collect();
            let (mut stalled, mut passed) = (0_u64, 0_u64);
            for pair in of.windows(2) {
                let ns = pair[1].0.saturating_sub(pair[0].0);
                let rose = pair[1].1.checked_sub(pair[0].1);
                if let Some(rose) = rose.filter(|rose| *rose <= ns.saturating_mul(FASTEST)) {
                    stalled = stalled.saturating_add(rose);
                    passed = passed.saturating_add(ns);
                }
            }
            (passed > 0).then(|| (stalled as f64 / passed as f64).min(1.0))
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn io(ns: u64) -> Pressure {
        Pressure { io_full: Some(ns), ..Pressure::default() }
    }

    #[test]
    fn shares_are_of_the_time_between_readings() {
        let shares = PressureShares::over(&[(1_000, io(500)), (2_000, io(600)), (5_000, io(1_500))]);
        assert_eq!((shares.io_full, shares.io_some), (Some(0.25), None));
        // A reading that lacks the value in between changes nothing.
        let gap = [(1_000, io(500)), (2_000, Pressure::default()), (5_000, io(1_500))];
        assert_eq!(PressureShares::over(&gap).io_full, Some(0.25));
        assert_eq!(PressureShares::over(&[(1, io(5))]), PressureShares::default());
        assert_eq!(PressureShares::over(&[]), PressureShares::default());
        assert_eq!(PressureShares::over(&[(7, io(5)), (7, io(5))]).io_full, None);
    }

    #[test]
    fn another_cgroup_is_not_a_stall() {
        // The VM restarts: its group is made again. Or it moves to a group that has stalled for hours.
        let fell = [(1_000, io(900)), (2_000, io(100)), (3_000, io(200))];
        assert_eq!(PressureShares::over(&fell).io_full, Some(0.1));
        let leapt = [(1_000, io(900)), (2_000, io(90_000)), (3_000, io(90_300))];
        assert_eq!(PressureShares::over(&leapt).io_full, Some(0.3));
        assert_eq!(PressureShares::over(&leapt[..2]).io_full, None);
        // A little too fast is a reading that was late.
        assert_eq!(PressureShares::over(&[(1_000, io(0)), (2_000, io(1_020))]).io_full, Some(1.0));
    }

    #[test]
    fn the_order_of_the_table_is_that_of_the_values() {
        let all = Pressure::new([Some(1), Some(2), Some(3), Some(4), Some(5)]);
        assert_eq!(Pressure::new(all.each()), all);
        let of = |name: &str| all.each()[STALLS.iter().position(|s| s.name == name).unwrap()];
        assert_eq!((of("psi_cpu_some_ns"), all.cpu_some), (Some(1), Some(1)));
        assert_eq!((of("psi_io_full_ns"), all.io_full), (Some(3), Some(3)));
        assert_eq!((of("psi_memory_full_ns"), all.memory_full), (Some(5), Some(5)));
        assert_eq!(Pressure::default().measured(), None);
    }
}
