//! Which VMs are to run first: those with the ids, and those with the names, that the user gave.
//!
//! Anyone can start a process with any VM's name and UUID. So neither stands for a process of another person, unless a
//! libvirt that vsteer asked lists it as the VM, or the user trusts that person (`--user`). An id that holds the
//! number of the process always counts.

use crate::cli::RealtimeRun;
use std::cell::RefCell;
use std::collections::BTreeSet;
use vsteer_core::nouns::{HostConfig, Manager, VmConfig, VmId};
use vsteer_core::{Fault, FaultKind, limits};
use vsteer_host::kvm::inventory::{is_named, is_of_process};
use vsteer_host::linux::task;
use vsteer_host::linux::task::may_be_a_persons;
use vsteer_host::root::Root;
use vsteer_record::trusted;

/// The VMs that the user named.
pub struct Meant<'a> {
    names: &'a [String],
    root: Root,
    /// Users whose processes may have any name.
    trusted: Vec<u32>,
    /// The processes that the user was told of.
    refused: RefCell<BTreeSet<VmId>>,
}

impl<'a> Meant<'a> {
    /// # Errors
    /// `/proc` cannot be opened; `Usage` for a user that does not exist.
    pub fn by(a: &'a RealtimeRun) -> Result<Meant<'a>, Fault> {
        let root = Root::live()?;
        let number = |name: &String| {
            task::user_called(&root, name)
                .ok_or_else(|| Fault::new(FaultKind::Usage, format!("no user is called {name:?}")))
        };
        let trusted = a.users.iter().map(number).collect::<Result<_, _>>()?;
        Ok(Meant { names: &a.vms, root, trusted, refused: RefCell::default() })
    }

    /// Those of the host's VMs that are meant.
    pub fn of<'c>(&'c self, config: &'c HostConfig) -> impl Iterator<Item = &'c VmConfig> {
        config.vms.iter().filter(|vm| self.is(vm))
    }

    /// Is this VM meant? Tells the user once of each whose name does not count.
    pub fn is(&self, vm: &VmConfig) -> bool {
        let Some(user) = self.poser(vm.pid, &vm.name, &vm.id, &vm.manager) else {
            return self.has(&vm.name, &vm.id);
        };
        let mut refused = self.refused.borrow_mut();
        if refused.len() < limits::NOTES && refused.insert(vm.id.clone()) {
            crate::text::note(format!(
                "VM {:?} does not run first: its process {} belongs to user {user}, who can give it any name. If you \
                trust this user, add --user {user}",
                vm.name, vm.pid
            ));
        }
        false
    }

    fn has(&self, name: &str, id: &VmId) -> bool {
        self.names.iter().any(|given| is_named(given, name, id))
    }

    /// The person whose process has a name or id that the user gave, without proof that it is that VM.
    fn poser(&self, pid: u32, name: &str, id: &VmId, manager: &Manager) -> Option<u32> {
        let listed = matches!(manager, Manager::Libvirt(uri) if !uri.is_empty());
        if listed || !self.has(name, id) || (self.names.iter().any(|n| **n == *id.0) && is_of_process(id)) {
            return None;
        }
        let user = task::user(&self.root, pid)?;
        (may_be_a_persons(user) && !trusted::obeys(user) && !self.trusted.contains(&user)).then_some(user)
    }

    /// Refuses a name that several VMs have.
    ///
    /// # Errors
    /// `Usage`, with the ids of those that have it.
    pub fn need_distinct(&self, config: &HostConfig) -> Result<(), Fault> {
        for name in self.names.iter().filter(|name| config.vm(&VmId((*name).clone().into())).is_none()) {
            let real = |vm: &&VmConfig| self.poser(vm.pid, &vm.name, &vm.id, &vm.manager).is_none();
            let called: Vec<&VmConfig> =
                config.vms.iter().filter(|vm| vm.name == *name).filter(real).collect();
            if called.len() > 1 {
                let each: Vec<String> =
                    called.iter().map(|vm| format!("process {} with the id {}", vm.pid, vm.id.0)).collect();
                return Err(Fault::new(FaultKind::Usage, format!("several VMs are called {name:?}"))
                    .because(each.join(", "))
                    .help("give the id of the one you mean: --vm ID"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UUID: &str = "11111111-2222-3333-4444-555555555555";
    const PERSON: u32 = 12_345;

    /// A host on which process 70 runs as root and process 71 as a person.
    fn host() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (pid, user) in [(70, 0), (71, PERSON)] {
            let process = folder.path().join(format!("proc/{pid}"));
            std::fs::create_dir_all(&process).unwrap();
            std::fs::write(process.join("status"), format!("Uid:\t{user}\t{user}\t{user}\t{user}\n"))
                .unwrap();
        }
        folder
    }

    #[test]
    fn neither_a_name_nor_a_uuid_stands_for_another_persons_process() {
        let host = host();
        let (of_nobody, listed) =
            (Manager::Libvirt(String::new()), Manager::Libvirt("qemu:///system".to_owned()));
        let (uuid, by_process) = (VmId(UUID.to_owned().into()), VmId("qemu:71:1".to_owned().into()));
        for (given, id, manager, trusted, poser) in [
            ("bank", &uuid, &of_nobody, None, true),
            ("b*", &uuid, &of_nobody, None, true),
            (UUID, &uuid, &of_nobody, None, true),
            (UUID, &uuid, &Manager::Bare, None, true),
            ("bank", &by_process, &Manager::Bare, None, true),
            ("qemu:71:1", &by_process, &Manager::Bare, None, false),
            ("bank", &uuid, &listed, None, false),
            (UUID, &uuid, &of_nobody, Some(PERSON), false),
            ("other", &uuid, &of_nobody, None, false),
        ] {
            let names = [given.to_owned()];
            let meant = Meant {
                names: &names,
                root: Root::open(host.path()).unwrap(),
                trusted: trusted.into_iter().collect(),
                refused: RefCell::default(),
            };
            assert_eq!(meant.poser(70, "bank", id, manager), None, "root's process, {given}");
            assert_eq!(
                meant.poser(71, "bank", id, manager),
                poser.then_some(PERSON),
                "{given} {id:?} {manager:?}"
            );
        }
    }
}
