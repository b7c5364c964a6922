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

use super::client::Client;
use super::config;
use super::inventory::{Inventory, Thread};
use super::{definition, xml};
use crate::actuate::{Actuate, Capabilities, Former, Restored, Run};
use crate::kvm::host::KvmHost;
use crate::linux::task;
use serde_json::json;
use vsteer_core::nouns::{Manager, Role, SchedClass, Tid, VmConfig, VmId};
use vsteer_core::setting;
use vsteer_core::setting::{Change, QuotaScope, Scope, Step};
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
            Change::Affinity(setting::Affinity { role, tid, to, .. }) => {
                let pid = subject.pid_of(step, role, tid)?;
                let from = task::affinity(&self.inventory.root, pid, tid);
                Change::Affinity(setting::Affinity {
                    role,
                    tid,
                    from: from.ok_or_else(|| changed(step, "its thread has ended"))?,
                    to,
                })
            }
            Change::Weight(setting::Weight { to, .. }) => {
                let from = vm.weight.ok_or_else(|| unread("its weight"))?;
                Change::Weight(setting::Weight { from, to })
            }
            Change::Quota(setting::Quota { scope, to, .. }) => {
                let mut limits = vm.limits;
                if let Some(sched) = live::schedinfo(&mut self.inventory, vm) {
                    limits = config::limits_of_libvirt(&sched);
                }
                let from = match scope {
                    QuotaScope::PerVcpu => limits.per_vcpu,
                    QuotaScope::Emulator => limits.emulator,
                    QuotaScope::WholeVm => limits.whole_vm,
                };
                Change::Quota(setting::Quota { scope, from, to })
            }
            Change::RtBudget(setting::RtBudget { cgroup, to_us, .. }) => {
                let budget = vm.rt_budgets.iter().find(|b| b.cgroup == cgroup);
                let budget = budget.ok_or_else(|| {
                    changed(step, "that cgroup holds none of its threads, or has no real-time budget")
                })?;
                Change::RtBudget(setting::RtBudget { from_us: budget.runtime_us, cgroup, to_us })
            }
            Change::Class(setting::Class { role, tid, to, .. }) => {
                let pid = subject.pid_of(step, role, tid)?;
                let class = task::read_stat(&self.inventory.root, pid, tid).and_then(|s| s.class());
                Change::Class(setting::Class {
                    role,
                    tid,
                    from: class.ok_or_else(|| unread("its class"))?,
                    to,
                })
            }
            Change::MemoryNodes(setting::MemoryNodes { to, .. }) => {
                // What libvirt says now, not when the VM was first seen.
                self.inventory.look()?;
                let from = Subject::find(&mut self.inventory, &step.vm, &step.vm_name)?.vm.memory_nodes;
                Change::MemoryNodes(setting::MemoryNodes { from, to })
            }
            Change::Topology(setting::Topology { to, .. }) => {
                let from = match &vm.manager {
                    Manager::Libvirt(_) => {
                        let text = self.definition(subject, step)?;
                        xml::parse(&text).ok().and_then(|d| d.topology_shown())
                    }
                    _ => vm.guest_topology,
                };
                Change::Topology(setting::Topology { from, to })
            }
            Change::Host(_) => return Err(changed(step, "it is being moved")),
            Change::Pool(_) => {
                return Err(fault(FaultKind::Unsupported, step).because(able::NO_POOLS));
            }
            Change::NodeAffinity(_)
            | Change::VmAffinity(_)
            | Change::ReservationMhz(_)
            | Change::LimitMhz(_)
            | Change::Latency(_) => {
                return Err(fault(FaultKind::Unsupported, step).because(able::VSPHERES));
            }
            Change::Knob(_) => return Err(fault(FaultKind::Unsupported, step).because(able::HOSTS)),
            Change::Preference(_) | Change::Reservation(_) => {
                return Err(fault(FaultKind::Unsupported, step).because(able::XENS));
            }
        })
    }

    /// The VM's definition, for changing it.
    fn definition(&mut self, subject: &Subject, step: &Step) -> Result<String, Fault> {
        self.libvirt(subject, step)?.definition(&subject.vm.id.0)
    }

    fn libvirt(&mut self, subject: &Subject, step: &Step) -> Result<&mut Client, Fault> {
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
        replace(self.libvirt(subject, step)?, &old, step, edit)
    }

    /// Puts the definition back. The VM may be off, or run anew: it is known by its UUID alone.
    fn restore_definition(&mut self, step: &Step, former: &Former) -> Result<Restored, Fault> {
        // Journals of older releases do not name the libvirt: then it is the one that knows the VM.
        let uris = former.keeper.clone().map_or_else(|| self.inventory.uris(), |uri| vec![uri]);
        let (mut asked, mut silent) = (false, None);
        for uri in uris {
            let Some(client) = self.inventory.client_for_writing(&uri) else { continue };
            let old = match client.definition_if_known(&step.vm.0) {
                Ok(old) => old,
                Err(fault) => {
                    silent.get_or_insert(fault);
                    continue;
                }
            };
            asked = true;
            let Some(old) = old else { continue };
            let put = |text: &str| {
                let mut parts = former.definition.iter().rev();
                parts.try_fold(text.to_owned(), |text, part| definition::put(&text, part))
            };
            return replace(client, &old, step, put).map(|()| Restored::Back);
        }
        match (silent, asked) {
            // One that does not answer may be the one that has it.
            (Some(fault), _) => Err(live::refused_by_libvirt(fault, step)),
            (None, true) => Ok(Restored::Gone("its definition is gone: libvirt knows no such VM".to_owned())),
            (None, false) => Err(able::not_connected(step)),
        }
    }

    /// Why nothing is left of what a step set in the running VM; `None` while that is there. Processes and threads tell it: a libvirt
    /// that does not answer, or does not list the VM, has not said so.
    fn gone(&mut self, step: &Step, former: &Former) -> Option<String> {
        let runs = self.inventory.runs_of(&step.vm);
        if runs.is_empty() {
            return Some("the VM does not run here any more".to_owned());
        }
        // Older journals do not say which run it was.
        if former.run.is_some_and(|run| !runs.contains(&run)) {
            return Some("the VM has been started anew since, with settings of its own".to_owned());
        }
        let (Change::Affinity(setting::Affinity { tid, .. }) | Change::Class(setting::Class { tid, .. })) =
            step.change
        else {
            return None;
        };
        // A subject that cannot be had says nothing of its threads.
        let subject = self.subject(step).ok()?;
        let there = subject.threads.iter().any(|t| t.tid == tid);
        (!there).then(|| format!("its thread {} has ended", tid.0))
    }

    /// Puts the running VM's setting back.
    fn restore_live(&mut self, step: &Step, former: &Former, change: &Change) -> Result<Restored, Fault> {
        // A cgroup may outlive the VM on whose behalf its budget was changed.
        if let Change::RtBudget(setting::RtBudget { cgroup, from_us, .. }) = change {
            if live::budget_is_gone(&self.inventory, cgroup) {
                return Ok(Restored::Gone(format!("the cgroup {cgroup} is gone")));
            }
            return live::budget(&self.inventory, step, cgroup, *from_us).map(|()| Restored::Back);
        }
        if let Some(why) = self.gone(step, former) {
            return Ok(Restored::Gone(why));
        }
        let Some(undo) = change.undo() else { return Ok(Restored::Back) };
        match self.put_back(step, former, undo) {
            Ok(()) => Ok(Restored::Back),
            // It may have ended meanwhile.
            Err(fault) => self.gone(step, former).map(Restored::Gone).ok_or(fault),
        }
    }

    /// Through the manager first, so that its record is right; then what its words could not say.
    fn put_back(&mut self, step: &Step, former: &Former, undo: Change) -> Result<(), Fault> {
        let subject = self.subject(step).map_err(|_| {
            fault(FaultKind::Failed, step)
                .because("its process runs, and is not seen as a VM's now")
                .way_out("see whether its libvirt answers (virsh list), then vsteer rollback")
        })?;
        let change = live::as_it_was_told(undo, &former.cpusets);
        self.make_live(&subject, &Step { change, ..step.clone() })?;
        live::put_back(&mut self.inventory, &subject, step, former)
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

/// Replaces parts of the definition `old`. Nothing is written where nothing differs.
fn replace(
    client: &mut Client,
    old: &str,
    step: &Step,
    edit: impl FnOnce(&str) -> Result<String, String>,
) -> Result<(), Fault> {
    let new = edit(old).map_err(|why| fault(FaultKind::Unsupported, step).because(why))?;
    if new == old {
        return Ok(());
    }
    let request = json!({ "op": "redefine", "uuid": step.vm.0, "expect": old, "xml": new });
    client.ask(request).map(|_| ()).map_err(|f| live::refused_by_libvirt(f, step))
}

/// What came of both parts of a step, of which one may not have been touched.
fn of_both(definition: Option<Restored>, live: Option<Restored>) -> Restored {
    match (definition, live) {
        (None, None) => Restored::Back,
        (Some(Restored::Back), Some(Restored::Gone(why))) => Restored::Defined(why),
        (_, Some(live)) => live,
        (Some(definition), None) => definition,
    }
}

/// Where a change takes effect: a topology only in the definition, a real-time budget only in the running VM.
fn effect(change: &Change, scope: Scope) -> (bool, bool) {
    match change {
        Change::Topology(_) => (scope == Scope::Live, scope.persistent()),
        Change::RtBudget(_) => (scope.live(), scope == Scope::Persistent),
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

    fn refusal(&mut self, step: &Step, scope: Scope) -> Result<(), Fault> {
        let subject = self.subject(step)?;
        let (live, persistent) = effect(&step.change, scope);
        able::check(&self.inventory, &subject.vm, step, live, persistent)
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
            let seen = self.inventory.vms.iter().find(|vm| vm.id == step.vm);
            former.run = seen.map(|vm| Run { pid: vm.process.pid, start_ticks: vm.process.start_ticks });
            former.live = Some(self.current_of(&subject, step)?);
            if let Change::Quota(setting::Quota { scope, .. }) = step.change {
                former.period_us = live::period_us(&mut self.inventory, &subject, scope);
            }
            if let Change::Affinity(setting::Affinity { role, tid, .. }) = step.change {
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
            if let Manager::Libvirt(uri) = &subject.vm.manager {
                former.keeper = Some(uri.clone());
            }
        }
        Ok(former)
    }

    fn act(&mut self, step: &Step, scope: Scope) -> Result<(), Fault> {
        let former = self.former(step, scope)?;
        self.make(step, scope).map_err(|refused| match self.restore(step, &former) {
            Ok(_) => refused,
            Err(f) => {
                let cause = refused.cause.clone().unwrap_or_default();
                refused.because(format!("{cause}; and what was begun could not be taken back: {f}"))
            }
        })
    }

    fn restore(&mut self, step: &Step, former: &Former) -> Result<Restored, Fault> {
        if let Some(done) = host::restore(self, step, former) {
            return done;
        }
        // The definition needs no process: it goes back also where the VM is off. What keeps one part keeps not the other.
        let of_definition = !former.definition.is_empty();
        let defined = of_definition.then(|| self.restore_definition(step, former)).transpose();
        let live = former.live.as_ref().map(|change| self.restore_live(step, former, change)).transpose();
        Ok(of_both(defined?, live?))
    }
}

/// Does this class need a real-time budget where those exist?
fn needs_budget(class: SchedClass) -> bool {
    matches!(class, SchedClass::Fifo(_) | SchedClass::RoundRobin(_))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_definition_that_went_back_is_not_said_to_be_gone() {
        let gone = || Restored::Gone("off".to_owned());
        assert_eq!(of_both(None, Some(gone())), gone());
        assert_eq!(of_both(Some(Restored::Back), Some(gone())), Restored::Defined("off".to_owned()));
        assert_eq!(of_both(Some(Restored::Back), None), Restored::Back);
        assert_eq!(of_both(Some(gone()), Some(Restored::Back)), Restored::Back);
        assert_eq!(of_both(Some(gone()), None), gone());
    }
}
