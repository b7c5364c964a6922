//! Does Xen's Domain-0 wait for a pCPU?
//!
//! Domain-0 serves the disks and networks of the guests. While it waits, all guests wait, but they show only
//! blocked time.

use super::{Context, Finding, Measure, Rule, millis, percent};
use crate::nouns::CpuWeight;

pub const RULE: Rule = Rule {
    name: "driver_starved",
    doc: "Xen's Domain-0, which serves the guests' I/O, waits for a pCPU",
    explains: &[Measure::Ready, Measure::WakeLatency],
    check,
};

/// Late wake-ups matter only if Domain-0 is ready for more than this share of the time.
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
        // Only what exceeds its threshold is evidence.
        let long = (ready >= c.thresholds.ready_per_vcpu)
            .then(|| percent("ready share per vCPU of Domain-0", ready, Some(c.thresholds.ready_per_vcpu)));
        let late = p99.filter(|p| *p > c.thresholds.wake_p99_ns);
        let late =
            late.map(|p| millis("wake-up to running, 99th percentile", p, Some(c.thresholds.wake_p99_ns)));
        let mut evidence: Vec<_> = long.into_iter().chain(late).collect();
        let weight = config.weight.map_or(1.0, CpuWeight::relative);
        evidence.push(super::count("weight of Domain-0, multiple of the default", weight, "x", None));
        findings.push(Finding {
            rule: RULE.name.to_owned(),
            vm: Some(vm.id.clone()),
            title: format!(
                "{} waits for a pCPU and delays the disks and networks of all other \
                domains",
                vm.name
            ),
            explanation: "Domain-0 serves the I/O requests of all guests. While it waits, the guests are \
                blocked, and their ready time does not show it."
                .into(),
            evidence,
            loss_pcpus: c.ready(vm),
            disproved_by: "the guests' latencies do not improve when only Domain-0 gets more weight".into(),
            next: "run: vsteer plan --only weights; or give Domain-0 pCPUs of its own (dom0_max_vcpus, \
                dom0_vcpus_pin)"
                .into(),
            ..Finding::default()
        });
    }
    findings
}
