//! The settings of a VM in words, for people who look at them or compare them.
//!
//! Cookies of core scheduling: `Documentation/admin-guide/hw-vuln/core-scheduling.rst` (Linux 6.12).

use super::{GroupScheduling, Limits, Quota, Tid, VmConfig, VmThread};
use std::collections::BTreeMap;
use std::fmt::Display;

impl VmConfig {
    /// All settings of the VM that matter to its scheduling, each with its name; those that are not set are left out.
    pub fn settings(&self) -> Vec<(&'static str, String)> {
        let or_unset = |text: String| Some(text).filter(|text| !["none", "unknown"].contains(&text.as_str()));
        let all = [
            ("weight", or_unset(or_none(self.weight))),
            ("limits", (self.limits != Limits::default()).then(|| limits(&self.limits))),
            ("quotas of cgroups", or_unset(quotas(self))),
            ("other settings of cgroups", or_unset(scheduling(self))),
            ("real-time budgets", or_unset(budgets(self)).filter(|_| self.has_realtime())),
            ("pCPUs", alike(self, |t| Some(t.affinity.to_string()))),
            ("class", alike(self, |t| t.class.map(|c| c.to_string()))),
            ("core scheduling", self.core_scheduling()),
            ("memory nodes", or_unset(or_none(self.memory_nodes.as_ref()))),
            ("guest NUMA nodes", or_unset(listed(&self.guest_nodes))),
            ("fixed memory and devices", or_unset(listed(&self.fixed))),
        ];
        all.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
    }

    /// Only Linux has cookies: there, threads have cgroups.
    fn core_scheduling(&self) -> Option<String> {
        let is_linux = self.threads.iter().any(|t| t.cgroup.is_some());
        let unknown = is_linux.then(|| "not known: the kernel does not tell".to_owned());
        self.core_cookies.as_ref().map(cookies).or(unknown)
    }
}

/// What `of` says of the threads: once if they are all alike, else per role.
fn alike(vm: &VmConfig, of: impl Fn(&VmThread) -> Option<String>) -> Option<String> {
    let mut values: Vec<(String, Vec<String>)> = Vec::new();
    for t in &vm.threads {
        let value = of(t)?;
        match values.iter_mut().find(|(known, _)| *known == value) {
            Some((_, roles)) => roles.push(t.role.to_string()),
            None => values.push((value, vec![t.role.to_string()])),
        }
    }
    let each = |(value, roles): &(String, Vec<String>)| format!("{value} ({})", roles.join(" "));
    match values.as_slice() {
        [] => None,
        [(value, _)] => Some(value.clone()),
        many => Some(many.iter().map(each).collect::<Vec<_>>().join(", ")),
    }
}

/// Settings of cgroups besides weight and quota.
pub(super) fn scheduling(vm: &VmConfig) -> String {
    let all: Vec<String> = vm.scheduling.iter().map(GroupScheduling::to_string).collect();
    if all.is_empty() { "none".to_owned() } else { all.join("; ") }
}

/// Threads by core scheduling cookie: only threads with the same cookie run on one core at a time.
pub(super) fn cookies(of: &BTreeMap<Tid, u64>) -> String {
    let mut by_cookie: BTreeMap<u64, Vec<String>> = BTreeMap::new();
    of.iter().for_each(|(tid, cookie)| by_cookie.entry(*cookie).or_default().push(tid.0.to_string()));
    let each = |(cookie, tids): (&u64, &Vec<String>)| format!("cookie {cookie:#x} (tid {})", tids.join(" "));
    if by_cookie.is_empty() {
        return "none".to_owned();
    }
    by_cookie.iter().map(each).collect::<Vec<_>>().join(", ")
}

pub(super) fn or_none(value: Option<impl Display>) -> String {
    value.map_or("none".to_owned(), |v| v.to_string())
}

pub(super) fn listed(all: &[impl Display]) -> String {
    let all: Vec<String> = all.iter().map(ToString::to_string).collect();
    if all.is_empty() { "none".to_owned() } else { all.join(", ") }
}

pub(super) fn limits(of: &Limits) -> String {
    let one = |of: Option<Quota>| of.map_or("none".to_owned(), quota);
    format!("per vCPU {}, emulator {}, whole VM {}", one(of.per_vcpu), one(of.emulator), one(of.whole_vm))
}

pub(super) fn quotas(of: &VmConfig) -> String {
    let all: Vec<String> = of.quotas.iter().map(|q| format!("{} {}", q.cgroup, quota(q.quota))).collect();
    if all.is_empty() { "none".to_owned() } else { all.join(", ") }
}

fn quota(of: Quota) -> String {
    format!("{:.2} CPUs ({}/{} µs)", of.cpus(), of.quota_us, of.period_us)
}

pub(super) fn budgets(of: &VmConfig) -> String {
    let one = |b: &super::RtBudget| format!("{} {}/{} µs", b.cgroup, b.runtime_us, b.period_us);
    match of.rt_budgets.as_slice() {
        [] => "none".to_owned(),
        some => some.iter().map(one).collect::<Vec<_>>().join(", "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CpuSet;
    use crate::nouns::{CpuWeight, Role, SchedClass, VmId};

    #[test]
    fn settings_in_words() {
        let mut vm = VmConfig::new(VmId("1".into()), "web", 100);
        let thread = |tid: u32, role: Role| VmThread {
            tid: Tid(tid),
            role,
            affinity: CpuSet::first(2),
            class: Some(SchedClass::Other(0)),
            cgroup: None,
            prefers: None,
            reserved: None,
        };
        vm.threads = vec![thread(101, Role::Vcpu(0)), thread(100, Role::Emulator)];
        vm.weight = Some(CpuWeight::Weight(100));
        vm.threads[1].class = Some(SchedClass::Fifo(1));
        vm.core_cookies = Some([(Tid(100), 0xab), (Tid(101), 0xab)].into());
        vm.scheduling = vec![GroupScheduling {
            cgroup: "/m".into(),
            burst_us: Some(20_000),
            uclamp_max: Some(4_050),
            partition: Some("isolated".into()),
            ..Default::default()
        }];
        let shown: Vec<String> =
            vm.settings().iter().map(|(name, value)| format!("{name}: {value}")).collect();
        assert_eq!(
            shown,
            [
                "weight: weight 100",
                "other settings of cgroups: /m: burst 20000 µs, uclamp.max 40.50 %, cpuset partition isolated",
                "pCPUs: 0-1",
                "class: other (vcpu0), fifo(1) (emulator)",
                "core scheduling: cookie 0xab (tid 100 101)",
            ]
        );
    }
}
