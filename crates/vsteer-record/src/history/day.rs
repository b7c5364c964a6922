//! One day of one table: a Parquet file that only a rename replaces.
//!
//! `FOLDER/TABLE/2026-11-21.parquet` holds the rows of that day, UTC, sorted by VM and time. New rows are merged into a new
//! file beside the old one, which replaces it after a sync. A row that is there already stays, so a merge can be repeated.
//!
//! Numbers are delta-packed and texts are in dictionaries; both are compressed with gzip, which DuckDB and Polars read.
//! Row groups are small, so that a query for one VM reads a small part of the file.

use super::column::{self, Cell, Row, batch, schema};
use super::disk::{Disk, Sink};
use super::row::DAY_MS;
use crate::system;
use arrow_array::RecordBatch;
use jiff::Timestamp;
use jiff::civil::Date;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderOptions, ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder,
};
use parquet::arrow::arrow_writer::{ArrowWriter, ArrowWriterOptions};
use parquet::basic::{Compression, Encoding, GzipLevel};
use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData, RowGroupMetaData};
use parquet::file::properties::WriterProperties;
use parquet::file::reader::ChunkReader;
use parquet::schema::types::ColumnPath;
use std::fs;
use std::io::{self, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use vsteer_core::limits;
use vsteer_core::{Fault, FaultKind};

/// Rows of a row group.
const GROUP: usize = 8192;
/// Rows of a record batch.
const BATCH: usize = 4096;
/// End of the name of a file that is not finished.
pub const UNFINISHED: &str = ".new";
/// End of the name of a file that could not be read when rows were to be added.
pub const DAMAGED: &str = ".damaged";

/// Rows of minutes per VM.
pub const VM_MINUTE: &str = "vm/minute";
/// Rows of hours per VM.
pub const VM_HOUR: &str = "vm/hour";
/// Rows of minutes of the host.
pub const HOST_MINUTE: &str = "host/minute";
/// Rows of hours of the host.
pub const HOST_HOUR: &str = "host/hour";
/// Events.
pub const TIMELINE: &str = "timeline";
/// All tables.
pub const TABLES: [&str; 5] = [VM_MINUTE, VM_HOUR, HOST_MINUTE, HOST_HOUR, TIMELINE];

/// The file of a day. Days count from 1970.
pub fn path(folder: &Path, table: &str, day: u64) -> PathBuf {
    let ms = i64::try_from(day.saturating_mul(DAY_MS).min(limits::HISTORY_LAST_MS)).unwrap_or(0);
    let at = Timestamp::from_millisecond(ms).unwrap_or_default();
    folder.join(table).join(format!("{}.parquet", at.strftime("%Y-%m-%d")))
}

fn day_of(name: &str) -> Option<u64> {
    let date: Date = name.get(..10)?.parse().ok()?;
    let end = name.get(10..)?;
    if end != ".parquet" && end != format!(".parquet{DAMAGED}") {
        return None;
    }
    let days = date.since(Date::constant(1970, 1, 1)).ok()?.get_days();
    u64::try_from(days).ok()
}

/// Every file of a table with its day, in order of days; files that are damaged too.
pub fn files_of(folder: &Path, table: &str) -> io::Result<Vec<(u64, PathBuf)>> {
    let entries = match fs::read_dir(folder.join(table)) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other?,
    };
    let mut all = Vec::new();
    for entry in entries {
        let entry = entry?;
        if let Some(day) = entry.file_name().to_str().and_then(day_of) {
            all.push((day, entry.path()));
        }
    }
    all.sort();
    Ok(all)
}

fn properties<R: Row>() -> WriterProperties {
    let mut made = WriterProperties::builder()
        .set_compression(Compression::GZIP(GzipLevel::default()))
        .set_max_row_group_row_count(Some(GROUP))
        .set_offset_index_disabled(true);
    let names = R::COLUMNS.iter().filter(|c| matches!(c.cell, Cell::Number(..) | Cell::Time(..)));
    for path in names.map(|c| ColumnPath::from(c.name)) {
        made = made.set_column_dictionary_enabled(path.clone(), false);
        made = made.set_column_encoding(path, Encoding::DELTA_BINARY_PACKED);
    }
    made.build()
}

/// A file that keeps its first error: the Parquet library turns some errors of the disk into texts.
struct Kept {
    file: Box<dyn Sink>,
    first: Arc<Mutex<Option<io::Error>>>,
}

