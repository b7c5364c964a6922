//! Applies a step on a KVM host, through the manager that owns the VM.
//!
//! vsteer changes libvirt's VMs through libvirt, so that libvirt's own data stay correct. It changes the
//! running VM with libvirt's calls, and the definition by replacing the elements concerned
//! ([`super::definition`]). It changes a QEMU without a manager with system calls and the files of its
//! cgroup. It sets scheduling classes and real-time budgets directly in both cases, because libvirt has no
//! live call for them. A running VM of Proxmox counts as a QEMU without a manager, and `qm set` changes its
//! definition ([`qm`]; both untried). vsteer does not change VMs of KubeVirt and Kata.
//!
//! libvirt moves a VM to another host ([`host`]).
//!
//! Left out: moving pages, and memory nodes of a running VM unless libvirt's mode is `restrictive`.

mod able;
mod help;
mod host;
mod live;
mod qm;
mod setting;

use super::client::Client;
use super::config;
use super::definition;
use super::inventory::{Inventory, Thread};
use crate::actuate::{Actuate, Former, Part, Restored, Run};
use crate::kvm::host::KvmHost;
use serde_json::json;
use setting::{KvmSetting, rt_budget};
use std::path::PathBuf;
use vsteer_core::nouns::{Manager, Role, Tid, VmConfig, VmId};
use vsteer_core::setting::{Affinity, Change, Class, Scope, Step};
use vsteer_core::{Fault, FaultKind};

pub use qm::{PROGRAM as QM, proxmox_command};

/// A fault about a step.
fn fault(kind: FaultKind, step: &Step) -> Fault {
    Fault::new(kind, format!("cannot change VM {:?} ({})", step.vm_name, step.change))
}

fn unread(step: &Step, what: &str) -> Fault {
    fault(FaultKind::Unsupported, step).because(format!("vsteer cannot read {what} here"))
}

/// The step's change as a setting that this file can apply.
fn of(step: &Step) -> Result<&dyn KvmSetting, Fault> {
    setting::of(&step.change).map_err(|why| fault(FaultKind::Unsupported, step).because(why))
}

fn changed(step: &Step, what: &str) -> Fault {
    fault(FaultKind::Changed, step).because(what).help("observe again, then make a new plan")
}

/// The VM as it is now, with its threads.
struct Subject {
    vm: VmConfig,
    threads: Vec<Thread>,
}

impl Subject {
    fn find(inventory: &mut Inventory, id: &VmId, name: &str) -> Result<Subject, Fault> {
        let gone = || {
            Fault::new(FaultKind::NothingThere, format!("VM {name:?} ({id}) no longer runs here"))
                .help("observe again; the changes to a stopped VM ended with the VM")
        };
        inventory.refresh();
        let vm = inventory.vms.iter().find(|vm| vm.id == *id).ok_or_else(gone)?;
        let threads = inventory.threads_of(vm);
        let vm = config::vm(inventory, vm, &threads, None).ok_or_else(gone)?;
        Ok(Subject { vm, threads })
    }

    /// The process of a thread, after a check that the thread is the one that the step means.
    fn pid_of(&self, step: &Step, role: Role, tid: Tid) -> Result<u32, Fault> {
        let thread = self.threads.iter().find(|t| t.tid == tid);
        let thread = thread.ok_or_else(|| changed(step, &format!("thread {} of the VM has ended", tid.0)))?;
        if thread.role != role {
            return Err(changed(step, &format!("thread {} is now {}", tid.0, thread.role)));
        }
        Ok(thread.pid)
    }

    /// The threads that an affinity step moves. `Emulator` means all threads that are neither vCPU nor I/O
    /// thread.
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
                .because("the VM has no cgroup of its own with the cpu controller, so the change would affect others")
                .help("start the VM through libvirt, or in its own scope: systemd-run --scope -p CPUWeight=100 qemu-…")
        })
    }
}

impl KvmHost {
    fn subject(&mut self, step: &Step) -> Result<Subject, Fault> {
        Subject::find(&mut self.inventory, &step.vm, &step.vm_name)
    }

    /// The step's live setting, with `from` as the value now in force.
    fn current_of(&mut self, subject: &Subject, step: &Step) -> Result<Change, Fault> {
        of(step)?.current(self, subject, step)
    }

    /// The VM's definition, to be changed.
    fn definition(&mut self, subject: &Subject, step: &Step) -> Result<String, Fault> {
        self.libvirt(subject, step)?.definition(&subject.vm.id.0)
    }

    /// The tool of Proxmox VE.
    fn qm(&self) -> PathBuf {
        self.options.qm.clone().unwrap_or_else(|| PathBuf::from(QM))
    }

    fn libvirt(&mut self, subject: &Subject, step: &Step) -> Result<&mut Client, Fault> {
        let Manager::Libvirt(uri) = &subject.vm.manager else {
            return Err(help::no_definition(&subject.vm, step));
        };
        self.inventory.client_for_writing(uri).ok_or_else(|| help::not_connected(step))
    }

