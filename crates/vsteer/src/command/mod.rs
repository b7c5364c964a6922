//! The commands, one file each.

mod apply;
mod audit;
mod capture;
mod diagnose;
mod estimate;
mod experiment;
mod export;
mod headroom;
mod meta;
pub mod numa;
pub mod plan;
mod realtime;
pub mod record;
mod replay;
mod report;
mod rollback;
mod simulate;
mod steer;
mod top;
mod verify;

use crate::cli::{Cli, Command};
use std::process::ExitCode;
use vsteer_core::Fault;

/// Runs what was asked for.
///
/// # Errors
/// Whatever the command's work reports.
pub fn run(cli: Cli) -> Result<ExitCode, Fault> {
    let json = cli.json;
    match cli.command {
        Command::Top(a) => top::run(&a, json),
        Command::Record(a) => record::run(&a, json),
        Command::Replay(a) => replay::run(&a, json),
        Command::Export(a) => export::run(&a, json),
        Command::Diagnose(a) => diagnose::run(&a, json),
        Command::Plan(a) => plan::run(&a, json),
        Command::Numa(a) => numa::run(&a, json),
        Command::Apply(a) => apply::run(&a, json),
        Command::Rollback(a) => rollback::run(&a, json),
        Command::Verify(a) => verify::run(&a, json),
        Command::Headroom(a) => headroom::run(&a, json),
        Command::Estimate(a) => estimate::run(&a, json),
        Command::Steer(a) => steer::run(&a, json),
        Command::Realtime(a) => realtime::run(&a, json),
        Command::Simulate(a) => simulate::run(&a, json),
        Command::Report(a) => report::run(&a, json),
        Command::Audit(a) => audit::run(&a, json),
        Command::Experiment(a) => experiment::run(&a, json),
        Command::Capture(a) => capture::run(&a, json),
        Command::Topology(a) => meta::topology(&a, json),
        Command::Completions { shell } => meta::completions(shell),
        Command::Man { folder } => meta::man(&folder),
        Command::ExitCodes => meta::exit_codes(json),
        Command::Other(words) => return meta::other(&words, json),
    }?;
    Ok(ExitCode::SUCCESS)
}
