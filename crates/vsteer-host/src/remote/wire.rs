//! What do vsteer and its agent on another host say to each other, and how are messages told apart?
//!
//! Each message is JSON on one line, because the nouns of the core serialise so already. The agent speaks first and
//! names its protocol and version ([`Hello`]). After that, each [`Request`] except `stay` and `bye` gets one
//! [`Answer`]. No request changes the host, runs a program, or names a file or a URI.
//!
//! A message with a new meaning needs a new [`PROTOCOL`]. A new optional field does not.
//!
//! Left out: several requests at once, and compression (ssh has it: `Compression yes` in its configuration).

use crate::observe::CollectorChoice;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, write};
use serde::{Deserialize, Serialize};
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};
use vsteer_core::limits;
use vsteer_core::nouns::{Batch, Collector, HostConfig};
use vsteer_core::{Fault, FaultKind};

/// The number of this protocol.
pub const PROTOCOL: u32 = 1;
/// The version of this vsteer.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The agent's first line.
#[derive(Debug, Serialize, Deserialize)]
pub struct Hello {
    /// Who speaks.
    pub vsteer_agent: Speaker,
}

/// The agent and its host.
#[derive(Debug, Serialize, Deserialize)]
pub struct Speaker {
    /// The number of its protocol.
    pub protocol: u32,
    /// Its version.
    pub version: String,
    /// The name of its host.
    pub host: String,
}

/// What vsteer asks for.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    /// Find the VMs and start to count. The answer has the configuration and the collector.
    Open(Open),
    /// Take a sample.
    Sample,
    /// Read the configuration. The answer has it only if it differs from the last one sent.
    Config,
    /// Do not end for lack of requests. No answer.
    Stay,
    /// End. No answer.
    Bye,
}

/// What to observe, and how.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Open {
    /// The way of counting.
    pub collector: CollectorChoice,
    /// Only VMs with these names, ids, or patterns with `*`; empty: all.
    pub vms: Vec<String>,
    /// Use the way of counting that costs least.
    pub light: bool,
    /// Only the VMs of this libvirt of the agent's host; `None`: every VM.
    pub libvirt: Option<Libvirt>,
}

/// The libvirts that a request can name. A URI could name a program or another host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Libvirt {
    /// `qemu:///system`.
    System,
    /// `qemu:///session`.
    Session,
}

impl Libvirt {
    /// Its connection URI on its own host.
    pub const fn uri(self) -> &'static str {
        match self {
            Libvirt::System => "qemu:///system",
            Libvirt::Session => "qemu:///session",
        }
    }
}

/// What the agent answers.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Answer {
    /// The sample that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch: Option<Batch>,
    /// The configuration, if it differs from the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config: Option<HostConfig>,
    /// How samples are taken, if it differs from the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub collector: Option<Collector>,
    /// New notes for the user.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// Why the request failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fault: Option<Told>,
}

/// A [`Fault`] on the wire.
#[derive(Debug, Serialize, Deserialize)]
pub struct Told {
    kind: FaultKind,
    what: String,
    cause: Option<String>,
    help: Option<String>,
}

impl From<Fault> for Told {
    fn from(fault: Fault) -> Told {
        Told { kind: fault.kind, what: fault.what, cause: fault.cause, help: fault.help }
    }
}

impl Told {
    /// The fault, which names the host that it is of.
    pub fn fault(self, host: &str) -> Fault {
        Fault {
            kind: self.kind,
            what: format!("{host}: {}", cut(&self.what)),
            cause: self.cause.as_deref().map(cut),
            help: self.help.as_deref().map(cut),
        }
    }
}

/// The begin of a text of another host, if it is too long.
pub fn cut(text: &str) -> String {
    let end = (0..=limits::AGENT_TEXT.min(text.len())).rev().find(|at| text.is_char_boundary(*at));
    let end = end.unwrap_or(0);
    if end < text.len() { format!("{}...", &text[..end]) } else { text.to_owned() }
}

