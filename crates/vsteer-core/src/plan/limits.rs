//! What may a plan cost?

use crate::thresholds::Thresholds;
use serde::{Deserialize, Serialize};

/// What a plan may cost others, and when a VM counts as delayed.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Limits {
    /// Largest fall of any other VM's work rate, as a fraction of it.
    pub work_loss: f64,
    /// Largest growth of any VM's ready share, summed over its vCPUs, as a fraction of a pCPU.
    pub ready_growth: f64,
    /// When a VM counts as delayed.
    pub thresholds: Thresholds,
    /// What it costs a vCPU to be moved to another core, ns; `None`: by the caches that cores do not share.
    pub move_cost_ns: Option<f64>,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { work_loss: 0.10, ready_growth: 0.05, thresholds: Thresholds::default(), move_cost_ns: None }
    }
}
