//! A viewer of VNC servers, which also records what the server really sent.
//!
//! This client of the remote framebuffer protocol does only what a viewer must do. It requests one encoding
//! of pixels, keeps the framebuffer up to date, and counts the rectangles of each encoding. So the negotiated
//! encoding comes from the received data, not from the request. If the server can, it sends updates without a
//! request for each (ContinuousUpdates, with Fence, by which it measures the path), as with TigerVNC's own
//! viewer. Otherwise the client requests the next update as soon as one begins to arrive.
//!
//! ```text
//! tight  palettes, gradients, JPEG, zlib's streams       zrle  tiles of runs and palettes       inflate  zlib's streams       screen  the framebuffer
//! ```
//! Source: RFC 6143; Fence, ContinuousUpdates, Tight and its qualities by "The RFB Protocol" of the rfbproto
//! project (2022). The client checks everything that a server sends. A rectangle outside the framebuffer, an
//! unreasonable length, or an encoding that was not requested ends the session with a fault. Left out:
//! passwords and TLS, input, sound, the pointer's shape, pixels with fewer than 24 bits, Hextile.

mod inflate;
pub mod screen;
mod tight;
mod zrle;

use crate::picture::canvas::{PIXEL, Size};
use inflate::Inflate;
use screen::{Rect, Screen};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use tight::Tight;
use vsteer_core::{Fault, FaultKind};

/// The longest accepted name, reason or clipboard, bytes.
const WORDS_MOST: u32 = 1 << 20;
/// The longest edge of a framebuffer, pixels.
const EDGE_MOST: usize = 16_384;
const RAW: i32 = 0;
const COPY_RECT: i32 = 1;
const TIGHT: i32 = 7;
const ZRLE: i32 = 16;
const DESKTOP_SIZE: i32 = -223;
const LAST_RECT: i32 = -224;
const FENCE: i32 = -312;
const CONTINUOUS: i32 = -313;
/// Flags of a fence: the request for an answer; and those that an answer repeats (block before, block after,
/// synchronise the next).
const FENCE_ASKS: u32 = 1 << 31;
const FENCE_REPEATS: u32 = 7;

/// The requested encoding of pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    /// Uncompressed pixels.
    Raw,
    /// Tiles of runs and palettes through zlib; lossless.
    Zrle,
    /// Palettes and gradients through zlib, lossless. With a quality (0 to 9): JPEG where there are many
    /// colours.
    Tight(Option<u8>),
}

impl Encoding {
    /// Its number in rectangles.
    fn number(self) -> i32 {
        match self {
            Encoding::Raw => RAW,
            Encoding::Zrle => ZRLE,
            Encoding::Tight(_) => TIGHT,
        }
    }

    /// All requested encodings and extensions, the most wanted first.
    fn asked(self) -> Vec<i32> {
        let mut all = vec![self.number(), COPY_RECT, DESKTOP_SIZE, LAST_RECT, FENCE, CONTINUOUS];
        if let Encoding::Tight(Some(quality)) = self {
            all.push(-32 + i32::from(quality.min(9)));
        }
        all
    }
}

/// The received rectangles of one kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Came {
    pub rectangles: u64,
    /// The number of their pixels.
    pub pixels: u64,
}

/// The kind of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Said {
    /// The framebuffer has changed and is complete.
    Update,
    Other,
}

pub struct Client<R, W> {
    from: Source<R>,
    to: W,
    encoding: Encoding,
    screen: Screen,
    tight: Tight,
    zrle: Inflate,
    /// By encoding; Tight also by its kind.
    came: BTreeMap<&'static str, Came>,
    /// The server's name for its screen.
    name: String,
    version: String,
    /// The server sends updates without a request for each.
    continuous: bool,
}

impl<R: Read, W: Write> Client<R, W> {
    /// Greets the server and requests the encoding; no security.
    ///
    /// # Errors
    /// It is not such a server, it refuses, it wants a password, or its screen is not supported.
    pub fn start(from: R, mut to: W, encoding: Encoding) -> Result<Client<R, W>, Fault> {
        let mut from = Source(from);
        let version = from.exactly::<12>("its version")?;
        if !version.starts_with(b"RFB ") {
            return Err(bad("its version: this is not a VNC server"));
        }
        let told = |e: std::io::Error| Fault::io("speaking to a VNC server".to_owned(), &e);
        to.write_all(b"RFB 003.008\n").map_err(told)?;
        let types = from.exactly::<1>("its kinds of security")?[0];
        if types == 0 {
            let why = from.words("why it refuses")?;
            return Err(Fault::new(FaultKind::NoPrivilege, "a VNC server refuses").because(why));
        }
        let types = from.some(usize::from(types), "its kinds of security")?;
        if !types.contains(&1) {
            return Err(Fault::new(FaultKind::NoPrivilege, "a VNC server wants a password")
                .because(format!("its kinds of security are {types:?}")));
        }
        to.write_all(&[1]).map_err(told)?;
        if from.u32("whether it lets one in")? != 0 {
            let why = from.words("why it refuses")?;
            return Err(Fault::new(FaultKind::NoPrivilege, "a VNC server refuses").because(why));
        }
        // Other viewers may also connect.
        to.write_all(&[1]).map_err(told)?;
        let size = from.size()?;
        from.exactly::<16>("its pixels")?;
        let name = from.words("its name")?;
        let mut client = Client {
            from,
            to,
            encoding,
            screen: Screen::new(size),
            tight: Tight::default(),
            zrle: Inflate::default(),
            came: BTreeMap::new(),
            name,
            version: String::from_utf8_lossy(&version[4..11]).into_owned(),
            continuous: false,
        };
        client.wants()?;
        Ok(client)
    }

