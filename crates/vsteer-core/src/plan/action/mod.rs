//! Which changes can a plan propose? Each action is one file and one line in [`ACTIONS`].

mod node;
mod pin;
pub mod pool;
mod quota;
mod realtime;
mod search;
mod separate;
mod topology;
mod unpin;
mod weights;

use crate::forecast::Forecaster;
use crate::model::HostModel;
use crate::nouns::{HostConfig, Role, VmConfig, VmThread};
use crate::numa::ties;
use crate::plan::limits::Limits;
use crate::setting;
use crate::setting::{Change, Step};
use crate::{CpuSet, Fault};

/// Input of an action.
pub struct Context<'a> {
    /// Settings of the host and its VMs.
    pub config: &'a HostConfig,
    /// Measured values.
    pub model: &'a HostModel,
    /// Largest allowed cost of the plan.
    pub limits: Limits,
    /// VMs that the plan should help: they mostly sleep and wait too long.
    pub delayed: Vec<&'a VmConfig>,
    /// Somebody asked for one action by name (`--only`).
    pub asked: bool,
}

impl Context<'_> {
    /// pCPUs of the nodes that hold this VM's memory, by its binding or else by where its pages are; `None` if neither is
    /// known, or the host has one node.
    fn near_memory(&self, vm: &VmConfig) -> Option<CpuSet> {
        let nodes = self.config.topology.nodes();
        if nodes.iter().filter(|n| !n.cpus.is_empty()).count() < 2 {
            return None;
        }
        let bound = vm.bound_guest_nodes().or_else(|| vm.memory_nodes.clone());
        let homes =
            bound.or_else(|| ties::of_pages(self.model.vm(&vm.id))).filter(|homes| !homes.is_empty())?;
        self.cpus_of(&homes)
    }

    /// pCPUs that a thread must not leave, because memory or devices of its VM cannot follow, or are bound there; `None` if
    /// nothing keeps it. A vCPU uses the memory of its own guest node.
    fn kept_on(&self, vm: &VmConfig, t: &VmThread) -> Option<CpuSet> {
        let own = t.role.vcpu().and_then(|n| vm.guest_node(n)?.host_nodes.clone());
        let ties = || ties::of(&self.config.topology, vm, self.model.vm(&vm.id));
        let all = || {
            let bound = vm.memory_nodes.clone().unwrap_or_default();
            ties().iter().fold(bound, |all, tie| all.union(&tie.nodes))
        };
        self.cpus_of(&own.unwrap_or_else(all))
    }

    /// pCPUs of these nodes; `None` if there are none.
    fn cpus_of(&self, nodes: &CpuSet) -> Option<CpuSet> {
        let of = self.config.topology.nodes().iter().filter(|n| nodes.contains(n.id.0));
        Some(of.fold(CpuSet::new(), |all, n| all.union(&n.cpus))).filter(|cpus| !cpus.is_empty())
    }

    /// Why these steps are refused, if they take a vCPU away from the memory of its guest node.
    fn leaves_memory(&self, steps: &[Step]) -> Option<String> {
        steps.iter().find_map(|step| {
            let Change::Affinity(setting::Affinity { role, from, to, .. }) = &step.change else {
                return None;
            };
            let vm = self.config.vm(&step.vm)?;
            let node = vm.guest_node(role.vcpu()?)?;
            let near = self.cpus_of(node.host_nodes.as_ref()?)?;
            (from.intersects(&near) && !to.intersects(&near)).then(|| {
                format!(
                    "{role} of VM {:?} would leave the memory of its guest NUMA node {}",
                    vm.name, node.id
                )
            })
        })
    }

    /// pCPUs that this VM may be given: those that no kernel isolates, in its CPU pool and in the cpusets of its cgroups. A pin
    /// beyond these has no effect.
    fn usable_of(&self, vm: &VmConfig) -> CpuSet {
        let cpusets = vm.vcpus().flat_map(|t| vm.cpusets_of(t));
        let anybodys = cpusets.fold(self.config.housekeeping(), |all, (_, cpus)| all.intersection(cpus));
        match &vm.pool {
            Some(pool) => anybodys.intersection(&pool.cpus),
            None => anybodys,
        }
    }

    /// The reason why VMs cannot change places on this host: a CPU pool keeps one to a part of the pCPUs.
    fn confined(&self) -> Option<String> {
        let anybodys = self.config.housekeeping();
        let is_confined =
            |vm: &&VmConfig| vm.pool.as_ref().is_some_and(|pool| !anybodys.is_subset(&pool.cpus));
        let vm = self.config.vms.iter().find(is_confined)?;
        let pool = vm.pool.as_ref()?;
        Some(format!("VM {:?} is in CPU pool {:?}, which has pCPUs {} alone", vm.name, pool.name, pool.cpus))
    }

    /// Do pCPUs differ in speed?
    fn has_unequal_cores(&self) -> bool {
        let cores = self.config.topology.cores();
        let of = |core: &crate::topology::Core| (core.kind, core.capacity);
        cores.iter().any(|core| of(core) != of(&cores[0]))
    }
}

/// A kind of change that a plan can propose.
pub struct Action {
    /// Name in options and reports.
    pub name: &'static str,
    /// One line that says what the action does.
    pub doc: &'static str,
    /// How drastic the action is; 0 is the gentlest. Decides between actions with equal effect.
    pub severity: u32,
    /// If true, a plan proposes the action only on request by name (`--only`).
    pub asked_only: bool,
    /// If true, vSphere can make the change. It has its own placement, weights and scheduling.
    pub on_vsphere: bool,
    /// How it finds its steps.
    pub propose: Propose,
}

/// The proposed steps, or the reason why the action does not apply.
pub type Proposed = Result<Vec<Step>, String>;

/// How an action finds its steps.
#[derive(Clone, Copy)]
pub enum Propose {
    /// From what was measured.
    Directly(fn(&Context<'_>) -> Proposed),
    /// By forecasting many candidates. The fault is the forecaster's.
    BySearch(fn(&Context<'_>, &mut dyn Forecaster) -> Result<Proposed, Fault>),
}

/// Every action.
pub const ACTIONS: &[Action] = &[
    unpin::ACTION,
    node::ACTION,
    weights::ACTION,
    realtime::ACTION,
    separate::ACTION,
    quota::ACTION,
    topology::ACTION,
    pool::ACTION,
    pin::ACTION,
    search::ACTION,
];

/// Steps that let every thread of `vm` run where `to` says (`None`: unchanged). Workers and the kernel's vhost
/// threads follow the emulator, so they get no step of their own. libvirt can place them only together with the
/// emulator.
fn placing(vm: &VmConfig, to: &dyn Fn(&VmThread) -> Option<CpuSet>, reason: &str) -> Vec<Step> {
    let moves = |t: &VmThread| to(t).filter(|to| *to != t.affinity);
    let emulator_moves = vm.threads.iter().any(|t| t.role == Role::Emulator && moves(t).is_some());
    let by_itself = |t: &VmThread| match t.role {
        Role::Worker => false,
        Role::Vhost => !emulator_moves && vm.manager.places_kernel_threads(),
        Role::Vcpu(_) | Role::Emulator | Role::IoThread(_) => true,
    };
    let step = |t: &VmThread| {
        let change = Change::Affinity(setting::Affinity {
            role: t.role,
            tid: t.tid,
            from: t.affinity.clone(),
            to: moves(t)?,
        });
        Some(Step { vm: vm.id.clone(), vm_name: vm.name.clone(), change, reason: reason.to_owned() })
    };
    vm.threads.iter().filter(|t| by_itself(t)).filter_map(step).collect()
}
