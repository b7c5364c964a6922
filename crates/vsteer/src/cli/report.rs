//! Options of `vsteer report`.

use super::history::Past;
use clap::Args;
use std::path::PathBuf;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  vsteer report before.vsteer
  vsteer report before.vsteer after.vsteer --plan plan.json -o report.html
  vsteer report --for 7d                    Report what the service stored of the last week")]
pub struct Report {
    /// Recording to report, or the earlier one of two recordings to compare [default: report the history]
    pub before: Option<PathBuf>,
    /// Later recording, for example after a change
    pub after: Option<PathBuf>,
    /// Also show this plan, which was applied between the two recordings
    #[arg(long, value_name = "FILE")]
    pub plan: Option<PathBuf>,
    /// Write the page to FILE
    #[arg(short, long, value_name = "FILE", default_value = "report.html", help_heading = "Output")]
    pub output: PathBuf,
    #[command(flatten)]
    pub past: Past,
}
