//! The VM's weight against other VMs.

use crate::CpuSet;
use crate::nouns::{CpuWeight, VmConfig};
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

impl super::Apply for Weight {
    fn apply_to(&self, vm: &mut VmConfig, _anywhere: &CpuSet) {
        vm.weight = Some(self.to);
    }
}

impl fmt::Display for Weight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The name says what the numbers are; only shares need their unit.
        match (self.from, self.to) {
            (CpuWeight::Weight(from), CpuWeight::Weight(to)) | (CpuWeight::Credit(from), CpuWeight::Credit(to)) => {
                write!(f, "CPU weight: {from} -> {to}")
            }
            (from, to) => write!(f, "CPU weight: {from} -> {to}"),
        }
    }
}
