//! Where a thread may run.

use crate::CpuSet;
use crate::nouns::{Role, Tid};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Where a thread may run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Affinity {
    /// Which thread (`Emulator` stands for all emulator threads, as in libvirt's `emulatorpin`).
    pub role: Role,
    /// Its host thread id.
    pub tid: Tid,
    /// The former pCPUs.
    pub from: CpuSet,
    /// The new pCPUs.
    pub to: CpuSet,
}

from_to!(Affinity, from, to, same: [role, tid], |v: &CpuSet| format!("pCPUs {v}"));

impl fmt::Display for Affinity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: pCPUs {} -> {}", self.role, self.from, self.to)
    }
}
