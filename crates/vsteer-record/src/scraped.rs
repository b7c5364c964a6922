//! A page of metrics from a server or a file: its bytes, and its time.
//!
//! Left out: asking a server, which belongs to `vsteer-host`.

use std::io::Read;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};
use vsteer_core::limits::METRICS_PAGE;
use vsteer_core::{Fault, FaultKind};

/// A page of metrics.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// When the server answered or the file was written, ns since 1970.
    pub unix_ns: u64,
    /// The page, in any form of an exposition.
    pub bytes: Vec<u8>,
}

impl Page {
    /// Makes a page from these bytes. `what` describes the action, for the fault.
    ///
    /// # Errors
    /// `BadInput` for a page that is too long.
    pub fn new(what: &str, at: SystemTime, bytes: Vec<u8>) -> Result<Page, Fault> {
        if bytes.len() as u64 > METRICS_PAGE {
            return Err(too_long(what));
        }
        Ok(Page { unix_ns: at.duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos() as u64), bytes })
    }

    /// Reads a page from a file.
    ///
    /// # Errors
    /// As for reading a file, and as [`Page::new`].
    pub fn read(file: &Path) -> Result<Page, Fault> {
        let what = format!("cannot read {}", file.display());
        let failed = |e: std::io::Error| Fault::io(&what, &e);
        let file = std::fs::File::open(file).map_err(failed)?;
        let at = file.metadata().and_then(|m| m.modified()).map_err(failed)?;
        let mut bytes = Vec::new();
        file.take(METRICS_PAGE + 1).read_to_end(&mut bytes).map_err(failed)?;
        Page::new(&what, at, bytes)
    }
}

/// The fault for a page that is too long.
pub fn too_long(what: &str) -> Fault {
    Fault::new(FaultKind::BadInput, what)
        .because(format!("it exceeds {} MiB", METRICS_PAGE >> 20))
        .help("check that it is a page of metrics")
}
