//! Which steps set the new weights, and are these weights still in force in the next period?
//!
//! A hypervisor takes whole numbers ([`super::round`]). The sum of the weights stays the same, so VMs without a
//! level keep their share. [`LastSet`] remembers the weights. If a weight differs in a later period, another
//! program set it or the VM restarted.
//!
//! Left out: vSphere, which `vsteer steer` does not reach.

use super::control::Decision;
use super::facts::find;
use super::hold::Outcome;
use super::round::{CGROUP_V1, CGROUP_V2, XEN, rounded};
use vsteer_core::nouns::{CpuWeight, HostConfig, VmConfig};
use vsteer_core::setting;
use vsteer_core::setting::{Change, Step};

/// If rounding changes a share by more than this part, vsteer prints a note.
const LOSS_TOLD: f64 = 0.01;
/// Two weights that differ by less than this part are the same.
const SAME: f64 = 1e-9;

/// The outcome's weights as steps for the VMs of these names, and the largest relative change of a share by rounding.
pub fn steps(config: &HostConfig, names: &[&str], outcome: &Outcome) -> (Vec<Step>, f64) {
    let Decision::Set { weights, .. } = &outcome.decision else { return (Vec::new(), 0.0) };
    let of = |(name, weight): (&&str, &f64)| {
        let vm = find(config, name).ok()?;
        Some((vm, vm.weight?, *weight))
    };
    // VMs that are not steered keep their weight.
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

/// Note that rounding changes a share noticeably.
pub fn lossy(loss: f64) -> Option<String> {
    (loss > LOSS_TOLD)
        .then(|| format!("rounding the weights to whole numbers changes a share by {:.1} %", 100.0 * loss))
}

/// The weights that vsteer set last, by VM.
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

    /// A note for each weight that differs from the one that vsteer set. Each note appears once.
    pub fn no_longer_holds(&mut self, config: &HostConfig) -> Vec<String> {
        let mut notes = Vec::new();
        self.0.retain(|(name, weight)| {
            let now = find(config, name).ok().and_then(|vm| vm.weight);
            let other = now.filter(|now| now != weight);
            if let Some(other) = other {
                notes.push(format!(
                    "{name}: it now has {other}, not the weight that vsteer set; \
                    another program changed it or the VM restarted"
                ));
            }
            other.is_none()
        });
        notes
    }
}

#[cfg(test)]
mod tests;
