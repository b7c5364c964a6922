//! Which VM exceeds a threshold? No such VM is passed over, whether or not a rule knows the cause.
//!
//! A line per VM and measure. `causes.rs` puts it below the cause that explains it; what is left is a finding whose cause is
//! unknown, with what to measure next.

use super::{Context, Evidence, Finding, Measure, Rule};
use crate::model::VmModel;

pub const RULE: Rule = Rule {
    name: "over_threshold",
    doc: "a VM exceeds a threshold, and the cause is unknown",
    explains: &[],
    check,
};

fn check(c: &Context<'_>) -> Vec<Finding> {
    let mut lines = Vec::new();
    for (_, vm) in c.vms() {
        let over = c.over(vm);
        let mut measures: Vec<Measure> = over.iter().map(|(measure, _)| *measure).collect();
        measures.dedup();
        lines.extend(measures.into_iter().map(|measure| {
            let evidence = over.iter().filter(|(m, _)| *m == measure).map(|(_, e)| e.clone()).collect();
            line(vm, measure, evidence)
        }));
    }
    lines
}

fn line(vm: &VmModel, measure: Measure, evidence: Vec<Evidence>) -> Finding {
    let (shares, _) = vm.vcpus_or_group();
    let lost = match measure {
        Measure::Ready => shares.ready.or(shares.wait),
        Measure::CoStop => shares.costop,
        Measure::Limited => vm.limited().map(|(limited, _)| limited),
        Measure::WakeLatency | Measure::LocalMemory | Measure::Devices => None,
    };
    Finding {
        rule: RULE.name.to_owned(),
        vm: Some(vm.id.clone()),
        title: format!("VM {:?} {}", vm.name, does(measure)),
        evidence,
        loss_pcpus: lost.unwrap_or(0.0),
        measures: vec![measure],
        vms: vec![vm.id.clone()],
        ..Finding::default()
    }
}

fn does(measure: Measure) -> &'static str {
    match measure {
        Measure::Ready => "waits for a pCPU",
        Measure::CoStop => "is co-stopped",
        Measure::Limited => "is limited",
        Measure::WakeLatency => "runs late after wake-ups",
        Measure::LocalMemory => "has remote memory",
        Measure::Devices => "waits for its device threads",
    }
}

/// The lines of one VM become one.
pub(super) fn merged(findings: Vec<Finding>) -> Vec<Finding> {
    let mut all: Vec<Finding> = Vec::new();
    for f in findings {
        let same = |g: &&mut Finding| g.rule == RULE.name && f.rule == RULE.name && g.vm == f.vm;
        match all.iter_mut().find(same) {
            Some(g) => {
                g.title = format!("{} and {}", g.title, does(f.measures[0]));
                g.evidence.extend(f.evidence);
                g.loss_pcpus += f.loss_pcpus;
                g.measures.extend(f.measures);
            }
            None => all.push(f),
        }
    }
    all
}

/// Says of a line that no rule explains what is known and what to measure next.
pub(super) fn unexplained(c: &Context<'_>, f: &mut Finding) {
    f.title.push_str(", and no rule of vsteer found the cause");
    let busy = c.model.busy_mean().map_or_else(String::new, |busy| {
        format!(" The pCPUs were busy for {:.0} % of the time on average.", 100.0 * busy)
    });
    let why: Vec<&str> = f.measures.iter().map(|measure| may_be(*measure)).collect();
    f.explanation = format!("{}{busy}", why.join(" "));
    f.disproved_by = "in a longer recording the VM does not exceed these thresholds".to_owned();
    f.next = match c.model.collector.as_str() {
        "schedstat" => "run vsteer as root with --collector ebpf: it measures for which threads the VM waits".to_owned(),
        "esxtop" | "vsphere" => "check the VM's affinity, limit, reservation and resource pool in vCenter; record with short samples \
            (esxtop -b -a -d 2), which show bursts"
            .to_owned(),
        _ if c.model.blame.is_some() => {
            "see which threads had the pCPUs (vsteer top, key b), and record a longer time with short samples".to_owned()
        }
        _ => "record a longer time with short samples, which show bursts (vsteer record -i 200ms)".to_owned(),
    };
}

/// What causes this, beyond what rules see.
fn may_be(measure: Measure) -> &'static str {
    match measure {
        Measure::Ready => {
            "The VM could run and had no pCPU. If pCPUs were idle on average, then bursts that are shorter than the \
                recording, a pin, an affinity or a resource pool can make a VM wait."
        }
        Measure::CoStop => {
            "The hypervisor held vCPUs back until their siblings caught up. It does so if one vCPU cannot run: for want of a \
                pCPU, or because the VM swaps or its disk is being changed (snapshots)."
        }
        Measure::Limited => {
            "A limit or quota that vsteer does not see held the VM: of the VM, or of a pool or cgroup above it."
        }
        Measure::WakeLatency => {
            "The VM ran late after wake-ups although it hardly waited in sum: few long waits, such as a time slice of \
                another thread, can do that."
        }
        Measure::LocalMemory => {
            "Its memory is on another NUMA node than the VM's vCPUs, so each cache miss crosses nodes."
        }
        Measure::Devices => "Threads that serve the VM's devices waited for a pCPU.",
    }
}
