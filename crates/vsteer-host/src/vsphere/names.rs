//! Finds the VMs on vSphere for a plan that was made from esxtop's files.
//!
//! Such a plan knows VMs by name, which is not unique on vSphere. The API identifies them by the UUID of the
//! instance. So vsteer first finds each VM of the plan by its name on the plan's host. It refuses a name that
//! no VM or several VMs have, and a VM with a different number of vCPUs.
//!
//! If the file lacks a present setting, vsteer reads it, and it becomes the step's precondition. If the file
//! has it, vsteer compares the two.

use super::inventory::Found;
use crate::actuate::Actuate;
use vsteer_core::nouns::{HostConfig, VmConfig, VmId};
use vsteer_core::plan::Plan;
use vsteer_core::setting;
use vsteer_core::setting::{Change, Scope, Step};
use vsteer_core::{Fault, FaultKind};

/// Does the plan identify its VMs only by name?
pub fn is_by_name(plan: &Plan) -> bool {
    plan.parent.vms.iter().any(|vm| vm.manager.knows_names_only())
}

/// Translates the plan to the VMs of `now` that have the same names. Also returns notes for the user.
///
/// # Errors
/// `Changed` if a VM does not exist, has a name that others also have, or has a different number of vCPUs; as
/// [`Actuate::current`].
pub fn mapped(
    plan: &Plan,
    now: &HostConfig,
    actuator: &mut dyn Actuate,
) -> Result<(Plan, Vec<String>), Fault> {
    let mut notes = Vec::new();
    let mut steps = Vec::new();
    // All VMs, because a plan also depends on those that it does not change.
    for old in &plan.parent.vms {
        the_one(old, now)?;
    }
    for step in &plan.steps {
        let missing = || Fault::new(FaultKind::BadInput, format!("the plan has no VM {:?}", step.vm_name));
        let vm = the_one(plan.parent.vm(&step.vm).ok_or_else(missing)?, now)?;
        let step = Step { vm: vm.clone(), ..step.clone() };
        let change = told(&step.change, &actuator.current(&step)?);
        if change.undo().as_ref() == Some(&change) {
            notes.push(format!("VM {:?}: {}: already set", step.vm_name, step.change));
            continue;
        }
        notes.push(format!("VM {:?} is {}: {change}", step.vm_name, step.vm));
        steps.push(Step { change, ..step });
    }
    // The id stays the same, because it confirms and rolls back the plan's file.
    let mapped = Plan {
        parent: now.clone(),
        fingerprint: now.fingerprint(),
        steps,
        scope: Scope::Both,
        ..plan.clone()
    };
    Ok((mapped, notes))
}

/// The change with the present value as its `from`, if the plan's file lacks it.
fn told(change: &Change, current: &Change) -> Change {
    match (change, current) {
        (Change::NodeAffinity(setting::NodeAffinity { from: None, .. }), Change::NodeAffinity(_))
        | (Change::VmAffinity(setting::VmAffinity { from: None, .. }), Change::VmAffinity(_))
        | (Change::Topology(setting::Topology { from: None, .. }), Change::Topology(_)) => current.clone(),
        _ => change.clone(),
    }
}

/// The VM with the name of `old`.
fn the_one(old: &VmConfig, now: &HostConfig) -> Result<VmId, Fault> {
    let changed = |why: String| {
        Fault::new(
            FaultKind::Changed,
            format!("cannot find VM {:?} of the plan on host {}", old.name, now.hostname),
        )
        .because(why)
        .help("make the plan through the API: vsteer plan --connect vsphere://USER@HOST")
    };
    let namesakes: Vec<&VmConfig> = now.vms.iter().filter(|vm| vm.name == old.name).collect();
    let vm = match namesakes[..] {
        [vm] => vm,
        [] => return Err(changed("no VM on the host has this name".to_owned())),
        _ => {
            let ids: Vec<String> = namesakes.iter().map(|vm| vm.id.to_string()).collect();
            return Err(changed(format!("{} VMs have this name: {}", ids.len(), ids.join(", "))));
        }
    };
    let (then, is) = (old.vcpu_count(), vm.vcpu_count());
    if then > 0 && then != is {
        return Err(changed(format!("the plan's VM has {then} vCPUs, the VM of this name has {is}")));
    }
    Ok(vm.id.clone())
}

