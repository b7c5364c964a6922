//! Applies a plan step by step, and undoes it from whatever point was reached.
//!
//! For each step vsteer checks that the setting has the value in the plan, writes and syncs the undo, makes the change
//! and reads the setting back. If anything fails, vsteer undoes all steps and reports that. Each change and each undo
//! is a line of the system's log.

use crate::journal::{Entry, Journal, State};
use crate::system_log::{self, By};
use crate::watchdog::unix_ns;
use serde::{Deserialize, Serialize};
use std::path::Path;
use vsteer_core::nouns::HostConfig;
use vsteer_core::plan::{PLAN_VERSION, Plan};
use vsteer_core::plural::counted;
use vsteer_core::setting::{Change, Step};
use vsteer_core::{Fault, FaultKind};
use vsteer_host::actuate::{Actuate, Restored};

/// The result of an apply or a rollback.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Receipt {
    /// The plan's id: `vsteer rollback ID`.
    pub plan: String,
    /// State of the plan: `applied` or `rolled_back`.
    pub state: String,
    /// What vsteer did, one line per step.
    pub steps: Vec<String>,
    /// Path of the journal.
    pub journal: std::path::PathBuf,
}

/// One step of a dry run, with the setting's present value.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Preview {
    /// The step that was checked.
    pub step: Step,
    /// Does the setting have the value that the plan expects?
    pub ready: bool,
    /// The present value if it differs, or why vsteer cannot read it.
    pub found: Option<String>,
    /// Class of the fault that prevents the step. `None` also if an earlier step of the same VM may be what makes this
    /// step possible.
    #[serde(skip)]
    pub refused: Option<FaultKind>,
    /// What the step touches outside vsteer: files, commands, machines and connections, one line each.
    #[serde(default)]
    pub touches: Vec<String>,
    /// Why the present value was not read, if so: that would run or open what the plan names.
    #[serde(default)]
    pub unread: Option<String>,
}

/// Checks that this is the host, in the state, for which the plan was made.
///
/// # Errors
/// `Changed` with every difference, `BadInput` for a plan of a newer form.
fn check_parent(plan: &Plan, now: &HostConfig) -> Result<(), Fault> {
    if plan.version > PLAN_VERSION {
        let fault = Fault::new(
            FaultKind::BadInput,
            format!("cannot read plan {}: it has format {}", plan.id, plan.version),
        );
        return Err(fault.help(format!("use a newer vsteer: this one reads formats up to {PLAN_VERSION}")));
    }
    let differences = plan.parent.differences(now);
    if differences.is_empty() {
        return Ok(());
    }
    if plan.parent.is_simulated() {
        let what = format!("cannot apply plan {}: it was made for a simulated host", plan.id);
        return Err(Fault::new(FaultKind::Changed, what)
            .help("make a plan on the host that you want to change: vsteer plan -o plan.json"));
    }
    let shown: Vec<String> = differences.iter().take(8).map(|d| format!("\n    {d}")).collect();
    let more = differences.len().saturating_sub(8);
    let tail = if more > 0 { format!("\n    and {more} more") } else { String::new() };
    Err(Fault::new(
        FaultKind::Changed,
        format!("plan {} does not match the present state of this host", plan.id),
    )
    .because(format!("{}:{}{tail}", counted(differences.len(), "difference"), shown.concat()))
    .help("make a new plan: vsteer plan -o plan.json"))
}

/// What a step touches outside vsteer: what it names itself, else what the actuator uses for it.
fn touches(step: &Step, actuator: &mut dyn Actuate) -> Vec<String> {
    let own = step.change.touches();
    if own.is_empty() { actuator.touches(step) } else { own }
}

/// Reports what every step would find; changes nothing, runs no program and opens no connection that the plan names.
///
/// # Errors
/// As [`apply`], before anything is changed.
pub fn preview(plan: &Plan, now: &HostConfig, actuator: &mut dyn Actuate) -> Result<Vec<Preview>, Fault> {
    check_parent(plan, now)?;
    let mut all = Vec::new();
    for (i, step) in plan.steps.iter().enumerate() {
        if let Some(why) = step.change.unread() {
            let touches = touches(step, actuator);
            all.push(Preview {
                step: step.clone(),
                ready: true,
                found: None,
                refused: None,
                touches,
                unread: Some(why.to_owned()),
            });
            continue;
        }
        let now = actuator.refusal(step, plan.scope).and_then(|()| actuator.current(step));
        let (found, refused) = match now {
            Ok(current) if step.change.same_before(&current) => (None, None),
            Ok(current) => {
                let awaits = plan.steps[..i].iter().any(|before| entangled(before, step));
                (Some(current.before()), (!awaits).then_some(FaultKind::Changed))
            }
            Err(fault) => (Some(fault.to_string()), Some(fault.kind)),
        };
        let touches = touches(step, actuator);
        all.push(Preview {
            step: step.clone(),
            ready: found.is_none(),
            found,
            refused,
            touches,
            unread: None,
        });
    }
    if all.iter().all(|preview| preview.refused.is_none()) {
        actuator.refusal_together(&plan.steps, plan.scope)?;
    }
    Ok(all)
}

