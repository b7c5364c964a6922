//! `vsteer headroom`: how many more VMs fit?

use crate::cli::Headroom as Args;
use crate::interrupt::Interrupt;
use crate::scenario::file::File;
use crate::scenario::replay::Recorded;
use crate::source::{progress_done, progress_of};
use serde_json::json;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use vsteer_core::nouns::{HostConfig, VmConfig};
use vsteer_core::topology::NodeId;
use vsteer_core::{Fault, FaultKind};
use vsteer_sim::forecast::compared::{Errors, calibration};
use vsteer_sim::forecast::headroom::{too_much_memory, with_more as with_copies};
use vsteer_sim::forecast::replay::Replay;
use vsteer_sim::scenario::headroom::{Broken, Found, Headroom, Tried, search, together, tried, with_more};
use vsteer_sim::scenario::outcome::{Ended, Follow, MEASURES, Unit, run as simulate};
use vsteer_sim::scenario::{Case, Scenario};
use vsteer_sim::setup::VmSetup;

/// Says it.
///
/// # Errors
/// As [`File::read`] and [`File::case`], or [`Recorded::open`]; `Interrupted` at Ctrl-C.
pub fn run(a: &Args, json: bool) -> Result<(), Fault> {
    let interrupt = Interrupt::listen();
    let (host, known) = match &a.from {
        Some(_) => recorded(a, &interrupt)?,
        None => (written(a)?, None),
    };
    let nodes = host.nodes();
    let anywhere = std::iter::once(None);
    let places: Vec<Option<u32>> =
        if nodes.len() > 1 { anywhere.chain(nodes.into_iter().map(Some)).collect() } else { vec![None] };
    let seeds: Vec<u64> = (0..u64::from(a.seeds)).map(|n| host.first_seed().wrapping_add(n)).collect();
    let answers = searched(a, &host, &places, &seeds, &interrupt)?;
    let notes = known.iter().flat_map(|k| &k.notes);
    if json {
        crate::text::print_json(&json!({
            "scenario": a.scenario, "recording": a.from, "kind": a.kind, "levels": a.level, "most": a.most,
            "calibration": known.as_ref().map(|k| &k.calibration), "notes": notes.collect::<Vec<_>>(),
            "headroom": answers,
        }));
        return Ok(());
    }
    println!("{}: more VMs like {:?}", crate::text::one_line(&host.title()), a.kind);
    answers.iter().for_each(|h| println!("{}", told(h, a.most, host.has(&a.kind))));
    if let Some(k) = &known {
        println!("recorded host, simulated against measured: {}", k.calibration.told());
    }
    notes.for_each(|n| println!("note: {n}"));
    Ok(())
}

/// How far a recorded host's simulation can be trusted.
struct Known {
    calibration: Errors,
    notes: Vec<String>,
}

/// The host as it is, and how more are put on it.
enum Host {
    Written { scenario: Box<Scenario>, kind: String },
    Recorded(Box<Grows>),
}

/// A recorded host.
struct Grows {
    replay: Replay,
    config: HostConfig,
    kind: VmSetup,
    window_ns: u64,
}

/// What becomes of a host with more VMs.
enum With {
    Case(Box<Case>),
    /// They do not fit at all: why.
    Full(String),
}

fn written(a: &Args) -> Result<Host, Fault> {
    let path = a.scenario.as_ref().expect("without --from a scenario is demanded");
    let (scenario, _) = File::read(path)?.case(&a.set)?;
    // A kind or level that is not there is said before anything is run.
    with_more(&scenario, &a.kind, 1, None).map_err(|r| r.fault)?;
    Ok(Host::Written { scenario: Box::new(scenario), kind: a.kind.clone() })
}

fn recorded(a: &Args, interrupt: &Interrupt) -> Result<(Host, Option<Known>), Fault> {
    let folder = a.from.as_ref().expect("with --from");
    let recorded = Recorded::open(folder)?;
    let config = recorded.stretch.config.clone();
    let replay = recorded.host(&config)?;
    let kind = match &a.scenario {
        Some(_) => shape(a, &replay)?,
        None => {
            let known = || {
                replay
                    .setup
                    .vms
                    .iter()
                    .map(|vm| crate::text::one_line(&vm.name))
                    .collect::<Vec<_>>()
                    .join(", ")
            };
            replay.setup.vms.iter().find(|vm| vm.name == a.kind).cloned().ok_or_else(|| {
                Fault::new(FaultKind::BadInput, format!("{}: no VM {:?}", folder.display(), a.kind)).help(
                    format!("VMs of the recording: {}; for another VM, give its scenario file too", known()),
                )
            })?
        }
    };
    let got = recorded.simulate(&config, "simulating the recorded host", interrupt)?;
    let model = recorded.stretch.model()?;
    let known = Known { calibration: calibration(&got, &model), notes: recorded.notes(&model) };
    let grows = Grows { replay, config, kind, window_ns: recorded.window_ns };
    Ok((Host::Recorded(Box::new(grows)), Some(known)))
}

