//! Does a VM's own CPU quota throttle it?
//!
//! Limited time is not ready time: no other VM causes it, and no placement removes it.

use super::{Context, Finding, Rule, count, percent};

pub const RULE: Rule = Rule { name: "limited", doc: "a VM's own CPU quota throttles it", check };

fn check(c: &Context<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (config, vm) in c.vms() {
        let limits = [config.limits.per_vcpu, config.limits.emulator, config.limits.whole_vm];
        let held = vm.group.limited;
        let per_vcpu = vm.per_vcpu(|s| s.limited).unwrap_or(0.0);
        let throttled = vm.throttled_per_s.unwrap_or(0.0);
        // If the collector cannot separate limited from ready, only the throttle count is evidence.
        let speaks = held.is_some_and(|_| per_vcpu > c.thresholds.limited_per_vcpu)
            || (held.is_none() && throttled > 1.0);
        if !speaks {
            continue;
        }
        let mut evidence = vec![count("quota used up", throttled, "times/s", None)];
        evidence.extend(held.map(|h| percent("limited share, summed over all threads", h, None)));
        evidence.extend(limits.iter().flatten().map(|q| count("quota", q.cpus(), "pCPUs", None)));
        evidence.push(percent("run share, summed over vCPUs", vm.vcpus.run.unwrap_or(0.0), None));
        findings.push(Finding {
            rule: RULE.name.to_owned(),
            vm: Some(vm.id.clone()),
            title: format!("the CPU quota of VM {:?} throttles it", vm.name),
            explanation:
                "The VM wants more CPU time than its quota grants. When the quota is used up, the VM stops \
                    until the next period, even on an idle host. This is limited time, not ready time: no \
                    other VM causes it."
                    .into(),
            evidence,
            loss_pcpus: held.unwrap_or(0.0),
            disproved_by: "the throttle count does not grow while the VM waits".into(),
            next: "check whether the quota is intended; if not, raise it (vsteer plan --only quota)".into(),
        });
    }
    findings
}
