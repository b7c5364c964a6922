//! How does vsteer ask another machine over HTTP? One client for scrapes and for vSphere's API.
//!
//! ureq speaks HTTP/1.1. rustls encrypts, with vsteer's own verifier of certificates ([`crate::trust`]), which ureq's
//! settings cannot hold: therefore [`tls`] is a link of ureq's chain of connectors. Each answer has a limit in time
//! and in bytes. The client refuses redirects, because a request may carry a password or a session that no other
//! server may see.
//!
//! Sources: RFC 9110, RFC 9112, ureq's documentation of `unversioned::transport`. Left out: compression, cookies,
//! SOCKS proxies.

#[cfg(test)]
pub(crate) mod server;
mod tls;

use rustls::ClientConfig;
use std::fmt;
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use ureq::config::Config;
use ureq::http::{HeaderMap, Request, StatusCode, Uri};
use ureq::unversioned::resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::{
    ConnectProxyConnector, ConnectionDetails, Connector, NextTimeout, TcpConnector, Transport,
};
use ureq::{Agent, AsSendBody, Proxy};

/// How long an answer may take, and how long it may be.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// From the request to the last byte of the answer.
    pub(crate) total: Duration,
    /// To connect; part of `total`.
    pub(crate) connect: Duration,
    pub(crate) silence: Duration,
    pub(crate) bytes: u64,
}

/// An answer that came whole.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
}

/// Why a request got no answer.
#[derive(Debug)]
pub(crate) enum Failure {
    /// No connection was made.
    Unreachable(ureq::Error),
    /// TLS failed, mostly because the server's certificate is not trusted.
    Untrusted(rustls::Error),
    /// The connection broke, the answer was late, or it is not HTTP.
    Broken(ureq::Error),
    /// The answer is longer than this number of bytes.
    TooLong(u64),
    /// The server sends the client to another address.
    Redirected { status: StatusCode, to: String },
}

impl Failure {
    /// Did a limit of time end it?
    pub(crate) fn is_late(&self) -> bool {
        matches!(
            self,
            Failure::Unreachable(ureq::Error::Timeout(_)) | Failure::Broken(ureq::Error::Timeout(_))
        )
    }

    /// Did the server close the connection before the answer was whole?
    pub(crate) fn is_closed(&self) -> bool {
        let closed = [ErrorKind::UnexpectedEof, ErrorKind::ConnectionReset, ErrorKind::BrokenPipe];
        matches!(self, Failure::Broken(ureq::Error::Io(e)) if closed.contains(&e.kind()))
    }

    fn of(error: ureq::Error) -> Failure {
        match error {
            ureq::Error::BodyExceedsLimit(bytes) => Failure::TooLong(bytes),
            ureq::Error::Other(other) => match other.downcast::<Failure>() {
                Ok(failure) => *failure,
                Err(other) => Failure::Broken(ureq::Error::Other(other)),
            },
            other => Failure::Broken(other),
        }
    }

    /// The same through ureq, which knows its own errors alone.
    fn boxed(self) -> ureq::Error {
        ureq::Error::Other(Box::new(self))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // ureq puts "io: " before the words of the system.
            Failure::Unreachable(ureq::Error::Io(e)) | Failure::Broken(ureq::Error::Io(e)) => e.fmt(f),
            failure if failure.is_late() => f.write_str("the server sent no complete answer in time"),
            Failure::Unreachable(e) => e.fmt(f),
            Failure::Broken(e @ ureq::Error::Protocol(_)) => {
                write!(f, "the answer is not valid HTTP/1.1: {e}")
            }
            Failure::Broken(e) => e.fmt(f),
            // A refusal of vsteer's own verifier is a complete sentence.
            Failure::Untrusted(rustls::Error::General(why)) => f.write_str(why),
            Failure::Untrusted(e) => e.fmt(f),
            Failure::TooLong(bytes) => write!(f, "the answer is longer than {} MiB", bytes >> 20),
            Failure::Redirected { status, to } => write!(f, "the server redirects ({status}) to {to}"),
        }
    }
}

