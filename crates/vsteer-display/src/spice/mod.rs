//! A viewer of SPICE servers, which also records what the server really sent.
//!
//! This client does only what a viewer must do. It opens the main channel, which names the session, and one
//! display channel. It answers pings and acknowledges messages. It keeps the screen up to date and counts the
//! images of each kind. So the negotiated compression comes from the received data, not from the request.
//!
//! ```text
//! channel  a connection: link, ticket (ticket), messages, acknowledgements      draw    drawing                      bytes  a message's fields
//! image    kinds of images; lz, glz, zlib                                       stream  videos, as streams of JPEG
//! ```
//! SPICE has no frames: a server draws rectangles when it finds that they have changed. QEMU checks a guest's
//! framebuffer some 30 times a second. It sends the changes in strips of 32 pixels, each once, ordered by
//! their lower edges and then from the left. So if a strip overlaps an earlier one, or breaks this order,
//! another check has begun, and the present screen is complete ([`Said::Begins`]). If nothing follows a
//! check, the screen is complete after a while without data; the caller must detect this. If a busy link has
//! not taken strips yet, newer strips replace them. Then parts of two frames are visible together, also in
//! other viewers.
//!
//! Source: SPICE's spice.proto (spice-common 0.14), its protocol.h and enums.h (spice-protocol 0.14), and
//! libspice-server 0.15.1 itself. The client checks everything that a server sends. A rectangle outside the
//! screen, an unreasonable length, or an unsupported kind of image ends the session with a fault. Left out:
//! input, sound, the pointer, the guest's agent, passwords and TLS, several screens.

mod bytes;
mod channel;
mod draw;
mod glz;
mod image;
mod lz;
mod pixels;
mod stream;
mod ticket;

use crate::cpu::now_ns;
use crate::picture::canvas::Size;
use crate::rfb::screen::{Rect, Screen};
use bytes::Bytes;
use channel::{Channel, Message, Of};
use image::Images;
use std::collections::BTreeMap;
use std::io::{Read, Write};
use stream::Streams;
use vsteer_core::{Fault, FaultKind};

/// The most pixels of a screen, and the longest edge.
const PIXELS_MOST: usize = 16 << 20;
const EDGE_MOST: usize = 16_384;
/// The most rectangles of one check of a screen. A server that works in blocks of 32 pixels has no more.
const DRAWN_MOST: usize = 10_000;
/// At most this many messages are read until the server names the session; it sends some others first.
const BEFORE_MOST: usize = 100;
const MAIN_INIT: u16 = 103;
/// Message of a display's viewer about what it can keep.
const INIT: u16 = 101;
/// Capabilities of the display's viewer: pictures of a stream with their own size; several codecs of streams;
/// JPEG as one of them.
const SIZED_STREAM: u32 = 1;
const MULTI_CODEC: u32 = 1 << 8;
const CODEC_MJPEG: u32 = 1 << 9;
/// Supported pixel formats of a screen: 32 bits of which 24 are used, and with alpha.
const SURFACE: [u32; 2] = [32, 96];

/// The requested compression.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    /// Uncompressed pixels.
    Raw,
    /// LZ, each image separately.
    Lz,
    /// LZ that refers to earlier images.
    Glz,
    /// GLZ through zlib, as for slow links.
    GlzZlib,
    /// Moving parts as streams of JPEG; the rest with LZ.
    Streams,
}

impl Compression {
    /// The options of QEMU's `-spice` that request it.
    pub fn options(self) -> &'static str {
        match self {
            Compression::Raw => "image-compression=off,streaming-video=off",
            Compression::Lz => "image-compression=lz,streaming-video=off",
            Compression::Glz => "image-compression=glz,zlib-glz-wan-compression=never,streaming-video=off",
            Compression::GlzZlib => {
                "image-compression=glz,zlib-glz-wan-compression=always,streaming-video=off"
            }
            Compression::Streams => "image-compression=lz,jpeg-wan-compression=never,streaming-video=all",
        }
    }

    /// Does an image of this kind match the request? The first picture of a screen arrives before the
    /// request, so it does not count.
    fn fits(self, kind: &str) -> bool {
        match self {
            Compression::Raw => kind == "raw",
            Compression::Lz => kind == "LZ",
            Compression::Glz => kind == "GLZ",
            // The server omits zlib if it does not reduce the size.
            Compression::GlzZlib => kind.starts_with("GLZ"),
            // Parts that do not move are not streams.
            Compression::Streams => kind == stream::KIND || kind == "LZ",
        }
    }
}

/// The received images of one kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Came {
    pub images: u64,
    /// The pixels that they drew on the screen.
    pub pixels: u64,
    /// The number of these in the first picture.
    pub first: u64,
}

/// The kind of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Said {
    /// A drawing begins a new check. The present screen is complete, and the message is kept for the next
    /// call.
    Begins,
    /// Something was drawn.
    Drew,
    Other,
}

