//! What changes machines, and survives a crash while doing so: journal, apply, rollback, the watchdog of `--try`,
//! and weights that are set again and again for as long as somebody steers.

mod apply;
mod journal;
mod steering;
mod watchdog;

pub use apply::{Preview, Receipt, Setting, apply, preview, rollback};
pub use journal::{Entry, Journal, State, journal_folder};
pub use steering::{Steering, guard};
pub use watchdog::{arm, confirm, watch};