    /// Replaces parts of the definition. If nothing differs, vsteer writes nothing.
    fn redefine(
        &mut self,
        subject: &Subject,
        step: &Step,
        edit: impl FnOnce(&str) -> Result<String, String>,
    ) -> Result<(), Fault> {
        let old = self.definition(subject, step)?;
        replace(self.libvirt(subject, step)?, &old, step, edit)
    }

    /// Restores the definition. Only the UUID identifies the VM, which may be off or restarted.
    fn restore_definition(&mut self, step: &Step, former: &Former) -> Result<Restored, Fault> {
        // Journals of older releases do not name the libvirt. Then the right one is the libvirt that knows
        // the VM.
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
            // A libvirt that does not answer may be the one that has the definition.
            (Some(fault), _) => Err(live::refused_by_libvirt(fault, step)),
            (None, true) => Ok(Restored::Gone("libvirt no longer has a definition of the VM".to_owned())),
            (None, false) => Err(help::not_connected(step)),
        }
    }

    /// Why the setting of a step no longer exists in the running VM; `None` while it exists. Only processes
    /// and threads decide this. If libvirt does not answer or does not list the VM, this does not prove that
    /// the VM is gone.
    fn gone(&mut self, step: &Step, former: &Former) -> Option<String> {
        let runs = self.inventory.runs_of(&step.vm);
        if runs.is_empty() {
            return Some("the VM no longer runs here".to_owned());
        }
        // Older journals do not record which run of the VM it was.
        if former.run.is_some_and(|run| !runs.contains(&run)) {
            return Some("the VM has restarted since, with its own settings".to_owned());
        }
        let (Change::Affinity(Affinity { tid, .. }) | Change::Class(Class { tid, .. })) = step.change else {
            return None;
        };
        // If the subject cannot be read, nothing is known about its threads.
        let subject = self.subject(step).ok()?;
        let there = subject.threads.iter().any(|t| t.tid == tid);
        (!there).then(|| format!("thread {} of the VM has ended", tid.0))
    }

    /// Restores the running VM's setting.
    fn restore_live(&mut self, step: &Step, former: &Former, change: &Change) -> Result<Restored, Fault> {
        // A cgroup may outlive the VM for which vsteer changed its budget.
        if let Change::RtBudget(budget) = change {
            if rt_budget::is_gone(budget, &self.inventory) {
                return Ok(Restored::Gone(format!("the cgroup {} is gone", budget.cgroup)));
            }
            return rt_budget::restore(budget, &self.inventory, step).map(|()| Restored::Back);
        }
        if let Some(why) = self.gone(step, former) {
            return Ok(Restored::Gone(why));
        }
        let Some(undo) = change.undo() else { return Ok(Restored::Back) };
        match self.put_back(step, former, undo) {
            Ok(()) => Ok(Restored::Back),
            // The VM may have ended in the meantime.
            Err(fault) => self.gone(step, former).map(Restored::Gone).ok_or(fault),
        }
    }

    /// Restores a setting through the manager first, so that the manager's data are right. Then restores what
    /// the manager has no call for.
    fn put_back(&mut self, step: &Step, former: &Former, undo: Change) -> Result<(), Fault> {
        let subject = self.subject(step).map_err(|_| {
            fault(FaultKind::Failed, step)
                .because("the VM's process runs, but vsteer no longer recognises it as a VM")
                .help("check that the VM's libvirt answers (virsh list), then run vsteer rollback")
        })?;
        let change = live::as_it_was_told(undo, &former.cpusets);
        let back = Step { change, ..step.clone() };
        of(&back)?.set(&mut self.inventory, &subject, &back)?;
        live::put_back(&mut self.inventory, &subject, step, former)
    }

    fn make(&mut self, step: &Step, scope: Scope) -> Result<(), Fault> {
        if let Some(made) = host::make(self, step) {
            return made;
        }
        let subject = self.subject(step)?;
        let setting = of(step)?;
        let (live, persistent) = setting.effect(scope);
        // The definition comes first: if the manager refuses it, the running VM is unchanged.
        if persistent && let Some(id) = qm::number(&subject.vm) {
            qm::make(&self.qm(), id, step)?;
        } else if persistent {
            self.redefine(&subject, step, |text| {
                definition::changed(text, &setting.parts(text)?).map(|(new, _)| new)
            })?;
        }
        if live {
            setting.set(&mut self.inventory, &subject, step)?;
        }
        Ok(())
    }

    /// The definition's parts that the step replaces, as they are now.
    fn former_parts(&mut self, subject: &Subject, step: &Step) -> Result<Vec<Part>, Fault> {
        let text = self.definition(subject, step)?;
        let before = of(step)?.parts(&text).and_then(|parts| Ok(definition::changed(&text, &parts)?.1));
        before.map_err(|why| fault(FaultKind::Unsupported, step).because(why))
    }
}

/// Replaces parts of the definition `old`. If nothing differs, vsteer writes nothing.
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

