//! One message there and one back, on a connection that is kept.
//!
//! HTTP/1.1 as a server of SOAP needs it: POST, a length or chunks, a session's cookie. A connection that the other end closed
//! between two messages is opened again once. Nothing is waited for longer than [`LIMIT`], and no answer is larger than
//! [`LONGEST`].
//!
//! Sources: RFC 9110, RFC 9112. Left out: redirects, proxies, compression, more than one connection.

use super::Trust;
use crate::http;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;
use vsteer_core::{Fault, FaultKind};

/// Longest wait for the other end's next bytes.
const LIMIT: Duration = Duration::from_secs(60);
/// And for its first.
const CONNECT: Duration = Duration::from_secs(10);
/// Largest answer, bytes: a thousand VMs' properties are some megabytes.
const LONGEST: u64 = 256 << 20;
/// Longest line of a header, and most of them.
const LINE: u64 = 1 << 16;
const HEADERS: usize = 200;

type Tls = StreamOwned<ClientConnection, TcpStream>;

/// A connection, open or to be opened.
pub(super) struct Connection {
    host: String,
    port: u16,
    config: Arc<ClientConfig>,
    stream: Option<BufReader<Tls>>,
    cookie: Option<String>,
}

impl Connection {
    pub(super) fn new(host: &str, port: u16, trust: &Trust) -> Result<Connection, Fault> {
        let config = Arc::new(trust.config()?);
        Ok(Connection { host: host.to_owned(), port, config, stream: None, cookie: None })
    }

    fn open(&mut self) -> Result<(), Fault> {
        let unreachable = |e: &dyn std::fmt::Display| {
            Fault::new(FaultKind::NothingThere, format!("connecting to {} port {}", self.host, self.port))
                .because(e)
                .way_out("check name and port, and that the host is up")
        };
        let mut addresses = (self.host.as_str(), self.port).to_socket_addrs().map_err(|e| unreachable(&e))?;
        let mut last: Option<io::Error> = None;
        let tcp =
            addresses.find_map(|a| TcpStream::connect_timeout(&a, CONNECT).map_err(|e| last = Some(e)).ok());
        let Some(tcp) = tcp else {
            return Err(match last {
                Some(e) => unreachable(&e),
                None => unreachable(&"it has no address"),
            });
        };
        tcp.set_read_timeout(Some(LIMIT))
            .and_then(|()| tcp.set_write_timeout(Some(LIMIT)))
            .map_err(|e| unreachable(&e))?;
        // Messages are whole when they are written.
        let _ = tcp.set_nodelay(true);
        let name = ServerName::try_from(self.host.clone()).map_err(|e| unreachable(&e))?;
        let mut tls = ClientConnection::new(self.config.clone(), name).map_err(|e| unreachable(&e))?;
        let mut tcp = tcp;
        while tls.is_handshaking() {
            tls.complete_io(&mut tcp).map_err(|e| self.untrusted(&e))?;
        }
        self.stream = Some(BufReader::with_capacity(1 << 16, StreamOwned::new(tls, tcp)));
        Ok(())
    }

    fn untrusted(&self, e: &io::Error) -> Fault {
        Fault::new(FaultKind::NoPrivilege, format!("TLS with {} port {}", self.host, self.port))
            // What rustls says before the words of a verifier that is not its own.
            .because(e.to_string().trim_start_matches("unexpected error: "))
            .way_out("trust its authority with --ca FILE, or this one certificate with --thumbprint, once you know it is its own")
    }

    /// Forgets the session: the next message begins without one.
    pub(super) fn forget_session(&mut self) {
        self.cookie = None;
    }

    /// Sends a message and waits for the answer: status and body.
    pub(super) fn post(&mut self, path: &str, body: &str) -> Result<(u16, String), Fault> {
        let kept = self.stream.is_some();
        if !kept {
            self.open()?;
        }
        let failed = |e: &io::Error| Fault::new(FaultKind::Failed, "asking by HTTPS").because(e);
        match self.exchange(path, body) {
            // What it never answered it may not have seen: only then is it asked again.
            Err(e)
                if kept
                    && matches!(
                        e.kind(),
                        io::ErrorKind::UnexpectedEof
                            | io::ErrorKind::ConnectionReset
                            | io::ErrorKind::BrokenPipe
                    ) =>
            {
                self.open()?;
                self.exchange(path, body).map_err(|e| failed(&e))
            }
            other => other.map_err(|e| failed(&e)),
        }
    }

