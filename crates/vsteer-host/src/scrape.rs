//! What does a server say of itself now? The text at `http://host:port/metrics`, or in a file that somebody writes anew.
//!
//! One GET on a connection of its own, by HTTP/1.1 without what a page of text does not need: no redirects, no proxies, no compression,
//! no TLS. A server that hangs, drips or never ends is left after a time limit for all of it, and beyond a size; a name is looked up by
//! the system, within its own limits.
//!
//! Sources: RFC 9110, RFC 9112 (messages, chunked transfer coding). Left out: https (a file that curl writes does for it).

use crate::http;
use std::fmt;
use std::io::{BufReader, ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use vsteer_core::{Fault, FaultKind};

/// Asking takes no longer than this.
pub const LIMIT: Duration = Duration::from_secs(3);
/// No page is longer, bytes: the largest exporters' are a tenth of it.
const LONGEST: u64 = 1 << 24;
/// No line of an answer's head is longer, bytes.
const LINE: u64 = 1 << 14;
const HTTP_PORT: u16 = 80;

/// Where the text is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// Asked for by HTTP.
    Http {
        /// Whom, as the URL has it: `host` or `host:port`, an IPv6 address in brackets.
        authority: String,
        /// What of it, with its query.
        path: String,
    },
    /// Read.
    File(PathBuf),
}

/// The text, and of when it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Text {
    /// When it was answered or, of a file, written; ns since 1970.
    pub unix_ns: u64,
    /// The text.
    pub text: String,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Http { authority, path } => write!(f, "http://{authority}{path}"),
            Place::File(file) => write!(f, "{}", file.display()),
        }
    }
}

impl Place {
    /// Of a URL, or a file.
    ///
    /// # Errors
    /// `Unsupported` for another scheme than http, `BadInput` for a URL without a host or with a password.
    pub fn parse(text: &str) -> Result<Place, Fault> {
        let Some((scheme, rest)) = text.split_once("://") else { return Ok(Place::File(text.into())) };
        if !scheme.eq_ignore_ascii_case("http") {
            return Err(Fault::new(FaultKind::Unsupported, text)
                .because(format!("{scheme} is not spoken, only http is"))
                .way_out("have it written into a file again and again, as by curl -o, and give the file"));
        }
        let rest = rest.split('#').next().unwrap_or_default();
        let (authority, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        let bad = |why: &str| {
            Fault::new(FaultKind::BadInput, text)
                .because(why)
                .way_out("write http://HOST:PORT/metrics, or a file")
        };
        // What a request's first lines are made of has no blanks and no line ends.
        if !text.bytes().all(|b| b.is_ascii_graphic()) {
            return Err(bad("a URL is of visible ASCII characters"));
        }
        if authority.contains('@') {
            return Err(bad("names and passwords are not sent"));
        }
        let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
        let place = Place::Http { authority: authority.to_owned(), path };
        address(authority).map(|_| place).ok_or_else(|| bad("it names no host and port"))
    }

    /// The text that is there now. `limit`: for all of it, where it is asked for.
    ///
    /// # Errors
    /// As for reading a file; `NothingThere` where nobody listens, `Failed` for any other answer than the page and for one that takes
    /// longer, `BadInput` for what is no text or too long.
    pub fn fetch(&self, limit: Duration) -> Result<Text, Fault> {
        let what = format!("reading {self}");
        let failed = |e: std::io::Error| fault(&what, &e);
        let (at, bytes) = match self {
            Place::File(path) => {
                let file = std::fs::File::open(path).map_err(failed)?;
                let at = file.metadata().and_then(|m| m.modified()).map_err(failed)?;
                let mut bytes = Vec::new();
                file.take(LONGEST + 1).read_to_end(&mut bytes).map_err(failed)?;
                (at, bytes)
            }
            Place::Http { authority, path } => {
                let bytes = get(&what, authority, path, limit)?;
                (SystemTime::now(), bytes)
            }
        };
        if bytes.len() as u64 > LONGEST {
            return Err(Fault::new(FaultKind::BadInput, what)
                .because(format!("it is longer than {} MiB", LONGEST >> 20))
                .way_out("see that it is a page of metrics"));
        }
        let text = String::from_utf8(bytes).map_err(|e| Fault::new(FaultKind::BadInput, &what).because(e))?;
        Ok(Text { unix_ns: at.duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos() as u64), text })
    }
}

/// Host and port of a URL's authority; `None` where it has none.
fn address(authority: &str) -> Option<(&str, u16)> {
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']')?;
            (host, if port.is_empty() { port } else { port.strip_prefix(':')? })
        }
        None => authority.rsplit_once(':').unwrap_or((authority, "")),
    };
    let port = if port.is_empty() { HTTP_PORT } else { port.parse().ok()? };
    (!host.is_empty()).then_some((host, port))
}

