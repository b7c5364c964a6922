//! Raises the CPU quota of VMs that stand still because of it, to what they ask for.
//!
//! A limit is somebody's decision, so this is proposed only when asked for by name, and only while the host has the
//! room.

use super::{Action, Context};
use crate::nouns::Quota;
use crate::setting;
use crate::setting::{Change, QuotaScope, Step};

/// See the file's head.
pub const ACTION: Action = Action {
    name: "quota",
    doc: "raise the CPU quota of VMs that are held by it, to what they ask for",
    severity: 1,
    asked_only: true,
    propose,
};

/// A VM whose vCPUs are held for more than this share of the time wants more than its quota.
const LIMITED: f64 = 0.02;
/// Granted beyond what was asked for while observed: a quota that just fits throttles every burst.
const ROOM: f64 = 1.25;

fn propose(c: &Context<'_>) -> Result<Vec<Step>, String> {
    let mut idle: f64 = c.model.pcpus.iter().map(|p| 1.0 - p.busy).sum();
    let mut steps = Vec::new();
    let mut too_full = Vec::new();
    for vm in &c.config.vms {
        let Some(seen) = c.model.vm(&vm.id) else { continue };
        let limited = seen.vcpus.limited.unwrap_or(0.0);
        let vcpus = vm.vcpu_count().max(1) as f64;
        if limited / vcpus < LIMITED {
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
            too_full.push(format!("{:?} wants {more:.1} pCPUs more, {idle:.1} idle", vm.name));
            continue;
        }
        idle -= more;
        let to =
            Quota { quota_us: libm::ceil(cpus * from.period_us as f64) as u64, period_us: from.period_us };
        let reason = format!("held for {:.0} % of the time, summed over its vCPUs", 100.0 * limited);
        let change = Change::Quota(setting::Quota { scope, from: Some(from), to: Some(to) });
        steps.push(Step { vm: vm.id.clone(), vm_name: vm.name.clone(), change, reason });
    }
    match (steps.is_empty(), too_full.is_empty()) {
        (false, _) => Ok(steps),
        (true, false) => Err(format!("the host has no room: {}", too_full.join("; "))),
        (true, true) => Err("no VM is held by a quota".to_owned()),
    }
}
