//! The nodes that the VM's memory is bound to.

use super::or_any;
use crate::CpuSet;
use crate::nouns::VmConfig;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The nodes that the VM's memory is bound to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryNodes {
    /// The former nodes; `None`: unbound.
    pub from: Option<CpuSet>,
    /// The new nodes.
    pub to: Option<CpuSet>,
}

from_to!(irreversible "pages that were moved stay where they are"; MemoryNodes, from, to, same: [], |v: &Option<CpuSet>| v.as_ref().map_or("any node".to_owned(), ToString::to_string));

impl super::Apply for MemoryNodes {
    fn apply_to(&self, vm: &mut VmConfig, _anywhere: &CpuSet) {
        vm.memory_nodes.clone_from(&self.to);
    }
}

impl fmt::Display for MemoryNodes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "memory nodes: {} -> {}", or_any(&self.from), or_any(&self.to))
    }
}
