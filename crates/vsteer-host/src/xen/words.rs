//! The fault for a step that Xen refuses, and the command with which `xl` sets weights.

use vsteer_core::setting::Step;
use vsteer_core::{Fault, FaultKind};

pub(super) fn fault(kind: FaultKind, step: &Step) -> Fault {
    Fault::new(kind, format!("cannot change VM {:?} ({})", step.vm_name, step.change))
}

/// The schedulers that have weights and caps, and the `xl` subcommand that sets them.
pub(super) fn shares_word(scheduler: &str) -> Option<&'static str> {
    match scheduler {
        "credit" => Some("sched-credit"),
        "credit2" => Some("sched-credit2"),
        _ => None,
    }
}
