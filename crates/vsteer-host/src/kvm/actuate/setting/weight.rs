//! Sets a VM's CPU weight: through libvirt, or in its cgroup's file.

use super::{Able, Asked, KvmSetting};
use crate::actuate::Part;
use crate::kvm::actuate::help::NO_GROUP;
use crate::kvm::actuate::live::{set_sched, write};
use crate::kvm::actuate::{KvmHost, Subject, unread};
use crate::kvm::definition::tune;
use crate::kvm::inventory::Inventory;
use serde_json::json;
use vsteer_core::Fault;
use vsteer_core::nouns::{CpuWeight, Manager};
use vsteer_core::setting::{Change, Step, Weight};

impl KvmSetting for Weight {
    fn live(&self, asked: &Asked<'_>) -> Able {
        asked.vm.cgroup.as_ref().ok_or(NO_GROUP)?;
        self.defined(asked)
    }

    fn defined(&self, asked: &Asked<'_>) -> Able {
        match asked.vm.weight {
            Some(now) if !same_unit(now, self.to) => {
                Err("the weight is in the unit of the other cgroup version")
            }
            _ => Ok(()),
        }
    }

    fn current(&self, _: &mut KvmHost, subject: &Subject, step: &Step) -> Result<Change, Fault> {
        let from = subject.vm.weight.ok_or_else(|| unread(step, "the CPU weight"))?;
        Ok(Change::Weight(Weight { from, ..self.clone() }))
    }

    fn set(&self, inventory: &mut Inventory, subject: &Subject, step: &Step) -> Result<(), Fault> {
        let number = self.to.number();
        if let Manager::Libvirt(_) = subject.vm.manager {
            return set_sched(inventory, subject, step, &json!({ "cpu_shares": number }));
        }
        let file = if inventory.cgroups.is_unified() { "cpu.weight" } else { "cpu.shares" };
        write(inventory, step, subject.own_cgroup(step)?, file, &number.to_string())
    }

    fn parts(&self, _xml: &str) -> Result<Vec<Part>, String> {
        match self.to {
            CpuWeight::Shares(n) | CpuWeight::Weight(n) => Ok(vec![tune("shares", Some(n.to_string()))]),
            CpuWeight::Credit(_) => Err("the step holds a weight of Xen".to_owned()),
            CpuWeight::Esxi(_) => Err("the step holds shares of ESXi".to_owned()),
        }
    }
}

fn same_unit(a: CpuWeight, b: CpuWeight) -> bool {
    matches!(
        (a, b),
        (CpuWeight::Shares(_), CpuWeight::Shares(_)) | (CpuWeight::Weight(_), CpuWeight::Weight(_))
    )
}
