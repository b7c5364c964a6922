//! Which of the kernel's performance counters can be a measure of an experiment?
//!
//! `of = { counter = { event = "cache-misses", vm = "web" } }` is events per second, summed over the vCPUs of these
//! VMs. Names are those of `man 1 perf-list`.

use serde::{Deserialize, Serialize};

/// Event to count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Event {
    /// Executed instructions.
    Instructions,
    /// Cycles of the core.
    Cycles,
    /// Accesses to the last level cache.
    CacheReferences,
    /// Misses of the last level cache.
    CacheMisses,
    /// Mispredicted branches.
    BranchMisses,
    /// Context switches of a vCPU's thread.
    ContextSwitches,
    /// Moves to another pCPU.
    CpuMigrations,
    /// Page faults of the thread.
    PageFaults,
}

impl Event {
    /// Name of the event in an experiment's file.
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

    /// Does the event need the processor's counters?
    pub fn is_hardwares(self) -> bool {
        !matches!(self, Event::ContextSwitches | Event::CpuMigrations | Event::PageFaults)
    }
}

/// Unit: events per second.
pub const UNIT: &str = "/s";