/// Parameters of an apply or a rollback.
#[derive(Debug, Clone, Copy)]
pub struct Setting<'a> {
    /// Folder of the journal.
    pub folder: &'a Path,
    /// libvirt connection URI, kept in the journal for the rollback.
    pub connect: Option<&'a str>,
    /// Wall-clock time, ns since 1970 UTC.
    pub unix_ns: u64,
}

/// Applies `plan`. Calls `arm` after the journal begins and before the first step: `--try` starts its watchdog there.
/// Asks `interrupted` before every step.
///
/// # Errors
/// Before any change: `Changed` if the host differs from the plan; as [`Actuate::refusal`]. Afterwards: `NotApplied` or
/// `Interrupted` if a step failed, the user interrupted or the deadline of `--try` passed. Then vsteer has undone all
/// steps, or the fault names those it could not undo.
pub fn apply(
    plan: &Plan,
    now: &HostConfig,
    actuator: &mut dyn Actuate,
    setting: Setting<'_>,
    arm: impl FnOnce(&mut Journal) -> Result<(), Fault>,
    interrupted: impl Fn() -> bool,
) -> Result<Receipt, Fault> {
    check_parent(plan, now)?;
    // Refuse impossible steps before any change, not in the middle.
    plan.steps.iter().try_for_each(|step| actuator.refusal(step, plan.scope))?;
    actuator.refusal_together(&plan.steps, plan.scope)?;
    let mut journal = Journal::begin(setting.folder, plan, setting.connect, setting.unix_ns)?;
    let mut lines = Vec::new();
    let result = arm(&mut journal).and_then(|()| {
        for (i, step) in plan.steps.iter().enumerate() {
            if interrupted() {
                return Err(Fault::new(
                    FaultKind::Interrupted,
                    format!("interrupted while applying plan {}", plan.id),
                ));
            }
            in_time(&journal)?;
            let made = make_step(i, step, plan, actuator, &mut journal);
            system_log::made(By::Apply, &plan.id, step, &made);
            made?;
            lines.push(format!("{}: {}", step.whose(), step.change));
        }
        in_time(&journal)?;
        journal.write(Entry::Applied)
    });
    match result {
        Ok(()) => Ok(Receipt {
            plan: plan.id.clone(),
            state: "applied".to_owned(),
            steps: lines,
            journal: journal.path().to_owned(),
        }),
        Err(fault) => {
            let kind = if fault.kind == FaultKind::Interrupted { fault.kind } else { FaultKind::NotApplied };
            let outcome = match undo_all(&mut journal, actuator, By::Apply) {
                Ok(_) => "no change of it remains".to_owned(),
                Err(e) => {
                    format!("vsteer could not undo all its steps: {e}; run vsteer rollback {}", plan.id)
                }
            };
            Err(Fault {
                kind,
                what: format!("plan {} was not applied, and {outcome}", plan.id),
                ..fault.clone()
            }
            .because(format!(
                "{}{}",
                fault.what,
                fault.cause.map_or(String::new(), |c| format!(": {c}"))
            )))
        }
    }
}

/// Is there still time to confirm? After the deadline the watchdog waits only for the journal, and would at once undo
/// the steps that the person believes to be in force.
fn in_time(journal: &Journal) -> Result<(), Fault> {
    if journal.deadline_unix_ns().is_none_or(|deadline| unix_ns() < deadline) {
        return Ok(());
    }
    let late =
        Fault::new(FaultKind::NotApplied, "the time of --try ended before vsteer had applied every step");
    Err(late.help("allow more time, for example --try 5m"))
}

fn make_step(
    i: usize,
    step: &Step,
    plan: &Plan,
    actuator: &mut dyn Actuate,
    journal: &mut Journal,
) -> Result<(), Fault> {
    let of = || format!("step {} ({}, {})", i + 1, step.whose(), step.change);
    let current = actuator.current(step)?;
    if !step.change.same_before(&current) {
        return Err(Fault::new(FaultKind::Changed, of())
            .because(format!("the present value is {}", current.before())));
    }
    let former = actuator.former(step, plan.scope)?;
    journal.write(Entry::Intent { step: i, former: Box::new(former) })?;
    actuator.act(step, plan.scope)?;
    if plan.scope.live() {
        let after = actuator.current(step)?;
        if !step.change.is_reached(&after) {
            return Err(Fault::new(FaultKind::NotApplied, of())
                .because(format!("the host accepted the change, but the value is {}", after.before())));
        }
    }
    journal.write(Entry::Done { step: i })
}

