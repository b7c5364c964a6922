//! What do collectors of logs put around a line? The line inside is the server's.
//!
//! Sources: Kubernetes' CRI logging format, Docker's json-file driver, journalctl(1) `-o json`, RFC 3164 and 5424 as rsyslog and
//! journalctl write them to files.

use serde::Deserialize;
use std::borrow::Cow;

/// A wrapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wrapping {
    /// None.
    Bare,
    /// `2019-10-15T19:41:46.5Z stdout F LINE`, of Kubernetes. Long lines come in parts.
    Cri,
    /// `{"log":"LINE\n","stream":"stdout","time":"..."}`
    Docker,
    /// `{"MESSAGE":"LINE",...}`
    Journal,
    /// `Oct 15 19:41:46 host program[7]: LINE`
    Syslog,
}

#[derive(Deserialize)]
struct OfDocker<'a> {
    #[serde(borrow)]
    log: Cow<'a, str>,
    stream: Cow<'a, str>,
}

#[derive(Deserialize)]
struct OfJournal<'a> {
    #[serde(borrow, rename = "MESSAGE")]
    message: Cow<'a, str>,
}

fn owned(text: Cow<'_, str>) -> Cow<'_, [u8]> {
    match text {
        Cow::Borrowed(text) => Cow::Borrowed(text.trim_end_matches('\n').as_bytes()),
        Cow::Owned(text) => Cow::Owned(text.trim_end_matches('\n').as_bytes().to_vec()),
    }
}

impl Wrapping {
    /// All.
    pub const ALL: [Wrapping; 5] =
        [Wrapping::Bare, Wrapping::Cri, Wrapping::Docker, Wrapping::Journal, Wrapping::Syslog];

    /// The line inside; `None` if it is not wrapped so.
    pub fn inside(self, line: &[u8]) -> Option<Cow<'_, [u8]>> {
        match self {
            Wrapping::Bare => Some(Cow::Borrowed(line)),
            Wrapping::Cri => cri(line).map(Cow::Borrowed),
            Wrapping::Docker => {
                let of: OfDocker<'_> = serde_json::from_slice(line).ok()?;
                matches!(&*of.stream, "stdout" | "stderr").then(|| owned(of.log))
            }
            Wrapping::Journal => serde_json::from_slice(line).ok().map(|of: OfJournal<'_>| owned(of.message)),
            Wrapping::Syslog => syslog(line).map(Cow::Borrowed),
        }
    }

    /// Its name for people; `None` for none.
    pub fn name(self) -> Option<&'static str> {
        match self {
            Wrapping::Bare => None,
            Wrapping::Cri => Some("Kubernetes' container log"),
            Wrapping::Docker => Some("Docker's json-file log"),
            Wrapping::Journal => Some("journald's JSON"),
            Wrapping::Syslog => Some("syslog"),
        }
    }
}

/// Splits off the first word.
fn word(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = memchr::memchr(b' ', line)?;
    Some((&line[..at], &line[at + 1..]))
}

fn cri(line: &[u8]) -> Option<&[u8]> {
    let (time, rest) = word(line)?;
    let (stream, rest) = word(rest)?;
    let (tag, rest) = word(rest)?;
    let is_cri = super::moment::date(time).is_some() && [&b"stdout"[..], b"stderr"].contains(&stream);
    // F: a full line. The parts of a long line (P) hold no request that could be read.
    (is_cri && tag == b"F").then_some(rest)
}

/// What follows `TIME HOST PROGRAM[PID]: `.
fn syslog(line: &[u8]) -> Option<&[u8]> {
    let line = match line.strip_prefix(b"<") {
        Some(rest) => &rest[memchr::memchr(b'>', rest).filter(|at| *at <= 3)? + 1..],
        None => line,
    };
    const MONTHS: [&[u8]; 12] =
        [b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec"];
    let (first, rest) = word(line)?;
    let rest = if MONTHS.contains(&first) {
        // A day below ten has two spaces before it.
        let (_day, rest) = word(rest.trim_ascii_start())?;
        word(rest)?.1
    } else {
        super::moment::date(first)?;
        rest
    };
    let (_host, rest) = word(rest)?;
    let (program, rest) = word(rest)?;
    program.ends_with(b":").then_some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_inside_is_the_servers() {
        for (wrapping, line) in [
            (Wrapping::Bare, "a b \"c\""),
            (Wrapping::Cri, "2019-10-15T19:41:46.5Z stdout F a b \"c\""),
            (Wrapping::Docker, r#"{"log":"a b \"c\"\n","stream":"stdout","time":"2019-10-15T19:41:46.5Z"}"#),
            (Wrapping::Journal, r#"{"PRIORITY":"6","MESSAGE":"a b \"c\""}"#),
            (Wrapping::Syslog, "Oct 15 19:41:46 lb haproxy[7]: a b \"c\""),
            (Wrapping::Syslog, "<134>Oct  5 19:41:46 lb haproxy: a b \"c\""),
            (Wrapping::Syslog, "2019-10-15T19:41:46.5+02:00 lb haproxy[7]: a b \"c\""),
        ] {
            assert_eq!(wrapping.inside(line.as_bytes()).as_deref(), Some(&b"a b \"c\""[..]), "{line}");
            for other in Wrapping::ALL.into_iter().filter(|w| *w != wrapping && *w != Wrapping::Bare) {
                assert_eq!(other.inside(line.as_bytes()), None, "{other:?}: {line}");
            }
        }
        assert_eq!(Wrapping::Cri.inside(b"2019-10-15T19:41:46.5Z stdout P a"), None, "a part of a line");
    }
}
