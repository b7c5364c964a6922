//! `vsteer rollback`: undoes what `apply` changed, even after a crash.

use super::apply::open_actuator;
use crate::cli::Rollback;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};
use vsteer_act::{By, Journal, Receipt, State, Summary, conflicts, journal_folder, rollback};
use vsteer_core::plan::Plan;
use vsteer_core::visible::message;
use vsteer_core::{Fault, FaultKind};
use vsteer_record::applied;

/// Rolls back.
///
/// # Errors
/// `NothingThere` when nothing is applied; `Changed` for a plan whose settings a later one has set since; else as
/// [`vsteer_act::rollback`], of the first that could not be taken back: it keeps no other.
pub fn run(a: &Rollback, json: bool) -> Result<(), Fault> {
    let folder = journal_folder();
    // A variable that names the folder is meant for this run alone.
    if std::env::var_os("VSTEER_STATE").is_none() {
        open_elsewhere(&folder, &applied::usual_folder()).iter().for_each(crate::text::note);
    }
    let journals = match &a.id {
        Some(id) => vec![journal_of(id, &folder)?],
        None => Journal::pending(&folder)?,
    };
    if journals.is_empty() {
        return Err(nothing(&folder));
    }
    if a.list {
        return list(&journals, &folder, json);
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
            r.steps.iter().for_each(|line| println!("{}", message(line)));
            println!("plan {} is undone", r.plan);
        }
    }
    the_first_of(faults)
}

/// Says if plans were applied before the configuration named another folder: this command does not undo these.
fn open_elsewhere(folder: &Path, usual: &Path) -> Option<String> {
    if folder == usual || !Journal::pending(usual).is_ok_and(|open| !open.is_empty()) {
        return None;
    }
    let state = usual.parent()?.display();
    Some(format!("{state} has open journals too; to undo them: VSTEER_STATE={state} vsteer rollback"))
}

fn nothing(folder: &Path) -> Fault {
    Fault::new(FaultKind::NothingThere, "no plan is applied")
        .because(format!("{} has no open journal", folder.display()))
        .help("if `vsteer apply` had VSTEER_STATE or another configuration, use it here too")
}

/// Prints all faults but the first, which the caller prints.
fn the_first_of(faults: Vec<Fault>) -> Result<(), Fault> {
    let mut faults = faults.into_iter();
    let first = faults.next();
    faults.for_each(|fault| eprintln!("vsteer: {}", message(&fault.to_string())));
    first.map_or(Ok(()), Err)
}

/// Lists what a rollback would undo. A journal that cannot be read is a fault, because its plan may be applied.
fn list(journals: &[PathBuf], folder: &Path, json: bool) -> Result<(), Fault> {
    let (mut all, mut faults) = (Vec::new(), Vec::new());
    for path in journals {
        match Journal::summary(path) {
            Ok(summary) => all.extend(summary),
            Err(fault) => faults.push(fault),
        }
    }
    if all.is_empty() && faults.is_empty() {
        return Err(nothing(folder));
    }
    if json {
        crate::text::print_json(&all);
    } else {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos() as u64);
        all.iter().for_each(|s| print!("{}", message(&line(s, now))));
    }
    the_first_of(faults)
}

fn line(s: &Summary, now_unix_ns: u64) -> String {
    let state = match s.state {
        State::Applied => "applied",
        State::Unfinished => "unfinished",
        State::RolledBack => "undone",
    };
    let on =
        s.connect.as_ref().map_or_else(String::new, |uri| format!(", on {}", crate::text::one_line(uri)));
    let until = s.undone_at_unix_ns.map_or_else(String::new, |at| {
        let clock = crate::clock::text(at);
        if at < now_unix_ns {
            // A power cut, or a watchdog that still tries.
            format!("\n   should have been undone at {clock}; undo it: vsteer rollback {}", s.plan)
        } else {
            format!("\n   undone at {clock} unless confirmed")
        }
    });
    format!(
        "plan {}: {}\n   {state}, begun at {}{on}{until}\n",
        s.plan,
        crate::text::one_line(&s.title),
        crate::clock::text(s.begun_unix_ns)
    )
}

fn journal_of(id: &str, folder: &Path) -> Result<PathBuf, Fault> {
    Plan::check_id(id)?;
    let path = folder.join(format!("{id}.journal"));
    if path.exists() {
        return Ok(path);
    }
    Err(Fault::new(FaultKind::NothingThere, format!("plan {id} is not applied"))
        .because(format!("{} does not exist", path.display()))
        .help("to undo every applied plan: vsteer rollback"))
}

