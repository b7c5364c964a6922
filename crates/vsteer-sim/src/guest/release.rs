//! Work that arrives at given times.

use super::times::positive;
use serde::{Deserialize, Serialize};
use vsteer_core::span::LONGEST_NS;
use vsteer_core::{Fault, FaultKind};

/// A job that arrives at a given time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Release {
    /// When the job arrives, ns after the vCPU begins to exist.
    pub at_ns: u64,
    /// CPU time, ns.
    pub compute_ns: u64,
}

impl Release {
    /// Are they in order and valid? Each message starts with `whose`.
    pub(super) fn check_all(all: &[Release], whose: &str) -> Result<(), Fault> {
        let key = |k: &str| format!("{whose}: {k}");
        let wrong = |r: &Release| r.compute_ns == 0 || r.compute_ns.max(r.at_ns) > LONGEST_NS;
        if let Some(i) = all.iter().position(wrong) {
            return positive(&key(&format!("recorded job {}", i + 1)), 0);
        }
        if all.windows(2).all(|w| w[0].at_ns <= w[1].at_ns) {
            return Ok(());
        }
        Err(Fault::new(FaultKind::BadInput, key("the recorded jobs are not in order of time"))
            .help("sort the jobs by time"))
    }
}
