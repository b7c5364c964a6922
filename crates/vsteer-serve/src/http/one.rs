//! What is known about one VM: `/api/v1/vm?vm=NAME`, and its last minutes: `/api/v1/recent?vm=NAME`.
//!
//! The model of a host with 1,000 VMs has megabytes. A page that shows one VM needs only that VM's part. Without `vm`, recent
//! has the host.

use super::arrow;
use super::source::{Answers, not_yet};
use crate::ring::{OF_HOST, OF_VM, Part, Times};
use crate::seen::Seen;
use axum::Json;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use vsteer_core::diagnose::Finding;
use vsteer_core::model::{Blame, HostModel};
use vsteer_core::nouns::{Culprit, Histogram, VmId};

#[derive(Deserialize)]
pub(super) struct Of {
    /// The VM's name or id.
    vm: Option<String>,
}

/// The VM that has this id, or is called so.
fn find(seen: &Seen, vm: &str) -> Result<VmId, Box<Response>> {
    let id = VmId(vm.to_owned().into());
    if seen.config.vm(&id).is_some() {
        return Ok(id);
    }
    let called = seen.names.iter().find(|(_, name)| *name == vm).map(|(id, _)| id.clone());
    called.ok_or_else(|| {
        Box::new((StatusCode::NOT_FOUND, "this host has no VM of that name\n").into_response())
    })
}

/// A distribution, as lower edge, upper edge (both ns) and count of each bucket in use.
fn buckets(times: &Times) -> Value {
    let one = |&(bucket, count): &(u16, u64)| {
        (Histogram::lower_edge_ns(bucket), Histogram::lower_edge_ns(bucket + 1), count)
    };
    json!({ "seconds": times.seconds, "buckets": times.counts.counts.iter().map(one).collect::<Vec<_>>() })
}

/// Numbers are written as 32-bit ones: short, and null for those that were not measured.
#[derive(Serialize)]
struct Recent {
    schema: &'static str,
    unix_ns: u64,
    vm: Option<VmId>,
    name: String,
    time_unix_ms: Vec<u64>,
    columns: BTreeMap<&'static str, Vec<f32>>,
    wake_latency: Vec<Value>,
}

pub(super) async fn recent(
    State(answers): State<Answers>,
    Query(of): Query<Of>,
    head: HeaderMap,
) -> Response {
    let Some(seen) = answers.source.seen.borrow().clone() else { return not_yet() };
    let vm = match of.vm.as_deref().map(|vm| find(&seen, vm)).transpose() {
        Ok(vm) => vm,
        Err(refusal) => return *refusal,
    };
    let (part, times) = {
        let ring = answers.source.live.ring();
        let times = vm.as_ref().map(|vm| ring.wake_latencies(vm, seen.totals.batch()));
        (ring.part(vm.as_ref()), times)
    };
    let Part { times: time_unix_ms, columns } =
        part.unwrap_or_else(|| Part { times: Vec::new(), columns: Default::default() });
    let names = if vm.is_some() { OF_VM } else { OF_HOST };
    let name = vm.as_ref().map_or(seen.config.hostname.as_str(), |vm| seen.name(vm)).to_owned();
    let (schema, unix_ns) = ("vsteer.recent/1", seen.totals.batch().unix_ns);
    if arrow::wants(&head) {
        let id = vm.map(|vm| vm.to_string()).unwrap_or_default();
        let about =
            vec![("schema", schema.to_owned()), ("unix_ns", unix_ns.to_string()), ("vm", id), ("name", name)];
        let columns: Vec<_> = names.into_iter().zip(columns).collect();
        return arrow::of_series(&time_unix_ms, &columns, &about);
    }
    Json(Recent {
        schema,
        unix_ns,
        vm,
        name,
        time_unix_ms,
        columns: names.into_iter().zip(columns).collect(),
        wake_latency: times.iter().flatten().map(buckets).collect(),
    })
    .into_response()
}

pub(super) async fn vm(State(answers): State<Answers>, Query(of): Query<Of>) -> Response {
    let Some(seen) = answers.source.seen.borrow().clone() else { return not_yet() };
    let Some(vm) = of.vm else {
        return (StatusCode::BAD_REQUEST, "name a VM: /api/v1/vm?vm=NAME\n").into_response();
    };
    let id = match find(&seen, &vm) {
        Ok(id) => id,
        Err(refusal) => return *refusal,
    };
    let concerns =
        |finding: &&Finding| finding.all().any(|f| f.vm.as_ref() == Some(&id) || f.vms.contains(&id));
    let blame = seen.minute.as_deref().and_then(|model| model.blame.as_ref());
    let of_vm = |blame: &Vec<Blame>| blamed(&seen, blame.iter().filter(|b| b.victim == id));
    Json(json!({
        "schema": "vsteer.vm/1",
        "unix_ns": seen.totals.batch().unix_ns,
        "id": id,
        "name": seen.name(&id),
        "config": seen.config.vm(&id),
        "now": seen.now.as_deref().and_then(|model| model.vm(&id)),
        "minute": seen.minute.as_deref().and_then(|model| model.vm(&id)),
        "minute_ns": seen.minute.as_deref().map(|model| model.window_ns),
        "blame": blame.map(of_vm),
        "findings": seen.findings.iter().filter(concerns).collect::<Vec<_>>(),
        "missing": seen.collector.missing,
    }))
    .into_response()
}

/// Rows of blame in an answer.
const ROWS: usize = 2_000;

/// A culprit as the page shows it: what kind it is, a key, and its name. Processes of one name are one culprit.
fn culprit(seen: &Seen, culprit: &Culprit) -> (&'static str, String, String) {
    match culprit {
        Culprit::Vm(vm) => ("vm", vm.to_string(), seen.name(vm).to_owned()),
        Culprit::Process { comm, container, .. } => {
            let inside = container.as_ref().map_or(String::new(), |c| format!(" ({c})"));
            ("process", format!("process:{comm}{inside}"), format!("{comm}{inside}"))
        }
        Culprit::Kernel { comm } => ("kernel", format!("kernel:{comm}"), comm.clone()),
        Culprit::Placement => ("placement", "placement".to_owned(), "placement".to_owned()),
        Culprit::Unattributed => ("unattributed", "unattributed".to_owned(), "unknown".to_owned()),
    }
}

/// Rows of the blame matrix, the largest first.
fn blamed<'a>(seen: &Seen, rows: impl Iterator<Item = &'a Blame>) -> Vec<Value> {
    let mut sums: BTreeMap<(&VmId, (&str, String, String)), f64> = BTreeMap::new();
    rows.for_each(|b| *sums.entry((&b.victim, culprit(seen, &b.culprit))).or_default() += b.share);
    let mut sums: Vec<_> = sums.into_iter().collect();
    sums.sort_by(|a, b| b.1.total_cmp(&a.1));
    sums.truncate(ROWS);
    let row = |((victim, (kind, key, name)), share): ((&VmId, (&str, String, String)), f64)| {
        let victim_name = seen.name(victim);
        json!({
            "victim": victim, "victim_name": victim_name, "kind": kind, "key": key, "name": name, "share": share,
        })
    };
    sums.into_iter().map(row).collect()
}

/// The blame matrix of the last minute; null if the collector does not measure it.
pub(super) fn blame(seen: &Seen) -> Value {
    let rows = |model: &HostModel| Some(blamed(seen, model.blame.as_ref()?.iter()));
    json!({
        "blame": seen.minute.as_deref().and_then(rows),
        "window_ns": seen.minute.as_deref().map(|model| model.window_ns),
        "missing": seen.collector.missing.get("blame"),
    })
}
