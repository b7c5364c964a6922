//! Does a VM wait because one of its cgroups is idle (`cpu.idle` = 1)?
//!
//! Threads of an idle cgroup run when no other cgroup beside it has work, whatever the weights are. The kernel refuses to
//! change its weight, so no plan of weights helps.
//!
//! Source: kernel/sched/fair.c (Linux 6.12): `sched_group_set_idle`, `WEIGHT_IDLEPRIO`.

use super::{Context, Finding, Measure, Rule, millis, percent};
use crate::nouns::{CgroupLayout, GroupScheduling};
use crate::setting::argv::shell_word;

pub const RULE: Rule = Rule {
    name: "idle_group",
    doc: "a VM waits because its cgroup is idle (cpu.idle): all others run first",
    explains: &[Measure::Ready, Measure::WakeLatency, Measure::Devices],
    check,
};

/// The command that makes the cgroup an ordinary one again, where cgroups are mounted as usual.
fn command(group: &GroupScheduling, layout: CgroupLayout) -> String {
    let top = if layout == CgroupLayout::V2 { "/sys/fs/cgroup" } else { "/sys/fs/cgroup/cpu" };
    format!("echo 0 > {}", shell_word(&format!("{top}{}/cpu.idle", group.cgroup)))
}

fn check(c: &Context<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (config, vm) in c.vms().filter(|(_, vm)| c.waits(vm)) {
        let Some(group) = config.idle_group() else { continue };
        let with = if group.shared { "Other VMs or processes may be in it. " } else { "" };
        let mut evidence = vec![percent("ready share, summed over vCPUs", c.ready(vm), None)];
        let late = vm.wake_latency;
        evidence.extend(late.map(|l| millis("wake-up to running, 99th percentile", l.p99_ns, None)));
        findings.push(Finding {
            rule: RULE.name.to_owned(),
            vm: Some(vm.id.clone()),
            title: format!("VM {:?} waits for all others: its cgroup {} is idle", vm.name, group.cgroup),
            explanation: format!(
                "cpu.idle of cgroup {} is 1. {with}The VM runs only while the cgroups beside it leave a pCPU idle, and \
                    their threads interrupt it at once. The kernel refuses to change the weight of an idle cgroup.",
                group.cgroup
            ),
            evidence,
            loss_pcpus: c.ready(vm),
            disproved_by: "with cpu.idle 0, the VM's ready time does not change".into(),
            next: format!(
                "check whether this is intended; if not, run: {} (the kernel then gives the cgroup the default \
                    weight; for a unit of systemd, also: systemctl set-property UNIT CPUWeight=100)",
                command(group, c.config.cgroups)
            ),
            ..Finding::default()
        });
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_for_each_layout() {
        let group = |cgroup: &str| GroupScheduling {
            cgroup: cgroup.into(),
            idle: true,
            ..GroupScheduling::default()
        };
        assert_eq!(
            command(&group("/machine.slice/machine-qemu\\x2d1\\x2da.scope"), CgroupLayout::V2),
            "echo 0 > '/sys/fs/cgroup/machine.slice/machine-qemu\\x2d1\\x2da.scope/cpu.idle'"
        );
        assert_eq!(command(&group("/m"), CgroupLayout::Hybrid), "echo 0 > /sys/fs/cgroup/cpu/m/cpu.idle");
    }
}
