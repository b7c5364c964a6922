//! What can a plan change, in words and in values, and how is it undone?
//!
//! A [`Change`] is one setting with its former and its new value; a [`Step`] is a change of one VM with the reason for it. The former
//! value is the precondition that `apply` checks, and the undo. [`knob`] is a setting of the host that is text; [`lasting`] says how such
//! a setting is kept for good.
//!
//! Left out: who can set what, which the backends say (`vsteer-host`).

pub mod knob;
pub mod lasting;
pub mod words;

use crate::CpuSet;
use crate::nouns::{
    CpuPool, CpuWeight, GuestTopology, LatencySensitivity, Manager, Quota, Reserved, Role, SchedClass, Tid,
    VmConfig, VmId,
};
use knob::Knob;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Which threads of a VM a quota holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QuotaScope {
    /// Each vCPU by itself.
    PerVcpu,
    /// The emulator threads together.
    Emulator,
    /// All of the VM together.
    WholeVm,
}

/// One setting, before and after.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "setting")]
pub enum Change {
    /// Where a thread may run.
    Affinity {
        /// Which thread (`Emulator` stands for all emulator threads, as in libvirt's `emulatorpin`).
        role: Role,
        /// Its host thread id.
        tid: Tid,
        /// The former pCPUs.
        from: CpuSet,
        /// The new pCPUs.
        to: CpuSet,
    },
    /// Where a vCPU would rather run (Xen's soft affinity).
    Preference {
        /// Which vCPU.
        role: Role,
        /// Its id.
        tid: Tid,
        /// The pCPUs that it preferred; `None`: none of them more than others.
        from: Option<CpuSet>,
        /// Those that it will prefer.
        to: Option<CpuSet>,
    },
    /// What a scheduler of reservations gives a vCPU (Xen's RTDS).
    Reservation {
        /// Which vCPU.
        role: Role,
        /// Its id.
        tid: Tid,
        /// The former reservation.
        from: Reserved,
        /// The new one.
        to: Reserved,
    },
    /// The VM's weight against other VMs.
    Weight {
        /// The former weight.
        from: CpuWeight,
        /// The new weight, in the same unit.
        to: CpuWeight,
    },
    /// A CPU bandwidth limit.
    Quota {
        /// Which of the VM's limits.
        scope: QuotaScope,
        /// The former limit; `None`: none.
        from: Option<Quota>,
        /// The new limit; `None`: none.
        to: Option<Quota>,
    },
    /// A cgroup's real-time budget (cgroup v1 with `RT_GROUP_SCHED`); parents come before children when raised.
    RtBudget {
        /// The cgroup, as in `/proc/PID/cgroup`.
        cgroup: String,
        /// The former `cpu.rt_runtime_us`.
        from_us: i64,
        /// The new one.
        to_us: i64,
    },
    /// A thread's scheduling class.
    Class {
        /// Which thread.
        role: Role,
        /// Its host thread id.
        tid: Tid,
        /// The former class.
        from: SchedClass,
        /// The new class.
        to: SchedClass,
    },
    /// The nodes that the VM's memory is bound to.
    MemoryNodes {
        /// The former nodes; `None`: unbound.
        from: Option<CpuSet>,
        /// The new nodes.
        to: Option<CpuSet>,
    },
    /// The nodes that the hypervisor keeps the VM on, vCPUs and memory together (ESXi's `numa.nodeAffinity`).
    NodeAffinity {
        /// The former nodes; `None`: the hypervisor's own choice.
        from: Option<CpuSet>,
        /// The new ones.
        to: Option<CpuSet>,
    },
    /// The pCPUs that all vCPUs of a VM are kept on (ESXi's `sched.cpu.affinity`, which is of the VM, not of a vCPU).
    VmAffinity {
        /// The former pCPUs; `None`: any.
        from: Option<CpuSet>,
        /// The new ones.
        to: Option<CpuSet>,
    },
    /// CPU time that ESXi keeps for the VM, MHz; 0: none.
    ReservationMhz {
        /// The former reservation.
        from: u64,
        /// The new one.
        to: u64,
    },
    /// CPU time that ESXi gives the VM at most, MHz.
    LimitMhz {
        /// The former limit; `None`: none.
        from: Option<u64>,
        /// The new one.
        to: Option<u64>,
    },
    /// A VM's latency sensitivity (ESXi).
    Latency {
        /// The former one.
        from: LatencySensitivity,
        /// The new one.
        to: LatencySensitivity,
    },
    /// The vCPU topology shown to the guest; takes effect when the VM is started anew.
    Topology {
        /// The former one.
        from: Option<GuestTopology>,
        /// The new one.
        to: GuestTopology,
    },
    /// Which host runs the VM: it is moved while it runs. Its definition goes with it.
    Host {
        /// The connection URI of the former host's manager.
        from: String,
        /// That of the new one's, as seen from here.
        to: String,
        /// Where its threads may run there; `None`: wherever they may here.
        cpus: Option<CpuSet>,
    },
    /// Which pool of pCPUs it is in (Xen). One that does not exist is made of pCPUs of the former one; one that was so made is taken apart
    /// when the last VM has left it. A scheduler gives whoever comes its defaults, so weight and limit are set again.
    Pool {
        /// The former pool.
        from: Box<CpuPool>,
        /// The new one.
        to: Box<CpuPool>,
        /// Its weight, before and after.
        weight: CpuWeight,
        /// Its limit, before and after.
        limit: Option<Quota>,
    },
    /// A setting of the host itself that is text: a file of the kernel's, tuned's profile, whatever commands set and read.
    Knob {
        /// Which, and how it is set and read.
        knob: Box<Knob>,
        /// The former value.
        from: String,
        /// The new one.
        to: String,
    },
}

