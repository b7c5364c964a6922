//! `vsteer export`: converts a recording to another format.

use crate::cli::{Export, Format};
use vsteer_core::Fault;
use vsteer_record::export;

/// Exports.
///
/// # Errors
/// `Usage` when the output exists; `BadInput` for what is no recording; when the output cannot be written.
pub fn run(a: &Export, json: bool) -> Result<(), Fault> {
    let notes = match a.to {
        Format::Zip => export::zip(&a.recording, &a.output).map(|()| Vec::new())?,
        Format::Parquet => export::parquet(&crate::source::read(&a.recording)?, &a.output)?,
        Format::Csv => export::csv(&crate::source::read(&a.recording)?, &a.output)?,
        Format::Esxtop => {
            export::esxtop(&crate::source::read(&a.recording)?, &a.output).map(|()| Vec::new())?
        }
        Format::Perfetto => {
            export::perfetto(&crate::source::read(&a.recording)?, &a.output).map(|()| Vec::new())?
        }
    };
    notes.iter().for_each(crate::text::note);
    if json {
        crate::text::print_json(&serde_json::json!({ "output": a.output, "notes": notes }));
    } else {
        eprintln!("vsteer: wrote {}", a.output.display());
    }
    Ok(())
}