    fn exchange(&mut self, path: &str, body: &str) -> io::Result<(u16, String)> {
        // Whatever goes wrong on it, it is not used again.
        let Some(mut stream) = self.stream.take() else { return Err(io::ErrorKind::NotConnected.into()) };
        let cookie = self.cookie.as_ref().map_or_else(String::new, |c| format!("Cookie: {c}\r\n"));
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: {host}:{}\r\nContent-Type: text/xml; charset=utf-8\r\nSOAPAction: \
             \"urn:vim25/6.0\"\r\nUser-Agent: vsteer\r\n{cookie}Content-Length: {}\r\n\r\n",
            self.port,
            body.len()
        );
        let to = stream.get_mut();
        to.write_all(head.as_bytes())?;
        to.write_all(body.as_bytes())?;
        to.flush()?;
        let answer = answer(&mut stream)?;
        if let Some(cookie) = answer.cookie {
            self.cookie = Some(cookie);
        }
        if answer.keep {
            self.stream = Some(stream);
        }
        Ok((answer.status, answer.body))
    }
}

struct Answer {
    status: u16,
    cookie: Option<String>,
    keep: bool,
    body: String,
}

fn bad(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why.to_owned())
}

fn answer(from: &mut impl BufRead) -> io::Result<Answer> {
    let first = http::line(from, LINE)?;
    let status = first.strip_prefix("HTTP/1.").and_then(|rest| rest.get(2..5)?.parse().ok());
    let status: u16 = status.ok_or_else(|| bad("it does not speak HTTP/1"))?;
    let (mut length, mut chunked, mut cookie, mut keep) = (None, false, None, first.starts_with("HTTP/1.1"));
    for n in 0.. {
        let header = http::line(from, LINE)?;
        if header.is_empty() {
            break;
        }
        if n >= HEADERS {
            return Err(bad("its header does not end"));
        }
        let Some((name, value)) = header.split_once(':') else { continue };
        let value = value.trim();
        match name.to_ascii_lowercase().as_str() {
            "content-length" => {
                length = Some(value.parse::<u64>().map_err(|_| bad("its length is no number"))?)
            }
            "transfer-encoding" => chunked = value.to_ascii_lowercase().contains("chunked"),
            "connection" => keep &= !value.eq_ignore_ascii_case("close"),
            // The name and value alone are given back.
            "set-cookie" => cookie = value.split(';').next().map(str::to_owned).filter(|c| !c.is_empty()),
            _ => {}
        }
    }
    let mut bytes = Vec::new();
    match (chunked, length) {
        (true, _) => {
            http::chunks(from, LONGEST, LINE, &mut bytes)?;
            // What may come after the last chunk: the connection is used again.
            while bytes.len() as u64 <= LONGEST && !http::line(from, LINE)?.is_empty() {}
        }
        (false, Some(n)) if n > LONGEST => return Err(bad("its answer is too long")),
        (false, Some(n)) => http::exactly(from, n, &mut bytes)?,
        (false, None) => {
            keep = false;
            from.take(LONGEST + 1).read_to_end(&mut bytes)?;
        }
    }
    if bytes.len() as u64 > LONGEST {
        return Err(bad("its answer is too long"));
    }
    let body = String::from_utf8(bytes).map_err(|_| bad("its answer is no UTF-8"))?;
    Ok(Answer { status, cookie, keep, body })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(text: &str) -> io::Result<Answer> {
        answer(&mut io::Cursor::new(text.as_bytes().to_vec()))
    }

    #[test]
    fn answers_by_length_by_chunks_and_to_the_end() {
        let a = of("HTTP/1.1 200 OK\r\nSet-Cookie: vmware_soap_session=\"x\"; Path=/\r\nContent-Length: 3\r\n\r\nabcdef").unwrap();
        assert_eq!((a.status, a.body.as_str(), a.keep), (200, "abc", true));
        assert_eq!(a.cookie.as_deref(), Some("vmware_soap_session=\"x\""));
        let a = of(
            "HTTP/1.1 500 no\r\ntransfer-encoding: Chunked\r\n\r\n2;x\r\nab\r\n1\r\nc\r\n0\r\nT: r\r\n\r\n",
        )
        .unwrap();
        assert_eq!((a.status, a.body.as_str(), a.keep), (500, "abc", true));
        let a = of("HTTP/1.0 200 OK\r\n\r\nabc").unwrap();
        assert_eq!((a.body.as_str(), a.keep), ("abc", false));
    }

    #[test]
    fn what_breaks_off_or_never_ends_is_refused() {
        for wrong in [
            "",
            "SSH-2.0-x\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc",
            "HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffff\r\nab",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\nffffffffffffffff\r\nab",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n",
        ] {
            assert!(of(wrong).is_err(), "{wrong:?}");
        }
        let endless = format!("HTTP/1.1 200 OK\r\n{}", "a: b\r\n".repeat(10_000));
        assert!(of(&endless).is_err());
    }

    proptest! {
        #[test]
        fn any_answer_ends(text in any::<String>(), head in "HTTP/1.1 [0-9]{3} OK\r\n([A-Za-z-]{1,10}: [a-z0-9]{0,5}\r\n){0,4}") {
            let _ = of(&format!("{head}{text}"));
            let _ = of(&text);
        }
    }
}
