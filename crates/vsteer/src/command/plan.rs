//! `vsteer plan`: what to change, what is expected of it; changes nothing.

use crate::cli::{PlanArgs, ScopeChoice};
use crate::{source, text};
use std::path::Path;
use vsteer_core::plan::advise::{Limits, plan};
use vsteer_core::plan::{Plan, Scope};
use vsteer_core::{Fault, FaultKind};

/// Plans.
///
/// # Errors
/// As [`source::window`]; `Usage` for an unknown action; when the file cannot be written.
pub fn run(a: &PlanArgs, json: bool) -> Result<(), Fault> {
    let stretch = source::window(&a.window)?;
    let model = stretch.model()?;
    let limits = Limits { work_loss: a.work_loss / 100.0, ..Limits::default() };
    let scope = match a.scope {
        ScopeChoice::Live => Scope::Live,
        ScopeChoice::Persistent => Scope::Persistent,
        ScopeChoice::Both => Scope::Both,
    };
    let plan = plan(&stretch.config, &model, limits, scope, a.only.as_deref())
        .map_err(|e| Fault::new(FaultKind::Usage, format!("--only: {e}")))?;
    if let Some(path) = &a.output {
        let text = serde_json::to_vec_pretty(&plan).expect("a plan is plain data");
        std::fs::write(path, text).map_err(|e| Fault::io(format!("writing {}", path.display()), &e))?;
    }
    if json {
        super::print_json(&plan);
    } else {
        print!("{}", text::plan(&plan));
        match &a.output {
            Some(path) if !plan.steps.is_empty() => {
                println!("apply it: vsteer apply {} --try 60s", path.display())
            }
            _ => {}
        }
    }
    Ok(())
}

/// Reads a plan file.
///
/// # Errors
/// `NothingThere` when there is none, `BadInput` when it is not a plan.
pub fn read(path: &Path) -> Result<Plan, Fault> {
    let bytes =
        std::fs::read(path).map_err(|e| Fault::io(format!("reading the plan {}", path.display()), &e))?;
    serde_json::from_slice(&bytes).map_err(|e| {
        Fault::new(FaultKind::BadInput, format!("{} is not a plan", path.display()))
            .because(e)
            .way_out("a plan is what `vsteer plan -o FILE` wrote")
    })
}
