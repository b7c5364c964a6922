//! Estimates the effective weights of VMs from a recording, because the kernel's effective weights differ
//! from the configured ones.
//!
//! A VM's `cpu.weight` determines its part of a pCPU when all others also want it. What the kernel makes of
//! it depends on things that no recording contains. Two such cases are known. A task group's load may remain
//! on a pCPU that idles (Linux 6.16: a VM of weight 50 got only as much as one of 25, for its whole life).
//! And a weight counts once per runnable vCPU, but for two vCPUs that never sleep the recorded average is
//! slightly more or less than two, depending on the last update (7.3).
//!
//! Idea: compare the odds, the ratio of running to waiting. The recorded configuration is simulated. If a
//! VM's measured odds are lower than simulated, its effective weight was lower than configured. Its factor is
//! corrected by the ratio of the two odds, repeatedly, until they agree. The factor then applies to any
//! weight that a plan gives the VM.
//!
//! With one line of tasks (7.3) there is only one question for each VM with several vCPUs that are always
//! awake: does its weight count as often as it has such vCPUs, or once less? All combinations are simulated,
//! and the one nearest to the measured ready shares is taken.
//!
//! Left out: hosts on which some vCPU may run on several pCPUs, because there the odds also depend on
//! placement; factors of single vCPUs; counts of more than the first four such VMs; factors that a change
//! itself changes (`GAP(weights-moving)`: a VM that becomes busy on one vCPU more).

use super::replay::{Got, Replay};
use crate::setup::VcpuSetup;
use std::collections::BTreeMap;
use vsteer_core::model::HostModel;
use vsteer_core::{CpuSet, Fault};

const ROUNDS: usize = 6;
/// Odds that differ by less than this part agree, because two recordings of one host differ by as much.
const AGREE: f64 = 0.03;
/// Ready shares that differ by less than this, summed over a VM's vCPUs, also agree. A vCPU that sleeps most
/// of the time waits about the same for any weight, and a factor fitted to the rest would be extreme.
const ALIKE: f64 = 0.01;
/// The largest factor. A larger one would have another cause than a weight.
const FACTOR_MOST: f64 = 8.0;
/// If a VM's vCPUs waited less than this part of the time, measured or simulated, it has no odds.
const WAITED_FROM: f64 = 0.02;
/// The most VMs whose combinations are all simulated.
const ASKED: usize = 4;
/// Another count of weights is taken only if its error is below this part of the best one.
const NEARER: f64 = 0.9;
/// A VM has its own odds if one of its vCPUs is awake for this part of the time. A vCPU that sleeps more has
/// waits that depend on the position of ticks and slices. Factors fitted to those were extreme (1.4 and 0.6,
/// where 1 was right). So such VMs get a factor only if the replay's error then falls below [`MUCH_NEARER`]
/// times the error without.
const AWAKE_FROM: f64 = 0.9;
const MUCH_NEARER: f64 = 0.5;
/// A factor that differs from 1 by this much deserves a note.
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

/// The factor of each VM of `host`, in its order. It is 1 if there is no evidence, and for hosts that were
/// simulated. `as_it_was` is the result of `host`.
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
    let factors = vec![1.0; host.setup.vms.len()];
    let pcpus = host.setup.topology.usable().len();
    let stays = |v: &VcpuSetup| v.helper || v.affinity.as_ref().map_or(pcpus, CpuSet::len) == 1;
    let mut vcpus = host.setup.vms.iter().flat_map(|vm| &vm.vcpus);
    if !host.policy.about.proportional || !host.policy.about.classes || !vcpus.all(stays) {
        return Ok(factors);
    }
    let of_vm = owners(host);
    if host.policy.about.parameters.iter().any(|p| p.name == "flat") && host.values.get("flat") == 1 {
        return counts(host, as_it_was, measured, &of_vm, window_ns, go_on);
    }
    let awake: Vec<bool> =
        awake(as_it_was, &of_vm, factors.len()).iter().map(|a| a.most >= AWAKE_FROM).collect();
    let mut seen = vec![Odds::default(); factors.len()];
    for (thread, vm) in host.threads.iter().zip(&of_vm) {
        let model = measured.vm(&thread.vm).and_then(|v| v.threads.iter().find(|t| t.tid == thread.tid));
        if let (Some(t), true) = (model, thread.role.vcpu().is_some()) {
            seen[*vm].run += t.shares.run.unwrap_or(0.0);
            seen[*vm].ready += t.shares.ready.unwrap_or(0.0);
        }
    }
    let mut fit = |asked: &[bool]| fit(host, as_it_was, &seen, &of_vm, asked, window_ns, go_on);
    let (off, of_awake) = fit(&awake)?;
    if awake.iter().all(|a| *a) || off < ALIKE {
        return Ok(of_awake);
    }
    let (off_all, of_all) = fit(&vec![true; awake.len()])?;
    Ok(if off_all < MUCH_NEARER * off { of_all } else { of_awake })
}

