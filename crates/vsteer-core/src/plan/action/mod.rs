//! Which changes can a plan propose? One file each, and one line in [`ACTIONS`].

mod node;
mod pin;
pub mod pool;
mod quota;
mod realtime;
mod separate;
mod topology;
mod unpin;
mod weights;

use crate::CpuSet;
use crate::model::HostModel;
use crate::nouns::{HostConfig, Role, VmConfig, VmThread};
use crate::plan::limits::Limits;
use crate::setting;
use crate::setting::{Change, Step};

/// What an action is given.
pub struct Context<'a> {
    /// The host's settings.
    pub config: &'a HostConfig,
    /// What was observed.
    pub model: &'a HostModel,
    /// What a plan may cost.
    pub limits: Limits,
    /// The VMs that the plan is for: they mostly sleep and wait too long.
    pub delayed: Vec<&'a VmConfig>,
}

/// One way to help.
pub struct Action {
    /// Its name in options and reports.
    pub name: &'static str,
    /// What it does, one line.
    pub doc: &'static str,
    /// 0 is the gentlest: decides between actions that help alike.
    pub severity: u32,
    /// Proposed only when asked for by name.
    pub asked_only: bool,
    /// The steps, or why it does not apply here.
    pub propose: fn(&Context<'_>) -> Result<Vec<Step>, String>,
}

/// Every action, one file each.
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
];

/// The steps after which every thread of `vm` may run where `to` says (`None`: where it may now). Its workers and the kernel's
/// vhost threads go with its emulator, whoever places that: a step of their own would find them moved already. libvirt places
/// them with nothing else.
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
