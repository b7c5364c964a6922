//! The query interface, version 1: what was seen, for programs.
//!
//! Every answer is an object with the name of its schema and the time that it is of. The rule of compatibility: within a version
//! fields are added, and none is removed or changes its meaning or unit. So a client ignores fields that it does not know. The
//! values are those of `vsteer diagnose --json`, in the same form. Models, the last minutes and the history are also there as
//! Arrow, for a client that accepts it (`arrow.rs`).
//!
//! The history and plans have files of their own.

use super::source::{Answers, not_yet, schema, with_head};
use super::{arrow, live, one, plan};
use crate::seen::Seen;
use axum::extract::{RawQuery, State};
use axum::http::HeaderMap;
use axum::response::Response;
use axum::routing::get;
use axum::{Json, Router};
use serde_json::{Value, json};
use vsteer_core::model::HostModel;

/// An answer: its path, what it is, and how it is made.
struct Answer {
    path: &'static str,
    about: &'static str,
    of: fn(&Seen) -> Value,
    /// The model that it also gives as Arrow.
    model: Option<fn(&Seen) -> Option<&HostModel>>,
}

const ALL: &[Answer] = &[
    Answer {
        path: "/state",
        about: "the model of the host from the last sample but one to the last; null after the first sample",
        of: |seen| json!({ "model": seen.now.as_deref() }),
        model: Some(|seen| seen.now.as_deref()),
    },
    Answer {
        path: "/minute",
        about: "the model over the last minute; null during the first 15 seconds",
        of: |seen| json!({ "model": seen.minute.as_deref() }),
        model: Some(|seen| seen.minute.as_deref()),
    },
    Answer {
        path: "/findings",
        about: "what was found in the last minute, causes first",
        of: |seen| json!({ "findings": *seen.findings }),
        model: None,
    },
    Answer {
        path: "/config",
        about: "how the host and its VMs are set up",
        of: |seen| json!({ "config": *seen.config }),
        model: None,
    },
    Answer {
        path: "/blame",
        about: "which threads ran while each VM was ready, in the last minute; null if that is not measured",
        of: one::blame,
        model: None,
    },
];

/// Answers that take parameters or do not end: their paths, and what they are.
const OTHERS: &[(&str, &str)] = &[
    ("/vm?vm=NAME", "one VM: its settings, now, the last minute, its culprits and findings"),
    ("/recent?vm=NAME", "the last 15 minutes of a VM, sample by sample; without vm those of the host"),
    (
        "/plan?set=VM:weight=200",
        "the plan for the last minute with its forecast, null during the first 15 seconds; with set (repeatable) the forecast of that change. Nothing is changed",
    ),
    ("/live", "one event for each sample, as server-sent events"),
];

pub(super) fn router() -> Router<Answers> {
    let index = get(async |State(answers): State<Answers>| {
        let one = |(path, about): (&str, &str)| json!({ "path": format!("/api/v1{path}"), "about": about });
        let all = ALL.iter().map(|a| (a.path, a.about)).chain(OTHERS.iter().copied()).map(one);
        let history = super::history::index().filter(|_| answers.source.history.is_some());
        Json(json!({ "version": 1, "answers": all.chain(history).collect::<Vec<_>>() }))
    });
    let others = Router::new()
        .route("/", index)
        .route(plan::PATH, get(plan::plan))
        .route("/vm", get(one::vm))
        .route("/recent", get(one::recent))
        .route("/live", get(live::live));
    ALL.iter().fold(others, |router, answer| {
        let respond =
            async move |State(answers): State<Answers>, RawQuery(query): RawQuery, head: HeaderMap| {
                told(&answers, answer, &head, query.as_deref().unwrap_or_default())
            };
        router.route(answer.path, get(respond))
    })
}

fn told(answers: &Answers, answer: &Answer, head: &HeaderMap, query: &str) -> Response {
    let Some(seen) = answers.source.seen.borrow().clone() else { return not_yet() };
    if let Some(model) = answer.model.filter(|_| arrow::wants(head)) {
        return arrow::of_model(schema(answer.path), &seen, model(&seen), query);
    }
    with_head(answer.path, &seen, (answer.of)(&seen))
}