/// The factors of the `asked` VMs with which the ready shares of all VMs come nearest to `seen`, and the
/// remaining error.
fn fit(
    host: &Replay,
    as_it_was: &[Got],
    seen: &[Odds],
    of_vm: &[usize],
    asked: &[bool],
    window_ns: u64,
    go_on: &mut dyn FnMut() -> bool,
) -> Result<(f64, Vec<f64>), Fault> {
    let mut factors = vec![1.0; seen.len()];
    let mut got = as_it_was.to_vec();
    let mut best = (f64::INFINITY, factors.clone());
    for round in 0..=ROUNDS {
        let mut told = vec![Odds::default(); factors.len()];
        for (g, vm) in got.iter().zip(of_vm).filter(|(g, _)| g.thread.role.vcpu().is_some()) {
            told[*vm].run += g.run;
            told[*vm].ready += g.ready;
        }
        let off: f64 = seen.iter().zip(&told).map(|(s, t)| (s.ready - t.ready).abs()).sum();
        if off < best.0 {
            best = (off, factors.clone());
        }
        let mut agree = true;
        let pairs = factors.iter_mut().zip(seen.iter().zip(&told)).zip(asked);
        for (factor, (seen, told)) in pairs.filter(|(_, asked)| **asked).map(|(pair, _)| pair) {
            if (seen.ready - told.ready).abs() < ALIKE {
                continue;
            }
            if let (Some(seen), Some(told)) = (seen.ratio(), told.ratio()) {
                agree &= (seen / told - 1.0).abs() <= AGREE;
                // Half steps: if two VMs share a pCPU, each factor moves both odds, and whole steps would
                // oscillate forever.
                *factor = (*factor * libm::sqrt(seen / told)).clamp(1.0 / FACTOR_MOST, FACTOR_MOST);
            }
        }
        if agree || round == ROUNDS {
            break;
        }
        let mut next = host.clone();
        scale(&mut next, &factors);
        got = next.run(window_ns / 4, window_ns, go_on)?;
    }
    Ok(best)
}

/// With one line of tasks: how often each VM's weight counts, divided by how often the simulation counts it.
fn counts(
    host: &Replay,
    as_it_was: &[Got],
    measured: &HostModel,
    of_vm: &[usize],
    window_ns: u64,
    go_on: &mut dyn FnMut() -> bool,
) -> Result<Vec<f64>, Fault> {
    let ready = |g: &Got| {
        let vm = measured.vm(&g.thread.vm)?;
        vm.threads.iter().find(|t| t.tid == g.thread.tid)?.shares.ready
    };
    let is_vcpu = |g: &&Got| g.thread.role.vcpu().is_some();
    let off = |got: &[Got]| -> f64 {
        got.iter().filter(is_vcpu).filter_map(|g| Some((ready(g)? - g.ready).abs())).sum()
    };
    // The count is at most the number of pCPUs.
    let most = host.setup.topology.usable().len() as f64;
    let times =
        awake(as_it_was, of_vm, host.setup.vms.len()).into_iter().map(|a| libm::round(a.all).min(most));
    let once_less: Vec<(usize, f64)> =
        times.enumerate().filter(|(_, n)| *n >= 2.0).map(|(vm, n)| (vm, (n - 1.0) / n)).take(ASKED).collect();
    let mut best = (off(as_it_was), vec![1.0; host.setup.vms.len()]);
    for some in 1..1_usize << once_less.len() {
        let mut factors = vec![1.0; host.setup.vms.len()];
        let chosen = once_less.iter().enumerate().filter(|(i, _)| some >> i & 1 == 1);
        chosen.for_each(|(_, (vm, factor))| factors[*vm] = *factor);
        let mut next = host.clone();
        scale(&mut next, &factors);
        let then = off(&next.run(window_ns / 4, window_ns, go_on)?);
        if then < NEARER * best.0 {
            best = (then, factors);
        }
    }
    Ok(best.1)
}

