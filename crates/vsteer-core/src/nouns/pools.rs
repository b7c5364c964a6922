//! Which VMs have weights without effect, because their pool is larger than the pCPUs that they are pinned to?

use super::{CpuPool, HostConfig, VmConfig};
use crate::CpuSet;

/// Prefix of the names of pools that vsteer made. vsteer removes such a pool when it is empty.
pub const MADE: &str = "vsteer-";

/// VMs whose weights differ but have no effect, by the pCPUs that all their vCPUs are pinned to.
pub fn pinned_alike(config: &HostConfig) -> Vec<(&CpuPool, CpuSet, Vec<&VmConfig>)> {
    let mut groups: Vec<(&CpuPool, CpuSet, Vec<&VmConfig>)> = Vec::new();
    for vm in &config.vms {
        let (Some(pool), Some(first)) = (vm.pinned_within(), vm.vcpus().next()) else { continue };
        if vm.weight.is_none() || vm.vcpus().any(|t| t.affinity != first.affinity) {
            continue;
        }
        match groups.iter_mut().find(|(of, cpus, _)| of.name == pool.name && *cpus == first.affinity) {
            Some((.., vms)) => vms.push(vm),
            None => groups.push((pool, first.affinity.clone(), vec![vm])),
        }
    }
    groups.retain(|(.., vms)| vms.iter().any(|vm| vm.weight != vms[0].weight));
    groups
}
