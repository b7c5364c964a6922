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
        let pages = || {
            let by_node = self.model.vm(&vm.id)?.memory_by_node.as_ref()?;
            let total: u64 = by_node.iter().map(|(_, bytes)| bytes).sum();
            let much = by_node.iter().filter(|(_, bytes)| *bytes as f64 > MUCH * total as f64);
            Some(much.map(|(node, _)| *node).collect::<CpuSet>())
        };
        let homes = vm.memory_nodes.clone().or_else(pages).filter(|homes| !homes.is_empty())?;
        let cpus =
            nodes.iter().filter(|n| homes.contains(n.id.0)).fold(CpuSet::new(), |all, n| all.union(&n.cpus));
        (!cpus.is_empty()).then_some(cpus)
    }

    /// pCPUs that this VM may be given: those that no kernel isolates, in its CPU pool. A pin beyond the pool has no effect.
    fn usable_of(&self, vm: &VmConfig) -> CpuSet {
        let anybodys = self.config.housekeeping();
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

/// A node with more than this part of a VM's memory is a home of it.
const MUCH: f64 = 0.2;

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
