//! Stores and reads back; whatever lies in the folder.

use super::super::*;
use super::super::{day, journal};
use std::fs;
use std::path::Path;
use vsteer_core::FaultKind;
use vsteer_core::nouns::Histogram;

/// 2026-11-21, 00:00 UTC.
pub const DAY: u64 = 1_795_219_200_000 / DAY_MS * DAY_MS;

pub fn all() -> Query {
    Query { from_ms: 0, to_ms: u64::MAX / 2, vm: None, most: usize::MAX }
}

/// A minute of these VMs, with figures that differ.
pub fn minute(n: u64, vms: &[&str]) -> Minute {
    let unix_ms = DAY + n * MINUTE_MS;
    let vm = |(i, name): (usize, &&str)| {
        let mut row = VmRow {
            unix_ms,
            vm: format!("id-{name}"),
            name: (*name).into(),
            vcpus: Some(2),
            samples: 60,
            covered_us: 60_000_000,
            run_us: Some(10_000_000 + n * 1000 + i as u64),
            ready_us: Some(500_000 + n),
            wait_us: Some(600_000),
            limited_us: None,
            costs: vec![Cost { culprit: "process backup".into(), us: n }],
            ..VmRow::default()
        };
        row.set_wake(Some(Histogram { counts: vec![(40, 10), (80, n % 7 + 1)] }));
        row
    };
    let host = HostRow {
        unix_ms,
        samples: 60,
        covered_us: 60_000_000,
        pcpus: Some(4),
        vms: 2,
        ..HostRow::default()
    };
    let text = format!("minute {n}");
    let event = Event { unix_ms: unix_ms + 5, kind: EventKind::Changed, text, ..Event::default() };
    Minute { unix_ms, host: Some(host), vms: vms.iter().enumerate().map(vm).collect(), events: vec![event] }
}

fn minutes(folder: &Path) -> Vec<u64> {
    let found = History::open(folder).unwrap().host(&all(), Step::Minute).unwrap();
    assert!(found.notes.is_empty(), "{:?}", found.notes);
    found.rows.iter().map(|r| (r.unix_ms - DAY) / MINUTE_MS).collect()
}

#[test]
fn what_is_stored_is_read_from_journal_and_files() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = Writer::open(dir.path(), DAY).unwrap();
    for n in 0..70 {
        writer.append(&minute(n, &["web", "db"])).unwrap();
    }
    assert!(day::path(dir.path(), day::VM_MINUTE, DAY / DAY_MS).is_file(), "the first hour is over");
    assert_eq!(minutes(dir.path()), (0..70).collect::<Vec<_>>());
    let history = History::open(dir.path()).unwrap();
    let of = |vm: &str| Query { vm: Some(vm.into()), ..all() };
    let web = history.vms(&of("web"), Step::Minute).unwrap().rows;
    let mut expected = minute(3, &["web"]).vms.remove(0);
    expected.wake = None;
    assert_eq!((web.len(), &web[3]), (70, &expected), "what was not measured is missing");
    assert_eq!(history.vms(&of("id-db"), Step::Minute).unwrap().rows.len(), 70);
    let hours = history.vms(&of("web"), Step::Hour).unwrap().rows;
    let first = &hours[0];
    assert_eq!((hours.len(), first.unix_ms, first.samples, first.covered_us), (2, DAY, 3600, 3_600_000_000));
    assert_eq!(first.run_us, Some((0..60).map(|n| 10_000_000 + n * 1000).sum()));
    assert_eq!((first.limited_us, hours[1].samples), (None, 600));
    let wake = (0..60).fold(Histogram::default(), |sum, n| {
        sum.merged(&Histogram { counts: vec![(40, 10), (80, n % 7 + 1)] })
    });
    assert_eq!(first.wakeups, Some(wake.total()));
    assert_eq!(first.wake_p99_us, Some(wake.quantile_ns(0.99).unwrap() as u64 / 1000));
    assert_eq!(first.costs, [Cost { culprit: "process backup".into(), us: (0..60).sum() }]);
    assert_eq!(history.timeline(&all()).unwrap().rows.len(), 70);
    assert_eq!(history.span_ms(), Some((DAY, DAY + 70 * MINUTE_MS)));
}

#[test]
fn a_service_that_starts_again_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = Writer::open(dir.path(), DAY).unwrap();
    (0..30).for_each(|n| writer.append(&minute(n, &["web"])).unwrap());
    let second = Writer::open(dir.path(), DAY).err().unwrap();
    assert!(second.to_string().contains("another service"), "{second}");
    drop(writer);
    // In the same hour: the hour's row must hold both parts.
    let mut writer = Writer::open(dir.path(), DAY + 40 * MINUTE_MS).unwrap();
    (40..61).for_each(|n| writer.append(&minute(n, &["web"])).unwrap());
    let history = History::open(dir.path()).unwrap();
    assert_eq!(history.vms(&all(), Step::Hour).unwrap().rows[0].samples, 50 * 60);
    drop(writer);
    // Days later: what was left is merged at the start.
    drop(Writer::open(dir.path(), DAY + 3 * DAY_MS).unwrap());
    assert_eq!(fs::read(dir.path().join(journal::NAME)).unwrap(), b"");
    assert_eq!(minutes(dir.path()).len(), 51);
    assert_eq!(History::open(dir.path()).unwrap().vms(&all(), Step::Hour).unwrap().rows.len(), 2);
}

