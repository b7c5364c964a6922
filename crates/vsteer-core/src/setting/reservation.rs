//! What a scheduler of reservations gives a vCPU (Xen's RTDS).

use crate::CpuSet;
use crate::nouns::{Reserved, Role, Tid, VmConfig};
use serde::{Deserialize, Serialize};
use std::fmt;

/// What a scheduler of reservations gives a vCPU (Xen's RTDS).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reservation {
    /// Role of the vCPU.
    pub role: Role,
    /// Host thread id.
    pub tid: Tid,
    /// The former reservation.
    pub from: Reserved,
    /// New reservation.
    pub to: Reserved,
}

from_to!(Reservation, from, to, same: [role, tid], |v: &Reserved| v.to_string());

impl super::Apply for Reservation {
    fn apply_to(&self, vm: &mut VmConfig, _anywhere: &CpuSet) {
        vm.threads.iter_mut().filter(|t| t.tid == self.tid).for_each(|t| t.reserved = Some(self.to));
    }
}

impl fmt::Display for Reservation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: reserved {} -> {}", self.role, self.from, self.to)
    }
}
