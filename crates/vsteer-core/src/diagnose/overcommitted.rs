//! Are there more vCPUs than pCPUs, and does it hurt?
//!
//! A ratio alone proves nothing: idle vCPUs are free. It is said only where VMs wait.

use super::{Context, Finding, Rule, count, percent};

/// See the file's head.
pub const RULE: Rule = Rule { name: "overcommitted", doc: "more vCPUs than pCPUs, and VMs wait", check };

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
        title: format!("{vcpus} vCPUs share {pcpus} pCPUs"),
        explanation:
            "More vCPUs than pCPUs is usual and harmless while most sleep. Here they do not all sleep at the \
                      same time, so some are ready while others run."
                .into(),
        evidence: vec![
            count("vCPUs per pCPU", vcpus as f64 / pcpus as f64, "x", Some(1.0)),
            percent("ready share of the waiting VMs, summed over vCPUs", waiting, None),
        ],
        // The cause behind other findings, not one beside them: it ranks below what it leads to.
        loss_pcpus: waiting * 0.5,
        disproved_by: "VMs wait as much with half of them stopped".into(),
        next: "the findings above name who waits for whom".into(),
    }]
}
