//! Sets a CPU limit: through libvirt, or in the file of the VM's cgroup.

use super::{Able, Asked, KvmSetting};
use crate::actuate::{Former, Part};
use crate::kvm::actuate::help::NO_GROUP;
use crate::kvm::actuate::live::{name_of, period_us, schedinfo, set_sched, write};
use crate::kvm::actuate::{KvmHost, Subject, fault};
use crate::kvm::config;
use crate::kvm::definition::tune;
use crate::kvm::inventory::Inventory;
use serde_json::{Value, json};
use vsteer_core::nouns::{Manager, Quota as Limit};
use vsteer_core::setting::{Change, Quota, QuotaScope, Step};
use vsteer_core::{Fault, FaultKind};

impl KvmSetting for Quota {
    fn live(&self, asked: &Asked<'_>) -> Able {
        if self.scope != QuotaScope::WholeVm && !asked.of_libvirt {
            return Err("the VM has no cgroup per vCPU: limit the whole VM");
        }
        asked.vm.cgroup.as_ref().map(|_| ()).ok_or(NO_GROUP)
    }

    fn current(&self, host: &mut KvmHost, subject: &Subject, _: &Step) -> Result<Change, Fault> {
        let sched = schedinfo(&mut host.inventory, &subject.vm);
        let limits = sched.map_or(subject.vm.limits, |sched| config::limits_of_libvirt(&sched));
        let from = match self.scope {
            QuotaScope::PerVcpu => limits.per_vcpu,
            QuotaScope::Emulator => limits.emulator,
            QuotaScope::WholeVm => limits.whole_vm,
        };
        Ok(Change::Quota(Quota { from, ..self.clone() }))
    }

    fn set(&self, inventory: &mut Inventory, subject: &Subject, step: &Step) -> Result<(), Fault> {
        if let Manager::Libvirt(_) = subject.vm.manager {
            return set_sched(inventory, subject, step, &for_libvirt(self));
        }
        if self.scope != QuotaScope::WholeVm {
            return Err(fault(FaultKind::Unsupported, step).because("the VM has no cgroup per vCPU"));
        }
        let own = subject.own_cgroup(step)?;
        if inventory.cgroups.is_unified() {
            let text = self.to.map_or("max".to_owned(), |q| format!("{} {}", q.quota_us, q.period_us));
            return write(inventory, step, own, "cpu.max", &text);
        }
        let Some(q) = self.to else { return write(inventory, step, own, "cpu.cfs_quota_us", "-1") };
        // The kernel checks quota against period at each write, so only one of the two orders may be
        // accepted.
        let period = || write(inventory, step, own, "cpu.cfs_period_us", &q.period_us.to_string());
        let quota = || write(inventory, step, own, "cpu.cfs_quota_us", &q.quota_us.to_string());
        period().and_then(|()| quota()).or_else(|_| quota().and_then(|()| period()))
    }

    fn keep(&self, inventory: &mut Inventory, subject: &Subject, former: &mut Former) {
        former.period_us = period_us(inventory, subject, self.scope);
    }

    fn parts(&self, _xml: &str) -> Result<Vec<Part>, String> {
        let prefix = match self.scope {
            QuotaScope::PerVcpu => "",
            QuotaScope::Emulator => "emulator_",
            QuotaScope::WholeVm => "global_",
        };
        let of = |value: fn(&Limit) -> u64| self.to.as_ref().map(|q| value(q).to_string());
        Ok(vec![
            tune(&format!("{prefix}period"), of(|q| q.period_us)),
            tune(&format!("{prefix}quota"), of(|q| q.quota_us)),
        ])
    }
}

fn for_libvirt(quota: &Quota) -> Value {
    let name = name_of(quota.scope);
    let mut params = serde_json::Map::new();
    let quota_us = quota.to.map_or(-1, |q| i64::try_from(q.quota_us).unwrap_or(i64::MAX));
    params.insert(format!("{name}_quota"), json!(quota_us));
    if let Some(q) = quota.to {
        params.insert(format!("{name}_period"), json!(q.period_us));
    }
    Value::Object(params)
}