fn take_back(path: &Path, a: &Rollback) -> Result<Receipt, Fault> {
    let mut journal = Journal::open(path)?;
    let later = journal.set_later_by()?;
    if let (Some(newest), Some((plan, _))) = (later.first(), journal.plan()) {
        let fault = Fault::new(FaultKind::Changed, format!("cannot undo plan {}", plan.id))
            .because(format!("a newer plan changed the same settings: {}", later.join(", ")));
        return Err(fault.help(format!("undo the newer plan first: vsteer rollback {newest}")));
    }
    let connect = a.connect.clone().or_else(|| journal.plan().and_then(|(_, c)| c.map(str::to_owned)));
    let plan = journal.plan().map(|(plan, _)| plan);
    let mut actuator = open_actuator(plan, connect.as_deref(), &a.login, None)?;
    if !a.force {
        let conflicts = conflicts(&journal, actuator.as_mut());
        if !conflicts.is_empty() {
            let id = journal.plan().map_or_else(String::new, |(plan, _)| plan.id.clone());
            let lines: Vec<String> = conflicts.iter().map(|line| format!("\n    {line}")).collect();
            return Err(Fault::new(
                FaultKind::Changed,
                format!("cannot undo plan {id}; nothing was changed"),
            )
            .because(format!("somebody else changed these settings since:{}", lines.concat()))
            .help(format!("to overwrite them: vsteer rollback {id} --force")));
        }
    }
    rollback(&mut journal, actuator.as_mut(), By::Rollback)
}

#[cfg(test)]
#[path = "../../tests/common/mod.rs"]
mod common;

#[cfg(test)]
mod tests {
    use super::*;
    use vsteer_act::Entry;
    use vsteer_core::setting::knob::How;
    use vsteer_record::applied::Progress;

    #[test]
    fn open_journals_in_the_folder_that_was_configured_before_are_named() {
        let dir = tempfile::tempdir().unwrap();
        let (usual, other) = (dir.path().join("usual/journal"), dir.path().join("other/journal"));
        assert_eq!(open_elsewhere(&other, &usual), None, "neither folder is there");
        let how = How::File { path: "/nowhere".into() };
        let plan = common::plan("title", "knob", how, None, ("a", "b"));
        let mut journal = Journal::begin(&usual, &plan, None, 1).unwrap();
        journal.write(Entry::Applied).unwrap();
        drop(journal);
        let note = open_elsewhere(&other, &usual).unwrap();
        let state = dir.path().join("usual").display().to_string();
        assert!(note.contains(&format!("VSTEER_STATE={state} vsteer rollback")), "{note}");
        assert_eq!(open_elsewhere(&usual, &usual), None, "it is the folder that is looked into anyway");
        let file = Journal::pending(&usual).unwrap().remove(0);
        Journal::open(&file).unwrap().write(Entry::RolledBack).unwrap();
        assert_eq!(open_elsewhere(&other, &usual), None, "all are undone");
    }

    /// What writes journals and what lists them agree.
    #[test]
    fn a_list_knows_how_far_a_journal_came() {
        let dir = tempfile::tempdir().unwrap();
        let how = How::File { path: "/nowhere".into() };
        let plan = common::plan("title", "knob", how, None, ("a", "b"));
        let mut journal = Journal::begin(dir.path(), &plan, None, 7_000_000).unwrap();
        let path = journal.path().to_owned();
        let progress = || {
            let read = applied::read(&path).unwrap().unwrap();
            assert_eq!((&read.plan, read.begun_unix_ms), (&plan, 7));
            read.progress
        };
        assert_eq!(progress(), Progress::Begun);
        journal.write(Entry::Guarded { pid: 1 }).unwrap();
        assert_eq!(progress(), Progress::Held);
        journal.write(Entry::Applied).unwrap();
        assert_eq!(progress(), Progress::Applied);
        journal.write(Entry::Confirmed).unwrap();
        assert_eq!(progress(), Progress::Applied);
        journal.write(Entry::RolledBack).unwrap();
        assert_eq!(progress(), Progress::Undone);
        assert!(applied::is_journal(&path));
    }

    #[test]
    fn a_try_whose_time_is_over_asks_to_be_undone() {
        let summary = Summary {
            plan: "48f4".into(),
            title: "t".into(),
            state: State::Applied,
            connect: None,
            begun_unix_ns: 1_000_000_000,
            undone_at_unix_ns: Some(9_000_000_000),
            journal: PathBuf::new(),
        };
        assert!(line(&summary, 8_000_000_000).ends_with(" unless confirmed\n"));
        let late = line(&summary, 10_000_000_000);
        assert!(
            late.contains("should have been undone at") && late.ends_with("vsteer rollback 48f4\n"),
            "{late}"
        );
    }
}
