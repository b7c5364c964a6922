//! The vCPU topology that the guest sees.

use crate::CpuSet;
use super::Setting;
use crate::nouns::{GuestTopology, VmConfig};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The vCPU topology that the guest sees; takes effect at the VM's next start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Topology {
    /// Former topology; `None`: the default.
    pub from: Option<GuestTopology>,
    /// New topology.
    pub to: GuestTopology,
}

impl Setting for Topology {
    fn undo(&self) -> Option<Topology> {
        Some(Topology { from: Some(self.to), to: self.from? })
    }

    fn before(&self) -> String {
        format!("{:?}", self.from)
    }

    fn after(&self) -> String {
        format!("{:?}", Some(self.to))
    }

    fn same_target(&self, _other: &Topology) -> bool {
        true
    }

    fn same_before(&self, other: &Topology) -> bool {
        self.from == other.from
    }

    fn is_reached(&self, current: &Topology) -> bool {
        current.from == Some(self.to)
    }
}

impl super::Apply for Topology {
    fn apply_to(&self, vm: &mut VmConfig, _anywhere: &CpuSet) {
        vm.guest_topology = Some(self.to);
    }
}

impl fmt::Display for Topology {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |t: &GuestTopology| format!("{}x{}x{}", t.sockets, t.cores, t.threads);
        let from = self.from.as_ref().map_or("default".to_owned(), text);
        write!(f, "guest topology (sockets x cores x threads): {from} -> {}, at its next \
            start", text(&self.to))
    }
}
