//! Options of `vsteer export`.

use clap::{Args, ValueEnum};
use std::path::PathBuf;

/// Formats of `vsteer export`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// One Parquet file per table, in a folder.
    Parquet,
    /// One CSV file per table, in a folder.
    Csv,
    /// A trace that ui.perfetto.dev opens: shares as counters, and who ran where if switches were recorded.
    Perfetto,
    /// A batch file as `esxtop -b` writes it, for the tools that read those; `.csv` or `.csv.gz`.
    Esxtop,
    /// The recording as one file, for sending.
    Zip,
}

/// `vsteer export`.
#[derive(Debug, Args)]
pub struct Export {
    /// The recording.
    pub recording: PathBuf,
    /// The format.
    #[arg(long, value_enum)]
    pub to: Format,
    /// The file or folder to make.
    #[arg(short, long)]
    pub output: PathBuf,
}
