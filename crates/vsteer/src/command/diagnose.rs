//! `vsteer diagnose`: what makes which VM wait, and why?

use crate::cli::Diagnose;
use crate::source::Stretch;
use crate::{source, text};
use serde_json::{Value, json};
use std::process::ExitCode;
use vsteer_core::Fault;
use vsteer_core::diagnose::{Finding, diagnose};
use vsteer_core::model::HostModel;
use vsteer_core::plural::counted;
use vsteer_core::thresholds::Thresholds;

/// Diagnoses. `thresholds`: those of the configuration.
///
/// # Errors
/// As [`source::window`].
pub fn run(a: &Diagnose, mut thresholds: Thresholds, json: bool) -> Result<ExitCode, Fault> {
    if let (Some(folder), None) = (&a.window.recording, &a.window.at)
        && folder.is_dir()
    {
        let marks = vsteer_record::read_marks(folder)?.len();
        if marks > 0 {
            eprintln!(
                "vsteer: the recording has {}; to list them: vsteer replay {} --marks",
                counted(marks, "mark"),
                folder.display()
            );
        }
    }
    a.threshold.iter().try_for_each(|(name, share)| thresholds.set(name, *share))?;
    #[cfg(feature = "host")]
    if a.window.recording.is_none() && a.window.source.is_several() {
        return several(a, thresholds, json);
    }
    if let (None, Some(at)) = (&a.window.recording, &a.window.at) {
        super::past::run(at, &crate::settings::history(a.folder.as_deref()), thresholds, json)?;
        return Ok(ExitCode::SUCCESS);
    }
    let part = Part::of(source::window(&a.window)?, thresholds)?;
    if json {
        text::print_json(&part.json());
    } else {
        print!("{}", part.text(a.why));
    }
    Ok(ExitCode::SUCCESS)
}

/// What is found on one host.
struct Part {
    seconds: f64,
    findings: Vec<Finding>,
    model: HostModel,
}

impl Part {
    fn of(stretch: Stretch, thresholds: Thresholds) -> Result<Part, Fault> {
        let model = stretch.model()?;
        let findings = diagnose(&stretch.config, &model, thresholds);
        Ok(Part { seconds: stretch.seconds(), findings, model })
    }

    fn json(&self) -> Value {
        json!({ "window_s": self.seconds, "findings": self.findings, "model": self.model })
    }

    fn text(&self, why: bool) -> String {
        text::findings(&self.findings, self.seconds, &self.model.collector, why)
    }

    /// pCPU time that the worst finding says is lost.
    #[cfg(feature = "host")]
    fn worst(&self) -> f64 {
        self.findings.iter().map(|f| f.loss_pcpus).fold(0.0, f64::max)
    }
}

/// Several hosts, the one with the worst loss first. Those that failed come last.
#[cfg(feature = "host")]
fn several(a: &Diagnose, thresholds: Thresholds, json: bool) -> Result<ExitCode, Fault> {
    let mut failed = source::Failed::default();
    let (mut parts, mut faults) = (Vec::new(), Vec::new());
    for (name, seen) in source::observe_each(&a.window.source, a.window.length)? {
        match seen.and_then(|stretch| Part::of(stretch, thresholds)) {
            Ok(part) => parts.push((name, part)),
            Err(fault) => {
                failed.say(&name, &fault, false);
                faults.push(json!({ "host": name, "fault": fault }));
            }
        }
    }
    parts.sort_by(|(_, x), (_, y)| y.worst().total_cmp(&x.worst()));
    if json {
        let with_name = |(name, part): &(String, Part)| {
            let mut of = part.json();
            of["host"] = json!(name);
            of
        };
        let all: Vec<Value> = parts.iter().map(with_name).chain(faults).collect();
        text::print_json(&all);
    } else {
        let of =
            |(name, part): &(String, Part)| format!("host {}\n{}", text::one_line(name), part.text(a.why));
        print!("{}", parts.iter().map(of).collect::<Vec<_>>().join("\n"));
    }
    Ok(failed.code())
}
