//! What shall be changed, why, and what is expected of it? A [`Plan`] is an immutable value that a person can read
//! before anything happens; it leaves no choice to the one who applies it.
//!
//! Every step carries the former value as well as the new one: the former is the precondition that is checked right
//! before acting, and the undo. A plan holds the whole configuration it was made for and is refused where that has
//! changed. Idea: a blueprint with a parent, as in Omicron's reconfigurator.

pub mod action;
pub mod advise;
pub mod limits;
pub mod powercli;
pub mod set;

use crate::canonical;
use crate::forecast::Forecast;
use crate::nouns::HostConfig;
use crate::setting::{Scope, Step};
use serde::{Deserialize, Serialize};

/// The version of the plan's form; a reader refuses a newer one.
pub const PLAN_VERSION: u32 = 1;

/// A set of changes that was considered and not chosen.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Alternative {
    /// What it would do.
    pub title: String,
    /// Why it was not chosen.
    pub why_not: String,
    /// What was expected of it.
    pub forecast: Forecast,
}

/// What is expected after the first so many steps.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Stage {
    /// How many steps are made.
    pub steps: usize,
    /// What is then expected.
    pub forecast: Forecast,
}

/// The changes that remove the delay, to be read before they are made.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// [`PLAN_VERSION`] of the writer.
    pub version: u32,
    /// Name for the journal and for `rollback`: from what it contains, so equal plans have equal ids.
    pub id: String,
    /// The configuration it was made for.
    pub parent: HostConfig,
    /// The parent's fingerprint.
    pub fingerprint: String,
    /// What it does, in one line.
    pub title: String,
    /// The changes, in the order in which they are made. Empty: nothing needs to change.
    pub steps: Vec<Step>,
    /// Where they take effect.
    pub scope: Scope,
    /// What is expected.
    pub forecast: Forecast,
    /// What is expected on the way: before any, then after each step, or of many after those of each VM. The last is not
    /// repeated.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub on_the_way: Vec<Stage>,
    /// What else was considered.
    pub alternatives: Vec<Alternative>,
    /// What no rollback brings back, one line each.
    pub irreversible: Vec<String>,
}

impl Plan {
    /// A plan of these steps for this configuration; derives id, fingerprint and what cannot be undone.
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
        }
    }

    /// The steps whose VM must be off when they are made, by their place, and whether it was on when the plan was made (`None`: not told).
    pub fn needs_vms_off(&self) -> Vec<(usize, Option<bool>)> {
        let of = |(i, step): (usize, &Step)| {
            let vm = self.parent.vm(&step.vm)?;
            let on = vm.vsphere.as_ref().and_then(|v| v.powered_on);
            step.change.needs_vm_off(vm).then_some((i, on))
        };
        self.steps.iter().enumerate().filter_map(of).collect()
    }
}
