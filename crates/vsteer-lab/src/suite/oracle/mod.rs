//! Do waits, lag, wake-up latency and blame equal those of an independent replay of the kernel's trace?
//!
//! perf records every switch, wake-up and move on this machine while vsteer records the VMs. [`replay`] computes the
//! same figures from perf's trace and shares no code with vsteer. The VMs compete for the pCPUs: one has pinned
//! vCPUs, one a quota for each vCPU within one for the whole VM, and shells start and end processes all the time.
//!
//! The trace tells nothing of quotas. So of the VM with quotas, ready and limited are compared together, and its
//! lag and blame are not.

mod replay;

use super::steered::failed;
use super::{Bench, Case, Findings, Minutes, worst};
use crate::contention::Lab;
use crate::drive::{Vsteer, wait};
use crate::process::Ends;
use crate::{command, libvirtd};
use replay::{Behind, Did, Replay, Thread, Time};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;
use vsteer_core::Fault;
use vsteer_core::nouns::{Batch, Culprit, ThreadCounters, VmId};
use vsteer_record::Recording;

/// The case; see the head of this file.
pub const CASE: Case = Case {
    name: "oracle",
    doc: "ready, lag, wake-up latency and blame equal a replay of the kernel's own trace by a program of its own",
    in_test: false,
    minutes: Minutes::new(1.5, 6.0),
    beside: false,
    run,
};

const VMS: &str = "burn=1x2,burn=1x4,periodic=1x2,burn=1x1";
const SEEDS: u64 = 5;
const RECORDED: u64 = 12;
/// Two values are equal within this part of the greater one, or if each piece of time that they are made of is equal within
/// a microsecond: one event is seen at two moments, one after the other.
const EQUAL: f64 = 0.01;
const PIECE_NS: f64 = 1_000.0;
/// Pieces that one of the two may have at the ends of the window.
const ENDS: f64 = 20.0;
/// The moments of one event in the two traces differ by less, ns.
const APART: u64 = 20_000;
/// The VM with quotas must be limited, and others wait, for this part of the window.
const WAITED_LEAST: f64 = 0.05;

fn run(bench: &Bench) -> Result<Findings, Fault> {
    let mut findings = Findings::default();
    let mut figures = Vec::new();
    for seed in (bench.seed..).take(if bench.full { SEEDS as usize } else { 1 }) {
        let compared = bench.on_lab(VMS, seed, |lab, v| one(bench, lab, v))?;
        compared.claim(seed, &mut findings);
        figures.push(compared.figures);
    }
    findings.figures = json!(figures);
    Ok(findings)
}