/// A message as its line.
pub fn line_of(message: &impl Serialize) -> Vec<u8> {
    let mut line = serde_json::to_vec(message).expect("messages are plain data");
    line.push(b'\n');
    line
}

/// Bytes that came, until they are whole lines.
#[derive(Default)]
pub struct Lines {
    bytes: Vec<u8>,
    /// No line ends before this place.
    searched: usize,
}

/// A line without an end.
#[derive(Debug, PartialEq, Eq)]
pub struct TooLong;

impl Lines {
    /// Adds what came.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Is there anything of a line that has not ended?
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Takes the next whole line, without its end.
    ///
    /// # Errors
    /// If the line is longer than `limit` bytes.
    pub fn take(&mut self, limit: usize) -> Result<Option<Vec<u8>>, TooLong> {
        let end = self.bytes[self.searched..].iter().position(|b| *b == b'\n').map(|at| self.searched + at);
        if end.unwrap_or(self.bytes.len()) > limit {
            return Err(TooLong);
        }
        let Some(end) = end else {
            self.searched = self.bytes.len();
            return Ok(None);
        };
        let rest = self.bytes.split_off(end + 1);
        let mut line = std::mem::replace(&mut self.bytes, rest);
        line.pop();
        self.searched = 0;
        Ok(Some(line))
    }
}

/// As the system wants it.
pub fn timeout(left: Duration) -> Timespec {
    Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) }
}

/// Writes all of it to a descriptor that does not block. `false`: the other side takes none of it for
/// [`limits::AGENT_WRITE_TIME`], does not take all of it within `limit`, or is gone.
pub fn write_within(to: BorrowedFd<'_>, mut bytes: &[u8], limit: Duration) -> bool {
    let end = Instant::now() + limit;
    let stall = || end.min(Instant::now() + limits::AGENT_WRITE_TIME);
    let mut deadline = stall();
    while !bytes.is_empty() {
        match write(to, bytes) {
            Ok(n) => {
                bytes = &bytes[n..];
                deadline = stall();
            }
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => {
                let left = deadline.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return false;
                }
                let _ = poll(&mut [PollFd::from_borrowed_fd(to, PollFlags::OUT)], Some(&timeout(left)));
            }
            Err(_) => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_whole_and_have_a_limit() {
        let mut lines = Lines::default();
        lines.push(b"one\ntw");
        assert_eq!(lines.take(5), Ok(Some(b"one".to_vec())));
        assert_eq!(lines.take(5), Ok(None));
        lines.push(b"o\n\n12345");
        assert_eq!(lines.take(5), Ok(Some(b"two".to_vec())));
        assert_eq!(lines.take(5), Ok(Some(Vec::new())));
        assert_eq!((lines.take(5), lines.is_empty()), (Ok(None), false));
        lines.push(b"6");
        assert_eq!(lines.take(5), Err(TooLong));
    }

    #[test]
    fn a_fault_keeps_all_but_the_length_of_its_texts() {
        let fault = Fault::new(FaultKind::NoPrivilege, "w").because("c").help("h");
        let told: Told = serde_json::from_slice(&line_of(&Told::from(fault))).unwrap();
        let fault = told.fault("far");
        assert_eq!((fault.kind, fault.what.as_str()), (FaultKind::NoPrivilege, "far: w"));
        assert_eq!((fault.cause.as_deref(), fault.help.as_deref()), (Some("c"), Some("h")));
        let long = cut(&"ü".repeat(limits::AGENT_TEXT));
        assert!(long.len() <= limits::AGENT_TEXT + 3 && long.ends_with("ü..."));
    }

    #[test]
    fn who_does_not_read_is_given_up() {
        let (end, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        end.set_nonblocking(true).unwrap();
        use std::os::fd::AsFd;
        assert!(write_within(end.as_fd(), b"some", Duration::from_millis(50)));
        assert!(!write_within(end.as_fd(), &vec![0; 8 << 20], Duration::from_millis(50)));
    }
}
