//! `vsteer diagnose`: what makes which VM wait, and why?

use crate::cli::Diagnose;
use crate::{source, text};
use vsteer_core::Fault;
use vsteer_core::diagnose::diagnose;
use vsteer_core::thresholds::Thresholds;

/// Diagnoses. `thresholds`: those of the configuration.
///
/// # Errors
/// As [`source::window`].
pub fn run(a: &Diagnose, mut thresholds: Thresholds, json: bool) -> Result<(), Fault> {
    if let (Some(folder), None) = (&a.window.recording, &a.window.at)
        && folder.is_dir()
    {
        let marks = vsteer_record::read_marks(folder)?.len();
        if marks > 0 {
            eprintln!(
                "vsteer: the recording has {marks} marks; to list them: vsteer replay {} --marks",
                folder.display()
            );
        }
    }
    let stretch = source::window(&a.window)?;
    let model = stretch.model()?;
    a.threshold.iter().try_for_each(|(name, share)| thresholds.set(name, *share))?;
    let findings = diagnose(&stretch.config, &model, thresholds);
    if json {
        crate::text::print_json(
            &serde_json::json!({ "window_s": stretch.seconds(), "findings": findings, "model": model }),
        );
    } else {
        print!("{}", text::findings(&findings, stretch.seconds(), &model.collector));
    }
    Ok(())
}