/// The VM of that name in the scenario file, for a host that was recorded.
fn shape(a: &Args, host: &Replay) -> Result<VmSetup, Fault> {
    let path = a.scenario.as_ref().expect("asked where there is one");
    let (scenario, case) = File::read(path)?.case(&a.set)?;
    // Weights are on the scheduler's own scale.
    let (its, own) = (case.policy.about.name, host.policy.about.name);
    if its != own {
        return Err(Fault::new(
            FaultKind::BadInput,
            format!("{}: the scenario's policy is {its:?}, the recorded host's is {own:?}", path.display()),
        )
        .help(format!("set policy = {own:?} in the scenario")));
    }
    with_more(&scenario, &a.kind, 1, None).map_err(|r| r.fault)?;
    let n = scenario.vms.iter().take_while(|vm| vm.name != a.kind).map(|vm| vm.count as usize).sum::<usize>();
    let mut vm = case.setup.vms.into_iter().nth(n).ok_or_else(|| {
        Fault::new(FaultKind::BadInput, format!("{}: count of {:?} is 0", path.display(), a.kind))
            .help("set count = 1 or more")
    })?;
    // Groups and pools are the scenario's.
    (vm.group, vm.pool, vm.name) = (None, 0, a.kind.clone());
    Ok(vm)
}

impl Host {
    fn title(&self) -> String {
        match self {
            Host::Written { scenario, .. } => scenario.title.clone(),
            Host::Recorded(host) => host.config.hostname.clone(),
        }
    }

    /// How many VMs of the kind a scenario has already.
    fn has(&self, kind: &str) -> Option<u32> {
        match self {
            Host::Written { scenario, .. } => {
                Some(scenario.vms.iter().filter(|vm| vm.name == kind).map(|vm| vm.count).sum())
            }
            Host::Recorded(_) => None,
        }
    }

    fn first_seed(&self) -> u64 {
        match self {
            Host::Written { scenario, .. } => scenario.seed,
            Host::Recorded(_) => 1,
        }
    }

    /// Its nodes with pCPUs.
    fn nodes(&self) -> Vec<u32> {
        match self {
            Host::Written { scenario, .. } => {
                (0..scenario.machine.sockets * scenario.machine.nodes_per_socket).collect()
            }
            Host::Recorded(host) => {
                let usable = host.config.topology.usable();
                let nodes = host.config.topology.nodes().iter();
                nodes.filter(|n| !n.cpus.intersection(&usable).is_empty()).map(|n| n.id.0).collect()
            }
        }
    }

    fn with(&self, more: u32, node: Option<u32>, seed: u64) -> Result<With, Fault> {
        let host = match self {
            Host::Written { scenario, kind } => {
                return match with_more(scenario, kind, more, node).and_then(|s| s.case()) {
                    Ok(case) => Ok(With::Case(Box::new(case))),
                    // What does not fit into memory is one more than fits, as is one that the host cannot hold at all.
                    Err(r) if more > 0 && r.key.ends_with("memory_mib") => Ok(With::Full(r.fault.what)),
                    Err(r) => Err(r.fault),
                };
            }
            Host::Recorded(host) => host,
        };
        let node = node.map(NodeId);
        let like: Option<&VmConfig> = host.config.vms.iter().find(|vm| vm.name == host.kind.name);
        if let Some(why) =
            like.filter(|_| more > 0).and_then(|l| too_much_memory(&host.config, l, more, node))
        {
            return Ok(With::Full(why));
        }
        Ok(With::Case(Box::new(Case {
            setup: with_copies(&host.replay, &host.kind, more, node, host.window_ns, seed),
            policy: host.replay.policy,
            values: host.replay.values.clone(),
            begin_ns: host.window_ns,
            end_ns: 2 * host.window_ns,
        })))
    }
}

fn told(h: &Headroom, most: u32, has: Option<u32>) -> String {
    let place = h.node.map_or_else(|| "host".to_owned(), |n| format!("node {n}"));
    if let Some(b) = h.seeds.iter().find(|f| f.more.is_none()).and_then(|f| f.breaks.as_ref()) {
        return format!("{place}: no more: {} already has {}", crate::text::one_line(&b.vm), exceeded(b));
    }
    let interval =
        h.half_width.map_or_else(String::new, |w| format!(", mean {:.1} ±{w:.1} over seeds", h.mean));
    let worst = h.seeds.iter().min_by_key(|f| f.more);
    let in_all =
        has.filter(|has| *has > 0).map_or_else(String::new, |has| format!(" ({} in all)", has + h.least));
    let near: Vec<String> = worst.iter().flat_map(|f| &f.worst).map(|w| value(&w.level, w.value)).collect();
    let near = if near.is_empty() { String::new() } else { format!(", at worst {}", near.join(", ")) };
    match worst.and_then(|f| f.breaks.as_ref()) {
        Some(b) => {
            format!(
                "{place}: {} more{in_all}{interval}{near}; with one more {} has {}",
                h.least,
                crate::text::one_line(&b.vm),
                exceeded(b)
            )
        }
        None => {
            format!(
                "{place}: at least {most} more{near} (no level breaks with {most}; --most sets this limit)"
            )
        }
    }
}

