//! `vsteer verify`: are two recordings better, worse or not different?

use crate::cli::Verify;
use crate::{source, text};
use std::path::Path;
use vsteer_core::plan::Plan;
use vsteer_core::verify::{Options, Verdict, of_one_host, verify};
use vsteer_core::{Fault, FaultKind};

/// Compares two stretches.
///
/// # Errors
/// When either holds too few samples.
pub fn compare(
    before: &source::Stretch,
    after: &source::Stretch,
    plan: Option<&Plan>,
) -> Result<Verdict, Fault> {
    let (a, b) = (before.model()?, after.model()?);
    let forecast = plan.map(|p| &p.forecast);
    Ok(verify((&a, &before.batches), (&b, &after.batches), forecast, Options::default()))
}

/// Verifies.
///
/// # Errors
/// As [`source::read`], [`of_one_host`] and [`compare`]; `NothingThere` where nothing was compared: that is no verdict.
pub fn run(a: &Verify, json: bool) -> Result<(), Fault> {
    let read = |p: &Path| source::whole(source::read(p)?);
    let plan = a.plan.as_deref().map(vsteer_record::files::read_plan).transpose()?;
    let (before, after) = (read(&a.before)?, read(&a.after)?);
    of_one_host(&before.config, &after.config, plan.as_ref())?;
    let verdict = compare(&before, &after, plan.as_ref())?;
    if let Some(why) = verdict.unfounded() {
        return Err(Fault::new(FaultKind::NothingThere, "no verdict: nothing could be compared")
            .because(why)
            .help("record the same VMs before and after, each for at least five intervals"));
    }
    if json {
        crate::text::print_json(&serde_json::json!({
            "overall": verdict.overall(), "verdict": verdict, "forecast": verdict.score(),
        }));
    } else {
        print!("{}", text::verdict(&verdict));
    }
    Ok(())
}
