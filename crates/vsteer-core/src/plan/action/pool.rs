//! Gives VMs whose weights have no effect a pool of the pCPUs that they are pinned to.
//!
//! Xen's Credit scheduler grants credits by weight over a whole pool. VMs pinned to some of its pCPUs get more
//! credits than they can use there, and take turns whatever their weights are. In a pool of just these pCPUs the
//! weights take effect, and the VMs run where they ran before. The action removes the pins first, because Xen would
//! break them: every VM in the pool may use all of it.
//!
//! vsteer does not know whether the weights are intended, so it proposes this action only on request (`--only pool`).

use super::{Action, Context, Propose};
use crate::CpuSet;
use crate::nouns::{CpuPool, MADE, VmConfig, pinned_alike};
use crate::setting;
use crate::setting::{Change, Step};

/// Gives VMs a pool of the pCPUs that they are pinned to.
pub const ACTION: Action = Action {
    name: "pool",
    doc: "give VMs that are pinned within a larger pool a pool of their own, so that their weights take \
        effect",
    severity: 3,
    asked_only: true,
    on_vsphere: false,
    propose: Propose::Directly(propose),
};

fn name_of(cpus: &CpuSet) -> String {
    format!("{MADE}{}", cpus.to_string().replace(',', "+"))
}

fn propose(c: &Context<'_>) -> Result<Vec<Step>, String> {
    let groups = pinned_alike(c.config);
    let (Some((from, cpus, vms)), None) = (groups.first(), groups.get(1)) else {
        return Err(match groups.len() {
            0 => "no VMs with different weights are pinned to the same pCPUs within a larger Credit \
                pool"
                .to_owned(),
            n => {
                format!(
                    "{n} sets of VMs are pinned to the same pCPUs each; vsteer makes a pool for one \
                    set only"
                )
            }
        });
    };
    let others = c.config.vms.iter().filter(|vm| !vms.iter().any(|of| of.id == vm.id));
    let uses = |vm: &&VmConfig| {
        vm.pool.as_ref().is_some_and(|p| p.name == from.name)
            && vm.vcpus().any(|t| t.affinity.iter().all(|cpu| cpus.contains(cpu)))
    };
    if let Some(other) = others.clone().find(uses) {
        return Err(format!("VM {:?} may run only on pCPUs {cpus} and would have no pCPU left", other.name));
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
            step(vm, change, "its pCPUs leave the pool, and Xen would break a pin to them")
        })
    });
    let moves = vms.iter().filter_map(|vm| {
        let change = Change::Pool(setting::Pool {
            from: Box::new((*from).clone()),
            to: Box::new(to.clone()),
            weight: vm.weight?,
            limit: vm.limits.whole_vm,
        });
        Some(step(vm, change, "its weight takes effect in a pool of only these pCPUs"))
    });
    Ok(unpins.chain(moves).collect())
}
