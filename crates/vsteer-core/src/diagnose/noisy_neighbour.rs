//! Which VM does a waiting VM wait for? The blame matrix names the culprit.

use super::stalled;
use super::{Context, Evidence, Finding, Measure, Rule, percent};
use crate::model::VmModel;
use crate::nouns::{Culprit, VmConfig};

pub const RULE: Rule = Rule {
    name: "noisy_neighbour",
    doc: "one VM makes another wait",
    explains: &[Measure::Ready, Measure::WakeLatency],
    check,
};

/// A culprit is named if it causes more than this part of the VM's ready time.
const PART: f64 = 0.25;

/// Large stalls on I/O and memory: the CPU is then not all that this VM waits for.
fn stalls(c: &Context<'_>, vm: &VmModel) -> Vec<Evidence> {
    let most = c.thresholds.pressure_full;
    let all = stalled::evidence("the VM's cgroup", &vm.pressure, Some(most));
    all.into_iter().filter(|e| e.value > 100.0 * most).collect()
}

/// The kernel takes threads of such a cgroup for less busy than they are, and chooses their pCPUs and clocks by that.
fn clamps(config: &VmConfig) -> impl Iterator<Item = Evidence> + '_ {
    let most = config.scheduling.iter().filter_map(|g| Some((g, g.uclamp_max?)));
    most.map(|(g, most)| percent(&format!("cpu.uclamp.max of {}", g.cgroup), f64::from(most) / 1e4, None))
}

fn check(c: &Context<'_>) -> Vec<Finding> {
    let Some(blame) = &c.model.blame else { return Vec::new() };
    let mut findings = Vec::new();
    for (config, vm) in c.vms().filter(|(_, vm)| c.waits(vm)) {
        let all: f64 = blame.iter().filter(|b| b.victim == vm.id).map(|b| b.share).sum();
        for b in blame.iter().filter(|b| b.victim == vm.id && b.share > PART * all) {
            let Culprit::Vm(culprit) = &b.culprit else { continue };
            if *culprit == vm.id {
                continue;
            }
            let mut evidence = vec![
                percent("ready share that the other VM caused, all threads together", b.share, None),
                percent("part of this VM's ready time", b.share / all, Some(PART)),
            ];
            evidence.extend(stalls(c, vm));
            evidence.extend(clamps(config));
            findings.push(Finding {
                rule: RULE.name.to_owned(),
                vm: Some(vm.id.clone()),
                title: format!("VM {:?} waits for VM {:?}", vm.name, c.name(culprit)),
                culprit: Some(c.culprit(&b.culprit)),
                explanation: "While this VM was ready, threads of the other VM occupied the pCPUs that it \
                    queued on."
                    .into(),
                evidence,
                loss_pcpus: b.share,
                disproved_by: "the ready time does not change while the other VM is paused or moved \
                    away"
                    .into(),
                next: "run vsteer plan: it says whether another weight, or other pCPUs, would help this VM"
                    .into(),
                ..Finding::default()
            });
        }
    }
    findings
}
