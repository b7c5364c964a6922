//! Makes a VM of a lab run alone without a separate boot, by stopping the others (SIGSTOP).

use super::steered::failed;
use crate::contention::Lab;
use rustix::process::{Pid, Signal, kill_process};
use vsteer_core::Fault;

/// Stopped VMs. They continue when this is dropped.
pub struct Stopped(Vec<Pid>);

impl Stopped {
    /// Stops all VMs except this one.
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
        // A process that is gone cannot continue, which is fine.
        for pid in &self.0 {
            let _ = kill_process(*pid, Signal::CONT);
        }
    }
}
