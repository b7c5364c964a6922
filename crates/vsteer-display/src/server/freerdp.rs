//! Runs FreeRDP's shadow server and its viewer. The server shows an X display without a screen (Xvfb), in
//! which the application draws. The viewer is `xfreerdp` in another such display, from which frames are read
//! (onscreen.rs).
//!
//! TLS hides the data, so the negotiated codec comes from the viewer's own log of each decoded message
//! (`com.freerdp.gdi`). CPU time includes the server and its display, because TigerVNC's server also includes
//! both.
//!
//! Source: FreeRDP 2.11 (Debian 12), `freerdp-shadow-cli`, `man 1 xfreerdp`; numbers of codecs:
//! \[MS-RDPEGFX\] 2.2.2.1, \[MS-RDPBCGR\] (surface bits). Left out: passwords (the link is on this machine),
//! the progressive codec, sound.

use super::onscreen::{Home, OnScreen};
use super::process::Process;
use super::xdisplay;
use super::{Display, Started};
use crate::picture::canvas::Size;
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use vsteer_core::{Fault, FaultKind};

pub const PROGRAM: &str = "freerdp-shadow-cli";
pub const PACKAGE: &str = "freerdp2-shadow-x11";
/// The viewer, and its package.
pub const VIEWER: (&str, &str) = ("xfreerdp", "freerdp2-x11");
/// It first makes a certificate.
const STARTS_WITHIN: Duration = Duration::from_secs(30);
/// The requested codec.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Graphics {
    RemoteFx,
    /// H.264 with halved colours.
    Avc420,
    /// H.264 with full colours, as two pictures with halved ones.
    Avc444,
}

impl Graphics {
    fn word(self) -> &'static str {
        match self {
            Graphics::RemoteFx => "RFX",
            Graphics::Avc420 => "AVC420",
            Graphics::Avc444 => "AVC444",
        }
    }

    /// The numbers of the codecs that implement it.
    fn codecs(self) -> &'static [u32] {
        match self {
            Graphics::RemoteFx => &[3],
            Graphics::Avc420 => &[11],
            Graphics::Avc444 => &[14, 15],
        }
    }
}

fn codec(number: u32) -> String {
    match number {
        0 => "uncompressed".to_owned(),
        3 => "RemoteFX".to_owned(),
        8 => "ClearCodec".to_owned(),
        9 => "RemoteFX progressive".to_owned(),
        10 => "planar".to_owned(),
        11 => "AVC420".to_owned(),
        14 => "AVC444".to_owned(),
        15 => "AVC444v2".to_owned(),
        other => format!("codec {other}"),
    }
}

/// Starts the server, with a display of this size.
///
/// # Errors
/// It or Xvfb is missing, or does not start.
pub fn start(size: Size) -> Result<Started, Fault> {
    let (screen, display) = xdisplay::virtual_screen(size)?;
    // The port is free now. If another process takes it before the server does, nothing listens there.
    let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .and_then(|l| l.local_addr())
        .map_err(|e| Fault::io("a port for an RDP server".to_owned(), &e))?
        .port();
    let home = Home::new(port)?;
    let words =
        [format!("/port:{port}"), "/bind-address:127.0.0.1".into(), "-auth".into(), "/sec:tls".into()];
    let mut process = Process::start(PROGRAM, PACKAGE, &words, &home.environment(display))?;
    process.until("it did not listen", STARTS_WITHIN, |_| {
        std::fs::read_to_string("/proc/net/tcp").is_ok_and(|all| listens(&all, port))
    })?;
    let version = version(&home, display)?;
    Ok(Started {
        processes: vec![process, screen],
        display: Display::X(display),
        address: (Ipv4Addr::LOCALHOST, port).into(),
        version,
        home: Some(home),
    })
}

/// The version that it reports.
fn version(home: &Home, display: u32) -> Result<String, Fault> {
    let mut asked = Process::start(PROGRAM, PACKAGE, &["/version".to_owned()], &home.environment(display))?;
    let line = asked.line(STARTS_WITHIN)?;
    let at = line.find("FreeRDP version ").map(|at| at + "FreeRDP version ".len());
    let word = at.and_then(|at| line[at..].split_whitespace().next());
    Ok(word.map_or("FreeRDP".to_owned(), |word| format!("FreeRDP {word}")))
}

/// Does a process listen on this port of 127.0.0.1, according to /proc/net/tcp?
fn listens(table: &str, port: u16) -> bool {
    let local = format!("0100007F:{port:04X}");
    table.lines().any(|line| {
        let mut fields = line.split_whitespace().skip(1);
        fields.next() == Some(&local) && fields.nth(1) == Some("0A")
    })
}

