//! Options of `vsteer apply`.

use super::host::Login;
use super::words::duration;
use clap::Args;
use std::path::PathBuf;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  vsteer apply plan.json                    Show what would change
  vsteer apply plan.json --try 60s          Apply, and undo after 60 s unless confirmed
  vsteer apply plan.json --confirm          Keep what --try applied

A journal is on disk before each step, so `vsteer rollback` undoes a plan even after a crash.")]
pub struct Apply {
    /// Plan file, written by `vsteer plan -o`
    pub plan: PathBuf,
    /// Apply the plan [default: dry run]
    #[arg(long, conflicts_with = "try_for")]
    pub yes: bool,
    /// Apply the plan, and undo it after TIME unless `--confirm` follows
    #[arg(long = "try", value_name = "TIME", value_parser = duration)]
    pub try_for: Option<std::time::Duration>,
    /// Keep what `--try` applied
    #[arg(long, conflicts_with_all = ["yes", "try_for"])]
    pub confirm: bool,
    /// Apply to the host at URI [default: the host that the plan was made on]
    ///
    /// Use the URI that you gave to `vsteer plan`. A plan from an esxtop file needs the URI of its host
    /// (vsphere://USER@HOST).
    #[arg(long, value_name = "URI", help_heading = "Source")]
    pub connect: Option<String>,
    /// Accept this connection URI from the plan, with its parameters (repeatable)
    ///
    /// vsteer refuses a URI with parameters that only the plan's file names, because a parameter can run a program.
    #[arg(long, value_name = "URI", help_heading = "Source")]
    pub trust_uri: Vec<String>,
    #[command(flatten)]
    pub login: Login,
}
