//! Does a process or kernel thread of the host make a VM wait?

use super::{Context, Finding, Rule, percent};
use crate::nouns::Culprit;

pub const RULE: Rule = Rule {
    name: "host_process",
    doc: "a process or kernel thread of the host makes a \
    VM wait",
    check,
};

/// A culprit is named if it causes more than this part of the VM's ready time.
const PART: f64 = 0.25;

fn check(c: &Context<'_>) -> Vec<Finding> {
    let Some(blame) = &c.model.blame else { return Vec::new() };
    let mut findings = Vec::new();
    for (_, vm) in c.vms().filter(|(_, vm)| c.waits(vm)) {
        let all: f64 = blame.iter().filter(|b| b.victim == vm.id).map(|b| b.share).sum();
        for b in blame.iter().filter(|b| b.victim == vm.id && b.share > PART * all) {
            if !matches!(b.culprit, Culprit::Process { .. } | Culprit::Kernel { .. }) {
                continue;
            }
            let who = c.culprit(&b.culprit);
            findings.push(Finding {
                rule: RULE.name.to_owned(),
                vm: Some(vm.id.clone()),
                title: format!("VM {:?} waits for the host's {who}", vm.name),
                explanation:
                    "While this VM was ready, that thread occupied the pCPUs that the VM queued on. The \
                        thread belongs to no VM, so weights and pins of VMs do not move it."
                        .into(),
                evidence: vec![
                    percent("ready share that this thread caused, all threads together", b.share, None),
                    percent("part of this VM's ready time", b.share / all, Some(PART)),
                ],
                loss_pcpus: b.share,
                disproved_by: "the VM's ready time does not change while that process is stopped".into(),
                next: "move the process to other pCPUs (taskset, a cpuset), or lower its weight".into(),
            });
        }
    }
    findings
}