/// Combines the results for both parts of a step. One part may be absent.
fn of_both(definition: Option<Restored>, live: Option<Restored>) -> Restored {
    match (definition, live) {
        (None, None) => Restored::Back,
        (Some(Restored::Back), Some(Restored::Gone(why))) => Restored::Defined(why),
        (_, Some(live)) => live,
        (Some(definition), None) => definition,
    }
}

/// Does a step take effect in the running VM, and in the definition? Moving a VM takes both along.
fn effect(change: &Change, scope: Scope) -> (bool, bool) {
    setting::of(change).map_or((scope.live(), scope.persistent()), |setting| setting.effect(scope))
}

impl Actuate for KvmHost {
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
        able::check(&self.inventory, &subject.vm, step, (live, persistent))?;
        match qm::number(&subject.vm).filter(|_| persistent && !self.qm().exists()) {
            Some(id) => {
                let by_hand = proxmox_command(id, &step.change).map(|line| format!("run: {line} (untried)"));
                let refused = fault(FaultKind::Unsupported, step).because(help::NO_QM);
                Err(Fault { help: by_hand, ..refused })
            }
            None => Ok(()),
        }
    }

    fn refusal_together(&mut self, steps: &[Step], scope: Scope) -> Result<(), Fault> {
        if scope.persistent() { self.refuse_unlike_pins(steps) } else { Ok(()) }
    }

    fn changed_since(&mut self, step: &Step, former: &Former) -> Option<String> {
        if let Some(now) = former.qm.as_ref().and_then(|option| qm::changed_since(&self.qm(), option)) {
            return Some(now);
        }
        // A VM that restarted since has its own settings; nobody changed this one's.
        if self.gone(step, former).is_some() {
            return None;
        }
        let now = self.current(step).ok()?;
        let former = former.live.as_ref()?;
        (!step.change.is_reached(&now) && !former.same_before(&now)).then(|| now.before())
    }

    fn touches(&mut self, step: &Step) -> Vec<String> {
        let Ok(subject) = self.subject(step) else { return Vec::new() };
        let vm = &subject.vm;
        let of_qm = qm::number(vm).and_then(|id| qm::line(&self.qm(), id, &step.change));
        let of_qm = of_qm.map(|line| format!("command, if the definition is changed: {line}"));
        let mut all = match (&vm.manager, &step.change) {
            (Manager::Libvirt(uri), Change::Affinity(a)) => {
                vec![format!("libvirt: {uri}"), format!("thread: {} of VM {:?}", a.tid.0, vm.name)]
            }
            (Manager::Libvirt(uri), _) => vec![format!("libvirt: {uri}")],
            (_, Change::Affinity(Affinity { tid, .. }) | Change::Class(Class { tid, .. })) => {
                vec![format!("thread: {} of VM {:?}", tid.0, vm.name)]
            }
            (_, Change::RtBudget(budget)) => {
                let file = self.inventory.cgroups.file(&budget.cgroup, "cpu.rt_runtime_us");
                file.into_iter().map(|path| format!("file: {path}")).collect()
            }
            _ => {
                let group = vm.cgroup.as_deref().and_then(|c| self.inventory.cgroups.file(c, ""));
                group.into_iter().map(|path| format!("cgroup: {}", path.trim_end_matches('/'))).collect()
            }
        };
        all.extend(of_qm);
        all
    }

    fn former(&mut self, step: &Step, scope: Scope) -> Result<Former, Fault> {
        let subject = self.subject(step)?;
        let (live, persistent) = effect(&step.change, scope);
        able::check(&self.inventory, &subject.vm, step, (live, persistent))?;
        if let Some(former) = host::former(self, step) {
            return former;
        }
        let mut former = Former::default();
        let id = qm::number(&subject.vm).filter(|_| persistent);
        if live || (id.is_some() && qm::applies_at_once(&step.change)) {
            let seen = self.inventory.vms.iter().find(|vm| vm.id == step.vm);
            former.run = seen.map(|vm| Run { pid: vm.process.pid, start_ticks: vm.process.start_ticks });
            former.live = Some(self.current_of(&subject, step)?);
            of(step)?.keep(&mut self.inventory, &subject, &mut former);
        }
        if let Some(id) = id {
            former.qm = Some(qm::former(&self.qm(), id, step)?);
        } else if persistent {
            former.definition = self.former_parts(&subject, step)?;
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
                refused.because(format!("{cause}; vsteer could not undo the first part of the change: {f}"))
            }
        })
    }

    fn restore(&mut self, step: &Step, former: &Former) -> Result<Restored, Fault> {
        if let Some(done) = host::restore(self, step, former) {
            return done;
        }
        // The definition needs no process, so vsteer restores it even if the VM is off. A failure of one part
        // does not stop the other.
        let of_definition = !former.definition.is_empty();
        let defined = match &former.qm {
            Some(option) => Some(qm::restore(&self.qm(), step, option)),
            None => of_definition.then(|| self.restore_definition(step, former)),
        };
        let defined = defined.transpose();
        let live = former.live.as_ref().map(|change| self.restore_live(step, former, change)).transpose();
        Ok(of_both(defined?, live?))
    }
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
