//! A cgroup's real-time budget (cgroup v1 with `RT_GROUP_SCHED`); parents come before children when raised.

use crate::CpuSet;
use crate::nouns::VmConfig;
use serde::{Deserialize, Serialize};
use std::fmt;

/// A cgroup's real-time budget (cgroup v1 with `RT_GROUP_SCHED`); parents come before children when raised.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RtBudget {
    /// The cgroup, as in `/proc/PID/cgroup`.
    pub cgroup: String,
    /// The former `cpu.rt_runtime_us`.
    pub from_us: i64,
    /// New `cpu.rt_runtime_us`.
    pub to_us: i64,
}

from_to!(shared; RtBudget, from_us, to_us, same: [cgroup], |v: &i64| format!("{v} µs"));

impl super::Apply for RtBudget {
    fn apply_to(&self, vm: &mut VmConfig, _anywhere: &CpuSet) {
        let its = vm.rt_budgets.iter_mut().filter(|b| b.cgroup == self.cgroup);
        its.for_each(|b| b.runtime_us = self.to_us);
    }
}

impl fmt::Display for RtBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "real-time budget of cgroup {}: {} -> {} µs", self.cgroup, self.from_us, self.to_us)
    }
}
