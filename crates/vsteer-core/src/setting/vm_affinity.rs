//! The pCPUs that all vCPUs of a VM are kept on (ESXi's `sched.cpu.affinity`, which is of the VM, not of a vCPU).

use super::or_any;
use crate::CpuSet;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The pCPUs that all vCPUs of a VM are kept on (ESXi's `sched.cpu.affinity`, which is of the VM, not of a vCPU).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VmAffinity {
    /// The former pCPUs; `None`: any.
    pub from: Option<CpuSet>,
    /// The new ones.
    pub to: Option<CpuSet>,
}

from_to!(VmAffinity, from, to, same: [], |v: &Option<CpuSet>| v.as_ref().map_or("any pCPU".to_owned(), |cpus| format!("pCPUs {cpus}")));

impl fmt::Display for VmAffinity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "all vCPUs: pCPUs {} -> {}", or_any(&self.from), or_any(&self.to))
    }
}
