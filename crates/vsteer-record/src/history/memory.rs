//! Files of a history in memory, so that a program can read them without a disk: for the fuzz targets.

use super::column::{Row, batch, schema};
use super::hour::Hours;
use super::row::{Cost, Event, HostRow, Minute, VmRow};
use super::{day, journal};
use bytes::Bytes;
use parquet::arrow::ArrowWriter;
use std::path::Path;
use std::slice::from_ref;
use vsteer_core::Fault;
use vsteer_core::nouns::Histogram;

/// Reads a line of a journal, without its end. Returns whether the line is whole.
///
/// # Panics
/// If the minute of the line cannot be stored again.
pub fn read_line(bytes: &[u8]) -> bool {
    let Some(minute) = journal::minute(bytes) else { return false };
    let mut hours = Hours::default();
    hours.add(&minute);
    hours.finish();
    let line = journal::line(&minute);
    assert_eq!(journal::minute(&line[..line.len() - 1]).as_ref(), Some(&minute));
    true
}

fn read<R: Row>(bytes: &[u8]) -> Result<usize, Fault> {
    let mut rows = 0;
    let file = Bytes::copy_from_slice(bytes);
    day::within::<R, Bytes>(Path::new("memory"), file, None, true, &|_| true, &mut |part| {
        rows += part.len()
    })?;
    Ok(rows)
}

/// Reads a Parquet file as rows of VMs, of the host, and of the timeline.
///
/// # Errors
/// `BadInput` if the file is damaged.
pub fn read_file(bytes: &[u8]) -> Result<usize, Fault> {
    Ok(read::<VmRow>(bytes)?.max(read::<HostRow>(bytes)?).max(read::<Event>(bytes)?))
}

fn file<R: Row>(rows: &[R]) -> Vec<u8> {
    let mut writer = ArrowWriter::try_new(Vec::new(), schema::<R>(true), None).expect("memory takes all");
    writer.write(&batch(rows, true)).expect("memory takes all");
    writer.into_inner().expect("memory takes all")
}

/// A small line of a journal, and small files of each kind: where a fuzzer starts.
pub fn examples() -> (Vec<u8>, Vec<Vec<u8>>) {
    let wake = Some(Histogram { counts: vec![(3, 2), (90, 1)] });
    let costs = vec![Cost { culprit: "process cc1".into(), us: 7 }];
    let vm = VmRow { vm: "a".into(), name: "web".into(), ready_us: Some(5), costs, wake, ..VmRow::default() };
    let host = HostRow { busy_us: Some(3), ..HostRow::default() };
    let event = Event { text: "VM \"web\" came".into(), ..Event::default() };
    let files = vec![file(from_ref(&vm)), file(from_ref(&host)), file(from_ref(&event))];
    let minute = Minute { host: Some(host), vms: vec![vm], events: vec![event], ..Minute::default() };
    let line = journal::line(&minute);
    (line[..line.len() - 1].to_vec(), files)
}
