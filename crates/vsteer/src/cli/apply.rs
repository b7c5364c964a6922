//! Options of `vsteer apply`.

use super::host::Login;
use super::words::duration;
use clap::Args;
use std::path::PathBuf;

/// `vsteer apply`.
#[derive(Debug, Args)]
pub struct Apply {
    /// The plan, as `plan -o` wrote it.
    pub plan: PathBuf,
    /// Do it.
    #[arg(long, conflicts_with = "try_for")]
    pub yes: bool,
    /// Do it, and undo it by itself after this time unless confirmed by `vsteer apply PLAN --confirm`.
    #[arg(long = "try", value_name = "TIME", value_parser = duration)]
    pub try_for: Option<std::time::Duration>,
    /// Keep what `--try` did.
    #[arg(long, conflicts_with_all = ["yes", "try_for"])]
    pub confirm: bool,
    /// The connection URI, as it was given to `plan`; of a plan of esxtop's file: that of its host (vsphere://USER@HOST).
    #[arg(long, value_name = "URI")]
    pub connect: Option<String>,
    /// How a vSphere is logged in to.
    #[command(flatten)]
    pub login: Login,
}
