//! The host that runs the VM.

use super::Setting;
use crate::CpuSet;
use crate::nouns::VmConfig;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The host that runs the VM. The VM moves while it runs, together with its definition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Host {
    /// The connection URI of the former host's manager.
    pub from: String,
    /// The connection URI of the new host's manager, as seen from this host.
    pub to: String,
    /// pCPUs for its threads on the new host; `None`: the same as on this host.
    pub cpus: Option<CpuSet>,
}

impl Setting for Host {
    fn undo(&self) -> Option<Host> {
        Some(Host { from: self.to.clone(), to: self.from.clone(), cpus: None })
    }

    fn before(&self) -> String {
        format!("host {}", self.from)
    }

    fn after(&self) -> String {
        format!("host {}", self.to)
    }

    fn same_target(&self, _other: &Host) -> bool {
        true
    }

    fn same_before(&self, other: &Host) -> bool {
        self.from == other.from
    }

    fn is_reached(&self, current: &Host) -> bool {
        current.from == self.to
    }

    fn uris(&self) -> Vec<&str> {
        vec![&self.from, &self.to]
    }

    fn unread(&self) -> Option<&'static str> {
        Some("a dry run opens no connection that the plan names")
    }
}

impl super::Apply for Host {
    fn apply_to(&self, _vm: &mut VmConfig, _anywhere: &CpuSet) {
        // The VM leaves this host. The code that plans the move makes the forecast.
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let there = self.cpus.as_ref().map_or(String::new(), |cpus| format!(" (pCPUs {cpus} there)"));
        write!(f, "host: {} -> {}{there}", self.from, self.to)
    }
}
