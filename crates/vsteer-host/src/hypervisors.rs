//! Which hypervisors does vsteer know? To add one, write its folder and add its line here.

use crate::backend::{Backend, Changing, Described, Host, Request};
use crate::root::Root;
use crate::{captured, kvm, remote, vsphere, xen};
use vsteer_core::nouns::VmConfig;
use vsteer_core::plan::Plan;
use vsteer_core::{Fault, FaultKind};

/// All of them. A host without a URI is the first that is recognised, so KVM, which fits any Linux, is the last.
pub const BACKENDS: &[Backend] = &[
    vsphere::backend::BACKEND,
    xen::backend::BACKEND,
    captured::BACKEND,
    remote::BACKEND,
    kvm::backend::BACKEND,
];

/// The backend that this URI leads to, or without one the backend of this machine. A URI of an unknown scheme is left
/// to libvirt, which knows more schemes than vsteer.
///
/// # Errors
/// When `/` cannot be opened.
pub fn of(connect: Option<&str>) -> Result<&'static Backend, Fault> {
    let root = Root::live()?;
    let fits = |b: &&Backend| match connect {
        Some(uri) => b.is_meant(uri),
        None => (b.recognise)(&root),
    };
    Ok(BACKENDS.iter().find(fits).unwrap_or(&kvm::backend::BACKEND))
}

/// As [`of`], for changing: `qemu+ssh://` is observed by vsteer's agent there, and changed by libvirt.
///
/// # Errors
/// As [`of`].
pub fn of_changing(connect: Option<&str>) -> Result<&'static Backend, Fault> {
    let changes = |b: &&Backend| connect.is_some_and(|uri| b.is_meant(uri)) && !b.only_observes;
    BACKENDS.iter().find(changes).map_or_else(|| of(connect), Ok)
}

/// Can a plan for the host at this URI be applied only by a vsteer that runs there?
pub fn is_changed_there(connect: Option<&str>) -> bool {
    of(connect).is_ok_and(|b| b.only_observes)
}

/// Opens a host for observing.
///
/// # Errors
/// As the backend's.
pub fn open(request: &Request) -> Result<Box<dyn Host>, Fault> {
    (of(request.connect.as_deref())?.open)(request)
}

/// Opens a host for changing; with a plan, for the VMs that the plan names.
///
/// # Errors
/// As the backend's; `Usage` and `Changed` when the plan was made for VMs of another one.
pub fn change(request: &Request, plan: Option<Plan>) -> Result<Changing, Fault> {
    let backend = of_changing(request.connect.as_deref())?;
    if let Some(plan) = &plan {
        fits(backend, plan)?;
    }
    (backend.change)(request, plan)
}

/// The settings of all hosts behind a URI; `None` where they take samples.
///
/// # Errors
/// As the backend's.
pub fn settings(request: &Request) -> Option<Result<Described, Fault>> {
    let backend = request.connect.as_deref().and_then(|uri| BACKENDS.iter().find(|b| b.is_meant(uri)))?;
    backend.settings.map(|read| read(request))
}

/// Refuses a plan for VMs of a backend that only a URI leads to, where another backend is meant, and the reverse.
fn fits(backend: &Backend, plan: &Plan) -> Result<(), Fault> {
    let vms = &plan.parent.vms;
    let remote = |b: &&Backend, vm: &VmConfig| (b.manages)(&vm.manager) && b.settings.is_some();
    for vm in vms {
        let owner = BACKENDS.iter().find(|b| remote(b, vm));
        if let Some(owner) = owner.filter(|owner| owner.name != backend.name) {
            let example = owner.examples.first().copied().unwrap_or_default();
            return Err(Fault::new(
                FaultKind::Usage,
                format!("VM {:?} runs on {}, but the command line names no such host", vm.name, owner.name),
            )
            .help(format!("add --connect {example}, or write a script: vsteer plan ... --format powercli")));
        }
    }
    if backend.settings.is_some() && !vms.iter().any(|vm| (backend.manages)(&vm.manager)) {
        return Err(Fault::new(
            FaultKind::Changed,
            format!("plan {} has no VM that {} manages", plan.id, backend.name),
        )
        .help("leave out --connect, or name the host for which the plan was made"));
    }
    Ok(())
}

/// What `--connect` takes, one line per backend.
pub fn help() -> String {
    let line = |b: &Backend| format!("{}: {} ({})", b.name, b.examples.join(", "), b.about);
    BACKENDS.iter().map(line).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_backend_is_reached_by_its_examples() {
        for b in BACKENDS {
            assert!(!b.schemes.is_empty() && !b.examples.is_empty(), "{}", b.name);
            for uri in b.examples {
                assert_eq!(of(Some(uri)).unwrap().name, b.name, "{uri}");
            }
            assert!(help().contains(b.name));
        }
        assert_eq!(of(Some("ch:///system")).unwrap().name, "KVM", "libvirt decides about other schemes");
    }

    #[test]
    fn libvirt_changes_what_an_agent_observes() {
        let of = |uri| (super::of(Some(uri)).unwrap().name, of_changing(Some(uri)).unwrap().name);
        assert_eq!(of("qemu+ssh://root@host/system"), ("ssh", "KVM"));
        assert_eq!(of("ssh://root@host"), ("ssh", "ssh"));
        assert_eq!(of("qemu:///system"), ("KVM", "KVM"));
        assert_eq!(of_changing(None).unwrap().name, super::of(None).unwrap().name);
        assert!(is_changed_there(Some("qemu+ssh://h/system")) && !is_changed_there(None));
    }
}
