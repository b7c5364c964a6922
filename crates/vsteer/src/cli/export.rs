//! Options of `vsteer export`.

use clap::{Args, ValueEnum};
use std::path::PathBuf;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Folder with one Parquet file per table
    Parquet,
    /// Folder with one CSV file per table, control characters and formulas in names are escaped
    Csv,
    /// Trace for ui.perfetto.dev: shares as counters, and context switches if they were recorded
    Perfetto,
    /// Batch file as `esxtop -b` writes it: .csv or .csv.gz
    Esxtop,
    /// The recording as one file, to send
    Zip,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  vsteer export before.vsteer --to parquet -o before
  vsteer export before.vsteer --to perfetto -o before.pftrace

CSV is for people. Names show control characters as escapes such as \\u{1b}. A name that begins
with =, +, @, - or ' gets an apostrophe, so that a spreadsheet does not compute it. Numbers stay as
they are. Parquet and esxtop files keep every name exactly.")]
pub struct Export {
    /// Recording to export
    pub recording: PathBuf,
    /// Write this format
    #[arg(long, value_enum, help_heading = "Output")]
    pub to: Format,
    /// Write to this file or folder
    #[arg(short, long, value_name = "PATH", help_heading = "Output")]
    pub output: PathBuf,
}
