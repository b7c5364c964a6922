//! The command line. Each command has one file under `command/`, which calls the crates that do the work.
//!
//! Without the feature `host` it reads files only, and is built for Windows and macOS as well.
//! GAP(files-elsewhere): for Windows it was tried under Wine alone, for macOS not at all.

mod assignment;
mod cli;
mod clock;
mod command;
#[cfg(feature = "host")]
mod experiment;
mod interrupt;
#[cfg(feature = "host")]
mod login;
mod logs;
#[cfg(feature = "host")]
mod realtime_socket;
mod report;
mod scenario;
mod scrapes;
mod settings;
mod source;
mod text;
#[cfg(feature = "host")]
mod view;

use std::process::ExitCode;
use vsteer_core::Fault;

/// Exit code of a program whose reader went away (128 + SIGPIPE): `vsteer top -b | head` is no bug.
const READER_GONE: i32 = 141;

/// Rust ignores SIGPIPE, so that printing to a closed pipe panics; that alone ends quietly, all else as ever.
fn end_quietly_without_reader() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let message = panic.payload_as_str().unwrap_or_default();
        if message.contains("Broken pipe") || message.contains("BrokenPipe") {
            std::process::exit(READER_GONE);
        }
        report(panic);
    }));
}

fn main() -> ExitCode {
    end_quietly_without_reader();
    let ended = settings::of_process().and_then(|(cli, config)| {
        let json = cli.json;
        command::run(cli, &config).map_err(|fault| (fault, json))
    });
    ended.unwrap_or_else(|(fault, json)| {
        tell(&fault, json);
        ExitCode::from(fault.kind.exit_code())
    })
}

/// Says what went wrong: on standard error for people, as one JSON object on standard output for programs as well.
fn tell(fault: &Fault, json: bool) {
    if json {
        println!("{}", vsteer_core::visible::json(&serde_json::json!({ "fault": fault }).to_string()));
    }
    eprintln!("error: {}", vsteer_core::visible::message(&fault.to_string()));
}
