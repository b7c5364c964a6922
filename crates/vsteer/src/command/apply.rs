//! `vsteer apply`: makes a plan's changes. Without `--yes` or `--try` it shows what it would do.

use crate::cli::{Apply, Login};
use crate::interrupt::Interrupt;
use crate::login;
use crate::source::xen_meant;
use std::time::{SystemTime, UNIX_EPOCH};
use vsteer_act::{Journal, Preview, Setting, arm, confirm, journal_folder, preview};
use vsteer_core::nouns::{HostConfig, Manager};
use vsteer_core::plan::Plan;
use vsteer_core::setting::Change;
use vsteer_core::{Fault, FaultKind};
use vsteer_host::actuate::Actuate;
use vsteer_host::knob::Knobs;
use vsteer_host::kvm::host::{KvmHost, Options};
use vsteer_host::observe::{CollectorChoice, Observe};
use vsteer_host::vsphere::{Esxi, is_by_name, mapped};
use vsteer_host::xen::config::Listed;
use vsteer_record::plan::read;

/// Hidden first word of the watchdog's command line: see [`watchdog`].
pub const WATCHDOG: &str = "__watchdog";

/// Opens what takes plans back. `secret`: the password that a vSphere wants, where it is known already.
pub fn open_actuator(
    plan: Option<&Plan>,
    connect: Option<&str>,
    login: &Login,
    secret: Option<&str>,
) -> Result<Box<dyn Actuate>, Fault> {
    if plan.is_some_and(is_of_host) {
        return Ok(Box::new(Knobs));
    }
    if let Some(access) = login::access(connect, login)? {
        let password = secret.map_or_else(|| login::password(&access), |s| Ok(s.to_owned()))?;
        return Ok(Box::new(Esxi::open(&access, &password)?));
    }
    open(connect).map(|(actuator, _)| actuator)
}

/// What a plan is applied with.
struct Opened {
    /// The plan; one of esxtop's files for the VMs that it means.
    plan: Plan,
    actuator: Box<dyn Actuate>,
    now: HostConfig,
    /// For the journal.
    connect: Option<String>,
    /// For the watchdog.
    secret: Option<String>,
}

fn open_for(plan: Plan, a: &Apply) -> Result<Opened, Fault> {
    if is_of_host(&plan) {
        let now = plan.parent.clone();
        return Ok(Opened { plan, actuator: Box::new(Knobs), now, connect: None, secret: None });
    }
    let connect = a.connect.as_deref();
    let of_vsphere = plan.parent.vms.iter().find(|vm| matches!(vm.manager, Manager::Vsphere(_)));
    let Some(access) = login::access(connect, &a.login)? else {
        if let Some(vm) = of_vsphere {
            return Err(Fault::new(
                FaultKind::Usage,
                format!("VM {:?} runs on vSphere, and none is named", vm.name),
            )
            .way_out("--connect vsphere://USER@HOST; or vsteer plan ... --format powercli for a script"));
        }
        let (actuator, now) = open(connect)?;
        return Ok(Opened { plan, actuator, now, connect: connect.map(str::to_owned), secret: None });
    };
    if of_vsphere.is_none() {
        return Err(Fault::new(FaultKind::Changed, format!("plan {} is of no vSphere's VMs", plan.id))
            .way_out("leave out --connect, or name the libvirt or Xen that it was made of"));
    }
    let password = login::password(&access)?;
    let mut esxi = Esxi::open(&access, &password)?;
    esxi.take_notes().iter().for_each(|n| eprintln!("vsteer: {n}"));
    let now = esxi.config_of(&plan.parent.hostname)?;
    let plan = if is_by_name(&plan) {
        let (plan, notes) = mapped(&plan, &now, &mut esxi)?;
        notes.iter().for_each(|n| eprintln!("vsteer: {n}"));
        plan
    } else {
        plan
    };
    let connect = Some(esxi.access(&access).uri());
    Ok(Opened { plan, actuator: Box::new(esxi), now, connect, secret: Some(password) })
}

/// Opens what changes this host, and reads how it is set up.
pub fn open(connect: Option<&str>) -> Result<(Box<dyn Actuate>, HostConfig), Fault> {
    if let Some(uri) = connect.filter(|uri| uri.starts_with(vsteer_host::vsphere::SCHEME)) {
        let what = format!(
            "--connect {}...: that is not done over vSphere's API",
            &uri[..vsteer_host::vsphere::SCHEME.len()]
        );
        return Err(Fault::new(FaultKind::Unsupported, what).way_out("vsteer plan and vsteer apply are"));
    }
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

/// Does it set the host itself? Such a plan has no VM's step, and nobody's API.
fn is_of_host(plan: &Plan) -> bool {
    plan.steps.iter().any(|s| matches!(s.change, Change::Knob(_)))
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
    let Opened { plan, mut actuator, now, connect, secret } = open_for(plan, a)?;
    if plan.steps.is_empty() {
        eprintln!("vsteer: nothing of plan {} is left to do", plan.id);
        return Ok(());
    }
    if !a.yes && a.try_for.is_none() {
        return dry_run(&plan, &now, actuator.as_mut(), json);
    }
    let interrupt = Interrupt::listen();
    let unix_ns = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos() as u64);
    let receipt = vsteer_act::apply(
        &plan,
        &now,
        actuator.as_mut(),
        Setting { folder: &journal_folder(), connect: connect.as_deref(), unix_ns },
        |journal| a.try_for.map_or(Ok(()), |after| arm(journal, after, &[WATCHDOG], secret.as_deref())),
        || interrupt.is_set(),
    )?;
    if json {
        crate::text::print_json(&receipt);
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
    let refused = steps.iter().find_map(|p| Some(could_not(plan, p, p.refused?)));
    if json {
        crate::text::print_json(&steps);
        return refused.map_or(Ok(()), Err);
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
    if let Some(fault) = refused {
        return Err(fault);
    }
    println!("nothing was changed. Do it: vsteer apply PLAN --try 60s (undoes itself), or --yes");
    Ok(())
}

/// What a dry run that finds a step that cannot be made says at last.
fn could_not(plan: &Plan, p: &Preview, kind: FaultKind) -> Fault {
    let found = p.found.as_deref().unwrap_or_default();
    Fault::new(kind, format!("plan {} could not be applied; nothing was changed", plan.id))
        .because(format!("{}: {}: found: {found}", p.step.whose(), p.step.change))
        .way_out("make a new plan of what is there now: vsteer plan -o plan.json")
}

/// The watchdog's own command: `__watchdog JOURNAL DEADLINE`.
///
/// # Errors
/// As [`vsteer_act::watch`].
pub fn watchdog(words: &[String]) -> Result<(), Fault> {
    let usage = || Fault::new(FaultKind::Usage, "the watchdog is started by `vsteer apply --try`");
    let [_, journal, deadline] = words else { return Err(usage()) };
    let deadline = deadline.parse().map_err(|_| usage())?;
    // What is told by nobody else: it was typed, or came by a pipe.
    let secret = std::io::read_to_string(std::io::stdin()).unwrap_or_default();
    let secret = Some(secret.as_str()).filter(|s| !s.is_empty());
    let open =
        |plan: Option<&Plan>, connect: Option<&str>| open_actuator(plan, connect, &Login::default(), secret);
    vsteer_act::watch(journal.as_ref(), deadline, open)
}