impl Kept {
    fn keep<T>(&self, done: io::Result<T>) -> io::Result<T> {
        done.map_err(|e| {
            let again = io::Error::from(e.kind());
            self.first.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(e);
            again
        })
    }
}

impl Write for Kept {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let done = self.file.write(bytes);
        self.keep(done)
    }

    fn flush(&mut self) -> io::Result<()> {
        let done = self.file.flush();
        self.keep(done)
    }
}

fn damaged(path: &Path, why: impl std::fmt::Display) -> Fault {
    Fault::new(FaultKind::BadInput, format!("cannot read {}", path.display()))
        .because(why)
        .help("the file is damaged: remove it, or restore it from a backup")
}

/// Does a row group hold rows of a VM of this name or id, as far as its statistics tell?
fn may_hold(group: &RowGroupMetaData, wanted: &str) -> bool {
    let names: Vec<_> = group
        .columns()
        .iter()
        .filter(|c| matches!(c.column_path().string().as_str(), "vm" | "name"))
        .map(|c| {
            let of = c.statistics()?;
            Some((of.min_bytes_opt()?, of.max_bytes_opt()?))
        })
        .collect();
    let within = |range: &Option<(&[u8], &[u8])>| {
        range.is_none_or(|(least, most)| least <= wanted.as_bytes() && wanted.as_bytes() <= most)
    };
    names.is_empty() || names.iter().any(within)
}

/// A file that asks for more memory than any day needs is damaged.
fn check(path: &Path, of: &ParquetMetaData, length: u64) -> Result<(), Fault> {
    let is_inside = |c: &ColumnChunkMetaData| {
        let unsigned = |n: i64| u64::try_from(n).ok();
        let start = unsigned(c.dictionary_page_offset().unwrap_or(c.data_page_offset()));
        let end = start.zip(unsigned(c.compressed_size())).and_then(|(at, n)| at.checked_add(n));
        end.is_some_and(|end| end <= length) && c.num_values() >= 0 && c.data_page_offset() >= 0
    };
    if !of.row_groups().iter().flat_map(RowGroupMetaData::columns).all(is_inside) {
        return Err(damaged(path, "a column lies outside the file"));
    }
    let bytes = of.row_groups().iter().map(RowGroupMetaData::total_byte_size).max().unwrap_or(0);
    let rows = of.file_metadata().num_rows();
    let is_small = (0..=limits::HISTORY_ROWS).contains(&rows) && (0..=limits::HISTORY_GROUP).contains(&bytes);
    if is_small { Ok(()) } else { Err(damaged(path, "a row group is larger than any that vsteer writes")) }
}

/// Opens a day for reading; `wanted`: only row groups that may hold this VM.
fn open<R: Row, C: ChunkReader + 'static>(
    path: &Path,
    file: C,
    wanted: Option<&str>,
    whole: bool,
) -> Result<ParquetRecordBatchReader, Fault> {
    let bad = |e: &parquet::errors::ParquetError| damaged(path, e);
    let length = file.len();
    let options = ArrowReaderOptions::new().with_skip_arrow_metadata(true);
    let made = ParquetRecordBatchReaderBuilder::try_new_with_options(file, options).map_err(|e| bad(&e))?;
    check(path, made.metadata(), length)?;
    let groups = wanted.map(|wanted| {
        let all = made.metadata().row_groups().iter().enumerate();
        all.filter(|(_, g)| may_hold(g, wanted)).map(|(i, _)| i).collect::<Vec<usize>>()
    });
    let known = |name: &str| {
        R::COLUMNS.iter().any(|c| match c.cell {
            Cell::Histogram(..) => whole && name.starts_with(c.name) && name.len() > c.name.len(),
            _ => c.name == name,
        })
    };
    let parts = made.parquet_schema().root_schema().get_fields();
    let roots: Vec<usize> = (0..parts.len()).filter(|i| known(parts[*i].name())).collect();
    let mask = ProjectionMask::roots(made.parquet_schema(), roots);
    let made = made.with_projection(mask).with_batch_size(BATCH);
    match groups {
        Some(groups) => made.with_row_groups(groups).build(),
        None => made.build(),
    }
    .map_err(|e| bad(&e))
}

