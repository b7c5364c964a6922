//! Answers HTTP: metrics, the query interface and the live page. Clients cannot change the host.
//!
//! Every client may be hostile. There are limits on connections, on the size and the time of a request, and on the time of an
//! answer. A client above a limit is disconnected. The others do not notice, and neither does the thread that observes.

mod access;
mod answers;
mod arrow;
mod coding;
mod history;
mod live;
mod one;
mod page;
mod plan;
mod query;
mod refused;
mod source;
mod tls;

pub use access::Access;
pub use source::Source;

use crate::listen::Place;
use access::Shown;
use axum::Router;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::task::AbortHandle;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use vsteer_core::Fault;

/// Connections at a time to each place. For one more the service ends the oldest that waits for its client.
const CONNECTIONS: usize = 256;
/// How long a client may take for the head of a request, and for the handshake of TLS.
const HEAD_WITHIN: Duration = Duration::from_secs(10);
/// How long a connection may last: a client that reads slowly is disconnected.
const LASTS: Duration = Duration::from_secs(120);
/// How long to wait after a connection that could not be accepted.
const AFTER_FAILURE: Duration = Duration::from_millis(50);
/// The largest head of a request.
const HEAD_MOST: usize = 16 << 10;

/// All places of the service, with what they answer.
pub struct Service {
    /// For clients that need not show anything, and for those that must show a token, or have shown a certificate.
    open: Router,
    by_token: Router,
    by_certificate: Router,
    access: Arc<Access>,
}

enum Listening {
    Unix(UnixListener),
    Tcp(TcpListener),
}

enum Stream {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Listening {
    fn of(place: Place) -> std::io::Result<Listening> {
        Ok(match place {
            Place::Unix(listener) => {
                listener.set_nonblocking(true)?;
                Listening::Unix(UnixListener::from_std(listener)?)
            }
            Place::Tcp(listener) => {
                listener.set_nonblocking(true)?;
                Listening::Tcp(TcpListener::from_std(listener)?)
            }
        })
    }

    async fn accept(&self) -> std::io::Result<Stream> {
        match self {
            Listening::Unix(listener) => listener.accept().await.map(|(stream, _)| Stream::Unix(stream)),
            Listening::Tcp(listener) => listener.accept().await.map(|(stream, _)| Stream::Tcp(stream)),
        }
    }
}

impl Service {
    /// A service that answers from `source` those that `access` lets in.
    pub fn new(source: Source, access: Arc<Access>) -> Arc<Service> {
        let answers = answers::router(source);
        let shown = |certificate| Shown { access: Arc::clone(&access), certificate };
        let guarded = |certificate| answers::guarded(answers.clone(), shown(certificate));
        let (by_token, by_certificate) = (guarded(false), guarded(true));
        let open = answers::open(answers, shown(false));
        Arc::new(Service { open, by_token, by_certificate, access })
    }

    /// Answers at this place until the runtime ends.
    ///
    /// # Errors
    /// When the runtime cannot wait for the place.
    pub fn answer_at(self: &Arc<Self>, place: Place) -> Result<(), Fault> {
        let listening = Listening::of(place).map_err(|e| Fault::io("cannot wait for connections", &e))?;
        tokio::spawn(Arc::clone(self).accept(listening));
        Ok(())
    }

    async fn accept(self: Arc<Self>, listening: Listening) {
        let mut open = Open::default();
        loop {
            // The client may be gone already, or no descriptor may be left.
            let Ok(stream) = listening.accept().await else {
                tokio::time::sleep(AFTER_FAILURE).await;
                continue;
            };
            // Without room the stream is dropped, which closes it.
            if open.make_room() {
                let (service, busy) = (Arc::clone(&self), Arc::<AtomicBool>::default());
                let of = Arc::clone(&busy);
                let task = tokio::spawn(async move { service.serve(stream, of).await });
                open.0.push_back((task.abort_handle(), busy));
            }
        }
    }

    async fn serve(&self, stream: Stream, busy: Arc<AtomicBool>) {
        match (stream, &self.access.tls) {
            (Stream::Unix(stream), _) => one(stream, self.open.clone(), busy).await,
            (Stream::Tcp(stream), None) => one(stream, self.by_token.clone(), busy).await,
            (Stream::Tcp(stream), Some(tls)) => {
                let accepting = TlsAcceptor::from(tls.get()).accept(stream);
                // A client that does not get through the handshake is disconnected.
                let Ok(Ok(stream)) = timeout(HEAD_WITHIN, accepting).await else { return };
                let certificate = stream.get_ref().1.peer_certificates().is_some_and(|all| !all.is_empty());
                let router = if certificate { &self.by_certificate } else { &self.by_token };
                one(stream, router.clone(), busy).await;
            }
        }
    }
}

/// When a connection began: an answer without end must end before the connection is closed.
#[derive(Clone, Copy)]
struct Began(Instant);

/// The connections of a place, oldest first, each with whether its request is being answered.
#[derive(Default)]
struct Open(VecDeque<(AbortHandle, Arc<AtomicBool>)>);

impl Open {
    /// Makes room for one more, if need be by ending the oldest connection that waits for its client: clients that hang must not
    /// keep others out. Returns whether there is room.
    fn make_room(&mut self) -> bool {
        if self.0.len() < CONNECTIONS {
            return true;
        }
        self.0.retain(|(task, _)| !task.is_finished());
        if self.0.len() < CONNECTIONS {
            return true;
        }
        let idle = self.0.iter().position(|(_, busy)| !busy.load(Ordering::Relaxed));
        idle.and_then(|at| self.0.remove(at)).is_some_and(|(task, _)| {
            task.abort();
            true
        })
    }
}

/// Serves one connection, as long as it keeps the limits.
async fn one(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    router: Router,
    busy: Arc<AtomicBool>,
) {
    let (router, began) = (TowerToHyperService::new(router), Began(Instant::now()));
    let answering = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(began);
        let (answer, busy) = (router.call(request), Arc::clone(&busy));
        busy.store(true, Ordering::Relaxed);
        async move {
            let answer = answer.await;
            busy.store(false, Ordering::Relaxed);
            answer
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_WITHIN)
        .max_buf_size(HEAD_MOST)
        .serve_connection(TokioIo::new(stream), answering);
    // The client decides how the connection ends.
    let _ = timeout(LASTS, connection).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn clients_that_hang_make_room_and_those_that_are_answered_stay() {
        let mut open = Open::default();
        let hangs = || tokio::spawn(std::future::pending::<()>()).abort_handle();
        for i in 0..CONNECTIONS {
            assert!(open.make_room());
            // Every second one is being answered.
            open.0.push_back((hangs(), Arc::new(AtomicBool::new(i % 2 == 0))));
        }
        for _ in 0..CONNECTIONS / 2 {
            assert!(open.make_room());
            open.0.push_back((hangs(), Arc::new(AtomicBool::new(true))));
        }
        assert!(!open.make_room(), "all are being answered");
        open.0[3].0.abort();
        tokio::task::yield_now().await;
        assert!(open.make_room(), "one has ended");
    }
}
