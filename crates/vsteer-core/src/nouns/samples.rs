//! Which counters of which threads, pCPUs and VMs does a recording store? [`crate::model`] derives shares and rates
//! from them.

use super::counters::{COUNTERS, DISTRIBUTIONS, ThreadCounters};
use super::{Pressure, Role, Tid, VmId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One thread at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadSample {
    /// Whose thread.
    pub vm: VmId,
    /// Role of the thread in its VM.
    pub role: Role,
    /// Its id: a new tid under the same role is a new series.
    pub tid: Tid,
    /// The pCPU it ran on last.
    pub last_cpu: Option<u32>,
    /// Length of the present uninterrupted wait (ready or limited), ns; 0 if the thread does not wait. The counters
    /// include it. Kernels that count waits only at their end do not.
    pub waiting_ns: Option<u64>,
    /// Its counters.
    pub counters: ThreadCounters,
}

/// One pCPU at one moment, from `/proc/stat`; cumulative, ns, `None` where the kernel has no such column.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PcpuSample {
    /// Number of the logical CPU.
    pub cpu: u32,
    /// Processes, user mode, guests included.
    pub user_ns: u64,
    /// Kernel mode.
    pub system_ns: u64,
    /// Hard interrupts.
    pub irq_ns: u64,
    /// Soft interrupts.
    pub softirq_ns: u64,
    /// Taken by the hypervisor below this host.
    pub steal_ns: Option<u64>,
    /// Idle, waiting for input or output included.
    pub idle_ns: u64,
    /// The part of `user_ns` that ran guests under KVM.
    pub guest_ns: Option<u64>,
    /// Clock, kHz; `None` without cpufreq.
    pub frequency_khz: Option<u64>,
}

/// A VM's counters that belong to no single thread.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VmSample {
    /// Id of the VM.
    pub vm: VmId,
    /// Times its own quotas ran out (`nr_throttled`), summed over its cgroups.
    pub throttled_periods: Option<u64>,
    /// The same of quotas that it shares with others: those of slices and pods that it is in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throttled_above: Option<u64>,
    /// How long its own quotas held run queues of its cgroups (`throttled_time`, `throttled_usec`), ns, summed over pCPUs and
    /// cgroups.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throttled_ns: Option<u64>,
    /// The same of quotas that it shares with others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throttled_above_ns: Option<u64>,
    /// I/O: requests of its disks and packets of its networks, all together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub io: Option<u64>,
    /// Stalls of the cgroup that holds this VM and nothing else; `None` without such a group, and between readings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pressure: Option<Pressure>,
    /// Counts of the VM's timers; `None` if `vsteer realtime` does not serve the VM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timers: Option<TimerCounts>,
    /// Bytes of its memory per NUMA node, ascending; read rarely, `None` in between.
    pub memory_by_node: Option<Vec<(u32, u64)>>,
    /// Of its memory, what lies on its home nodes, in millionths; where the hypervisor tells no more (esxtop's N%L).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_local_ppm: Option<u32>,
    /// All of it together as the hypervisor counts it; `None` where only threads are counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<GroupSample>,
}

impl VmSample {
    /// A sample of this VM in which nothing is counted.
    pub fn new(vm: VmId) -> VmSample {
        VmSample {
            vm,
            throttled_periods: None,
            throttled_above: None,
            throttled_ns: None,
            throttled_above_ns: None,
            io: None,
            pressure: None,
            timers: None,
            memory_by_node: None,
            memory_local_ppm: None,
            group: None,
        }
    }
}

/// A VM's worlds together, as esxtop's group row has them: every vCPU and every world that works for it. It is
/// measured, not added up here: the worlds themselves may not be in the file.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct GroupSample {
    /// Number of worlds in the sums (such as 26 for a VM with 12 vCPUs); `None`: unknown.
    pub worlds: Option<u32>,
    /// Their sums; cumulative.
    pub counters: ThreadCounters,
}

/// How many of a VM's timers ended, and how the service treated them; cumulative.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimerCounts {
    /// All that ended.
    pub asked: u64,
    /// Timers for which the vCPU got priority.
    pub honoured: u64,
    /// Timers after which the vCPU ran more than [`TimerCounts::LATE_NS`] late.
    pub late: u64,
    /// Timers for which the vCPU was refused priority: no credit left, too soon after the last one, or quota used up.
    pub refused: u64,
}

impl TimerCounts {
    /// A timer is late if the vCPU runs more than this after the timer's end, ns. A tenth of the shortest media
    /// periods, and an edge of the histograms' buckets.
    pub const LATE_NS: u64 = 1 << 20;
}

/// What a ready thread waited for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Culprit {
    /// A thread of this VM (possibly the waiting one's own).
    Vm(VmId),
    /// A host process.
    Process {
        /// Name of the process (`comm`).
        comm: String,
        /// Its id; 0 when several were counted together.
        pid: u32,
        /// The container or pod that it runs in, as kind and name: `lxc web`, `docker 0123456789ab`, `pod UID`. `None`: in
        /// none, or not known, as of a process that has ended.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        container: Option<String>,
    },
    /// A kernel thread.
    Kernel {
        /// Name of the process (`comm`).
        comm: String,
    },
    /// The scheduler's placement: an allowed pCPU was idle during the wait.
    Placement,
    /// Unknown: what ran then was overwritten before it was read.
    Unattributed,
}

