//! Scenario files: read, changed from the command line, run on every core, told as tables.

pub mod file;
pub mod published;
pub mod record;
pub mod replay;
pub mod runs;
pub mod table;
