//! Scenario files: read, changed by the command line, run on all cores, and printed as tables.

pub mod file;
pub mod published;
pub mod record;
pub mod replay;
pub mod rt_app;
pub mod runs;
pub mod table;