impl Culprit {
    /// A process of which no container is known.
    pub fn process(comm: impl Into<String>, pid: u32) -> Culprit {
        Culprit::Process { comm: comm.into(), pid, container: None }
    }

    /// The same without the number of the process, for sums over a long time: processes of one name and container are one
    /// culprit.
    #[must_use]
    pub fn without_pid(&self) -> Culprit {
        match self {
            Culprit::Process { comm, container, .. } => {
                Culprit::Process { comm: comm.clone(), pid: 0, container: container.clone() }
            }
            other => other.clone(),
        }
    }

    /// The container or pod that it runs in.
    pub fn container(&self) -> Option<&str> {
        match self {
            Culprit::Process { container, .. } => container.as_deref(),
            _ => None,
        }
    }
}

/// Time that a thread of `victim` was ready while `culprit` ran, since the batch before. Not cumulative as all else is:
/// on a host that starts many processes the culprits of a day are thousands, those of a moment a handful.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlameSample {
    /// VM that waited.
    pub victim: VmId,
    /// Which of its threads.
    pub role: Role,
    /// Cause of the wait.
    pub culprit: Culprit,
    /// Length, ns. Negative if an open wait was charged to the wrong culprit before, so that sums over batches are
    /// right.
    pub ns: i64,
}

/// Everything counted at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Batch {
    /// `CLOCK_MONOTONIC` when it was read, ns.
    pub mono_ns: u64,
    /// Wall-clock time at that moment, ns since 1970 UTC.
    pub unix_ns: u64,
    /// The VMs' threads.
    pub threads: Vec<ThreadSample>,
    /// Samples of the pCPUs.
    pub pcpus: Vec<PcpuSample>,
    /// Samples of the VMs.
    pub vms: Vec<VmSample>,
    /// Stalls of all tasks of the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pressure: Option<Pressure>,
    /// Blame since the batch before; empty if the collector does not measure it.
    pub blame: Vec<BlameSample>,
}

/// How the samples were taken, and what that way cannot see.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Collector {
    /// `ebpf`, `schedstat`, `simulator`, …
    pub name: String,
    /// Name of a counter (a field of [`ThreadCounters`], or one of [`NO_COUNTERS`]) -> why it is not measured.
    pub missing: BTreeMap<String, String>,
}

/// Data other than counters that samples may lack: the blame matrix, its placement part, single vCPUs, and pressure stall
/// information of the host and of VMs.
pub const NO_COUNTERS: [&str; 5] = ["blame", "blame.placement", "vcpus", "psi", "psi.vms"];

impl Collector {
    /// A collector that measures what `measures` says, of the names of counters. Every other counter is missing
    /// because of `why`, but for those that only some hypervisors have.
    pub fn new(name: &str, measures: impl Fn(&str) -> bool, why: &str) -> Collector {
        let numbers = COUNTERS.iter().filter(|c| !c.own).map(|c| c.name);
        let lacking = numbers.chain(DISTRIBUTIONS.iter().map(|d| d.name)).filter(|name| !measures(name));
        let missing = lacking.map(|what| (what.to_owned(), why.to_owned())).collect();
        Collector { name: name.to_owned(), missing }
    }

    /// This collector without these, for the given reason.
    ///
    /// # Panics
    /// If a name is neither a counter nor in [`NO_COUNTERS`], which is a bug.
    #[must_use]
    pub fn without(mut self, what: &[&str], why: &str) -> Collector {
        for name in what {
            let is_counter = COUNTERS.iter().map(|c| c.name).chain(DISTRIBUTIONS.iter().map(|d| d.name));
            assert!(is_counter.chain(NO_COUNTERS).any(|n| n == *name), "{name} is not a counter");
            self.missing.insert((*name).to_owned(), why.to_owned());
        }
        self
    }

    /// Is this measured?
    pub fn measures(&self, what: &str) -> bool {
        !self.missing.contains_key(what)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_that_is_not_measured_has_a_reason() {
        let measured = ThreadCounters { run_ns: Some(0), switches: Some(0), ..ThreadCounters::default() };
        let collector = Collector::new("polling", |c| measured.holds(c), "polling does not tell it");
        for name in COUNTERS.iter().filter(|c| !c.own).map(|c| c.name) {
            let is_measured = ["run_ns", "switches"].contains(&name);
            assert_eq!(collector.measures(name), is_measured, "{name}");
        }
        assert_eq!(collector.missing["wake_latency"], "polling does not tell it");
        // Of no use here, and no lack: other hypervisors alone have it.
        assert!(!collector.missing.contains_key("costop_ns"));
        let collector = collector.without(&["run_ns", "blame"], "switched off");
        assert_eq!(
            (collector.measures("run_ns"), collector.missing["blame"].as_str()),
            (false, "switched off")
        );
        assert_eq!(collector.missing["lag_ns"], "polling does not tell it");
    }

    #[test]
    #[should_panic(expected = "ready is not a counter")]
    fn a_reason_for_no_counter_is_a_bug() {
        let _ = Collector::new("polling", |_| true, "").without(&["ready"], "");
    }
}
