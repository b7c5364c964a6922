//! Which memory and devices of a VM stay where they are when its vCPUs move to another NUMA node of the host?
//!
//! A guest can be shown NUMA nodes of its own (libvirt's `<cell>`, QEMU's `-numa node`). The memory of each can be bound to
//! nodes of the host, one by one (`<memnode>`, `host-nodes=`). A binding of the whole VM does not move such memory. Nor does
//! the kernel move huge pages by itself, locked memory, or memory that a device reaches by VFIO.
//!
//! Source: libvirt's `docs/formatdomain.rst` (11.3): CPU model and topology, NUMA node tuning, memory backing;
//! `drivers/vfio/vfio_iommu_type1.c` (Linux 6.12), which pins the guest's memory.
//!
//! Left out: mediated devices, which pin parts of the memory, and guest nodes without memory or vCPUs of their own.

use super::VmConfig;
use crate::CpuSet;
use serde::{Deserialize, Serialize};
use std::fmt;

/// A NUMA node that the guest is shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestNode {
    /// Its number in the guest.
    pub id: u32,
    /// vCPUs of the node, by index; empty where not said.
    pub vcpus: CpuSet,
    /// Its memory, bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// Nodes of the host that its memory is bound to; `None`: no binding of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_nodes: Option<CpuSet>,
}

impl fmt::Display for GuestNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (vCPUs {}", self.id, self.vcpus)?;
        if let Some(bytes) = self.memory_bytes {
            write!(f, ", {} MiB", bytes >> 20)?;
        }
        match &self.host_nodes {
            Some(nodes) => write!(f, ") on nodes {nodes}"),
            None => write!(f, ") not bound"),
        }
    }
}

/// What keeps the memory of a VM, or its use of a device, on a NUMA node.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fixed {
    /// Its memory is in huge pages.
    HugePages,
    /// Its memory is locked.
    Locked,
    /// It has a PCI device of the host by VFIO, which also pins the guest's memory.
    Device {
        /// PCI address: `0000:3b:00.0`.
        address: String,
        /// The device's node; `None` where the kernel does not tell.
        node: Option<u32>,
    },
}

impl fmt::Display for Fixed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fixed::HugePages => f.write_str("huge pages"),
            Fixed::Locked => f.write_str("locked memory"),
            Fixed::Device { address, node: Some(node) } => write!(f, "VFIO device {address} of node {node}"),
            Fixed::Device { address, node: None } => write!(f, "VFIO device {address}"),
        }
    }
}

impl VmConfig {
    /// The guest's node that this vCPU is in. A guest with one node has all vCPUs there.
    pub fn guest_node(&self, vcpu: u32) -> Option<&GuestNode> {
        match self.guest_nodes.as_slice() {
            [only] => Some(only),
            several => several.iter().find(|node| node.vcpus.contains(vcpu)),
        }
    }

    /// Nodes of the host that memory of the guest's nodes is bound to; `None` if none is bound by itself.
    pub fn bound_guest_nodes(&self) -> Option<CpuSet> {
        let bound = self.guest_nodes.iter().filter_map(|node| node.host_nodes.as_ref());
        bound.fold(None, |all, nodes| Some(all.map_or_else(|| nodes.clone(), |all: CpuSet| all.union(nodes))))
    }
}
