//! The VM's weight against other VMs.

use crate::nouns::CpuWeight;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The VM's weight against other VMs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Weight {
    /// The former weight.
    pub from: CpuWeight,
    /// The new weight, in the same unit.
    pub to: CpuWeight,
}

from_to!(Weight, from, to, same: [], |v: &CpuWeight| v.to_string());

impl fmt::Display for Weight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "weight: {} -> {}", self.from, self.to)
    }
}
