//! Does a CPU quota throttle a VM: its own, or that of a cgroup that it shares with others (a slice, a pod)?
//!
//! Limited time is not ready time: no placement removes it.

use super::realtime_limited;
use super::{Context, Finding, Measure, Rule, count, percent};
use crate::setting::argv::shell_word;

pub const RULE: Rule = Rule {
    name: "limited",
    doc: "a CPU quota throttles a VM: its own, or that of a slice or pod",
    explains: &[Measure::Limited, Measure::WakeLatency],
    check,
};

fn check(c: &Context<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (config, vm) in c.vms() {
        let limits = [config.limits.per_vcpu, config.limits.emulator, config.limits.whole_vm];
        // Budgets of real-time threads have a rule of their own.
        let of_budgets = realtime_limited::share(config, vm);
        let held = vm.group.limited.map(|held| (held - of_budgets).max(0.0));
        let vcpus = vm.vcpu_threads().count().max(1) as f64;
        let estimate = vm.limited_estimate.filter(|_| held.is_none());
        let per_vcpu = vm.limited_per_vcpu().unwrap_or(0.0) - of_budgets / vcpus;
        let above = vm.throttled_by_above(config);
        let throttled = if above.is_some() { vm.throttled_above_per_s } else { vm.throttled_per_s };
        // If limited time is neither measured nor estimated, only the throttle count is evidence. That of a shared quota says
        // nothing of a VM that does not wait.
        let waits = above.is_none()
            || vm.per_vcpu(|s| s.wait).is_some_and(|wait| wait > c.thresholds.limited_per_vcpu);
        let speaks = held.or(estimate).is_some_and(|_| per_vcpu > c.thresholds.limited_per_vcpu)
            || (held.or(estimate).is_none() && waits && throttled.is_some_and(|times| times > 1.0));
        if !speaks {
            continue;
        }
        let mut evidence = Vec::new();
        evidence.extend(throttled.map(|times| count("quota used up", times, "times/s", None)));
        evidence.extend(held.map(|h| percent("limited share, summed over all threads", h, None)));
        let estimated = "limited share, summed over vCPUs, an estimate from cpu.stat";
        evidence.extend(estimate.map(|e| percent(estimated, e, None)));
        evidence.extend(limits.iter().flatten().map(|q| count("quota", q.cpus(), "pCPUs", None)));
        let shared = config.quotas.iter().filter(|q| q.shared);
        evidence.extend(
            shared.map(|q| count(&format!("quota of cgroup {}", q.cgroup), q.quota.cpus(), "pCPUs", None)),
        );
        let bursts = config.scheduling.iter().filter_map(|g| Some((g, g.burst_us?)));
        evidence.extend(
            bursts
                .map(|(g, us)| count(&format!("burst of cgroup {}", g.cgroup), us as f64 / 1e3, "ms", None)),
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
                    "The VMs and processes in this cgroup together need more CPU time than its quota. When the quota is \
                        used up, they all stop until the next period, even on an idle host. This is limited time, not \
                        ready time."
                }
                None => {
                    "The VM wants more CPU time than its quota grants. When the quota is used up, the VM stops \
                        until the next period, even on an idle host. This is limited time, not ready time: no \
                        other VM causes it."
                }
            }
            .into(),
            evidence,
            loss_pcpus: held.or(estimate).or(vm.vcpus.wait).unwrap_or(0.0),
            // Where only their sum is measured, the wait may be limited time.
            measures: RULE
                .explains
                .iter()
                .copied()
                .chain(vm.vcpus.ready.is_none().then_some(Measure::Ready))
                .collect(),
            disproved_by: "the throttle count does not grow while the VM waits".into(),
            next: match above {
                Some(q) => format!(
                    "find out who set the quota of {} (vsteer does not change a shared quota)",
                    q.cgroup
                ),
                None if config.manager.keeps_settings() => format!(
                    "check whether the limit is intended; if not, run: vsteer plan --set {}",
                    shell_word(&format!("{}:limit=none", config.name))
                ),
                None => {
                    "check whether the quota is intended; if not, raise it (vsteer plan --only quota)".into()
                }
            },
            ..Finding::default()
        });
    }
    findings
}
