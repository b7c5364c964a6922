//! CPU time that ESXi gives the VM at most, MHz.

use crate::CpuSet;
use crate::nouns::VmConfig;
use serde::{Deserialize, Serialize};
use std::fmt;

/// CPU time that ESXi gives the VM at most, MHz.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitMhz {
    /// The former limit; `None`: none.
    pub from: Option<u64>,
    /// New limit, MHz; `None`: none.
    pub to: Option<u64>,
}

from_to!(LimitMhz, from, to, same: [], |v: &Option<u64>| v.map_or("no limit".to_owned(), |n| format!("{n} MHz")));

impl super::Apply for LimitMhz {
    fn apply_to(&self, vm: &mut VmConfig, _anywhere: &CpuSet) {
        vm.vsphere.get_or_insert_default().limit_mhz = Some(self.to);
    }
}

impl fmt::Display for LimitMhz {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mhz = |l: &Option<u64>| l.map_or("none".to_owned(), |n| format!("{n} MHz"));
        write!(f, "CPU limit: {} -> {}", mhz(&self.from), mhz(&self.to))
    }
}
