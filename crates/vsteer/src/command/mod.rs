//! The commands, one file each.

#[cfg(feature = "host")]
mod agent;
#[cfg(feature = "host")]
mod apply;
#[cfg(feature = "host")]
mod audit;
#[cfg(feature = "host")]
mod capture;
mod config;
mod diagnose;
mod estimate;
#[cfg(feature = "host")]
mod experiment;
mod export;
mod headroom;
mod history;
mod meta;
pub mod numa;
#[cfg(feature = "host")]
mod other;
mod past;
pub mod plan;
#[cfg(feature = "host")]
mod realtime;
#[cfg(feature = "host")]
pub mod record;
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

use crate::cli::{Cli, Command};
use std::process::ExitCode;
use vsteer_core::Fault;
use vsteer_record::config::Config;

/// Runs what was asked for.
///
/// # Errors
/// Whatever the command's work reports.
pub fn run(cli: Cli, config: &Config) -> Result<ExitCode, Fault> {
    let json = cli.json;
    match cli.command {
        #[cfg(feature = "host")]
        Command::Top(a) => return top::run(&a, config, json),
        #[cfg(feature = "host")]
        Command::Record(a) => return record::run(&a, config.folder("paths.recordings"), json),
        Command::Replay(a) => replay::run(&a, json),
        Command::Export(a) => export::run(&a, json),
        Command::Diagnose(a) => return diagnose::run(&a, config.thresholds(), json),
        Command::Plan(a) => plan::run(&a, config.thresholds(), json),
        Command::Numa(a) => numa::run(&a, config.thresholds(), json),
        #[cfg(feature = "host")]
        Command::Apply(a) => apply::run(&a, json),
        #[cfg(feature = "host")]
        Command::Rollback(a) => rollback::run(&a, json),
        Command::Verify(a) => verify::run(&a, json),
        Command::Headroom(a) => headroom::run(&a, json),
        Command::Estimate(a) => estimate::run(&a, json),
        #[cfg(feature = "host")]
        Command::Steer(a) => steer::run(&a, json),
        #[cfg(feature = "host")]
        Command::Realtime(a) => realtime::run(&a, json),
        Command::Simulate(a) => simulate::run(&a, json),
        Command::History(a) => history::run(&a, json),
        Command::Report(a) => report::run(&a, config.thresholds(), json),
        #[cfg(feature = "host")]
        Command::Audit(a) => audit::run(&a, json),
        #[cfg(feature = "host")]
        Command::Experiment(a) => experiment::run(&a, json),
        #[cfg(feature = "host")]
        Command::Capture(a) => capture::run(&a, json),
        #[cfg(feature = "host")]
        Command::Topology(a) => topology::run(&a, json),
        Command::Config(a) => return config::run(&a, cli.config.as_deref(), json),
        Command::Completions { shell } => meta::completions(shell),
        Command::Man { folder } => meta::man(&folder),
        Command::ExitCodes => meta::exit_codes(json),
        #[cfg(feature = "host")]
        Command::Agent => agent::run(),
        #[cfg(feature = "host")]
        Command::Other(words) => return other::run(&words, json),
    }?;
    Ok(ExitCode::SUCCESS)
}
