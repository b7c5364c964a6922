//! A thread's scheduling class.

use crate::CpuSet;
use crate::nouns::{Role, SchedClass, Tid, VmConfig};
use serde::{Deserialize, Serialize};
use std::fmt;

/// A thread's scheduling class.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Class {
    /// Role of the thread.
    pub role: Role,
    /// Its host thread id.
    pub tid: Tid,
    /// The former class.
    pub from: SchedClass,
    /// The new class.
    pub to: SchedClass,
}

from_to!(Class, from, to, same: [role, tid], |v: &SchedClass| v.to_string());

impl super::Apply for Class {
    fn apply_to(&self, vm: &mut VmConfig, _anywhere: &CpuSet) {
        vm.threads.iter_mut().filter(|t| t.tid == self.tid).for_each(|t| t.class = Some(self.to));
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: class {} -> {}", self.role, self.from, self.to)
    }
}
