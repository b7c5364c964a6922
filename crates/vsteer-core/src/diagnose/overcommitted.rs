//! Are there more vCPUs than pCPUs, and do VMs wait because of it?
//!
//! The ratio alone is not a problem: idle vCPUs cost nothing. The rule reports it only if VMs wait.

use super::{Context, Finding, Measure, Rule, count, percent};

pub const RULE: Rule = Rule {
    name: "overcommitted",
    doc: "more vCPUs than pCPUs, and VMs wait",
    explains: &[Measure::Ready, Measure::CoStop, Measure::WakeLatency],
    check,
};

fn check(c: &Context<'_>) -> Vec<Finding> {
    let pcpus = c.model.pcpus.len();
    let vcpus: usize = c.vms().map(|(_, vm)| vm.vcpu_threads().count()).sum();
    let waiting: f64 = c.vms().filter(|(_, vm)| c.waits(vm)).map(|(_, vm)| c.ready(vm)).sum();
    if pcpus == 0 || vcpus <= pcpus || waiting == 0.0 {
        return Vec::new();
    }
    vec![Finding {
        rule: RULE.name.to_owned(),
        vm: None,
        title: format!("{vcpus} vCPUs share {pcpus} pCPUs, and VMs wait"),
        explanation:
            "More vCPUs than pCPUs are harmless while most vCPUs sleep. Here too many are awake at the \
                same time, so some wait."
                .into(),
        evidence: vec![
            count("vCPUs per pCPU", vcpus as f64 / pcpus as f64, "x", Some(1.0)),
            percent("ready share of the waiting VMs, summed over vCPUs", waiting, None),
        ],
        // This finding is the cause of other findings, so it ranks below them.
        loss_pcpus: waiting * 0.5,
        vms: c.vms().filter(|(_, vm)| c.waits(vm)).map(|(_, vm)| vm.id.clone()).collect(),
        disproved_by: "half of the VMs are stopped, and the others wait as much as before".into(),
        next: "see the other findings: they name each waiting VM and what it waits for".into(),
        ..Finding::default()
    }]
}
