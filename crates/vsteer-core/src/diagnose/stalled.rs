//! Does a VM stall on I/O or on memory, while it hardly waits for a CPU?
//!
//! The kernel's pressure of the VM's cgroup says how long none of its threads could go on. vsteer changes only how VMs get
//! CPUs, so the rule says where to look instead. It finds nothing if the pressure was not measured.
//!
//! "Hardly" is the published threshold for ready, also for a VM that mostly sleeps. Such a VM may have both findings.

use super::{Context, Evidence, Finding, Rule, percent};
use crate::model::VmModel;
use crate::nouns::PressureShares;

pub const RULE: Rule = Rule {
    name: "stalled",
    doc: "a VM stalls on I/O or on memory, and hardly waits for a CPU",
    explains: &[],
    check,
};

/// What a VM waits for instead of a CPU.
struct Cause {
    /// In words, as in the kernel's file, and its figure.
    resource: &'static str,
    file: &'static str,
    of: fn(&PressureShares) -> Option<f64>,
    explanation: &'static str,
    next: &'static str,
}

const CAUSES: [Cause; 2] = [
    Cause {
        resource: "I/O",
        file: "io.pressure",
        of: |p| p.io_full,
        explanation: "Threads of the VM waited for the host's storage, and none of its threads could run meanwhile. \
            More CPU time does not shorten this wait.",
        next: "measure the latency of the VM's disks on the host (iostat -x), and look for other users of that storage",
    },
    Cause {
        resource: "memory",
        file: "memory.pressure",
        of: |p| p.memory_full,
        explanation: "Threads of the VM waited until the host freed memory or read it back from swap, and none of its \
            threads could go on meanwhile. More CPU time does not shorten this wait.",
        next: "check the host's free memory and swap, and memory.max and memory.high of the VM's cgroup",
    },
];

/// Ready and limited time per vCPU; `None` if neither was measured.
fn kept_from_cpus(vm: &VmModel) -> Option<f64> {
    let (shares, _) = vm.vcpus_or_group();
    let vcpus = vm.vcpu_threads().count().max(1) as f64;
    Some(shares.wait.or_else(|| Some(shares.ready? + shares.limited.unwrap_or(0.0)))? / vcpus)
}

/// The stalls on I/O and memory, to stand beside waits for a CPU.
pub(super) fn evidence(of: &str, pressure: &PressureShares, against: Option<f64>) -> Vec<Evidence> {
    let each = CAUSES.iter().filter_map(|c| Some((c, (c.of)(pressure)?)));
    each.map(|(c, share)| percent(&format!("{} pressure of {of}, full", c.resource), share, against))
        .collect()
}

fn check(c: &Context<'_>) -> Vec<Finding> {
    let t = &c.thresholds;
    let mut findings = Vec::new();
    for (_, vm) in c.vms() {
        let Some(kept) = kept_from_cpus(vm).filter(|kept| *kept <= t.ready_per_vcpu) else { continue };
        for cause in &CAUSES {
            let Some(share) = (cause.of)(&vm.pressure).filter(|share| *share > t.pressure_full) else {
                continue;
            };
            let figure = format!("{} pressure of the VM's cgroup, full", cause.resource);
            findings.push(Finding {
                rule: RULE.name.to_owned(),
                vm: Some(vm.id.clone()),
                title: format!("VM {:?} waits for {}, hardly for a CPU", vm.name, cause.resource),
                explanation: cause.explanation.to_owned(),
                evidence: vec![
                    percent(&figure, share, Some(t.pressure_full)),
                    percent("ready and limited per vCPU", kept, Some(t.ready_per_vcpu)),
                ],
                loss_pcpus: share,
                disproved_by: format!("the total of {} in the VM's cgroup does not grow", cause.file),
                next: cause.next.to_owned(),
                ..Finding::default()
            });
        }
    }
    findings
}
