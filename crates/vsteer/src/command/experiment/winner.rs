//! What was better, as a plan: `vsteer apply` makes it, reads it back and journals it, `vsteer rollback` takes it back.
//!
//! Per factor the level that was better than the first by most, where one was. What is told instead of planned: levels of which an interaction was seen (their
//! effects are not what they are alone), words of the kernel's command line (they need a boot), and mitigations switched off, ever.
//!
//! GAP(experiment-plan): what is set by a plan lasts until somebody sets it otherwise or boots; no tuned profile, libvirt XML or boot loader's line is
//! generated for good.

use super::{begun, host};
use std::path::Path;
use vsteer_act::experiment::Log;
use vsteer_core::experiment::answers::Answer;
use vsteer_core::experiment::description::{Better, How};
use vsteer_core::experiment::{Outcome, answer};
use vsteer_core::nouns::VmId;
use vsteer_core::plan::{Change, Forecast, Plan, Scope, Step};
use vsteer_core::{Fault, FaultKind};

/// Writes it.
///
/// # Errors
/// `NothingThere` where nothing that can be planned was better; when a setting cannot be read or the file not be written.
pub fn write(folder: &Path, file: &Path) -> Result<(), Fault> {
    let log = Log::read(folder)?;
    let experiment = begun(&log)?;
    let laid = experiment.laid()?;
    let answers = answer(experiment, &laid, log.events());
    let Some(first) = answers.measures.first() else { return Err(nothing("nothing was measured")) };
    let seen = |a: &&Answer| matches!(a.outcome, Outcome::Better | Outcome::Worse);
    let (mut steps, mut left) = (Vec::new(), Vec::new());
    for factor in &experiment.factors {
        let gain = |a: &Answer| {
            let likely = a.effect.map_or(0.0, |e| e.likely);
            if first.measure.better == Better::Less { -likely } else { likely }
        };
        let better = first.answers.iter().filter(|a| a.outcome == Outcome::Better && !a.interaction);
        let of_it = better.filter_map(|a| {
            let level = factor.levels.iter().find(|l| a.name == format!("{}: {l}", factor.name))?;
            Some((a, level))
        });
        let Some((best, level)) = of_it.max_by(|a, b| gain(a.0).total_cmp(&gain(b.0))) else { continue };
        let together =
            first.answers.iter().filter(seen).find(|a| a.interaction && a.name.contains(&factor.name));
        if let Some(together) = together {
            left.push(format!(
                "{}: not planned, since it depends on another factor ({})",
                best.name, together.name
            ));
            continue;
        }
        if level.split_whitespace().any(|w| w == "mitigations=off") {
            left.push(format!("{}: SECURITY: never planned", best.name));
            continue;
        }
        match factor.knob(experiment.boot.as_ref())? {
            None => left.push(format!("{}: it stands in the workload's command", best.name)),
            Some(knob) if matches!(knob.how, How::KernelWords { .. }) => {
                left.push(format!("{}: put it on the kernel's command line, and boot", best.name));
            }
            Some(knob) => {
                let from = vsteer_host::knob::read(&knob)?;
                let at = knob.on.clone().unwrap_or_else(|| "host".to_owned());
                let effect = best
                    .effect
                    .map_or(String::new(), |e| format!("{:+.1} ({:+.1} to {:+.1})", e.likely, e.low, e.high));
                if from != *level {
                    steps.push(Step {
                        vm: VmId(format!("knob:{at}:{}", knob.name)),
                        vm_name: at,
                        reason: format!("experiment {}: {} {effect} %", experiment.name, first.measure.name),
                        change: Change::Knob { knob: Box::new(knob), from, to: level.clone() },
                    });
                } else {
                    left.push(format!("{}: it is in force", best.name));
                }
            }
        }
    }
    left.iter().for_each(|line| eprintln!("vsteer: {line}"));
    if steps.is_empty() {
        return Err(nothing("nothing that can be planned was better than what is in force"));
    }
    let none = Forecast { method: format!("experiment {}", experiment.name), vms: Vec::new() };
    let plan = Plan::new(
        host()?,
        format!("what was better in experiment {}", experiment.name),
        steps,
        Scope::Live,
        none,
    );
    let text = serde_json::to_string_pretty(&plan).expect("a plan is plain data");
    std::fs::write(file, text).map_err(|e| Fault::io(format!("writing {}", file.display()), &e))?;
    eprintln!("vsteer: wrote {}: vsteer apply {0}", file.display());
    Ok(())
}

fn nothing(why: &str) -> Fault {
    Fault::new(FaultKind::NothingThere, "there is nothing to plan").because(why)
}
