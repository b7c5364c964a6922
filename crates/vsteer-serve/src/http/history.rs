//! The history over HTTP: rows of VMs and of the host, and the timeline.
//!
//! `from` and `to` are seconds since 1970. Without them the answer is of the last hour. An answer has at most [`ROWS`] rows: a
//! query for more is refused, with what to ask for instead. A few queries run at a time, each in a thread that may wait for the
//! disk, so that other clients do not wait for the history.

use super::arrow;
use super::refused::refused;
use super::source::Answers;
use axum::extract::{Query as Parameters, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};
use tokio::sync::Semaphore;
use vsteer_core::{Fault, FaultKind};
use vsteer_record::history::{Found, HOUR_MS, History, Query, Row, Step};
use vsteer_record::stream::{self, About};

/// Rows of an answer, at most: some 10 MB of JSON.
const ROWS: usize = 20_000;
/// Queries at a time.
const AT_ONCE: usize = 2;

static FREE: Semaphore = Semaphore::const_new(AT_ONCE);

/// What a client asks for.
#[derive(Debug, Default, Deserialize)]
struct Asked {
    vm: Option<String>,
    from: Option<u64>,
    to: Option<u64>,
    step: Option<String>,
}

/// An answer: its path, what it is, and how it is made.
struct Answer {
    path: &'static str,
    about: &'static str,
    of: fn(&History, &Query, Step, Option<About>) -> Result<Body, Fault>,
}

/// The rows of an answer: with the head of a stream as Arrow, else as JSON.
enum Body {
    Json(Value),
    Arrow(Vec<u8>),
}

/// Rows under their name.
fn body<R: Row + Serialize>(name: &str, found: Found<R>, about: Option<About>) -> Body {
    match about {
        Some(mut about) => {
            about.push(("notes", found.notes.join("\n")));
            Body::Arrow(stream::history(&found.rows, &about))
        }
        None => Body::Json(json!({ name: found.rows, "notes": found.notes })),
    }
}

const ALL: &[Answer] = &[
    Answer {
        path: "/history/vms",
        about: "a row for each VM and minute or hour; vm, from, to, step=minute|hour|auto",
        of: |history, query, step, about| Ok(body("rows", history.vms(query, step)?, about)),
    },
    Answer {
        path: "/history/host",
        about: "a row of the host for each minute or hour; from, to, step=minute|hour|auto",
        of: |history, query, step, about| Ok(body("rows", history.host(query, step)?, about)),
    },
    Answer {
        path: "/timeline",
        about: "VMs that came and went, settings that changed, findings that began and ended; vm, from, to",
        of: |history, query, _, about| Ok(body("events", history.timeline(query)?, about)),
    },
];

/// The lines of the index.
pub(super) fn index() -> impl Iterator<Item = Value> {
    ALL.iter().map(|a| json!({ "path": format!("/api/v1{}", a.path), "about": a.about }))
}

pub(super) fn router() -> Router<Answers> {
    ALL.iter().fold(Router::new(), |router, answer| {
        let respond = async move |State(answers): State<Answers>,
                                  Parameters(asked): Parameters<Asked>,
                                  head: HeaderMap| {
            let Some(folder) = answers.source.history.clone() else {
                return (StatusCode::NOT_FOUND, "this service keeps no history\n").into_response();
            };
            // The semaphore is never closed.
            let _permit = FREE.acquire().await;
            let as_arrow = arrow::wants(&head);
            let work = tokio::task::spawn_blocking(move || told(&folder, &asked, answer, as_arrow));
            work.await.unwrap_or_else(|_| StatusCode::INTERNAL_SERVER_ERROR.into_response())
        };
        router.route(answer.path, get(respond))
    })
}

fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_millis() as u64)
}

fn told(folder: &Path, asked: &Asked, answer: &Answer, as_arrow: bool) -> Response {
    match answered(folder, asked, answer, now_ms(), as_arrow) {
        Ok(Body::Json(body)) => Json(body).into_response(),
        Ok(Body::Arrow(stream)) => arrow::answer(stream),
        Err(fault) => refused(&fault),
    }
}

