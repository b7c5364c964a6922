//! What a scheduler of reservations gives a vCPU (Xen's RTDS).

use crate::nouns::{Reserved, Role, Tid};
use serde::{Deserialize, Serialize};
use std::fmt;

/// What a scheduler of reservations gives a vCPU (Xen's RTDS).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reservation {
    /// Which vCPU.
    pub role: Role,
    /// Its id.
    pub tid: Tid,
    /// The former reservation.
    pub from: Reserved,
    /// The new one.
    pub to: Reserved,
}

from_to!(Reservation, from, to, same: [role, tid], |v: &Reserved| v.to_string());

impl fmt::Display for Reservation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: reserved {} -> {}", self.role, self.from, self.to)
    }
}
