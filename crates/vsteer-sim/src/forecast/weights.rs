//! Which effect do the VMs' weights have on this host? Estimated from a recording, because the kernel's effective
//! weights differ.
//!
//! A VM's `cpu.weight` says what it gets of a pCPU when all others want it too; what the kernel makes of that
//! depends on things that no recording tells. Two that were met: a task group's load that lingers on a pCPU which
//! idles (Linux 6.16: a VM of 50 got as much as one of 25 for as long as it lived), and a weight that counts once
//! per runnable vCPU where the average of two that never sleep is recorded as slightly more or less than
//! two, depending on the last update (7.3).
//!
//! Idea: the odds between running and waiting. The recorded configuration is simulated, and where a VM ran less
//! beside its waits than simulated, its weight was less than it says. Its factor is corrected by the ratio of the
//! two odds, and again until they agree. The factor then applies to whatever weight a plan gives the VM.
//!
//! In one line of tasks (7.3) there is one question only, for each VM that has several vCPUs awake all the time:
//! does its weight count as often as it has those, or once less? Every combination is simulated, and what is
//! nearest to the measured ready shares is taken.
//!
//! Left out: hosts where some vCPU may run on several pCPUs, for there the odds are those of where it was put, too;
//! factors of single vCPUs; counts of more than the first four such VMs; factors that a change itself changes
//! (`GAP(weights-moving)`: a VM that becomes busy on one vCPU more).

use super::replay::{Got, Replay};
use crate::setup::VcpuSetup;
use std::collections::BTreeMap;
use vsteer_core::model::HostModel;
use vsteer_core::{CpuSet, Fault};

const ROUNDS: usize = 6;
/// Odds that differ by less than this part agree: two recordings of one host differ as much.
const AGREE: f64 = 0.03;
/// So are ready shares that differ by less than this, summed over a VM's vCPUs: who sleeps most of the time waits
/// much the same whatever its weight is, and a factor that made up for the rest would be wild.
const ALIKE: f64 = 0.01;
/// No factor is beyond this: it would be something else than a weight.
const FACTOR_MOST: f64 = 8.0;
/// A VM whose vCPUs waited less than this part of the time, measured or simulated, has no odds.
const WAITED_FROM: f64 = 0.02;
/// Most VMs whose combinations are all simulated.
const ASKED: usize = 4;
/// A count of weights is another one where that is so much nearer to what was measured.
const NEARER: f64 = 0.9;
/// A VM has odds of its own where one of its vCPUs is awake for so much of the time. Who sleeps more waits as ticks
/// and slices of others lie; a factor that made up for that was wild (1.4 and 0.6 where 1 was right), so it is
/// asked only where that brings the replay so much nearer to what was measured.
const AWAKE_FROM: f64 = 0.9;
const MUCH_NEARER: f64 = 0.5;
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

/// The factors of those who are asked under which the ready shares of all VMs come nearest to what was `seen`, and
/// how near.
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
                // Half way: of two VMs that share a pCPU each factor moves both odds, and whole steps would swing
                // for ever.
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

/// In one line of tasks: how often does each VM's weight count, of how often it is simulated to?
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
    // Counted up to the number of pCPUs.
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

/// Parts of the time in which vCPUs of a VM have something to do, may they run or not.
#[derive(Debug, Clone, Copy, Default)]
struct Awake {
    /// Of all together.
    all: f64,
    /// Of the one that has the most.
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

/// Multiplies the weights of `host` by these factors. Only what they are to each other counts: they are as large as the
/// scheduler's scale allows, so that rounding does not cancel the factors.
pub fn scale(host: &mut Replay, factors: &[f64]) {
    if factors.iter().all(|f| (f - 1.0).abs() < f64::EPSILON) {
        return;
    }
    let about = host.policy.about;
    let (least, most) = about.weights;
    let weight =
        |vm: &crate::setup::VmSetup, f: f64| f * f64::from(vm.weight.unwrap_or(about.default_weight));
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

/// Note about factors that differ much from 1.
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

    /// 200 beside 50 should have got 4 to 1, and got 8 to 1: one's weight is worth twice what it says beside the
    /// other's.
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

    /// 7.3, two pCPUs of which these have one: a's two vCPUs and b's one. Counted twice a gets two thirds of it,
    /// once a half.
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

    /// The same, of a VM that its quota holds for a fourth of the time: it is awake then, too. And a VM of
    /// sleepers, which waits for ticks and slices, is worth what it says where nothing speaks much for another
    /// factor.
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

        // A hog of as much weight as a timer, which waited a fifth less than simulated.
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
        // The group stands beside them: it is worth what b is, as before.
        let weights = [beside.setup.vms[0].weight, beside.setup.vms[1].weight, beside.setup.groups[0].weight];
        assert_eq!(weights, [Some(5_000), Some(10_000), Some(10_000)]);
        let told = told(&host, &[2.0, 1.0]).unwrap();
        assert!(told.ends_with("a 2.00"), "{told}");
    }
}
