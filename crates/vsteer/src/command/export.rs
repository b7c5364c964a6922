//! `vsteer export`: converts a recording to another format.

use crate::cli::Export;
use vsteer_core::Fault;
use vsteer_record::export::Input;

/// Exports.
///
/// # Errors
/// `Usage` when the output exists; `BadInput` for what is no recording; when the output cannot be written.
pub fn run(a: &Export, json: bool) -> Result<(), Fault> {
    let read = || crate::source::read(&a.recording);
    let notes = (a.to.write)(&Input { path: &a.recording, read: &read }, &a.output)?;
    notes.iter().for_each(crate::text::note);
    if json {
        crate::text::print_json(&serde_json::json!({ "output": a.output, "notes": notes }));
    } else {
        eprintln!("vsteer: wrote {}", a.output.display());
    }
    Ok(())
}
