//! The command line. Manual pages and completions are generated from it.
//!
//! Each command has one file with its options; this file lists the commands. A build without the feature `host` leaves
//! out the commands that need a host.

#[cfg(feature = "host")]
mod apply;
#[cfg(feature = "host")]
mod audit;
#[cfg(feature = "host")]
mod capture;
mod config;
#[cfg(feature = "host")]
mod connection;
mod diagnose;
mod estimate;
#[cfg(feature = "host")]
mod experiment;
mod export;
mod headroom;
mod history;
#[cfg(feature = "host")]
mod host;
mod numa;
mod plan;
#[cfg(feature = "host")]
mod realtime;
#[cfg(feature = "host")]
mod record;
mod replay;
mod report;
#[cfg(feature = "host")]
mod rollback;
mod simulate;
#[cfg(feature = "host")]
mod steer;
#[cfg(feature = "host")]
mod top;
#[cfg(feature = "host")]
mod topology;
mod verify;
mod window;
mod words;

pub use crate::assignment::{Setting, Sweep};
#[cfg(feature = "host")]
pub use apply::Apply;
#[cfg(feature = "host")]
pub use audit::Audit;
#[cfg(feature = "host")]
pub use capture::Capture;
pub use config::{Check, ConfigArgs, ConfigWhat, Show};
pub use diagnose::Diagnose;
pub use estimate::Estimate;
#[cfg(feature = "host")]
pub use experiment::{Ab, Experiment, ExperimentWhat};
pub use export::Export;
pub use headroom::Headroom;
pub use history::{History, Past};
#[cfg(feature = "host")]
pub use host::{CollectorChoice, Login, Source};
pub use numa::Numa;
pub use plan::{Method, PlanArgs, PlanFormat, ScopeChoice};
#[cfg(feature = "host")]
pub use realtime::{Realtime, RealtimeBy, RealtimeRun, RealtimeSource, RealtimeWhat};
#[cfg(feature = "host")]
pub use record::Record;
pub use replay::Replay;
pub use report::Report;
#[cfg(feature = "host")]
pub use rollback::Rollback;
pub use simulate::Simulate;
#[cfg(feature = "host")]
pub use steer::Steer;
#[cfg(feature = "host")]
pub use top::Top;
#[cfg(feature = "host")]
pub use topology::TopologyArgs;
pub use verify::Verify;
pub use window::Window;

use clap::{Parser, Subcommand};
use std::path::PathBuf;

#[cfg(feature = "host")]
const AFTER_HELP: &str = "\
Examples:
  vsteer top                                See which VMs wait for a CPU now
  vsteer diagnose                           Find out why
  vsteer plan -o plan.json                  Plan a change that helps
  vsteer apply plan.json --try 60s          Apply it, and undo it after 60 s unless confirmed

vsteer only reads, unless you run `apply`, `steer`, `realtime` or `experiment` with --yes or --try, or `rollback`.
`vsteer serve` runs as a service, with metrics for Prometheus.
Defaults of options come from vsteer.toml: see vsteer config --help.";

#[cfg(not(feature = "host"))]
const AFTER_HELP: &str = "\
Examples:
  vsteer diagnose esxtop.csv                List which VMs wait for a CPU, and why
  vsteer plan esxtop.csv --format powercli  Plan a change that helps, as a script to review
  vsteer report esxtop.csv -o report.html   Write all of it as one page

This build reads files: recordings of `vsteer record`, batch files of `esxtop -b`, access logs and scrapes. The build for Linux
also observes and changes hosts.
Defaults of options come from vsteer.toml: see vsteer config --help.";

/// Show, predict and remove the time that virtual machines wait for a CPU
#[derive(Debug, Parser)]
#[command(version, max_term_width = 100, after_help = AFTER_HELP)]
pub struct Cli {
    /// Print results as JSON to standard output, and messages to standard error
    #[arg(long, global = true, help_heading = "Output")]
    pub json: bool,
    /// Read FILE in place of the system's and the user's vsteer.toml; `none` reads no file [env: VSTEER_CONFIG]
    #[arg(long, global = true, value_name = "FILE", display_order = 998)]
    pub config: Option<PathBuf>,
    #[command(subcommand)]
    pub command: Command,
}

/// The commands, in the order in which a person needs them.
#[derive(Debug, Subcommand)]
pub enum Command {
    #[cfg(feature = "host")]
    /// Show VMs, vCPUs, pCPUs and NUMA nodes in a live table
    Top(Top),
    /// List who makes which VM wait, and why
    ///
    /// Findings come worst first, each with its evidence, the next step, and what would disprove it.
    Diagnose(Diagnose),
    /// Plan the changes that remove the wait, with a forecast for each VM
    ///
    /// A plan changes nothing until `vsteer apply`.
    Plan(PlanArgs),
    #[cfg(feature = "host")]
    /// Apply a plan, or show what it would change
    Apply(Apply),
    #[cfg(feature = "host")]
    /// Undo what `apply` changed, even after a crash
    Rollback(Rollback),
    /// Compare two recordings: better, worse or no difference
    Verify(Verify),
    #[cfg(feature = "host")]
    /// Record samples to a folder that survives a crash or a full disk
    Record(Record),
    /// Show a recording as `top` would have shown it
    Replay(Replay),
    /// Show how VMs did in the last hours, days or months, as the service stored it
    History(History),
    /// Write one HTML file: findings, timelines, blame matrix, plan and verdict
    Report(Report),
    /// Convert a recording to Parquet, CSV, Perfetto, esxtop or ZIP
    Export(Export),
    /// Simulate a host, its VMs and a scheduler from a scenario file
    Simulate(Simulate),
    /// Simulate how many more VMs fit before a level breaks
    Headroom(Headroom),
    /// Estimate response times of the next interval from access logs or Prometheus histograms
    Estimate(Estimate),
    #[cfg(feature = "host")]
    /// Set weights so that every VM meets its service level
    Steer(Steer),
    #[cfg(feature = "host")]
    /// Run real-time guests when they wake or their timers end
    Realtime(Realtime),
    /// Recommend a NUMA node for each VM, and sockets and cores for its guest
    Numa(Numa),
    #[cfg(feature = "host")]
    /// Check whether this host or guest is set up well for VMs
    Audit(Audit),
    #[cfg(feature = "host")]
    /// Measure which setting helps on this host, by how much, and how certain that is
    Experiment(Experiment),
    #[cfg(feature = "host")]
    /// Copy what vsteer reads of this host to a folder, to observe it elsewhere
    Capture(Capture),
    #[cfg(feature = "host")]
    /// Print the host's topology
    Topology(TopologyArgs),
    /// Check the configuration, show what counts and why, or print the example file
    Config(ConfigArgs),
    /// Print completions for a shell
    #[command(after_help = "Example:\n  vsteer completions bash > /etc/bash_completion.d/vsteer")]
    Completions {
        /// Shell to complete for
        shell: clap_complete::Shell,
    },
    /// Write the manual pages (sections 1 and 5) to a folder
    #[command(after_help = "Example:\n  vsteer man /usr/local/share/man/man1")]
    Man {
        /// Folder to write to
        folder: PathBuf,
    },
    /// List the exit codes
    #[command(after_help = "Example:\n  vsteer exit-codes")]
    ExitCodes,
    #[cfg(feature = "host")]
    /// Answer a vsteer on another host, which observes this host over ssh
    #[command(hide = true)]
    Agent,
    #[cfg(feature = "host")]
    /// Run `vsteer-NAME`, for example `serve`, `lab` or `display`, if it is installed beside this program
    #[command(external_subcommand)]
    Other(Vec<String>),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
    }
}
