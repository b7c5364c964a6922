//! Which VM does a waiting VM wait for? Named from the blame matrix.

use super::{Context, Finding, Rule, percent};
use crate::nouns::Culprit;

/// See the file's head.
pub const RULE: Rule = Rule { name: "noisy_neighbour", doc: "one VM makes another wait", check };

/// A culprit behind at least this part of a VM's ready time is worth naming.
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
                explanation: "While this VM was ready, that one's threads held the pCPUs it queued on."
                    .into(),
                evidence: vec![
                    percent("ready because of it, summed over threads", b.share, None),
                    percent("part of all its ready time", b.share / all, Some(PART)),
                ],
                loss_pcpus: b.share,
                disproved_by: "its ready time stays while that VM is paused or moved away".into(),
                next: "vsteer plan keeps the two apart, or lets this one go first".into(),
            });
        }
    }
    findings
}
