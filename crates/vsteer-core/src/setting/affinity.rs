//! Where a thread may run.

use crate::CpuSet;
use crate::nouns::{Role, Tid, VmConfig, VmThread};
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

impl super::Apply for Affinity {
    fn apply_to(&self, vm: &mut VmConfig, _anywhere: &CpuSet) {
        // The emulator's stands for all that are neither vCPU nor I/O thread, the kernel's vhost threads among them.
        let moves = |t: &&mut VmThread| match self.role {
            Role::Emulator => !matches!(t.role, Role::Vcpu(_) | Role::IoThread(_)),
            _ => t.tid == self.tid,
        };
        vm.threads.iter_mut().filter(moves).for_each(|t| t.affinity = self.to.clone());
    }
}

impl fmt::Display for Affinity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: pCPUs {} -> {}", self.role, self.from, self.to)
    }
}
