//! The name of a recorded thread in an export: its VM and role, otherwise its own name.

use crate::folder::Recording;
use crate::task::{Task, Tasks};
use std::collections::BTreeMap;
use vsteer_core::nouns::{Tid, VmId};

pub(super) struct Names<'a> {
    pub(super) vms: BTreeMap<&'a VmId, &'a str>,
    pub(super) tasks: Tasks,
}

impl<'a> Names<'a> {
    pub(super) fn of_recording(recording: &'a Recording) -> Names<'a> {
        let vms = recording.configs.iter().flat_map(|c| &c.config.vms).map(|v| (&v.id, v.name.as_str()));
        Names { vms: vms.collect(), tasks: recording.tasks() }
    }

    pub(super) fn of_task(&self, t: &Task) -> String {
        match (t.vm.as_ref().and_then(|id| self.vms.get(id)), t.role) {
            (Some(vm), Some(role)) => format!("{vm} {role}"),
            _ => t.comm.clone(),
        }
    }

    pub(super) fn of(&self, tid: Tid, ns: u64) -> String {
        match self.tasks.at(tid, ns) {
            _ if tid.0 == 0 => "swapper".to_owned(),
            Some(t) => self.of_task(t),
            None => format!("thread {}", tid.0),
        }
    }
}
