//! What does the history know of a minute or an hour?
//!
//! A row holds sums, not shares: time in microseconds that was observed, and that the vCPUs spent in each state. So the
//! rows of an hour are the sums of its minutes, and a share is a quotient of two columns. Times of a VM are sums over its
//! vCPUs, or over its worlds where the hypervisor counts only the group.
//!
//! `None` means "not measured", never 0. A sum is `None` if any part of it was not measured.

use serde::{Deserialize, Serialize};
use vsteer_core::nouns::{Histogram, Stalls, VmId};

/// Length of a minute, ms.
pub const MINUTE_MS: u64 = 60_000;
/// Length of an hour, ms.
pub const HOUR_MS: u64 = 60 * MINUTE_MS;
/// Length of a day, ms.
pub const DAY_MS: u64 = 24 * HOUR_MS;

/// Who made a VM wait, and how long.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Cost {
    /// The culprit, as `vsteer diagnose` names it.
    pub culprit: String,
    /// How long the VM's threads waited because of the culprit, µs.
    pub us: u64,
}

/// Number of culprits that a row keeps.
pub const COSTS: usize = 3;

/// One VM over a minute or an hour.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct VmRow {
    /// Start of the minute or hour, ms since 1970 UTC.
    pub unix_ms: u64,
    /// Id of the VM.
    pub vm: String,
    /// Name of the VM then.
    pub name: String,
    /// Number of vCPUs; `None`: not known.
    pub vcpus: Option<u64>,
    /// Samples that the row is made from.
    pub samples: u64,
    /// Time in which the VM was observed, µs.
    pub covered_us: u64,
    /// Are the times those of the VM's group, as ESXi counts it? Otherwise they are sums over vCPUs.
    pub of_group: bool,
    /// On a pCPU, µs.
    pub run_us: Option<u64>,
    /// Ready, without a pCPU and not limited, µs.
    pub ready_us: Option<u64>,
    /// Ready and limited together, µs.
    pub wait_us: Option<u64>,
    /// Limited by a quota, µs.
    pub limited_us: Option<u64>,
    /// Is `limited_us` an estimate?
    pub limited_is_estimate: bool,
    /// Co-stopped, µs.
    pub costop_us: Option<u64>,
    /// Ready while a sibling vCPU ran, µs.
    pub lag_us: Option<u64>,
    /// Wake-ups of the vCPUs.
    pub wakeups: Option<u64>,
    /// Median time from wake-up to running, µs.
    pub wake_p50_us: Option<u64>,
    /// 99th percentile, µs.
    pub wake_p99_us: Option<u64>,
    /// Upper edge of the last bucket in use, µs.
    pub wake_max_us: Option<u64>,
    /// The three culprits that cost most, largest first.
    pub costs: Vec<Cost>,
    /// Times from wake-up to running. Rows of minutes have it only in the journal.
    pub wake: Option<Histogram>,
}

impl VmRow {
    /// The VM's id.
    pub fn id(&self) -> VmId {
        VmId(self.vm.as_str().into())
    }

    /// A time of the row as a share of the observed time; `None` if it was not measured.
    pub fn share(&self, us: Option<u64>) -> Option<f64> {
        us.filter(|_| self.covered_us > 0).map(|us| us as f64 / self.covered_us as f64)
    }

    /// Ready share, summed over vCPUs. Includes limited time where the collector cannot separate the two.
    pub fn ready(&self) -> Option<f64> {
        self.share(self.ready_us.or(self.wait_us))
    }

    /// The same per vCPU; `None` for a group.
    pub fn ready_per_vcpu(&self) -> Option<f64> {
        self.per_vcpu(self.ready_us.or(self.wait_us))
    }

    /// A time as a share per vCPU; `None` for a group.
    pub fn per_vcpu(&self, us: Option<u64>) -> Option<f64> {
        let vcpus = self.vcpus.filter(|n| *n > 0 && !self.of_group)?;
        Some(self.share(us)? / vcpus as f64)
    }

    /// Sets the wake-up columns from the distribution of wake-ups.
    pub fn set_wake(&mut self, wake: Option<Histogram>) {
        let us = |q: f64| Some(wake.as_ref()?.quantile_ns(q)? as u64 / 1000);
        self.wakeups = wake.as_ref().map(Histogram::total);
        (self.wake_p50_us, self.wake_p99_us, self.wake_max_us) = (us(0.5), us(0.99), us(1.0));
        self.wake = wake;
    }
}

