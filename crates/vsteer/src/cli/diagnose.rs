//! Options of `vsteer diagnose`.

use super::window::Window;
use super::words::named_threshold;
use clap::Args;
use std::path::PathBuf;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  vsteer diagnose                           Observe this host for 20 s, and list findings
  vsteer diagnose before.vsteer             Diagnose a recording
  vsteer diagnose esxtop.csv.gz             Diagnose what `esxtop -b` recorded
  vsteer diagnose --at 03:12                Read in the history of the service what was wrong then")]
pub struct Diagnose {
    /// Replace a threshold, for example ready_group=8% or wake_p99_ns=3ms (repeatable)
    ///
    /// An unknown NAME lists all thresholds.
    #[arg(long, value_name = "NAME=VALUE", value_parser = named_threshold)]
    pub threshold: Vec<(String, f64)>,
    /// Also say why quantities were not measured
    #[arg(long)]
    pub why: bool,
    /// With --at and without a recording: read the history in FOLDER [default: where `[serve]` keeps it]
    #[arg(long = "dir", value_name = "FOLDER", requires = "at")]
    pub folder: Option<PathBuf>,
    #[command(flatten)]
    pub window: Window,
}
