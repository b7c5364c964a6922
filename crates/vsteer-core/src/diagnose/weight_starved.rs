//! Does a VM get less CPU time than another because its weight is smaller?

use super::{Context, Finding, Measure, Rule, count, percent};
use crate::model::VmModel;
use crate::nouns::{CpuWeight, VmConfig};
use crate::plural::counted;
use crate::setting::argv::shell_word;

pub const RULE: Rule = Rule {
    name: "weight_starved",
    doc: "a VM waits because another VM on its pCPUs has at least twice its \
        weight",
    explains: &[Measure::Ready, Measure::CoStop, Measure::WakeLatency],
    check,
};

/// A vCPU of the VM with the larger weight per vCPU ran for more than this multiple of a vCPU of this VM.
const RUNS_MORE: f64 = 1.25;

/// The command that plans this weight for the VM, as a multiple of the default.
fn raises(config: &VmConfig, to: f64) -> String {
    match config.weight.map(|weight| weight.with_relative(to)) {
        Some(CpuWeight::Esxi(shares)) => {
            format!("vsteer plan --set {}", shell_word(&format!("{}:weight={shares}", config.name)))
        }
        _ => "vsteer plan --only weights".to_owned(),
    }
}

/// A weight is the whole VM's: each of many vCPUs has a small part of it.
fn of_each_vcpu(
    c: &Context<'_>,
    (config, vm): (&VmConfig, &VmModel),
    (other, seen): (&VmConfig, &VmModel),
) -> Finding {
    let each = |vm: &VmConfig| vm.weight.map_or(1.0, CpuWeight::relative) / vm.vcpu_count().max(1) as f64;
    let run =
        |config: &VmConfig, vm: &VmModel| vm.vcpus.run.unwrap_or(0.0) / config.vcpu_count().max(1) as f64;
    Finding {
        rule: RULE.name.to_owned(),
        vm: Some(vm.id.clone()),
        title: format!(
            "VM {:?} waits because its {} share the weight of one VM; VM {:?} has more for each vCPU",
            vm.name,
            counted(config.vcpu_count(), "vCPU"),
            other.name
        ),
        explanation: "Busy pCPUs divide their time by weight, and a weight counts for the whole VM. A VM with many vCPUs \
            that all want to run gets as much as a VM with one vCPU of the same weight."
            .into(),
        evidence: vec![
            count("weight per vCPU of this VM, multiple of the default", each(config), "x", None),
            count("weight per vCPU of the other VM, multiple of the default", each(other), "x", None),
            percent("run share of this VM, per vCPU", run(config, vm), None),
            percent("run share of the other VM, per vCPU", run(other, seen), None),
            percent("ready share of this VM, summed over vCPUs", c.ready(vm), None),
        ],
        loss_pcpus: c.ready(vm),
        disproved_by: "with a weight in proportion to its vCPUs, the VM's run share does not change".into(),
        next: format!(
            "give the VM a weight in proportion to its vCPUs if it shall have as much for each: {}",
            raises(config, each(other) * config.vcpu_count().max(1) as f64)
        ),
        ..Finding::default()
    }
}

fn check(c: &Context<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (config, vm) in c.vms().filter(|(_, vm)| c.waits(vm)) {
        // A weight without effect is not the cause (see `dead_weight`).
        let works = config.weight.filter(|_| config.pinned_within().is_none());
        let Some(weight) = works.map(CpuWeight::relative) else { continue };
        let run = vm.vcpus.run.unwrap_or(0.0);
        let shares_pcpus = |other: &VmConfig| {
            other.id != config.id
                && other.vcpus().any(|a| config.vcpus().any(|b| a.affinity.intersects(&b.affinity)))
        };
        // A VM on the same pCPUs that ran more and has at least twice the weight.
        let stronger = c.vms().find(|(other, seen)| {
            other.weight.is_some_and(|w| w.relative() >= 2.0 * weight)
                && seen.vcpus.run.unwrap_or(0.0) > run
                && shares_pcpus(other)
        });
        let Some((other, seen)) = stronger else {
            let vcpus = config.vcpu_count().max(1) as f64;
            let each = c.vms().find(|(other, seen)| {
                let theirs = other.vcpu_count().max(1) as f64;
                other.weight.is_some_and(|w| w.relative() / theirs >= 2.0 * weight / vcpus)
                    && seen.vcpus.run.unwrap_or(0.0) / theirs > RUNS_MORE * run / vcpus
                    && shares_pcpus(other)
            });
            findings.extend(each.map(|other| of_each_vcpu(c, (config, vm), other)));
            continue;
        };
        findings.push(Finding {
            rule: RULE.name.to_owned(),
            vm: Some(vm.id.clone()),
            title: format!("VM {:?} waits because VM {:?} has a larger CPU weight", vm.name, other.name),
            explanation: "Busy pCPUs divide their time by weight. This VM wants more than its weight gives \
                it."
            .into(),
            evidence: vec![
                count("weight of this VM, multiple of the default", weight, "x", None),
                count(
                    "weight of the other VM, multiple of the \
                    default",
                    other.weight.map_or(1.0, CpuWeight::relative),
                    "x",
                    None,
                ),
                percent("run share of this VM, summed over vCPUs", run, None),
                percent("run share of the other VM, summed over vCPUs", seen.vcpus.run.unwrap_or(0.0), None),
                percent("ready share of this VM, summed over vCPUs", c.ready(vm), None),
            ],
            loss_pcpus: c.ready(vm),
            disproved_by: "with equal weights, the VM's run share does not change".into(),
            next: format!(
                "check whether the weight is intended; if not, run: {}",
                raises(config, other.weight.map_or(1.0, CpuWeight::relative))
            ),
            ..Finding::default()
        });
    }
    findings
}
