//! A CPU bandwidth limit.

use crate::CpuSet;
use crate::nouns::Quota as Limit;
use crate::nouns::VmConfig;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Which threads of a VM a quota holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QuotaScope {
    /// Each vCPU by itself.
    PerVcpu,
    /// The emulator threads together.
    Emulator,
    /// All of the VM together.
    WholeVm,
}

/// A CPU bandwidth limit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quota {
    /// Which of the VM's limits.
    pub scope: QuotaScope,
    /// The former limit; `None`: none.
    pub from: Option<Limit>,
    /// The new limit; `None`: none.
    pub to: Option<Limit>,
}

from_to!(Quota, from, to, same: [scope], |v: &Option<Limit>| v.map_or("no limit".to_owned(), |q| format!("{}/{} µs", q.quota_us, q.period_us)));

impl super::Apply for Quota {
    fn apply_to(&self, vm: &mut VmConfig, _anywhere: &CpuSet) {
        match self.scope {
            QuotaScope::PerVcpu => vm.limits.per_vcpu = self.to,
            QuotaScope::Emulator => vm.limits.emulator = self.to,
            QuotaScope::WholeVm => vm.limits.whole_vm = self.to,
        }
    }
}

impl fmt::Display for Quota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let limit = |q: &Option<Limit>| match q {
            None => "none".to_owned(),
            Some(q) => format!("{:.2} CPUs ({}/{} µs)", q.cpus(), q.quota_us, q.period_us),
        };
        let of = match self.scope {
            QuotaScope::PerVcpu => "each vCPU",
            QuotaScope::Emulator => "emulator",
            QuotaScope::WholeVm => "whole VM",
        };
        write!(f, "limit of {of}: {} -> {}", limit(&self.from), limit(&self.to))
    }
}