/// Chooses one of several hosts: the named one, otherwise the one with the name of the plan's host.
pub(super) fn host_meant<'a>(
    hosts: &'a [Found],
    named: Option<&str>,
    else_called: Option<&str>,
) -> Option<&'a Found> {
    if let Some(name) = named {
        return hosts.iter().find(|h| h.config.hostname == name || h.id == name);
    }
    if let [one] = hosts {
        return Some(one);
    }
    let short = |name: &str| name.split('.').next().unwrap_or_default().to_ascii_lowercase();
    let is_called = |h: &&Found| else_called.is_some_and(|name| short(name) == short(&h.config.hostname));
    let mut called = hosts.iter().filter(is_called);
    // If two hosts have that name, the result is neither.
    called.next().filter(|_| called.next().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::actuate::{Former, Restored};
    use vsteer_core::CpuSet;
    use vsteer_core::forecast::Forecast;
    use vsteer_core::nouns::Manager;
    use vsteer_core::nouns::VsphereVm;
    use vsteer_core::topology::machine;

    fn host(name: &str, vms: &[(&str, &str, u32)], object: &str) -> HostConfig {
        let vm = |(id, name, vcpus): &(&str, &str, u32)| VmConfig {
            manager: Manager::Vsphere(object.into()),
            vsphere: Some(VsphereVm { vcpus: Some(*vcpus), ..VsphereVm::default() }),
            ..VmConfig::new(VmId((*id).into()), *name, 0)
        };
        HostConfig {
            vms: vms.iter().map(vm).collect(),
            ..HostConfig::new(name, "VMware ESXi 7.0.2", machine(2, 1, 2, 1).unwrap())
        }
    }

    fn plan(names: &[&str]) -> Plan {
        let vms: Vec<_> = names.iter().map(|n| (*n, *n, 4)).collect();
        let step = Step {
            vm: VmId(names[0].into()),
            vm_name: names[0].into(),
            change: Change::NodeAffinity(setting::NodeAffinity { from: None, to: Some(CpuSet::single(1)) }),
            reason: String::new(),
        };
        let none = Forecast { method: String::new(), vms: Vec::new() };
        Plan::new(host("esx1.example", &vms, ""), "t".into(), vec![step], Scope::Live, none)
    }

    /// A host on which every VM has an affinity to these nodes.
    struct Kept(Option<CpuSet>);

    impl Actuate for Kept {
        fn current(&mut self, step: &Step) -> Result<Change, Fault> {
            let Change::NodeAffinity(setting::NodeAffinity { to, .. }) = step.change.clone() else {
                unreachable!("the only change")
            };
            Ok(Change::NodeAffinity(setting::NodeAffinity { from: self.0.clone(), to }))
        }
        fn former(&mut self, _: &Step, _: Scope) -> Result<Former, Fault> {
            unreachable!("nobody asks")
        }
        fn act(&mut self, _: &Step, _: Scope) -> Result<(), Fault> {
            unreachable!("nothing is changed")
        }
        fn restore(&mut self, _: &Step, _: &Former) -> Result<Restored, Fault> {
            unreachable!("nothing is changed")
        }
    }

    #[test]
    fn names_become_uuids() {
        let plan = plan(&["we <b> \"x\"", "db"]);
        assert!(is_by_name(&plan));
        let now = host("esx1", &[("u1", "db", 4), ("u2", "we <b> \"x\"", 4), ("u3", "other", 2)], "vm");
        let (to, notes) = mapped(&plan, &now, &mut Kept(Some(CpuSet::single(0)))).unwrap();
        assert_eq!((&*to.steps[0].vm.0, to.id.clone(), to.scope), ("u2", plan.id.clone(), Scope::Both));
        assert_eq!(to.steps[0].change.to_string(), "NUMA node affinity: 0 -> 1");
        assert!(to.parent.differences(&now).is_empty() && notes.len() == 1);
        let (to, notes) = mapped(&plan, &now, &mut Kept(Some(CpuSet::single(1)))).unwrap();
        assert!(to.steps.is_empty() && notes[0].contains("already set"), "{notes:?}");
    }

    #[test]
    fn who_is_not_one_vm_is_refused_by_name() {
        for (vms, why) in [
            (&[("u1", "web", 4), ("u2", "web", 4), ("u3", "db", 4)][..], "2 VMs have this name: u1, u2"),
            (&[("u1", "web", 4)], "no VM on the host has this name"),
            (&[("u1", "web", 8), ("u2", "db", 4)], "has 4 vCPUs, the VM of this name has 8"),
        ] {
            let refused = mapped(&plan(&["web", "db"]), &host("h", vms, "vm"), &mut Kept(None)).unwrap_err();
            assert_eq!(refused.kind, FaultKind::Changed);
            assert!(refused.to_string().contains(why), "{refused}");
        }
    }

    #[test]
    fn the_host_that_is_meant() {
        let found = |name: &str, id: &str| Found {
            id: id.into(),
            config: host(name, &[], ""),
            running: Vec::new(),
            objects: Default::default(),
        };
        let two = [found("esx1.example", "host-1"), found("esx2.example", "host-2")];
        let id = |hosts: &[Found], named, called| host_meant(hosts, named, called).map(|f| f.id.clone());
        assert_eq!(id(&two, Some("host-2"), None).as_deref(), Some("host-2"));
        assert_eq!(id(&two, None, Some("ESX1")).as_deref(), Some("host-1"));
        assert_eq!(id(&two, None, None), None);
        assert_eq!(id(&two, Some("esx3"), Some("esx1")), None, "the one that is named is not there");
        assert_eq!(id(&two[..1], None, Some("elsewhere")).as_deref(), Some("host-1"));
        let same = [found("a.x", "host-1"), found("a.y", "host-2")];
        assert_eq!(id(&same, None, Some("a")), None);
    }
}