/// The part of the time in which vCPUs of a VM have something to do, whether they may run or not.
#[derive(Debug, Clone, Copy, Default)]
struct Awake {
    /// The sum over all vCPUs.
    all: f64,
    /// The largest value of one vCPU.
    most: f64,
}

fn awake(got: &[Got], of_vm: &[usize], vms: usize) -> Vec<Awake> {
    let mut all = vec![Awake::default(); vms];
    for (g, vm) in got.iter().zip(of_vm).filter(|(g, _)| g.thread.role.vcpu().is_some()) {
        let awake = g.run + g.ready + g.limited;
        all[*vm].all += awake;
        all[*vm].most = all[*vm].most.max(awake);
    }
    all
}

/// The index of each thread's VM.
fn owners(host: &Replay) -> Vec<usize> {
    let counts = host.setup.vms.iter().enumerate();
    counts.flat_map(|(vm, setup)| std::iter::repeat_n(vm, setup.vcpus.len())).collect()
}

/// Multiplies the weights of `host` by these factors. Only the ratios matter. The weights become as large as
/// the scheduler's scale allows, so that rounding does not cancel the factors.
pub fn scale(host: &mut Replay, factors: &[f64]) {
    if factors.iter().all(|f| (f - 1.0).abs() < f64::EPSILON) {
        return;
    }
    let about = host.policy.about;
    let (least, most) = about.weights;
    let weight =
        |vm: &crate::setup::VmSetup, f: f64| f * f64::from(vm.weight.unwrap_or(about.default_weight));
    let wanted: Vec<f64> = host.setup.vms.iter().zip(factors).map(|(vm, f)| weight(vm, *f)).collect();
    // Groups above VMs compete with some VMs, so they keep their ratio to them.
    let of_group = |weight: Option<u32>| f64::from(weight.unwrap_or(about.default_weight));
    let groups = host.setup.groups.iter().map(|g| of_group(g.weight));
    let largest = wanted.iter().copied().chain(groups).fold(f64::MIN_POSITIVE, f64::max);
    let up = f64::from(most) / largest;
    let scaled = |w: f64| Some(libm::round(w * up).clamp(f64::from(least), f64::from(most)) as u32);
    host.setup.vms.iter_mut().zip(wanted).for_each(|(vm, w)| vm.weight = scaled(w));
    host.setup.groups.iter_mut().for_each(|g| g.weight = scaled(of_group(g.weight)));
}

