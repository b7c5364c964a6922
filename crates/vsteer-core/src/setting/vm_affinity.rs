//! The pCPUs that all vCPUs of a VM are kept on (ESXi's `sched.cpu.affinity`, which is of the VM, not of a vCPU).

use super::or_any;
use crate::CpuSet;
use crate::nouns::VmConfig;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The pCPUs that all vCPUs of a VM are kept on (ESXi's `sched.cpu.affinity`, which is of the VM, not of a vCPU).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VmAffinity {
    /// The former pCPUs; `None`: any.
    pub from: Option<CpuSet>,
    /// New pCPUs; `None`: any.
    pub to: Option<CpuSet>,
}

from_to!(VmAffinity, from, to, same: [], |v: &Option<CpuSet>| v.as_ref().map_or("any pCPU".to_owned(), |cpus| format!("pCPUs {cpus}")));

impl super::Apply for VmAffinity {
    fn apply_to(&self, vm: &mut VmConfig, anywhere: &CpuSet) {
        vm.vsphere.get_or_insert_default().cpu_affinity.clone_from(&self.to);
        let cpus = self.to.as_ref().unwrap_or(anywhere);
        vm.threads.iter_mut().for_each(|t| t.affinity = cpus.clone());
    }
}

impl fmt::Display for VmAffinity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "all vCPUs: pCPUs {} -> {}", or_any(&self.from), or_any(&self.to))
    }
}
