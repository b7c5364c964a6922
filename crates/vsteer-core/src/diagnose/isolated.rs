//! Do a VM's vCPUs crowd on one of the isolated pCPUs that they may use?
//!
//! The kernel does not balance onto isolated pCPUs (`isolcpus=`, isolated partitions): a thread that may use several of them
//! stays on the first. There each vCPU needs a pin of its own.
//!
//! Source: kernel/sched/topology.c (Linux 6.12): isolated pCPUs are in no scheduling domain.

use super::{Context, Finding, Measure, Rule, percent};
use crate::CpuSet;
use crate::plural::pcpus;
use crate::setting::argv::shell_word;

pub const RULE: Rule = Rule {
    name: "isolated",
    doc: "vCPUs crowd on one of several isolated pCPUs, where the kernel does not balance",
    explains: &[Measure::Ready, Measure::CoStop, Measure::WakeLatency],
    check,
};

const FULL: f64 = 0.9;
const IDLE: f64 = 0.5;

fn check(c: &Context<'_>) -> Vec<Finding> {
    let Some(isolated) = c.config.scheduler.as_ref().map(|s| &s.isolated) else { return Vec::new() };
    let busy = |cpu: u32| c.model.pcpus.iter().find(|p| p.cpu == cpu).map(|p| p.busy);
    let mut findings = Vec::new();
    for (config, vm) in c.vms().filter(|(_, vm)| c.waits(vm)) {
        let floats = config.vcpus().filter(|t| t.affinity.intersection(isolated).len() > 1);
        let may = floats.fold(CpuSet::new(), |all, t| all.union(&t.affinity.intersection(isolated)));
        let of = |is: &dyn Fn(f64) -> bool| -> CpuSet {
            may.iter().filter(|cpu| busy(*cpu).is_some_and(is)).collect()
        };
        let (full, idle) = (of(&|busy| busy > FULL), of(&|busy| busy < IDLE));
        if full.is_empty() || idle.is_empty() {
            continue;
        }
        let shown = |cpus: &CpuSet| cpus.iter().filter_map(busy).sum::<f64>() / cpus.len() as f64;
        findings.push(Finding {
            rule: RULE.name.to_owned(),
            vm: Some(vm.id.clone()),
            title: format!(
                "vCPUs of VM {:?} crowd on isolated {} while {} may be used too",
                vm.name,
                pcpus(&full),
                pcpus(&idle)
            ),
            explanation: "The kernel does not balance threads onto isolated pCPUs: those that may use several of them stay where \
                they are. Each vCPU needs a pin to one of them."
                .into(),
            evidence: vec![
                percent("ready share of this VM, summed over vCPUs", c.ready(vm), None),
                percent("busy share of the full pCPUs", shown(&full), Some(FULL)),
                percent("busy share of the idle ones", shown(&idle), Some(IDLE)),
            ],
            loss_pcpus: c.ready(vm),
            disproved_by: "the vCPUs run on different pCPUs (vsteer top, key e; or ps -L -o psr)".into(),
            next: format!(
                "pin each vCPU to an isolated pCPU of its own, beginning with: vsteer plan --set {}",
                shell_word(&format!("{}:pin.0={}", vm.name, idle.iter().next().unwrap_or(0)))
            ),
            ..Finding::default()
        });
    }
    findings
}
