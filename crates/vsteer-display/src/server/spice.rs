//! A viewer of SPICE servers: this program's own client, which decodes in the viewer's thread.
//!
//! The viewer reads the picture when another one begins to be drawn, or when nothing has arrived for a while:
//! [`QUIET`] plus the link's delay in both directions, because a server waits for its viewer's
//! acknowledgements. A frame counts as presented when its last part was drawn.

use crate::picture::canvas::Size;
use crate::picture::number;
use crate::server::ends::Viewer;
use crate::spice::{Client, Compression, Said};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::BufReader;
use std::net::TcpStream;
use std::os::fd::AsFd;
use vsteer_core::{Fault, FaultKind};

/// If more than this share of pixels arrived in another form than requested, it counts as another
/// compression. Few pixels are always sent uncompressed.
const OTHERWISE_MOST: f64 = 0.1;
const BUFFER: usize = 1 << 16;
/// After this time without data, ms, a picture is complete. It is many times the server's time between
/// strips, even on a busy machine.
const QUIET: f64 = 100.0;
/// How often a waiting viewer checks whether to end, ns.
const LOOK_EVERY: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

pub struct Spice {
    client: Client<BufReader<TcpStream>, TcpStream>,
    compression: Compression,
    quiet: Timespec,
}

impl Spice {
    /// Opens the session through these streams; the first is for the main channel. The link has this delay in
    /// each direction.
    ///
    /// # Errors
    /// See [`Client::start`].
    pub fn start(streams: [TcpStream; 2], compression: Compression, delay_ms: f64) -> Result<Spice, Fault> {
        let ends = |stream: TcpStream| {
            let writes =
                stream.try_clone().map_err(|e| Fault::io("a socket of the viewer's".to_owned(), &e))?;
            Ok((BufReader::with_capacity(BUFFER, stream), writes))
        };
        let [main, display] = streams;
        let client = Client::start(ends(main)?, ends(display)?, compression)?;
        let quiet_ms = (QUIET + 2.0 * delay_ms) as i64;
        let quiet = Timespec { tv_sec: quiet_ms / 1000, tv_nsec: quiet_ms % 1000 * 1_000_000 };
        Ok(Spice { client, compression, quiet })
    }

    /// Waits for either channel, at most this long; returns which of them have data.
    fn waits(&self, most: &Timespec) -> Result<[bool; 2], Fault> {
        let sources = self.client.sources();
        let mut has = sources.map(|s| !s.buffer().is_empty());
        let mut polled = sources.map(|s| PollFd::from_borrowed_fd(s.get_ref().as_fd(), PollFlags::IN));
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        match poll(&mut polled, Some(if has.contains(&true) { &at_once } else { most })) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(Fault::io("waiting for a SPICE server".to_owned(), &e.into())),
        }
        for (has, polled) in has.iter_mut().zip(&polled) {
            *has |= !polled.revents().is_empty();
        }
        Ok(has)
    }
}

impl Viewer for Spice {
    fn changed(&mut self) -> Result<bool, Fault> {
        loop {
            if !self.client.holds() {
                let whole = self.client.is_whole();
                let [main, display] = self.waits(if whole { &LOOK_EVERY } else { &self.quiet })?;
                if main {
                    self.client.main()?;
                }
                if !display {
                    if !main {
                        self.client.rest();
                        return Ok(!whole);
                    }
                    continue;
                }
            }
            if self.client.next()? == Said::Begins {
                return Ok(true);
            }
        }
    }

    fn seen_ns(&self) -> u64 {
        self.client.drawn_ns()
    }

    fn number(&mut self) -> Result<Option<(u32, [usize; 2])>, Fault> {
        Ok(self.client.screen().and_then(|screen| number::read(screen.pixels(), screen.size())))
    }

    fn part(&mut self, at: [usize; 2], size: Size) -> Result<Option<Vec<u8>>, Fault> {
        Ok(self.client.screen().and_then(|screen| screen.part(at, size)))
    }

    fn cpu_ns(&self) -> Option<u64> {
        None
    }

    fn negotiated(&mut self) -> (String, Option<Fault>) {
        let otherwise = self.client.otherwise().filter(|part| *part > OTHERWISE_MOST);
        let why = otherwise.map(|part| {
            let what = format!("the server did not send what was asked for ({:?})", self.compression);
            let why = format!("{:.0} % of the pixels came as something else", 100.0 * part);
            Fault::new(FaultKind::Unsupported, what).because(why)
        });
        (self.client.negotiated(), why)
    }
}
