//! Experiments: which setting really helps.

use clap::{Args, Subcommand};
use std::path::PathBuf;

/// `vsteer experiment`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  vsteer experiment run huge-pages.toml            what would be set and run, and what is in force now\n  \
vsteer experiment run huge-pages.toml --yes\n  vsteer experiment resume huge-pages.experiment --yes\n  \
vsteer experiment report huge-pages.experiment -o report.html\n  vsteer experiment report --published\n\n\
Every finished run is on disk before the next one starts. Ctrl-C puts settings back; after a crash `vsteer rollback` does, or `resume` goes on. \
The file's form: docs/experiments.md. Power meters other than commands, and tuned, grubby, cpufreq on real hosts: untried."
)]
pub struct Experiment {
    /// What to do.
    #[command(subcommand)]
    pub what: ExperimentWhat,
}

/// The parts of `vsteer experiment`.
#[derive(Debug, Subcommand)]
pub enum ExperimentWhat {
    /// Carry an experiment out. Without --yes: lay it out, look at what is in force, and change nothing.
    Run {
        /// The experiment.
        file: PathBuf,
        /// The folder to make for it; without it NAME.experiment.
        #[arg(short, long, value_name = "FOLDER")]
        output: Option<PathBuf>,
        /// Do it.
        #[arg(long)]
        yes: bool,
    },
    /// Go on where one was cut off, by Ctrl-C, a crash or a boot. Without --yes: say where it is.
    Resume {
        /// Its folder.
        folder: PathBuf,
        /// Do it.
        #[arg(long)]
        yes: bool,
    },
    /// What its runs say, so far: tables here, or a page.
    Report {
        /// Its folder.
        #[arg(required_unless_present = "published")]
        folder: Option<PathBuf>,
        /// A published study of host tuning instead, read again from its own tables.
        #[arg(long, conflicts_with = "folder")]
        published: bool,
        /// Markdown, to paste.
        #[arg(long, conflicts_with = "output")]
        markdown: bool,
        /// One HTML file.
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
        /// Write the levels that were better as a plan, for `vsteer apply`.
        #[arg(long, value_name = "FILE", conflicts_with = "published")]
        plan: Option<PathBuf>,
    },
    /// Print a unit for systemd that goes on with an experiment after each boot (untried but for `systemd-analyze verify`).
    Unit {
        /// Its folder, which `run` may make later.
        folder: PathBuf,
    },
}