/// Could undoing one of these, while the other is in force, leave a state that never existed?
fn entangled(a: &Step, b: &Step) -> bool {
    // Budgets belong to cgroups, which VMs share.
    let budget = |s: &Step| matches!(s.change, Change::RtBudget(_));
    a.vm == b.vm || (budget(a) && budget(b))
}

/// Undoes every step that may have been made, newest first. A step that cannot be undone blocks older steps of its own
/// VM only. A journal that cannot be written blocks none.
fn undo_all(journal: &mut Journal, actuator: &mut dyn Actuate, by: By) -> Result<Vec<String>, Fault> {
    let Some((plan, _)) = journal.plan() else {
        // No step was made: the journal ends in its first line.
        journal.write(Entry::RolledBack)?;
        return Ok(Vec::new());
    };
    let plan = plan.clone();
    let (mut lines, mut kept): (Vec<String>, Vec<&Step>) = (Vec::new(), Vec::new());
    let (mut refused, mut unwritten): (Option<Fault>, Option<Fault>) = (None, None);
    for (i, former) in journal.to_undo() {
        let step = &plan.steps[i];
        if kept.iter().any(|newer| entangled(newer, step)) {
            kept.push(step);
            continue;
        }
        // Restoring an unchanged setting does no harm, so vsteer need not know how far the step came.
        let restored = actuator.restore(step, &former);
        system_log::undone(by, &plan.id, step, &restored);
        let (line, note) = match restored {
            Ok(Restored::Back) => (format!("undone: {}", step.change), None),
            Ok(Restored::Defined(why)) => {
                let of = &step.change;
                (format!("undone in the definition: {of}; not undone in the running VM: {why}"), Some(why))
            }
            // The settings of a thread or VM end with it.
            Ok(Restored::Gone(why)) => (format!("nothing to undo: {why}"), Some(why)),
            // Whatever the fault: a manager that does not answer does not mean that the VM is gone.
            Err(fault) => {
                kept.push(step);
                refused.get_or_insert(fault);
                continue;
            }
        };
        lines.push(format!("{}: {line}", step.whose()));
        // After one failed entry vsteer writes no more: a later rollback then repeats all steps from there, in order.
        if unwritten.is_none() {
            unwritten = journal.write(Entry::Undone { step: i, note }).err();
        }
    }
    match (refused, unwritten) {
        (Some(fault), _) => Err(fault),
        (None, Some(fault)) => {
            let what =
                format!("vsteer undid every step, but cannot record that in the journal: {}", fault.what);
            Err(Fault { what, ..fault })
        }
        (None, None) => journal.write(Entry::RolledBack).map(|()| lines),
    }
}

/// Steps of an applied plan whose setting somebody else changed since, one line each: undoing them would overwrite that
/// change. Empty for a plan that was not applied completely: a step that went wrong leaves other values.
/// A value that cannot be read is not a conflict: the undo then reports why.
pub fn conflicts(journal: &Journal, actuator: &mut dyn Actuate) -> Vec<String> {
    let Some((plan, _)) = journal.plan() else { return Vec::new() };
    let again = journal.entries().iter().any(|e| matches!(e, Entry::Again { .. } | Entry::Guarded { .. }));
    if journal.state() != State::Applied || again {
        return Vec::new();
    }
    let plan = plan.clone();
    let mut lines = Vec::new();
    // The newest first; of several steps of one setting only the newest is in force.
    let mut seen: Vec<&Step> = Vec::new();
    for (i, former) in journal.to_undo() {
        let step = &plan.steps[i];
        // Of a definition alone, only options of Proxmox VE can be compared one by one.
        if (plan.scope.live() || former.qm.is_some())
            && !seen.iter().any(|newer| newer.sets_what(step))
            && let Some(now) = actuator.changed_since(step, &former)
        {
            lines.push(format!("{}: {}: the present value is {now}", step.whose(), step.change));
        }
        seen.push(step);
    }
    lines
}

/// Undoes every step that the journal lists as possibly made. Safe to call again after a kill. `by`: for the system's
/// log.
///
/// # Errors
/// If a setting cannot be restored; the journal then still lists the remaining steps.
pub fn rollback(journal: &mut Journal, actuator: &mut dyn Actuate, by: By) -> Result<Receipt, Fault> {
    // For a journal that ends in its first line only the file's name is known.
    let name = || journal.path().file_stem().map_or_else(String::new, |s| s.to_string_lossy().into_owned());
    let id = journal.plan().map_or_else(name, |(p, _)| p.id.clone());
    let steps =
        if journal.state() == State::RolledBack { Vec::new() } else { undo_all(journal, actuator, by)? };
    Ok(Receipt { plan: id, state: "rolled_back".to_owned(), steps, journal: journal.path().to_owned() })
}