/// Connects its viewer through the link.
///
/// # Errors
/// It or Xvfb is missing, or does not start.
pub fn view(link: SocketAddr, asked: Graphics, picture: Size, stop: &AtomicBool) -> Result<OnScreen, Fault> {
    let words = [
        format!("/v:{link}"),
        format!("/size:{}x{}", picture.width, picture.height),
        format!("/gfx:{}", asked.word()),
        "/cert:ignore".into(),
        "/u:viewer".into(),
        "/p:".into(),
        "-decorations".into(),
        "-grab-keyboard".into(),
        "/log-filters:com.freerdp.gdi:TRACE".into(),
    ];
    let home = Home::new(link.port())?;
    let told = move |said: &[String]| negotiated(&came(said), asked);
    OnScreen::start(VIEWER, &words, home, picture, Box::new(told), stop)
}

/// What was negotiated as text, and what is wrong with it.
fn negotiated(came: &BTreeMap<u32, u64>, asked: Graphics) -> (String, Option<Fault>) {
    let all: u64 = came.values().sum();
    let kinds: Vec<String> =
        came.iter().map(|(n, times)| format!("{} ({times} messages)", codec(*n))).collect();
    let kinds = if kinds.is_empty() { "no picture came".to_owned() } else { kinds.join(", ") };
    let fits: u64 = asked.codecs().iter().filter_map(|n| came.get(n)).sum();
    let why = (all > 0 && fits * 10 < all * 9).then(|| {
        let what = format!("the server did not send what was asked for ({})", asked.word());
        Fault::new(FaultKind::Unsupported, what).because(format!("what came was {kinds}"))
    });
    (format!("RDP over TLS, by the viewer's log: {kinds}"), why)
}

/// Messages by codec, from the viewer's log lines: `… codec=11, …` of the graphics pipeline, `… codecID 3 …`
/// of surface bits.
fn came(said: &[String]) -> BTreeMap<u32, u64> {
    let mut all = BTreeMap::new();
    for line in said.iter().filter(|line| line.contains("[com.freerdp.gdi]")) {
        let number = ["codec=", "codecID "].iter().find_map(|word| {
            let rest = &line[line.find(word)? + word.len()..];
            let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
            rest[..digits].parse().ok()
        });
        if let Some(number) = number {
            *all.entry(number).or_default() += 1;
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lines from xfreerdp 2.11.7 (Debian 12) with /log-level:TRACE.
    #[test]
    fn what_came_is_what_the_viewer_says_that_it_decoded() {
        let said = [
            "[16:37:01:509] [25804:25809] [TRACE][com.freerdp.gdi] - surfaceId=0, codec=11, contextId=0, format=PIXEL_FORMAT_BGRX32, left=0, top=0",
            "[16:37:01:609] [25804:25809] [TRACE][com.freerdp.gdi] - surfaceId=0, codec=11, contextId=0, format=PIXEL_FORMAT_BGRX32, left=0, top=0",
            "[16:37:08:101] [25904:25909] [DEBUG][com.freerdp.gdi] - destLeft 0 destTop 0 destRight 1280 destBottom 720 bpp 32 flags 0 codecID 3 width 1280",
            "[16:37:08:101] [25904:25909] [INFO][com.freerdp.gdi] - Local framebuffer format  PIXEL_FORMAT_BGRX32",
            "[16:37:08:101] [25904:25909] [DEBUG][com.freerdp.codec.rfx] - codec=9",
        ]
        .map(str::to_owned);
        assert_eq!(came(&said), BTreeMap::from([(11, 2), (3, 1)]));
        let (told, why) = negotiated(&came(&said), Graphics::Avc444);
        assert!(told.contains("AVC420 (2 messages)") && why.unwrap().to_string().contains("AVC444"));
        assert_eq!(negotiated(&BTreeMap::from([(15, 9), (0, 1)]), Graphics::Avc444).1, None);
        assert_eq!(came(&["[com.freerdp.gdi] - codec=é".to_owned()]), BTreeMap::new());
    }

    #[test]
    fn a_port_is_listened_on_where_the_kernel_says_so() {
        let table = "  sl  local_address rem_address   st\n   0: 0100007F:0D3E 00000000:0000 0A 0\n   1: 0100007F:1F90 0100007F:9999 01 0\n";
        assert!(listens(table, 3390) && !listens(table, 8080) && !listens("", 1));
    }
}