/// A note about factors that differ much from 1.
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
            "weights have another effect on this host than their numbers say; factors estimated from the \
                recording: {}",
            odd.join(", ")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::super::replay::tests::hogs;
    use super::*;
    use crate::setup::GroupSetup;

    const WINDOW_NS: u64 = 4_000_000_000;

    fn factors(run: &[f64]) -> Vec<f64> {
        let (host, model) = hogs(1, &[("a", 200, 1), ("b", 50, 1)], run);
        let got = host.run(WINDOW_NS / 4, WINDOW_NS, &mut || true).unwrap();
        effective(&host, &got, &model, WINDOW_NS, &mut || true).unwrap()
    }

    /// 200 beside 50 should have got 4 to 1, and got 8 to 1. So the effective ratio of weights is twice the
    /// configured one.
    #[test]
    fn a_weight_is_worth_what_it_gave() {
        let twice = factors(&[8.0 / 9.0, 1.0 / 9.0]);
        let ratio = twice[0] / twice[1];
        assert!((ratio / 2.0 - 1.0).abs() < 0.1, "{twice:?}");
        let as_it_says = factors(&[0.8, 0.2]);
        assert!((as_it_says[0] / as_it_says[1] - 1.0).abs() < 0.1, "{as_it_says:?}");
        // A VM that never waited gives no evidence.
        assert_eq!(factors(&[1.0, 1.0]), [1.0, 1.0]);
    }

    /// 7.3, on one of two pCPUs: a's two vCPUs and b's one. If a's weight counts twice, a gets two thirds of
    /// the pCPU; if once, a half.
    #[test]
    fn in_one_line_a_weight_counts_as_often_as_is_nearer() {
        let told = |run: &[f64]| {
            let (mut host, model) = hogs(2, &[("a", 100, 2), ("b", 100, 1)], run);
            for name in ["flat", "hrtick"] {
                host.values.set(name, 1).unwrap();
            }
            let vcpus = host.setup.vms.iter_mut().flat_map(|vm| &mut vm.vcpus);
            vcpus.for_each(|v| v.affinity = Some(std::iter::once(1).collect()));
            let got = host.run(WINDOW_NS / 4, WINDOW_NS, &mut || true).unwrap();
            effective(&host, &got, &model, WINDOW_NS, &mut || true).unwrap()
        };
        assert_eq!(told(&[1.0 / 3.0; 3]), [1.0, 1.0]);
        assert_eq!(told(&[0.25, 0.25, 0.5]), [0.5, 1.0]);
    }

    /// The same for a VM that its quota throttles for a fourth of the time, because it is awake then too. A
    /// VM of sleepers, which waits for ticks and slices, keeps its configured weight unless there is strong
    /// evidence.
    #[test]
    fn who_is_held_is_awake_and_who_sleeps_is_not_asked() {
        let on_one = |host: &mut Replay| {
            let vcpus = host.setup.vms.iter_mut().flat_map(|vm| &mut vm.vcpus);
            vcpus.for_each(|v| v.affinity = Some(std::iter::once(1).collect()));
        };
        let (mut host, model) = hogs(2, &[("a", 100, 2), ("b", 100, 1)], &[0.235, 0.235, 0.53]);
        ["flat", "hrtick"].into_iter().for_each(|name| host.values.set(name, 1).unwrap());
        on_one(&mut host);
        host.setup.vms[0].quota = Some(vsteer_core::nouns::Quota { quota_us: 47_000, period_us: 100_000 });
        let got = host.run(WINDOW_NS / 4, WINDOW_NS, &mut || true).unwrap();
        assert!(got[0].limited > 0.2, "{:?}", got[0]);
        assert_eq!(effective(&host, &got, &model, WINDOW_NS, &mut || true).unwrap(), [0.5, 1.0]);

        // A hog and a timer with equal weights; the timer waited a fifth less than simulated.
        let (mut host, mut model) = hogs(2, &[("hog", 100, 1), ("timer", 100, 1)], &[0.9, 0.1]);
        on_one(&mut host);
        host.setup.vms[1].vcpus[0].demand = crate::guest::Demand::Periodic {
            period_ns: 10_000_000,
            offset_ns: Some(500_000),
            work: crate::guest::Times::Fixed(1_000_000),
        };
        let got = host.run(WINDOW_NS / 4, WINDOW_NS, &mut || true).unwrap();
        for (vm, got) in model.vms.iter_mut().zip(&got) {
            (vm.threads[0].shares.run, vm.threads[0].shares.ready) = (Some(got.run), Some(got.ready));
        }
        let ready = &mut model.vms[1].threads[0].shares.ready;
        assert!(got[1].ready > 0.06, "{:?}", got[1]);
        *ready = ready.map(|r| 0.8 * r);
        assert_eq!(effective(&host, &got, &model, WINDOW_NS, &mut || true).unwrap(), [1.0, 1.0]);
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
        // The group competes with them. It keeps the same weight as b.
        let weights = [beside.setup.vms[0].weight, beside.setup.vms[1].weight, beside.setup.groups[0].weight];
        assert_eq!(weights, [Some(5_000), Some(10_000), Some(10_000)]);
        let told = told(&host, &[2.0, 1.0]).unwrap();
        assert!(told.ends_with("a 2.00"), "{told}");
    }
}
