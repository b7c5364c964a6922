//! Do VMs share the threads of a core while whole cores idle?
//!
//! Two busy threads of a core do about 1.3 times the work of one (D. Marr et al., Intel Technology Journal 6(1), 2002), so each runs
//! at about two thirds of its speed. It looks like run time, not like ready time. The kernel avoids it where it may choose;
//! pins do not. Left out: VMs that are not pinned to that core.

use super::{Context, Finding, Rule, count, percent};
use crate::CpuSet;
use crate::nouns::VmConfig;
use crate::plural::pcpus;
use crate::setting::argv::shell_word;

pub const RULE: Rule = Rule {
    name: "shared_core",
    doc: "pinned vCPUs share the threads of a core while other cores idle",
    explains: &[],
    check,
};

/// A pCPU is busy, or idle, from this share on.
const BUSY: f64 = 0.6;
const IDLE: f64 = 0.2;
/// What a thread loses beside a busy one.
const LOSES: f64 = 0.35;

/// The idle core to advise: of the same node, because the memory is there, and else any.
fn best<'a>(c: &Context<'_>, core: &CpuSet, idle: &[&'a CpuSet]) -> &'a CpuSet {
    let node = |cpus: &CpuSet| c.config.topology.node_of(cpus.iter().next()?).map(|n| n.id);
    idle.iter().find(|other| node(other) == node(core)).unwrap_or(&idle[0])
}

/// The setting that pins the last of the VM's vCPUs on this core to the first thread of an idle one.
fn to_idle(vm: &VmConfig, core: &CpuSet, idle: &CpuSet) -> String {
    let here = vm.vcpus().filter(|t| t.affinity.is_subset(core)).last().and_then(|t| t.role.vcpu());
    format!("{}:pin.{}={}", vm.name, here.unwrap_or(0), idle.iter().next().unwrap_or(0))
}

fn check(c: &Context<'_>) -> Vec<Finding> {
    let anybodys = c.config.housekeeping();
    let busy = |cpu: u32| c.model.pcpus.iter().find(|p| p.cpu == cpu).map_or(0.0, |p| p.busy);
    let cores: Vec<&CpuSet> =
        c.config.topology.cores().iter().map(|core| &core.cpus).filter(|cpus| cpus.len() > 1).collect();
    let idle = |cpus: &&&CpuSet| cpus.is_subset(&anybodys) && cpus.iter().all(|cpu| busy(cpu) < IDLE);
    let idle: Vec<&CpuSet> = cores.iter().filter(idle).copied().collect();
    let mut findings = Vec::new();
    for cpus in cores
        .iter()
        .filter(|cpus| !idle.is_empty() && cpus.iter().filter(|cpu| busy(*cpu) > BUSY).count() > 1)
    {
        let pinned_here =
            |vm: &VmConfig| vm.vcpus().any(|t| !t.affinity.is_empty() && t.affinity.is_subset(cpus));
        let vms: Vec<_> = c.vms().filter(|(vm, _)| pinned_here(vm)).map(|(vm, _)| vm).collect();
        // Siblings that the guest knows as such are its own to schedule.
        let one_guest = vms.len() == 1 && vms[0].guest_topology.is_some_and(|t| t.threads > 1);
        if vms.is_empty() || one_guest {
            continue;
        }
        let names: Vec<String> = vms.iter().map(|vm| format!("{:?}", vm.name)).collect();
        let used: f64 = cpus.iter().map(busy).sum();
        findings.push(Finding {
            rule: RULE.name.to_owned(),
            vm: (vms.len() == 1).then(|| vms[0].id.clone()),
            title: format!(
                "{} {} pinned to threads of one core ({}) while {} whole {} idle",
                if vms.len() == 1 { format!("vCPUs of VM {}", names[0]) } else { format!("VMs {}", names.join(", ")) },
                if vms.len() == 1 { "are" } else { "have vCPUs" },
                pcpus(cpus),
                idle.len(),
                if idle.len() == 1 { "core is" } else { "cores are" },
            ),
            explanation: "Two busy threads of a core share its units, so each runs at about two thirds of its speed. It shows as \
                run time, not as ready time."
                .into(),
            evidence: vec![
                percent("busy share of the threads of this core, mean", used / cpus.len() as f64, Some(BUSY)),
                count("cores all of whose threads idle", idle.len() as f64, "cores", None),
            ],
            loss_pcpus: LOSES * used,
            vms: vms.iter().map(|vm| vm.id.clone()).collect(),
            disproved_by: "the guests do as much work per second on cores of their own".into(),
            next: format!(
                "pin one of them to an idle core (vsteer topology shows the cores): vsteer plan --set {}",
                shell_word(&to_idle(vms.last().expect("it is not empty"), cpus, best(c, cpus, &idle)))
            ),
            ..Finding::default()
        });
    }
    findings
}
