//! The simulator's input: a host and its VMs, checked and converted to the form that engine and policies
//! read.
//!
//! A [`Setup`] comes from a scenario or a recording: the machine's [`Topology`], VMs with their vCPUs'
//! demands, groups, pools, costs. [`Host::new`] checks all of it (each refusal names the VM and the allowed
//! range) and stores it in arrays over dense numbers: [`Pcpu`], [`Vcpu`], [`Vm`], [`Group`], [`Pool`].
//! Policies of every kind find their inputs there: weights, caps and quotas, hard and soft affinity, CPU
//! pools, real-time reservations and classes, and a tree of groups like cgroups. If a policy ignores one of
//! these, its head says so.
//!
//! Sources of the costs: see [`Costs`]. Left out: memory (which VM has how much on which node), devices, and
//! changes while the simulation runs, except of weights and caps.

use super::guest::Demand;
use super::guest::linked::{Linked, Links};
pub use super::ids::{Group, Pcpu, Pool, Vcpu, Vm};
pub use host::{GroupFacts, Host, Place, VcpuFacts, VmFacts};
use vsteer_core::nouns::{Quota, SchedClass};
use vsteer_core::topology::NodeId;
use vsteer_core::{CpuSet, Fault, Topology};

use serde::{Deserialize, Serialize};

mod host;

/// A periodic reservation: `budget_ns` of CPU in every `period_ns`, due at the period's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reservation {
    /// CPU time per period, ns.
    pub budget_ns: u64,
    /// The period and relative deadline, ns.
    pub period_ns: u64,
    /// May it use time that no vCPU reserved, after its own is used?
    pub extra_time: bool,
}

/// Permission to run ahead of its virtual time (borrowed virtual time).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Warp {
    /// How far ahead, as CPU time at the default weight, ns.
    pub value_ns: u64,
    /// How long without a pause, ns; 0 means no limit.
    pub limit_ns: u64,
    /// How long it may not warp after that, ns.
    pub unwarp_ns: u64,
}

/// One vCPU of a VM.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct VcpuSetup {
    /// What its guest does.
    pub demand: Demand,
    /// The pCPUs that it may use (hard affinity, pins); `None`: all of its pool.
    #[serde(default)]
    pub affinity: Option<CpuSet>,
    /// The pCPUs that it prefers.
    #[serde(default)]
    pub soft_affinity: Option<CpuSet>,
    /// It does not exist before this time, ns.
    #[serde(default)]
    pub from_ns: u64,
    /// Reservation for real-time policies.
    #[serde(default)]
    pub reservation: Option<Reservation>,
    /// For policies with several classes; `None` is the policy's default class.
    #[serde(default)]
    pub class: Option<SchedClass>,
    /// Its own limit.
    #[serde(default)]
    pub quota: Option<Quota>,
    /// A start of one of that limit's periods; `None`: the policy's choice.
    #[serde(default)]
    pub quota_begins_ns: Option<u64>,
    /// The number of its group below the VM's. vCPUs of the VM with the same number share a group (libvirt
    /// has one for each vCPU and one for the emulator's threads). `None`: an own group if it has a quota.
    #[serde(default)]
    pub subgroup: Option<u32>,
    /// A thread of the VM that is not a vCPU (such as the emulator). The VM's results leave it out.
    #[serde(default)]
    pub helper: bool,
    /// Does its guest's idle loop poll instead of giving the pCPU up? It does not poll if its VM reports
    /// expired timers ([`VmSetup::vit`]), because then polling is useless.
    #[serde(default)]
    pub polls: bool,
}

impl VcpuSetup {
    /// A vCPU with this demand, free to run anywhere.
    pub fn new(demand: Demand) -> VcpuSetup {
        VcpuSetup {
            demand,
            affinity: None,
            soft_affinity: None,
            from_ns: 0,
            reservation: None,
            class: None,
            quota: None,
            quota_begins_ns: None,
            subgroup: None,
            helper: false,
            polls: false,
        }
    }

    /// Pinned to these pCPUs.
    #[must_use]
    pub fn pinned(mut self, cpus: CpuSet) -> VcpuSetup {
        self.affinity = Some(cpus);
        self
    }
}

/// One VM.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct VmSetup {
    /// Name of the VM.
    pub name: String,
    /// vCPUs of the VM.
    pub vcpus: Vec<VcpuSetup>,
    /// Its weight on the policy's own scale; `None`: the policy's default.
    #[serde(default)]
    pub weight: Option<u32>,
    /// Its cap, in hundredths of a pCPU; `None`: no cap.
    #[serde(default)]
    pub cap_pct: Option<u32>,
    /// A limit for the whole VM.
    #[serde(default)]
    pub quota: Option<Quota>,
    /// A start of one of that limit's periods; `None`: the policy's choice.
    #[serde(default)]
    pub quota_begins_ns: Option<u64>,
    /// Its CPU pool, an index into [`Setup::pools`].
    #[serde(default)]
    pub pool: usize,
    /// The group that contains it, an index into [`Setup::groups`]; `None`: the root.
    #[serde(default)]
    pub group: Option<usize>,
    /// The node that holds its memory; `None`: memory is equally far from all nodes.
    #[serde(default)]
    pub memory_node: Option<NodeId>,
    /// Its warp, for borrowed virtual time.
    #[serde(default)]
    pub warp: Option<Warp>,
    /// Does its guest report expired timers to the hypervisor (the VIT hypercall)?
    #[serde(default)]
    pub vit: bool,
}

