//! `vsteer realtime`: guests' timers bring their vCPUs to a pCPU.

use crate::cli::{CollectorChoice, Realtime, RealtimeRun, RealtimeSource, RealtimeWhat, Source};
use crate::interrupt::Interrupt;
use crate::source::{open_host, progress, progress_done};
use std::time::{Duration, Instant};
use vsteer_core::nouns::{HostConfig, VmConfig};
use vsteer_core::{Fault, FaultKind};
use vsteer_host::kvm::inventory::is_named;
use vsteer_host::observe::Observe;
use vsteer_host::realtime::{Counted, Realtime as Scheduling, Settings, Sources, VmReport, settings};

/// How often it is looked whether VMs came or went, and whether the policy still schedules.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// After a cgroup came or went, VMs are looked for in so many looks: threads move in later.
const LOOKS: u32 = 3;

/// Does what was asked for.
///
/// # Errors
/// As [`Scheduling::start`]; the kernel ended the policy.
pub fn run(a: &Realtime, json: bool) -> Result<(), Fault> {
    match &a.what {
        RealtimeWhat::Run(run) => schedule(run, json),
    }
}

fn schedule(a: &RealtimeRun, json: bool) -> Result<(), Fault> {
    let interrupt = Interrupt::listen();
    let source =
        Source { connect: a.connect.clone(), collector: CollectorChoice::Schedstat, vms: Vec::new() };
    let mut host = open_host(&source)?;
    if host.kvm().is_none() {
        return Err(Fault::new(FaultKind::Unsupported, "real-time timers on a Xen host")
            .because("they are brought about by a policy of Linux's scheduler (sched_ext)")
            .way_out("weigh such a domain more (vsteer plan --set VM:weight=...)"));
    }
    let config = host.config()?;
    let meant = |config: &HostConfig| -> Vec<VmConfig> {
        let is_meant = |vm: &&VmConfig| a.vms.iter().any(|name| is_named(name, &vm.name, &vm.id));
        config.vms.iter().filter(is_meant).cloned().collect()
    };
    // A service may begin before its VMs do.
    if meant(&config).is_empty() {
        eprintln!("vsteer: none of these VMs runs yet: {}", a.vms.join(", "));
    }
    let sources = match a.source {
        RealtimeSource::Timer => Sources::Timer,
        RealtimeSource::Call => Sources::Call,
        RealtimeSource::Both => Sources::Both,
    };
    let settings =
        Settings { honour: !a.measure_only, sources, warp: a.warp, limit: a.limit, ..settings(&config) };
    if !a.yes {
        return Err(Fault::new(FaultKind::Usage, "nothing was changed: --yes was not given")
            .because("a policy would schedule all ordinary tasks of this host")
            .way_out("add --yes"));
    }
    let counted = a.costs.then(Counted::begin).transpose()?;
    let mut scheduling = Scheduling::start(&settings)?;
    scheduling.follow(meant(&config).iter())?;
    eprintln!("vsteer: ready");
    if let Some(warm_up) = a.warm_up {
        scheduling.count(false)?;
        interrupt.sleep_until(Instant::now() + warm_up);
        scheduling.follow(meant(&host.config()?).iter())?;
        interrupt.sleep_until(Instant::now() + LOOK_EVERY);
        scheduling.count(true)?;
    }
    let begin = Instant::now();
    let mut seen = scheduling.cgroups_changed()?;
    // Threads of VMs that were just started may still move into their cgroups.
    let mut looks = if a.warm_up.is_none() { LOOKS } else { 0 };
    while a.length.is_none_or(|l| begin.elapsed() < l) {
        progress("scheduling", begin.elapsed(), a.length.unwrap_or(begin.elapsed() + LOOK_EVERY));
        let next = Instant::now() + LOOK_EVERY;
        if interrupt.sleep_until(a.length.map_or(next, |l| next.min(begin + l))) {
            break;
        }
        still_schedules(&scheduling)?;
        let now = scheduling.cgroups_changed()?;
        if now != seen {
            (seen, looks) = (now, LOOKS);
        }
        // Asking for all VMs is slow beside that.
        if looks > 0 {
            looks -= 1;
            scheduling.follow(meant(&host.config()?).iter())?;
        }
    }
    // What this does from here on costs who is measured.
    scheduling.count(false)?;
    let seconds = begin.elapsed().as_secs_f64();
    progress_done();
    still_schedules(&scheduling)?;
    let vms = scheduling.report()?;
    let callbacks = counted.map(|c| c.costs());
    scheduling.stop();
    if json {
        super::print_json(&serde_json::json!({
            "seconds": seconds, "honoured": !a.measure_only, "vms": vms, "callbacks": callbacks,
        }));
    } else {
        vms.iter().for_each(|vm| println!("{}", told(vm, seconds)));
        callbacks.iter().flatten().for_each(|c| {
            let each = c.ns_per_run.map_or_else(|| "-".to_owned(), |ns| format!("{ns:.0} ns each"));
            println!(
                "{:<16} {:>6} instructions checked, {:>9} runs, {each}",
                c.name, c.verified_instructions, c.runs
            );
        });
    }
    Ok(())
}

fn still_schedules(scheduling: &Scheduling) -> Result<(), Fault> {
    let Some(why) = scheduling.ended()? else { return Ok(()) };
    progress_done();
    Err(Fault::new(FaultKind::Failed, "the kernel ended the real-time policy")
        .because(why)
        .way_out("its own scheduler has taken over; please report this"))
}

fn told(vm: &VmReport, seconds: f64) -> String {
    let late = vm.expiry_to_running_us.map_or_else(
        || "no timer ended".to_owned(),
        |l| format!("to running {:.0} us (mean), {:.0} (p99), {:.0} (max)", l.mean, l.p99, l.max),
    );
    format!(
        "{}: {} timers ended, {} put first, {} ran anyway, {} refused in debt, {} too soon; {late}; {:.1} % of a pCPU",
        vm.name,
        vm.expired,
        vm.honoured,
        vm.running,
        vm.in_debt,
        vm.too_soon,
        100.0 * vm.cpu_s / seconds,
    )
}