fn silent(program: &str) -> Command {
    let mut command = Command::new(program);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// Ends perf as Ctrl-C does, so that it writes what it has.
fn interrupt(mut perf: Ends) -> Result<(), Fault> {
    let pid = Pid::from_raw(perf.pid()).expect("a process id is not 0");
    kill_process(pid, Signal::INT).map_err(|e| failed(&format!("ending perf: {e}")))?;
    perf.0.wait().map(drop).map_err(|e| Fault::io("waiting for perf", &e))
}

fn one(bench: &Bench, lab: &Lab, v: &Vsteer) -> Result<Compared, Fault> {
    let of = |vcpus: u32, workload: &str| {
        let is = |vm: &&crate::state::Vm| vm.vcpus == vcpus && vm.workload.starts_with(workload);
        let vm = lab.state().vms.iter().find(is).ok_or_else(|| failed("a VM of the lab is missing"))?;
        Ok::<_, Fault>(vm.name.clone())
    };
    let (pinned, limited) = (of(2, "burn")?, of(4, "burn")?);
    let virsh = |words: &[&str]| libvirtd::virsh(lab.dir(), words);
    for (vcpu, pcpu) in [("0", "0"), ("1", "1")] {
        virsh(&["vcpupin", &pinned, vcpu, pcpu, "--live"])?;
    }
    virsh(&["schedinfo", &limited, "--live", "--set", "vcpu_quota=6000"])?;
    virsh(&["schedinfo", &limited, "--live", "--set", "global_quota=20000"])?;
    let storm = |_| Ends::start(silent("sh").args(["-c", "while :; do (:); done"]));
    let _storm = (0..2).map(storm).collect::<Result<Vec<_>, Fault>>()?;

    let data = bench.fresh("oracle.data")?;
    let _ = std::fs::remove_file(&data);
    let perf = command::find_program("perf").ok_or_else(|| failed("perf is not installed"))?;
    let perf = perf.to_string_lossy();
    // In a mount namespace of its own, because perf needs tracefs, which nobody may have mounted.
    let words = "mount -t tracefs trace /sys/kernel/tracing; exec \"$0\" record -q -a -k mono -m 8M -e \"$1\" -o \"$2\"";
    let traced =
        Ends::start(silent("unshare").args(["-m", "sh", "-c", words, &perf, replay::EVENTS, &data]))?;
    wait("perf begins", Duration::from_secs(2))?;
    let threads = threads(lab)?;
    let folder = bench.fresh("oracle.vsteer")?;
    let length = format!("{RECORDED}s");
    let words = ["record", "-o", &folder, "--collector", "ebpf", "--for", &length, "--connect", &v.uri];
    v.run(&words, false, Duration::from_secs(RECORDED + 60))?;
    interrupt(traced)?;

    let script = ["script", "-i", &data, "--ns", "--show-lost-events", "-F", "cpu,time,event,trace"];
    let text = command::output(Command::new(&*perf).args(script), Duration::from_secs(300))?;
    let replay = Replay::of(threads, text.lines());
    let batches = Recording::open(Path::new(&folder))?.batches;
    Ok(Compared::of(&replay, &batches, &limited))
}

/// The VMs' threads and the pCPUs that each may use, from /proc.
fn threads(lab: &Lab) -> Result<BTreeMap<u32, Thread>, Fault> {
    let mut threads = BTreeMap::new();
    for vm in &lab.state().vms {
        let pid = libvirtd::pid_of(lab.dir(), &vm.name).ok_or_else(|| failed("a VM is gone"))?.pid;
        let folder = format!("/proc/{pid}/task");
        let tasks = std::fs::read_dir(&folder).map_err(|e| Fault::io(format!("reading {folder}"), &e))?;
        for tid in tasks.flatten().filter_map(|task| task.file_name().to_str()?.parse::<u32>().ok()) {
            // Workers of QEMU come and go.
            let Ok(status) = std::fs::read_to_string(format!("{folder}/{tid}/status")) else { continue };
            let value =
                |key: &str| status.lines().find_map(|line| line.strip_prefix(key)).unwrap_or("").trim();
            let is_vcpu = value("Name:").starts_with("CPU ");
            let allowed = cpus(value("Cpus_allowed_list:"));
            threads.insert(tid, Thread { vm: vm.name.clone(), is_vcpu, allowed });
        }
    }
    Ok(threads)
}

/// As `0-3,7`.
fn cpus(list: &str) -> BTreeSet<usize> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.parse::<usize>().ok()?..=last.parse::<usize>().ok()?)
    };
    list.split(',').filter_map(range).flatten().collect()
}

/// One figure by both, ns; of how many pieces it is made; and how much of it is not known.
struct Pair {
    /// The VM.
    victim: String,
    what: String,
    vsteer: f64,
    replay: f64,
    pieces: u64,
    unsure: u64,
}

impl Pair {
    fn of(victim: &str, what: String, vsteer: f64, replay: Time) -> Pair {
        Pair {
            victim: victim.to_owned(),
            what,
            vsteer,
            replay: replay.ns as f64,
            pieces: replay.pieces,
            unsure: replay.unsure,
        }
    }

    /// The difference, as a part of what is allowed.
    fn off(&self) -> f64 {
        let events = (self.pieces as f64 + ENDS) * PIECE_NS + self.unsure as f64;
        (self.vsteer - self.replay).abs() / (EQUAL * self.vsteer.max(self.replay)).max(events)
    }
}

/// By how many wake-ups the distributions of both differ, more than the traces' moments explain.
#[derive(Debug, Clone, Default, PartialEq, serde::Serialize)]
struct Wakes {
    what: String,
    differ: u64,
    all: u64,
    /// Where they differ most: the edge of the bucket, ns (0: in their number), how many are above it by vsteer, and by the
    /// replay at least and at most.
    at: (u64, u64, u64, u64),
}

impl Wakes {
    fn allowed(&self) -> f64 {
        (EQUAL * self.all as f64).max(2.0)
    }
}

/// A recording and a replay of the same window.
struct Compared {
    window: f64,
    waits: Vec<Pair>,
    lags: Vec<Pair>,
    cells: Vec<Pair>,
    wakes: Vec<Wakes>,
    limited: f64,
    lost: usize,
    missing: f64,
    figures: Value,
}