pub struct Client<R, W> {
    main: Channel<R, W>,
    display: Channel<R, W>,
    compression: Compression,
    screen: Option<Screen>,
    images: Images,
    streams: Streams,
    /// Rectangles drawn since the screen was last complete.
    drawn: Vec<Rect>,
    /// A kept message that begins the next check.
    held: Option<Message>,
    came: BTreeMap<&'static str, Came>,
    /// The first picture is complete.
    marked: bool,
    /// When something was last drawn.
    drawn_ns: u64,
}

impl<R: Read, W: Write> Client<R, W> {
    /// Opens both channels, through two connections to one server.
    ///
    /// # Errors
    /// It is not such a server, it refuses, or it wants a password.
    pub fn start(main: (R, W), display: (R, W), compression: Compression) -> Result<Client<R, W>, Fault> {
        let mut main = Channel::open(main.0, main.1, Of::Main, 0, 0)?;
        let mut session = None;
        for _ in 0..BEFORE_MOST {
            if let Some(message) = main.next()?.filter(|m| m.kind == MAIN_INIT) {
                session = Some(Bytes::of(&message.body, "a session's beginning").u32()?);
                break;
            }
        }
        let session = session.ok_or_else(|| bad("much, and nothing of a session"))?;
        let can = SIZED_STREAM | MULTI_CODEC | CODEC_MJPEG;
        let mut display = Channel::open(display.0, display.1, Of::Display, session, can)?;
        // The client keeps no images in a cache, only those that GLZ refers to.
        let mut says = vec![1];
        says.extend(0i64.to_le_bytes());
        says.push(1);
        says.extend(glz::WINDOW_PIXELS.to_le_bytes());
        display.tell(INIT, &says)?;
        Ok(Client {
            main,
            display,
            compression,
            screen: None,
            images: Images::default(),
            streams: Streams::default(),
            drawn: Vec::new(),
            held: None,
            came: BTreeMap::new(),
            marked: false,
            drawn_ns: 0,
        })
    }

    /// Waits for the main channel's next message, and answers it if needed.
    ///
    /// # Errors
    /// The server is gone.
    pub fn main(&mut self) -> Result<(), Fault> {
        self.main.next().map(drop)
    }

    /// Waits for the display's next message and executes it.
    ///
    /// # Errors
    /// The server is gone, or its message is broken or not supported.
    pub fn next(&mut self) -> Result<Said, Fault> {
        let message = match self.held.take() {
            Some(message) => message,
            None => {
                let Some(message) = self.display.next()? else { return Ok(Said::Other) };
                if self.place(&message)?.is_some_and(|to| self.begins(to)) {
                    self.drawn.clear();
                    self.held = Some(message);
                    return Ok(Said::Begins);
                }
                message
            }
        };
        self.done(&message)
    }

    fn done(&mut self, message: &Message) -> Result<Said, Fault> {
        let body = &message.body;
        match message.kind {
            DRAW_COPY => {
                let screen = self.screen.as_ref().ok_or_else(|| bad("a drawing on no screen"))?;
                let put = draw::copy(body, &mut self.images, screen)?;
                self.put(&put)
            }
            STREAM_CREATE => {
                let most = self.screen.as_ref().map_or(0, |s| s.size().width * s.size().height);
                self.streams.create(body, most).map(|()| Said::Other)
            }
            STREAM_DATA | STREAM_DATA_SIZED => {
                let sized = message.kind == STREAM_DATA_SIZED;
                let put = self.streams.picture(body, sized, &mut self.images.jpeg)?;
                self.put(&put)
            }
            STREAM_CLIP => self.streams.clip(body).map(|()| Said::Other),
            STREAM_DESTROY => self.streams.destroy(body).map(|()| Said::Other),
            STREAM_DESTROY_ALL => {
                self.streams.destroy_all();
                Ok(Said::Other)
            }
            SURFACE_CREATE => {
                let mut from = Bytes::of(body, "a surface");
                let [surface, width, height, format] = [from.u32()?, from.u32()?, from.u32()?, from.u32()?];
                if surface != 0 || !SURFACE.contains(&format) {
                    let what = format!("a SPICE server has surface {surface} of format {format}");
                    return Err(Fault::new(FaultKind::Unsupported, what)
                        .because("one screen of 32 bits is read")
                        .help("a guest with one screen of 32 bits and without a QXL driver"));
                }
                self.screen = Some(Screen::new(sized(width as usize, height as usize)?));
                self.drawn.clear();
                Ok(Said::Other)
            }
            MARK => {
                self.marked = true;
                Ok(Said::Other)
            }
            MODE | RESET | INVAL_LIST..=INVAL_ALL_PALETTES | SURFACE_DESTROY | MONITORS | STREAM_REPORT => {
                Ok(Said::Other)
            }
            other => Err(Fault::new(
                FaultKind::Unsupported,
                format!("a SPICE server sent message {other} of its display, which is not read"),
            )
            .because("QEMU draws a plain framebuffer by copies and streams alone")
            .help("a guest without a QXL driver")),
        }
    }

