//! How is a step made on a KVM host? Through whoever owns the VM.
//!
//! libvirt's VMs are changed through libvirt, so that its own record stays true: live by its calls, persistently by
//! replacing the elements concerned in the definition ([`super::definition`]). A bare QEMU is changed by the kernel's
//! calls and its cgroup's files. Scheduling classes and real-time budgets are set directly for both: libvirt has no
//! live call for them. Proxmox is treated as bare for the running VM (untried); its definition is changed with `qm set`, by
//! the person. KubeVirt's VMs are not changed.
//!
//! A VM is moved to another host by libvirt ([`host`]).
//!
//! Left out: moving pages, and memory nodes of a running VM except where libvirt's mode is `restrictive`.

mod able;
mod host;
mod live;

use super::config;
use super::inventory::{Inventory, Thread};
use super::{definition, xml};
use crate::actuate::{Actuate, Capabilities, Former};
use crate::linux::task;
use crate::observe::KvmHost;
use serde_json::json;
use vsteer_core::nouns::{Manager, Role, SchedClass, Tid, VmConfig, VmId};
use vsteer_core::plan::{Change, QuotaScope, Scope, Step};
use vsteer_core::{Fault, FaultKind};

pub use able::proxmox_command;

/// A fault about a step.
fn fault(kind: FaultKind, step: &Step) -> Fault {
    Fault::new(kind, format!("VM {:?}: {}", step.vm_name, step.change))
}

fn changed(step: &Step, what: &str) -> Fault {
    fault(FaultKind::Changed, step).because(what).way_out("observe again and make a new plan")
}

/// The VM as it is now, with its threads.
struct Subject {
    vm: VmConfig,
    threads: Vec<Thread>,
}

impl Subject {
    fn find(inventory: &mut Inventory, id: &VmId, name: &str) -> Result<Subject, Fault> {
        let gone = || {
            Fault::new(FaultKind::NothingThere, format!("VM {name:?} ({id}) does not run here any more"))
                .way_out("observe again; what was changed in a VM that has stopped is gone with it")
        };
        inventory.refresh();
        let vm = inventory.vms.iter().find(|vm| vm.id == *id).ok_or_else(gone)?;
        let threads = inventory.threads_of(vm);
        let vm = config::vm(inventory, vm, &threads).ok_or_else(gone)?;
        Ok(Subject { vm, threads })
    }

    /// The process that lists a thread, checked to be the one that the step means.
    fn pid_of(&self, step: &Step, role: Role, tid: Tid) -> Result<u32, Fault> {
        let thread = self.threads.iter().find(|t| t.tid == tid);
        let thread = thread.ok_or_else(|| changed(step, &format!("its thread {} has ended", tid.0)))?;
        if thread.role != role {
            return Err(changed(step, &format!("thread {} is now {}", tid.0, thread.role)));
        }
        Ok(thread.pid)
    }

    /// The threads that an affinity step moves: `Emulator` stands for all that are neither vCPU nor I/O thread.
    fn moved(&self, role: Role, tid: Tid) -> Vec<&Thread> {
        let moves = |t: &&Thread| match role {
            Role::Emulator => !matches!(t.role, Role::Vcpu(_) | Role::IoThread(_)),
            _ => t.tid == tid,
        };
        self.threads.iter().filter(moves).collect()
    }

    fn own_cgroup(&self, step: &Step) -> Result<&str, Fault> {
        self.vm.cgroup.as_deref().ok_or_else(|| {
            fault(FaultKind::Unsupported, step)
                .because("it has no cgroup of its own with the cpu controller, so others would be changed with it")
                .way_out("start it through libvirt, or in a scope of its own: systemd-run --scope -p CPUWeight=100 qemu-…")
        })
    }
}

impl KvmHost {
    fn subject(&mut self, step: &Step) -> Result<Subject, Fault> {
        Subject::find(&mut self.inventory, &step.vm, &step.vm_name)
    }

