//! The command line: one file per command under `command/`, each a few calls into the crates that do the work.

mod cli;
mod command;
mod interrupt;
mod report;
mod source;
mod text;
mod view;

use clap::Parser;
use std::process::ExitCode;
use vsteer_core::Fault;

fn main() -> ExitCode {
    let cli = cli::Cli::parse();
    let json = cli.json;
    match command::run(cli) {
        Ok(code) => code,
        Err(fault) => {
            tell(&fault, json);
            ExitCode::from(fault.kind.exit_code())
        }
    }
}

/// Says what went wrong: on standard error for people, as one JSON object on standard output for programs as well.
fn tell(fault: &Fault, json: bool) {
    if json {
        println!("{}", serde_json::json!({ "fault": fault }));
    }
    eprintln!("vsteer: {fault}");
}
