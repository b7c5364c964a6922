//! What do the VMs' weights come to on this very host? Read off the recording, where the kernel makes something else of them.
//!
//! A VM's `cpu.weight` says what it gets of a pCPU when all others want it too; what the kernel makes of that depends on
//! things that no recording tells. Two that were met: a task group's load that lingers on a pCPU which idles (Linux 6.16: a VM of
//! 50 got as much as one of 25 for as long as it lived), and a weight that counts once per runnable vCPU where the average of
//! two that never sleep is told as a little more or a little less than two, by what it was when it was told last (7.3).
//!
//! Idea: the odds between running and waiting. The recorded configuration is simulated, and where a VM ran less beside its
//! waits than simulated, its weight was less than it says. Its factor is corrected by the ratio of the two odds, and again
//! until they agree. The factor then applies to whatever weight a plan gives the VM.
//!
//! Left out: factors of single vCPUs; factors that a change itself changes (`GAP(weights-moving)`: a VM that becomes busy on
//! one vCPU more).

use super::replay::{Got, Replay};
use crate::Fault;
use crate::model::HostModel;
use std::collections::BTreeMap;

const ROUNDS: usize = 6;
/// Odds that differ by less than this part agree: two recordings of one host differ as much.
const AGREE: f64 = 0.03;
/// No factor is beyond this: it would be something else than a weight.
const FACTOR_MOST: f64 = 8.0;
/// A VM whose vCPUs waited less than this part of the time, measured or simulated, has no odds.
const WAITED_FROM: f64 = 0.02;
/// Worth a note.
const TOLD_FROM: f64 = 0.15;

/// Running and waiting, summed over the vCPUs of a VM.
#[derive(Debug, Clone, Copy, Default)]
struct Odds {
    run: f64,
    ready: f64,
}

impl Odds {
    fn ratio(self) -> Option<f64> {
        (self.ready >= WAITED_FROM && self.run > 0.0).then(|| self.run / self.ready)
    }
}

/// The factor of each VM of `host`, in its order; 1 where nothing can be said, and for hosts that were simulated.
/// `as_it_was` is what `host` gave.
///
/// # Errors
/// As [`Replay::run`].
pub fn effective(
    host: &Replay,
    as_it_was: &[Got],
    measured: &HostModel,
    window_ns: u64,
    go_on: &mut dyn FnMut() -> bool,
) -> Result<Vec<f64>, Fault> {
    let mut factors = vec![1.0; host.setup.vms.len()];
    if !host.policy.about.proportional || !host.policy.about.classes {
        return Ok(factors);
    }
    let of_vm = owners(host);
    let mut seen = vec![Odds::default(); factors.len()];
    for (thread, vm) in host.threads.iter().zip(&of_vm) {
        let model = measured.vm(&thread.vm).and_then(|v| v.threads.iter().find(|t| t.tid == thread.tid));
        if let (Some(t), true) = (model, thread.role.vcpu().is_some()) {
            seen[*vm].run += t.shares.run.unwrap_or(0.0);
            seen[*vm].ready += t.shares.ready.unwrap_or(0.0);
        }
    }
    let mut got = as_it_was.to_vec();
    for _ in 0..ROUNDS {
        let mut told = vec![Odds::default(); factors.len()];
        for (g, vm) in got.iter().zip(&of_vm).filter(|(g, _)| g.thread.role.vcpu().is_some()) {
            told[*vm].run += g.run;
            told[*vm].ready += g.ready;
        }
        let mut agree = true;
        for (factor, (seen, told)) in factors.iter_mut().zip(seen.iter().zip(&told)) {
            if let (Some(seen), Some(told)) = (seen.ratio(), told.ratio()) {
                agree &= (seen / told - 1.0).abs() <= AGREE;
                // Half way: of two VMs that share a pCPU each factor moves both odds, and whole steps would swing for ever.
                *factor = (*factor * libm::sqrt(seen / told)).clamp(1.0 / FACTOR_MOST, FACTOR_MOST);
            }
        }
        if agree {
            break;
        }
        let mut next = host.clone();
        scale(&mut next, &factors);
        got = next.run(window_ns / 4, window_ns, go_on)?;
    }
    if host.policy.about.parameters.iter().any(|p| p.name == "flat") && host.values.get("flat") == 1 {
        whole(&mut factors);
    }
    Ok(factors)
}

/// In one line of tasks a weight counts once or twice, by what it was when it was told last; all else is simulated as it is,
/// and what is left of a difference is none of the weight's. Only what factors are to each other counts.
fn whole(factors: &mut [f64]) {
    let Some(middle) = crate::stats::quantile(factors, 0.5) else { return };
    for f in factors {
        *f = libm::exp2(libm::round(libm::log2(*f / middle)));
    }
}

/// The index of each thread's VM.
fn owners(host: &Replay) -> Vec<usize> {
    let counts = host.setup.vms.iter().enumerate();
    counts.flat_map(|(vm, setup)| std::iter::repeat_n(vm, setup.vcpus.len())).collect()
}

