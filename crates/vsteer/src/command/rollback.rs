//! `vsteer rollback`: takes back what `apply` did, also after a crash.

use super::apply::open_actuator;
use crate::cli::Rollback;
use std::path::Path;
use vsteer_act::{Journal, Receipt, journal_folder, rollback};
use vsteer_core::{Fault, FaultKind};

/// Rolls back.
///
/// # Errors
/// `NothingThere` when nothing is applied; `Changed` for a plan whose settings a later one has set since; else as
/// [`vsteer_act::rollback`], of the first that could not be taken back: it keeps no other.
pub fn run(a: &Rollback, json: bool) -> Result<(), Fault> {
    let folder = journal_folder();
    let journals = match &a.id {
        Some(id) => vec![folder.join(format!("{id}.journal"))],
        None => Journal::pending(&folder)?,
    };
    if journals.is_empty() {
        return Err(Fault::new(FaultKind::NothingThere, "nothing is applied")
            .because(format!("no open journal in {}", folder.display())));
    }
    let (mut receipts, mut faults) = (Vec::new(), Vec::new());
    for path in &journals {
        match take_back(path, a) {
            Ok(receipt) => receipts.push(receipt),
            Err(fault) => faults.push(fault),
        }
    }
    if json {
        crate::text::print_json(&receipts);
    } else {
        for r in &receipts {
            r.steps.iter().for_each(|line| println!("{line}"));
            println!("plan {} is taken back", r.plan);
        }
    }
    let mut faults = faults.into_iter();
    let first = faults.next();
    faults.for_each(|fault| eprintln!("vsteer: {fault}"));
    first.map_or(Ok(()), Err)
}

fn take_back(path: &Path, a: &Rollback) -> Result<Receipt, Fault> {
    let mut journal = Journal::open(path)?;
    let later = journal.set_later_by()?;
    if let (Some(newest), Some((plan, _))) = (later.first(), journal.plan()) {
        let fault = Fault::new(FaultKind::Changed, format!("plan {} is not taken back", plan.id))
            .because(format!("what it set was set since by plan {}", later.join(", plan ")));
        return Err(fault.help(format!("first the newer: vsteer rollback {newest}")));
    }
    let connect = a.connect.clone().or_else(|| journal.plan().and_then(|(_, c)| c.map(str::to_owned)));
    let plan = journal.plan().map(|(plan, _)| plan);
    let mut actuator = open_actuator(plan, connect.as_deref(), &a.login, None)?;
    rollback(&mut journal, actuator.as_mut())
}