    /// The live setting that a step is about, `from` being what is in force.
    fn current_of(&mut self, subject: &Subject, step: &Step) -> Result<Change, Fault> {
        let vm = &subject.vm;
        let unread =
            |what: &str| fault(FaultKind::Unsupported, step).because(format!("{what} cannot be read here"));
        Ok(match step.change.clone() {
            Change::Affinity { role, tid, to, .. } => {
                let pid = subject.pid_of(step, role, tid)?;
                let from = task::affinity(&self.inventory.root, pid, tid);
                Change::Affinity {
                    role,
                    tid,
                    from: from.ok_or_else(|| changed(step, "its thread has ended"))?,
                    to,
                }
            }
            Change::Weight { to, .. } => {
                let from = vm.weight.ok_or_else(|| unread("its weight"))?;
                Change::Weight { from, to }
            }
            Change::Quota { scope, to, .. } => {
                let mut limits = vm.limits;
                if let Some(sched) = live::schedinfo(&mut self.inventory, vm) {
                    limits = config::limits_of_libvirt(&sched);
                }
                let from = match scope {
                    QuotaScope::PerVcpu => limits.per_vcpu,
                    QuotaScope::Emulator => limits.emulator,
                    QuotaScope::WholeVm => limits.whole_vm,
                };
                Change::Quota { scope, from, to }
            }
            Change::RtBudget { cgroup, to_us, .. } => {
                let budget = vm.rt_budgets.iter().find(|b| b.cgroup == cgroup);
                let budget = budget.ok_or_else(|| {
                    changed(step, "that cgroup holds none of its threads, or has no real-time budget")
                })?;
                Change::RtBudget { from_us: budget.runtime_us, cgroup, to_us }
            }
            Change::Class { role, tid, to, .. } => {
                let pid = subject.pid_of(step, role, tid)?;
                let class = task::read_stat(&self.inventory.root, pid, tid).and_then(|s| s.class());
                Change::Class { role, tid, from: class.ok_or_else(|| unread("its class"))?, to }
            }
            Change::MemoryNodes { to, .. } => {
                // What libvirt says now, not when the VM was first seen.
                self.inventory.look()?;
                let from = Subject::find(&mut self.inventory, &step.vm, &step.vm_name)?.vm.memory_nodes;
                Change::MemoryNodes { from, to }
            }
            Change::Topology { to, .. } => {
                let from = match &vm.manager {
                    Manager::Libvirt(_) => {
                        let text = self.definition(subject, step)?;
                        xml::parse(&text).ok().and_then(|d| d.topology_shown())
                    }
                    _ => vm.guest_topology,
                };
                Change::Topology { from, to }
            }
            Change::Host { .. } => return Err(changed(step, "it is being moved")),
            Change::Pool { .. } => {
                return Err(fault(FaultKind::Unsupported, step).because(able::NO_POOLS));
            }
            Change::NodeAffinity { .. }
            | Change::VmAffinity { .. }
            | Change::ReservationMhz { .. }
            | Change::LimitMhz { .. }
            | Change::Latency { .. } => {
                return Err(fault(FaultKind::Unsupported, step).because(able::VSPHERES));
            }
            Change::Knob { .. } => return Err(fault(FaultKind::Unsupported, step).because(able::HOSTS)),
            Change::Preference { .. } | Change::Reservation { .. } => {
                return Err(fault(FaultKind::Unsupported, step).because(able::XENS));
            }
        })
    }

    /// The VM's definition, for changing it.
    fn definition(&mut self, subject: &Subject, step: &Step) -> Result<String, Fault> {
        self.libvirt(subject, step)?.definition(&subject.vm.id.0)
    }

    fn libvirt(&mut self, subject: &Subject, step: &Step) -> Result<&mut super::client::Client, Fault> {
        let Manager::Libvirt(uri) = &subject.vm.manager else {
            return Err(able::no_definition(&subject.vm, step));
        };
        self.inventory.client_for_writing(uri).ok_or_else(|| able::not_connected(step))
    }

    /// Replaces parts of the definition. Nothing is written where nothing differs.
    fn redefine(
        &mut self,
        subject: &Subject,
        step: &Step,
        edit: impl FnOnce(&str) -> Result<String, String>,
    ) -> Result<(), Fault> {
        let old = self.definition(subject, step)?;
        let new = edit(&old).map_err(|why| fault(FaultKind::Unsupported, step).because(why))?;
        if new == old {
            return Ok(());
        }
        let request = json!({ "op": "redefine", "uuid": subject.vm.id.0, "expect": old, "xml": new });
        self.libvirt(subject, step)?.ask(request).map(|_| ()).map_err(|f| live::refused_by_libvirt(f, step))
    }

