//! VMs put first when their timers end, by a policy of sched_ext.

use super::service::Desk;
use super::{Means, Opened, Refusals, meant};
use crate::cli::{RealtimeRun, RealtimeSource};
use crate::interrupt::{Interrupt, Woken};
use serde_json::{Value, json};
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};
use vsteer_core::nouns::HostConfig;
use vsteer_core::{Fault, FaultKind};
use vsteer_host::kvm::channel::Channels;
use vsteer_host::observe::Observe;
use vsteer_host::realtime::{Counted, Realtime as Scheduling, Settings, Sources, settings};
use vsteer_host::root::Root;

/// After a cgroup came or went VMs are looked for, so much later and so often: threads move in later.
const LOOK_EVERY: Duration = Duration::from_secs(1);
const LOOKS: u32 = 3;

/// Schedules until interrupted, then reports.
///
/// # Errors
/// As [`Scheduling::start`]; the kernel ended the policy.
pub fn keep(
    a: &RealtimeRun,
    json: bool,
    interrupt: &Interrupt,
    mut host: Opened,
    config: HostConfig,
    desk: Desk,
) -> Result<(), Fault> {
    let sources = match a.source {
        RealtimeSource::Timer => Sources::Timer,
        RealtimeSource::Call => Sources::Call,
        RealtimeSource::Both => Sources::Both,
    };
    let settings =
        Settings { honour: !a.measure_only, sources, warp: a.warp, limit: a.limit, ..settings(&config) };
    let counted = a.costs.then(Counted::begin).transpose()?;
    let mut scheduling = Scheduling::start(&settings)?;
    let mut refusals = Refusals::default();
    let mut channels = Channels::default();
    let root = Root::live()?;
    let mut follow = |scheduling: &mut Scheduling, channels: &mut Channels, config: &HostConfig| {
        let refused = scheduling.follow(meant(a, config))?;
        channels.tell(&root, meant(a, config).filter(|vm| !refused.contains_key(&vm.name)));
        refusals.take(refused);
        Ok::<(), Fault>(())
    };
    follow(&mut scheduling, &mut channels, &config)?;
    desk.ready();
    if let Some(warm_up) = a.warm_up {
        scheduling.count(false)?;
        interrupt.sleep_until(Instant::now() + warm_up);
        follow(&mut scheduling, &mut channels, &host.config()?)?;
        interrupt.sleep_until(Instant::now() + LOOK_EVERY);
        scheduling.count(true)?;
    }
    let begin = Instant::now();
    let end = a.length.map(|l| begin + l);
    // Threads of VMs that were just started may still move into their cgroups.
    let mut looks = if a.warm_up.is_none() { LOOKS } else { 0 };
    scheduling.changes_seen();
    while end.is_none_or(|end| Instant::now() < end) {
        let look = (looks > 0).then(|| Instant::now() + LOOK_EVERY);
        let until = [end, look].into_iter().flatten().min();
        let readable: Vec<BorrowedFd<'_>> =
            [scheduling.changes(), desk.asked()].into_iter().chain(channels.asked()).collect();
        match interrupt.wait(until, &readable) {
            Woken::Interrupted => break,
            Woken::Readable(0) => {
                scheduling.changes_seen();
                still_schedules(&scheduling)?;
                looks = LOOKS;
            }
            Woken::Readable(1) => desk.answer(&told(a, begin.elapsed(), &scheduling, counted.as_ref())?),
            Woken::Readable(_) => channels.answer(),
            Woken::Time if looks > 0 => {
                looks -= 1;
                follow(&mut scheduling, &mut channels, &host.config()?)?;
            }
            Woken::Time => {}
        }
    }
    // What this does from here on costs who is measured.
    scheduling.count(false)?;
    still_schedules(&scheduling)?;
    let mut told = told(a, begin.elapsed(), &scheduling, counted.as_ref())?;
    told["guests_told"] = json!(channels.len());
    told["refused"] = json!(refusals.0);
    scheduling.stop();
    if json {
        crate::command::print_json(&told);
    } else {
        print!("{}", super::text::report(&told));
    }
    Ok(())
}

fn told(
    a: &RealtimeRun,
    elapsed: Duration,
    scheduling: &Scheduling,
    counted: Option<&Counted>,
) -> Result<Value, Fault> {
    Ok(json!({
        "by": Means::Policy.name(),
        "pid": std::process::id(),
        "seconds": elapsed.as_secs_f64(),
        "honoured": !a.measure_only,
        "vms": scheduling.report()?,
        "callbacks": counted.map(Counted::costs),
    }))
}

fn still_schedules(scheduling: &Scheduling) -> Result<(), Fault> {
    let Some(why) = scheduling.ended()? else { return Ok(()) };
    Err(Fault::new(FaultKind::Failed, "the kernel ended the real-time policy")
        .because(why)
        .way_out("its own scheduler has taken over; please report this"))
}