    /// Does a drawing here belong to a new check?
    fn begins(&self, to: Rect) -> bool {
        // The overlap alone would keep a wrong start forever, because each check draws about the same strips.
        // So the order also counts.
        let order = |r: &Rect| (r.y + r.height, r.x);
        self.drawn.last().is_some_and(|last| order(&to) <= order(last))
            || self.drawn.iter().any(|r| draw::common(*r, to).width > 0)
            || self.drawn.len() >= DRAWN_MOST
    }

    /// The rectangle that a message draws, if it draws.
    fn place(&self, message: &Message) -> Result<Option<Rect>, Fault> {
        match message.kind {
            DRAW_COPY => draw::place(&message.body).map(Some),
            STREAM_DATA | STREAM_DATA_SIZED => {
                self.streams.place(&message.body, message.kind == STREAM_DATA_SIZED)
            }
            _ => Ok(None),
        }
    }

    fn put(&mut self, put: &draw::Put) -> Result<Said, Fault> {
        let screen = self.screen.as_mut().filter(|s| s.has(put.to));
        let screen = screen.ok_or_else(|| bad(format!("{:?} lies outside of its screen", put.to)))?;
        let pixels = put.onto(screen);
        let came = self.came.entry(put.kind).or_default();
        came.images += 1;
        came.pixels += pixels as u64;
        if !self.marked {
            came.first += pixels as u64;
        }
        self.drawn_ns = now_ns();
        self.drawn.push(put.to);
        Ok(Said::Drew)
    }

    /// Has nothing been drawn since the screen was last complete?
    pub fn is_whole(&self) -> bool {
        self.drawn.is_empty()
    }

    /// No data has arrived for a while, so the screen is complete.
    pub fn rest(&mut self) {
        self.drawn.clear();
    }

    /// When something was last drawn, ns; 0 means never.
    pub fn drawn_ns(&self) -> u64 {
        self.drawn_ns
    }

    /// Is a message kept for the next call?
    pub fn holds(&self) -> bool {
        self.held.is_some()
    }

    /// The streams of the main channel and of the display.
    pub fn sources(&self) -> [&R; 2] {
        [self.main.source(), self.display.source()]
    }

    /// The present screen; `None` before the server has sent its size.
    pub fn screen(&self) -> Option<&Screen> {
        self.screen.as_ref()
    }

    /// What was negotiated according to the received data: protocol, and kinds of images with their share of
    /// the pixels.
    pub fn negotiated(&self) -> String {
        let came = self.came.iter().map(|(kind, c)| (*kind, c.images, c.pixels));
        let kinds = crate::came::told(came, "images");
        format!("SPICE 2.2, mini headers, asked for {}: {kinds}", self.compression.options())
    }

    /// The share of the pixels after the first picture that arrived in another form than requested; `None`
    /// before any arrived. If streams were requested and none arrived, it is 1.
    pub fn otherwise(&self) -> Option<f64> {
        let of = |also: &dyn Fn(&str) -> bool| -> u64 {
            self.came.iter().filter(|(kind, _)| also(kind)).map(|(_, c)| c.pixels - c.first).sum()
        };
        let all = of(&|_| true);
        let none = self.compression == Compression::Streams && of(&|kind| kind == stream::KIND) == 0;
        let other = if none { all } else { of(&|kind| !self.compression.fits(kind)) };
        (all > 0).then(|| other as f64 / all as f64)
    }
}

/// Kinds of messages of a display.
const MODE: u16 = 101;
const MARK: u16 = 102;
const RESET: u16 = 103;
const INVAL_LIST: u16 = 105;
const INVAL_ALL_PALETTES: u16 = 108;
const STREAM_CREATE: u16 = 122;
const STREAM_DATA: u16 = 123;
const STREAM_CLIP: u16 = 124;
const STREAM_DESTROY: u16 = 125;
const STREAM_DESTROY_ALL: u16 = 126;
const DRAW_COPY: u16 = 304;
const SURFACE_CREATE: u16 = 314;
const SURFACE_DESTROY: u16 = 315;
const STREAM_DATA_SIZED: u16 = 316;
const MONITORS: u16 = 317;
const STREAM_REPORT: u16 = 319;

/// The fault for a broken message.
fn bad(what: impl std::fmt::Display) -> Fault {
    Fault::new(FaultKind::BadInput, format!("a SPICE server said: {what}"))
}

fn sized(width: usize, height: usize) -> Result<Size, Fault> {
    let edge = 1..=EDGE_MOST;
    if edge.contains(&width) && edge.contains(&height) && width * height <= PIXELS_MOST {
        Ok(Size { width, height })
    } else {
        Err(bad(format!("its screen has {width}x{height} pixels")))
    }
}

#[cfg(test)]
mod tests;
