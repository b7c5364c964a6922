//! Answers of the query interface as Arrow, for clients whose `Accept` header asks for it.
//!
//! A table of a model is chosen by `table=`. Other answers are one table. The metadata of the schema are the head of the JSON
//! answer, as texts: `schema`, `unix_ns` and more.

use super::coding::preference;
use super::refused::refused;
use crate::seen::Seen;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value};
use vsteer_core::model::HostModel;
use vsteer_core::{Fault, FaultKind};
use vsteer_record::stream::{self, About, MEDIA_TYPE, MODEL_TABLES, Table};

/// Does the client want Arrow rather than JSON?
pub(super) fn wants(head: &HeaderMap) -> bool {
    let accept = head.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let accept = accept.collect::<Vec<_>>().join(",");
    let arrow = preference(&accept, MEDIA_TYPE);
    arrow > 0.0 && arrow >= preference(&accept, "application/json")
}

/// A stream as an answer.
pub(super) fn answer(stream: Vec<u8>) -> Response {
    ([(header::CONTENT_TYPE, MEDIA_TYPE), (header::VARY, "accept")], stream).into_response()
}

/// A model as the table that the query chooses.
pub(super) fn of_model(schema: String, seen: &Seen, model: Option<&HostModel>, query: &str) -> Response {
    let mut table = &MODEL_TABLES[0];
    for (name, value) in form_urlencoded::parse(query.as_bytes()) {
        let known = MODEL_TABLES.iter().find(|table| name == "table" && table.name == value);
        let Some(known) = known else {
            let names: Vec<String> = MODEL_TABLES.iter().map(|t| format!("table={}", t.name)).collect();
            let what = format!("{:?} is not a parameter of this path", format!("{name}={value}"));
            return refused(&Fault::new(FaultKind::Usage, what).help(format!("known: {}", names.join(", "))));
        };
        table = known;
    }
    let mut about: About = vec![
        ("schema", schema),
        ("table", table.name.to_owned()),
        ("unix_ns", seen.totals.batch().unix_ns.to_string()),
    ];
    if let Some(model) = model {
        about.push(("from_unix_ns", model.from_unix_ns.to_string()));
        about.push(("window_ns", model.window_ns.to_string()));
    }
    let (columns, rows) = stream::model(table, model);
    answer(columns.stream(&rows, &about))
}

/// Columns of numbers over time.
pub(super) fn of_series(times_ms: &[u64], columns: &[(&'static str, Vec<f32>)], about: &About) -> Response {
    let row = |at: Option<usize>| {
        let mut row = Map::new();
        row.insert("time_unix_ms".to_owned(), Value::from(at.map_or(0, |at| times_ms[at])));
        for (name, all) in columns {
            // What was not measured is not a number, and null in JSON.
            row.insert((*name).to_owned(), Value::from(at.map_or(0.0, |at| all[at])));
        }
        Value::Object(row)
    };
    let rows: Vec<Value> = (0..times_ms.len()).map(|at| row(Some(at))).collect();
    answer(Table::like(&row(None)).stream(&rows, about))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrow_is_for_clients_that_ask_for_it() {
        let wants = |accept: &[&str]| {
            let mut head = HeaderMap::new();
            accept.iter().for_each(|value| {
                head.append(header::ACCEPT, value.parse().unwrap());
            });
            wants(&head)
        };
        assert!(wants(&[MEDIA_TYPE]) && wants(&["Application/Vnd.Apache.Arrow.Stream; q=0.5, */*;q=0.1"]));
        assert!(
            wants(&["text/html", MEDIA_TYPE]) && wants(&[&format!("application/json;q=0.9, {MEDIA_TYPE}")])
        );
        for json in ["", "*/*", "application/json", "application/*"] {
            assert!(!wants(&[json]), "{json:?}");
        }
        assert!(!wants(&[&format!("{MEDIA_TYPE};q=0")]));
        assert!(!wants(&[&format!("{MEDIA_TYPE};q=0.5, application/json")]));
        assert!(!wants(&[]));
    }
}
