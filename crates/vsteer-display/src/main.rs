//! `vsteer-display`, also available as `vsteer display`: which codec should a remote display use when its
//! CPUs are busy and its picture moves?
//!
//! ```text
//! picture  the picture on the screen, with the known positions of its parts   codec  FFmpeg's codecs, and one of tiles
//! path     application, server, viewer; link, datagrams  the network between  row    the result of a run; table  results as text; cpu  CPU times
//! logs     counters of Horizon and Citrix during a run                        vmaf   VMAF scores from another FFmpeg
//! server   other projects' servers, behind the same link    rfb    a viewer of VNC servers; spice  of SPICE servers; came  what they received
//! ```
//! It measures real codecs and servers end to end on this machine and counts a frame only if it can be read.

mod came;
mod cli;
mod codec;
mod cpu;
mod datagrams;
mod link;
mod logs;
mod matched;
mod path;
mod picture;
mod quality;
mod rfb;
mod row;
mod server;
mod spice;
mod table;
mod vmaf;

use clap::Parser;
use cli::{Cli, Command};
use std::process::ExitCode;

/// Exit code if the reader of the output is gone (128 + SIGPIPE), the same as vsteer's.
const READER_GONE: i32 = 141;

fn main() -> ExitCode {
    // Rust ignores SIGPIPE, so printing to a closed pipe panics. Only this panic ends the program quietly.
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if panic.payload_as_str().unwrap_or_default().contains("Broken pipe") {
            std::process::exit(READER_GONE);
        }
        report(panic);
    }));
    // Without this call, FFmpeg's own errors have no text.
    ffmpeg_next::util::error::register_all();
    let done = match Cli::parse().command {
        Command::Run(options) => options.run(),
        Command::Codecs { json } => cli::codecs(json),
        Command::Servers { json } => cli::servers(json),
        Command::Show(options) => options.show(),
        Command::Advise(options) => options.advise(),
        Command::Completions { shell } => {
            cli::completions(shell);
            Ok(())
        }
        Command::Man { folder } => cli::man(&folder),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(fault) => {
            eprintln!("error: {fault}");
            ExitCode::from(fault.kind.exit_code())
        }
    }
}
