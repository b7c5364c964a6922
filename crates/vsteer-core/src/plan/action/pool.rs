//! Gives VMs whose weights do nothing a pool of the pCPUs that they are pinned to.
//!
//! Xen's Credit deals out credits by weight over a whole pool. VMs that are pinned to some of its pCPUs have more of them than they can use, and
//! take turns whatever their weights are. In a pool of just these pCPUs the weights hold, and nothing else of where they run changes. The
//! pins are taken away first, since Xen would break them: whoever is in the pool may use all of it.
//!
//! Whether the weights are what somebody wants is not known, so it is proposed only when asked for.

use super::{Action, Context};
use crate::CpuSet;
use crate::nouns::{CpuPool, MADE, VmConfig, pinned_alike};
use crate::setting;
use crate::setting::{Change, Step};

/// See the file's head.
pub const ACTION: Action = Action {
    name: "pool",
    doc: "give VMs whose weights do nothing, since they are pinned within a larger pool, a pool of their pCPUs",
    severity: 3,
    asked_only: true,
    propose,
};

/// The name of the pool that is made of these pCPUs.
fn name_of(cpus: &CpuSet) -> String {
    format!("{MADE}{}", cpus.to_string().replace(',', "+"))
}

fn propose(c: &Context<'_>) -> Result<Vec<Step>, String> {
    let groups = pinned_alike(c.config);
    let (Some((from, cpus, vms)), None) = (groups.first(), groups.get(1)) else {
        return Err(match groups.len() {
            0 => "no VMs with different weights are pinned alike within a larger pool of Credit".to_owned(),
            n => {
                format!("{n} sets of VMs are pinned alike: which pools there shall be is for a person to say")
            }
        });
    };
    let others = c.config.vms.iter().filter(|vm| !vms.iter().any(|of| of.id == vm.id));
    let uses = |vm: &&VmConfig| {
        vm.pool.as_ref().is_some_and(|p| p.name == from.name)
            && vm.vcpus().any(|t| t.affinity.iter().all(|cpu| cpus.contains(cpu)))
    };
    if let Some(other) = others.clone().find(uses) {
        return Err(format!("VM {:?} may run on pCPUs {cpus} alone and would have none left", other.name));
    }
    let to = CpuPool { name: name_of(cpus), cpus: cpus.clone(), ..(*from).clone() };
    let step = |vm: &VmConfig, change, reason: &str| Step {
        vm: vm.id.clone(),
        vm_name: vm.name.clone(),
        change,
        reason: reason.to_owned(),
    };
    let unpins = vms.iter().flat_map(|vm| {
        vm.vcpus().map(|t| {
            let change = Change::Affinity(setting::Affinity {
                role: t.role,
                tid: t.tid,
                from: t.affinity.clone(),
                to: from.cpus.clone(),
            });
            step(vm, change, "its pCPUs leave the pool: a pin to them would be broken")
        })
    });
    let moves = vms.iter().filter_map(|vm| {
        let change = Change::Pool(setting::Pool {
            from: Box::new((*from).clone()),
            to: Box::new(to.clone()),
            weight: vm.weight?,
            limit: vm.limits.whole_vm,
        });
        Some(step(vm, change, "in a pool of these pCPUs alone its weight holds"))
    });
    Ok(unpins.chain(moves).collect())
}
