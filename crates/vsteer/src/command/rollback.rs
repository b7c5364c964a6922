//! `vsteer rollback`: takes back what `apply` did, also after a crash.

use super::apply::open_actuator;
use crate::cli::Rollback;
use vsteer_act::{Journal, journal_folder, rollback};
use vsteer_core::{Fault, FaultKind};

/// Rolls back.
///
/// # Errors
/// `NothingThere` when nothing is applied; else as [`vsteer_act::rollback`].
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
    let mut receipts = Vec::new();
    // What was taken back is said also where a later plan cannot be.
    let result = journals.iter().try_for_each(|path| {
        let mut journal = Journal::open(path)?;
        let connect = a.connect.clone().or_else(|| journal.plan().and_then(|(_, c)| c.map(str::to_owned)));
        let plan = journal.plan().map(|(plan, _)| plan);
        let mut actuator = open_actuator(plan, connect.as_deref(), &a.login, None)?;
        receipts.push(rollback(&mut journal, actuator.as_mut())?);
        Ok(())
    });
    if json {
        super::print_json(&receipts);
    } else {
        for r in &receipts {
            r.steps.iter().for_each(|line| println!("{line}"));
            println!("plan {} is taken back", r.plan);
        }
    }
    result
}
