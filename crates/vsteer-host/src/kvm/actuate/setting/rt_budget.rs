//! Sets a cgroup's real-time budget in the kernel's file, because libvirt has no call for it.

use super::{Able, Asked, KvmSetting};
use crate::actuate::Part;
use crate::kvm::actuate::help::BUDGET_LASTS;
use crate::kvm::actuate::live::write;
use crate::kvm::actuate::{KvmHost, Subject, changed};
use crate::kvm::inventory::Inventory;
use vsteer_core::Fault;
use vsteer_core::setting::{Change, RtBudget, Scope, Step};

const NOT_ITS: &str = "the cgroup holds none of the VM's threads, or has no real-time budget";

impl KvmSetting for RtBudget {
    fn live(&self, asked: &Asked<'_>) -> Able {
        if asked.vm.rt_budgets.is_empty() {
            return Err("this kernel has no real-time budgets per cgroup, so a class needs no budget here");
        }
        Ok(())
    }

    fn defined(&self, _asked: &Asked<'_>) -> Able {
        Err(BUDGET_LASTS)
    }

    /// Takes effect in the running VM only.
    fn effect(&self, scope: Scope) -> (bool, bool) {
        (scope.live(), scope == Scope::Persistent)
    }

    fn current(&self, _: &mut KvmHost, subject: &Subject, step: &Step) -> Result<Change, Fault> {
        let budget = subject.vm.rt_budgets.iter().find(|b| b.cgroup == self.cgroup);
        let budget = budget.ok_or_else(|| changed(step, NOT_ITS))?;
        Ok(Change::RtBudget(RtBudget { from_us: budget.runtime_us, ..self.clone() }))
    }

    fn set(&self, inventory: &mut Inventory, subject: &Subject, step: &Step) -> Result<(), Fault> {
        if !subject.vm.rt_budgets.iter().any(|b| b.cgroup == self.cgroup) {
            return Err(changed(step, NOT_ITS));
        }
        set_to(self, inventory, step, self.to_us)
    }

    fn parts(&self, _xml: &str) -> Result<Vec<Part>, String> {
        Err("a cgroup's real-time budget ends with the cgroup".into())
    }
}

/// Restores the former budget. The cgroup may outlive the VM for which it was changed.
pub(in crate::kvm::actuate) fn restore(
    budget: &RtBudget,
    inventory: &Inventory,
    step: &Step,
) -> Result<(), Fault> {
    set_to(budget, inventory, step, budget.from_us)
}

/// Is the cgroup gone, and its budget with it? False if cgroups are not visible.
pub(in crate::kvm::actuate) fn is_gone(budget: &RtBudget, inventory: &Inventory) -> bool {
    let file = inventory.cgroups.file(&budget.cgroup, "cpu.rt_runtime_us");
    let file = file.filter(|_| inventory.root.is_live());
    file.is_some_and(|file| matches!(std::path::Path::new(&file).try_exists(), Ok(false)))
}

fn set_to(budget: &RtBudget, inventory: &Inventory, step: &Step, us: i64) -> Result<(), Fault> {
    write(inventory, step, &budget.cgroup, "cpu.rt_runtime_us", &us.to_string())
}
