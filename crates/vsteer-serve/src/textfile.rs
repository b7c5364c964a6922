//! Writes the metrics into a file that node_exporter reads.

use crate::metrics::{Format, render, tables};
use crate::seen::Seen;
use std::fs::Permissions;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use vsteer_core::Fault;

/// Replaces the file in one step, so that nobody reads half of it.
///
/// # Errors
/// When it cannot be written.
pub fn write(path: &Path, seen: &Arc<Seen>, compat: bool) -> Result<(), Fault> {
    vsteer_record::files::replace_by(path, |file| {
        file.write_all(&render(seen, tables(compat), Format::Text))?;
        // node_exporter is another user, and the unit's umask lets only root read. A mode that a person sets later stays.
        file.set_permissions(Permissions::from_mode(0o644))
    })
}
