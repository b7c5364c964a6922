//! Does a CPU quota throttle a VM: its own, or that of a cgroup that it shares with others (a slice, a pod)?
//!
//! Limited time is not ready time: no placement removes it.

use super::{Context, Finding, Rule, count, percent};

pub const RULE: Rule =
    Rule { name: "limited", doc: "a CPU quota throttles a VM: its own, or that of a slice or pod", check };

fn check(c: &Context<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (config, vm) in c.vms() {
        let limits = [config.limits.per_vcpu, config.limits.emulator, config.limits.whole_vm];
        let held = vm.group.limited;
        let per_vcpu = vm.per_vcpu(|s| s.limited).unwrap_or(0.0);
        let throttled = vm.throttled_per_s;
        let above = config.held_from_above();
        // If the collector cannot separate limited from ready, only the throttle count is evidence.
        let speaks = held.is_some_and(|_| per_vcpu > c.thresholds.limited_per_vcpu)
            || (held.is_none() && throttled.is_some_and(|times| times > 1.0));
        if !speaks {
            continue;
        }
        let mut evidence = Vec::new();
        evidence.extend(throttled.map(|times| count("quota used up", times, "times/s", None)));
        evidence.extend(held.map(|h| percent("limited share, summed over all threads", h, None)));
        evidence.extend(limits.iter().flatten().map(|q| count("quota", q.cpus(), "pCPUs", None)));
        let shared = config.quotas.iter().filter(|q| q.shared);
        evidence.extend(
            shared.map(|q| count(&format!("quota of cgroup {}", q.cgroup), q.quota.cpus(), "pCPUs", None)),
        );
        evidence.push(percent("run share, summed over vCPUs", vm.vcpus.run.unwrap_or(0.0), None));
        findings.push(Finding {
            rule: RULE.name.to_owned(),
            vm: Some(vm.id.clone()),
            title: match above {
                Some(q) => format!("the CPU quota of cgroup {} throttles VM {:?}", q.cgroup, vm.name),
                None => format!("the CPU quota of VM {:?} throttles it", vm.name),
            },
            explanation: match above {
                Some(_) => {
                    "All that is in this cgroup together wants more CPU time than its quota grants. When the quota is \
                        used up, the VM stops until the next period, even on an idle host. This is limited time, not \
                        ready time: only what shares the cgroup can cause it."
                }
                None => {
                    "The VM wants more CPU time than its quota grants. When the quota is used up, the VM stops \
                        until the next period, even on an idle host. This is limited time, not ready time: no \
                        other VM causes it."
                }
            }
            .into(),
            evidence,
            loss_pcpus: held.unwrap_or(0.0),
            disproved_by: "the throttle count does not grow while the VM waits".into(),
            next: match above {
                Some(q) => format!(
                    "check who set the quota of {} and whether it is intended; vsteer does not change it, because others \
                        share it",
                    q.cgroup
                ),
                None => {
                    "check whether the quota is intended; if not, raise it (vsteer plan --only quota)".into()
                }
            },
        });
    }
    findings
}
