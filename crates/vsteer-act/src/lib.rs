//! What changes machines, and survives a crash while doing so: journal, apply, rollback, the watchdog of `--try`.

mod apply;
mod journal;
mod watchdog;

pub use apply::{Preview, Receipt, Setting, apply, preview, rollback};
pub use journal::{Entry, Journal, State, journal_folder};
pub use watchdog::{arm, confirm, watch};
