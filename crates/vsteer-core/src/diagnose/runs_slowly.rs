//! Does a VM run, but slowly: the host itself is robbed, throttled, or interrupted?

use super::{Context, Finding, Rule, percent};

/// See the file's head.
pub const RULE: Rule = Rule {
    name: "runs_slowly",
    doc: "VMs run on pCPUs that are stolen from, or busy with interrupts",
    check,
};

/// Overlap above this part of a VM's run time is worth a look.
const OVERLAP: f64 = 0.10;

fn check(c: &Context<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let stolen: Vec<f64> = c.model.pcpus.iter().filter_map(|p| p.steal).collect();
    let steal = stolen.iter().sum::<f64>() / stolen.len().max(1) as f64;
    if steal > c.thresholds.steal {
        findings.push(Finding {
            rule: RULE.name.to_owned(),
            vm: None,
            title: "this host is itself a VM, and time is stolen from it".into(),
            explanation:
                "Its hypervisor runs others on these pCPUs. Stolen time is inside every VM's run time here: \
                          they look as if they ran."
                    .into(),
            evidence: vec![percent("stolen share of the pCPUs, mean", steal, Some(c.thresholds.steal))],
            loss_pcpus: stolen.iter().sum(),
            disproved_by: "the steal column of /proc/stat stands still".into(),
            next: "look one level down: nothing on this host can give that time back".into(),
        });
    }
    for (_, vm) in c.vms() {
        let (Some(overlap), Some(run)) = (vm.vcpus.overlap, vm.vcpus.run) else { continue };
        if run > 0.05 && overlap > OVERLAP * run {
            findings.push(Finding {
                rule: RULE.name.to_owned(),
                vm: Some(vm.id.clone()),
                title: format!(
                    "interrupts take {:.0} % of the time that VM {:?} runs",
                    100.0 * overlap / run,
                    vm.name
                ),
                explanation:
                    "Interrupts and softirqs for others are served on its pCPUs while it is current.".into(),
                evidence: vec![percent("overlap, part of run", overlap / run, Some(OVERLAP))],
                loss_pcpus: overlap,
                disproved_by: "its overlap stays when the interrupts' affinity is moved away".into(),
                next: "move device interrupts and receive queues to other pCPUs".into(),
            });
        }
    }
    findings
}
