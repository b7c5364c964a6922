//! Is a VM held by its own CPU quota?
//!
//! Never to be taken for ready time: no other VM is to blame, and no placement helps.

use super::{Context, Finding, Rule, count, percent};

/// See the file's head.
pub const RULE: Rule = Rule { name: "limited", doc: "a VM is held by its CPU quota", check };

fn check(c: &Context<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (config, vm) in c.vms() {
        let limits = [config.limits.per_vcpu, config.limits.emulator, config.limits.whole_vm];
        let held = vm.group.limited;
        let per_vcpu = vm.per_vcpu(|s| s.limited).unwrap_or(0.0);
        let throttled = vm.throttled_per_s.unwrap_or(0.0);
        // Where limited cannot be told from ready, only the throttle count speaks.
        let speaks = held.is_some_and(|_| per_vcpu > c.thresholds.limited_per_vcpu)
            || (held.is_none() && throttled > 1.0);
        if !speaks {
            continue;
        }
        let mut evidence = vec![count("quota ran out", throttled, "times/s", None)];
        evidence.extend(held.map(|h| percent("limited share, all threads", h, None)));
        evidence.extend(limits.iter().flatten().map(|q| count("limit", q.cpus(), "pCPUs", None)));
        evidence.push(percent("run share, summed over vCPUs", vm.vcpus.run.unwrap_or(0.0), None));
        findings.push(Finding {
            rule: RULE.name.to_owned(),
            vm: Some(vm.id.clone()),
            title: format!("VM {:?} is held by its CPU quota", vm.name),
            explanation:
                "It wants more than its quota grants and stands still for the rest of each period, however \
                          idle the host is. That is limited time, not ready time: nobody else is to blame."
                    .into(),
            evidence,
            loss_pcpus: held.unwrap_or(0.0),
            disproved_by: "the throttle count stands still while it waits".into(),
            next: "is the limit intended? If not, raise it; if it is, this is what it costs".into(),
        });
    }
    findings
}
