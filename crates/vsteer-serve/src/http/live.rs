//! `/api/v1/live`: server-sent events, one for each sample.
//!
//! A stream ends by itself before the connection would be closed, so that a browser sees a complete answer.

use super::source::Answers;
use super::{Began, LASTS};
use crate::live::{STREAMS, event};
use axum::Extension;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use hyper::body::Frame;
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::Sleep;

/// A stream ends so long before its connection would be closed.
const BEFORE: Duration = Duration::from_secs(15);
/// A client comes again after this long.
const RETRY: &str = "retry: 1000\n\n";

/// Events for one client.
struct Events {
    next: mpsc::Receiver<Bytes>,
    until: Pin<Box<Sleep>>,
}

impl hyper::body::Body for Events {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.until.as_mut().poll(context).is_ready() {
            return Poll::Ready(None);
        }
        self.next.poll_recv(context).map(|event| event.map(|event| Ok(Frame::data(event))))
    }
}

pub(super) async fn live(State(answers): State<Answers>, Extension(began): Extension<Began>) -> Response {
    let Some((send, next)) = answers.source.live.listen() else {
        let again = [(header::RETRY_AFTER, "5")];
        let what = format!("{STREAMS} clients listen already\n");
        return (StatusCode::SERVICE_UNAVAILABLE, again, what).into_response();
    };
    // The queue is empty, so it takes both.
    let _ = send.try_send(Bytes::from_static(RETRY.as_bytes()));
    let newest = answers.source.seen.borrow().clone();
    if let Some(seen) = newest {
        let _ = send.try_send(event(&seen));
    }
    // The next stream of this client needs a new connection.
    let head = [
        (header::CONTENT_TYPE, "text/event-stream"),
        (header::CACHE_CONTROL, "no-store"),
        (header::CONNECTION, "close"),
    ];
    let until = tokio::time::Instant::from_std(began.0 + LASTS - BEFORE);
    let events = Events { next, until: Box::pin(tokio::time::sleep_until(until)) };
    (head, Body::new(events)).into_response()
}
