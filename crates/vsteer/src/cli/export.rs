//! Options of `vsteer export`.

use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use std::path::PathBuf;
use vsteer_record::export::{FORMATS, Format};

/// Every format: those that need the samples alone, and the one that needs the demands that the simulator derives.
fn all() -> impl Iterator<Item = &'static Format> {
    FORMATS.iter().chain(std::iter::once(&crate::scenario::rt_app::FORMAT))
}

/// The format of this name.
fn format(name: &str) -> Result<Format, String> {
    all().find(|f| f.name == name).copied().ok_or_else(|| format!("{name:?} is not a format"))
}

fn formats() -> impl TypedValueParser<Value = Format> {
    PossibleValuesParser::new(all().map(|f| PossibleValue::new(f.name).help(f.doc)))
        .try_map(|name| format(&name))
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  vsteer export before.vsteer --to parquet -o before
  vsteer export before.vsteer --to perfetto -o before.pftrace
  vsteer export events.vsteer --to rt-app -o workload.json

CSV is for people. Names show control characters as escapes such as \\u{1b}. A name that begins
with =, +, @, - or ' gets an apostrophe, so that a spreadsheet does not compute it. Numbers stay as
they are. Parquet and esxtop files keep every name exactly.")]
pub struct Export {
    /// Recording to export
    pub recording: PathBuf,
    /// Write this format
    #[arg(long, value_parser = formats(), help_heading = "Output")]
    pub to: Format,
    /// Write to this file or folder
    #[arg(short, long, value_name = "PATH", help_heading = "Output")]
    pub output: PathBuf,
}
