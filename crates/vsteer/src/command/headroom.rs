//! `vsteer headroom`: how many more fit?

use crate::cli::Headroom as Args;
use crate::interrupt::Interrupt;
use crate::scenario::file::File;
use crate::source::{progress_done, progress_of};
use serde_json::json;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use vsteer_core::scenario::Scenario;
use vsteer_core::scenario::headroom::{Broken, Found, Headroom, broken, search, together, with_more};
use vsteer_core::scenario::outcome::{Ended, Follow, MEASURES, Unit, run as simulate};
use vsteer_core::{Fault, FaultKind};

/// Says it.
///
/// # Errors
/// As [`File::read`] and [`File::case`]; `Interrupted` at Ctrl-C.
pub fn run(a: &Args, json: bool) -> Result<(), Fault> {
    let interrupt = Interrupt::listen();
    let file = File::read(&a.scenario)?;
    let (scenario, _) = file.case(&a.set)?;
    // A kind or level that is not there is said before anything is run.
    with_more(&scenario, &a.kind, 1, None).map_err(|r| r.fault)?;
    let nodes = scenario.machine.sockets * scenario.machine.nodes_per_socket;
    let places: Vec<Option<u32>> =
        if nodes > 1 { std::iter::once(None).chain((0..nodes).map(Some)).collect() } else { vec![None] };
    let seeds: Vec<u64> = (0..u64::from(a.seeds)).map(|n| scenario.seed.wrapping_add(n)).collect();
    let answers = searched(a, &scenario, &places, &seeds, &interrupt)?;
    if json {
        super::print_json(&json!({
            "scenario": a.scenario, "kind": a.kind, "levels": a.level, "most": a.most, "headroom": answers,
        }));
        return Ok(());
    }
    println!("{}: more VMs like {:?}", crate::text::one_line(&scenario.title), a.kind);
    answers.iter().for_each(|h| println!("{}", told(h, a.most)));
    Ok(())
}

fn told(h: &Headroom, most: u32) -> String {
    let place = h.node.map_or_else(|| "host".to_owned(), |n| format!("node {n}"));
    if let Some(b) = h.seeds.iter().find(|f| f.more.is_none()).and_then(|f| f.breaks.as_ref()) {
        return format!("{place}: none: {} already has {}", crate::text::one_line(&b.vm), exceeded(b));
    }
    let interval =
        h.half_width.map_or_else(String::new, |w| format!(", mean {:.1} ±{w:.1} over seeds", h.mean));
    let worst = h.seeds.iter().min_by_key(|f| f.more);
    match worst.and_then(|f| f.breaks.as_ref()) {
        Some(b) => {
            format!(
                "{place}: {} more{interval}; with one more {} has {}",
                h.least,
                crate::text::one_line(&b.vm),
                exceeded(b)
            )
        }
        None => format!("{place}: {most} more or above (nothing breaks with as many as were tried)"),
    }
}

fn exceeded(b: &Broken) -> String {
    let unit = MEASURES.iter().find(|m| b.level.starts_with(&format!("{}=", m.name))).map(|m| m.unit);
    match unit {
        Some(Unit::Time) => format!("{:.3} ms of {}", b.value / 1e6, b.level),
        _ => format!("{:.2} % of {}", 100.0 * b.value, b.level),
    }
}

/// Every place with every seed, on all cores.
fn searched(
    a: &Args,
    scenario: &Scenario,
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
                        let breaks = breaks(a, scenario, more, node, seed, interrupt);
                        runs.fetch_add(1, Ordering::Relaxed);
                        breaks
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

fn breaks(
    a: &Args,
    scenario: &Scenario,
    more: u32,
    node: Option<u32>,
    seed: u64,
    interrupt: &Interrupt,
) -> Result<Option<Broken>, Fault> {
    struct Watched<'a>(&'a Interrupt);
    impl Follow for Watched<'_> {
        fn go_on(&mut self, _now_ns: u64) -> bool {
            !self.0.is_set()
        }
    }
    let case = with_more(scenario, &a.kind, more, node).and_then(|s| s.case());
    let case = match case {
        Ok(case) => case,
        // What does not fit into memory is one more than fits, as is one that the host cannot hold at all.
        Err(r) if more > 0 && r.key.ends_with("memory_mib") => {
            return Ok(Some(Broken {
                vm: a.kind.clone(),
                level: format!("memory ({})", r.fault.what),
                value: 1.0,
            }));
        }
        Err(r) => return Err(r.fault),
    };
    let stopped = || Fault::new(FaultKind::Interrupted, "stopped while searching");
    if interrupt.is_set() {
        return Err(stopped());
    }
    let ran = simulate(&case, seed, |s| (case.policy.build)(s, &case.values), &mut Watched(interrupt))?;
    match ran.ended {
        Ended::Whole => Ok(broken(&case.setup, &ran, &a.level)),
        Ended::Stopped => Err(stopped()),
        Ended::Runaway => {
            Err(Fault::new(FaultKind::BadInput, format!("the simulation stands still with {more} VMs more")))
        }
    }
}
