//! `vsteer steer`: keeps every VM within its service level. Without `--yes` it shows what it would set.

use super::apply::open;
use crate::cli::Steer;
use crate::interrupt::Interrupt;
use vsteer_act::levels::{Asked, Heard, Keeper, Sla, Told};
use vsteer_core::setting::uri::from_file;
use vsteer_core::visible::json as shown;
use vsteer_core::{Fault, FaultKind};
use vsteer_sla::estimate;

/// Hidden first word of the watchdog's command line: see [`guard`].
pub const GUARD: &str = "__guard";
/// A line with its time.
const SECOND_NS: u64 = 1_000_000_000;

/// Steers until interrupted.
///
/// # Errors
/// Levels, logs or VMs that are not there; a host that cannot be observed or set. Weights that were set are taken back first.
pub fn run(a: &Steer, json: bool) -> Result<(), Fault> {
    let sla = Sla::read(&a.sla)?;
    let typed: Vec<&str> = a.trust_uri.iter().map(String::as_str).collect();
    sla.hosts.iter().try_for_each(|host| from_file(&host.connect, &typed))?;
    if let Some(length) = a.length.filter(|length| *length < sla.period) {
        let what = format!(
            "--for {} s is shorter than one period of {} s",
            length.as_secs_f64(),
            sla.period.as_secs_f64()
        );
        return Err(Fault::new(FaultKind::Usage, what)
            .help("use a longer --for, or a shorter `period` in the file of service levels"));
    }
    let rule = a.rule.published();
    if let (Some(rule), Some(by)) = (rule, &a.by) {
        let what = format!("--by {by} has no effect with --rule {}", rule.name());
        return Err(Fault::new(FaultKind::Usage, what)
            .because("a published rule has an estimator of its own")
            .help("leave out one of the two"));
    }
    let estimator = estimate::find(a.by.as_deref().unwrap_or("own"))?;
    let interrupt = Interrupt::listen_to_undo();
    let mut keeper = Keeper::open(Asked {
        sla: &sla,
        estimator,
        rule,
        connect: a.connect.as_deref(),
        set: a.yes,
        length: a.length,
        watchdog: &[GUARD],
    })?;
    if !a.yes && !json {
        println!("Dry run: pass --yes to set these weights.");
    }
    let kept = keeper.keep(&interrupt, &mut |heard| match heard {
        Heard::Period(told) => say(told, json),
        Heard::LeftOut(fault) => eprintln!("vsteer: skipped this period: {fault}"),
    });
    let receipts = keeper.end()?;
    if json {
        println!("{}", shown(&serde_json::json!({ "ended": receipts }).to_string()));
    } else {
        receipts.iter().flat_map(|r| &r.steps).for_each(|line| println!("{line}"));
    }
    kept
}

fn say(told: &Told, json: bool) {
    if json {
        println!("{}", shown(&serde_json::to_string(told).expect("results are plain data")));
        return;
    }
    let clock = crate::clock::text(told.unix_ns / SECOND_NS * SECOND_NS);
    println!("{clock}  {}", told.outcome.why);
    for (name, seen) in told.vms.iter().zip(&told.outcome.seen) {
        if let Some(s) = seen {
            println!(
                "   {name:<16} {:>7.1} requests/s, {:>6.2} ms of CPU each; mean {:>7.1} ms, p95 {:>7.1} ms",
                s.rate_hz,
                1e3 * s.service_s,
                1e3 * s.response.mean_s,
                1e3 * s.response.p95_s
            );
        }
    }
    let word = if told.set { "set" } else { "would set" };
    told.weights.iter().for_each(|w| println!("   {word} {w}"));
    told.notes.iter().for_each(|n| println!("   note: {n}"));
}

/// The watchdog's own command: `__guard`, of `realtime` too.
///
/// # Errors
/// As [`vsteer_act::guard`].
pub fn guard() -> Result<(), Fault> {
    // Asked to end, it still waits for the process that steers, which restores the settings itself if it can.
    let _interrupt = Interrupt::listen_to_undo();
    vsteer_act::guard(|connect| open(connect).map(|(actuator, _)| actuator))
}
