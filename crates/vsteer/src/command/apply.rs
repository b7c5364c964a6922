//! `vsteer apply`: applies a plan. Without `--yes` or `--try` it shows what it would change.

use crate::cli::{Apply, Login};
use crate::interrupt::Interrupt;
use crate::login;
use crate::source::tell;
use std::time::{SystemTime, UNIX_EPOCH};
use vsteer_act::{Applying, Journal, Preview, Setting, arm, confirm, journal_folder, preview};
use vsteer_core::nouns::HostConfig;
use vsteer_core::plan::Plan;
use vsteer_core::setting::Change;
use vsteer_core::visible::message;
use vsteer_core::{Fault, FaultKind};
use vsteer_host::actuate::Actuate;
use vsteer_host::backend::{self, Changing, Request};
use vsteer_host::hypervisors;
use vsteer_host::knob::Knobs;
use vsteer_record::files::read_plan;

/// Hidden first word of the watchdog's command line: see [`watchdog`].
pub const WATCHDOG: &str = "__watchdog";

/// What changes the host at `connect`. `secret`: the password, where it is known already.
fn request(connect: Option<&str>, login: &Login, secret: Option<&str>) -> Request {
    let login = backend::Login { secret: secret.map(str::to_owned), ..login.to_backend() };
    Request { login, prompt: login::prompt, ..Request::of(connect) }
}

/// Opens what takes plans back. `secret`: the password, where it is known already.
pub fn open_actuator(
    plan: Option<&Plan>,
    connect: Option<&str>,
    login: &Login,
    secret: Option<&str>,
) -> Result<Box<dyn Actuate>, Fault> {
    if plan.is_some_and(is_of_host) {
        return Ok(Box::new(Knobs));
    }
    hypervisors::change(&request(connect, login, secret), None).map(|opened| opened.actuator)
}

/// Opens what the plan is applied with, and reads how the host is set up now.
fn open_for(plan: Plan, a: &Apply) -> Result<(Plan, HostConfig, Changing), Fault> {
    if is_of_host(&plan) {
        let now = plan.parent.clone();
        let actuator = Box::new(Knobs);
        let opened =
            Changing { actuator, now: None, plan: None, connect: None, secret: None, notes: Vec::new() };
        return Ok((plan, now, opened));
    }
    let mut opened = hypervisors::change(&request(a.connect.as_deref(), &a.login, None), Some(plan))?;
    tell(std::mem::take(&mut opened.notes));
    let plan = opened.plan.take().expect("a backend returns the plan that it was given");
    let now = opened.now.take().expect("a backend that is given a plan reads the settings");
    Ok((plan, now, opened))
}

/// Opens what changes this host, and reads how it is set up.
pub fn open(connect: Option<&str>) -> Result<(Box<dyn Actuate>, HostConfig), Fault> {
    let opened = hypervisors::change(&Request::of(connect), None)?;
    let now = opened.now.ok_or_else(|| {
        Fault::new(
            FaultKind::Unsupported,
            format!("cannot set weights on the host at {}", connect.unwrap_or("/")),
        )
        .help("use vsteer plan and vsteer apply there")
    })?;
    Ok((opened.actuator, now))
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
    let plan = read_plan(&a.plan)?;
    if a.confirm {
        let folder = journal_folder();
        let mut journal = Journal::open(&folder.join(format!("{}.journal", plan.id))).map_err(|fault| {
            if fault.kind != FaultKind::NothingThere {
                return fault;
            }
            let what = format!("{} holds no journal of plan {}", folder.display(), plan.id);
            Fault::new(FaultKind::NothingThere, what)
                .help("confirm as the user who applied it, for example with sudo")
        })?;
        confirm(&mut journal)?;
        eprintln!("vsteer: plan {} stays applied", plan.id);
        return Ok(());
    }
    if plan.steps.is_empty() {
        eprintln!("vsteer: plan {} has no steps: {}", plan.id, message(&plan.title));
        return Ok(());
    }
    let typed: Vec<&str> = a.connect.iter().chain(&a.trust_uri).map(String::as_str).collect();
    plan.check_uris(&typed)?;
    let (plan, now, Changing { mut actuator, connect, secret, .. }) = open_for(plan, a)?;
    if plan.steps.is_empty() {
        eprintln!("vsteer: plan {} is already in force: nothing to do", plan.id);
        return Ok(());
    }
    if !a.yes && a.try_for.is_none() {
        return dry_run(&plan, &now, actuator.as_mut(), json);
    }
    let interrupt = Interrupt::listen_to_undo();
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
        println!("{}", message(line));
    }
    match a.try_for {
        Some(after) => println!(
            "applied for {:.0} s\n  keep it:  vsteer apply {} --confirm\n  undo now: vsteer rollback {}",
            after.as_secs_f64(),
            a.plan.display(),
            receipt.plan
        ),
        None => println!("applied\n  undo: vsteer rollback {}", receipt.plan),
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
        let verb = if p.ready { "would change" } else { "cannot change" };
        println!("{verb} {}", message(&format!("{}: {}", p.step.whose(), p.step.change)));
        p.touches.iter().for_each(|line| println!("  {}", message(line)));
        if let Some(found) = &p.found {
            println!("  present value: {}", message(found));
        }
        if let Some(why) = &p.unread {
            println!("  present value: not read, because {}", message(why));
        }
    }
    for line in &plan.irreversible {
        println!("cannot be undone: {}", message(line));
    }
    for line in &plan.contested {
        println!("may not last: {}", message(line));
    }
    if let Some(fault) = refused {
        return Err(fault);
    }
    println!(
        "Dry run: pass --yes to apply these changes, or --try 60s to undo them after 60 s unless you confirm."
    );
    Ok(())
}

/// What a dry run that finds a step that cannot be made says at last.
fn could_not(plan: &Plan, p: &Preview, kind: FaultKind) -> Fault {
    let found = p.found.as_deref().unwrap_or_default();
    Fault::new(kind, format!("cannot apply plan {}; nothing was changed", plan.id))
        .because(format!("{}: {}: found: {found}", p.step.whose(), p.step.change))
        .help("make a new plan for the present state: vsteer plan -o plan.json")
}

/// The watchdog's own command: `__watchdog JOURNAL DEADLINE PID`.
///
/// # Errors
/// As [`vsteer_act::watch`].
pub fn watchdog(words: &[String]) -> Result<(), Fault> {
    let usage = || Fault::new(FaultKind::Usage, "only `vsteer apply --try` starts the watchdog");
    let [_, journal, deadline, applying] = words else { return Err(usage()) };
    let deadline = deadline.parse().map_err(|_| usage())?;
    let applying = Applying::new(applying.parse().map_err(|_| usage())?);
    // A shutdown of the host asks it to end, and must not keep what nobody confirmed.
    let interrupt = Interrupt::listen_to_undo();
    // What is told by nobody else: it was typed, or came by a pipe.
    let secret = std::io::read_to_string(std::io::stdin()).unwrap_or_default();
    let secret = Some(secret.as_str()).filter(|s| !s.is_empty());
    let open =
        |plan: Option<&Plan>, connect: Option<&str>| open_actuator(plan, connect, &Login::default(), secret);
    vsteer_act::watch(journal.as_ref(), deadline, &applying, || interrupt.is_set(), open)
}