impl Compared {
    /// `limited`: the VM with quotas.
    fn of(replay: &Replay, batches: &[Batch], limited: &str) -> Compared {
        let (Some(first), Some(last)) = (batches.first(), batches.last()) else {
            panic!("an empty recording")
        };
        let did = replay.window(first.mono_ns, last.mono_ns);
        let window = (last.mono_ns - first.mono_ns) as f64;
        let mut names: BTreeMap<&VmId, &str> = BTreeMap::new();
        let (mut waits, mut lags, mut wakes, mut held) = (Vec::new(), Vec::new(), Vec::new(), 0.0);
        let mut behind: BTreeMap<(&str, &Behind), Time> = BTreeMap::new();
        let mut unknowns: BTreeMap<&str, u64> = BTreeMap::new();
        for (tid, Did { waited, lag, woken, behind: by, unknown }) in &did {
            let at = |batch: &'_ Batch| batch.threads.iter().find(|t| t.tid.0 == *tid).cloned();
            let (Some(before), Some(after)) = (at(first), at(last)) else { continue };
            let counted = after.counters.since(&before.counters);
            let thread = &replay.threads()[tid];
            let id = last.threads.iter().find(|t| t.tid.0 == *tid).map(|t| &t.vm).expect("found above");
            names.insert(id, &thread.vm);
            let what = format!("{} {}", thread.vm, after.role);
            let ready = counted.ready_ns.map_or(f64::NAN, |ns| ns as f64);
            let of_quota = counted.limited_ns.map_or(f64::NAN, |ns| ns as f64);
            waits.push(Pair::of(&thread.vm, what.clone(), ready + of_quota, *waited));
            wakes.push(differ(&what, &counted, woken));
            if thread.vm == limited {
                held += of_quota;
                continue;
            }
            if thread.is_vcpu {
                let vsteer = counted.lag_ns.map_or(f64::NAN, |ns| ns as f64);
                lags.push(Pair::of(&thread.vm, what, vsteer, *lag));
            }
            *unknowns.entry(&thread.vm).or_default() += unknown;
            for (who, time) in by {
                let sum = behind.entry((&thread.vm, who)).or_default();
                sum.ns += time.ns;
                sum.pieces += time.pieces;
                sum.unsure += time.unsure;
            }
        }
        let mut cells = cells(&behind, batches, &names, limited);
        for cell in &mut cells {
            cell.unsure += unknowns.get(cell.victim.as_str()).unwrap_or(&0);
        }
        let told = |all: &[Pair]| -> Vec<Value> {
            let of = |p: &Pair| json!({ "of": p.what, "vsteer_ns": p.vsteer, "replay_ns": p.replay, "pieces": p.pieces, "unsure_ns": p.unsure });
            all.iter().map(of).collect()
        };
        let figures = json!({
            "window_ns": window, "switches": replay.switches, "missing": replay.missing, "lost": replay.lost,
            "waits": told(&waits), "lags": told(&lags), "cells": told(&cells),
            "wakes": wakes,
        });
        let missing = replay.missing as f64 / replay.switches.max(1) as f64;
        Compared {
            window,
            waits,
            lags,
            cells,
            wakes,
            limited: held / window,
            lost: replay.lost,
            missing,
            figures,
        }
    }

    fn claim(&self, seed: u64, findings: &mut Findings) {
        findings.claim(
            format!("seed {seed}: the kernel's trace is whole"),
            self.lost == 0,
            format!("{} events lost; {:.2} % of switches not reported", self.lost, 100.0 * self.missing),
        );
        findings.claim(
            format!("seed {seed}: the VM with quotas is limited"),
            self.limited >= WAITED_LEAST,
            format!("{:.1} % summed over threads", 100.0 * self.limited),
        );
        for (what, pairs, least) in [
            ("ready and limited of each thread", &self.waits, 9),
            ("lag of each vCPU", &self.lags, 5),
            ("each cell of blame", &self.cells, 9),
        ] {
            let large = pairs.iter().filter(|p| p.replay >= WAITED_LEAST * self.window).count();
            let worst_is = pairs.iter().max_by(|a, b| a.off().total_cmp(&b.off()));
            let found = worst_is.map_or_else(String::new, |p| {
                let [vsteer, replay, unsure] = [p.vsteer, p.replay, p.unsure as f64].map(|ns| ns / 1e6);
                format!(
                    "{}: {vsteer:.3} ms by vsteer, {replay:.3} by the replay, {} pieces, {unsure:.3} ms not known",
                    p.what, p.pieces
                )
            });
            findings.claim(
                format!("seed {seed}: {what} equals the replay's within 1 %, or 1 µs for each piece"),
                pairs.len() >= least && large > 0 && worst(pairs.iter().map(Pair::off)) <= 1.0,
                format!("{} values, {large} of them large; worst: {found}", pairs.len()),
            );
        }
        let all: u64 = self.wakes.iter().map(|w| w.all).sum();
        let part = |w: &&Wakes| w.differ as f64 / w.allowed();
        let worst = self.wakes.iter().max_by(|a, b| part(a).total_cmp(&part(b))).cloned().unwrap_or_default();
        let (edge, vsteer, least, most) = worst.at;
        findings.claim(
            format!("seed {seed}: wake-up latency of each thread is distributed as the replay's, within 1 %"),
            all >= 1_000 && worst.differ as f64 <= worst.allowed(),
            format!(
                "{all} wake-ups; worst: {} of {} of {}: above {:.3} ms {vsteer} by vsteer, {least} to {most} by the replay",
                worst.differ,
                worst.all,
                worst.what,
                edge as f64 / 1e6
            ),
        );
    }
}

