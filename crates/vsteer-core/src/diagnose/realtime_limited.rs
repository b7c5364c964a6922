//! Does a budget for real-time threads hold a VM: that of one of its cgroups, or the kernel's for all of them?
//!
//! Real-time threads do not obey quotas. Where the kernel budgets real time per cgroup, threads of a cgroup that has used up
//! `cpu.rt_runtime_us` stop until the next period, on each pCPU for itself. Before Linux 6.12 all real-time threads of a
//! pCPU have a budget together, 95 % unless set otherwise.
//!
//! Source: `Documentation/scheduler/sched-rt-group.rst`, kernel/sched/rt.c (Linux 6.12).

use super::{Context, Finding, Measure, Rule, count, percent};
use crate::model::VmModel;
use crate::nouns::{RtBudget, SchedClass, VmConfig, VmThread};

pub const RULE: Rule = Rule {
    name: "realtime_limited",
    doc: "a budget for real-time threads throttles a VM",
    explains: &[Measure::Limited, Measure::WakeLatency],
    check,
};

/// The VM's real-time threads that obey budgets. Deadline threads have their own.
fn realtime(config: &VmConfig) -> impl Iterator<Item = &VmThread> {
    config.threads.iter().filter(|t| matches!(t.class, Some(SchedClass::Fifo(_) | SchedClass::RoundRobin(_))))
}

/// Limited share of the VM's real-time threads, summed.
pub(super) fn share(config: &VmConfig, vm: &VmModel) -> f64 {
    let of = |t: &VmThread| vm.threads.iter().find(|m| m.tid == t.tid)?.shares.limited;
    realtime(config).filter_map(of).sum()
}

fn pcpus(budget: &RtBudget) -> Option<f64> {
    let runtime_us = u64::try_from(budget.runtime_us).ok()?;
    (budget.period_us > 0).then(|| runtime_us as f64 / budget.period_us as f64)
}

/// The smallest budget that holds a real-time thread of the VM.
fn smallest(config: &VmConfig) -> Option<(&RtBudget, f64)> {
    let holds = |above: &str, t: &VmThread| {
        let rest = t.cgroup.as_deref().and_then(|c| c.strip_prefix(above.trim_end_matches('/')));
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    let all = config.rt_budgets.iter().filter(|b| realtime(config).any(|t| holds(&b.cgroup, t)));
    all.filter_map(|b| Some((b, pcpus(b)?))).min_by(|(_, a), (_, b)| a.total_cmp(b))
}

fn check(c: &Context<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (config, vm) in c.vms() {
        let limited = share(config, vm);
        if limited <= c.thresholds.limited_per_vcpu {
            continue;
        }
        let budget = smallest(config);
        let whose = match budget {
            Some((b, _)) => format!("the real-time budget of cgroup {}", b.cgroup),
            None => "the kernel's budget for real-time threads".to_owned(),
        };
        let mut evidence =
            vec![percent("limited share of the VM's real-time threads, summed", limited, None)];
        evidence
            .extend(budget.map(|(_, pcpus)| count("real-time budget on each pCPU", pcpus, "pCPUs", None)));
        findings.push(Finding {
            rule: RULE.name.to_owned(),
            vm: Some(vm.id.clone()),
            title: format!("{whose} throttles VM {:?}", vm.name),
            explanation: "Real-time threads of the VM want more CPU time than their budget grants. When it is used up, \
                they stop until the next period, even on an idle host. This is limited time, not ready time: no \
                other VM causes it."
                .into(),
            evidence,
            loss_pcpus: limited,
            disproved_by: "with a larger budget, the threads' limited time does not fall".into(),
            next: match budget {
                Some((b, _)) => format!(
                    "raise cpu.rt_runtime_us of {}, or give the threads an ordinary class (chrt -o -p 0 TID)",
                    b.cgroup
                ),
                None => "raise kernel.sched_rt_runtime_us, or give the threads an ordinary class (chrt -o -p 0 TID)"
                    .into(),
            },
            ..Finding::default()
        });
    }
    findings
}
