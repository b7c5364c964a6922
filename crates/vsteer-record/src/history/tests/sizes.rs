//! How many bytes does a VM need, and how long does a query take?

use super::super::*;
use super::stores::DAY;
use std::fs;
use std::path::Path;
use std::time::Instant;
use vsteer_core::nouns::Histogram;

/// The most that a VM may need for a day, bytes.
const MOST: u64 = 100_000;

/// The longest query as a multiple of decoding all hours, on a machine that needs more than a second for it.
const MOST_TIMES: u128 = 4;

/// Numbers without pattern (SplitMix64): what compresses worst.
struct Noise(u64);

impl Noise {
    fn next(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % below
    }
}

fn minute(noise: &mut Noise, unix_ms: u64, vms: u64) -> Minute {
    let row = |i: u64, noise: &mut Noise| {
        let mut row = VmRow {
            unix_ms,
            vm: format!("6f1f0d2c-8f5a-4f0e-9c1a-{i:012x}"),
            name: format!("customer-{:02}-web-{i:03}", i % 17),
            vcpus: Some(4),
            samples: 60,
            covered_us: 60_000_000 + noise.next(400),
            run_us: Some(noise.next(240_000_000)),
            ready_us: Some(noise.next(20_000_000)),
            wait_us: Some(noise.next(20_000_000)),
            limited_us: Some(if noise.next(10) == 0 { noise.next(9_000_000) } else { 0 }),
            lag_us: Some(noise.next(1_000_000)),
            costs: (0..3)
                .map(|_| Cost {
                    culprit: format!("VM \"customer-{:02}-web\"", noise.next(40)),
                    us: noise.next(9_000_000),
                })
                .collect(),
            ..VmRow::default()
        };
        let first = noise.next(20) as u16;
        let wake = Histogram { counts: (first..first + 40).map(|b| (b, 1 + noise.next(300))).collect() };
        row.set_wake(Some(wake));
        row
    };
    let vms: Vec<VmRow> = (0..vms).map(|i| row(i, noise)).collect();
    let host = HostRow {
        unix_ms,
        samples: 60,
        covered_us: 60_000_000 + noise.next(400),
        pcpus: Some(64),
        busy_us: Some(noise.next(3_840_000_000)),
        run_us: Some(noise.next(3_000_000_000)),
        ready_us: Some(noise.next(90_000_000)),
        wait_us: Some(noise.next(90_000_000)),
        vms: vms.len() as u64,
        ..HostRow::default()
    };
    Minute { unix_ms, host: Some(host), vms, events: Vec::new() }
}

fn bytes(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).unwrap().map(|e| e.unwrap());
    entries.map(|e| if e.path().is_dir() { bytes(&e.path()) } else { e.metadata().unwrap().len() }).sum()
}

/// Writes whole days of a host.
fn fill(folder: &Path, days: u64, vms: u64) {
    let mut noise = Noise(7);
    let mut writer = Writer::open(folder, DAY).unwrap();
    // The minute after the last one ends its hour.
    for n in 0..=days * 24 * 60 {
        writer.append(&minute(&mut noise, DAY + n * MINUTE_MS, vms)).unwrap();
    }
}

#[test]
fn a_vm_needs_few_bytes_for_a_day() {
    for vms in [1, 20] {
        let dir = tempfile::tempdir().unwrap();
        fill(dir.path(), 1, vms);
        let each = bytes(dir.path()) / vms;
        println!("{vms} VMs: {each} bytes per VM and day");
        assert!(each <= MOST, "{vms} VMs: {each} bytes per VM and day");
    }
}

