//! Draws the configurations for forecasts on the emulated host from a seed, so that nobody selects the easy
//! ones.
//!
//! Two to four VMs on one pCPU: at least one burner, and a random mix of burners, timers and servers with one
//! to four vCPUs, with shares, quotas and slices. Then one or two things change. Every thread that sleeps
//! wakes often enough for its 99th percentile.
//!
//! A VM that wants more than its share never sleeps. No recording shows how much more it wants, so its
//! behaviour with a larger share cannot be forecast. So the VMs that sleep want at most 60 % of the pCPU
//! together, and each at most two thirds of its share, before and after.
//!
//! Left out: pins (there is one pCPU), classes, competitors that are not VMs (GAP(replay-host)).

use std::fmt::Write;
use vsteer_core::random::Random;

/// A configuration, its change, and the job that records both.
#[derive(Debug, Clone, PartialEq)]
pub struct Drawn {
    /// The prefix of its cases.
    pub name: String,
    pub what: String,
    /// The job's cases: `NAME-a` before, `NAME-b` after, and for some `NAME-c`, later without another change.
    pub cases: String,
    /// Is there a third case?
    pub repeated: bool,
}

/// A unit of work in the guests, us (2 ns per instruction).
const UNIT_US: f64 = 20.0;
/// Every thread that sleeps wakes at least 100 times a second, so there are 1,000 wake-ups for a 99th
/// percentile.
const RECORD_S: u32 = 12;
/// One of this many configurations is recorded a third time.
const REPEATED: u64 = 4;
/// What VMs that sleep may want together.
const SLEEPERS_MOST: f64 = 0.6;
/// What each may want, as a part of its share.
const OF_SHARE: f64 = 2.0 / 3.0;
/// The time of a wake-up in addition to the work: KVM's ways out and in, and the observer's probes.
const WAKE_UP_S: f64 = 80e-6;
const WEIGHTS: [u64; 6] = [25, 50, 100, 200, 400, 800];

struct Vm {
    name: String,
    burns: bool,
    vcpus: u64,
    /// The wanted part of the pCPU, including wake-ups.
    wants: f64,
    weight: u64,
    quota_us: Option<u64>,
    toml: String,
}

/// The configuration with this number.
pub fn draw(seed: u64, number: u64) -> Drawn {
    let r = &mut Random::new(seed, number);
    let vms: Vec<Vm> = loop {
        let mut left = SLEEPERS_MOST;
        let vms: Vec<Vm> = (0..r.within(2, 4)).map(|i| vm(r, i, &mut left)).collect();
        if all_sleep(&vms, None) {
            break vms;
        }
    };
    let name = format!("c{number:02}");
    let mut what: Vec<String> = vms.iter().map(|vm| vm.toml.replace('\n', " ")).collect();
    // Weight, quota, slice, or weight and slice.
    let kind = r.within(0, 3);
    let (mut changes, mut slice_us) = (Vec::new(), None);
    if kind == 0 || kind == 3 {
        let fit: Vec<(usize, u64)> = (0..vms.len())
            .flat_map(|vm| WEIGHTS.map(|w| (vm, w)))
            .filter(|(vm, w)| *w != vms[*vm].weight && all_sleep(&vms, Some((*vm, *w))))
            .collect();
        if !fit.is_empty() {
            let (vm, weight) = fit[r.within(0, fit.len() as u64 - 1) as usize];
            changes.push(format!("{{ name = \"{}\", weight = {weight} }}", vms[vm].name));
        }
    }
    if kind == 1 {
        let burners: Vec<&Vm> = vms.iter().filter(|vm| vm.burns).collect();
        let of = burners[r.within(0, burners.len() as u64 - 1) as usize];
        // A VM with a quota loses it.
        let quota = if of.quota_us.is_some() { 0 } else { 1000 * r.within(20, 70) };
        changes.push(format!("{{ name = \"{}\", quota_us = {quota} }}", of.name));
    }
    if kind >= 2 || changes.is_empty() {
        slice_us = Some(pick(r, &[700, 3_000, 6_000, 10_000]));
    }
    what.extend(changes.iter().cloned());
    what.extend(slice_us.map(|us| format!("base slice {us} us")));
    let slice = slice_us.map_or_else(String::new, |us| format!("base_slice_us = {us}\n"));
    let head = |phase: &str| {
        format!(
            "[[case]]\nname = \"{name}-{phase}\"\nsettle_s = 2\nrecord_s = {RECORD_S}\ninterval_ms = {}\n\
             events = true\nask = false\n",
            1000 * RECORD_S
        )
    };
    let mut cases = head("a");
    vms.iter().for_each(|vm| cases += &format!("[[case.vm]]\n{}\n", vm.toml));
    let _ = write!(cases, "{}continues = true\n{slice}change = [{}]\n", head("b"), changes.join(", "));
    let repeated = number.is_multiple_of(REPEATED);
    if repeated {
        let _ = write!(cases, "{}continues = true\n{slice}", head("c"));
    }
    Drawn { name, what: what.join("; "), cases, repeated }
}

