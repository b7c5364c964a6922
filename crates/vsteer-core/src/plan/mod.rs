//! Which settings should change, why, and what effect does vsteer forecast? A [`Plan`] is an immutable value that a
//! person can read before anything changes. Applying it needs no further decision.
//!
//! Every step carries the former and the new value. `apply` checks the former value as precondition; rollback restores
//! it. A plan holds the whole configuration it was made for. vsteer refuses the plan if that configuration has changed.
//! The idea, a blueprint with a parent, comes from Omicron's reconfigurator.

pub mod action;
pub mod advise;
mod contested;
pub mod limits;
pub mod powercli;
pub mod set;

use crate::canonical;
use crate::forecast::Forecast;
use crate::nouns::HostConfig;
use crate::setting::uri::from_file;
use crate::setting::{Scope, Step};
use crate::{Fault, FaultKind};
use serde::{Deserialize, Serialize};

/// Version of the plan's file format. vsteer refuses plans with a newer version.
pub const PLAN_VERSION: u32 = 1;

/// A set of changes that vsteer considered but did not choose.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Alternative {
    /// One line that says what the changes would do.
    pub title: String,
    /// Why it was not chosen.
    pub why_not: String,
    /// Forecast for these changes.
    pub forecast: Forecast,
}

/// Forecast after the first N steps.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Stage {
    /// Number of steps made.
    pub steps: usize,
    /// Forecast after these steps.
    pub forecast: Forecast,
}

/// The changes that remove the delay, for a person to read before they are made.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// [`PLAN_VERSION`] of the writer.
    pub version: u32,
    /// Name for the journal and for `rollback`. A hash of the contents, so equal plans have equal ids.
    pub id: String,
    /// Configuration that the plan was made for.
    pub parent: HostConfig,
    /// Fingerprint of `parent`.
    pub fingerprint: String,
    /// One line that says what the plan does.
    pub title: String,
    /// The changes, in the order in which they are made. Empty if nothing needs to change.
    pub steps: Vec<Step>,
    /// Where the changes take effect: running VM, definition, or both.
    pub scope: Scope,
    /// Forecast after all steps.
    pub forecast: Forecast,
    /// Forecasts before the first step and after each step. A plan with many steps has one per VM instead. The
    /// forecast after the last step is in `forecast`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub on_the_way: Vec<Stage>,
    /// Changes that vsteer considered but did not choose.
    pub alternatives: Vec<Alternative>,
    /// Effects that no rollback undoes, one line each.
    pub irreversible: Vec<String>,
    /// What may not last, because a program of the host changes the same setting, one line each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub contested: Vec<String>,
}

impl Plan {
    /// Is this a valid id? An id becomes a file's name, and a plan may come from anywhere, so an id is never a path:
    /// 1 to 64 letters, digits, `-` and `_`.
    pub fn is_id(id: &str) -> bool {
        (1..=64).contains(&id.len())
            && id.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
    }

    /// Refuses the plan if it names a connection that the person did not type and that [`from_file`] refuses.
    ///
    /// # Errors
    /// As [`from_file`].
    pub fn check_uris(&self, typed: &[&str]) -> Result<(), Fault> {
        self.steps.iter().flat_map(|step| step.change.uris()).try_for_each(|uri| from_file(uri, typed))
    }

    /// Refuses an id that is not valid.
    ///
    /// # Errors
    /// `BadInput`.
    pub fn check_id(id: &str) -> Result<(), Fault> {
        if Plan::is_id(id) {
            return Ok(());
        }
        Err(Fault::new(FaultKind::BadInput, format!("{id:?} is not a valid plan id"))
            .because("an id has 1 to 64 letters, digits, hyphens and underscores"))
    }

    /// Makes a plan of these steps for this configuration. Derives `id`, `fingerprint`, `irreversible` and `contested`.
    pub fn new(
        parent: HostConfig,
        title: String,
        steps: Vec<Step>,
        scope: Scope,
        forecast: Forecast,
    ) -> Plan {
        let fingerprint = parent.fingerprint();
        let text = canonical::json(&(&fingerprint, &steps, scope));
        let hash = text
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325_u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3));
        let irreversible = steps
            .iter()
            .filter_map(|s| Some(format!("VM {:?}: {}", s.vm_name, s.change.irreversible()?)))
            .collect();
        let contested = contested::notes(&parent, &steps, scope);
        Plan {
            version: PLAN_VERSION,
            id: format!("{:012x}", hash >> 16),
            parent,
            fingerprint,
            title,
            steps,
            scope,
            forecast,
            on_the_way: Vec::new(),
            alternatives: Vec::new(),
            irreversible,
            contested,
        }
    }

    /// What to call the VM of a step: as on all screens, or as the step says if the plan's host does not have the VM.
    pub fn called(&self, step: &Step) -> String {
        self.parent.called().remove(&step.vm).unwrap_or_else(|| step.vm_name.clone())
    }

    /// Indexes of the steps that require their VM to be off, with whether the VM was on when the plan was made (`None`:
    /// unknown).
    pub fn needs_vms_off(&self) -> Vec<(usize, Option<bool>)> {
        let of = |(i, step): (usize, &Step)| {
            let vm = self.parent.vm(&step.vm)?;
            let on = vm.vsphere.as_ref().and_then(|v| v.powered_on);
            step.change.needs_vm_off(vm).then_some((i, on))
        };
        self.steps.iter().enumerate().filter_map(of).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_never_a_path() {
        for id in ["a", "0f3c", "web-1_b", &"x".repeat(64)] {
            assert!(Plan::is_id(id), "{id}");
        }
        for id in ["", ".", "..", "a/b", "/x/trunc", "a b", "a\0", "é", &"x".repeat(65)] {
            assert!(!Plan::is_id(id), "{id}");
        }
    }
}
