//! Does Xen's Domain-0 wait for a pCPU?
//!
//! Disks and networks of its guests go through it: while it waits, all of them wait, and what they themselves show is blocked time.

use super::{Context, Finding, Rule, millis, percent};
use crate::nouns::CpuWeight;

/// See the file's head.
pub const RULE: Rule = Rule {
    name: "driver_starved",
    doc: "Xen's Domain-0, through which its guests' I/O goes, waits for a pCPU",
    check,
};

/// Late wake-ups matter where it waits for more than this share of the time.
const SLOW_READY: f64 = 0.02;

fn check(c: &Context<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (config, vm) in c.vms().filter(|(config, _)| config.is_domain0()) {
        let ready = vm.per_vcpu(|s| s.ready.or(s.wait)).unwrap_or(0.0);
        let p99 = vm.wake_latency.filter(|l| l.count >= 20).map(|l| l.p99_ns);
        let slow = p99.is_some_and(|p| p > c.thresholds.wake_p99_ns) && ready > SLOW_READY;
        if ready < c.thresholds.ready_per_vcpu && !slow {
            continue;
        }
        let mut evidence =
            vec![percent("its ready share per vCPU", ready, Some(c.thresholds.ready_per_vcpu))];
        evidence.extend(
            p99.map(|p| millis("wake-up to running, 99th percentile", p, Some(c.thresholds.wake_p99_ns))),
        );
        let weight = config.weight.map_or(1.0, CpuWeight::relative);
        evidence.push(super::count("its weight, times the default", weight, "x", None));
        findings.push(Finding {
            rule: RULE.name.to_owned(),
            vm: Some(vm.id.clone()),
            title: format!("{} waits for a pCPU, and with it the disks and networks of all others", vm.name),
            explanation: "Its guests' requests go through it. While it waits they are blocked, which no ready time of theirs shows."
                .into(),
            evidence,
            loss_pcpus: c.ready(vm),
            disproved_by: "the guests' own latencies do not improve when it alone gets more weight".into(),
            next: "vsteer plan --only weights, or give it a pCPU of its own (dom0_max_vcpus, dom0_vcpus_pin)".into(),
        });
    }
    findings
}
