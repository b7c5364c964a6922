//! Is a VM pinned to busy pCPUs while other pCPUs idle?

use super::{Context, Finding, Measure, Rule, count, percent};
use crate::CpuSet;
use crate::plural::pcpus;

pub const RULE: Rule = Rule {
    name: "pinned_busy",
    doc: "a pin keeps a VM on busy pCPUs while other pCPUs idle",
    explains: &[Measure::Ready, Measure::CoStop, Measure::WakeLatency],
    check,
};

fn check(c: &Context<'_>) -> Vec<Finding> {
    let anybodys = c.config.housekeeping();
    let busy = |cpus: &CpuSet| -> Vec<f64> {
        c.model.pcpus.iter().filter(|p| cpus.contains(p.cpu)).map(|p| p.busy).collect()
    };
    let mut findings = Vec::new();
    for (config, vm) in c.vms().filter(|(_, vm)| c.waits(vm)) {
        let pinned = config.vcpus().fold(CpuSet::new(), |all, t| all.union(&t.affinity));
        let elsewhere = anybodys.difference(&pinned);
        let here = busy(&pinned);
        let idle_elsewhere: f64 = busy(&elsewhere).iter().map(|b| 1.0 - b).sum();
        let least_here = here.iter().copied().fold(1.0, f64::min);
        if elsewhere.is_empty()
            || here.is_empty()
            || least_here < c.thresholds.pcpu_busy
            || idle_elsewhere < 0.5
        {
            continue;
        }
        findings.push(Finding {
            rule: RULE.name.to_owned(),
            vm: Some(vm.id.clone()),
            title: format!(
                "VM {:?} is pinned to busy {} while {} {} partly idle",
                vm.name,
                pcpus(&pinned),
                pcpus(&elsewhere),
                if elsewhere.len() == 1 { "is" } else { "are" }
            ),
            explanation:
                "A pin stops the scheduler from using idle pCPUs. The pin only pays off if those pCPUs \
                    must stay free."
                    .into(),
            evidence: vec![
                percent("ready share of this VM, summed over vCPUs", c.ready(vm), None),
                percent("busy share of the VM's least busy pCPU", least_here, Some(c.thresholds.pcpu_busy)),
                count("idle time on pCPUs that the VM may not use", idle_elsewhere, "pCPUs", None),
            ],
            loss_pcpus: c.ready(vm),
            culprit: Some(format!("{}, to which they are pinned", pcpus(&pinned))),
            disproved_by: "the ready time does not change without the pin".into(),
            next: "run: vsteer plan --only unpin".into(),
            ..Finding::default()
        });
    }
    findings
}