/// Multiplies the weights of `host` by these factors. Only what they are to each other counts: they are made as large as the
/// scheduler's scale allows, lest rounding take what the factors give.
pub fn scale(host: &mut Replay, factors: &[f64]) {
    if factors.iter().all(|f| (f - 1.0).abs() < f64::EPSILON) {
        return;
    }
    let about = host.policy.about;
    let (least, most) = about.weights;
    let weight =
        |vm: &crate::sim::setup::VmSetup, f: f64| f * f64::from(vm.weight.unwrap_or(about.default_weight));
    let wanted: Vec<f64> = host.setup.vms.iter().zip(factors).map(|(vm, f)| weight(vm, *f)).collect();
    // Groups above VMs are some VMs' siblings: they keep their ratio to these.
    let of_group = |weight: Option<u32>| f64::from(weight.unwrap_or(about.default_weight));
    let groups = host.setup.groups.iter().map(|g| of_group(g.weight));
    let largest = wanted.iter().copied().chain(groups).fold(f64::MIN_POSITIVE, f64::max);
    let up = f64::from(most) / largest;
    let scaled = |w: f64| Some(libm::round(w * up).clamp(f64::from(least), f64::from(most)) as u32);
    host.setup.vms.iter_mut().zip(wanted).for_each(|(vm, w)| vm.weight = scaled(w));
    host.setup.groups.iter_mut().for_each(|g| g.weight = scaled(of_group(g.weight)));
}

/// What is worth telling of the factors.
pub fn told(host: &Replay, factors: &[f64]) -> Option<String> {
    let of: BTreeMap<&str, f64> =
        host.setup.vms.iter().map(|vm| vm.name.as_str()).zip(factors.iter().copied()).collect();
    let odd: Vec<String> = of
        .into_iter()
        .filter(|(_, f)| (f - 1.0).abs() >= TOLD_FROM)
        .map(|(name, f)| format!("{name} {f:.2}"))
        .collect();
    (!odd.is_empty()).then(|| {
        format!(
            "weights come to something else on this host than they say; their factors, read off the recording: {}",
            odd.join(", ")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::super::replay::tests::hogs;
    use super::*;
    use crate::sim::setup::GroupSetup;

    const WINDOW_NS: u64 = 4_000_000_000;

    fn factors(run: &[f64]) -> Vec<f64> {
        let (host, model) = hogs(1, &[("a", 200, 1), ("b", 50, 1)], run);
        let got = host.run(WINDOW_NS / 4, WINDOW_NS, &mut || true).unwrap();
        effective(&host, &got, &model, WINDOW_NS, &mut || true).unwrap()
    }

    /// 200 beside 50 should have got 4 to 1, and got 8 to 1: one's weight is worth twice what it says beside the other's.
    #[test]
    fn a_weight_is_worth_what_it_gave() {
        let twice = factors(&[8.0 / 9.0, 1.0 / 9.0]);
        let ratio = twice[0] / twice[1];
        assert!((ratio / 2.0 - 1.0).abs() < 0.1, "{twice:?}");
        let as_it_says = factors(&[0.8, 0.2]);
        assert!((as_it_says[0] / as_it_says[1] - 1.0).abs() < 0.1, "{as_it_says:?}");
        // Who never waited tells nothing.
        assert_eq!(factors(&[1.0, 1.0]), [1.0, 1.0]);
    }

    /// Read off 7.3: a VM whose weight counted once where the others' counted as simulated, and one where all did.
    #[test]
    fn in_one_line_factors_are_powers_of_two() {
        let mut odd = [0.677, 1.29, 1.32, 1.36];
        whole(&mut odd);
        assert_eq!(odd, [0.5, 1.0, 1.0, 1.0]);
        let mut even = [1.01, 1.0, 1.0, 0.8];
        whole(&mut even);
        assert_eq!(even, [1.0; 4]);
        whole(&mut []);
    }

    #[test]
    fn scaled_weights_keep_their_ratio_and_fit_the_scale() {
        let (mut host, _) = hogs(1, &[("a", 10_000, 1), ("b", 100, 1)], &[0.5, 0.5]);
        scale(&mut host, &[2.0, 1.0]);
        assert_eq!(host.setup.vms.iter().map(|vm| vm.weight.unwrap()).collect::<Vec<_>>(), [10_000, 50]);
        let (mut beside, _) = hogs(1, &[("a", 100, 1), ("b", 100, 1)], &[0.5, 0.5]);
        let above = GroupSetup { name: "/machine".into(), parent: None, weight: None, quota: None };
        beside.setup.groups.push(above);
        scale(&mut beside, &[0.5, 1.0]);
        // The group stands beside them: it is worth what b is, as before.
        let weights = [beside.setup.vms[0].weight, beside.setup.vms[1].weight, beside.setup.groups[0].weight];
        assert_eq!(weights, [Some(5_000), Some(10_000), Some(10_000)]);
        let told = told(&host, &[2.0, 1.0]).unwrap();
        assert!(told.ends_with("a 2.00"), "{told}");
    }
}
