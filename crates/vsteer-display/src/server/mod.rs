//! The table of other projects' servers that can be measured like the codecs. One entry each in [`ALL`], by
//! server and requested encoding.
//!
//! ```text
//! session  application, server, link, viewer: one run      process  starts and ends the server's process     xdisplay  where the application shows its frames
//! tigervnc Xtigervnc, an X server for VNC viewers; vnc  such a viewer                freerdp  a server that shows an X display, and its own viewer
//! qemu     QEMU's VNC and SPICE servers, whose guest (guest/) shows the picture; spice  a viewer of the latter
//! gstreamer sends datagrams, and receives them                    onscreen other projects' viewers, whose display is read
//! ```
//! The application is the same as for the codecs: it draws the same frames with their numbers into the
//! server's display. A viewer in this program decodes the data behind the link, or the frames are read from
//! the screen of the server's own viewer. In both cases a frame is recognised by its number. What was
//! negotiated comes from the received data.
//!
//! Left out: VMware's and Citrix's own servers, which are not available here.

mod ends;
mod freerdp;
mod gstreamer;
mod onscreen;
mod process;
mod qemu;
pub mod session;
mod spice;
mod tigervnc;
mod vnc;
mod xdisplay;

use crate::rfb::Encoding;
use crate::spice::Compression;
use freerdp::Graphics;
use gstreamer::Video;
use onscreen::Home;
use process::Process;
use std::net::SocketAddr;
use vsteer_core::{Fault, FaultKind};

/// A server with a requested encoding.
#[derive(Debug)]
pub struct Server {
    /// The name on the command line: its family, and the requested encoding.
    pub name: &'static str,
    /// A description.
    pub doc: &'static str,
    /// The required program.
    pub program: &'static str,
    /// The Debian package with that program.
    pub package: &'static str,
    by: By,
}

#[derive(Debug, Clone, Copy)]
enum By {
    TigerVnc(Encoding),
    QemuVnc(Encoding),
    QemuSpice(Compression),
    FreeRdp(Graphics),
    GStreamer(Video),
}

pub const ALL: &[Server] = &[
    tigervnc(
        "tigervnc-jpeg",
        "Tight with JPEG of quality 8, as its own viewer asks",
        Encoding::Tight(Some(8)),
    ),
    tigervnc("tigervnc-jpeg-low", "Tight with JPEG of quality 2, for narrow links", Encoding::Tight(Some(2))),
    tigervnc("tigervnc-tight", "Tight without loss", Encoding::Tight(None)),
    tigervnc("tigervnc-zrle", "ZRLE, without loss", Encoding::Zrle),
    tigervnc("tigervnc-raw", "pixels as they are", Encoding::Raw),
    qemu(
        "qemu-jpeg",
        "QEMU's VNC: Tight with JPEG of quality 8, of which it may send none",
        Encoding::Tight(Some(8)),
    ),
    qemu(
        "qemu-jpeg-low",
        "QEMU's VNC: Tight with JPEG of quality 2, for narrow links",
        Encoding::Tight(Some(2)),
    ),
    qemu("qemu-tight", "QEMU's VNC: Tight without loss", Encoding::Tight(None)),
    qemu("qemu-zrle", "QEMU's VNC: ZRLE, without loss", Encoding::Zrle),
    qemu("qemu-raw", "QEMU's VNC: pixels as they are", Encoding::Raw),
    spice("spice-raw", "QEMU's SPICE: pixels as they are", Compression::Raw),
    spice("spice-lz", "QEMU's SPICE: LZ, without loss", Compression::Lz),
    spice("spice-glz", "QEMU's SPICE: LZ that refers to earlier images, without loss", Compression::Glz),
    spice("spice-glz-zlib", "QEMU's SPICE: the same through zlib, for narrow links", Compression::GlzZlib),
    spice(
        "spice-streams",
        "QEMU's SPICE: what moves as streams of JPEG, the rest by LZ",
        Compression::Streams,
    ),
    freerdp("freerdp-rfx", "RemoteFX", Graphics::RemoteFx),
    freerdp("freerdp-avc420", "H.264, colours halved", Graphics::Avc420),
    freerdp("freerdp-avc444", "H.264 with all colours", Graphics::Avc444),
    gstreamer(
        "gstreamer-h264",
        "RTP with H.264 (x264, ultrafast, zero latency), colours halved",
        Video::H264,
    ),
    gstreamer("gstreamer-jpeg", "RTP with JPEG of quality 85, colours halved", Video::Jpeg),
];

