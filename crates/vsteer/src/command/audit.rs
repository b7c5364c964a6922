//! `vsteer audit`: is this host or guest set up well for VMs?

use crate::cli::Audit;
use crate::text::{folded, one_line};
use vsteer_core::Fault;
use vsteer_core::plural::counted;
use vsteer_experiment::audit::{Instead, State, WANTED, audit, instead};
use vsteer_host::root::Root;

/// Files that could not be read: as many are named, for as somebody who is not root there may be many.
const UNREAD_SHOWN: usize = 5;

/// Looks.
///
/// # Errors
/// If the folder or the profile does not exist, or vsteer cannot write a capture.
pub fn run(a: &Audit, json: bool) -> Result<(), Fault> {
    let root = Root::open(&a.root)?;
    let tree = vsteer_host::tree::read(&root, &WANTED);
    if let Some(folder) = &a.capture {
        vsteer_host::tree::capture(&tree, folder)?;
        eprintln!("vsteer: copied {} to {}", counted(tree.files.len(), "file"), folder.display());
        return Ok(());
    }
    if let Some(profile) = &a.as_profile {
        let told = instead(&tree, profile)?;
        if json {
            crate::text::print_json(&told);
        } else {
            print!("{}", would_change(&told, a.all));
        }
        return Ok(());
    }
    let found = audit(&tree);
    if json {
        crate::text::print_json(&serde_json::json!({ "findings": found, "unread": tree.unread }));
        return Ok(());
    }
    let count = |s: State| found.iter().filter(|f| f.state == s).count();
    println!(
        "{} settings: {} need a change, {} are right, {} do not apply{}",
        found.len(),
        count(State::Not),
        count(State::AsItShould),
        count(State::DoesNotApply),
        if a.all { "" } else { " (--all lists them)" }
    );
    for f in &found {
        let sign = match f.state {
            State::Not => "✗",
            State::AsItShould if a.all => "✓",
            State::DoesNotApply if a.all => "–",
            _ => continue,
        };
        println!("{sign} {}: {}   [{}]", one_line(&f.setting), one_line(&f.value), f.check);
        print!("{}", folded(&f.reason, "    ", 110));
        for (word, text) in [("change", &f.change), ("risk", &f.risk), ("undo", &f.undo)] {
            if let Some(text) = text {
                print!("{}", folded(&format!("{word}: {text}"), "    ", 110));
            }
        }
    }
    for (file, why) in tree.unread.iter().take(UNREAD_SHOWN) {
        println!("not read: {file}: {why}");
    }
    if let Some(more @ 1..) = tree.unread.len().checked_sub(UNREAD_SHOWN) {
        println!("not read: {more} more files (--json lists them)");
    }
    Ok(())
}

/// What a profile would change.
fn would_change(told: &Instead, all: bool) -> String {
    let changes = told.settings.iter().filter(|s| s.changes).count();
    let mut text = format!(
        "tuned's profile {} would change {changes} of {} that this machine has\n",
        one_line(&told.profile),
        counted(told.settings.len(), "setting")
    );
    let shown = told.settings.iter().filter(|s| all || s.changes);
    let lines: Vec<[String; 2]> = shown
        .map(|s| {
            let change =
                if s.changes { format!("{} -> {}", s.now, s.then) } else { format!("{} (stays)", s.now) };
            [one_line(&s.key), one_line(&change)]
        })
        .collect();
    let width = lines.iter().map(|[key, _]| key.chars().count()).max().unwrap_or(0);
    for [key, change] in lines {
        text += &format!("  {key:<width$}  {change}\n");
    }
    for (settings, why) in [
        (&told.passed_over, "not on this machine, so tuned passes over"),
        (&told.not_compared, "not compared"),
    ] {
        if !settings.is_empty() {
            let named: Vec<String> = settings.iter().map(|s| one_line(s)).collect();
            text += &folded(&format!("{why}: {}", named.join(", ")), "  ", 110);
        }
    }
    for note in &told.notes {
        text += &folded(&format!("note: {note}"), "", 110);
    }
    text
}
