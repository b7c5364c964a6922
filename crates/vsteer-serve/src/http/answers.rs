//! What each path answers.

use super::access::{self, Shown};
use super::coding::accepts_gzip;
use super::source::{Answers, Rendered, Source, not_yet};
use super::{history, page, query};
use crate::metrics::{Format, render};
use crate::seen::Seen;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router, middleware};
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::json;
use std::collections::BTreeMap;
use std::io::Write;
use std::sync::{Arc, Mutex, PoisonError};

/// The largest body of a request.
const BODY_MOST: usize = 64 << 10;

/// All paths but the page's.
pub(super) fn router(source: Source) -> Router {
    let state = Answers { source, rendered: Arc::default() };
    Router::new()
        .route("/metrics", get(metrics))
        .route("/-/healthy", get(healthy))
        .nest("/api/v1", query::router().merge(history::router()))
        .layer(DefaultBodyLimit::max(BODY_MOST))
        .with_state(state)
}

/// All paths, for a client that need not show anything. It must call the service by its name all the same: a browser may reach
/// the socket through a port that ssh forwards.
pub(super) fn open(answers: Router, shown: Shown) -> Router {
    let named = middleware::from_fn_with_state(shown, access::check_name);
    answers.merge(page::router(false)).layer(named)
}

/// All paths, for a client that must show something. The page's files hold nothing of the host, so they need no token.
pub(super) fn guarded(answers: Router, shown: Shown) -> Router {
    let page = page::router(!shown.certificate);
    let named = middleware::from_fn_with_state(shown.clone(), access::check_name);
    let known = middleware::from_fn_with_state(shown, access::check);
    // The layer also answers for paths that do not exist.
    answers.layer(known).merge(page.layer(named))
}

async fn metrics(State(answers): State<Answers>, headers: HeaderMap) -> Response {
    let text = |name| headers.get(name).and_then(|value: &axum::http::HeaderValue| value.to_str().ok());
    let format = Format::accepted(text(header::ACCEPT));
    let gzip = text(header::ACCEPT_ENCODING).is_some_and(accepts_gzip);
    let Some(seen) = answers.source.seen.borrow().clone() else { return not_yet() };
    let compat = answers.source.compat_names;
    let rendered = Arc::clone(&answers.rendered);
    // Thousands of series take some milliseconds, in which other clients are answered.
    let body = tokio::task::spawn_blocking(move || body(&rendered, &seen, format, gzip, compat)).await;
    let Ok(body) = body else { return StatusCode::INTERNAL_SERVER_ERROR.into_response() };
    let mut response = body.as_ref().clone().into_response();
    let head = response.headers_mut();
    head.insert(header::CONTENT_TYPE, header::HeaderValue::from_static(format.media_type()));
    head.insert(header::VARY, header::HeaderValue::from_static("accept, accept-encoding"));
    if gzip {
        head.insert(header::CONTENT_ENCODING, header::HeaderValue::from_static("gzip"));
    }
    response
}

/// The exposition of what was seen; made once for each form.
fn body(
    rendered: &Mutex<Rendered>,
    seen: &Arc<Seen>,
    format: Format,
    gzip: bool,
    compat: bool,
) -> Arc<Vec<u8>> {
    let mut rendered = rendered.lock().unwrap_or_else(PoisonError::into_inner);
    let newest = Arc::downgrade(seen);
    if !rendered.of.ptr_eq(&newest) {
        *rendered = Rendered { of: newest, by_form: BTreeMap::new() };
    }
    if let Some(body) = rendered.by_form.get(&(format, gzip)) {
        return Arc::clone(body);
    }
    let mut body = render(seen, crate::metrics::tables(compat), format);
    if gzip {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(&body).expect("memory takes all");
        body = encoder.finish().expect("memory takes all");
    }
    let body = Arc::new(body);
    rendered.by_form.insert((format, gzip), Arc::clone(&body));
    body
}

async fn healthy(State(answers): State<Answers>) -> Response {
    let Some(seen) = answers.source.seen.borrow().clone() else { return not_yet() };
    Json(json!({ "samples": seen.costs.samples, "failed": seen.costs.failed })).into_response()
}
