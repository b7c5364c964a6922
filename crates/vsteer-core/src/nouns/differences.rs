//! Which differences between two configurations of one host make a plan for the one invalid for the other?

use super::words::{budgets, cookies, limits, listed, or_none, quotas, scheduling};
use super::{CpuPool, GuestTopology, HostConfig, Role, Tid, VmConfig, VmThread};
use crate::CpuSet;
use std::collections::BTreeMap;

/// One setting of a VM that differs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// The setting, as people read it.
    pub setting: String,
    /// Its value before.
    pub old: String,
    /// Its value now.
    pub new: String,
}

impl HostConfig {
    /// What differs between this configuration and `now`, one line per difference, for a person; empty when a plan
    /// made for one holds for the other. QEMU's short-lived worker threads are not compared.
    pub fn differences(&self, now: &HostConfig) -> Vec<String> {
        let mut lines = Vec::new();
        let mut differ = |what: &str, a: String, b: String| {
            if a != b {
                lines.push(format!("{what}: was {a}, is {b}"));
            }
        };
        let id = |of: &HostConfig| of.machine_id.clone().unwrap_or_else(|| "unknown".to_owned());
        differ("machine id", id(self), id(now));
        differ("kernel", self.kernel.clone(), now.kernel.clone());
        differ("online pCPUs", self.topology.online().to_string(), now.topology.online().to_string());
        let layout = |of: &HostConfig| format!("{:?}", of.cgroups).to_lowercase();
        differ("cgroups", layout(self), layout(now));
        let tickless = |of: &HostConfig| of.scheduler.as_ref().and_then(|s| s.nohz_full.clone());
        if let (Some(old), Some(new)) = (tickless(self), tickless(now)) {
            differ("pCPUs of nohz_full", old.to_string(), new.to_string());
        }
        for old in &self.vms {
            match now.vm(&old.id) {
                None => lines.push(format!("VM {:?} does not run any more", old.name)),
                // Its threads are others, so comparing them says nothing more.
                Some(new) if new.pid != old.pid => lines.push(format!(
                    "VM {:?} was restarted: it was process {}, and is process {}",
                    old.name, old.pid, new.pid
                )),
                Some(new) => lines.extend(
                    old.differences(new)
                        .into_iter()
                        .map(|d| format!("VM {:?}, {}: was {}, is {}", old.name, d.setting, d.old, d.new)),
                ),
            }
        }
        let came = now.vms.iter().filter(|v| self.vm(&v.id).is_none());
        lines.extend(came.map(|new| format!("VM {:?} did not run then", new.name)));
        lines
    }
}

impl VmConfig {
    /// What differs between a VM and the same VM later, in the same process.
    pub fn differences(&self, now: &VmConfig) -> Vec<Difference> {
        of_vm(self, now)
    }
}

fn of_vm(old: &VmConfig, new: &VmConfig) -> Vec<Difference> {
    let mut all = Vec::new();
    let mut differ = |what: &str, a: String, b: String| {
        if a != b {
            all.push(Difference { setting: what.to_owned(), old: a, new: b });
        }
    };
    differ("weight", or_none(old.weight), or_none(new.weight));
    differ("limits", limits(&old.limits), limits(&new.limits));
    differ("quotas of cgroups", quotas(old), quotas(new));
    differ("other settings of cgroups", scheduling(old), scheduling(new));
    // A kernel that does not tell, or a plan of an older vsteer, is not a difference.
    if let (Some(old), Some(new)) = (&old.core_cookies, &new.core_cookies) {
        differ("core scheduling", cookies(old), cookies(new));
    }
    differ("pool", pool(old.pool.as_ref()), pool(new.pool.as_ref()));
    differ("memory nodes", or_none(old.memory_nodes.as_ref()), or_none(new.memory_nodes.as_ref()));
    differ("guest NUMA nodes", listed(&old.guest_nodes), listed(&new.guest_nodes));
    differ("fixed memory and devices", listed(&old.fixed), listed(&new.fixed));
    let settings =
        |vm: &VmConfig| or_none(vm.vsphere.as_ref().map(|v| crate::canonical::json(&v.settings())));
    differ("vSphere's settings", settings(old), settings(new));
    differ("guest topology", topology(old.guest_topology), topology(new.guest_topology));
    differ("real-time budgets", budgets(old), budgets(new));
    let lasting = |vm: &VmConfig| -> BTreeMap<Tid, VmThread> {
        vm.threads.iter().filter(|t| t.role != Role::Worker).map(|t| (t.tid, t.clone())).collect()
    };
    let (before, after) = (lasting(old), lasting(new));
    for (tid, t) in &before {
        let is = after.get(tid).map_or("gone".to_owned(), thread);
        differ(&format!("thread {} ({})", tid.0, t.role), thread(t), is);
    }
    for t in after.values().filter(|t| !before.contains_key(&t.tid)) {
        differ(&format!("thread {} ({})", t.tid.0, t.role), "not there".into(), thread(t));
    }
    all
}

