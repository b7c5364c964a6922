//! CPU time that ESXi keeps for the VM, MHz; 0: none.

use crate::CpuSet;
use crate::nouns::VmConfig;
use serde::{Deserialize, Serialize};
use std::fmt;

/// CPU time that ESXi keeps for the VM, MHz; 0: none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReservationMhz {
    /// The former reservation.
    pub from: u64,
    /// New reservation, MHz.
    pub to: u64,
}

from_to!(ReservationMhz, from, to, same: [], |v: &u64| format!("{v} MHz"));

impl super::Apply for ReservationMhz {
    fn apply_to(&self, vm: &mut VmConfig, _anywhere: &CpuSet) {
        vm.vsphere.get_or_insert_default().reservation_mhz = Some(self.to);
    }
}

impl fmt::Display for ReservationMhz {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CPU reservation: {} -> {} MHz", self.from, self.to)
    }
}
