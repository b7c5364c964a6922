//! Opens a channel of SPICE, and handles the messages that all channels have. Each channel is a separate
//! connection: a link message and its reply, a ticket, then messages with a kind, a length and a body (mini
//! headers).
//!
//! Two kinds of messages need an answer, or the server stops: pings, and acknowledgements. The client sends
//! one acknowledgement per window, a number of messages that the server sets. The server sends two windows
//! and then waits.
//!
//! Source: SPICE's spice.proto (BaseChannel) and protocol.h (spice-protocol 0.14), and libspice-server 0.15.1
//! itself. Left out: TLS, SASL, migration, headers other than mini.

use super::bad;
use super::bytes::Bytes;
use super::ticket::{self, KEY};
use std::io::{Read, Write};
use vsteer_core::{Fault, FaultKind};

const MAGIC: &[u8; 4] = b"REDQ";
const MAJOR: u32 = 2;
const MINOR: u32 = 2;
/// The part of the link message before the capabilities, bytes.
const LINK: u32 = 18;
/// The part of a reply up to the key's end, bytes; and the longest accepted reply.
const REPLY: usize = 4 + KEY + 12;
const REPLY_MOST: u32 = 4096;
/// Capabilities: choice of authentication; by a ticket; mini headers.
const COMMON: u32 = 1 | 1 << 1 | 1 << 3;
const AUTHENTICATION_BY_TICKET: u32 = 1;
/// The longest accepted body, bytes: an uncompressed screen of 16 million pixels.
pub const BODY_MOST: u32 = 64 << 20 | 4096;
/// Above this size, memory for a body grows with the received bytes.
const AT_ONCE: usize = 1 << 20;

/// Kinds of messages of any channel: from the server,
const SET_ACK: u16 = 3;
const PING: u16 = 4;
const WAIT_FOR_CHANNELS: u16 = 5;
const DISCONNECTING: u16 = 6;
const NOTIFY: u16 = 7;
/// and from the viewer.
const ACK_SYNC: u16 = 1;
const ACK: u16 = 2;
const PONG: u16 = 3;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Of {
    /// The main channel comes first and names the session.
    Main,
    Display,
}

/// A message of the server.
pub struct Message {
    pub kind: u16,
    /// The complete body.
    pub body: Vec<u8>,
}

/// An open channel.
pub struct Channel<R, W> {
    from: R,
    to: W,
    /// Messages per acknowledgement; 0 means that the server wants none.
    window: u32,
    left: u32,
}

impl<R: Read, W: Write> Channel<R, W> {
    /// Opens a channel; `session` is 0 for the first. `can` are the bits of this channel's own capabilities.
    ///
    /// # Errors
    /// It is not such a server, it refuses, or it requires TLS.
    pub fn open(from: R, to: W, of: Of, session: u32, can: u32) -> Result<Channel<R, W>, Fault> {
        let mut channel = Channel { from, to, window: 0, left: 0 };
        let mut says = MAGIC.to_vec();
        let caps = [COMMON, can];
        for word in [MAJOR, MINOR, LINK + 4 * caps.len() as u32, session] {
            says.extend(word.to_le_bytes());
        }
        says.extend(match of {
            Of::Main => [1, 0],
            Of::Display => [2, 0],
        });
        for word in [1, 1, LINK].into_iter().chain(caps) {
            says.extend(word.to_le_bytes());
        }
        channel.say(&says)?;
        let mut head = [0; 16];
        channel.from.read_exact(&mut head).map_err(|e| gone("its reply", &e))?;
        let mut read = Bytes::of(&head, "a reply");
        if read.take(4)? != MAGIC {
            return Err(bad("its magic: this is not a SPICE server"));
        }
        let version = (read.u32()?, read.u32()?);
        let length = read.u32()?;
        if version.0 != MAJOR || length > REPLY_MOST || (length as usize) < REPLY {
            return Err(bad(format!("a reply of version {}.{}, {length} bytes long", version.0, version.1)));
        }
        let reply = channel.some(length as usize, "its reply")?;
        let mut read = Bytes::of(&reply, "a reply");
        refused(read.u32()?)?;
        let key = read.take(KEY)?.try_into().expect("`take` gives as many bytes as asked for");
        let counts = [read.u32()?, read.u32()?];
        let caps = read.u32()? as usize;
        let mut caps = Bytes::of(reply.get(caps..).unwrap_or_default(), "what a server can");
        let common = if counts[0] > 0 { caps.u32()? } else { 0 };
        if common & COMMON != COMMON {
            return Err(Fault::new(
                FaultKind::Unsupported,
                "a SPICE server that lets nobody in by ticket with mini headers",
            )
            .because(format!("what it can is {common:#x}")));
        }
        let mut says = AUTHENTICATION_BY_TICKET.to_le_bytes().to_vec();
        says.extend(ticket::empty(key)?);
        channel.say(&says)?;
        let mut result = [0; 4];
        channel.from.read_exact(&mut result).map_err(|e| gone("whether it lets one in", &e))?;
        refused(u32::from_le_bytes(result))?;
        Ok(channel)
    }