const fn gstreamer(name: &'static str, doc: &'static str, video: Video) -> Server {
    Server { name, doc, program: gstreamer::PROGRAM, package: gstreamer::PACKAGE, by: By::GStreamer(video) }
}

const fn qemu(name: &'static str, doc: &'static str, encoding: Encoding) -> Server {
    Server { name, doc, program: qemu::PROGRAM, package: qemu::PACKAGE, by: By::QemuVnc(encoding) }
}

const fn spice(name: &'static str, doc: &'static str, compression: Compression) -> Server {
    Server { name, doc, program: qemu::PROGRAM, package: qemu::PACKAGE, by: By::QemuSpice(compression) }
}

const fn freerdp(name: &'static str, doc: &'static str, graphics: Graphics) -> Server {
    Server { name, doc, program: freerdp::PROGRAM, package: freerdp::PACKAGE, by: By::FreeRdp(graphics) }
}

const fn tigervnc(name: &'static str, doc: &'static str, encoding: Encoding) -> Server {
    Server { name, doc, program: tigervnc::PROGRAM, package: tigervnc::PACKAGE, by: By::TigerVnc(encoding) }
}

/// The servers with this name, or of this family.
///
/// # Errors
/// `BadInput` with the existing names.
pub fn find(name: &str) -> Result<Vec<&'static Server>, Fault> {
    let is = |s: &&Server| s.name == name || s.family() == name;
    let found: Vec<&Server> = ALL.iter().filter(is).collect();
    if found.is_empty() {
        let all: Vec<&str> = ALL.iter().map(|s| s.name).collect();
        return Err(Fault::new(FaultKind::BadInput, format!("there is no server {name:?}")).help(format!(
            "one of {}, or what stands before the first hyphen for all of it",
            all.join(", ")
        )));
    }
    Ok(found)
}

impl Server {
    /// The family: the part of the name before the first hyphen.
    pub fn family(&self) -> &'static str {
        self.name.split('-').next().unwrap_or(self.name)
    }

    /// Does it send datagrams, which may be lost?
    pub fn is_datagrams(&self) -> bool {
        matches!(self.by, By::GStreamer(_))
    }

    /// Can it hold a given rate?
    pub fn holds_rate(&self) -> bool {
        matches!(self.by, By::GStreamer(video) if video.holds_rate())
    }

    /// Required programs that are missing here, each with its Debian package.
    pub fn missing(&self) -> Vec<(&'static str, &'static str)> {
        let others: &[(&str, &str)] = match self.by {
            By::TigerVnc(_) | By::QemuVnc(_) | By::QemuSpice(_) => &[],
            By::FreeRdp(_) => &[freerdp::VIEWER, xdisplay::SCREEN],
            By::GStreamer(_) => &[xdisplay::SCREEN],
        };
        let own = [(self.program, self.package), process::SETPRIV];
        own.iter().chain(others).filter(|(program, _)| !process::is_there(program)).copied().collect()
    }
}

/// Where the application shows its frames.
enum Display {
    /// An X display with this number.
    X(u32),
    Guest(qemu::GuestScreen),
}

/// A server that is ready.
struct Started {
    /// The server first, then the processes that it needs; all count as the server.
    processes: Vec<Process>,
    /// Its display.
    display: Display,
    /// The address at which it waits for viewers.
    address: SocketAddr,
    /// The version that it reports.
    version: String,
    /// The folder for its files.
    home: Option<Home>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_family_is_all_of_it_and_what_is_not_there_is_named() {
        let family = find("tigervnc").unwrap();
        assert!(family.len() == 5 && family.iter().all(|s| s.name.starts_with("tigervnc-")));
        assert!(matches!(
            find("tigervnc-zrle").unwrap()[..],
            [Server { by: By::TigerVnc(Encoding::Zrle), .. }]
        ));
        assert!(find("telnet").unwrap_err().to_string().contains("tigervnc-jpeg"));
    }
}
