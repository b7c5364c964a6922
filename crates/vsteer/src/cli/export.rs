//! Options of `vsteer export`.

use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser};
use std::path::PathBuf;
use vsteer_record::export::FORMATS;
use vsteer_record::rt_app;

/// The names: of formats that need the samples alone, and of the one that needs the demands that the simulator derives.
fn formats() -> PossibleValuesParser {
    let own = FORMATS.iter().map(|f| (f.name, f.doc));
    let all = own.chain(std::iter::once((rt_app::NAME, rt_app::DOC)));
    PossibleValuesParser::new(all.map(|(name, doc)| PossibleValue::new(name).help(doc)))
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
    pub to: String,
    /// Write to this file or folder
    #[arg(short, long, value_name = "PATH", help_heading = "Output")]
    pub output: PathBuf,
}
