//! `vsteer export`: converts a recording to another format.

use crate::cli::Export;
use crate::scenario::rt_app;
use vsteer_core::{Fault, FaultKind};
use vsteer_record::export::{FORMATS, Format, Input};

/// The format of this name.
fn format(name: &str) -> Result<&'static Format, Fault> {
    let mut all = FORMATS.iter().chain(std::iter::once(&rt_app::FORMAT));
    all.find(|f| f.name == name)
        .ok_or_else(|| Fault::new(FaultKind::Usage, format!("{name:?} is not a format")))
}

/// Exports.
///
/// # Errors
/// `Usage` when the output exists; `BadInput` for what is no recording; when the output cannot be written.
pub fn run(a: &Export, json: bool) -> Result<(), Fault> {
    let read = || crate::source::read(&a.recording);
    let notes = (format(&a.to)?.write)(&Input { path: &a.recording, read: &read }, &a.output)?;
    notes.iter().for_each(crate::text::note);
    if json {
        crate::text::print_json(&serde_json::json!({ "output": a.output, "notes": notes }));
    } else {
        eprintln!("vsteer: wrote {}", a.output.display());
    }
    Ok(())
}
