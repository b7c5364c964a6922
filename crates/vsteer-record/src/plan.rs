//! Reads a plan file that `vsteer plan -o FILE` wrote.

use std::path::Path;
use vsteer_core::limits;
use vsteer_core::plan::Plan;
use vsteer_core::{Fault, FaultKind};

/// Reads a plan file.
///
/// # Errors
/// `NothingThere` if the file does not exist, `BadInput` if it is not a plan.
pub fn read(path: &Path) -> Result<Plan, Fault> {
    const HELP: &str = "name a file that `vsteer plan -o FILE` wrote";
    let bytes = crate::files::read_at_most(path, limits::PLAN)
        .map_err(|e| Fault::io(format!("cannot read the plan {}", path.display()), &e).help(HELP))?;
    let not_one = |why: &dyn std::fmt::Display| {
        Fault::new(FaultKind::BadInput, format!("{} is not a plan", path.display())).because(why).help(HELP)
    };
    let plan: Plan = serde_json::from_slice(&bytes).map_err(|e| not_one(&e))?;
    Plan::check_id(&plan.id).map_err(|fault| not_one(&fault))?;
    Ok(plan)
}
