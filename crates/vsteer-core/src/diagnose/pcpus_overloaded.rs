//! Are all pCPUs that a waiting VM may use busy?
//!
//! Then they are overloaded and no placement on them helps: some VM must get less CPU time or move.

use super::{Context, Finding, Measure, Rule, count, percent};
use crate::CpuSet;
use crate::nouns::VmId;
use crate::plural::pcpus;
use std::collections::BTreeMap;

pub const RULE: Rule = Rule {
    name: "pcpus_overloaded",
    doc: "all pCPUs that waiting VMs may use are busy",
    explains: &[Measure::Ready, Measure::CoStop, Measure::WakeLatency, Measure::Devices],
    check,
};

/// The VMs that may use one set of pCPUs.
#[derive(Default)]
struct Waiting {
    /// Those that wait, and their names.
    vms: Vec<(VmId, String)>,
    ready: f64,
    costop: f64,
    /// That of all.
    demand: f64,
}

fn check(c: &Context<'_>) -> Vec<Finding> {
    let mut by_set: BTreeMap<CpuSet, Waiting> = BTreeMap::new();
    for (config, vm) in c.vms() {
        let set = config.vcpus().fold(CpuSet::new(), |all, t| all.union(&t.affinity));
        let entry = by_set.entry(set).or_default();
        entry.demand += vm.vcpus.demand().unwrap_or(0.0);
        if c.waits(vm) {
            entry.vms.push((vm.id.clone(), vm.name.clone()));
            entry.ready += c.ready(vm);
            entry.costop += vm.vcpus_or_group().0.costop.unwrap_or(0.0);
        }
    }
    let mut findings = Vec::new();
    for (set, Waiting { vms, ready, costop, demand }) in by_set {
        let (vms, names): (Vec<VmId>, Vec<String>) = vms.into_iter().unzip();

        let busy: Vec<f64> = c.model.pcpus.iter().filter(|p| set.contains(p.cpu)).map(|p| p.busy).collect();
        let mean = busy.iter().sum::<f64>() / busy.len().max(1) as f64;
        if names.is_empty() || busy.is_empty() || mean < c.thresholds.pcpu_busy {
            continue;
        }
        findings.push(Finding {
            rule: RULE.name.to_owned(),
            vm: None,
            title: format!("{} overloaded: {} there", subject(&set), waiting(&names)),
            explanation: format!(
                "The VMs on {} ask for {demand:.1} pCPUs of work. Demand that does not \
                    fit becomes ready time. The scheduler divides it by weight, and VMs that mostly sleep \
                    wait at every wake-up.",
                pcpus(&set)
            ),
            evidence: [
                percent("busy share of these pCPUs", mean, Some(c.thresholds.pcpu_busy)),
                count("demand of the VMs", demand, "pCPUs", Some(busy.len() as f64)),
                percent("ready share of the waiting VMs, summed over vCPUs", ready, None),
            ]
            .into_iter()
            .chain(
                (costop > 0.0)
                    .then(|| percent("co-stop share of these VMs, summed over vCPUs", costop, None)),
            )
            .collect(),
            loss_pcpus: ready + costop,
            vms,
            disproved_by:
                "the pCPUs idle while these VMs are ready (in vsteer top, key b, they then wait for \
                \"placement\")"
                    .into(),
            next: "run vsteer plan to see which VMs can wait; otherwise move a VM away or give it fewer \
                vCPUs"
                .into(),
            ..Finding::default()
        });
    }
    findings
}

fn subject(set: &CpuSet) -> String {
    format!("{} {}", pcpus(set), if set.len() == 1 { "is" } else { "are" })
}

/// The VMs and their verb: `VM "a" waits`, `VMs "a", "b" wait`.
fn waiting(names: &[String]) -> String {
    let quoted = names.iter().take(4).map(|n| format!("{n:?}")).collect::<Vec<_>>().join(", ");
    match names.len() {
        1 => format!("VM {quoted} waits"),
        n @ ..=4 => format!("{n} VMs ({quoted}) wait"),
        n => format!("{n} VMs ({quoted} and {} more) wait", n - 4),
    }
}
