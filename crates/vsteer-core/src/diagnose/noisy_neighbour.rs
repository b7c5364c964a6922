//! Which VM does a waiting VM wait for? The blame matrix names the culprit.

use super::{Context, Finding, Rule, percent};
use crate::nouns::Culprit;

pub const RULE: Rule = Rule { name: "noisy_neighbour", doc: "one VM makes another wait", check };

/// A culprit is named if it causes more than this part of the VM's ready time.
const PART: f64 = 0.25;

fn check(c: &Context<'_>) -> Vec<Finding> {
    let Some(blame) = &c.model.blame else { return Vec::new() };
    let mut findings = Vec::new();
    for (_, vm) in c.vms().filter(|(_, vm)| c.waits(vm)) {
        let all: f64 = blame.iter().filter(|b| b.victim == vm.id).map(|b| b.share).sum();
        for b in blame.iter().filter(|b| b.victim == vm.id && b.share > PART * all) {
            let Culprit::Vm(culprit) = &b.culprit else { continue };
            if *culprit == vm.id {
                continue;
            }
            findings.push(Finding {
                rule: RULE.name.to_owned(),
                vm: Some(vm.id.clone()),
                title: format!("VM {:?} waits for VM {:?}", vm.name, c.name(culprit)),
                explanation: "While this VM was ready, threads of the other VM occupied the pCPUs that it \
                    queued on."
                    .into(),
                evidence: vec![
                    percent("ready share that the other VM caused, all threads together", b.share, None),
                    percent("part of this VM's ready time", b.share / all, Some(PART)),
                ],
                loss_pcpus: b.share,
                disproved_by: "the ready time does not change while the other VM is paused or moved \
                    away"
                    .into(),
                next: "run vsteer plan: it says whether another weight, or other pCPUs, would help this VM"
                    .into(),
            });
        }
    }
    findings
}