/// Run by `make bench`, because it writes a GB:
/// `cargo test --release -p vsteer-record --lib history -- --ignored --nocapture ninety_days`
///
/// With `VSTEER_HISTORY=FOLDER` the files stay there, for other tools to read.
#[test]
#[ignore = "writes 90 days of 200 VMs; needs minutes and a release build"]
fn ninety_days_of_200_vms_are_queried_in_a_second() {
    let dir = tempfile::tempdir().unwrap();
    let folder = std::env::var_os("VSTEER_HISTORY").map_or_else(|| dir.path().to_owned(), Into::into);
    days_of_200(&folder, 90);
    println!("{} bytes per VM and day", bytes(&folder) / 200 / 90);
    let begun = Instant::now();
    let bare_rows = decoded(&folder, super::super::day::VM_HOUR);
    let bare_ms = begun.elapsed().as_millis();
    println!("hours, decoded and not looked at: {bare_rows} rows in {bare_ms} ms");
    let whole = Query { from_ms: DAY, to_ms: DAY + 90 * DAY_MS, vm: None, most: usize::MAX };
    let timed = |what: &str, query: &Query, step: Step| {
        let begun = Instant::now();
        let rows = History::open(&folder).unwrap().vms(query, step).unwrap().rows.len();
        let ms = begun.elapsed().as_millis();
        println!("{what}: {rows} rows in {ms} ms, {:.1} times the bare decode", ms as f64 / bare_ms as f64);
        assert!(ms < 1000 || ms < MOST_TIMES * bare_ms, "{what}: {ms} ms; the bare decode: {bare_ms} ms");
        rows
    };
    let one = Query { vm: Some("customer-03-web-037".into()), ..whole.clone() };
    assert_eq!(timed("all VMs, hours", &whole, Step::Hour), 200 * 90 * 24);
    assert_eq!(bare_rows, 200 * 90 * 24);
    assert_eq!(timed("one VM, hours", &one, Step::Hour), 90 * 24);
    assert_eq!(timed("one VM, minutes", &one, Step::Minute), 90 * 24 * 60);
}

/// Reads every column of a table by the Parquet library alone; rows.
fn decoded(folder: &Path, table: &str) -> usize {
    use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
    let files = super::super::day::files_of(folder, table).unwrap();
    let rows = |path: &Path| -> usize {
        let file = fs::File::open(path).unwrap();
        let reader = ParquetRecordBatchReaderBuilder::try_new(file).unwrap().build().unwrap();
        reader.map(|batch| batch.unwrap().num_rows()).sum()
    };
    files.iter().map(|(_, path)| rows(path)).sum()
}

/// As the service would have written these days, without its journal: a day at a time.
fn days_of_200(folder: &Path, days: u64) {
    use super::super::hour::Hours;
    use super::super::{day, disk::RealDisk};
    let mut noise = Noise(7);
    drop(Writer::open(folder, DAY).unwrap());
    for n in 0..days {
        let begin = DAY + n * DAY_MS;
        let (mut hours, mut rows, mut hosts) = (Hours::default(), Vec::new(), Vec::new());
        for m in 0..24 * 60 {
            let minute = minute(&mut noise, begin + m * MINUTE_MS, 200);
            hours.add(&minute);
            rows.extend(minute.vms.into_iter().map(|row| VmRow { wake: None, ..row }));
            hosts.extend(minute.host);
        }
        rows.sort_by(|a, b| (&a.name, a.unix_ms).cmp(&(&b.name, b.unix_ms)));
        let (mut vm_hours, host_hours) = hours.finish();
        vm_hours.sort_by(|a, b| (&a.name, a.unix_ms).cmp(&(&b.name, b.unix_ms)));
        let path = |table| day::path(folder, table, begin / DAY_MS);
        day::merge(&RealDisk, &path(day::VM_MINUTE), rows, false).unwrap();
        day::merge(&RealDisk, &path(day::HOST_MINUTE), hosts, false).unwrap();
        day::merge(&RealDisk, &path(day::VM_HOUR), vm_hours, true).unwrap();
        day::merge(&RealDisk, &path(day::HOST_HOUR), host_hours, false).unwrap();
    }
}