impl std::error::Error for Failure {}

/// Asks servers; keeps one connection open if the server does.
#[derive(Debug)]
pub(crate) struct Client {
    agent: Agent,
    bytes: u64,
    connections: Arc<AtomicU64>,
}

impl Client {
    /// A client that encrypts by `tls`, which only https needs.
    pub(crate) fn new(limits: Limits, tls: Option<Arc<ClientConfig>>, proxy: Option<Proxy>) -> Client {
        /// ureq closes an idle connection after 15 s, but vSphere is asked every 20 s. Servers close earlier if they
        /// want to.
        const IDLE: Duration = Duration::from_secs(15 * 60);
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .proxy(proxy)
            .user_agent("vsteer")
            .accept_encoding("identity")
            .timeout_global(Some(limits.total))
            .timeout_connect(Some(limits.connect))
            .timeout_per_read(Some(limits.silence))
            .timeout_per_write(Some(limits.silence))
            .max_idle_connections(1)
            .max_idle_connections_per_host(1)
            .max_idle_age(IDLE)
            .build();
        let connections = Arc::new(AtomicU64::new(0));
        let chain =
            ().chain(ConnectProxyConnector::default())
                .chain(TcpConnector::default())
                .chain(tls::Tls::new(tls));
        let reach = Reach { by: chain, connections: Arc::clone(&connections) };
        let resolver = Reach { by: DefaultResolver::default(), connections: Arc::clone(&connections) };
        Client { agent: Agent::with_parts(config, reach, resolver), bytes: limits.bytes, connections }
    }

    /// How many connections were made so far.
    pub(crate) fn connections(&self) -> u64 {
        self.connections.load(Ordering::Relaxed)
    }

    /// Sends a request and reads the answer.
    pub(crate) fn status(&self, request: Request<impl AsSendBody>) -> Result<StatusCode, Failure> {
        Ok(self.agent.run(request).map_err(Failure::of)?.status())
    }

    pub(crate) fn ask(&self, request: Request<impl AsSendBody>) -> Result<Answer, Failure> {
        let (head, mut body) = self.agent.run(request).map_err(Failure::of)?.into_parts();
        let location = head.headers.get("location").filter(|_| head.status.is_redirection());
        if let Some(to) = location {
            let to = String::from_utf8_lossy(to.as_bytes()).into_owned();
            return Err(Failure::Redirected { status: head.status, to });
        }
        let body = body.with_config().limit(self.bytes).read_to_vec().map_err(Failure::of)?;
        Ok(Answer { status: head.status, headers: head.headers, body })
    }
}

/// Tells failures to connect from those of an answer, and counts connections.
#[derive(Debug)]
struct Reach<T> {
    by: T,
    connections: Arc<AtomicU64>,
}

fn unreachable(error: ureq::Error) -> ureq::Error {
    match error {
        ureq::Error::Other(other) if other.is::<Failure>() => ureq::Error::Other(other),
        other => Failure::Unreachable(other).boxed(),
    }
}

impl<T: Connector<(), Out: Transport>> Connector<()> for Reach<T> {
    type Out = T::Out;

    fn connect(
        &self,
        details: &ConnectionDetails<'_>,
        chained: Option<()>,
    ) -> Result<Option<T::Out>, ureq::Error> {
        let transport = self.by.connect(details, chained).map_err(unreachable)?;
        self.connections.fetch_add(1, Ordering::Relaxed);
        Ok(transport)
    }
}

impl<T: Resolver> Resolver for Reach<T> {
    fn resolve(
        &self,
        uri: &Uri,
        config: &Config,
        timeout: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, ureq::Error> {
        self.by.resolve(uri, config, timeout).map_err(unreachable)
    }
}

/// The failure of TLS in an error of reading or writing.
fn tls_failure(error: io::Error) -> ureq::Error {
    match error.downcast::<rustls::Error>() {
        Ok(e) => Failure::Untrusted(e).boxed(),
        Err(e) => e.into(),
    }
}
