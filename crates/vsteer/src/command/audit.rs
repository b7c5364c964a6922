//! `vsteer audit`: is this host or guest set up well for VMs?

use crate::cli::Audit;
use crate::text::{folded, one_line};
use vsteer_core::Fault;
use vsteer_core::plural::counted;
use vsteer_experiment::audit::{State, WANTED, audit};
use vsteer_host::root::Root;

/// Files that could not be read: as many are named, for as somebody who is not root there may be many.
const UNREAD_SHOWN: usize = 5;

/// Looks.
///
/// # Errors
/// When there is no such folder, or a capture cannot be written.
pub fn run(a: &Audit, json: bool) -> Result<(), Fault> {
    let root = Root::open(&a.root)?;
    let tree = vsteer_host::tree::read(&root, &WANTED);
    if let Some(folder) = &a.capture {
        vsteer_host::tree::capture(&tree, folder)?;
        eprintln!("vsteer: copied {} to {}", counted(tree.files.len(), "file"), folder.display());
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
