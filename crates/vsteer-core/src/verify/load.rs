//! Did the load change by itself between two recordings?
//!
//! Then waits change too, and no change of settings deserves the credit. The load is what the VMs ask for: the run time of a
//! VM that sleeps at times, and run and waiting time of one that never does. Neither depends on who gets the pCPUs when. VMs
//! that the plan changes and that never slept in one of the recordings tell nothing, as the plan may be why they sleep now.
//!
//! Left out: processes of the host, and VMs that are not in every interval of both recordings.

use super::Side;
use crate::model::Shares;
use crate::nouns::VmId;
use crate::stats::{Comparison, compare};
use std::collections::BTreeSet;

/// Level of the test for a changed load.
const ALPHA: f64 = 0.01;
/// A VM never sleeps if it runs and waits for this part of the time.
const WANTS_ALL: f64 = 0.95;

/// Run time and waits of a VM per interval, summed over vCPUs.
struct Asked {
    run: Vec<f64>,
    wait: Vec<f64>,
    never_sleeps: bool,
}

impl Asked {
    fn of(side: &Side<'_>, vm: &VmId) -> Asked {
        let of = |term: fn(&Shares) -> Option<f64>| side.series(vm, term);
        let (run, wait) = (of(|s| s.run), of(|s| s.wait));
        let mean = |x: &[f64]| crate::stats::mean(x).unwrap_or(0.0);
        let vcpus = side.model.vm(vm).map_or(1, |m| m.vcpu_threads().count()).max(1) as f64;
        let never_sleeps = mean(&run) + mean(&wait) >= WANTS_ALL * vcpus;
        Asked { run, wait, never_sleeps }
    }

    fn load(&self) -> Vec<f64> {
        if self.never_sleeps && self.wait.len() == self.run.len() {
            self.run.iter().zip(&self.wait).map(|(run, wait)| run + wait).collect()
        } else {
            self.run.clone()
        }
    }
}

/// Did the VM want all its vCPUs all the time, in both recordings? Then the time that it ran is its work.
pub(super) fn never_sleeps(before: &Side<'_>, after: &Side<'_>, vm: &VmId) -> bool {
    [before, after].iter().all(|side| Asked::of(side, vm).never_sleeps)
}

/// The load before and after, in pCPUs, if it changed visibly; `least`: by at least so much.
pub(super) fn changed(
    before: &Side<'_>,
    after: &Side<'_>,
    planned: &BTreeSet<VmId>,
    least: f64,
) -> Option<Comparison> {
    let (mut a, mut b): (Vec<f64>, Vec<f64>) = (Vec::new(), Vec::new());
    for vm in &before.model.vms {
        let (was, is) = (Asked::of(before, &vm.id), Asked::of(after, &vm.id));
        if planned.contains(&vm.id) && (was.never_sleeps || is.never_sleeps) {
            continue;
        }
        let (was, is) = (was.load(), is.load());
        if was.len() == before.intervals && is.len() == after.intervals {
            add(&mut a, &was);
            add(&mut b, &is);
        }
    }
    compare(&a, &b).filter(|c| c.difference().abs() > c.half_width(ALPHA).max(least))
}

fn add(sum: &mut Vec<f64>, more: &[f64]) {
    sum.resize(more.len(), 0.0);
    sum.iter_mut().zip(more).for_each(|(sum, more)| *sum += more);
}