/// By how many wake-ups the distributions differ at the edge where they differ most. Those near the edge may be on
/// either side.
fn differ(what: &str, counted: &ThreadCounters, woken: &[(u64, u64)]) -> Wakes {
    let histogram = counted.wake_latency.clone().unwrap_or_default();
    let surely = |ns: u64| woken.iter().filter(|(least, _)| *least >= ns).count() as u64;
    let perhaps = |ns: u64| woken.iter().filter(|(_, most)| *most >= ns).count() as u64;
    let edges = (4..40_u32).map(|log| 1_u64 << log).filter(|edge| *edge >= 1 << 14);
    let above = |edge: u64| {
        (edge, histogram.from_edge(edge), surely(edge + APART), perhaps(edge.saturating_sub(APART)))
    };
    let all = woken.len() as u64;
    let off = |(_, counted, least, most): &(u64, u64, u64, u64)| {
        counted.saturating_sub(*most).max(least.saturating_sub(*counted))
    };
    let at = edges.map(above).chain([(0, histogram.total(), all, all)]).max_by_key(off).unwrap_or_default();
    Wakes { what: what.to_owned(), differ: off(&at), all, at }
}

/// The cells of both, but for the VM with quotas. Threads of no VM that have the same name are one cell. Threads that
/// vsteer put together are compared together.
fn cells(
    behind: &BTreeMap<(&str, &Behind), Time>,
    batches: &[Batch],
    names: &BTreeMap<&VmId, &str>,
    limited: &str,
) -> Vec<Pair> {
    let mut counted: BTreeMap<(&str, Behind), f64> = BTreeMap::new();
    let mut joined: BTreeSet<&str> = BTreeSet::new();
    for sample in batches[1..].iter().flat_map(|batch| &batch.blame) {
        let Some(victim) = names.get(&sample.victim).filter(|name| **name != limited) else { continue };
        let who = match &sample.culprit {
            Culprit::Vm(id) => Behind::Vm((*names.get(id).unwrap_or(&"?")).to_owned()),
            Culprit::Placement => Behind::Placement,
            Culprit::Unattributed => Behind::Unknown,
            Culprit::Process { comm, .. } | Culprit::Kernel { comm } => {
                if comm == "(others)" {
                    joined.insert(victim);
                }
                Behind::Named(comm.clone())
            }
        };
        *counted.entry((victim, who)).or_default() += sample.ns as f64;
    }
    let mut pairs: BTreeMap<(String, String), Pair> = BTreeMap::new();
    let mut add = |victim: &str, who: &Behind, vsteer: f64, replay: Time| {
        let who = match who {
            Behind::Named(_) if joined.contains(victim) => "other threads".to_owned(),
            Behind::Named(name) => name.clone(),
            Behind::Vm(name) => format!("VM {name}"),
            other => format!("{other:?}"),
        };
        let pair = pairs.entry((victim.to_owned(), who.clone())).or_insert_with(|| Pair {
            victim: victim.to_owned(),
            what: format!("{victim} behind {who}"),
            vsteer: 0.0,
            replay: 0.0,
            pieces: 0,
            unsure: 0,
        });
        pair.vsteer += vsteer;
        pair.replay += replay.ns as f64;
        pair.pieces += replay.pieces;
        pair.unsure += replay.unsure;
    };
    counted.iter().for_each(|((victim, who), ns)| add(victim, who, *ns, Time::default()));
    behind.iter().for_each(|((victim, who), time)| add(victim, who, 0.0, *time));
    pairs.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use vsteer_core::nouns::Histogram;

    #[test]
    fn distributions_that_differ_are_told() {
        let mut row = vec![0_u64; vsteer_core::nouns::HISTOGRAM_BUCKETS];
        row[usize::from(Histogram::bucket_of(100_000))] = 3;
        let counted =
            ThreadCounters { wake_latency: Some(Histogram::from_row(&row)), ..ThreadCounters::default() };
        let differ = |woken: &[u64], unsure: u64| {
            let all: Vec<(u64, u64)> = woken.iter().map(|most| (most - unsure, *most)).collect();
            let wakes = differ("a", &counted, &all);
            (wakes.differ, wakes.all)
        };
        assert_eq!(differ(&[100_000, 101_000, 99_000], 0), (0, 3));
        assert_eq!(differ(&[100_000, 101_000, 900_000], 0), (1, 3));
        assert_eq!(differ(&[900_000; 3], 850_000), (0, 3), "each may have been as short");
        assert_eq!(differ(&[100_000], 0), (2, 1));
        assert_eq!(cpus("0-2,5"), BTreeSet::from([0, 1, 2, 5]));
    }
}
