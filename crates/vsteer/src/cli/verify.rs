//! Options of `vsteer verify`.

use clap::Args;
use std::path::PathBuf;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  vsteer verify before.vsteer after.vsteer
  vsteer verify before.vsteer after.vsteer --plan plan.json     Compare with the plan's forecast")]
pub struct Verify {
    /// Recording before the change
    pub before: PathBuf,
    /// Recording after the change
    pub after: PathBuf,
    /// Compare with the forecast of the plan that was applied in between
    #[arg(long, value_name = "FILE")]
    pub plan: Option<PathBuf>,
}
