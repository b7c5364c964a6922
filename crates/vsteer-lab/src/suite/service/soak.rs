//! Twenty minutes of `vsteer steer`: loads shift, a VM goes and comes, logs rotate. Is it stable, and does
//! its memory stay small?
//!
//! It runs on the emulated host, in virtual time. After a change, weights may be set at most twice. The
//! memory of `steer` must not grow with time. At its end the first weights are back, even those of the VM
//! that was away in between (its cgroup was removed with it).
//!
//! Left out here: a collector that dies, which on this host is not a separate process: `lab run steer` kills
//! the one that asks libvirt. A whole day runs on the simulator (vsteer-core, tests/sla_soak.rs).

use super::control::command_of;
use super::{Server, UNITS_PUBLISHED, boot_all, servers};
use crate::emulated;
use crate::emulated::job::Job;
use crate::fetch::cache_folder;
use crate::fetch::kernels::{self, Which};
use crate::interrupt;
use crate::suite::steered::{NAMES, levels_file, said, second_of};
use crate::suite::{Bench, Case, Findings, Minutes};
use serde_json::{Value, json};
use std::fmt::Write;
use vsteer_core::Fault;

/// The case; see the head of this file.
pub const CASE: Case = Case {
    name: "soak",
    doc: "twenty minutes of vsteer steer on the emulated host: loads shift, a VM goes and comes, logs rotate",
    in_test: false,
    minutes: Minutes::new(25.0, 25.0),
    beside: false,
    run,
};

const PERIOD_S: u32 = 20;
const INTERVALS_S: [u32; 6] = [200; 6];
const RATES_HZ: [&[u32]; 3] =
    [&[30, 45, 30, 15, 43, 20], &[30, 45, 30, 15, 43, 20], &[120, 170, 120, 50, 160, 80]];
const LEVELS_MS: [f64; 3] = [27.0, 90.0, 45.0];
/// Events in addition to shifts of load: second, VM, event. A VM that comes back starts its schedule again.
const EVENTS: [(u32, &str, &str); 4] =
    [(250, "vm1", "rotate"), (450, "vm2", "stop"), (530, "vm2", "start"), (700, "vm3", "rotate")];
/// The most times that weights may be set after a change.
const SETS_MOST: usize = 2;
/// Memory may grow by this part from the first third to the end, because pools of periods become longer
/// within a load.
const GROWS_MOST: f64 = 0.25;

fn job(seed: u64) -> Result<Job, Fault> {
    let length_s: u32 = INTERVALS_S.iter().sum();
    let sla = levels_file("soak", LEVELS_MS, PERIOD_S);
    let mut text = format!(
        "files = {{ \"/files/sla.toml\" = {sla:?} }}\n[[case]]\nname = \"soak\"\nobserve = false\nask = false\nbegin_s = 1\n\
         record_s = {length_s}\nlog_every_s = 2\ncommand = [\"--json\", \"steer\", \"--sla\", \"/files/sla.toml\", \"--yes\"]\n"
    );
    for (at_s, vm, what) in EVENTS {
        let _ = writeln!(text, "[[case.event]]\nat_s = {at_s}\nvm = \"{vm}\"\nwhat = \"{what}\"");
    }
    let of = |i: usize| Server {
        name: NAMES[i],
        rates_hz: RATES_HZ[i],
        mean_units: UNITS_PUBLISHED[i],
        service: "fixed",
    };
    text += &servers(&[of(0), of(1), of(2)], &INTERVALS_S, "", seed);
    Job::parse(&text)
}

/// The seconds at which something changes: loads (also of the VM that came back), and VMs.
fn changes_s() -> Vec<u32> {
    let shifts = (0..INTERVALS_S.len()).map(|i| INTERVALS_S[..i].iter().sum::<u32>());
    let again = EVENTS.iter().find(|e| e.2 == "start").map_or(0, |e| e.0);
    let mut all: Vec<u32> = shifts.clone().chain(shifts.map(|s| again + s)).collect();
    all.extend(EVENTS.iter().filter(|e| e.2 != "rotate").map(|e| e.0));
    all.retain(|s| *s < INTERVALS_S.iter().sum());
    all.sort_unstable();
    all.dedup();
    all
}