/// Does every VM that should sleep have a large enough share, even after this VM's weight changes?
fn all_sleep(vms: &[Vm], change: Option<(usize, u64)>) -> bool {
    let weight = |i: usize| change.filter(|(vm, _)| *vm == i).map_or(vms[i].weight, |(_, w)| w) as f64;
    // A weight may count once per vCPU that never sleeps (Linux 7.3).
    let counts = |i: usize| if vms[i].burns { vms[i].vcpus as f64 } else { 1.0 };
    let all: f64 = (0..vms.len()).map(|i| weight(i) * counts(i)).sum();
    (0..vms.len()).all(|i| vms[i].burns || vms[i].wants <= OF_SHARE * weight(i) / all)
}

fn pick(r: &mut Random, from: &[u64]) -> u64 {
    from[r.within(0, from.len() as u64 - 1) as usize]
}

fn vm(r: &mut Random, number: u64, left: &mut f64) -> Vm {
    // The first one burns; otherwise no VM would wait.
    let kind = if number == 0 { 0 } else { r.within(0, 2) };
    let vcpus = if kind == 0 { r.within(1, 2) } else { r.within(1, 4) };
    let wants = (*left / 2.0).min(0.02 + 0.18 * r.unit());
    let each = wants / vcpus as f64;
    let (workload, wakes_per_s) = match kind {
        0 => ("burn".to_owned(), 0.0),
        1 => {
            let period_us = pick(r, &[2_500, 5_000, 10_000]);
            let units = (each * period_us as f64 / UNIT_US).max(1.0) as u64;
            (format!("periodic,period_us={period_us},work_units={units}"), 1e6 / period_us as f64)
        }
        _ => {
            let rate_hz = r.within(100, 250);
            let units = (each * 1e6 / rate_hz as f64 / UNIT_US).max(1.0) as u64;
            let seed = r.within(1, 1000);
            (format!("server,rate_hz={rate_hz},mean_units={units},seed={seed}"), rate_hz as f64)
        }
    };
    if kind > 0 {
        *left -= wants;
    }
    let weight = if r.unit() < 0.5 { 100 } else { pick(r, &WEIGHTS) };
    let quota_us = (kind == 0 && r.unit() < 0.25).then(|| 1000 * r.within(30, 80));
    let name = format!("{}{number}", ["burner", "timer", "server"][kind as usize]);
    let quota = quota_us.map_or_else(String::new, |us| format!("\nquota_us = {us}"));
    let toml = format!(
        "name = \"{name}\"\nvcpus = {vcpus}\nworkload = \"{workload}\"\ncpus = \"1\"\nweight = {weight}{quota}"
    );
    let wants = wants + wakes_per_s * vcpus as f64 * WAKE_UP_S;
    Vm { name, burns: kind == 0, vcpus, wants, weight, quota_us, toml }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::emulated::job::Job;

    #[test]
    fn every_draw_is_a_job_in_exact_time() {
        let mut kinds = std::collections::BTreeSet::new();
        for number in 0..200 {
            let drawn = draw(3, number);
            let job = Job::parse(&drawn.cases).unwrap_or_else(|e| panic!("{}: {e}", drawn.cases));
            assert_eq!(job.cases.len(), if drawn.repeated { 3 } else { 2 });
            assert!(job.cases.iter().all(|c| job.inexact(c).is_none() && c.events));
            let change = &job.cases[1].changes;
            let slice = job.cases[1].base_slice_us.is_some();
            assert!(!change.is_empty() || slice, "nothing changes: {}", drawn.cases);
            kinds.insert((change.first().map(|c| c.weight.is_some()), slice));
            assert_eq!(draw(3, number), drawn);
        }
        assert_eq!(kinds.len(), 4, "{kinds:?}");
    }
}
