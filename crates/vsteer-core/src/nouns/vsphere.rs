//! What does vSphere know of a VM that other hypervisors do not have?
//!
//! Source: VMware, vSphere Resource Management, "Using NUMA Systems with ESXi" (7.0): home nodes, `numa.nodeAffinity`,
//! CPU hot add.
//! Left out: resource pools, and what only vCenter holds (DRS rules).

use crate::CpuSet;
use serde::{Deserialize, Serialize};

/// A VM's settings on ESXi. What was not read is `None`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct VsphereVm {
    /// How many vCPUs it has, said by its settings: a file of group values alone shows none of them.
    pub vcpus: Option<u32>,
    /// Its home nodes: where ESXi keeps its vCPUs and takes its memory until it decides otherwise (esxtop's NHN). Not a
    /// setting, and so no precondition of a plan.
    pub home_nodes: Option<CpuSet>,
    /// `numa.nodeAffinity`: the nodes that it is kept on; `None`: none said.
    pub node_affinity: Option<CpuSet>,
    /// May vCPUs be added while it runs? That switches vNUMA off.
    pub cpu_hot_add: Option<bool>,
}

impl VsphereVm {
    /// Without what ESXi decides by itself: what a plan may rest on.
    #[must_use]
    pub fn settings(&self) -> VsphereVm {
        VsphereVm { home_nodes: None, ..self.clone() }
    }
}
