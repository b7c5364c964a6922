//! Which steps set the weights of an outcome, and do they still hold in the next period?
//!
//! A hypervisor takes whole numbers ([`super::round`]). Together the new numbers are as large as the old ones, so a VM that nobody
//! steers gets what it got before.
//!
//! [`LastSet`] remembers what was set. A weight that differs in a later period was set by somebody else, or the VM was started again.
//!
//! Left out: vSphere, which `vsteer steer` does not reach.

use super::control::Decision;
use super::facts::find;
use super::hold::Outcome;
use super::round::{CGROUP_V1, CGROUP_V2, XEN, rounded};
use vsteer_core::nouns::{CpuWeight, HostConfig, VmConfig};
use vsteer_core::setting;
use vsteer_core::setting::{Change, Step};

/// A share that rounding changes by more than this part of itself is worth a note.
const LOSS_TOLD: f64 = 0.01;
/// Two weights that differ by less than this part are the same.
const SAME: f64 = 1e-9;

/// The outcome's weights as steps for the VMs of these names, and the largest part of itself that a share loses by rounding.
pub fn steps(config: &HostConfig, names: &[&str], outcome: &Outcome) -> (Vec<Step>, f64) {
    let Decision::Set { weights, .. } = &outcome.decision else { return (Vec::new(), 0.0) };
    let of = |(name, weight): (&&str, &f64)| {
        let vm = find(config, name).ok()?;
        Some((vm, vm.weight?, *weight))
    };
    // VMs that are left out have the weight that they had.
    let turned =
        |(_, from, to): &(&VmConfig, CpuWeight, f64)| *to > 0.0 && (to / from.relative() - 1.0).abs() > SAME;
    let all: Vec<_> = names.iter().zip(weights).filter_map(of).filter(turned).collect();
    let range = match all.first().map(|(_, from, _)| from) {
        Some(CpuWeight::Shares(_)) => CGROUP_V1,
        Some(CpuWeight::Weight(_)) => CGROUP_V2,
        Some(CpuWeight::Credit(_)) => XEN,
        Some(CpuWeight::Esxi(_)) | None => return (Vec::new(), 0.0),
    };
    let parts: Vec<f64> = all.iter().map(|(_, _, w)| *w).collect();
    let together = all.iter().map(|(_, from, _)| from.number()).sum();
    let Some(rounded) = rounded(&parts, range, Some(together)) else { return (Vec::new(), 0.0) };
    let step = |((vm, from, _), to): (&(&VmConfig, CpuWeight, f64), &u64)| Step {
        vm: vm.id.clone(),
        vm_name: vm.name.clone(),
        change: Change::Weight(setting::Weight { from: *from, to: from.on_same_scale(*to as f64) }),
        reason: outcome.why.clone(),
    };
    let changes = |s: &Step| !matches!(s.change, Change::Weight(setting::Weight { from, to }) if from == to);
    (all.iter().zip(&rounded.numbers).map(step).filter(changes).collect(), rounded.loss)
}

/// The note that rounding changes a share.
pub fn lossy(loss: f64) -> Option<String> {
    (loss > LOSS_TOLD)
        .then(|| format!("weights are whole numbers: a share is {:.1} % off by that", 100.0 * loss))
}

/// What was set last, by VM.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LastSet(Vec<(String, CpuWeight)>);

impl LastSet {
    /// These steps were made.
    pub fn remember(&mut self, steps: &[Step]) {
        for step in steps {
            if let Change::Weight(setting::Weight { to, .. }) = step.change {
                self.0.retain(|(name, _)| *name != step.vm_name);
                self.0.push((step.vm_name.clone(), to));
            }
        }
    }

    /// A note for each weight that is not what was set. Each is told once.
    pub fn no_longer_holds(&mut self, config: &HostConfig) -> Vec<String> {
        let mut notes = Vec::new();
        self.0.retain(|(name, weight)| {
            let now = find(config, name).ok().and_then(|vm| vm.weight);
            let other = now.filter(|now| now != weight);
            if let Some(other) = other {
                notes.push(format!("{name}: its weight is {other}, which is not what was set here: somebody else set it, or it was started anew"));
            }
            other.is_none()
        });
        notes
    }
}

#[cfg(test)]
mod tests;
