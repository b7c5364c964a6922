//! The nodes that the hypervisor keeps the VM on, vCPUs and memory together (ESXi's `numa.nodeAffinity`).

use super::or_any;
use crate::CpuSet;
use crate::nouns::VmConfig;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The nodes that the hypervisor keeps the VM on, vCPUs and memory together (ESXi's `numa.nodeAffinity`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeAffinity {
    /// The former nodes; `None`: the hypervisor's own choice.
    pub from: Option<CpuSet>,
    /// New nodes; `None`: the hypervisor chooses.
    pub to: Option<CpuSet>,
}

from_to!(irreversible "pages that were moved stay where they are"; NodeAffinity, from, to, same: [], |v: &Option<CpuSet>| v.as_ref().map_or("any node".to_owned(), ToString::to_string));

impl super::Apply for NodeAffinity {
    fn apply_to(&self, vm: &mut VmConfig, _anywhere: &CpuSet) {
        let vsphere = vm.vsphere.get_or_insert_default();
        vsphere.node_affinity.clone_from(&self.to);
        // A VM kept on nodes is there from then on. Where a VM goes that is let go, nobody knows.
        if self.to.is_some() {
            vsphere.home_nodes.clone_from(&self.to);
        }
    }
}

impl fmt::Display for NodeAffinity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NUMA node affinity: {} -> {}", or_any(&self.from), or_any(&self.to))
    }
}
