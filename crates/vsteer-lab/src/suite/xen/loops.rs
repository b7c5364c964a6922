//! Does pinning make parallel loops faster on Xen? OpenMP in two Linux domains with two vCPUs each on two
//! pCPUs, pinned and floating in turn.
//!
//! Published ("OpenMP task scheduling with and without CPU pinning on Xen"): 3.4 to 3.8 % faster on four
//! cores. Here each domain multiplies matrices without a pause with four threads. Domain-0 pins vCPU n of
//! both to pCPU n for a while, lets them float for the same time, and so on. The order changes from round to
//! round, so that drift of this machine affects both equally. A round gives one difference; the rounds give
//! an interval.
//!
//! Before the second domain begins, the first one is alone. The length of its regions then gives the cost of
//! a row. With that cost, the simulator runs the same domains pinned and floating, on Credit.
//!
//! Times are wall-clock times, because several busy pCPUs have no exact virtual time. A quiet machine with
//! two cores gives narrow intervals, a busy one wide ones; both are reported.

use super::options;
use crate::suite::openmp::loops::{
    Gain, NAMES, POINTS, Pair, ROWS, Region, SCHEDULES, THREADS, Told, VCPUS, agree, alone, in_window,
    simulated,
};
use crate::suite::steered::failed;
use crate::suite::{Bench, Findings};
use crate::xen::job::Job;
use crate::xen::results::{CaseResult, LinuxResult};
use crate::xen::{self, Ran};
use serde_json::{Value, json};
use std::fmt::Write;
use std::path::Path;
use vsteer_core::Fault;

/// The second domain begins this long after its boot, s.
const ALONE_S: u32 = 25;
const SETTLE_S: u32 = ALONE_S + 5;
const TRACED_S: u32 = 10;
/// Pinned and floating in turn.
const ROUNDS: usize = 20;
const PHASE_S: u32 = 4;

fn job() -> Result<Job, Fault> {
    let pin = |vm: &str| {
        (0..VCPUS)
            .map(|v| format!("[\"xl\", \"vcpu-pin\", \"{vm}\", \"{v}\", \"{v}\"]"))
            .collect::<Vec<_>>()
            .join(", ")
    };
    let float = |vm: &str| format!("[\"xl\", \"vcpu-pin\", \"{vm}\", \"all\", \"all\"]");
    let phase =
        |each: &dyn Fn(&str) -> String| format!("{}, [\"sleep\", \"{PHASE_S}\"]", NAMES.map(each).join(", "));
    let (pinned, floating) = (phase(&pin), phase(&float));
    let rounds: Vec<String> = (0..ROUNDS)
        .map(|n| if n % 2 == 0 { format!("{pinned}, {floating}") } else { format!("{floating}, {pinned}") })
        .collect();
    let mut text = "scheduler = \"credit\"\nclock = \"wall\"\nmemory_mib = 1536\n".to_owned();
    for (schedule, ..) in SCHEDULES {
        let _ = writeln!(
            text,
            "[[case]]\nname = \"{schedule}\"\npool = false\nsettle_s = {SETTLE_S}\nrecord_s = {TRACED_S}\ncommands = [{}]",
            rounds.join(", ")
        );
        for (name, begin_s) in NAMES.iter().zip([0, ALONE_S]) {
            let _ = writeln!(
                text,
                "[[case.domain]]\nname = \"{name}\"\nvcpus = {VCPUS}\nprogram = [\"loops\", \"{schedule}\", \"{ROWS}\", \"{THREADS}\", \"{begin_s}\"]"
            );
        }
    }
    Job::parse(&text)
}

/// Parses `loop END_S TOOK_S`; the last line may be incomplete.
fn regions(console: &str) -> Vec<Region> {
    let region = |line: &str| {
        let mut words = line.strip_prefix("loop ")?.split_whitespace().map(|w| w.parse::<f64>());
        let (end_s, took_s) = (words.next()?.ok()?, words.next()?.ok()?);
        Some(Region { begin_s: end_s - took_s, end_s })
    };
    let whole = console.rfind('\n').map_or("", |at| &console[..at]);
    whole.lines().filter_map(|line| region(line.trim_end())).collect()
}

/// A period without changes.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Phase {
    pinned: bool,
    from_s: f64,
    to_s: f64,
}

/// Parses `BEGIN END STATUS WORDS` in order: every `sleep` is a phase, pinned or not according to the
/// commands before it.
fn phases(commands: &str) -> Result<Vec<Phase>, Fault> {
    let (mut all, mut pinned) = (Vec::new(), false);
    for line in commands.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [begin, end, status, what @ ..] = &words[..] else {
            return Err(failed(&format!("no command with its times: {line:?}")));
        };
        if *status != "0" {
            return Err(failed(&format!("in Domain-0 `{}` ended with {status}", what.join(" "))));
        }
        let time = |word: &str| word.parse().map_err(|_| failed(&format!("no time: {word:?}")));
        match what {
            ["sleep", ..] => all.push(Phase { pinned, from_s: time(begin)?, to_s: time(end)? }),
            ["xl", "vcpu-pin", .., cpus] => pinned = *cpus != "all",
            _ => return Err(failed(&format!("an unknown command: {line:?}"))),
        }
    }
    Ok(all)
}

