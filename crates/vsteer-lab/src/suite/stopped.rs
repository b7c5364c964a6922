//! How can a VM of a lab be alone without a boot of its own? The others stand still meanwhile (SIGSTOP).

use super::steered::failed;
use crate::contention::Lab;
use rustix::process::{Pid, Signal, kill_process};
use vsteer_core::Fault;

/// VMs that stand still. They go on where this is dropped.
pub struct Stopped(Vec<Pid>);

impl Stopped {
    /// All but this one.
    ///
    /// # Errors
    /// A VM cannot be stopped.
    pub fn all_but(lab: &Lab, vm: &str) -> Result<Stopped, Fault> {
        let others = lab.status().vms.into_iter().filter(|other| other.vm.name != vm);
        let pids: Vec<Pid> = others.filter_map(|other| Pid::from_raw(other.pid?)).collect();
        let stopped = Stopped(pids);
        for pid in &stopped.0 {
            kill_process(*pid, Signal::STOP).map_err(|e| failed(&format!("stopping VM {pid:?}: {e}")))?;
        }
        Ok(stopped)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        // One that has gone has nothing to go on with.
        for pid in &self.0 {
            let _ = kill_process(*pid, Signal::CONT);
        }
    }
}
