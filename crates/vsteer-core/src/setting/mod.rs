//! What can a plan change, and how is it undone?
//!
//! A [`Change`] is one setting with its former and new value. A [`Step`] is a change of one VM with its reason.
//! `apply` checks the former value as precondition, and rollback restores it. [`knob`] is a text setting of the
//! host, and [`lasting`] keeps such a setting permanently.
//!
//! Left out: which backend can set what (`vsteer-host`).

pub mod argv;
pub mod knob;
pub mod lasting;
pub mod uri;
pub mod words;

use crate::CpuSet;
use crate::nouns::{VmConfig, VmId};
pub use quota::QuotaScope;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Operations of every setting on a change of it.
pub trait Setting: Sized {
    /// The change that undoes this one; `None` if it cannot be undone.
    fn undo(&self) -> Option<Self>;
    /// Text of the former value.
    fn before(&self) -> String;
    /// Text of the new value.
    fn after(&self) -> String;
    /// Do both change the same thing of one VM?
    fn same_target(&self, other: &Self) -> bool;
    /// Do both have the same former value? Values are compared, not their texts.
    fn same_before(&self, other: &Self) -> bool;
    /// Is the new value in force? `current` has the value in force as its former value.
    fn is_reached(&self, current: &Self) -> bool;
    /// Effect that no undo removes; `None` if the change can be undone completely.
    fn irreversible(&self) -> Option<&'static str> {
        None
    }
    /// Do VMs share the changed thing, so that changes of two VMs can conflict?
    fn is_shared(&self) -> bool {
        false
    }
    /// Connection URIs that the change itself names.
    fn uris(&self) -> Vec<&str> {
        Vec::new()
    }
    /// Files, commands, machines and connections that the change itself names, one line each.
    fn touches(&self) -> Vec<String> {
        self.uris().iter().map(|uri| format!("libvirt: {uri}")).collect()
    }
    /// Why a dry run does not read the present value, if so.
    fn unread(&self) -> Option<&'static str> {
        None
    }
}

/// Applies a setting to a configuration.
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

/// Defines [`Change`] over all settings. A new setting needs a file in this folder and a line in the table.
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
            /// The change that undoes this one; `None` if it cannot be undone.
            #[must_use]
            pub fn undo(&self) -> Option<Change> {
                Some(match self {
                    $(Change::$variant(c) => Change::$variant(c.undo()?),)*
                })
            }

            /// Text of the former value.
            pub fn before(&self) -> String {
                match self {
                    $(Change::$variant(c) => c.before(),)*
                }
            }

            /// Text of the new value.
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

            /// Is the new value in force? `current` has the value in force as its former value.
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

            /// Effect that no undo removes; `None` if the change can be undone completely.
            pub fn irreversible(&self) -> Option<&'static str> {
                match self {
                    $(Change::$variant(c) => c.irreversible(),)*
                }
            }

            /// Do VMs share the changed thing?
            pub fn is_shared(&self) -> bool {
                match self {
                    $(Change::$variant(c) => c.is_shared(),)*
                }
            }

            /// Connection URIs that the change itself names.
            pub fn uris(&self) -> Vec<&str> {
                match self {
                    $(Change::$variant(c) => c.uris(),)*
                }
            }

            /// Files, commands, machines and connections that the change itself names, one line each.
            pub fn touches(&self) -> Vec<String> {
                match self {
                    $(Change::$variant(c) => c.touches(),)*
                }
            }

            /// Why a dry run does not read the present value: that would run a program or open a connection which a
            /// file names. `None`: it reads it.
            pub fn unread(&self) -> Option<&'static str> {
                match self {
                    $(Change::$variant(c) => c.unread(),)*
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
    /// Does the change need the VM to be off? Only on vSphere; elsewhere such a change goes into the definition.
    ///
    /// Sources: VMware, vSphere Virtual Machine Administration (7.0), "Virtual CPU Configuration" for cores per
    /// socket. A latency sensitivity takes effect at the next start. If a VM cannot start with it, the error would
    /// come too late, so it also needs the VM to be off.
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
    /// Reason for the change, as text.
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

/// Where changes take effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// Only in the running VM, until it stops.
    Live,
    /// Only in the definition, from the VM's next start.
    Persistent,
    /// In both.
    Both,
}

impl Scope {
    /// Does the scope include the running VM?
    pub fn live(self) -> bool {
        matches!(self, Scope::Live | Scope::Both)
    }

    /// Does the scope include the definition?
    pub fn persistent(self) -> bool {
        matches!(self, Scope::Persistent | Scope::Both)
    }
}
