//! Which of the kernel's performance counters can be a measure of an experiment?
//!
//! `of = { counter = { event = "cache-misses", vm = "web" } }`: so often per second in the vCPUs of the VMs that are meant, all together. Names are those of
//! `man 1 perf-list`.

use serde::{Deserialize, Serialize};

/// What is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Event {
    /// Instructions that were carried out.
    Instructions,
    /// The core's cycles.
    Cycles,
    /// Accesses to the last level cache.
    CacheReferences,
    /// Those that it did not hold.
    CacheMisses,
    /// Branches that were guessed wrongly.
    BranchMisses,
    /// Times that a vCPU's thread left a pCPU.
    ContextSwitches,
    /// Times that it went to another pCPU.
    CpuMigrations,
    /// Faults of the thread's own pages.
    PageFaults,
}

impl Event {
    /// As people write it.
    pub fn name(self) -> &'static str {
        match self {
            Event::Instructions => "instructions",
            Event::Cycles => "cycles",
            Event::CacheReferences => "cache-references",
            Event::CacheMisses => "cache-misses",
            Event::BranchMisses => "branch-misses",
            Event::ContextSwitches => "context-switches",
            Event::CpuMigrations => "cpu-migrations",
            Event::PageFaults => "page-faults",
        }
    }

    /// Does it need counters of the processor's?
    pub fn is_hardwares(self) -> bool {
        !matches!(self, Event::ContextSwitches | Event::CpuMigrations | Event::PageFaults)
    }
}

/// Its unit: events per second.
pub const UNIT: &str = "/s";
