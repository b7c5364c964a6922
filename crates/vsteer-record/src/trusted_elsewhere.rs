//! Files that make vsteer act, where it does not act: on Windows and macOS it only reads files, for the user who calls it.
//!
//! The module for Linux checks owners and permissions before it believes a file. Here a file is this user's own choice.

use std::fs::File;
use std::path::Path;
use vsteer_core::Fault;

/// The user who called vsteer by sudo: there is none that counts.
pub fn caller() -> Option<u32> {
    None
}

/// Opens a file whose settings count for this process.
///
/// # Errors
/// As the system says.
pub fn open_settings(path: &Path) -> Result<File, Fault> {
    File::open(path).map_err(|e| Fault::io(format!("cannot read the configuration {}", path.display()), &e))
}

/// Opens a file to read it.
///
/// # Errors
/// As the system says.
pub fn open(path: &Path) -> Result<File, Fault> {
    File::open(path).map_err(|e| Fault::io(format!("cannot open {}", path.display()), &e))
}

/// Is a file root's, so that it may name commands to run? Never here: this build runs none.
pub fn is_roots(_: &File) -> bool {
    false
}