impl Change {
    /// The change that takes this one back.
    #[must_use]
    pub fn undo(&self) -> Option<Change> {
        Some(match self.clone() {
            Change::Affinity { role, tid, from, to } => Change::Affinity { role, tid, from: to, to: from },
            Change::Preference { role, tid, from, to } => {
                Change::Preference { role, tid, from: to, to: from }
            }
            Change::Reservation { role, tid, from, to } => {
                Change::Reservation { role, tid, from: to, to: from }
            }
            Change::Weight { from, to } => Change::Weight { from: to, to: from },
            Change::Quota { scope, from, to } => Change::Quota { scope, from: to, to: from },
            Change::RtBudget { cgroup, from_us, to_us } => {
                Change::RtBudget { cgroup, from_us: to_us, to_us: from_us }
            }
            Change::Class { role, tid, from, to } => Change::Class { role, tid, from: to, to: from },
            Change::MemoryNodes { from, to } => Change::MemoryNodes { from: to, to: from },
            Change::NodeAffinity { from, to } => Change::NodeAffinity { from: to, to: from },
            Change::VmAffinity { from, to } => Change::VmAffinity { from: to, to: from },
            Change::ReservationMhz { from, to } => Change::ReservationMhz { from: to, to: from },
            Change::LimitMhz { from, to } => Change::LimitMhz { from: to, to: from },
            Change::Latency { from, to } => Change::Latency { from: to, to: from },
            Change::Topology { from, to } => Change::Topology { from: Some(to), to: from? },
            Change::Host { from, to, .. } => Change::Host { from: to, to: from, cpus: None },
            Change::Pool { from, to, weight, limit } => Change::Pool { from: to, to: from, weight, limit },
            Change::Knob { knob, from, to } => Change::Knob { knob, from: to, to: from },
        })
    }

