//! `vsteer realtime`: guests' timers bring their vCPUs to a pCPU.

use crate::cli::{CollectorChoice, Realtime, RealtimeRun, RealtimeSource, RealtimeWhat, Source};
use crate::interrupt::{Interrupt, Woken};
use crate::source::open_host;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};
use vsteer_core::nouns::{HostConfig, VmConfig};
use vsteer_core::{Fault, FaultKind};
use vsteer_host::kvm::inventory::is_named;
use vsteer_host::observe::Observe;
use vsteer_host::realtime::{
    Counted, Realtime as Scheduling, Settings, Sources, VmReport, preview, settings,
};

/// After a cgroup came or went VMs are looked for, so much later and so often: threads move in later.
const LOOK_EVERY: Duration = Duration::from_secs(1);
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
        return say_what_would_be(&meant(&config), json);
    }
    let counted = a.costs.then(Counted::begin).transpose()?;
    let mut scheduling = Scheduling::start(&settings)?;
    let mut said = BTreeSet::new();
    let mut follow = |scheduling: &mut Scheduling, config: &HostConfig| -> Result<(), Fault> {
        for (name, why) in scheduling.follow(meant(config).iter())? {
            // Once: it stays so for as long as nobody changes it.
            if said.insert(name) {
                eprintln!("vsteer: {why}");
            }
        }
        Ok(())
    };
    follow(&mut scheduling, &config)?;
    eprintln!("vsteer: ready");
    if let Some(warm_up) = a.warm_up {
        scheduling.count(false)?;
        interrupt.sleep_until(Instant::now() + warm_up);
        follow(&mut scheduling, &host.config()?)?;
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
        match interrupt.wait(until, Some(scheduling.changes())) {
            Woken::Interrupted => break,
            Woken::Readable => {
                scheduling.changes_seen();
                still_schedules(&scheduling)?;
                looks = LOOKS;
            }
            Woken::Time if looks > 0 => {
                looks -= 1;
                follow(&mut scheduling, &host.config()?)?;
            }
            Woken::Time => {}
        }
    }
    // What this does from here on costs who is measured.
    scheduling.count(false)?;
    let seconds = begin.elapsed().as_secs_f64();
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

fn say_what_would_be(vms: &[VmConfig], json: bool) -> Result<(), Fault> {
    let all = preview(vms.iter())?;
    if json {
        let vms: Vec<_> = all
            .iter()
            .map(|(name, why)| serde_json::json!({ "name": name, "refused": why.as_ref().map(ToString::to_string) }))
            .collect();
        super::print_json(&serde_json::json!({ "would_schedule": true, "vms": vms }));
        return Ok(());
    }
    println!(
        "A policy of sched_ext would schedule all ordinary tasks of this host, and put first when their timers end:"
    );
    for (name, why) in &all {
        match why {
            None => println!("  {name}"),
            Some(why) => println!("  not {why}"),
        }
    }
    println!("Nothing was changed: --yes does it.");
    Ok(())
}

fn still_schedules(scheduling: &Scheduling) -> Result<(), Fault> {
    let Some(why) = scheduling.ended()? else { return Ok(()) };
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
        vm.counts.expired,
        vm.counts.honoured,
        vm.counts.running,
        vm.counts.in_debt,
        vm.counts.too_soon,
        100.0 * vm.cpu_s / seconds,
    )
}
