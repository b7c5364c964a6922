//! Exports a recording for other programs: Parquet and CSV per table, a Perfetto trace, or one zip file.
//!
//! vsteer never overwrites a file. If an export fails, vsteer removes what it wrote.
//! CSV is for people, so its texts are shown safely ([`vsteer_core::visible::csv_cell`]). Parquet and esxtop's files keep
//! every name exactly.

mod columns;
mod config;
mod events;
mod names;
mod perfetto;
mod protobuf;
mod settings;
mod switches;

pub use columns::{Column, Table, tables};
pub use perfetto::perfetto;

use crate::folder::{Recording, shown_as};
use crate::own_folder::OwnFolder;
use crate::parts::is_part;
use crate::table::{TABLES, rows, schema};
use arrow_array::{Array, RecordBatch};
use arrow_schema::Schema;
use parquet::arrow::ArrowWriter;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::Arc;
use vsteer_core::visible::csv_cell;
use vsteer_core::{Fault, FaultKind};

/// What to export.
pub struct Input<'a> {
    /// The file or folder.
    pub path: &'a Path,
    /// Reads it as a recording.
    pub read: &'a dyn Fn() -> Result<Recording, Fault>,
}

/// A format that a recording can be exported to.
#[derive(Debug, Clone, Copy)]
pub struct Format {
    /// Name in options.
    pub name: &'static str,
    /// One line about what is written.
    pub doc: &'static str,
    /// Writes it; returns one line for each recorded part that could not be read.
    pub write: fn(&Input<'_>, &Path) -> Result<Vec<String>, Fault>,
}

/// Every format.
pub const FORMATS: &[Format] = &[
    Format {
        name: "parquet",
        doc: "Folder with one Parquet file per table",
        write: |from, to| parquet(&(from.read)()?, to),
    },
    Format {
        name: "csv",
        doc: "Folder with one CSV file per table; control characters and formulas in names are escaped",
        write: |from, to| csv(&(from.read)()?, to),
    },
    Format {
        name: "perfetto",
        doc: "Trace for ui.perfetto.dev: shares as counters, and context switches if they were recorded",
        write: |from, to| perfetto(&(from.read)()?, to).map(|()| Vec::new()),
    },
    Format {
        name: "esxtop",
        doc: "Batch file as `esxtop -b` writes it: .csv or .csv.gz",
        write: |from, to| esxtop(&(from.read)()?, to).map(|()| Vec::new()),
    },
    Format {
        name: "zip",
        doc: "The recording as one file, to send",
        write: |from, to| zip(from.path, to).map(|()| Vec::new()),
    },
];

fn failed(what: &str, path: &Path, e: &io::Error) -> Fault {
    Fault::io(format!("{what} {}", path.display()), e)
}

/// Refuses an output that exists.
fn must_be_new(path: &Path) -> Result<(), Fault> {
    if path.exists() {
        return Err(Fault::new(FaultKind::Usage, format!("{} already exists", path.display()))
            .help("choose another output: vsteer never overwrites an export"));
    }
    Ok(())
}

/// Runs `write` with the path of a new folder, and removes the folder if it fails.
fn into_folder(folder: &Path, write: impl FnOnce(&Path) -> Result<(), Fault>) -> Result<(), Fault> {
    let held = OwnFolder::make(folder)?;
    write(&held.path()).map_err(|fault| {
        held.remove();
        shown_as(fault, folder)
    })
}

/// Writes one Parquet file per table in a new folder. Returns one line for each recorded part that could not
/// be read.
///
/// # Errors
/// `Usage` if the folder exists, `NoSpace` if it cannot be written.
pub fn parquet(recording: &Recording, folder: &Path) -> Result<Vec<String>, Fault> {
    let mut notes = Vec::new();
    into_folder(folder, |folder| {
        let write = |table: &str, of: Arc<Schema>, fill: &mut dyn FnMut(Give<'_>) -> Result<(), Fault>| {
            let path = folder.join(format!("{table}.parquet"));
            let arrow = |e: parquet::errors::ParquetError| unwritten(&path, &e);
            let file = File::create(&path).map_err(|e| failed("cannot create", &path, &e))?;
            let mut writer = ArrowWriter::try_new(file, of, None).map_err(arrow)?;
            fill(&mut |batch| writer.write(&batch).map_err(arrow))?;
            writer.close().map(|_| ()).map_err(arrow)
        };
        notes = each_table(recording, write)?;
        Ok(())
    })?;
    Ok(notes)
}

/// What the disk said, without the words that the Parquet writer puts around it.
fn unwritten(path: &Path, e: &parquet::errors::ParquetError) -> Fault {
    let cause = match e {
        parquet::errors::ParquetError::External(cause) => cause.downcast_ref::<io::Error>(),
        _ => None,
    };
    match cause {
        Some(io) => failed("cannot write", path, io),
        None => Fault::new(FaultKind::NoSpace, format!("cannot write {}", path.display())).because(e),
    }
}

type Give<'a> = &'a mut dyn FnMut(RecordBatch) -> Result<(), Fault>;

/// Calls `write` for every table with its name, its schema, and a function that passes on its rows.
fn each_table(
    recording: &Recording,
    write: impl Fn(&str, Arc<Schema>, &mut dyn FnMut(Give<'_>) -> Result<(), Fault>) -> Result<(), Fault>,
) -> Result<Vec<String>, Fault> {
    for table in TABLES {
        write(table, schema(table), &mut |give| {
            recording.batches.iter().try_for_each(|batch| give(rows(table, batch, None)))
        })?;
    }
    for table in config::TABLES {
        write(table, config::schema(table), &mut |give| config::each(table, recording, give))?;
    }
    let mut notes = Vec::new();
    if recording.has_switches() {
        write("event", events::schema(), &mut |give| {
            notes = events::each(recording, give)?;
            Ok(())
        })?;
    }
    Ok(notes)
}

/// A cell as CSV: lists as `a;b;c`, null as an empty cell.
fn cell(column: &dyn Array, row: usize) -> String {
    use arrow_array::cast::AsArray;
    use arrow_array::types::{Int64Type, UInt16Type, UInt32Type, UInt64Type};
    use arrow_schema::DataType as D;
    if column.is_null(row) {
        return String::new();
    }
    match column.data_type() {
        D::Boolean => column.as_boolean().value(row).to_string(),
        D::Int64 => column.as_primitive::<Int64Type>().value(row).to_string(),
        D::UInt16 => column.as_primitive::<UInt16Type>().value(row).to_string(),
        D::UInt32 => column.as_primitive::<UInt32Type>().value(row).to_string(),
        D::UInt64 => column.as_primitive::<UInt64Type>().value(row).to_string(),
        D::Utf8 => csv_cell(column.as_string::<i32>().value(row)),
        D::List(_) => {
            let items = column.as_list::<i32>().value(row);
            (0..items.len()).map(|i| cell(&items, i)).collect::<Vec<_>>().join(";")
        }
        other => unreachable!("no table has a column of type {other}"),
    }
}

fn write_csv(rows: &RecordBatch, to: &mut impl Write) -> io::Result<()> {
    for row in 0..rows.num_rows() {
        let cells: Vec<String> = rows.columns().iter().map(|c| cell(c, row)).collect();
        writeln!(to, "{}", cells.join(","))?;
    }
    Ok(())
}

/// Writes one CSV file per table in a new folder. Returns one line for each recorded part that could not be
/// read.
///
/// # Errors
/// As [`parquet()`].
pub fn csv(recording: &Recording, folder: &Path) -> Result<Vec<String>, Fault> {
    let mut notes = Vec::new();
    into_folder(folder, |folder| {
        let write = |table: &str, of: Arc<Schema>, fill: &mut dyn FnMut(Give<'_>) -> Result<(), Fault>| {
            let path = folder.join(format!("{table}.csv"));
            let io = |e: io::Error| failed("cannot write", &path, &e);
            let mut to = BufWriter::new(File::create(&path).map_err(io)?);
            let names: Vec<String> = of.fields().iter().map(|f| f.name().clone()).collect();
            writeln!(to, "{}", names.join(",")).map_err(io)?;
            fill(&mut |batch| write_csv(&batch, &mut to).map_err(io))?;
            to.flush().map_err(io)
        };
        notes = each_table(recording, write)?;
        Ok(())
    })?;
    Ok(notes)
}

/// Writes a batch file of esxtop; compressed if its name ends in `.gz`.
///
/// # Errors
/// As [`parquet()`].
pub fn esxtop(recording: &Recording, output: &Path) -> Result<(), Fault> {
    must_be_new(output)?;
    crate::files::replace_by(output, |file| {
        let to = BufWriter::new(file);
        if output.extension().is_some_and(|e| e == "gz") {
            let mut to = flate2::write::GzEncoder::new(to, flate2::Compression::default());
            crate::esxtop::write::recording(recording, &mut to)?;
            to.finish()?.flush()
        } else {
            let mut to = to;
            crate::esxtop::write::recording(recording, &mut to)?;
            to.flush()
        }
    })
}

/// Writes the recording folder as one zip file. It unpacks to the same folder.
///
/// # Errors
/// `BadInput` if the folder is not a recording; otherwise as [`parquet()`].
pub fn zip(folder: &Path, output: &Path) -> Result<(), Fault> {
    Recording::open(folder)?;
    must_be_new(output)?;
    // Lists the folder before it creates the output, which may be in the same folder.
    let listed = fs::read_dir(folder).and_then(|entries| entries.collect::<io::Result<Vec<_>>>());
    let mut names = listed.map_err(|e| failed("cannot read", folder, &e))?;
    names.sort_by_key(fs::DirEntry::file_name);
    let inside =
        folder.file_name().map_or_else(|| "recording.vsteer".into(), |n| n.to_string_lossy().into_owned());
    crate::files::replace_by(output, |file| {
        let mut disk = Disk { file, failed: None };
        let mut zip = ::zip::ZipWriter::new(&mut disk);
        // One system for all builds, so that the same recording gives the same bytes.
        let options = ::zip::write::SimpleFileOptions::default().system(::zip::System::Unix);
        for entry in names.iter().filter(|e| is_copied(e)) {
            zip.start_file(format!("{inside}/{}", entry.file_name().to_string_lossy()), options)?;
            io::copy(&mut File::open(entry.path())?, &mut zip)?;
        }
        zip.finish()?;
        disk.failed.map_or(Ok(()), Err)
    })
}

/// A file that keeps its first error for the end. A zip writer that is dropped after an error tries again to write, and
/// prints what it then finds.
struct Disk<'a> {
    file: &'a mut File,
    failed: Option<io::Error>,
}

impl Write for Disk<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.failed.is_none() {
            match self.file.write_all(bytes) {
                Ok(()) => {}
                Err(e) => self.failed = Some(e),
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl io::Seek for Disk<'_> {
    fn seek(&mut self, to: io::SeekFrom) -> io::Result<u64> {
        self.file.seek(to)
    }
}

/// Is this a file that belongs into a copy? Whatever else lies in the folder stays here; and so does a link, which may
/// lead to any file.
fn is_copied(entry: &fs::DirEntry) -> bool {
    entry.file_type().is_ok_and(|kind| kind.is_file()) && is_part(&entry.file_name().to_string_lossy())
}