    /// Requests pixels of 32 bits, of which 24 are used, blue first, like the screen's. Then the encodings,
    /// then the whole screen.
    fn wants(&mut self) -> Result<(), Fault> {
        let mut says = vec![0, 0, 0, 0, 32, 24, 0, 1, 0, 255, 0, 255, 0, 255, 16, 8, 0, 0, 0, 0];
        let asked = self.encoding.asked();
        says.extend([2, 0]);
        says.extend((asked.len() as u16).to_be_bytes());
        says.extend(asked.iter().flat_map(|e| e.to_be_bytes()));
        self.say(&says)?;
        self.ask(false)
    }

    /// Requests the next update: of the changes, or of everything.
    fn ask(&mut self, changed: bool) -> Result<(), Fault> {
        let mut says = vec![3, u8::from(changed)];
        says.extend(self.whole());
        self.say(&says)
    }

    fn whole(&self) -> [u8; 8] {
        let Size { width, height } = self.screen.size();
        let [w, h] = [width, height].map(|v| (v as u16).to_be_bytes());
        [0, 0, 0, 0, w[0], w[1], h[0], h[1]]
    }

    fn say(&mut self, says: &[u8]) -> Result<(), Fault> {
        self.to.write_all(says).map_err(|e| Fault::io("speaking to a VNC server".to_owned(), &e))
    }

    /// Waits for the server's next message and executes it.
    ///
    /// # Errors
    /// The server is gone, or its message is broken.
    pub fn next(&mut self) -> Result<Said, Fault> {
        match self.from.exactly::<1>("a message")?[0] {
            0 => self.update().map(|()| Said::Update),
            1 => {
                let head = self.from.exactly::<5>("colours")?;
                let n = u16::from_be_bytes([head[3], head[4]]);
                self.from.skip(u64::from(n) * 6, "colours")?;
                Ok(Said::Other)
            }
            // A bell.
            2 => Ok(Said::Other),
            3 => {
                self.from.exactly::<3>("what was cut")?;
                self.from.words("what was cut")?;
                Ok(Said::Other)
            }
            150 => {
                // The first such message means that the server supports it.
                if !self.continuous {
                    self.continuous = true;
                    let mut says = vec![150, 1];
                    says.extend(self.whole());
                    self.say(&says)?;
                }
                Ok(Said::Other)
            }
            248 => {
                let head = self.from.exactly::<8>("a fence")?;
                let flags = u32::from_be_bytes([head[3], head[4], head[5], head[6]]);
                let payload = self.from.some(usize::from(head[7]), "a fence")?;
                if flags & FENCE_ASKS != 0 {
                    let mut says = vec![248, 0, 0, 0];
                    says.extend((flags & FENCE_REPEATS).to_be_bytes());
                    says.push(payload.len() as u8);
                    says.extend(payload);
                    self.say(&says)?;
                }
                Ok(Said::Other)
            }
            other => Err(bad(format!("message {other}: it is not one that was asked for"))),
        }
    }

    fn update(&mut self) -> Result<(), Fault> {
        let head = self.from.exactly::<3>("an update")?;
        if !self.continuous {
            self.ask(true)?;
        }
        for _ in 0..u16::from_be_bytes([head[1], head[2]]) {
            let head = self.from.exactly::<12>("a rectangle")?;
            let at = |i: usize| usize::from(u16::from_be_bytes([head[i], head[i + 1]]));
            let rect = Rect { x: at(0), y: at(2), width: at(4), height: at(6) };
            let encoding = i32::from_be_bytes([head[8], head[9], head[10], head[11]]);
            if encoding == LAST_RECT {
                break;
            }
            if encoding == DESKTOP_SIZE {
                self.screen = Screen::new(sized(rect.width, rect.height)?);
                if self.continuous {
                    let mut says = vec![150, 1];
                    says.extend(self.whole());
                    self.say(&says)?;
                }
                self.ask(false)?;
                continue;
            }
            if !self.screen.has(rect) {
                return Err(bad(format!("{rect:?} lies outside of its screen of {:?}", self.screen.size())));
            }
            let kind = match encoding {
                RAW => {
                    let bytes = self.from.some(rect.pixels() * PIXEL, "raw pixels")?;
                    self.screen.put(rect, &bytes);
                    "Raw"
                }
                COPY_RECT => {
                    let from = self.from.exactly::<4>("a copied rectangle")?;
                    let at = |i: usize| usize::from(u16::from_be_bytes([from[i], from[i + 1]]));
                    let from = Rect { x: at(0), y: at(2), ..rect };
                    if !self.screen.has(from) {
                        return Err(bad(format!("{from:?}, to be copied, lies outside of its screen")));
                    }
                    self.screen.copy(from, rect);
                    "CopyRect"
                }
                ZRLE => {
                    let length = self.from.u32("a rectangle's length")? as usize;
                    if length > zrle::most(rect) {
                        return Err(bad(format!("{length} bytes for {rect:?}")));
                    }
                    let bytes = self.from.some(length, "a rectangle of ZRLE's")?;
                    zrle::decode(&mut self.zrle, &bytes, rect, &mut self.screen)?;
                    "ZRLE"
                }
                TIGHT => self.tight.decode(&mut self.from, rect, &mut self.screen)?,
                other => {
                    return Err(bad(format!("a rectangle of encoding {other}, which was not asked for")));
                }
            };
            let came = self.came.entry(kind).or_default();
            came.rectangles += 1;
            came.pixels += rect.pixels() as u64;
        }
        Ok(())
    }

