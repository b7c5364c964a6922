//! What is known of the host at one moment: the newest sample, sums since the service began, and what follows from the last
//! minute. Everything that the service answers is made from one of these.

use crate::culprits::Named;
use crate::deliveries::Deliveries;
use crate::totals::Totals;
use std::collections::BTreeMap;
use std::sync::Arc;
use vsteer_core::diagnose::Finding;
use vsteer_core::model::HostModel;
use vsteer_core::nouns::{BlameSample, Collector, HostConfig, VmId};
use vsteer_core::thresholds::Thresholds;

/// The host, as it was seen last.
#[derive(Debug, Clone)]
pub struct Seen {
    /// How it is set up.
    pub config: Arc<HostConfig>,
    /// What each VM is called: its name, and what tells it apart from another one of that name.
    pub names: Arc<BTreeMap<VmId, String>>,
    /// How samples are taken.
    pub collector: Arc<Collector>,
    /// The newest sample, and sums. What it blames is kept apart, so that the samples of a minute are small.
    pub totals: Totals,
    /// What the newest sample blames.
    pub blame: Arc<Vec<BlameSample>>,
    /// The culprits of each VM, with the time that it waited because of them.
    pub culprits: Arc<Named>,
    /// From the sample before to the newest.
    pub now: Option<Arc<HostModel>>,
    /// Over the last minute, and what was found in it.
    pub minute: Option<Arc<HostModel>>,
    /// What was found in the last minute.
    pub findings: Arc<Vec<Finding>>,
    /// When a delay matters.
    pub thresholds: Thresholds,
    /// What becomes of triggers' messages.
    pub deliveries: Arc<Deliveries>,
    /// What observing costs.
    pub costs: Costs,
}

/// What observing costs, and how well it goes.
#[derive(Debug, Clone, Copy, Default)]
pub struct Costs {
    /// Samples taken.
    pub samples: u64,
    /// How long the newest took, ns.
    pub sample_ns: u64,
    /// How much later than planned the newest was taken, ns.
    pub late_ns: u64,
    /// CPU time of this process, user and system, ns.
    pub cpu_ns: u64,
    /// Time in eBPF programs of the observer, ns; `None` if the kernel does not count it.
    pub bpf_ns: Option<u64>,
    /// Context switches that the observer missed; `None` without eBPF.
    pub unseen: Option<u64>,
    /// Samples that failed.
    pub failed: u64,
    /// Samples that the history could not take, because its disk was slow.
    pub history_missed: u64,
}

impl Seen {
    /// What a VM is called.
    pub fn name<'a>(&'a self, vm: &'a VmId) -> &'a str {
        self.names.get(vm).map_or(&*vm.0, String::as_str)
    }
}