/// The most times that weights were set between two changes; a line describes the period before it.
fn sets_most(set_s: &[f64]) -> usize {
    let changes = changes_s();
    let of = |i: usize| {
        let to = changes.get(i + 1).map_or(f64::INFINITY, |s| f64::from(*s));
        set_s.iter().filter(|s| (f64::from(changes[i])..to).contains(&(**s - 0.5))).count()
    };
    (0..changes.len()).map(of).max().unwrap_or(0)
}

fn run(bench: &Bench) -> Result<Findings, Fault> {
    interrupt::watch()?;
    let kernel = kernels::resolve(&cache_folder()?, Which::Newest, emulated::needed(Which::Newest), false)?;
    let ran = boot_all(bench, &kernel, &[("soak".to_owned(), job(bench.seed)?)])?;
    let lines = said(&command_of(&ran[0])?)?;
    let first_ns = lines.first().and_then(|l| l["unix_ns"].as_f64()).unwrap_or(0.0);
    let begin_s = first_ns / 1e9 - f64::from(PERIOD_S);
    let periods: Vec<&Value> = lines.iter().filter(|l| l["unix_ns"].is_u64()).collect();
    let set = periods.iter().filter(|l| l["set"] == true);
    let set_s: Vec<f64> = set.filter_map(|l| second_of(l, begin_s)).collect();
    let mut findings = Findings::default();
    let wanted = INTERVALS_S.iter().sum::<u32>() / PERIOD_S;
    findings.claim(
        "it lives through all of it: a line for nearly every period, and its end as asked",
        periods.len() as u32 + 2 >= wanted && lines.last().is_some_and(|l| l["ended"].is_array()),
        format!("{} lines of {wanted}", periods.len()),
    );
    let most = sets_most(&set_s);
    findings.claim(
        "weights are set, and at most twice after something has changed",
        !set_s.is_empty() && most <= SETS_MOST,
        format!("at {} s", set_s.iter().map(|s| format!("{s:.0}")).collect::<Vec<_>>().join(", ")),
    );
    let gone = |l: &Value| l["notes"].as_array().into_iter().flatten().any(|n| n == "vm2 is not there");
    let away: Vec<f64> = periods.iter().filter(|l| gone(l)).filter_map(|l| second_of(l, begin_s)).collect();
    let seen_again = periods.last().is_some_and(|l| !gone(l) && l["seen"][1].is_object());
    findings.claim(
        "the VM that goes is missed and nothing else, and it is seen when it is back; rotated logs are read on",
        !away.is_empty() && seen_again && periods.last().is_some_and(|l| l["seen"][0].is_object() && l["seen"][2].is_object()),
        format!("away in periods that end at {away:.0?} s"),
    );
    let bytes: Vec<f64> = periods.iter().filter_map(|l| l["own_bytes"].as_f64()).collect();
    let third = bytes.len() / 3;
    let most_in = |part: &[f64]| part.iter().copied().fold(0.0, f64::max);
    let (early, late) = (most_in(&bytes[..third]), most_in(&bytes[bytes.len() - third..]));
    findings.claim(
        "its memory does not grow with time",
        early > 0.0 && late <= early * (1.0 + GROWS_MOST),
        format!("{:.1} MB in the first third, {:.1} in the last", early / 1e6, late / 1e6),
    );
    let ended = lines.last().and_then(|l| l["ended"].as_array()).cloned().unwrap_or_default();
    findings.claim(
        "the first weights return at its end",
        !ended.is_empty() && ended.iter().all(|r| r["state"] == "rolled_back"),
        format!("{}", json!(ended.iter().map(|r| r["steps"].clone()).collect::<Vec<_>>())),
    );
    findings.figures = json!({"set_s": set_s, "said": lines, "kernel": kernel});
    Ok(findings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_counted_between_changes() {
        assert_eq!(changes_s(), [0, 200, 400, 450, 530, 600, 730, 800, 930, 1000, 1130]);
        assert_eq!(sets_most(&[220.0, 240.0, 400.0, 460.0]), 3);
        assert_eq!(sets_most(&[220.0, 240.0, 420.0, 460.0]), 2);
        assert_eq!(sets_most(&[]), 0);
        assert!(job(1).is_ok());
    }
}
