//! A setting of the host as text: a kernel file, tuned's profile, or a value that commands set and read.

use crate::CpuSet;
use super::Setting;
use super::knob::{How, Knob};
use crate::nouns::VmConfig;
use serde::{Deserialize, Serialize};
use std::fmt;

/// A setting of the host as text: a kernel file, tuned's profile, or a value that commands set and read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostKnob {
    /// The setting, with how to set and read it.
    pub knob: Box<Knob>,
    /// The former value.
    pub from: String,
    /// New value.
    pub to: String,
}

impl Setting for HostKnob {
    fn undo(&self) -> Option<HostKnob> {
        Some(HostKnob { knob: self.knob.clone(), from: self.to.clone(), to: self.from.clone() })
    }

    fn before(&self) -> String {
        format!("{:?}", self.from)
    }

    fn after(&self) -> String {
        format!("{:?}", self.to)
    }

    // Plans give each setting of the host its own VM id, so this is the same setting.
    fn same_target(&self, _other: &HostKnob) -> bool {
        true
    }

    fn same_before(&self, other: &HostKnob) -> bool {
        self.from == other.from
    }

    fn is_reached(&self, current: &HostKnob) -> bool {
        current.from == self.to
    }

    fn uris(&self) -> Vec<&str> {
        match &self.knob.how {
            How::Definition { connect, .. } => vec![connect],
            _ => Vec::new(),
        }
    }

    fn touches(&self) -> Vec<String> {
        self.knob.touches(&self.to)
    }

    fn unread(&self) -> Option<&'static str> {
        self.knob.unread()
    }
}

impl super::Apply for HostKnob {
    fn apply_to(&self, _vm: &mut VmConfig, _anywhere: &CpuSet) {
        // A setting of the host does not change the configuration of a VM.
    }
}

impl fmt::Display for HostKnob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {:?} -> {:?}", self.knob.name, self.from, self.to)
    }
}
