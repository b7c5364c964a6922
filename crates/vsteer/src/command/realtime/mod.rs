//! `vsteer realtime`: runs VMs first when they wake or their timers end.

mod meant;
mod policy;
mod priority;
mod service;
mod text;

pub use service::quoted as systemd_word;

use crate::cli::{Realtime, RealtimeBy, RealtimeRun, RealtimeWhat};
use crate::interrupt::Interrupt;
use crate::source::opened;
use meant::Meant;
use vsteer_core::nouns::{HostConfig, VmConfig};
use vsteer_core::{Fault, FaultKind};
use vsteer_host::backend::{Host, Request};
use vsteer_host::observe::CollectorChoice;
use vsteer_host::realtime::Kernel;

/// Does what was asked for.
///
/// # Errors
/// As the means that is used.
pub fn run(a: &Realtime, json: bool) -> Result<(), Fault> {
    match &a.what {
        RealtimeWhat::Run(run) => keep(run, json),
        RealtimeWhat::Enable(run) => service::enable(run, json),
        RealtimeWhat::Status => service::status(json),
        RealtimeWhat::Report => service::report(json),
        RealtimeWhat::Disable => service::disable(json),
        RealtimeWhat::Unit(run) => service::unit(run),
    }
}

/// How VMs are put first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Means {
    /// A policy of sched_ext, on this kernel.
    Policy(Kernel),
    /// A real-time class of the kernel's.
    Priority,
}

/// What they are called.
const BY_POLICY: &str = "policy";
const BY_PRIORITY: &str = "priority";

/// The means that was asked for, or the better one of those that this host has; with why it is not the best.
fn means(a: &RealtimeRun) -> Result<(Means, Option<Fault>), Fault> {
    match (a.by, Kernel::look()) {
        (RealtimeBy::Policy, possible) => possible.map(|kernel| (Means::Policy(kernel), None)),
        (RealtimeBy::Priority, _) => Ok((Means::Priority, None)),
        (RealtimeBy::Auto, Ok(kernel)) => Ok((Means::Policy(kernel), None)),
        (RealtimeBy::Auto, Err(why)) if why.kind == FaultKind::NoPrivilege => Err(why),
        (RealtimeBy::Auto, Err(why)) => Ok((Means::Priority, Some(why))),
    }
}

/// What the user asked for.
struct Wanted<'a> {
    a: &'a RealtimeRun,
    meant: Meant<'a>,
    json: bool,
}

fn keep(a: &RealtimeRun, json: bool) -> Result<(), Fault> {
    let interrupt = Interrupt::listen_to_undo();
    let (means, why_not_better) = means(a)?;
    if means == Means::Priority && a.costs {
        return Err(Fault::new(
            FaultKind::Usage,
            "--costs works only with a policy: without one no callbacks run",
        )
        .help("leave it out"));
    }
    let collector = match means {
        Means::Policy(_) => CollectorChoice::Schedstat,
        Means::Priority => CollectorChoice::Auto,
    };
    // Without timers: the service that would be asked for them is this one.
    let mut host = opened(&Request { collector, ..Request::of(a.connect.as_deref()) })?;
    if !host.is_scheduled_here() {
        return Err(Fault::new(
            FaultKind::Unsupported,
            "cannot run VMs first on this host: its kernel does not schedule them",
        )
        .because("vsteer realtime needs the Linux scheduler")
        .help("give the VM more weight (vsteer plan --set VM:weight=...)"));
    }
    let config = host.config()?;
    let wanted = Wanted { a, meant: Meant::by(a)?, json };
    wanted.meant.need_distinct(&config)?;
    // A service may begin before its VMs do.
    if wanted.meant.of(&config).next().is_none() {
        eprintln!("vsteer: none of these VMs is running yet: {}", a.vms.join(", "));
    }
    if let Some(why) = &why_not_better {
        let cause = why.cause.as_deref().unwrap_or(&why.what);
        eprintln!("vsteer: using a real-time class of the kernel instead of a sched_ext policy: {cause}");
    }
    if !a.yes {
        return say_what_would_be(means, &wanted, &config);
    }
    let desk = service::Desk::open()?;
    match means {
        Means::Policy(kernel) => policy::keep(&wanted, &interrupt, host, kernel, config, desk),
        Means::Priority => priority::keep(&wanted, &interrupt, host, config, desk),
    }
}

fn say_what_would_be(means: Means, wanted: &Wanted<'_>, config: &HostConfig) -> Result<(), Fault> {
    let Wanted { meant, json, .. } = wanted;
    let (by, all): (_, Vec<(String, Option<Fault>)>) = match means {
        Means::Policy(kernel) => (BY_POLICY, vsteer_host::realtime::preview(&kernel, meant.of(config))?),
        Means::Priority => {
            let able = vsteer_act::priority::able_to_be_first;
            let shown = |vm: &VmConfig| {
                if *json { vm.name.clone() } else { format!("{} (process {})", vm.name, vm.pid) }
            };
            (BY_PRIORITY, meant.of(config).map(|vm| (shown(vm), able(vm))).collect())
        }
    };
    if *json {
        let vms: Vec<_> = all
            .iter()
            .map(|(name, why)| serde_json::json!({ "name": name, "refused": why.as_ref().map(ToString::to_string) }))
            .collect();
        crate::text::print_json(&serde_json::json!({ "would_schedule": true, "by": by, "vms": vms }));
        return Ok(());
    }
    println!(
        "{}",
        match means {
            Means::Policy(_) =>
                "A sched_ext policy would schedule all ordinary tasks of this host, and run these VMs first when their timers end:",
            Means::Priority =>
                "Threads of these VMs would have a real-time class (SCHED_RR) while the VM uses less than its share:",
        }
    );
    for (name, why) in &all {
        match why {
            None => println!("  {}", crate::text::one_line(name)),
            Some(why) => println!("  not {why}"),
        }
    }
    println!("Dry run: pass --yes to change this.");
    Ok(())
}

/// Said once, and told when asked: why VMs are not put first.
#[derive(Default)]
struct Refusals(std::collections::BTreeMap<String, String>);

impl Refusals {
    fn take(&mut self, refused: std::collections::BTreeMap<String, Fault>) {
        let now: std::collections::BTreeMap<String, String> =
            refused.into_iter().map(|(name, why)| (name, why.to_string())).collect();
        // It stays so for as long as nobody changes it.
        now.iter()
            .filter(|(name, _)| !self.0.contains_key(*name))
            .for_each(|(_, why)| crate::text::note(why));
        self.0 = now;
    }
}

/// The host whose VMs are preferred.
type Opened = Box<dyn Host>;