fn exceeded(b: &Broken) -> String {
    value(&b.level, b.value)
}

/// A value beside its level.
fn value(level: &str, value: f64) -> String {
    let unit = MEASURES.iter().find(|m| level.starts_with(&format!("{}=", m.name))).map(|m| m.unit);
    match unit {
        Some(Unit::Time) => format!("{:.3} ms of {level}", value / 1e6),
        Some(Unit::Rate) => format!("{value:.1} of {level}"),
        _ => format!("{:.2} % of {level}", 100.0 * value),
    }
}

/// Every place with every seed, on all cores.
fn searched(
    a: &Args,
    host: &Host,
    places: &[Option<u32>],
    seeds: &[u64],
    interrupt: &Interrupt,
) -> Result<Vec<Headroom>, Fault> {
    let jobs = places.len() * seeds.len();
    let (next, runs) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let found: Mutex<Vec<Option<Result<Found, Fault>>>> = Mutex::new((0..jobs).map(|_| None).collect());
    let workers = std::thread::available_parallelism().map_or(1, usize::from).min(jobs);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                loop {
                    let job = next.fetch_add(1, Ordering::Relaxed);
                    if job >= jobs {
                        return;
                    }
                    let (node, seed) = (places[job / seeds.len()], seeds[job % seeds.len()]);
                    let result = search(seed, a.most, |more| {
                        let tried = tries(a, host, more, node, seed, interrupt);
                        runs.fetch_add(1, Ordering::Relaxed);
                        tried
                    });
                    found.lock().expect("no worker panics while it holds this")[job] = Some(result);
                }
            });
        }
        let ended = || found.lock().expect("as above").iter().filter(|f| f.is_some()).count();
        while ended() < jobs {
            std::thread::sleep(Duration::from_millis(50));
            let note = format!("{} of {jobs} searches, {} runs", ended(), runs.load(Ordering::Relaxed));
            progress_of("searching", ended() as f64 / jobs as f64, &note);
        }
    });
    progress_done();
    let mut found = found.into_inner().expect("as above").into_iter().flatten();
    let of_place = |node: &Option<u32>| {
        found.by_ref().take(seeds.len()).collect::<Result<Vec<Found>, Fault>>().map(|f| together(*node, f))
    };
    places.iter().map(of_place).collect()
}

fn tries(
    a: &Args,
    host: &Host,
    more: u32,
    node: Option<u32>,
    seed: u64,
    interrupt: &Interrupt,
) -> Result<Tried, Fault> {
    struct Watched<'a>(&'a Interrupt);
    impl Follow for Watched<'_> {
        fn go_on(&mut self, _now_ns: u64) -> bool {
            !self.0.is_set()
        }
    }
    let case = match host.with(more, node, seed)? {
        With::Case(case) => case,
        With::Full(why) => {
            let level = format!("memory ({why})");
            return Ok(Tried::Breaks(Broken { vm: a.kind.clone(), level, value: 1.0 }));
        }
    };
    let stopped = || Fault::new(FaultKind::Interrupted, "the search was interrupted");
    if interrupt.is_set() {
        return Err(stopped());
    }
    let ran = simulate(&case, seed, |s| (case.policy.build)(s, &case.values), &mut Watched(interrupt))?;
    // A level that no VM is measured by would never break. Without added VMs, a scenario may have no VM of the kind yet.
    let is_recorded = matches!(host, Host::Recorded(_));
    if let Some(level) = a.level.iter().find(|l| !l.told_by(&ran)).filter(|_| is_recorded || more > 0) {
        let whose = if is_recorded { "recording" } else { "scenario" };
        let fault =
            Fault::new(FaultKind::BadInput, format!("level {level}: no VM of the {whose} has that figure"));
        return Err(if is_recorded {
            fault.help("figures of a recording: ready, wake_p99, ready_p99, lag")
        } else {
            fault.help("`vsteer simulate` on the scenario prints the figures that its VMs have")
        });
    }
    match ran.ended {
        Ended::Whole => Ok(tried(&case.setup, &ran, &a.level)),
        Ended::Stopped => Err(stopped()),
        Ended::Runaway => Err(Fault::new(
            FaultKind::BadInput,
            format!("the simulation makes no progress with {more} more VMs"),
        )),
    }
}
