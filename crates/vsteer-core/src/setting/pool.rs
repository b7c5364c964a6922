//! The Xen pool of pCPUs that a VM is in.

use crate::CpuSet;
use super::Setting;
use crate::nouns::{CpuPool, CpuWeight, Quota, VmConfig};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The Xen pool of pCPUs that a VM is in. If the new pool does not exist, vsteer makes it from pCPUs of the former
/// one. vsteer removes such a pool after the last VM has left it. A scheduler gives a new VM its defaults, so
/// weight and limit are set again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pool {
    /// The former pool.
    pub from: Box<CpuPool>,
    /// New pool.
    pub to: Box<CpuPool>,
    /// Weight of the VM, which stays the same.
    pub weight: CpuWeight,
    /// Limit of the VM, which stays the same.
    pub limit: Option<Quota>,
}

impl Setting for Pool {
    fn undo(&self) -> Option<Pool> {
        Some(Pool { from: self.to.clone(), to: self.from.clone(), ..self.clone() })
    }

    fn before(&self) -> String {
        format!("pool {:?}", self.from.name)
    }

    fn after(&self) -> String {
        format!("pool {:?}", self.to.name)
    }

    fn same_target(&self, _other: &Pool) -> bool {
        true
    }

    // Compared by name, because a pool loses pCPUs with every pool that is made from it.
    fn same_before(&self, other: &Pool) -> bool {
        self.from.name == other.from.name
    }

    fn is_reached(&self, current: &Pool) -> bool {
        current.from.name == self.to.name
    }
}

impl super::Apply for Pool {
    fn apply_to(&self, vm: &mut VmConfig, _anywhere: &CpuSet) {
        vm.pool = Some((*self.to).clone());
        vm.threads.iter_mut().for_each(|t| t.affinity = self.to.cpus.clone());
    }
}

impl fmt::Display for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pool: {} -> {}", self.from, self.to)
    }
}