    /// The stream from which it reads.
    pub fn source(&self) -> &R {
        &self.from
    }

    /// Sends a message.
    ///
    /// # Errors
    /// The server is gone.
    pub fn tell(&mut self, kind: u16, body: &[u8]) -> Result<(), Fault> {
        let mut says = kind.to_le_bytes().to_vec();
        says.extend((body.len() as u32).to_le_bytes());
        says.extend(body);
        self.say(&says)
    }

    fn say(&mut self, says: &[u8]) -> Result<(), Fault> {
        self.to.write_all(says).map_err(|e| Fault::io("speaking to a SPICE server".to_owned(), &e))
    }

    /// Waits for the server's next message. Returns `None` for a message that any channel has, which is
    /// answered here.
    ///
    /// # Errors
    /// The server is gone or disconnects; a body that is too long.
    pub fn next(&mut self) -> Result<Option<Message>, Fault> {
        let mut head = [0; 6];
        self.from.read_exact(&mut head).map_err(|e| gone("a message", &e))?;
        let mut read = Bytes::of(&head, "a message's head");
        let (kind, length) = (read.u16()?, read.u32()?);
        if length > BODY_MOST {
            return Err(bad(format!("message {kind}, {length} bytes long")));
        }
        let body = self.some(length as usize, "a message")?;
        if self.window > 0 {
            self.left -= 1;
            if self.left == 0 {
                self.left = self.window;
                self.tell(ACK, &[])?;
            }
        }
        let mut read = Bytes::of(&body, "a message of any channel");
        match kind {
            SET_ACK => {
                let generation = read.u32()?;
                self.window = read.u32()?;
                self.left = self.window;
                self.tell(ACK_SYNC, &generation.to_le_bytes())?;
            }
            // The ping's number and time; its padding is not sent back.
            PING => {
                let answer = read.take(12)?.to_vec();
                self.tell(PONG, &answer)?;
            }
            DISCONNECTING => {
                read.take(8)?;
                let reason = read.u32()?;
                return Err(Fault::new(FaultKind::Failed, "a SPICE server ends the session")
                    .because(format!("its reason is number {reason}")));
            }
            // There is only one channel of each kind, and its earlier messages have been handled.
            WAIT_FOR_CHANNELS | NOTIFY => {}
            _ => return Ok(Some(Message { kind, body })),
        }
        Ok(None)
    }

    /// Reads `n` bytes. Memory grows with the received bytes, so a false length does not allocate memory.
    fn some(&mut self, n: usize, what: &str) -> Result<Vec<u8>, Fault> {
        let mut bytes = Vec::with_capacity(n.min(AT_ONCE));
        let came = self.from.by_ref().take(n as u64).read_to_end(&mut bytes).map_err(|e| gone(what, &e))?;
        if came < n { Err(gone(what, &std::io::ErrorKind::UnexpectedEof.into())) } else { Ok(bytes) }
    }
}

#[cfg(test)]
impl<R> Channel<R, Vec<u8>> {
    /// Everything that was sent to the server.
    pub fn told(&self) -> &[u8] {
        &self.to
    }
}

/// The fault for a link's result number.
fn refused(number: u32) -> Result<(), Fault> {
    let why = match number {
        0 => return Ok(()),
        5 => "it wants TLS",
        7 => "permission denied: it wants a password, or could not decrypt the ticket",
        8 => "it knows no such session",
        9 => "it has no such channel",
        _ => "it says no more",
    };
    Err(Fault::new(FaultKind::NoPrivilege, "a SPICE server refuses").because(format!("{why} ({number})")))
}

fn gone(what: &str, e: &std::io::Error) -> Fault {
    Fault::io(format!("hearing {what} of a SPICE server"), e)
}