#[test]
fn a_clock_that_goes_back_adds_no_row_twice() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = Writer::open(dir.path(), DAY).unwrap();
    for n in (0..65).chain(50..130) {
        writer.append(&minute(n, &["web"])).unwrap();
    }
    assert_eq!(minutes(dir.path()), (0..130).collect::<Vec<_>>());
}

#[test]
fn old_days_go_and_a_wrong_clock_costs_few() {
    let dir = tempfile::tempdir().unwrap();
    for day in 0..6 {
        for table in day::TABLES {
            let path = day::path(dir.path(), table, day);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "x").unwrap();
        }
    }
    let mut writer = Writer::open(dir.path(), DAY).unwrap();
    let days = |table: &str| -> Vec<u64> {
        day::files_of(dir.path(), table).unwrap().into_iter().map(|(day, _)| day).filter(|d| *d < 9).collect()
    };
    writer.append(&minute(0, &["web"])).unwrap();
    writer.append(&minute(60, &["web"])).unwrap();
    assert_eq!((days(day::VM_MINUTE), days(day::VM_HOUR)), (vec![2, 3, 4, 5], vec![2, 3, 4, 5]));
    writer.append(&minute(120, &["web"])).unwrap();
    assert_eq!(days(day::TIMELINE), [4, 5]);
}

#[test]
fn a_damaged_file_is_named_and_skipped() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = Writer::open(dir.path(), DAY).unwrap();
    (0..61).for_each(|n| writer.append(&minute(n, &["web"])).unwrap());
    let path = day::path(dir.path(), day::VM_MINUTE, DAY / DAY_MS);
    let whole = fs::read(&path).unwrap();
    let is_named = |bytes: &[u8]| {
        fs::write(&path, bytes).unwrap();
        let found = History::open(dir.path()).unwrap().vms(&all(), Step::Minute).unwrap();
        assert!(found.rows.len() <= 61);
        found.notes.iter().any(|n| n.contains("2026-11-21.parquet") && n.contains("damaged"))
    };
    let places = || (0..whole.len()).step_by(31);
    assert!(places().all(|at| is_named(&whole[..at])), "a file that was cut");
    let changed = |at: usize| {
        let mut changed = whole.clone();
        changed[at] ^= 0x41;
        is_named(&changed)
    };
    // Pages have checksums. A changed byte of the footer may read as other statistics, or as a column that is not there.
    let named = places().filter(|at| changed(*at)).count();
    assert!(named * 2 > places().count(), "{named} of {}", places().count());
    // The service goes on in a new file.
    fs::write(&path, &whole[..100]).unwrap();
    (61..122).for_each(|n| writer.append(&minute(n, &["web"])).unwrap());
    assert!(writer.take_notes().iter().any(|n| n.contains("2026-11-21.parquet.damaged")));
    let found = History::open(dir.path()).unwrap().vms(&all(), Step::Minute).unwrap();
    assert_eq!((found.rows.len(), found.notes.len()), (62, 0));
}

#[test]
fn a_damaged_line_costs_its_minute() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = Writer::open(dir.path(), DAY).unwrap();
    (0..3).for_each(|n| writer.append(&minute(n, &["web"])).unwrap());
    let path = dir.path().join(journal::NAME);
    let mut bytes = fs::read(&path).unwrap();
    let second = bytes.iter().position(|b| *b == b'\n').unwrap() + 30;
    bytes[second] ^= 1;
    fs::write(&path, bytes).unwrap();
    let found = History::open(dir.path()).unwrap().host(&all(), Step::Minute).unwrap();
    assert_eq!(found.rows.len(), 2);
    assert!(found.notes[0].contains("1 damaged line in") && found.notes[0].contains("journal.jsonl"));
}

#[test]
fn findings_that_were_open() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = Writer::open(dir.path(), DAY).unwrap();
    let event = |n: u64, kind, rule: Option<&str>| Minute {
        unix_ms: DAY + n * MINUTE_MS,
        events: vec![Event {
            unix_ms: DAY + n * MINUTE_MS,
            kind,
            rule: rule.map(str::to_owned),
            text: "t".into(),
            ..Event::default()
        }],
        ..Minute::default()
    };
    for minute in [
        event(0, EventKind::FindingBegan, Some("limited")),
        event(1, EventKind::Observing, None),
        event(2, EventKind::FindingBegan, Some("overcommitted")),
        event(3, EventKind::FindingBegan, Some("shared_core")),
        event(5, EventKind::FindingEnded, Some("overcommitted")),
    ] {
        writer.append(&minute).unwrap();
    }
    let history = History::open(dir.path()).unwrap();
    let open = |n: u64| -> Vec<String> {
        let found = history.open_findings(DAY + n * MINUTE_MS).unwrap();
        found.rows.into_iter().filter_map(|e| e.rule).collect()
    };
    assert_eq!(
        (open(0), open(1), open(4), open(6)),
        (
            vec!["limited".to_owned()],
            vec![],
            vec!["overcommitted".to_owned(), "shared_core".to_owned()],
            vec!["shared_core".to_owned()],
        )
    );
}

#[test]
fn no_history_says_how_to_get_one() {
    let dir = tempfile::tempdir().unwrap();
    for folder in [dir.path(), &dir.path().join("none")] {
        let fault = History::open(folder).err().unwrap();
        assert_eq!(fault.kind, FaultKind::NothingThere);
        assert!(fault.to_string().contains("vsteer serve"), "{fault}");
    }
    drop(Writer::open(dir.path(), DAY).unwrap());
    let few = Query { most: 1, ..all() };
    assert!(History::open(dir.path()).unwrap().host(&few, Step::Hour).unwrap().rows.is_empty());
}
