//! Options of `vsteer verify`.

use clap::Args;
use std::path::PathBuf;

/// `vsteer verify`.
#[derive(Debug, Args)]
pub struct Verify {
    /// The recording before.
    pub before: PathBuf,
    /// The recording after.
    pub after: PathBuf,
    /// The plan that was applied in between, to compare its forecast.
    #[arg(long, value_name = "FILE")]
    pub plan: Option<PathBuf>,
}