/// An error on the way, with what may be done about it.
fn fault(what: &str, e: &std::io::Error) -> Fault {
    let fault = Fault::io(what, e);
    match e.kind() {
        ErrorKind::ConnectionRefused => Fault { kind: FaultKind::NothingThere, ..fault }
            .way_out("see that the server runs and listens there"),
        ErrorKind::TimedOut | ErrorKind::WouldBlock => Fault::new(FaultKind::Failed, what)
            .because("no whole answer came in time")
            .way_out("see that the server answers within seconds"),
        ErrorKind::UnexpectedEof => fault.way_out("the answer was cut off: ask again"),
        _ => fault,
    }
}

/// A connection that is given up at a moment.
struct Timed {
    stream: TcpStream,
    until: Instant,
}

impl Timed {
    fn left(&self) -> std::io::Result<Option<Duration>> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(Some(left)) }
    }
}

impl Read for Timed {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        self.stream.set_read_timeout(self.left()?)?;
        self.stream.read(buffer)
    }
}

/// The body of the page.
fn get(what: &str, authority: &str, path: &str, limit: Duration) -> Result<Vec<u8>, Fault> {
    let failed = |e: std::io::Error| fault(what, &e);
    let until = Instant::now() + limit;
    let (host, port) = address(authority).ok_or_else(|| Fault::new(FaultKind::BadInput, what))?;
    let mut last = None;
    let mut connected = None;
    for address in (host, port).to_socket_addrs().map_err(failed)? {
        let left = until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        match TcpStream::connect_timeout(&address, left) {
            Ok(stream) => {
                connected = Some(stream);
                break;
            }
            Err(e) => last = Some(e),
        }
    }
    let stream = connected.ok_or_else(|| failed(last.unwrap_or_else(|| ErrorKind::NotFound.into())))?;
    let mut timed = Timed { stream, until };
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: {authority}\r\nAccept: text/plain;version=0.0.4\r\nAccept-Encoding: identity\r\n\
         User-Agent: vsteer\r\nConnection: close\r\n\r\n"
    );
    timed.left().and_then(|left| timed.stream.set_write_timeout(left)).map_err(failed)?;
    timed.stream.write_all(request.as_bytes()).map_err(failed)?;
    page(what, timed)
}

/// The page in an HTTP answer. One that is too long is cut off beyond what a page may have.
///
/// # Errors
/// `Failed` for another answer than a page, a fault of `what`; as reading it; `BadInput` for lengths that are none.
pub fn page<R: Read>(what: &str, answer: R) -> Result<Vec<u8>, Fault> {
    // With room for what is around the body, which is looked at for its length afterwards.
    let answer = &mut BufReader::new(answer.take(2 * LONGEST));
    let failed = |e: std::io::Error| fault(what, &e);
    let odd = |why: String| {
        Fault::new(FaultKind::Failed, what)
            .because(why)
            .way_out("see that the address is that of the metrics' page")
    };
    let status = http::line(answer, LINE).map_err(failed)?;
    let mut words = status.split(' ');
    if !words.next().is_some_and(|w| w.starts_with("HTTP/1.")) {
        return Err(odd(format!("{:?} is no answer of HTTP/1", status.chars().take(40).collect::<String>())));
    }
    let (mut length, mut chunked, mut to) = (None, false, String::new());
    loop {
        let header = http::line(answer, LINE).map_err(failed)?;
        if header.is_empty() {
            break;
        }
        let Some((name, value)) = header.split_once(':').map(|(n, v)| (n.to_ascii_lowercase(), v.trim()))
        else {
            return Err(odd(format!("{header:?} is no header")));
        };
        match name.as_str() {
            "content-length" => {
                length = Some(value.parse::<u64>().map_err(|_| odd(format!("{value:?} is no length")))?);
            }
            "transfer-encoding" if value.eq_ignore_ascii_case("chunked") => chunked = true,
            "transfer-encoding" | "content-encoding" if !value.eq_ignore_ascii_case("identity") => {
                return Err(odd(format!("the page is encoded as {value}, which was not asked for")));
            }
            "location" => to = format!(", elsewhere: {value}"),
            _ => {}
        }
    }
    let code = words.next().unwrap_or_default();
    if code != "200" {
        return Err(odd(format!("it answers {}{to}", status.split_once(' ').map_or(code, |(_, rest)| rest))));
    }
    let mut body = Vec::new();
    let all = match (chunked, length) {
        (true, _) => http::chunks(answer, LONGEST, LINE, &mut body),
        (false, Some(length)) => http::exactly(answer, length.min(LONGEST + 1), &mut body),
        (false, None) => answer.take(LONGEST + 1).read_to_end(&mut body).map(drop),
    };
    all.map_err(failed)?;
    Ok(body)
}

#[cfg(test)]
mod tests;
