//! A VM's latency sensitivity (ESXi).

use crate::nouns::LatencySensitivity;
use serde::{Deserialize, Serialize};
use std::fmt;

/// A VM's latency sensitivity (ESXi).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Latency {
    /// The former one.
    pub from: LatencySensitivity,
    /// The new one.
    pub to: LatencySensitivity,
}

from_to!(Latency, from, to, same: [], |v: &LatencySensitivity| v.to_string());

impl fmt::Display for Latency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "latency sensitivity: {} -> {}", self.from, self.to)
    }
}
