//! How does a viewer speak to a VNC server, and what did that server really send?
//!
//! A client of the remote framebuffer protocol that does no more than a viewer must: it asks for one encoding of pixels, keeps the framebuffer as it is told to,
//! and counts what rectangles came of which encoding, so that what was negotiated is known from the wire and not from what was asked for. Where the server can, it sends
//! updates without being asked for each (ContinuousUpdates, with Fence by which it measures the way), as TigerVNC's own viewer has it; else the next update is asked for
//! as soon as one begins to come.
//!
//! ```text
//! tight  palettes, gradients, JPEG, zlib's streams       zrle  tiles of runs and palettes       inflate  zlib's streams       screen  the framebuffer
//! ```
//! Source: RFC 6143; Fence, ContinuousUpdates, Tight and its qualities by "The RFB Protocol" of the rfbproto project (2022). What a server sends is checked before it is believed:
//! a rectangle outside of the framebuffer, a length beyond any use, an encoding that nobody asked for end the session with a fault.
//! Left out: passwords and TLS, input, sound, the pointer's shape, pixels of fewer than 24 bits, Hextile.

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

/// Nobody's name, reason or clipboard is longer, bytes.
const WORDS_MOST: u32 = 1 << 20;
/// Of each edge of a framebuffer, pixels.
const EDGE_MOST: usize = 16_384;
const RAW: i32 = 0;
const COPY_RECT: i32 = 1;
const TIGHT: i32 = 7;
const ZRLE: i32 = 16;
const DESKTOP_SIZE: i32 = -223;
const LAST_RECT: i32 = -224;
const FENCE: i32 = -312;
const CONTINUOUS: i32 = -313;
/// Of a fence's flags: it is asked for an answer; those that an answer repeats (block before, block after, synchronise the next).
const FENCE_ASKS: u32 = 1 << 31;
const FENCE_REPEATS: u32 = 7;

/// How pixels are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    /// Pixels as they are.
    Raw,
    /// Tiles of runs and palettes through zlib; without loss.
    Zrle,
    /// Palettes and gradients through zlib, without loss; of this quality (0 to 9) JPEG where colours are many, if one is given.
    Tight(Option<u8>),
}

impl Encoding {
    /// As rectangles name it.
    fn number(self) -> i32 {
        match self {
            Encoding::Raw => RAW,
            Encoding::Zrle => ZRLE,
            Encoding::Tight(_) => TIGHT,
        }
    }

    /// All that is said of it and beside it, the most wanted first.
    fn asked(self) -> Vec<i32> {
        let mut all = vec![self.number(), COPY_RECT, DESKTOP_SIZE, LAST_RECT, FENCE, CONTINUOUS];
        if let Encoding::Tight(Some(quality)) = self {
            all.push(-32 + i32::from(quality.min(9)));
        }
        all
    }
}

/// What came, of one kind of rectangle.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Came {
    pub rectangles: u64,
    /// Pixels of theirs.
    pub pixels: u64,
}

/// What one message was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Said {
    /// The framebuffer has changed, and is whole.
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
    /// By encoding, and Tight's by their kind.
    came: BTreeMap<&'static str, Came>,
    /// The server's name of what it shows.
    name: String,
    version: String,
    /// It sends without being asked for each.
    continuous: bool,
}

impl<R: Read, W: Write> Client<R, W> {
    /// Greets the server, and tells it what pixels are wanted; `security` none.
    ///
    /// # Errors
    /// It is no such server, it refuses, it wants a password, its screen is not to be had.
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
        // Others may look as well.
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

    /// Pixels of 32 bits, of which 24 are used, blue first, as the screen's are; then the encodings; then all of the screen.
    fn wants(&mut self) -> Result<(), Fault> {
        let mut says = vec![0, 0, 0, 0, 32, 24, 0, 1, 0, 255, 0, 255, 0, 255, 16, 8, 0, 0, 0, 0];
        let asked = self.encoding.asked();
        says.extend([2, 0]);
        says.extend((asked.len() as u16).to_be_bytes());
        says.extend(asked.iter().flat_map(|e| e.to_be_bytes()));
        self.say(&says)?;
        self.ask(false)
    }

    /// Asks for the next update: of what changed, or of all.
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

    /// Waits for the server's next message, and does what it says.
    ///
    /// # Errors
    /// The server has gone, or what it says is broken.
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
                // Said once, it means that it can.
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

    /// What is seen.
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

    /// The part of all pixels that came as something else than was asked for (copies and the server's own choice of Tight's kinds are not); none before any came.
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

/// What came broken.
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

/// Reads what has a length.
struct Source<R>(R);

impl<R: Read> Source<R> {
    fn exactly<const N: usize>(&mut self, what: &str) -> Result<[u8; N], Fault> {
        let mut bytes = [0; N];
        self.0.read_exact(&mut bytes).map_err(|e| gone(what, &e))?;
        Ok(bytes)
    }

    /// So many; memory is taken as they come, so that a length that lies takes none.
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
