//! `vsteer-display`, and as `vsteer display`: which codec should a remote display use when its CPUs are busy and its picture moves?
//!
//! ```text
//! picture  what is on the screen, of which is known what stands where     codec  FFmpeg's, and one of tiles
//! path     application, server, viewer; link, datagrams  what lies between  row    what is said of a run, table  how people read it; cpu  whose CPU time
//! logs     what Horizon and Citrix counted beside a run                         vmaf   what another FFmpeg says of frames
//! server   other people's, behind the same link      rfb    a viewer of VNC servers, spice  of SPICE servers, came  what they were sent
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

/// Exit code of a program whose reader went away (128 + SIGPIPE), as vsteer's.
const READER_GONE: i32 = 141;

fn main() -> ExitCode {
    // Rust ignores SIGPIPE, so that printing to a closed pipe panics: that alone ends quietly.
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if panic.payload_as_str().unwrap_or_default().contains("Broken pipe") {
            std::process::exit(READER_GONE);
        }
        report(panic);
    }));
    // Or its own errors have no words.
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
