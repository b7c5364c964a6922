//! Sets a thread's scheduling class: with the kernel's call, and in the definition with `<vcpusched>` and
//! similar elements. libvirt has no live call for it.

use super::{Able, Asked, KvmSetting};
use crate::actuate::Part;
use crate::kvm::actuate::{KvmHost, Subject, changed, fault, unread};
use crate::kvm::definition::{document, is_word};
use crate::kvm::inventory::Inventory;
use crate::kvm::xml::child;
use crate::linux::{sched, task};
use roxmltree::Node;
use rustix::io::Errno;
use std::collections::BTreeMap;
use vsteer_core::nouns::{Role, SchedClass};
use vsteer_core::setting::{Change, Class, Step};
use vsteer_core::{CpuSet, Fault, FaultKind};

impl KvmSetting for Class {
    fn live(&self, _asked: &Asked<'_>) -> Able {
        Ok(())
    }

    fn defined(&self, asked: &Asked<'_>) -> Able {
        // The definition can always return to the default class.
        if !asked.vm.rt_budgets.is_empty() && needs_budget(self.to) {
            return Err(
                "this kernel has real-time budgets per cgroup (RT_GROUP_SCHED), and a new cgroup has no budget, so libvirt \
                could not start the VM",
            );
        }
        Ok(())
    }

    fn current(&self, host: &mut KvmHost, subject: &Subject, step: &Step) -> Result<Change, Fault> {
        let pid = subject.pid_of(step, self.role, self.tid)?;
        let class = task::read_stat(&host.inventory.root, pid, self.tid).and_then(|s| s.class());
        let from = class.ok_or_else(|| unread(step, "the scheduling class"))?;
        Ok(Change::Class(Class { from, ..self.clone() }))
    }

    fn set(&self, _: &mut Inventory, subject: &Subject, step: &Step) -> Result<(), Fault> {
        subject.pid_of(step, self.role, self.tid)?;
        sched::set_class(self.tid, self.to).map_err(|errno| not_set(self, subject, step, errno))
    }

    fn parts(&self, xml: &str) -> Result<Vec<Part>, String> {
        Ok(vec![scheduler(xml, self.role, self.to)?])
    }
}

fn not_set(class: &Class, subject: &Subject, step: &Step, errno: Errno) -> Fault {
    let group = subject.vm.threads.iter().find(|t| t.tid == class.tid).and_then(|t| t.cgroup.clone());
    let empty = subject.vm.rt_budgets.iter().find(|b| Some(&b.cgroup) == group.as_ref() && b.runtime_us == 0);
    match (errno, empty) {
        (Errno::SRCH, _) => changed(step, "the thread has ended"),
        (Errno::PERM, Some(budget)) if needs_budget(class.to) => fault(FaultKind::NotApplied, step)
            .because(format!("the cgroup {} has a real-time budget of 0 (cpu.rt_runtime_us)", budget.cgroup))
            .help("raise the budgets first, from the top down, with a step of their own in the plan"),
        (Errno::PERM, _) => {
            fault(FaultKind::NoPrivilege, step).because(errno).help("run as root, or with CAP_SYS_NICE")
        }
        _ => fault(FaultKind::NotApplied, step)
            .because(errno)
            .help("choose a class and priority that this kernel has (real-time priorities: 1-99)"),
    }
}

/// Does this class need a real-time budget, on kernels that have such budgets?
fn needs_budget(class: SchedClass) -> bool {
    matches!(class, SchedClass::Fifo(_) | SchedClass::RoundRobin(_))
}

/// The attributes of the scheduler element; `None` for the default class.
fn scheduler_attributes(class: SchedClass) -> Result<Option<String>, String> {
    Ok(Some(match class {
        SchedClass::Other(0) => return Ok(None),
        SchedClass::Batch(0) => "scheduler='batch'".to_owned(),
        SchedClass::Idle => "scheduler='idle'".to_owned(),
        SchedClass::Fifo(p) => format!("scheduler='fifo' priority='{p}'"),
        SchedClass::RoundRobin(p) => format!("scheduler='rr' priority='{p}'"),
        SchedClass::Other(_) | SchedClass::Batch(_) | SchedClass::Deadline | SchedClass::Ext => {
            return Err(format!("libvirt's definition cannot hold class {class}"));
        }
    }))
}

fn scheduler(xml: &str, role: Role, class: SchedClass) -> Result<Part, String> {
    let attributes = scheduler_attributes(class)?;
    let (tag, key, index) = match role {
        Role::Vcpu(n) => ("vcpusched", "vcpus", n),
        Role::IoThread(n) => ("iothreadsched", "iothreads", n),
        Role::Emulator => {
            let element = attributes.map(|a| format!("<emulatorsched {a}/>"));
            return Ok(Part::new("cputune", "emulatorsched", element.into_iter().collect()));
        }
        Role::Vhost | Role::Worker => {
            return Err(format!("libvirt's definition cannot hold the class of a {role} thread"));
        }
    };
    // One element may cover several vCPUs. So this writes one element per vCPU: the changed one with its new
    // class, the others unchanged.
    let mut of: BTreeMap<u32, String> = BTreeMap::new();
    let document = document(xml)?;
    let tune = child(document.root_element(), "cputune");
    for node in tune.iter().flat_map(Node::children).filter(|n| n.has_tag_name(tag)) {
        let set: CpuSet =
            node.attribute(key).unwrap_or_default().parse().map_err(|e| format!("<{tag}>: {e}"))?;
        let others: Vec<String> = node
            .attributes()
            .filter(|a| a.name() != key && is_word(a.value()))
            .map(|a| format!("{}='{}'", a.name(), a.value()))
            .collect();
        of.extend(set.iter().map(|n| (n, others.join(" "))));
    }
    match attributes {
        Some(a) => of.insert(index, a),
        None => of.remove(&index),
    };
    let mut groups: BTreeMap<&str, CpuSet> = BTreeMap::new();
    for (n, a) in &of {
        groups.entry(a).or_default().insert(*n);
    }
    let elements = groups.iter().map(|(a, set)| format!("<{tag} {key}='{set}' {a}/>")).collect();
    Ok(Part::new("cputune", tag, elements))
}
