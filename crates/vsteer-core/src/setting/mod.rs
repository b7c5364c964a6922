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
use crate::nouns::{VmConfig, VmId};
pub use quota::QuotaScope;
use serde::{Deserialize, Serialize};
use std::fmt;

/// What every setting says of a change of its own.
pub trait Setting: Sized {
    /// The change that takes this one back; `None` where there is none.
    fn undo(&self) -> Option<Self>;
    /// The former value, for people.
    fn before(&self) -> String;
    /// The new value, for people.
    fn after(&self) -> String;
    /// Do both change the same thing of one VM?
    fn same_target(&self, other: &Self) -> bool;
    /// Do both have the same former value? Values are compared, not their texts.
    fn same_before(&self, other: &Self) -> bool;
    /// Is the new value in force, where `current` has what is in force as its former value?
    fn is_reached(&self, current: &Self) -> bool;
    /// What no undo brings back; `None`: all of it can be taken back.
    fn irreversible(&self) -> Option<&'static str> {
        None
    }
    /// Do VMs share the thing that is changed? Then two VMs' changes can be of one thing.
    fn is_shared(&self) -> bool {
        false
    }
}

/// What a setting makes of the configuration.
pub trait Apply {
    /// Puts the new value into the configuration of the running VM. `anywhere` has the host's pCPUs.
    fn apply_to(&self, vm: &mut VmConfig, anywhere: &CpuSet);
}

/// A setting with a former and a new value of one type.
macro_rules! from_to {
    (irreversible $why:literal; $($rest:tt)*) => {
        from_to!(@ [fn irreversible(&self) -> Option<&'static str> { Some($why) }] $($rest)*);
    };
    (shared; $($rest:tt)*) => {
        from_to!(@ [fn is_shared(&self) -> bool { true }] $($rest)*);
    };
    (@ [$($more:tt)*] $setting:ident, $from:ident, $to:ident, same: [$($key:ident),*], $text:expr) => {
        impl super::Setting for $setting {
            fn undo(&self) -> Option<$setting> {
                let mut undo = self.clone();
                std::mem::swap(&mut undo.$from, &mut undo.$to);
                Some(undo)
            }

            fn before(&self) -> String {
                ($text)(&self.$from)
            }

            fn after(&self) -> String {
                ($text)(&self.$to)
            }

            fn same_target(&self, _other: &$setting) -> bool {
                true $(&& self.$key == _other.$key)*
            }

            fn same_before(&self, other: &$setting) -> bool {
                self.$from == other.$from
            }

            fn is_reached(&self, current: &$setting) -> bool {
                self.$to == current.$from
            }

            $($more)*
        }
    };
    ($setting:ident, $($rest:tt)*) => {
        from_to!(@ [] $setting, $($rest)*);
    };
}

/// Numbers of pCPUs or nodes, or `any`.
fn or_any(set: &Option<CpuSet>) -> String {
    set.as_ref().map_or("any".to_owned(), CpuSet::to_string)
}

/// [`Change`] over all settings; a file of this folder and a line of the table are all that a new one needs here.
macro_rules! settings {
    ($($variant:ident($file:ident::$setting:ident),)*) => {
        $(mod $file;)*
        $(pub use $file::$setting;)*

        /// One setting, before and after.
        #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case", tag = "setting")]
        pub enum Change {
            $(
                /// See the setting's own type.
                $variant($setting),
            )*
        }

        impl Change {
            /// The change that takes this one back.
            #[must_use]
            pub fn undo(&self) -> Option<Change> {
                Some(match self {
                    $(Change::$variant(c) => Change::$variant(c.undo()?),)*
                })
            }

            /// The former value, for people.
            pub fn before(&self) -> String {
                match self {
                    $(Change::$variant(c) => c.before(),)*
                }
            }

            /// The new value, for people.
            pub fn after(&self) -> String {
                match self {
                    $(Change::$variant(c) => c.after(),)*
                }
            }

            /// Do both change the same thing of one VM?
            pub fn same_target(&self, other: &Change) -> bool {
                match (self, other) {
                    $((Change::$variant(a), Change::$variant(b)) => a.same_target(b),)*
                    _ => false,
                }
            }

            /// Do both have the same former value?
            pub fn same_before(&self, other: &Change) -> bool {
                match (self, other) {
                    $((Change::$variant(a), Change::$variant(b)) => a.same_before(b),)*
                    _ => false,
                }
            }

            /// Is the new value in force, where `current` has what is in force as its former value?
            pub fn is_reached(&self, current: &Change) -> bool {
                match (self, current) {
                    $((Change::$variant(a), Change::$variant(b)) => a.is_reached(b),)*
                    _ => false,
                }
            }

            /// Puts the new value into the configuration of the running VM. `anywhere` has the host's pCPUs.
            pub fn apply_to(&self, vm: &mut VmConfig, anywhere: &CpuSet) {
                match self {
                    $(Change::$variant(c) => c.apply_to(vm, anywhere),)*
                }
            }

            /// What of it no undo brings back; `None` when all of it can be taken back.
            pub fn irreversible(&self) -> Option<&'static str> {
                match self {
                    $(Change::$variant(c) => c.irreversible(),)*
                }
            }

            /// Do VMs share the thing that is changed?
            pub fn is_shared(&self) -> bool {
                match self {
                    $(Change::$variant(c) => c.is_shared(),)*
                }
            }
        }

        impl fmt::Display for Change {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $(Change::$variant(c) => c.fmt(f),)*
                }
            }
        }
    };
}

settings! {
    Affinity(affinity::Affinity),
    Preference(preference::Preference),
    Reservation(reservation::Reservation),
    Weight(weight::Weight),
    Quota(quota::Quota),
    RtBudget(rt_budget::RtBudget),
    Class(class::Class),
    MemoryNodes(memory_nodes::MemoryNodes),
    NodeAffinity(node_affinity::NodeAffinity),
    VmAffinity(vm_affinity::VmAffinity),
    ReservationMhz(reservation_mhz::ReservationMhz),
    LimitMhz(limit_mhz::LimitMhz),
    Latency(latency::Latency),
    Topology(topology::Topology),
    Host(host::Host),
    Pool(pool::Pool),
    Knob(host_knob::HostKnob),
}

impl Change {
    /// Can it be made only while the VM is off? Of vSphere's VMs alone: elsewhere such a change goes into the definition.
    ///
    /// Sources: VMware, vSphere Virtual Machine Administration (7.0), "Virtual CPU Configuration" for cores per socket. That of a
    /// latency sensitivity takes effect at the next start and, set to high on a VM that could not then start, would be found too
    /// late: it is held to the same.
    pub fn needs_vm_off(&self, vm: &VmConfig) -> bool {
        vm.manager.keeps_settings() && matches!(self, Change::Topology { .. } | Change::Latency { .. })
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
        (self.vm == other.vm || self.change.is_shared()) && self.change.same_target(&other.change)
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
