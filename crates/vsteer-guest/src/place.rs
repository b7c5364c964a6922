//! Where and how may a process of the emulated host run? Pins, cgroup and scheduling class, taken by itself at its start.
//!
//! A process that places itself before its threads begin needs nobody to chase its threads. The cgroups are version 2;
//! with a group per vCPU (as libvirt makes them) these are threaded groups below the VM's.
//!
//! Source: `man 7 sched`, `Documentation/admin-guide/cgroup-v2.rst` (Linux 6.18).
//!
//! Left out: making the groups and their settings, which is the host's part (host/cgroups.rs).

use rustix::thread::{CpuSet, Pid, sched_setaffinity};

/// A place to run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Place {
    /// pCPUs of the whole process; empty: any.
    pub cpus: Vec<usize>,
    /// pCPUs of each vCPU, where they differ: vCPU N has entry N.
    pub vcpu_cpus: Vec<Vec<usize>>,
    /// The cgroup's folder.
    pub cgroup: Option<String>,
    /// Each vCPU has a group `vcpuN` below the VM's, and the other threads one named `emulator`.
    pub group_per_vcpu: bool,
    /// The class of all threads.
    pub class: Class,
}

/// A scheduling class, as `man 7 sched` names them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Class {
    /// The default, at nice 0.
    #[default]
    Other,
    /// `SCHED_BATCH`.
    Batch,
    /// `SCHED_IDLE`.
    Idle,
    /// `SCHED_FIFO` at a priority.
    Fifo(i32),
    /// `SCHED_RR` at a priority.
    RoundRobin(i32),
    /// `SCHED_EXT`.
    Ext,
}

impl Class {
    /// Reads `other`, `batch`, `idle`, `ext`, `fifo:N`, `rr:N`.
    ///
    /// # Errors
    /// A sentence naming the word.
    pub fn parse(text: &str) -> Result<Class, String> {
        let priority = |n: &str| n.parse().ok().filter(|n| (1..=99).contains(n));
        let class = match text.split_once(':') {
            Some(("fifo", n)) => priority(n).map(Class::Fifo),
            Some(("rr", n)) => priority(n).map(Class::RoundRobin),
            Some(_) => None,
            None => match text {
                "other" => Some(Class::Other),
                "batch" => Some(Class::Batch),
                "idle" => Some(Class::Idle),
                "ext" => Some(Class::Ext),
                _ => None,
            },
        };
        class
            .ok_or_else(|| format!("`{text}` is not a class (other, batch, idle, ext, fifo:1..99, rr:1..99)"))
    }

    fn numbers(self) -> (i32, i32) {
        match self {
            Class::Other => (0, 0),
            Class::Fifo(priority) => (1, priority),
            Class::RoundRobin(priority) => (2, priority),
            Class::Batch => (3, 0),
            Class::Idle => (5, 0),
            Class::Ext => (7, 0),
        }
    }
}

/// Reads a list of pCPUs: `0`, `0-3`, `0,2`.
///
/// # Errors
/// A sentence naming the list.
pub fn cpu_list(text: &str) -> Result<Vec<usize>, String> {
    let bad = || format!("`{text}` is not a list of pCPUs (write 0-3 or 0,2)");
    let mut cpus = Vec::new();
    for part in text.split(',') {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        let (from, to): (usize, usize) = (from.parse().map_err(|_| bad())?, to.parse().map_err(|_| bad())?);
        if from > to || to >= CpuSet::MAX_CPU {
            return Err(bad());
        }
        cpus.extend(from..=to);
    }
    Ok(cpus)
}

impl Place {
    /// Takes the calling thread there, and with it all that it starts from now on.
    ///
    /// # Errors
    /// A sentence naming what was refused.
    pub fn take(&self) -> Result<(), String> {
        if let Some(group) = &self.cgroup {
            let below = if self.group_per_vcpu { "/emulator" } else { "" };
            enter(&format!("{group}{below}/cgroup.procs"))?;
        }
        pin(None, &self.cpus)?;
        set_class(self.class)
    }

    /// Takes the calling thread where this vCPU shall be.
    ///
    /// # Errors
    /// As [`Place::take`].
    pub fn take_as_vcpu(&self, vcpu: usize) -> Result<(), String> {
        if let (Some(group), true) = (&self.cgroup, self.group_per_vcpu) {
            enter(&format!("{group}/vcpu{vcpu}/cgroup.threads"))?;
        }
        pin(None, self.vcpu_cpus.get(vcpu).unwrap_or(&self.cpus))
    }

    /// Takes a thread of another process to the pCPUs of this vCPU.
    ///
    /// # Errors
    /// A sentence naming what was refused.
    pub fn take_vcpu(&self, vcpu: usize, thread: i32) -> Result<(), String> {
        pin(Pid::from_raw(thread), self.vcpu_cpus.get(vcpu).unwrap_or(&self.cpus))
    }
}

fn enter(file: &str) -> Result<(), String> {
    // 0: who writes.
    std::fs::write(file, "0").map_err(|e| format!("entering the cgroup by {file}: {e}"))
}

/// `None`: the calling thread.
fn pin(thread: Option<Pid>, cpus: &[usize]) -> Result<(), String> {
    if cpus.is_empty() {
        return Ok(());
    }
    let mut set = CpuSet::new();
    cpus.iter().for_each(|cpu| set.set(*cpu));
    sched_setaffinity(thread, &set).map_err(|e| format!("pinning to pCPUs {cpus:?}: {e}"))
}

#[allow(unsafe_code)]
fn set_class(class: Class) -> Result<(), String> {
    if class == Class::Other {
        return Ok(());
    }
    let (policy, sched_priority) = class.numbers();
    let parameters = libc::sched_param { sched_priority };
    // SAFETY: the structure is read during the call alone.
    let done = unsafe { libc::sched_setscheduler(0, policy, &raw const parameters) };
    match done {
        0 => Ok(()),
        _ => Err(format!("taking class {class:?}: {}", std::io::Error::last_os_error())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_pcpus() {
        assert_eq!(cpu_list("0-2,5"), Ok(vec![0, 1, 2, 5]));
        for bad in ["", "x", "3-1", "0,", "-1", "0-99999999"] {
            assert!(cpu_list(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn classes() {
        assert_eq!(Class::parse("fifo:10"), Ok(Class::Fifo(10)));
        assert_eq!(Class::parse("other").map(Class::numbers), Ok((0, 0)));
        for bad in ["", "fifo", "fifo:0", "rr:100", "other:1"] {
            assert!(Class::parse(bad).is_err(), "{bad}");
        }
    }
}
