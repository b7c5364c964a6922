//! The query interface, version 1: what was seen, for programs.
//!
//! Every answer is an object with the name of its schema and the time that it is of. The rule of compatibility: within a version
//! fields are added, and none is removed or changes its meaning or unit. So a client ignores fields that it does not know. The
//! values are those of `vsteer diagnose --json`, in the same form. Models, the last minutes and the history are also there as
//! Arrow, for a client that accepts it (`arrow.rs`).
//!
//! The history has a file of its own.

use super::refused::refused;
use super::source::{Answers, not_yet};
use super::{arrow, live, one};
use crate::seen::Seen;
use axum::extract::{RawQuery, State};
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use serde_json::{Value, json};
use vsteer_core::model::HostModel;
use vsteer_core::plan::set::Setting;
use vsteer_core::{Fault, FaultKind};

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
        about: "the model over the last minute; null during the first ten seconds",
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
        "the plan for the last minute with its forecast, null during the first ten seconds; with set (repeatable) the forecast of that change. Nothing is changed",
    ),
    ("/live", "one event for each sample, as server-sent events"),
];

/// `/plan`, which computes.
const PLAN: &str = "/plan";

pub(super) fn router() -> Router<Answers> {
    let index = get(async |State(answers): State<Answers>| {
        let one = |(path, about): (&str, &str)| json!({ "path": format!("/api/v1{path}"), "about": about });
        let all = ALL.iter().map(|a| (a.path, a.about)).chain(OTHERS.iter().copied()).map(one);
        let history = super::history::index().filter(|_| answers.source.history.is_some());
        Json(json!({ "version": 1, "answers": all.chain(history).collect::<Vec<_>>() }))
    });
    let others = Router::new()
        .route("/", index)
        .route(PLAN, get(plan))
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

/// An answer with its schema and the time of the newest sample.
fn with_head(path: &str, seen: &Seen, mut body: Value) -> Response {
    body["schema"] = json!(schema(path));
    body["unix_ns"] = json!(seen.totals.batch().unix_ns);
    Json(body).into_response()
}

fn schema(path: &str) -> String {
    format!("vsteer{}/1", path.replace('/', "."))
}

fn told(answers: &Answers, answer: &Answer, head: &HeaderMap, query: &str) -> Response {
    let Some(seen) = answers.source.seen.borrow().clone() else { return not_yet() };
    if let Some(model) = answer.model.filter(|_| arrow::wants(head)) {
        return arrow::of_model(schema(answer.path), &seen, model(&seen), query);
    }
    with_head(answer.path, &seen, (answer.of)(&seen))
}

async fn plan(State(answers): State<Answers>, RawQuery(query): RawQuery) -> Response {
    let Some(seen) = answers.source.seen.borrow().clone() else { return not_yet() };
    let settings = match settings(query.as_deref().unwrap_or_default()) {
        Ok(settings) => settings,
        Err(fault) => return refused(&fault),
    };
    if seen.minute.is_none() && settings.is_empty() {
        let note = "a plan needs the samples of ten seconds";
        return with_head(PLAN, &seen, json!({ "plan": null, "note": note, "command": null }));
    }
    match answers.source.forecasts.plan(&seen, settings).await {
        Err(fault) => refused(&fault),
        Ok(planned) => {
            let command = "vsteer apply plan.json --try 60s";
            let body = json!({ "plan": *planned.plan, "note": planned.note, "command": command });
            with_head(PLAN, &seen, body)
        }
    }
}

/// The settings of a query: `set=` any number of times, and nothing else.
fn settings(query: &str) -> Result<Vec<Setting>, Fault> {
    let pairs = form_urlencoded::parse(query.as_bytes());
    let one = |(name, value): (std::borrow::Cow<'_, str>, std::borrow::Cow<'_, str>)| match name.as_ref() {
        "set" => value.parse::<Setting>().map_err(|why| {
            Fault::new(FaultKind::Usage, format!("set={value:?} is not a setting")).because(why)
        }),
        other => Err(Fault::new(FaultKind::Usage, format!("{other:?} is not a parameter of this path"))
            .help("known: set")),
    };
    pairs.map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_read_as_a_whole_or_refused() {
        assert_eq!(settings("").unwrap(), []);
        let two = settings("set=web:weight=200&set=a%26b:pin.0=1").unwrap();
        assert_eq!(two, ["web:weight=200", "a&b:pin.0=1"].map(|text| text.parse::<Setting>().unwrap()));
        for wrong in ["set=web", "st=web:weight=1", "set=web:weight=x", "set"] {
            assert_eq!(settings(wrong).unwrap_err().kind, FaultKind::Usage, "{wrong}");
        }
    }
}
