//! Options of `vsteer experiment`.

use clap::{Args, Subcommand};
use std::path::PathBuf;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  vsteer experiment run huge-pages.toml              Show what would be set and run
  vsteer experiment run huge-pages.toml --yes        Run it
  vsteer experiment ab -- 'sleep .1' -- 'sleep .2'   Compare two commands, without a file
  vsteer experiment report huge-pages.experiment     Show results so far
  vsteer experiment report --published               Report a published study, from the tables in it

Each finished run is on disk before the next one starts. Ctrl-C restores all settings. After a crash, use
`vsteer experiment resume` to continue or `vsteer rollback` to restore the settings.
docs/experiments.md describes the file. Nobody has tried tuned, grubby and cpufreq on a real host.")]
pub struct Experiment {
    #[command(subcommand)]
    pub what: ExperimentWhat,
}

#[derive(Debug, Subcommand)]
pub enum ExperimentWhat {
    /// Run an experiment
    #[command(after_help = "\
Examples:
  vsteer experiment run huge-pages.toml             Show what would be set and run
  vsteer experiment run huge-pages.toml --yes       Run it")]
    Run {
        /// Experiment file
        file: PathBuf,
        /// Create FOLDER for the results [default: NAME.experiment]
        #[arg(short, long, value_name = "FOLDER", help_heading = "Output")]
        output: Option<PathBuf>,
        /// Run the experiment [default: dry run]
        #[arg(long)]
        yes: bool,
        /// Measure the VMs at URI [default: `connect` of the file, else this host]
        ///
        /// Give a URI with parameters here too: vsteer refuses it if it stands only in the file, because a parameter
        /// can run a program.
        #[arg(long, value_name = "URI", help_heading = "Source")]
        connect: Option<String>,
    },
    /// Compare two commands, without a file
    ///
    /// The commands take turns in a random order. Each is one word that a shell reads, or several words.
    #[command(after_help = "\
Examples:
  vsteer experiment ab -- 'gzip -1 < /bin/bash' -- 'gzip -9 < /bin/bash'
  vsteer experiment ab --runs 5 --margin 2 -- sleep 0.01 -- sleep 0.02")]
    Ab(Ab),
    /// Continue an experiment after Ctrl-C, a crash or a reboot
    #[command(after_help = "\
Examples:
  vsteer experiment resume huge-pages.experiment            Show where it stopped
  vsteer experiment resume huge-pages.experiment --yes      Continue")]
    Resume {
        /// Folder of the experiment
        folder: PathBuf,
        /// Continue the experiment [default: show where it stopped]
        #[arg(long)]
        yes: bool,
    },
    /// Show the results so far
    #[command(after_help = "\
Examples:
  vsteer experiment report huge-pages.experiment -o report.html
  vsteer experiment report huge-pages.experiment --plan better.json")]
    Report {
        /// Folder of the experiment
        #[arg(required_unless_present = "published")]
        folder: Option<PathBuf>,
        /// Report a published study of host tuning, from the tables printed in it
        #[arg(long, conflicts_with = "folder")]
        published: bool,
        /// Print Markdown
        #[arg(long, conflicts_with = "output", help_heading = "Output")]
        markdown: bool,
        /// Write one HTML file
        #[arg(short, long, value_name = "FILE", help_heading = "Output")]
        output: Option<PathBuf>,
        /// Write the better levels as a plan for `vsteer apply`
        #[arg(long, value_name = "FILE", conflicts_with = "published", help_heading = "Output")]
        plan: Option<PathBuf>,
    },
    /// Print a systemd unit that continues an experiment after each boot
    ///
    /// After a power cut, the unit continued an experiment on Debian 12 and 13.
    #[command(after_help = "\
Examples:
  vsteer experiment unit /var/lib/vsteer/huge-pages.experiment")]
    Unit {
        /// Folder of the experiment; it need not exist yet
        folder: PathBuf,
    },
}

/// Options of `vsteer experiment ab`.
#[derive(Debug, Args)]
pub struct Ab {
    /// Run each command at least N times (5 or more)
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(5..=10_000))]
    pub runs: u32,
    /// Run each command at most N times, if --margin needs more runs
    #[arg(long, value_name = "N", default_value_t = 30)]
    pub most: u32,
    /// Run until the interval of the difference is at most PERCENT wide on each side
    #[arg(long, value_name = "PERCENT")]
    pub margin: Option<f64>,
    /// Run each command N times before each run that counts
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub warm_up: u32,
    /// Run this before each run, untimed; a shell reads it
    #[arg(long, value_name = "COMMAND")]
    pub prepare: Option<String>,
    /// Compare the number that the commands print, instead of the time: for example 'rate {}'
    #[arg(long, value_name = "TEXT")]
    pub printed: Option<String>,
    /// More is better
    #[arg(long, requires = "printed")]
    pub more: bool,
    /// Seed of the order
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Create FOLDER for the results [default: ab.experiment, or the next free ab-N.experiment]
    #[arg(short, long, value_name = "FOLDER", help_heading = "Output")]
    pub output: Option<PathBuf>,
    /// The two commands, with -- between them
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub commands: Vec<String>,
}
