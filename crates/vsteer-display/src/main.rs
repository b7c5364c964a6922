//! `vsteer-display`, and as `vsteer display`: which codec should a remote display use when its CPUs are busy and its picture moves?
//!
//! ```text
//! picture  what is on the screen, of which is known what stands where     codec  FFmpeg's, and one of tiles
//! path     application, server, viewer; link, datagrams  what lies between  row    what is said of a run, table  how people read it; cpu  whose CPU time
//! server   other people's, behind the same link                           rfb    a viewer of VNC servers
//! ```
//! It measures real codecs and servers end to end on this machine and counts a frame only if it can be read. Left out: contention (GAP(display-contention)
//! in docs/display.md).

mod cli;
mod codec;
mod cpu;
mod datagrams;
mod link;
mod path;
mod picture;
mod rfb;
mod row;
mod server;
mod table;

use clap::Parser;
use cli::{Cli, Command};
use std::process::ExitCode;

fn main() -> ExitCode {
    // What the library says of each stream is not for those who compare codecs.
    ffmpeg_next::log::set_level(ffmpeg_next::log::Level::Error);
    let done = match Cli::parse().command {
        Command::Run(options) => options.run(),
        Command::Codecs { json } => cli::codecs(json),
        Command::Servers { json } => cli::servers(json),
        Command::Show(options) => options.show(),
        Command::Advise(options) => options.advise(),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(fault) => {
            eprintln!("vsteer-display: {fault}");
            ExitCode::from(fault.kind.exit_code())
        }
    }
}