    /// What of it no undo brings back; `None` when all of it can be taken back.
    pub fn irreversible(&self) -> Option<&'static str> {
        match self {
            Change::MemoryNodes { .. } | Change::NodeAffinity { .. } => {
                Some("pages that were moved stay where they are")
            }
            _ => None,
        }
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let limit = |q: &Option<Quota>| match q {
            None => "none".to_owned(),
            Some(q) => format!("{:.2} CPUs ({}/{} µs)", q.cpus(), q.quota_us, q.period_us),
        };
        let nodes = |n: &Option<CpuSet>| n.as_ref().map_or("any".to_owned(), CpuSet::to_string);
        match self {
            Change::Affinity { role, from, to, .. } => write!(f, "{role}: pCPUs {from} -> {to}"),
            Change::Preference { role, from, to, .. } => {
                write!(f, "{role}: prefers pCPUs {} -> {}", nodes(from), nodes(to))
            }
            Change::Reservation { role, from, to, .. } => write!(f, "{role}: reserved {from} -> {to}"),
            Change::Weight { from, to } => write!(f, "weight: {from} -> {to}"),
            Change::Quota { scope, from, to } => {
                let of = match scope {
                    QuotaScope::PerVcpu => "each vCPU",
                    QuotaScope::Emulator => "emulator",
                    QuotaScope::WholeVm => "whole VM",
                };
                write!(f, "limit of {of}: {} -> {}", limit(from), limit(to))
            }
            Change::RtBudget { cgroup, from_us, to_us } => {
                write!(f, "real-time budget of cgroup {cgroup}: {from_us} -> {to_us} µs")
            }
            Change::Class { role, from, to, .. } => write!(f, "{role}: class {from} -> {to}"),
            Change::MemoryNodes { from, to } => write!(f, "memory nodes: {} -> {}", nodes(from), nodes(to)),
            Change::NodeAffinity { from, to } => {
                write!(f, "NUMA node affinity: {} -> {}", nodes(from), nodes(to))
            }
            Change::VmAffinity { from, to } => {
                write!(f, "all vCPUs: pCPUs {} -> {}", nodes(from), nodes(to))
            }
            Change::ReservationMhz { from, to } => write!(f, "CPU reservation: {from} -> {to} MHz"),
            Change::LimitMhz { from, to } => {
                let mhz = |l: &Option<u64>| l.map_or("none".to_owned(), |n| format!("{n} MHz"));
                write!(f, "CPU limit: {} -> {}", mhz(from), mhz(to))
            }
            Change::Latency { from, to } => write!(f, "latency sensitivity: {from} -> {to}"),
            Change::Topology { from, to } => {
                let text = |t: &GuestTopology| format!("{}x{}x{}", t.sockets, t.cores, t.threads);
                let from = from.as_ref().map_or("default".to_owned(), text);
                write!(
                    f,
                    "guest topology (sockets x cores x threads): {from} -> {}, at its next start",
                    text(to)
                )
            }
            Change::Host { from, to, cpus } => {
                let there = cpus.as_ref().map_or(String::new(), |cpus| format!(" (pCPUs {cpus} there)"));
                write!(f, "host: {from} -> {to}{there}")
            }
            Change::Pool { from, to, .. } => write!(f, "pool: {from} -> {to}"),
            Change::Knob { knob, from, to } => write!(f, "{}: {from:?} -> {to:?}", knob.name),
        }
    }
}

impl Change {
    /// Can it be made only while the VM is off? Of vSphere's VMs alone: elsewhere such a change goes into the definition.
    ///
    /// Sources: VMware, vSphere Virtual Machine Administration (7.0), "Virtual CPU Configuration" for cores per socket. That of a
    /// latency sensitivity takes effect at the next start and, set to high on a VM that could not then start, would be found too
    /// late: it is held to the same.
    pub fn needs_vm_off(&self, vm: &VmConfig) -> bool {
        matches!(vm.manager, Manager::Vsphere(_))
            && matches!(self, Change::Topology { .. } | Change::Latency { .. })
    }
}

/// One change to one VM.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// Whose setting; for a shared cgroup, the VM on whose behalf.
    pub vm: VmId,
    /// Its name, for people.
    pub vm_name: String,
    /// The change.
    pub change: Change,
    /// Why.
    pub reason: String,
}

impl Step {
    /// Whose setting it is, in words.
    pub fn whose(&self) -> String {
        match self.change {
            Change::Knob { .. } => self.vm_name.clone(),
            _ => format!("VM {:?}", self.vm_name),
        }
    }

    /// Do both set the same thing, to whatever value?
    pub fn sets_what(&self, other: &Step) -> bool {
        use Change as C;
        match (&self.change, &other.change) {
            // A cgroup's, which VMs share.
            (C::RtBudget { cgroup: a, .. }, C::RtBudget { cgroup: b, .. }) => return a == b,
            _ if self.vm != other.vm => return false,
            _ => {}
        }
        match (&self.change, &other.change) {
            (C::Affinity { role: a, tid: t, .. }, C::Affinity { role: b, tid: u, .. })
            | (C::Preference { role: a, tid: t, .. }, C::Preference { role: b, tid: u, .. })
            | (C::Reservation { role: a, tid: t, .. }, C::Reservation { role: b, tid: u, .. })
            | (C::Class { role: a, tid: t, .. }, C::Class { role: b, tid: u, .. }) => (a, t) == (b, u),
            (C::Quota { scope: a, .. }, C::Quota { scope: b, .. }) => a == b,
            (a, b) => std::mem::discriminant(a) == std::mem::discriminant(b),
        }
    }
}

/// Where changes are to take effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// In the running VM only: gone when it stops.
    Live,
    /// In the definition only: from its next start on.
    Persistent,
    /// In both.
    Both,
}

impl Scope {
    /// Does it touch the running VM?
    pub fn live(self) -> bool {
        matches!(self, Scope::Live | Scope::Both)
    }

    /// Does it touch the definition?
    pub fn persistent(self) -> bool {
        matches!(self, Scope::Persistent | Scope::Both)
    }
}
