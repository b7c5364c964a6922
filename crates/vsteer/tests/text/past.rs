//! The history, and what `diagnose` says of a moment in it.

use crate::place::PLACE;
use std::path::Path;
use vsteer_core::nouns::Histogram;
use vsteer_record::history::{Cost, Event, EventKind, HostRow, MINUTE_MS, Minute, VmRow, Writer};

/// 2026-11-21, 00:00 UTC.
const BEGIN: u64 = 1_795_219_200_000;

fn event(n: u64, kind: EventKind, text: &str) -> Event {
    Event { unix_ms: BEGIN + n * MINUTE_MS, kind, text: text.into(), ..Event::default() }
}

fn events(n: u64) -> Vec<Event> {
    let weight = Event {
        setting: Some("weight".into()),
        old: Some("weight 100".into()),
        new: Some("weight 20".into()),
        ..event(90, EventKind::Changed, "VM \"web\", weight: weight 100 -> weight 20")
    };
    let found = |n, kind| Event {
        vm: Some("id-web".into()),
        name: Some("web".into()),
        rule: Some("weight_starved".into()),
        loss_pcpus: Some(0.42),
        ..event(n, kind, "VM \"web\" waits because its weight is low")
    };
    match n {
        0 => vec![event(0, EventKind::Observing, "The service began to observe host lab-1")],
        90 => vec![weight],
        92 => vec![found(92, EventKind::FindingBegan)],
        118 => vec![found(118, EventKind::FindingEnded)],
        _ => Vec::new(),
    }
}

fn minute(n: u64) -> Minute {
    let unix_ms = BEGIN + n * MINUTE_MS;
    let starved = (91..115).contains(&n);
    let vm = |name: &str, ready_us: u64, run_us: u64| {
        let mut row = VmRow {
            unix_ms,
            vm: format!("id-{name}"),
            name: name.into(),
            vcpus: Some(2),
            samples: 60,
            covered_us: 60_000_000,
            run_us: Some(run_us),
            ready_us: Some(ready_us),
            wait_us: Some(ready_us),
            limited_us: Some(0),
            costs: vec![Cost { culprit: "process backup".into(), us: ready_us / 2 }],
            ..VmRow::default()
        };
        row.set_wake(Some(Histogram { counts: vec![(if starved { 110 } else { 40 }, 100)] }));
        row
    };
    let web = if starved { 25_000_000 } else { 600_000 };
    let host = HostRow {
        unix_ms,
        samples: 60,
        covered_us: 60_000_000,
        pcpus: Some(4),
        busy_us: Some(150_000_000),
        vms: 2,
        findings: u64::from(starved),
        ..HostRow::default()
    };
    let vms = vec![vm("db", 1_200_000 + n * 1000, 70_000_000), vm("web", web, 20_000_000)];
    Minute { unix_ms, host: Some(host), vms, events: events(n) }
}

/// Writes a history of some hours.
pub fn write(folder: &Path) {
    let mut writer = Writer::open(folder, BEGIN).unwrap();
    (0..130).for_each(|n| writer.append(&minute(n)).unwrap());
}

#[test]
fn the_history_of_all_vms_and_of_one() {
    let of = "--from 2026-11-21T00:00Z --to 2026-11-21T02:10Z --dir past";
    insta::assert_snapshot!("history", PLACE.printed(&format!("history {of}")));
    insta::assert_snapshot!("history_vm", PLACE.printed(&format!("history web {of}")));
    let json = PLACE.run(&format!("history web --json --step hour {of}"));
    let found: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!((found["vms"].as_array().unwrap().len(), &found["step"]), (3, &"hour".into()));
    assert!(found["vms"][0]["costop_us"].is_null(), "not measured, not 0");
}

#[test]
fn what_was_wrong_at_a_moment() {
    insta::assert_snapshot!("diagnose_at", PLACE.printed("diagnose --at 2026-11-21T01:50Z --dir past"));
    insta::assert_snapshot!("diagnose_at_calm", PLACE.printed("diagnose --at 2026-11-21T00:10Z --dir past"));
}

#[test]
fn the_report_of_the_history() {
    let line = "report --from 2026-11-21T00:00Z --to 2026-11-21T02:10Z --dir past -o past.html";
    let out = PLACE.run(line);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let page = std::fs::read_to_string(PLACE.path().join("past.html")).unwrap();
    for part in ["Ready over time", "Worst hours", "What happened", "weight 100 -&gt; weight 20", "</svg>"] {
        assert!(page.contains(part), "{part}");
    }
}
