//! A VM's latency sensitivity (ESXi).

use crate::CpuSet;
use crate::nouns::{LatencySensitivity, VmConfig};
use serde::{Deserialize, Serialize};
use std::fmt;

/// A VM's latency sensitivity (ESXi).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Latency {
    /// Former level.
    pub from: LatencySensitivity,
    /// New level.
    pub to: LatencySensitivity,
}

from_to!(Latency, from, to, same: [], |v: &LatencySensitivity| v.to_string());

impl super::Apply for Latency {
    fn apply_to(&self, vm: &mut VmConfig, _anywhere: &CpuSet) {
        vm.vsphere.get_or_insert_default().latency = Some(self.to);
    }
}

impl fmt::Display for Latency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "latency sensitivity: {} -> {}", self.from, self.to)
    }
}
