//! Does a domain that computes wait because other domains wake all the time?
//!
//! Xen's Credit scheduler runs a waking vCPU before all vCPUs that compute, if it has credits left (BOOST). It
//! loses BOOST when a tick finds it running. VMs that wake often and run briefly keep BOOST forever. They get no
//! more than their weights give, but each of them interrupts the computing domain, which waits until they sleep.
//!
//! Source: xen/common/sched/credit.c of Xen 4.17 (`csched_unit_wake`, `csched_vcpu_acct`).

use super::{Context, Finding, Measure, Rule, count, millis, percent};
use crate::model::VmModel;
use crate::nouns::{Culprit, VmConfig};

pub const RULE: Rule = Rule {
    name: "boost_starved",
    doc: "domains that wake often interrupt a domain that computes, because Xen's Credit runs them first",
    explains: &[Measure::Ready, Measure::WakeLatency],
    check,
};

/// A domain computes if it wants a pCPU for at least this share of the time.
const COMPUTES: f64 = 0.80;
/// Least rate of preemptions and wake-ups that counts as an interruption, per second.
const OFTEN_PER_S: f64 = 20.0;
/// Credit's tick, ns. A vCPU that runs longer loses BOOST.
const TICK_NS: f64 = 10e6;
/// Least part of the domain's waits that the waking domains must cause.
const MOST: f64 = 0.5;

fn check(c: &Context<'_>) -> Vec<Finding> {
    let is_credit = |config: &VmConfig| {
        config.manager.is_xen() && config.pool.as_ref().is_some_and(|p| p.scheduler == "credit")
    };
    let mut findings = Vec::new();
    for (config, vm) in c.vms().filter(|(config, _)| is_credit(config)) {
        let wants = vm.per_vcpu(|s| Some(s.run? + s.ready?)).unwrap_or(0.0);
        let preempted = per_s(vm, |t| t.preemptions_per_s);
        if wants < COMPUTES || preempted < OFTEN_PER_S || !c.waits(vm) {
            continue;
        }
        let blame = c.model.blame.iter().flatten().filter(|b| b.victim == vm.id);
        let wakers: Vec<(&VmModel, f64)> = blame
            .filter_map(|b| match &b.culprit {
                Culprit::Vm(by) if *by != vm.id => Some((c.model.vm(by)?, b.share)),
                _ => None,
            })
            .filter(|(by, _)| wakes(by) && c.config.vm(&by.id).is_some_and(|by| by.pool == config.pool))
            .collect();
        let lost: f64 = wakers.iter().map(|(_, share)| share).sum();
        if lost < c.thresholds.ready_per_vcpu || lost < MOST * c.ready(vm) {
            continue;
        }
        let mut evidence = vec![
            count("preemptions of this VM", preempted, "/s", Some(OFTEN_PER_S)),
            percent("ready share of this VM that these VMs cause", lost, Some(c.thresholds.ready_per_vcpu)),
        ];
        for (by, _) in &wakers {
            evidence.push(count(
                &format!("wake-ups of VM {:?}", by.name),
                per_s(by, |t| t.wakeups_per_s),
                "/s",
                None,
            ));
            evidence.extend(burst_ns(by).map(|ns| {
                millis(
                    &format!(
                        "mean run time per wake-up of VM \
                        {:?}",
                        by.name
                    ),
                    ns,
                    Some(TICK_NS),
                )
            }));
        }
        let names: Vec<String> = wakers.iter().map(|(by, _)| format!("{:?}", by.name)).collect();
        findings.push(Finding {
            rule: RULE.name.to_owned(),
            vm: Some(vm.id.clone()),
            title: format!(
                "other VMs preempt VM {:?} {preempted:.0} times a second: \
                {}",
                vm.name,
                names.join(", ")
            ),
            explanation: "Xen's Credit scheduler runs a waking VM before all VMs that compute, until a \
                tick finds it running. These VMs run for less than a tick, so they always come first. Each \
                time this VM loses its pCPU and its cache contents."
                .into(),
            evidence,
            loss_pcpus: lost,
            disproved_by: "in a Credit2 pool, which gives waking VMs no priority, the VM is preempted as \
                often"
                .into(),
            next: format!(
                "raise the scheduler's minimum run time to 5000 us (xl sched-credit -s -p {} -r 5000), so \
                    that waking VMs wait longer; or use Credit2",
                config.pool.as_ref().map_or("POOL", |p| p.name.as_str())
            ),
            ..Finding::default()
        });
    }
    findings
}

fn per_s(vm: &VmModel, of: fn(&crate::model::ThreadModel) -> Option<f64>) -> f64 {
    vm.vcpu_threads().filter_map(of).sum()
}

/// Mean time that a VM runs per switch, ns.
fn burst_ns(vm: &VmModel) -> Option<f64> {
    let switches = per_s(vm, |t| t.switches_per_s);
    (switches > 0.0).then(|| 1e9 * vm.vcpus.run.unwrap_or(0.0) / switches)
}

fn wakes(vm: &VmModel) -> bool {
    per_s(vm, |t| t.wakeups_per_s) >= OFTEN_PER_S && burst_ns(vm).is_some_and(|ns| ns < TICK_NS)
}
