//! How did this host and its VMs do over the last two years? A store of minutes and hours.
//!
//! ```text
//! journal.jsonl                    minutes of the current hour, a line each
//! vm/minute/2026-11-21.parquet     a row for each VM and minute, kept for 90 days
//! vm/hour/2026-11-21.parquet       a row for each VM and hour, kept for two years
//! host/minute/, host/hour/         the same of the host
//! timeline/2026-11-21.parquet      what happened, kept for two years
//! ```
//!
//! DuckDB and Polars open the files as they are. The service writes one line per minute and syncs it. At the end of an hour
//! it merges the lines into the files of their day. Each file is replaced as a whole, and the journal last. So a power cut
//! costs at most the minute that was being written: a merge that was cut is repeated, and rows that are there stay once.
//!
//! Rows of hours have the distribution of wake-ups, so that percentiles of any number of hours can be computed. Rows of
//! minutes have it only in the journal, because it needs more bytes than all other columns together.
//!
//! Left out: raw samples (`vsteer record` stores them), and figures per vCPU and per pCPU.

mod column;
mod day;
mod disk;
mod hour;
mod journal;
pub mod memory;
mod read;
mod row;
mod summary;
#[cfg(test)]
mod tests;
mod write;

pub use column::{Documented, Row, documented};
pub use hour::largest;
pub use read::{Found, History, Query, Step};
pub use row::{COSTS, Cost, DAY_MS, Event, EventKind, HOUR_MS, HostRow, MINUTE_MS, Minute, VmRow};
pub use summary::{Over, Summary, by_vm, over, parts, summary, trend};
pub use write::{Kept, Writer};

/// Rows as the columns of the files.
pub(crate) fn batch_of<R: Row>(rows: &[R]) -> arrow_array::RecordBatch {
    column::batch(rows, true)
}

/// Where the service keeps its history.
pub const FOLDER: &str = "/var/lib/vsteer/history";