/// Passes the rows of a day on that `keep` accepts. `wanted` is a VM that `keep` accepts alone. A file that is not there has
/// no rows.
///
/// # Errors
/// `BadInput` if the file is damaged: rows before the damage were passed on.
pub fn each<R: Row>(
    path: &Path,
    wanted: Option<&str>,
    whole: bool,
    keep: &dyn Fn(&R) -> bool,
    give: &mut dyn FnMut(Vec<R>),
) -> Result<(), Fault> {
    let failed = |e: &io::Error| Fault::io(format!("cannot read {}", path.display()), e);
    let file = match system::open_ordinary(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other.map_err(|e| failed(&e))?,
    };
    if file.metadata().map_err(|e| failed(&e))?.len() > limits::HISTORY_FILE {
        return Err(damaged(path, format!("the file has more than {} MiB", limits::HISTORY_FILE >> 20)));
    }
    within(path, file, wanted, whole, keep, give)
}

/// As [`each`], of a file that is open or in memory. `path` is what messages call it.
pub fn within<R: Row, C: ChunkReader + 'static>(
    path: &Path,
    file: C,
    wanted: Option<&str>,
    whole: bool,
    keep: &dyn Fn(&R) -> bool,
    give: &mut dyn FnMut(Vec<R>),
) -> Result<(), Fault> {
    // The Parquet library checks most of a damaged file, but not all.
    let read = catch_unwind(AssertUnwindSafe(|| {
        for part in open::<R, C>(path, file, wanted, whole)? {
            let part: RecordBatch = part.map_err(|e| damaged(path, e))?;
            give(column::rows(&part, keep));
        }
        Ok(())
    }));
    read.unwrap_or_else(|_| Err(damaged(path, "its pages contradict each other")))
}

/// Merges rows into the file of a day. `rows` must be sorted by key.
///
/// # Errors
/// `NoSpace` and others as the system says: the old file is then as it was. `BadInput` if the old file is damaged.
pub fn merge<R: Row>(disk: &dyn Disk, path: &Path, rows: Vec<R>, whole: bool) -> Result<(), Fault> {
    if rows.is_empty() {
        return Ok(());
    }
    let beside = path.with_extension(format!("parquet{UNFINISHED}"));
    let failed = |e: &io::Error| Fault::io(format!("cannot write {}", path.display()), e);
    let written = write(disk, path, &beside, rows, whole).and_then(|()| {
        disk.rename(&beside, path).map_err(|e| failed(&e))?;
        path.parent().map_or(Ok(()), |folder| disk.sync_folder(folder)).map_err(|e| failed(&e))
    });
    if written.is_err() {
        let _ = disk.remove(&beside);
    }
    written
}

fn write<R: Row>(
    disk: &dyn Disk,
    path: &Path,
    beside: &Path,
    rows: Vec<R>,
    whole: bool,
) -> Result<(), Fault> {
    let what = || format!("cannot write {}", path.display());
    let first = Arc::<Mutex<Option<io::Error>>>::default();
    let failed =
        |e: parquet::errors::ParquetError| match &*first.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(io) => Fault::io(what(), io),
            None => Fault::new(FaultKind::Failed, what()).because(e),
        };
    let to = disk.create(beside).map_err(|e| Fault::io(what(), &e))?;
    let to = Kept { file: to, first: Arc::clone(&first) };
    let options = ArrowWriterOptions::new().with_properties(properties::<R>()).with_skip_arrow_metadata(true);
    let mut writer = ArrowWriter::try_new_with_options(to, schema::<R>(whole), options).map_err(failed)?;
    let mut new = rows.into_iter().peekable();
    let mut problem = Ok(());
    let mut out: Vec<R> = Vec::with_capacity(BATCH);
    let mut put = |out: &mut Vec<R>, row: Option<R>| {
        out.extend(row.clone());
        if out.len() >= BATCH || row.is_none() && !out.is_empty() {
            let part = batch(out, whole);
            out.clear();
            if problem.is_ok() {
                problem = writer.write(&part);
            }
        }
    };
    each::<R>(path, None, whole, &|_| true, &mut |old| {
        for row in old {
            while let Some(before) = new.next_if(|n| n.key() < row.key()) {
                put(&mut out, Some(before));
            }
            // The row that is there already stays.
            while new.next_if(|n| n.key() == row.key()).is_some() {}
            put(&mut out, Some(row));
        }
    })?;
    for row in new {
        put(&mut out, Some(row));
    }
    put(&mut out, None);
    problem.map_err(failed)?;
    let mut to = writer.into_inner().map_err(failed)?;
    to.file.sync().map_err(|e| Fault::io(what(), &e))
}