fn answered(
    folder: &Path,
    asked: &Asked,
    answer: &Answer,
    now_ms: u64,
    as_arrow: bool,
) -> Result<Body, Fault> {
    let to_ms = asked.to.map_or(now_ms, |s| s.saturating_mul(1000));
    let from_ms = asked.from.map_or(to_ms.saturating_sub(HOUR_MS), |s| s.saturating_mul(1000));
    if from_ms >= to_ms {
        return Err(
            Fault::new(FaultKind::Usage, "from must be before to").help("both are seconds since 1970")
        );
    }
    let step = match asked.step.as_deref() {
        None | Some("auto") => Step::of_span(to_ms - from_ms),
        Some("minute") => Step::Minute,
        Some("hour") => Step::Hour,
        Some(other) => {
            let what = format!("{other:?} is not a step");
            return Err(Fault::new(FaultKind::Usage, what).help("known steps: minute, hour, auto"));
        }
    };
    let query = Query { from_ms, to_ms, vm: asked.vm.clone(), most: ROWS };
    let has_steps = answer.path.starts_with("/history/");
    let unix_ns = now_ms.saturating_mul(1_000_000);
    let mut head = vec![
        ("schema", json!(format!("vsteer{}/1", answer.path.replace('/', ".")))),
        ("unix_ns", json!(unix_ns)),
        ("from", json!(from_ms / 1000)),
        ("to", json!(to_ms / 1000)),
    ];
    head.extend(has_steps.then(|| ("step", json!(step.name()))));
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let about = as_arrow.then(|| head.iter().map(|(name, value)| (*name, text(value))).collect());
    let mut body = (answer.of)(&History::open(folder)?, &query, step, about)?;
    if let Body::Json(body) = &mut body {
        head.into_iter().for_each(|(name, value)| body[name] = value);
    }
    Ok(body)
}

#[cfg(test)]
mod tests {
    use super::*;
    use vsteer_record::history::{MINUTE_MS, Minute, VmRow, Writer};

    #[test]
    fn answers_have_limits_and_the_form_of_the_others() {
        let dir = tempfile::tempdir().unwrap();
        let mut writer = Writer::open(dir.path(), 0).unwrap();
        for n in 0..3 {
            let unix_ms = n * MINUTE_MS;
            let row = VmRow { unix_ms, vm: "a".into(), name: "web".into(), ..VmRow::default() };
            writer.append(&Minute { unix_ms, vms: vec![row], ..Minute::default() }).unwrap();
        }
        let ask = |asked: Asked| -> Result<Value, Fault> {
            match answered(dir.path(), &asked, &ALL[0], 3 * MINUTE_MS, false)? {
                Body::Json(body) => Ok(body),
                Body::Arrow(_) => panic!("nobody asked for it"),
            }
        };
        let body = ask(Asked { from: Some(60), ..Asked::default() }).unwrap();
        assert_eq!(
            (body["schema"].as_str(), body["step"].as_str()),
            (Some("vsteer.history.vms/1"), Some("minute"))
        );
        assert_eq!(body["rows"].as_array().unwrap().len(), 2);
        assert_eq!(body["rows"][0]["ready_us"], Value::Null, "not measured, not 0");
        let wrong = |asked: Asked| ask(asked).unwrap_err().kind;
        assert_eq!(wrong(Asked { from: Some(9), to: Some(9), ..Asked::default() }), FaultKind::Usage);
        assert_eq!(wrong(Asked { step: Some("day".into()), ..Asked::default() }), FaultKind::Usage);
        let asked = Asked { from: Some(60), ..Asked::default() };
        let Ok(Body::Arrow(stream)) = answered(dir.path(), &asked, &ALL[0], 3 * MINUTE_MS, true) else {
            panic!("Arrow was asked for");
        };
        let mut reader = arrow_ipc::reader::StreamReader::try_new(stream.as_slice(), None).unwrap();
        let (batch, schema) = (reader.next().unwrap().unwrap(), reader.schema());
        assert_eq!((batch.num_rows(), schema.metadata()["schema"].as_str()), (2, "vsteer.history.vms/1"));
        assert_eq!((&schema.metadata()["step"][..], &schema.metadata()["from"][..]), ("minute", "60"));
        assert_eq!(batch.column_by_name("ready_us").unwrap().null_count(), 2, "not measured, not 0");
        let far = Asked { from: Some(0), to: Some(u64::MAX), vm: Some("x".into()), step: None };
        assert_eq!(ask(far).unwrap()["rows"].as_array().unwrap().len(), 0);
        let none = dir.path().join("none");
        let fault = answered(&none, &Asked::default(), &ALL[0], 1, true).err().unwrap();
        assert_eq!(fault.kind, FaultKind::NothingThere);
    }
}