/// Every field of a thread, since each is a precondition.
fn thread(t: &VmThread) -> String {
    let cpus = |of: Option<&CpuSet>, what: &str| of.map_or(String::new(), |c| format!(", {what} {c}"));
    let class = t.class.map_or(String::new(), |c| format!(", {c}"));
    let cgroup = t.cgroup.as_ref().map_or(String::new(), |c| format!(", cgroup {c}"));
    let reserved = t.reserved.map_or(String::new(), |r| format!(", reserved {r}"));
    format!(
        "{} on pCPUs {}{class}{cgroup}{}{reserved}",
        t.role,
        t.affinity,
        cpus(t.prefers.as_ref(), "prefers")
    )
}

fn pool(of: Option<&CpuPool>) -> String {
    of.map_or("none".to_owned(), |p| {
        let set = p.parameters.iter().map(|(name, value)| format!(" {name}={value}")).collect::<String>();
        format!("{p}{set}")
    })
}

fn topology(of: Option<GuestTopology>) -> String {
    let count = |n: u32, what: &str| crate::plural::counted(n, what);
    of.map_or("unknown".to_owned(), |t| {
        [count(t.sockets, "socket"), count(t.cores, "core"), count(t.threads, "thread")].join(" x ")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nouns::{CpuWeight, GroupScheduling, Quota, SchedClass, VmId};
    use crate::topology::machine;

    fn host(vm: VmConfig) -> HostConfig {
        HostConfig { vms: vec![vm], ..HostConfig::new("h", "6.12", machine(1, 2, 1, 1).unwrap()) }
    }

    fn vm() -> VmConfig {
        let mut vm = VmConfig::new(VmId("1".into()), "web", 100);
        vm.threads = vec![VmThread {
            tid: Tid(101),
            role: Role::Vcpu(0),
            affinity: CpuSet::first(2),
            class: Some(SchedClass::Other(0)),
            cgroup: Some("/machine/web".into()),
            prefers: None,
            reserved: None,
        }];
        vm
    }

    #[test]
    fn people_read_what_changed() {
        let before = host(vm());
        assert!(before.differences(&before.clone()).is_empty());
        let mut changed = vm();
        changed.weight = Some(CpuWeight::Weight(50));
        changed.limits.whole_vm = Some(Quota { quota_us: 50_000, period_us: 100_000 });
        changed.threads[0].affinity = CpuSet::single(1);
        changed.scheduling =
            vec![GroupScheduling { cgroup: "/machine".into(), idle: true, ..Default::default() }];
        let lines = before.differences(&host(changed)).join("\n");
        for shown in [
            "VM \"web\", weight: was none, is weight 50",
            "VM \"web\", other settings of cgroups: was none, is /machine: idle",
            "whole VM 0.50 CPUs (50000/100000 µs)",
            "VM \"web\", thread 101 (vcpu0): was vcpu0 on pCPUs 0-1, other, cgroup /machine/web, is vcpu0 on pCPUs 1,",
        ] {
            assert!(lines.contains(shown), "{shown} is not in:\n{lines}");
        }
        assert!(!lines.contains("Some(") && !lines.contains("Tid("), "Rust's own form: {lines}");
        // Of a VM that was restarted only that is said.
        let mut restarted = vm();
        restarted.pid = 200;
        restarted.threads[0].tid = Tid(201);
        let lines = before.differences(&host(restarted));
        assert_eq!(lines, ["VM \"web\" was restarted: it was process 100, and is process 200"]);
    }
}
