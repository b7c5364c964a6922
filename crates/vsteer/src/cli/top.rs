//! Options of `vsteer top`.

use super::host::Source;
use super::words::duration;
use clap::Args;
use clap::builder::PossibleValuesParser;
use std::path::PathBuf;
use vsteer_core::top_columns::COLUMNS;
use vsteer_record::config::default_of;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  vsteer top
  vsteer top --batch -n 5 > top.csv         Print five updates as CSV
  vsteer top before.vsteer                  Play a recording

In the live table, h lists the keys. z shows one VM, m which VM is pinned to which pCPUs.")]
pub struct Top {
    /// Recording to play: a folder, a file of `esxtop -b`, or a saved xentrace [default: observe the live host]
    #[arg(value_name = "RECORDING")]
    pub recording: Option<PathBuf>,
    /// Print rows instead of a live table: CSV, or JSON lines with --json
    #[arg(short, long, help_heading = "Output")]
    pub batch: bool,
    /// Update every TIME
    #[arg(short, long, value_name = "TIME", default_value = default_of("top.interval"), value_parser = duration, help_heading = "Window")]
    pub interval: std::time::Duration,
    /// Show these columns of the live table, in this order [default: those that fit and have values]
    #[arg(long, value_name = "COLUMN,...", value_delimiter = ',', value_parser = PossibleValuesParser::new(COLUMNS),
        help_heading = "Output")]
    pub columns: Vec<String>,
    /// Stop after N updates [default: run until interrupted]
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), help_heading = "Window")]
    pub updates: Option<u64>,
    #[command(flatten)]
    pub source: Source,
}