impl VmSetup {
    /// A VM with the default weight and these vCPUs.
    pub fn new(name: impl Into<String>, vcpus: Vec<VcpuSetup>) -> VmSetup {
        VmSetup {
            name: name.into(),
            vcpus,
            weight: None,
            cap_pct: None,
            quota: None,
            quota_begins_ns: None,
            pool: 0,
            group: None,
            memory_node: None,
            warp: None,
            vit: false,
        }
    }

    /// With this weight.
    #[must_use]
    pub fn weight(mut self, weight: u32) -> VmSetup {
        self.weight = Some(weight);
        self
    }

    /// With this cap, in hundredths of a pCPU.
    #[must_use]
    pub fn cap_pct(mut self, cap_pct: u32) -> VmSetup {
        self.cap_pct = Some(cap_pct);
        self
    }
}

/// A group above VMs (`machine.slice`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupSetup {
    /// Name of the group.
    pub name: String,
    /// The group that contains it, an earlier index; `None`: the root.
    #[serde(default)]
    pub parent: Option<usize>,
    /// Its weight among its siblings, on the policy's scale.
    #[serde(default)]
    pub weight: Option<u32>,
    /// Limit of the group.
    #[serde(default)]
    pub quota: Option<Quota>,
}

/// The costs of switches, moves and shared cores. With all costs 0 (the default), only the scheduler has an
/// effect.
///
/// Orders of magnitude, for scenarios that need them: a direct switch between processes takes 1 to 4 µs;
/// refilling caches after it a few µs to 1 ms, depending on the working set (Li, Ding, Shen, "Quantifying the
/// cost of context switch", ExpCS 2007). Linux assumes 500 µs as the cost of a move
/// (`sysctl_sched_migration_cost`, kernel/sched/fair.c, 6.12). Xen found 1 ms of migration delay a good value
/// (xen/common/sched/credit.c, 4.23).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Costs {
    /// CPU time lost when a pCPU switches to another vCPU, ns.
    pub switch_ns: u64,
    /// Additional time if that vCPU last ran on another core with the same last-level cache, ns.
    pub cold_core_ns: u64,
    /// Additional time (instead) if it last ran under another last-level cache, ns.
    pub cold_llc_ns: u64,
    /// Speed on other nodes than the one that holds the VM's memory, in 1/1,000.
    pub remote_speed: u32,
    /// Speed of a pCPU while a sibling thread of its core is busy, in 1/1,000. Two busy threads of a core did 1.2 times the
    /// work of one on average (Bulpin, Pratt, WDDD 2004): 600; up to 1.3 times (Marr et al., Intel Technology Journal 6(1),
    /// 2002): 650.
    pub smt_speed: u32,
    /// Do cores run at the capacity that the topology gives them? Otherwise all are equally fast.
    pub capacity: bool,
    /// Speed of every core, in 1/1,000 of the one for which CPU times of work are given: above 1,000 where a processor raises its
    /// clock, as it does while some cores are idle.
    pub speed: u32,
}

impl Costs {
    /// The range of `speed`.
    pub const SPEEDS: std::ops::RangeInclusive<u32> = 100..=4000;
}

impl Default for Costs {
    fn default() -> Costs {
        Costs {
            switch_ns: 0,
            cold_core_ns: 0,
            cold_llc_ns: 0,
            remote_speed: 1000,
            smt_speed: 1000,
            capacity: false,
            speed: 1000,
        }
    }
}

/// Everything that is simulated, except the policy.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Setup {
    /// The machine.
    pub topology: Topology,
    /// VMs of the host.
    pub vms: Vec<VmSetup>,
    /// Groups above VMs.
    #[serde(default)]
    pub groups: Vec<GroupSetup>,
    /// CPU pools: disjoint sets, each scheduled by its own instance of the policy; empty: one pool of all
    /// pCPUs.
    #[serde(default)]
    pub pools: Vec<CpuSet>,
    /// Costs of switches and moves.
    #[serde(default)]
    pub costs: Costs,
    /// Determines every random draw.
    pub seed: u64,
}

impl Setup {
    /// These VMs on `topology`, one pool, no groups, no costs.
    pub fn new(topology: Topology, vms: Vec<VmSetup>, seed: u64) -> Setup {
        Setup { topology, vms, groups: Vec::new(), pools: Vec::new(), costs: Costs::default(), seed }
    }

    /// Checks that vCPUs which depend on each other fit together; a single VM does not show this.
    ///
    /// # Errors
    /// `BadInput` for members of a team or lock with different specifications, and for a missing driver.
    pub fn check_links(&self) -> Result<(), Fault> {
        Links::new(&self.guests(), self.seed).map(drop)
    }

    /// Each VM's name and the demands of its vCPUs.
    pub(crate) fn guests(&self) -> Vec<Linked<'_>> {
        self.vms
            .iter()
            .map(|vm| Linked { name: &vm.name, demands: vm.vcpus.iter().map(|v| &v.demand).collect() })
            .collect()
    }
}
