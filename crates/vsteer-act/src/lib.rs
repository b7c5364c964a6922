//! Changes machines, and survives a crash while doing so: journal, apply, rollback, the watchdog of `--try`, and
//! settings that vsteer changes repeatedly to keep service levels or to put VMs first.

mod apply;
pub mod experiment;
pub mod journal;
pub mod levels;
mod locked;
mod outlive;
pub mod priority;
mod steering;
mod system_log;
mod watchdog;

pub use apply::{Preview, Receipt, Setting, apply, conflicts, preview, rollback};
pub use journal::{Entry, Journal, State, Summary, journal_folder};
pub use steering::{Steering, guard};
pub use system_log::{By, policy as log_policy};
pub use watchdog::{Applying, arm, confirm, watch};
