//! Where are the vCPUs of a VM kept? On some pCPUs, on none in particular, or nobody says.
//!
//! A thread's affinity alone does not tell: files of esxtop have no pins, so every pCPU stands there, and on Linux an
//! unpinned thread may not run on isolated pCPUs either.

use vsteer_core::CpuSet;
use vsteer_core::nouns::{HostConfig, VmConfig, VmThread};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Pins {
    /// The source of the data has no pins.
    NotKnown,
    /// Any pCPU that the host gives to VMs.
    Free,
    /// These pCPUs, all together.
    To(CpuSet),
}

impl Pins {
    /// The pins of some threads of a VM, taken together.
    pub fn of<'a>(config: &HostConfig, vm: &VmConfig, threads: impl Iterator<Item = &'a VmThread>) -> Pins {
        let all = threads.map(|t| t.affinity.clone()).reduce(|all, one| all.union(&one));
        let is_said = !vm.manager.knows_names_only();
        let Some(all) = all.filter(|_| is_said) else { return Pins::NotKnown };
        let pool = vm.pool.as_ref().map_or_else(|| config.topology.online(), |pool| &pool.cpus);
        let anywhere = config.housekeeping().intersection(pool);
        if anywhere.is_subset(&all) { Pins::Free } else { Pins::To(all) }
    }

    /// The pins of all vCPUs together. Free only if each is.
    pub fn of_vm(config: &HostConfig, vm: &VmConfig) -> Pins {
        let is_pinned = |t: &VmThread| matches!(Pins::of(config, vm, [t].into_iter()), Pins::To(_));
        match Pins::of(config, vm, vm.vcpus()) {
            // vCPUs on one pCPU each cover the host together.
            Pins::Free if vm.vcpus().any(is_pinned) => {
                Pins::To(vm.vcpus().fold(CpuSet::new(), |all, t| all.union(&t.affinity)))
            }
            pins => pins,
        }
    }

    pub fn text(&self) -> String {
        match self {
            Pins::NotKnown => "not known".to_owned(),
            Pins::Free => "not pinned".to_owned(),
            Pins::To(cpus) => cpus.to_string(),
        }
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use vsteer_core::nouns::{CgroupLayout, FairTuning, Manager, Role, Tid, VmId};
    use vsteer_core::topology::{Core, Parts, Topology};

    /// A host of cores with two threads each: pCPU `n` and `n + cores` are siblings.
    pub fn host(cores: u32, vms: Vec<VmConfig>) -> HostConfig {
        let all = CpuSet::first(2 * cores);
        let core =
            |n: u32| Core { id: Some(n), cpus: [n, n + cores].into_iter().collect(), ..Core::default() };
        let parts = Parts {
            online: all.clone(),
            present: all.clone(),
            allowed: all,
            cores: (0..cores).map(core).collect(),
            ..Parts::default()
        };
        HostConfig {
            cgroups: CgroupLayout::V2,
            vms,
            ..HostConfig::new("h", "6.18", Topology::new(parts).unwrap())
        }
    }

    /// A VM whose vCPUs may run on these pCPUs.
    pub fn vm(name: &str, affinity: &[&str]) -> VmConfig {
        let mut vm = VmConfig::new(VmId(name.into()), name, 1);
        let thread = |(i, cpus): (u32, &&str)| VmThread {
            tid: Tid(10 + i),
            role: Role::Vcpu(i),
            affinity: cpus.parse().unwrap(),
            class: None,
            cgroup: None,
            prefers: None,
            reserved: None,
        };
        vm.threads = (0..).zip(affinity).map(thread).collect();
        vm
    }

    #[test]
    fn not_known_is_not_unpinned() {
        let mut config = host(2, Vec::new());
        let text = |config: &HostConfig, vm: &VmConfig| Pins::of_vm(config, vm).text();
        assert_eq!(text(&config, &vm("a", &["0-3", "0-3"])), "not pinned");
        assert_eq!(text(&config, &vm("a", &["0", "2"])), "0,2");
        assert_eq!(text(&config, &vm("a", &["0-1", "2-3"])), "0-3", "each vCPU is pinned");
        assert_eq!(text(&config, &vm("a", &[])), "not known");
        let mut of_esxtop = vm("a", &["0-3"]);
        of_esxtop.manager = Manager::Vsphere(String::new());
        assert_eq!(text(&config, &of_esxtop), "not known");
        of_esxtop.manager = Manager::Vsphere("vm-7".into());
        assert_eq!(text(&config, &of_esxtop), "not pinned", "vSphere itself was asked");
        // The kernel keeps threads off isolated pCPUs without a pin.
        config.scheduler = Some(FairTuning { isolated: "3".parse().unwrap(), ..FairTuning::default() });
        assert_eq!(text(&config, &vm("a", &["0-2"])), "not pinned");
    }
}
