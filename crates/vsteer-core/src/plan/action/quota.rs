//! Raises the CPU quota of throttled VMs to what they ask for.
//!
//! A person set the quota, so vsteer proposes this action only on request (`--only quota`) and only if the host has
//! room.

use super::{Action, Context, Propose};
use crate::nouns::Quota;
use crate::setting;
use crate::setting::{Change, QuotaScope, Step};

pub const ACTION: Action = Action {
    name: "quota",
    doc: "raise the CPU quota of throttled VMs to what they ask for",
    severity: 1,
    asked_only: true,
    on_vsphere: false,
    propose: Propose::Directly(propose),
};

/// A VM wants more than its quota if its vCPUs are throttled for at least this share of the time.
const LIMITED: f64 = 0.02;
/// Factor on the observed demand. A quota without room throttles every burst.
const ROOM: f64 = 1.25;

fn propose(c: &Context<'_>) -> Result<Vec<Step>, String> {
    let mut idle: f64 = c.model.pcpus.iter().map(|p| 1.0 - p.busy).sum();
    let mut steps = Vec::new();
    let (mut too_full, mut above, mut unmeasured) = (Vec::new(), Vec::new(), Vec::new());
    for vm in &c.config.vms {
        let Some(seen) = c.model.vm(&vm.id) else { continue };
        if seen.limited().is_none() && seen.throttled_per_s.is_some_and(|times| times > 0.0) {
            unmeasured.push(format!("VM {:?}", vm.name));
        }
        let (limited, estimated) = seen.limited().unwrap_or((0.0, false));
        let vcpus = vm.vcpu_count().max(1) as f64;
        if limited / vcpus < LIMITED {
            continue;
        }
        if let Some(q) = seen.throttled_by_above(vm) {
            above.push(format!(
                "the quota of cgroup {} ({:.2} pCPUs) throttles VM {:?}",
                q.cgroup,
                q.quota.cpus(),
                vm.name
            ));
            continue;
        }
        let (scope, from, holders) = match (vm.limits.whole_vm, vm.limits.per_vcpu) {
            (Some(q), _) => (QuotaScope::WholeVm, q, 1.0),
            (None, Some(q)) => (QuotaScope::PerVcpu, q, vcpus),
            (None, None) => continue,
        };
        let asked = seen.vcpus.run.unwrap_or(0.0) + limited;
        let cpus = (ROOM * asked / holders).min(if scope == QuotaScope::WholeVm { vcpus } else { 1.0 });
        let more = (cpus - from.cpus()) * holders;
        if more <= 0.0 {
            continue;
        }
        if more > idle {
            too_full.push(format!(
                "VM {:?} needs {more:.1} more pCPUs, but only {idle:.1} are \
                idle",
                vm.name
            ));
            continue;
        }
        idle -= more;
        let to =
            Quota { quota_us: libm::ceil(cpus * from.period_us as f64) as u64, period_us: from.period_us };
        let about = if estimated { "about " } else { "" };
        let reason = format!(
            "its quota throttles it for {about}{:.0} % of the time, summed over its \
            vCPUs",
            100.0 * limited
        );
        let change = Change::Quota(setting::Quota { scope, from: Some(from), to: Some(to) });
        steps.push(Step { vm: vm.id.clone(), vm_name: vm.name.clone(), change, reason });
    }
    if !steps.is_empty() {
        return Ok(steps);
    }
    let mut why = Vec::new();
    if !too_full.is_empty() {
        why.push(format!("the host has no room for a larger quota: {}", too_full.join("; ")));
    }
    if !above.is_empty() {
        why.push(format!("{}: vsteer does not change it, because others share it", above.join("; ")));
    }
    if !unmeasured.is_empty() {
        why.push(format!(
            "a quota throttles {}, but for how long was not measured: record with --collector ebpf",
            unmeasured.join(", ")
        ));
    }
    Err(if why.is_empty() { "no quota throttles a VM".to_owned() } else { why.join(". ") })
}
