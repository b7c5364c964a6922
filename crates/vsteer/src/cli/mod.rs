//! What can be said on the command line. The manual pages and the completions are made from this.
//!
//! One file per command; this one has them all by name. Commands that need a host or change one are left out of a build
//! without the feature `host`.

#[cfg(feature = "host")]
mod apply;
mod assignment;
#[cfg(feature = "host")]
mod audit;
#[cfg(feature = "host")]
mod capture;
mod diagnose;
mod estimate;
#[cfg(feature = "host")]
mod experiment;
mod export;
mod headroom;
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

#[cfg(feature = "host")]
pub use apply::Apply;
pub use assignment::{Setting, Sweep};
#[cfg(feature = "host")]
pub use audit::Audit;
#[cfg(feature = "host")]
pub use capture::Capture;
pub use diagnose::Diagnose;
pub use estimate::Estimate;
#[cfg(feature = "host")]
pub use experiment::{Experiment, ExperimentWhat};
pub use export::{Export, Format};
pub use headroom::Headroom;
#[cfg(feature = "host")]
pub use host::{Login, Source};
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

/// Shows, predicts and removes the time that virtual machines wait for a CPU.
#[derive(Debug, Parser)]
#[command(
    version,
    max_term_width = 110,
    after_help = "Exit codes: see `vsteer help exit-codes`. Read-only is the default \
everywhere; only `apply`, `steer --yes`, `realtime --yes`, `experiment --yes` and `rollback` change anything."
)]
pub struct Cli {
    /// Print results as JSON on standard output; progress and messages stay on standard error.
    #[arg(long, global = true)]
    pub json: bool,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    #[cfg(feature = "host")]
    /// Live table of VMs, vCPUs, pCPUs and nodes, as esxtop shows them.
    Top(Top),
    #[cfg(feature = "host")]
    /// Record raw samples to a folder that survives a crash or a full disk.
    Record(Record),
    /// Show a recording as `top` would have shown it.
    Replay(Replay),
    /// Write a recording in another format.
    Export(Export),
    /// Say who makes whom wait, and why: findings, worst first, with evidence.
    Diagnose(Diagnose),
    /// Propose the changes that remove the delay, each with what is expected of it. Changes nothing.
    Plan(PlanArgs),
    /// Which VM belongs on which NUMA node, and how many sockets and cores its guest should be shown.
    Numa(Numa),
    #[cfg(feature = "host")]
    /// Make the changes of a plan. Without --yes or --try: shows what would be done.
    Apply(Apply),
    #[cfg(feature = "host")]
    /// Take back what `apply` did, also after a crash.
    Rollback(Rollback),
    /// Say whether things are better, worse or no different between two recordings.
    Verify(Verify),
    /// What if? Simulate a scenario: hosts, VMs, workloads and a scheduler from a file. Touches no host.
    Simulate(Simulate),
    /// How many more VMs of a kind fit on the host, and on each node, before a level breaks. Simulated.
    Headroom(Headroom),
    /// How long will requests take in the next interval? From access logs or Prometheus histograms and a recording, by several
    /// estimators, beside what clients then saw.
    Estimate(Estimate),
    #[cfg(feature = "host")]
    /// Keep every VM inside its service level by setting weights, or say what to move. Without --yes: says what it would do.
    Steer(Steer),
    #[cfg(feature = "host")]
    /// Let real-time guests run when they wake, or when their timers end, without patching host or guest.
    Realtime(Realtime),
    /// One HTML file: findings, timelines, blame matrix, plan and verdict.
    Report(Report),
    #[cfg(feature = "host")]
    /// Is this host, or this guest, set up for VMs? Three states per setting, with the reason, the change and its undo.
    Audit(Audit),
    #[cfg(feature = "host")]
    /// Which setting really helps on this host, by how much, and how sure: run settings fairly and often enough, and say.
    Experiment(Experiment),
    #[cfg(feature = "host")]
    /// Copy what vsteer reads of this host into a folder, twice, to be observed elsewhere (`--connect tree:FOLDER`).
    Capture(Capture),
    #[cfg(feature = "host")]
    /// Print the host's topology as vsteer reads it.
    Topology(TopologyArgs),
    /// Print shell completions.
    Completions {
        /// For which shell.
        shell: clap_complete::Shell,
    },
    /// Write the manual pages into a folder.
    Man {
        /// The folder.
        folder: PathBuf,
    },
    /// The exit codes and their meanings.
    ExitCodes,
    #[cfg(feature = "host")]
    /// Runs `vsteer-NAME`: `lab`, `demo` and whatever else is installed beside this program.
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
