//! Sets a thread's affinity: through libvirt, or with the kernel's call for each thread that the step means.

use super::{Able, Asked, KvmSetting};
use crate::actuate::{Former, Part};
use crate::kvm::actuate::live::{ask, cpusets, not_moved};
use crate::kvm::actuate::{KvmHost, Subject, changed, fault};
use crate::kvm::definition::pin;
use crate::kvm::inventory::Inventory;
use crate::linux::cpuset::{Process, bounds};
use crate::linux::{sched, task};
use rustix::io::Errno;
use serde_json::{Value, json};
use vsteer_core::nouns::{Manager, Role};
use vsteer_core::setting::{Affinity, Change, Step};
use vsteer_core::{Fault, FaultKind};

/// How often to read the list of threads again while new ones appear.
const WALKS_MAX: u32 = 5;

impl KvmSetting for Affinity {
    fn live(&self, asked: &Asked<'_>) -> Able {
        self.defined(asked)
    }

    fn defined(&self, asked: &Asked<'_>) -> Able {
        if asked.of_libvirt && matches!(self.role, Role::Vhost | Role::Worker) {
            return Err("libvirt pins this thread together with the emulator");
        }
        Ok(())
    }

    fn current(&self, host: &mut KvmHost, subject: &Subject, step: &Step) -> Result<Change, Fault> {
        let pid = subject.pid_of(step, self.role, self.tid)?;
        let from = task::affinity(&host.inventory.root, pid, self.tid);
        let from = from.ok_or_else(|| changed(step, "the thread has ended"))?;
        Ok(Change::Affinity(Affinity { from, ..self.clone() }))
    }

    fn set(&self, inventory: &mut Inventory, subject: &Subject, step: &Step) -> Result<(), Fault> {
        let pid = subject.pid_of(step, self.role, self.tid)?;
        if self.to.is_empty() {
            return Err(fault(FaultKind::BadInput, step).because("the step names no pCPU"));
        }
        if let Manager::Libvirt(_) = subject.vm.manager {
            return ask(inventory, subject, step, for_libvirt(self, subject));
        }
        if let Some(bound) = bounds(&inventory.root, Process::Pid(pid)).cpus
            && !self.to.is_subset(&bound)
        {
            return Err(fault(FaultKind::NotApplied, step)
                .because(format!("the thread's cgroup allows only pCPUs {bound}"))
                .help("choose among these pCPUs, or widen cpuset.cpus of the cgroup"));
        }
        move_all(self, inventory, step)
    }

    fn keep(&self, inventory: &mut Inventory, subject: &Subject, former: &mut Former) {
        for t in subject.moved(self.role, self.tid) {
            former.affinities.extend(task::affinity(&inventory.root, t.pid, t.tid).map(|a| (t.tid, a)));
        }
        former.cpusets = cpusets(inventory, subject, self.role, self.tid);
    }

    fn parts(&self, _xml: &str) -> Result<Vec<Part>, String> {
        Ok(vec![pin(self.role, &self.to)?])
    }
}

fn for_libvirt(affinity: &Affinity, subject: &Subject) -> Value {
    let cpus: Vec<u32> = affinity.to.iter().collect();
    let mut request = json!({ "uuid": subject.vm.id.0, "cpus": cpus, "live": true, "persistent": false });
    match affinity.role {
        Role::Vcpu(n) => (request["op"], request["vcpu"]) = (json!("pin_vcpu"), json!(n)),
        Role::IoThread(n) => (request["op"], request["iothread"]) = (json!("pin_iothread"), json!(n)),
        _ => request["op"] = json!("pin_emulator"),
    }
    request
}

/// Moves every thread that the step means. A thread that has not moved yet may create another, so this
/// repeats until none is left to move.
fn move_all(affinity: &Affinity, inventory: &mut Inventory, step: &Step) -> Result<(), Fault> {
    for _ in 0..WALKS_MAX {
        let threads = Subject::find(inventory, &step.vm, &step.vm_name)?;
        let mut moved = false;
        for t in threads.moved(affinity.role, affinity.tid) {
            if task::affinity(&inventory.root, t.pid, t.tid).is_none_or(|now| now == affinity.to) {
                continue;
            }
            match sched::set_affinity(t.tid, &affinity.to) {
                Ok(()) => moved = true,
                Err(Errno::SRCH) if t.tid != affinity.tid => {}
                Err(errno) => return Err(not_moved(step, t.tid, errno)),
            }
        }
        if !moved {
            break;
        }
    }
    Ok(())
}
