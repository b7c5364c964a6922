//! Does a domain that computes wait for others since these wake all the time?
//!
//! Xen's Credit lets a vCPU that wakes go before all that compute, as long as it has credits left (BOOST), until a tick finds it running. VMs that
//! wake often and run shortly keep that for ever. They get no more than their weights give; who computes is interrupted
//! by each of them, and waits out its time until they sleep.
//!
//! Source: xen/common/sched/credit.c of Xen 4.17 (`csched_unit_wake`, `csched_vcpu_acct`).

use super::{Context, Finding, Rule, count, millis, percent};
use crate::model::VmModel;
use crate::nouns::{Culprit, VmConfig};

/// See the file's head.
pub const RULE: Rule = Rule {
    name: "boost_starved",
    doc: "a domain that computes is interrupted by others that wake, whom Xen's Credit lets go first",
    check,
};

/// It wants a pCPU for more than this share of the time.
const COMPUTES: f64 = 0.80;
/// Fewer preemptions and wake-ups per second are no interruption.
const OFTEN_PER_S: f64 = 20.0;
/// A vCPU that runs for longer is found by a tick, ns.
const TICK_NS: f64 = 10e6;
/// Of its waits, so much is for them.
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
            count("preemptions", preempted, "/s", Some(OFTEN_PER_S)),
            percent("its ready share that is theirs", lost, Some(c.thresholds.ready_per_vcpu)),
        ];
        for (by, _) in &wakers {
            evidence.push(count(
                &format!("wake-ups of {:?}", by.name),
                per_s(by, |t| t.wakeups_per_s),
                "/s",
                None,
            ));
            evidence.extend(
                burst_ns(by)
                    .map(|ns| millis(&format!("{:?} runs at a time for", by.name), ns, Some(TICK_NS))),
            );
        }
        let names: Vec<String> = wakers.iter().map(|(by, _)| format!("{:?}", by.name)).collect();
        findings.push(Finding {
            rule: RULE.name.to_owned(),
            vm: Some(vm.id.clone()),
            title: format!("VM {:?} is interrupted {preempted:.0} times a second by {}", vm.name, names.join(", ")),
            explanation: "Xen's Credit lets a VM that wakes go before all that compute, and forgets it only when a tick finds it running: they \
                          run for less. Each time it loses its pCPU, and what it had in the caches."
                .into(),
            evidence,
            loss_pcpus: lost,
            disproved_by: "it is preempted as often in a pool of Credit2, which lets nobody go first for having woken".into(),
            next: format!(
                "a longer least time on the pCPU (xl sched-credit -s -p {} -r 5000, us), which they wait for; or Credit2",
                config.pool.as_ref().map_or("POOL", |p| p.name.as_str())
            ),
        });
    }
    findings
}

fn per_s(vm: &VmModel, of: fn(&crate::model::ThreadModel) -> Option<f64>) -> f64 {
    vm.vcpu_threads().filter_map(of).sum()
}

/// How long it runs at a time.
fn burst_ns(vm: &VmModel) -> Option<f64> {
    let switches = per_s(vm, |t| t.switches_per_s);
    (switches > 0.0).then(|| 1e9 * vm.vcpus.run.unwrap_or(0.0) / switches)
}

fn wakes(vm: &VmModel) -> bool {
    per_s(vm, |t| t.wakeups_per_s) >= OFTEN_PER_S && burst_ns(vm).is_some_and(|ns| ns < TICK_NS)
}
