//! Starts TigerVNC's server, `Xtigervnc`: an X server whose screen VNC viewers see. Applications draw into it
//! as into any other X server.
//!
//! It listens only on this machine and asks for no password, for the length of a run. It may send as many
//! updates per second as the application draws (FrameRate, 60 by default). Everything else is its default.
//! Source: `man 1 Xtigervnc` (1.12).

use super::process::Process;
use super::xdisplay;
use super::{Display, Started};
use crate::picture::canvas::Size;
use std::net::{Ipv4Addr, TcpListener};
use std::time::Duration;
use vsteer_core::Fault;

pub const PROGRAM: &str = "Xtigervnc";
pub const PACKAGE: &str = "tigervnc-standalone-server";
/// The time limit for its display; on an idle machine it takes a second.
const STARTS_WITHIN: Duration = Duration::from_secs(30);

/// Starts it, with a screen of this size.
///
/// # Errors
/// It is missing, or does not start.
pub fn start(size: Size, fps: u32) -> Result<Started, Fault> {
    // The port is free now. If another process takes it before the server does, the server reports it.
    let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .and_then(|l| l.local_addr())
        .map_err(|e| Fault::io("a port for a VNC server".to_owned(), &e))?
        .port();
    let words = format!(
        "-displayfd 1 -noreset -rfbport {port} -interface 127.0.0.1 -localhost -SecurityTypes None -nolisten tcp -depth 24 \
         -desktop vsteer -geometry {}x{} -FrameRate {fps}",
        size.width, size.height
    );
    let words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
    let mut process = Process::start(PROGRAM, PACKAGE, &words, &[])?;
    let display = xdisplay::display_number(&process.line(STARTS_WITHIN)?)?;
    let version = process
        .said()
        .iter()
        .find_map(|line| Some(line.strip_prefix("Xvnc ")?.split(" - ").next()?.to_owned()))
        .unwrap_or_else(|| PROGRAM.to_owned());
    let address = (Ipv4Addr::LOCALHOST, port).into();
    Ok(Started { processes: vec![process], display: Display::X(display), address, version, home: None })
}