/// The results of one case.
struct Measured {
    rounds: Vec<Pair>,
    /// Median length of a region of the first domain while it was alone, s.
    alone_s: f64,
    /// Median time between two of its regions, s.
    between_s: f64,
}

fn measured(case: &CaseResult, folder: &Path) -> Result<Measured, Fault> {
    let text = |file: &Path| {
        std::fs::read_to_string(file).map_err(|e| Fault::io(format!("reading {}", file.display()), &e))
    };
    let of = |vm: &LinuxResult| Ok(regions(&text(&vm.console)?));
    let [a, b] = &case.linux.iter().map(of).collect::<Result<Vec<_>, Fault>>()?[..] else {
        return Err(failed("there are not two domains"));
    };
    let phases = phases(&text(&folder.join(&case.name).join("commands.txt"))?)?;
    let round = |pair: &[Phase]| {
        let of = |pinned: bool| {
            let phase = pair.iter().find(|p| p.pinned == pinned);
            let phase = phase.ok_or_else(|| failed("a round has no phase of one kind"))?;
            let took = in_window([&a[..], &b[..]], phase.from_s, phase.to_s);
            took.ok_or_else(|| failed("no region lies in a phase"))
        };
        Ok(Pair { pinned: of(true)?, floating: of(false)? })
    };
    let rounds = phases.chunks(2).map(round).collect::<Result<Vec<_>, Fault>>()?;
    let together_s = b.first().map_or(f64::INFINITY, |r| r.begin_s);
    let (alone_s, between_s) =
        alone(a, together_s).ok_or_else(|| failed("the first domain was never alone"))?;
    Ok(Measured { rounds, alone_s, between_s })
}

/// Runs it, makes the claims, and returns the numbers.
///
/// # Errors
/// The boot, a command in Domain-0, or the simulation fails; no region was finished.
pub(super) fn claims(bench: &Bench, vsteer: &Path, findings: &mut Findings) -> Result<Value, Fault> {
    let options = options(bench, vsteer, "xen-loops")?;
    let ran = xen::run(&job()?, &options)?;
    compared(&ran, &options.output, findings)
}

fn compared(ran: &Ran, output: &Path, findings: &mut Findings) -> Result<Value, Fault> {
    let mut figures = Vec::new();
    for (case, (name, schedule, chunk)) in ran.cases.iter().zip(SCHEDULES) {
        let m = measured(case, output)?;
        let told = simulated(&Told {
            scheduler: "credit",
            schedule: (schedule, chunk),
            alone_s: m.alone_s,
            between_s: m.between_s,
            others: &[case.domain0],
            switch_ns: Some(case.switch_ns),
        })?;
        let mut gains = Vec::new();
        for of in [Pair::regions, Pair::products] {
            let both = of(&m.rounds).zip(of(&told));
            gains.push(both.ok_or_else(|| failed("too few rounds"))?);
        }
        for (what, (measured, simulated)) in
            ["a region", "the time from product to product"].iter().zip(&gains)
        {
            findings.claim(
                format!("OpenMP, {name}: by how much pinning shortens {what} has the simulator's sign, or none that can be told, and its size within {POINTS} points"),
                m.rounds.len() == ROUNDS && agree(*measured, *simulated),
                format!("measured {} ({} rounds), simulated {}", measured.told(), measured.n, simulated.told()),
            );
        }
        let gain =
            |(measured, simulated): (Gain, Gain)| json!({ "measured": measured, "simulated": simulated });
        figures.push(json!({"schedule": name, "regions": gain(gains[0]), "products": gain(gains[1]), "alone_s": m.alone_s,
            "between_s": m.between_s, "domain0": case.domain0, "rounds": m.rounds, "simulated_seeds": told}));
    }
    Ok(Value::Array(figures))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pins_come_first_in_every_other_round() {
        let job = job().unwrap();
        assert_eq!(job.cases.len(), SCHEDULES.len());
        // Four pins, two unpins and two sleeps in each round.
        assert_eq!(job.cases[0].commands.len(), ROUNDS * 8);
        let begun = |at: usize| job.cases[0].commands[at].last().map(String::as_str);
        assert_eq!((begun(0), begun(8)), (Some("0"), Some("all")));
    }

    #[test]
    fn regions_count_where_they_lie_whole() {
        let all = regions("loop 10.5 0.5\r\nloop 11.25 0.25\r\nxen: words\nloop 12");
        assert_eq!(all, [Region { begin_s: 10.0, end_s: 10.5 }, Region { begin_s: 11.0, end_s: 11.25 }]);
        let told = "1 2 0 xl vcpu-pin A 0 0\n2 3 0 sleep 10\n3 4 0 xl vcpu-pin A all all\n4 5 0 sleep 10\n";
        let expected = [(true, 2.0, 3.0), (false, 4.0, 5.0)];
        assert_eq!(
            phases(told).unwrap(),
            expected.map(|(pinned, from_s, to_s)| Phase { pinned, from_s, to_s })
        );
        assert!(phases("1 2 1 xl vcpu-pin A 0 0\n").unwrap_err().to_string().contains("vcpu-pin A 0 0"));
    }
}
