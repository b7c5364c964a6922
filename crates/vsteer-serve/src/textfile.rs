//! Writes the metrics into a file that node_exporter reads.

use crate::metrics::{Format, render, tables};
use crate::seen::Seen;
use std::path::Path;
use std::sync::Arc;
use vsteer_core::Fault;

/// Replaces the file in one step, so that nobody reads half of it.
///
/// # Errors
/// When it cannot be written.
pub fn write(path: &Path, seen: &Arc<Seen>, compat: bool) -> Result<(), Fault> {
    vsteer_record::files::replace(path, &render(seen, tables(compat), Format::Text))
}
