//! Stores and reads recordings, imports other formats, and exports recordings.

pub mod access_log;
pub mod applied;
pub mod config;
pub mod esxtop;
pub mod event;
pub mod export;
pub mod files;
mod folder;
pub mod history;
mod marks;
pub mod own_folder;
pub mod packed;
mod parts;
pub mod prometheus;
pub mod rt_app;
pub mod sched_trace;
pub mod scraped;
pub mod sniff;
pub mod stream;
mod system;
mod table;
pub mod task;
#[cfg(target_os = "linux")]
pub mod trusted;
#[cfg(not(target_os = "linux"))]
#[path = "trusted_elsewhere.rs"]
pub mod trusted;
pub mod unit;
pub mod xentrace;

pub use event::{EventSummary, EventWriter, Switches};
pub use folder::{ConfigAt, FORMAT, Manifest, Recording, Writer, shown_as};
pub use marks::{of as marks_of, read as read_marks};
pub use parts::{Parts, is_part};
pub use task::{Task, Tasks};