    /// The present screen.
    pub fn screen(&self) -> &Screen {
        &self.screen
    }

    /// What client and server negotiated, according to the data that arrived: protocol version, the share of pixels in each
    /// encoding, and which side starts an update.
    pub fn negotiated(&self) -> String {
        let came = self.came.iter().map(|(kind, c)| (*kind, c.rectangles, c.pixels));
        let kinds = crate::came::told(came, "rectangles");
        let begins = if self.continuous { "continuous updates" } else { "updates by request" };
        format!("RFB {} of {:?}, {begins}: {kinds}", self.version, self.name)
    }

    /// The share of all pixels that arrived in another encoding than requested; `None` before any arrived.
    /// Copies and the server's choice among Tight's kinds do not count.
    pub fn otherwise(&self) -> Option<f64> {
        let of = |also: &dyn Fn(&str) -> bool| -> u64 {
            self.came.iter().filter(|(kind, _)| also(kind)).map(|(_, c)| c.pixels).sum()
        };
        let fits = |kind: &str| match self.encoding {
            Encoding::Raw => kind == "Raw",
            Encoding::Zrle => kind == "ZRLE",
            Encoding::Tight(None) => kind.starts_with("Tight") && kind != tight::JPEG,
            Encoding::Tight(Some(_)) => kind.starts_with("Tight"),
        };
        let all = of(&|_| true);
        (all > 0).then(|| of(&|kind| !fits(kind) && kind != "CopyRect") as f64 / all as f64)
    }
}

/// The fault for a broken message.
fn bad(what: impl std::fmt::Display) -> Fault {
    Fault::new(FaultKind::BadInput, format!("a VNC server said: {what}"))
}

fn sized(width: usize, height: usize) -> Result<Size, Fault> {
    if (1..=EDGE_MOST).contains(&width) && (1..=EDGE_MOST).contains(&height) {
        Ok(Size { width, height })
    } else {
        Err(bad(format!("its screen has {width}x{height} pixels")))
    }
}

/// Reads fields with a given length.
struct Source<R>(R);

impl<R: Read> Source<R> {
    fn exactly<const N: usize>(&mut self, what: &str) -> Result<[u8; N], Fault> {
        let mut bytes = [0; N];
        self.0.read_exact(&mut bytes).map_err(|e| gone(what, &e))?;
        Ok(bytes)
    }

    /// Reads `n` bytes. Memory grows with the received bytes, so a false length does not allocate memory.
    fn some(&mut self, n: usize, what: &str) -> Result<Vec<u8>, Fault> {
        let mut bytes = Vec::with_capacity(n.min(1 << 24));
        let came = self.0.by_ref().take(n as u64).read_to_end(&mut bytes).map_err(|e| gone(what, &e))?;
        if came < n {
            return Err(gone(what, &std::io::ErrorKind::UnexpectedEof.into()));
        }
        Ok(bytes)
    }

    fn skip(&mut self, n: u64, what: &str) -> Result<(), Fault> {
        let came =
            std::io::copy(&mut self.0.by_ref().take(n), &mut std::io::sink()).map_err(|e| gone(what, &e))?;
        if came < n { Err(gone(what, &std::io::ErrorKind::UnexpectedEof.into())) } else { Ok(()) }
    }

    fn u32(&mut self, what: &str) -> Result<u32, Fault> {
        self.exactly(what).map(u32::from_be_bytes)
    }

    fn words(&mut self, what: &str) -> Result<String, Fault> {
        let n = self.u32(what)?;
        if n > WORDS_MOST {
            return Err(bad(format!("{what}, {n} bytes long")));
        }
        Ok(String::from_utf8_lossy(&self.some(n as usize, what)?).into_owned())
    }

    fn size(&mut self) -> Result<Size, Fault> {
        let [a, b, c, d] = self.exactly("its screen's size")?;
        sized(usize::from(u16::from_be_bytes([a, b])), usize::from(u16::from_be_bytes([c, d])))
    }
}

fn gone(what: &str, e: &std::io::Error) -> Fault {
    Fault::io(format!("hearing {what} of a VNC server"), e)
}

#[cfg(test)]
mod tests;
