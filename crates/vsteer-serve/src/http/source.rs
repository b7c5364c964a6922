//! What answers are made from, and what all of them have.

use crate::forecasts::Forecasts;
use crate::live::Live;
use crate::metrics::Format;
use crate::seen::Seen;
use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, Weak};
use tokio::sync::watch;

/// What the observer tells, and how it is answered.
#[derive(Clone)]
pub struct Source {
    /// The newest state of the host.
    pub seen: watch::Receiver<Option<Arc<Seen>>>,
    /// Export libvirt's and KubeVirt's names of metrics too.
    pub compat_names: bool,
    /// The connection that was asked for, which `vsteer apply` needs too.
    pub connect: Option<String>,
    /// Plans and what-if questions.
    pub forecasts: Arc<Forecasts>,
    /// The last minutes, and who listens to what comes.
    pub live: Arc<Live>,
    /// Where the history is; `None`: there is none.
    pub history: Option<PathBuf>,
}

/// The expositions of one sample, by form and compression: a hundred scrapes at once cost one.
#[derive(Default)]
pub(super) struct Rendered {
    /// Weak, so that an old sample does not stay in memory until the next scrape.
    pub(super) of: Weak<Seen>,
    pub(super) by_form: BTreeMap<(Format, bool), Arc<Vec<u8>>>,
}

/// What every answer has at hand.
#[derive(Clone)]
pub(super) struct Answers {
    pub(super) source: Source,
    pub(super) rendered: Arc<Mutex<Rendered>>,
}

/// The answer before the first sample.
pub(super) fn not_yet() -> Response {
    (StatusCode::SERVICE_UNAVAILABLE, "no sample was taken yet\n").into_response()
}

/// An answer with its schema and the time of the newest sample.
pub(super) fn with_head(path: &str, seen: &Seen, mut body: Value) -> Response {
    body["schema"] = json!(schema(path));
    body["unix_ns"] = json!(seen.totals.batch().unix_ns);
    Json(body).into_response()
}

/// The name of an answer's form.
pub(super) fn schema(path: &str) -> String {
    format!("vsteer{}/1", path.replace('/', "."))
}
