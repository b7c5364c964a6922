//! Where a vCPU would rather run (Xen's soft affinity).

use super::or_any;
use crate::CpuSet;
use crate::nouns::{Role, Tid, VmConfig};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Where a vCPU would rather run (Xen's soft affinity).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Preference {
    /// Role of the vCPU.
    pub role: Role,
    /// Host thread id.
    pub tid: Tid,
    /// The pCPUs that it preferred; `None`: none of them more than others.
    pub from: Option<CpuSet>,
    /// Those that it will prefer.
    pub to: Option<CpuSet>,
}

from_to!(Preference, from, to, same: [role, tid], |v: &Option<CpuSet>| v.as_ref().map_or("no pCPUs preferred".to_owned(), |cpus| format!("pCPUs {cpus} preferred")));

impl super::Apply for Preference {
    fn apply_to(&self, vm: &mut VmConfig, _anywhere: &CpuSet) {
        let its = vm.threads.iter_mut().filter(|t| t.tid == self.tid);
        its.for_each(|t| t.prefers.clone_from(&self.to));
    }
}

impl fmt::Display for Preference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: prefers pCPUs {} -> {}", self.role, or_any(&self.from), or_any(&self.to))
    }
}
