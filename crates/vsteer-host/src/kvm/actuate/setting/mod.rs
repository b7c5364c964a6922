//! Reads and sets each kind of setting of a VM on a KVM host: one file each, and one line in [`of`].
//!
//! A setting knows whether it can be changed in the running VM and in the definition, which value is in
//! force, how to change the running VM, and which elements of the definition hold it. [`super`] decides the
//! order.
//!
//! Left out: moving a VM to another host, which is not a setting of one host ([`super::host`]).

mod affinity;
mod class;
mod memory_nodes;
mod quota;
pub(super) mod rt_budget;
mod topology;
mod weight;

use super::{KvmHost, Subject};
use crate::actuate::{Former, Part};
use crate::kvm::inventory::{Inventory, Vm};
use vsteer_core::Fault;
use vsteer_core::nouns::VmConfig;
use vsteer_core::setting::{Change, Scope, Step};

/// Yes, or why not.
pub(super) type Able = Result<(), &'static str>;

/// The VM whose setting is to change.
pub(super) struct Asked<'a> {
    pub vm: &'a VmConfig,
    /// The VM in the inventory, if it is there.
    pub seen: Option<&'a Vm>,
    /// Does libvirt manage the VM?
    pub of_libvirt: bool,
}

/// One kind of setting, with the values that a step names.
pub(super) trait KvmSetting {
    /// Can it be changed in the running VM?
    fn live(&self, asked: &Asked<'_>) -> Able;

    /// Can it be changed in the definition, if the VM's manager keeps one?
    fn defined(&self, _asked: &Asked<'_>) -> Able {
        Ok(())
    }

    /// Does the step take effect in the running VM, and in the definition?
    fn effect(&self, scope: Scope) -> (bool, bool) {
        (scope.live(), scope.persistent())
    }

    /// The same change with `from` as it is now.
    fn current(&self, host: &mut KvmHost, subject: &Subject, step: &Step) -> Result<Change, Fault>;

    /// Changes the running VM.
    fn set(&self, inventory: &mut Inventory, subject: &Subject, step: &Step) -> Result<(), Fault>;

    /// Stores what the step overwrites in addition to its own value.
    fn keep(&self, _inventory: &mut Inventory, _subject: &Subject, _former: &mut Former) {}

    /// The parts of this definition that the change replaces, with the new values.
    fn parts(&self, xml: &str) -> Result<Vec<Part>, String>;
}

/// The change as a setting of a KVM host's VM, or why it is not one.
pub(super) fn of(change: &Change) -> Result<&dyn KvmSetting, &'static str> {
    Ok(match change {
        Change::Affinity(s) => s,
        Change::Class(s) => s,
        Change::MemoryNodes(s) => s,
        Change::Quota(s) => s,
        Change::RtBudget(s) => s,
        Change::Topology(s) => s,
        Change::Weight(s) => s,
        Change::Preference(_) | Change::Reservation(_) => return Err("only Xen has this setting"),
        Change::NodeAffinity(_)
        | Change::VmAffinity(_)
        | Change::ReservationMhz(_)
        | Change::LimitMhz(_)
        | Change::Latency(_) => return Err("only vSphere has this setting"),
        Change::Pool(_) => return Err("Linux has no pools of pCPUs"),
        Change::Knob(_) => return Err("the setting belongs to the host, not to a VM"),
        _ => return Err("a KVM host has no such setting"),
    })
}

#[cfg(test)]
mod tests;
