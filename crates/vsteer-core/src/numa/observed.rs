//! How large are an observed host's nodes and VMs? Input of [`super::vnuma`].
//!
//! A person can also describe cores, memory and vCPUs by hand. For one VM, a node's use is that of all other VMs,
//! so the rest is room for this VM.
//!
//! Left out: settings of a VM that no manager reports (`numa.vcpu.min`, `preferHT`).

use super::load::Load;
use super::vnuma::{GIB, HostShape, NodeShape, Version, VmShape};
use crate::nouns::{HostConfig, VmConfig, VmId};

/// Beginning of the kernel version on ESXi.
const ESXI: &str = "VMware ESXi ";

impl HostShape {
    /// This host without VMs.
    pub fn of(config: &HostConfig) -> HostShape {
        let topology = &config.topology;
        let nodes = topology.nodes().iter().filter(|n| !n.cpus.is_empty()).map(|n| NodeShape {
            cores: topology.cores().iter().filter(|k| k.cpus.intersects(&n.cpus)).count() as u32,
            memory_gib: n.memory_bytes.map(|b| b as f64 / GIB),
            busy_cores: 0.0,
            used_gib: 0.0,
        });
        HostShape {
            nodes: nodes.collect(),
            sockets: topology.packages().len().max(1) as u32,
            threads_per_core: topology.cores().iter().map(|k| k.cpus.len()).max().unwrap_or(1) as u32,
            esxi: config.kernel.strip_prefix(ESXI).and_then(Version::parse),
        }
    }

    /// This host with the use of all VMs except one.
    #[must_use]
    pub fn beside(&self, load: &Load, vm: &VmId) -> HostShape {
        let mut host = self.clone();
        for (i, (shape, node)) in host.nodes.iter_mut().zip(&load.nodes).enumerate() {
            let others = load.guests.iter().filter(|g| g.vm != *vm && g.home == Some(i));
            shape.busy_cores = node.others + others.clone().map(|g| g.demand).sum::<f64>();
            shape.used_gib = others.map(|g| g.memory_bytes.unwrap_or(0) as f64 / GIB).sum();
        }
        host
    }
}

impl VmShape {
    /// This VM, as far as its manager reports its settings.
    pub fn of(vm: &VmConfig) -> VmShape {
        VmShape {
            cores_per_socket: vm.guest_topology.map(|t| t.cores * t.threads),
            hot_add: vm.vsphere.as_ref().and_then(|v| v.cpu_hot_add).unwrap_or(false),
            ..VmShape::new(vm.vcpu_count() as u32, vm.memory_bytes.map(|b| b as f64 / GIB))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::load::{Guest, Node};
    use super::*;
    use crate::CpuSet;
    use crate::nouns::GuestTopology;
    use crate::topology::{NodeId, machine};

    fn host(kernel: &str) -> HostConfig {
        HostConfig::new("h", kernel, machine(2, 1, 4, 2).unwrap())
    }

    #[test]
    fn a_hosts_shape_is_read_off_its_topology() {
        let shape = HostShape::of(&host("VMware ESXi 7.0.2"));
        assert_eq!((shape.sockets, shape.threads_per_core, shape.esxi), (2, 2, Version::parse("7.0.2")));
        assert_eq!(shape.nodes.iter().map(|n| n.cores).collect::<Vec<_>>(), [4, 4]);
        assert_eq!(HostShape::of(&host("6.12")).esxi, None, "a kernel's version is not ESXi's");
    }

    #[test]
    fn a_vm_is_not_in_its_own_way() {
        let node =
            |i, others| Node { id: NodeId(i), cpus: CpuSet::new(), cores: 4.0, memory_bytes: None, others };
        let guest = |name: &str, home, demand| Guest {
            vm: VmId(name.into()),
            name: name.into(),
            vcpus: 2,
            demand,
            waited: 0.0,
            home,
            memory_bytes: Some(2 << 30),
            ties: Vec::new(),
        };
        let guests = vec![
            guest("a", Some(0), 1.0),
            guest("b", Some(0), 0.5),
            guest("c", Some(1), 2.0),
            guest("d", None, 1.5),
        ];
        let load = Load { nodes: vec![node(0, 0.25), node(1, 0.0)], guests, bunching: 1.0 };
        let beside = HostShape::of(&host("6.12")).beside(&load, &VmId("a".into()));
        let used: Vec<(f64, f64)> = beside.nodes.iter().map(|n| (n.busy_cores, n.used_gib)).collect();
        assert_eq!(used, [(0.75, 2.0), (2.0, 2.0)]);
    }

    #[test]
    fn a_vms_shape_is_what_its_manager_tells() {
        let vm = VmConfig {
            guest_topology: Some(GuestTopology { sockets: 1, cores: 3, threads: 2 }),
            memory_bytes: Some(3 << 30),
            ..VmConfig::new(VmId("a".into()), "a", 1)
        };
        let shape = VmShape::of(&vm);
        assert_eq!(
            (shape.vcpus, shape.memory_gib, shape.cores_per_socket, shape.hot_add),
            (0, Some(3.0), Some(6), false)
        );
    }
}