/// The host over a minute or an hour.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct HostRow {
    /// Start of the minute or hour, ms since 1970 UTC.
    pub unix_ms: u64,
    /// Samples that the row is made from.
    pub samples: u64,
    /// Time in which the host was observed, µs.
    pub covered_us: u64,
    /// Number of pCPUs; `None`: not read.
    pub pcpus: Option<u64>,
    /// Time in which pCPUs were not idle, summed over pCPUs, µs.
    pub busy_us: Option<u64>,
    /// On a pCPU, summed over VMs, µs.
    pub run_us: Option<u64>,
    /// Ready, summed over VMs, µs.
    pub ready_us: Option<u64>,
    /// Ready and limited together, summed over VMs, µs.
    pub wait_us: Option<u64>,
    /// Limited by a quota, summed over VMs, µs.
    pub limited_us: Option<u64>,
    /// Co-stopped, summed over VMs, µs.
    pub costop_us: Option<u64>,
    /// Stalls of all tasks of the host, µs.
    pub stalled_us: Stalls<u64>,
    /// Number of VMs; of an hour, the most at a time.
    pub vms: u64,
    /// Number of findings; of an hour, the most at a time.
    pub findings: u64,
}

impl HostRow {
    /// Mean busy share of the pCPUs.
    pub fn busy(&self) -> Option<f64> {
        let whole = self.pcpus? as f64 * self.covered_us as f64;
        Some(self.busy_us? as f64 / whole).filter(|_| whole > 0.0)
    }

    /// Ready share, summed over all VMs. Includes limited time where the collector cannot separate the two.
    pub fn ready(&self) -> Option<f64> {
        let us = self.ready_us.or(self.wait_us).filter(|_| self.covered_us > 0)?;
        Some(us as f64 / self.covered_us as f64)
    }
}

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    /// The service began to observe. Findings that were open before ended at an unknown time.
    #[default]
    Observing,
    /// The service stopped.
    Stopped,
    /// A VM came.
    Came,
    /// A VM went.
    Went,
    /// A VM runs again under the same name or id, in another process.
    Restarted,
    /// A setting changed.
    Changed,
    /// A finding began.
    FindingBegan,
    /// A finding ended.
    FindingEnded,
    /// A plan was applied.
    PlanApplied,
    /// A plan was undone.
    PlanUndone,
}

impl EventKind {
    /// Every kind with its name in the files.
    pub const ALL: [(EventKind, &'static str); 10] = [
        (EventKind::Observing, "observing"),
        (EventKind::Stopped, "stopped"),
        (EventKind::Came, "came"),
        (EventKind::Went, "went"),
        (EventKind::Restarted, "restarted"),
        (EventKind::Changed, "changed"),
        (EventKind::FindingBegan, "finding_began"),
        (EventKind::FindingEnded, "finding_ended"),
        (EventKind::PlanApplied, "plan_applied"),
        (EventKind::PlanUndone, "plan_undone"),
    ];

    /// Name in the files.
    pub fn name(self) -> &'static str {
        EventKind::ALL.iter().find(|(kind, _)| *kind == self).map_or("observing", |(_, name)| name)
    }

    /// The kind of this name.
    pub fn of(name: &str) -> Option<EventKind> {
        EventKind::ALL.iter().find(|(_, known)| *known == name).map(|(kind, _)| *kind)
    }
}

/// One line of the timeline.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Event {
    /// When, ms since 1970 UTC.
    pub unix_ms: u64,
    /// What happened.
    pub kind: EventKind,
    /// Id of the VM; `None`: the host.
    pub vm: Option<String>,
    /// Name of the VM.
    pub name: Option<String>,
    /// The rule of a finding.
    pub rule: Option<String>,
    /// One sentence for people.
    pub text: String,
    /// The setting that changed.
    pub setting: Option<String>,
    /// The setting's value before.
    pub old: Option<String>,
    /// The setting's value now.
    pub new: Option<String>,
    /// Time lost to a finding, in pCPUs.
    pub loss_pcpus: Option<f64>,
}

/// All that is stored of one minute.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Minute {
    /// Start of the minute, ms since 1970 UTC.
    pub unix_ms: u64,
    /// The host; `None` if only events are stored.
    pub host: Option<HostRow>,
    /// The VMs.
    pub vms: Vec<VmRow>,
    /// What happened within the minute.
    pub events: Vec<Event>,
}
