//! Which settings of cgroups besides weight and quota change how a VM's threads are scheduled?
//!
//! Source: `Documentation/admin-guide/cgroup-v2.rst` (Linux 6.12): `cpu.idle`, `cpu.max.burst`, `cpu.uclamp`,
//! `cpuset.cpus.partition`.
//!
//! Left out: what the settings do to a forecast. The fluid model and the simulator know none of them.

use super::{SchedClass, VmConfig, VmThread};
use crate::CpuSet;
use serde::{Deserialize, Serialize};
use std::fmt;

/// A limit of the utilization that the kernel assumes of a thread, in hundredths of a percent of a pCPU.
pub const UCLAMP_MOST: u16 = 10_000;

/// Settings of one cgroup that differ from the kernel's defaults.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupScheduling {
    /// Path of the cgroup.
    pub cgroup: String,
    /// May others than this VM be in the cgroup (a slice, a pod)?
    pub shared: bool,
    /// Is `cpu.idle` 1? Then every other cgroup of its level comes first, whatever the weights are.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub idle: bool,
    /// `cpu.max.burst` (v1: `cpu.cfs_burst_us`): unused quota that a later period may add, µs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub burst_us: Option<u64>,
    /// `cpu.uclamp.min`, in hundredths of a percent: the kernel chooses pCPUs and clocks as if threads used at least this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uclamp_min: Option<u16>,
    /// `cpu.uclamp.max`, in hundredths of a percent: as if threads used at most this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uclamp_max: Option<u16>,
    /// `cpuset.cpus.partition`, as the kernel writes it: `root`, `isolated`, or one of these with why it is invalid.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition: Option<String>,
    /// `cpuset.cpus`, such as systemd's `AllowedCPUs=`, if narrower than what the group above has. The kernel cuts every pin to
    /// it. Not read of groups that libvirt made for one VM, because those hold libvirt's pins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus: Option<CpuSet>,
}

impl GroupScheduling {
    /// Is the thread in this cgroup or below it?
    fn holds(&self, t: &VmThread) -> bool {
        let rest = t.cgroup.as_deref().and_then(|c| c.strip_prefix(&*self.cgroup));
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }

    /// Does any setting differ from the default?
    pub fn is_special(&self) -> bool {
        let plain =
            GroupScheduling { cgroup: self.cgroup.clone(), shared: self.shared, ..Default::default() };
        *self != plain
    }
}

impl fmt::Display for GroupScheduling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = |n: u16| format!("{:.2} %", f64::from(n) / 100.0);
        let all = [
            self.idle.then(|| "idle".to_owned()),
            self.burst_us.map(|us| format!("burst {us} µs")),
            self.uclamp_min.map(|n| format!("uclamp.min {}", percent(n))),
            self.uclamp_max.map(|n| format!("uclamp.max {}", percent(n))),
            self.partition.as_ref().map(|kind| format!("cpuset partition {kind}")),
            self.cpus.as_ref().map(|cpus| format!("cpuset pCPUs {cpus}")),
        ];
        write!(f, "{}: {}", self.cgroup, all.into_iter().flatten().collect::<Vec<_>>().join(", "))
    }
}

impl VmConfig {
    /// The topmost cgroup with `cpu.idle` that holds a vCPU of the VM.
    pub fn idle_group(&self) -> Option<&GroupScheduling> {
        self.scheduling.iter().find(|g| g.idle && self.vcpus().any(|t| g.holds(t)))
    }

    /// The cgroups whose cpuset keeps a thread to a part of the host.
    pub fn cpusets_of<'a>(
        &'a self,
        t: &'a VmThread,
    ) -> impl Iterator<Item = (&'a GroupScheduling, &'a CpuSet)> {
        self.scheduling.iter().filter(|g| g.holds(t)).filter_map(|g| Some((g, g.cpus.as_ref()?)))
    }

    /// Has any thread a real-time class?
    pub fn has_realtime(&self) -> bool {
        self.threads.iter().any(|t| t.class.is_some_and(SchedClass::is_realtime))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nouns::{Role, Tid, VmId};

    fn vm() -> VmConfig {
        let mut vm = VmConfig::new(VmId("1".into()), "web", 100);
        let thread = |tid: u32, role: Role, cgroup: &str| VmThread {
            tid: Tid(tid),
            role,
            affinity: crate::CpuSet::first(2),
            class: Some(SchedClass::Other(0)),
            cgroup: Some(cgroup.into()),
            prefers: None,
            reserved: None,
        };
        vm.threads =
            vec![thread(101, Role::Vcpu(0), "/m/web/vcpu0"), thread(100, Role::Emulator, "/m/web/emulator")];
        vm
    }

    fn idle(cgroup: &str) -> GroupScheduling {
        GroupScheduling { cgroup: cgroup.into(), idle: true, ..Default::default() }
    }

    #[test]
    fn an_idle_group_counts_if_it_holds_a_vcpu() {
        let mut vm = vm();
        assert_eq!(vm.idle_group(), None);
        vm.scheduling = vec![idle("/m/we"), idle("/m/web/emulator")];
        assert_eq!(vm.idle_group(), None, "no vCPU is there");
        vm.scheduling = vec![idle("/m"), idle("/m/web")];
        assert_eq!(vm.idle_group().map(|g| g.cgroup.as_str()), Some("/m"));
        assert!(vm.scheduling[0].is_special() && !GroupScheduling::default().is_special());
    }
}