    fn make(&mut self, step: &Step, scope: Scope) -> Result<(), Fault> {
        if let Some(made) = host::make(self, step) {
            return made;
        }
        let subject = self.subject(step)?;
        let (live, persistent) = effect(&step.change, scope);
        // The definition first: what is refused there leaves the running VM as it was.
        if persistent {
            self.redefine(&subject, step, |text| {
                definition::changed(text, &step.change).map(|(new, _)| new)
            })?;
        }
        if live {
            self.make_live(&subject, step)?;
        }
        Ok(())
    }

    fn make_live(&mut self, subject: &Subject, step: &Step) -> Result<(), Fault> {
        live::make(&mut self.inventory, subject, step)
    }
}

/// Where a change takes effect: a topology only in the definition, a real-time budget only in the running VM.
fn effect(change: &Change, scope: Scope) -> (bool, bool) {
    match change {
        Change::Topology { .. } => (scope == Scope::Live, scope.persistent()),
        Change::RtBudget { .. } => (scope.live(), scope == Scope::Persistent),
        _ => (scope.live(), scope.persistent()),
    }
}

impl Actuate for KvmHost {
    fn capabilities(&mut self, vm: &VmId) -> Result<Capabilities, Fault> {
        let subject = Subject::find(&mut self.inventory, vm, &vm.0)?;
        Ok(able::capabilities(&self.inventory, &subject.vm))
    }

    fn current(&mut self, step: &Step) -> Result<Change, Fault> {
        if let Some(current) = host::current(self, step) {
            return current;
        }
        let subject = self.subject(step)?;
        self.current_of(&subject, step)
    }

    fn former(&mut self, step: &Step, scope: Scope) -> Result<Former, Fault> {
        let subject = self.subject(step)?;
        let (live, persistent) = effect(&step.change, scope);
        able::check(&self.inventory, &subject.vm, step, live, persistent)?;
        if let Some(former) = host::former(self, step) {
            return former;
        }
        let mut former = Former::default();
        if live {
            former.live = Some(self.current_of(&subject, step)?);
            if let Change::Quota { scope, .. } = step.change {
                former.period_us = live::period_us(&mut self.inventory, &subject, scope);
            }
            if let Change::Affinity { role, tid, .. } = step.change {
                let inventory = &self.inventory;
                for t in subject.moved(role, tid) {
                    former
                        .affinities
                        .extend(task::affinity(&inventory.root, t.pid, t.tid).map(|a| (t.tid, a)));
                }
                former.cpusets = live::cpusets(inventory, &subject, role, tid);
            }
        }
        if persistent {
            let text = self.definition(&subject, step)?;
            let (_, before) = definition::changed(&text, &step.change)
                .map_err(|why| fault(FaultKind::Unsupported, step).because(why))?;
            former.definition = before;
        }
        Ok(former)
    }

    fn act(&mut self, step: &Step, scope: Scope) -> Result<(), Fault> {
        let former = self.former(step, scope)?;
        self.make(step, scope).map_err(|refused| match self.restore(step, &former) {
            Ok(()) => refused,
            // The VM has gone: there is nothing left to take back.
            Err(f) if f.kind == FaultKind::NothingThere => refused,
            Err(f) => {
                let cause = refused.cause.clone().unwrap_or_default();
                refused.because(format!("{cause}; and what was begun could not be taken back: {f}"))
            }
        })
    }

    fn restore(&mut self, step: &Step, former: &Former) -> Result<(), Fault> {
        if let Some(done) = host::restore(self, step, former) {
            return done;
        }
        // A cgroup may outlive the VM on whose behalf its budget was changed.
        if let Some(Change::RtBudget { cgroup, from_us, .. }) = &former.live {
            return live::budget(&self.inventory, step, cgroup, *from_us);
        }
        let subject = self.subject(step)?;
        if let Some(change) = &former.live
            && let Some(undo) = change.undo()
        {
            // Through the manager first, so that its record is right; then what its words could not say.
            let change = live::as_it_was_told(undo, &former.cpusets);
            self.make_live(&subject, &Step { change, ..step.clone() })?;
            live::put_back(&mut self.inventory, &subject, step, former)?;
        }
        if !former.definition.is_empty() {
            self.redefine(&subject, step, |text| {
                former
                    .definition
                    .iter()
                    .rev()
                    .try_fold(text.to_owned(), |text, part| definition::put(&text, part))
            })?;
        }
        Ok(())
    }
}

/// Does this class need a real-time budget where those exist?
fn needs_budget(class: SchedClass) -> bool {
    matches!(class, SchedClass::Fifo(_) | SchedClass::RoundRobin(_))
}
