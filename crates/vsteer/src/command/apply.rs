//! `vsteer apply`: makes a plan's changes. Without `--yes` or `--try` it shows what it would do.

use super::plan::read;
use crate::cli::Apply;
use crate::interrupt::Interrupt;
use crate::source::xen_meant;
use std::time::{SystemTime, UNIX_EPOCH};
use vsteer_act::{Journal, Setting, arm, confirm, journal_folder, preview};
use vsteer_core::nouns::{HostConfig, Manager};
use vsteer_core::plan::{Change, Plan};
use vsteer_core::{Fault, FaultKind};
use vsteer_host::actuate::Actuate;
use vsteer_host::observe::{CollectorChoice, KvmHost, Observe, Options};
use vsteer_host::xen::config::Listed;

/// Hidden first word of the watchdog's command line: see [`watchdog`].
pub const WATCHDOG: &str = "__watchdog";

/// Opens what changes this host, and reads how it is set up.
pub fn open(connect: Option<&str>) -> Result<(Box<dyn Actuate>, HostConfig), Fault> {
    if let Some(place) = xen_meant(connect)? {
        let config = Listed::ask(&place)?.config()?;
        return Ok((Box::new(place), config));
    }
    // Acting needs no counting: the collector that asks for nothing.
    let collector = CollectorChoice::Schedstat;
    let mut host =
        KvmHost::open(Options { connect: connect.map(str::to_owned), collector, ..Options::default() })?;
    let config = host.config()?;
    Ok((Box::new(host), config))
}

/// The same for a plan: one of the host's settings needs no VMs to be looked for.
pub fn open_for(plan: Option<&Plan>, connect: Option<&str>) -> Result<(Box<dyn Actuate>, HostConfig), Fault> {
    match plan.filter(|p| p.steps.iter().any(|s| matches!(s.change, Change::Knob { .. }))) {
        Some(plan) => Ok((Box::new(vsteer_host::knob::Knobs), plan.parent.clone())),
        None => open(connect),
    }
}

/// Applies.
///
/// # Errors
/// As [`vsteer_act::apply`].
pub fn run(a: &Apply, json: bool) -> Result<(), Fault> {
    let plan = read(&a.plan)?;
    if a.confirm {
        let mut journal = Journal::open(&journal_folder().join(format!("{}.journal", plan.id)))?;
        confirm(&mut journal)?;
        eprintln!("vsteer: plan {} is kept", plan.id);
        return Ok(());
    }
    if plan.steps.is_empty() {
        eprintln!("vsteer: plan {} has no steps: {}", plan.id, plan.title);
        return Ok(());
    }
    if let Some(vm) = plan.parent.vms.iter().find(|vm| matches!(vm.manager, Manager::Vsphere(_))) {
        return Err(Fault::new(FaultKind::Unsupported, format!("VM {:?} runs on vSphere", vm.name))
            .because("vsteer does not change vSphere's VMs itself yet")
            .way_out("vsteer plan ... --format powercli prints the same changes as a script"));
    }
    let (mut actuator, now) = open_for(Some(&plan), a.connect.as_deref())?;
    if !a.yes && a.try_for.is_none() {
        return dry_run(&plan, &now, actuator.as_mut(), json);
    }
    let interrupt = Interrupt::listen();
    let unix_ns = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos() as u64);
    let receipt = vsteer_act::apply(
        &plan,
        &now,
        actuator.as_mut(),
        Setting { folder: &journal_folder(), connect: a.connect.as_deref(), unix_ns },
        |journal| a.try_for.map_or(Ok(()), |after| arm(journal, after, &[WATCHDOG])),
        || interrupt.is_set(),
    )?;
    if json {
        super::print_json(&receipt);
        return Ok(());
    }
    for line in &receipt.steps {
        println!("{line}");
    }
    match a.try_for {
        Some(after) => println!(
            "applied for {:.0} s. Keep it: vsteer apply {} --confirm   Undo now: vsteer rollback {}",
            after.as_secs_f64(),
            a.plan.display(),
            receipt.plan
        ),
        None => println!("applied. Undo: vsteer rollback {}", receipt.plan),
    }
    Ok(())
}

fn dry_run(plan: &Plan, now: &HostConfig, actuator: &mut dyn Actuate, json: bool) -> Result<(), Fault> {
    let steps = preview(plan, now, actuator)?;
    if json {
        super::print_json(&steps);
        return Ok(());
    }
    for p in &steps {
        println!("{} {}: {}", if p.ready { "  would" } else { "CANNOT" }, p.step.whose(), p.step.change);
        if let Some(found) = &p.found {
            println!("         found: {found}");
        }
    }
    for line in &plan.irreversible {
        println!("  not to be undone: {line}");
    }
    println!("nothing was changed. Do it: vsteer apply PLAN --try 60s (undoes itself), or --yes");
    Ok(())
}

/// The watchdog's own command: `__watchdog JOURNAL DEADLINE`.
///
/// # Errors
/// As [`vsteer_act::watch`].
pub fn watchdog(words: &[String]) -> Result<(), Fault> {
    let usage = || Fault::new(FaultKind::Usage, "the watchdog is started by `vsteer apply --try`");
    let [_, journal, deadline] = words else { return Err(usage()) };
    let deadline = deadline.parse().map_err(|_| usage())?;
    vsteer_act::watch(journal.as_ref(), deadline, |connect| open(connect).map(|(actuator, _)| actuator))
}
