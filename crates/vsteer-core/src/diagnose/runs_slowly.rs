//! Does a VM run slowly because time is stolen from the host or interrupts take its time?

use super::{Context, Finding, Rule, percent};

pub const RULE: Rule = Rule {
    name: "runs_slowly",
    doc: "time is stolen from the host, or interrupts take a VM's run time",
    explains: &[],
    check,
};

/// The rule reports overlap above this part of a VM's run time.
const OVERLAP: f64 = 0.10;

fn check(c: &Context<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let stolen: Vec<f64> = c.model.pcpus.iter().filter_map(|p| p.steal).collect();
    let steal = stolen.iter().sum::<f64>() / stolen.len().max(1) as f64;
    if steal > c.thresholds.steal {
        findings.push(Finding {
            rule: RULE.name.to_owned(),
            vm: None,
            title: "this host is a VM itself, and its hypervisor takes CPU time from it".into(),
            explanation:
                "The hypervisor below runs other work on these pCPUs. Stolen time counts as run time of \
                    the VMs here, so they seem to run."
                    .into(),
            evidence: vec![percent(
                "stolen share of the pCPUs (steal), \
                mean",
                steal,
                Some(c.thresholds.steal),
            )],
            loss_pcpus: stolen.iter().sum(),
            disproved_by: "the steal column of /proc/stat does not grow".into(),
            next: "diagnose the hypervisor below; no change on this host recovers stolen time".into(),
            ..Finding::default()
        });
    }
    for (_, vm) in c.vms() {
        let (Some(overlap), Some(run)) = (vm.vcpus.overlap, vm.vcpus.run) else { continue };
        if run > 0.05 && overlap > OVERLAP * run {
            findings.push(Finding {
                rule: RULE.name.to_owned(),
                vm: Some(vm.id.clone()),
                title: format!(
                    "interrupts take {:.0} % of the run time of VM {:?}",
                    100.0 * overlap / run,
                    vm.name
                ),
                explanation:
                    "The kernel serves interrupts and softirqs on this VM's pCPUs, and their time counts \
                        as the VM's run time."
                        .into(),
                evidence: vec![percent("overlap, part of the run time", overlap / run, Some(OVERLAP))],
                loss_pcpus: overlap,
                disproved_by: "the overlap stays the same after the interrupts moved to other pCPUs".into(),
                next: "move device interrupts and receive queues to other pCPUs".into(),
                ..Finding::default()
            });
        }
    }
    findings
}
