//! How much may a plan cost the other VMs?

use crate::thresholds::Thresholds;
use serde::{Deserialize, Serialize};

/// Largest allowed cost of a plan, and the thresholds that say which VMs are delayed.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Limits {
    /// Largest allowed loss of any VM's work rate, as a fraction of that rate.
    pub work_loss: f64,
    /// Largest allowed growth of any VM's wait (ready, limited and co-stopped), summed over its vCPUs, as a fraction of a pCPU.
    pub ready_growth: f64,
    /// Thresholds above which a VM counts as delayed.
    pub thresholds: Thresholds,
    /// Cost of moving a vCPU to another core, ns. `None`: estimated from the size of the core's private caches.
    pub move_cost_ns: Option<f64>,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { work_loss: 0.10, ready_growth: 0.05, thresholds: Thresholds::default(), move_cost_ns: None }
    }
}
