//! Which VMs are to run first: those with the ids, and those with the names, that the user gave.
//!
//! Anyone can start a process with any VM's name. So a name never stands for a VM that runs as another person's
//! process; an id does. And a name that several VMs have when vsteer starts is refused.

use crate::cli::RealtimeRun;
use std::cell::RefCell;
use std::collections::BTreeSet;
use vsteer_core::nouns::{HostConfig, VmConfig, VmId};
use vsteer_core::{Fault, FaultKind};
use vsteer_host::kvm::inventory::is_named;
use vsteer_host::kvm::processes::may_be_a_persons;
use vsteer_host::linux::task;
use vsteer_host::root::Root;
use vsteer_record::trusted;

/// The VMs that the user named.
pub struct Meant<'a> {
    names: &'a [String],
    root: Root,
    /// Those that were told of: refused once is enough.
    refused: RefCell<BTreeSet<VmId>>,
}

impl<'a> Meant<'a> {
    /// # Errors
    /// `/proc` cannot be opened.
    pub fn by(a: &'a RealtimeRun) -> Result<Meant<'a>, Fault> {
        Ok(Meant { names: &a.vms, root: Root::live()?, refused: RefCell::default() })
    }

    /// Those of the host's VMs that are meant.
    pub fn of<'c>(&'c self, config: &'c HostConfig) -> impl Iterator<Item = &'c VmConfig> {
        config.vms.iter().filter(|vm| self.is(vm))
    }

    /// Is this VM meant? Tells the user once of each whose name does not count.
    pub fn is(&self, vm: &VmConfig) -> bool {
        let Some(user) = self.poser(vm.pid, &vm.name, &vm.id) else { return self.has(&vm.name, &vm.id) };
        if self.refused.borrow_mut().insert(vm.id.clone()) {
            crate::text::note(format!(
                "VM {:?} does not run first: its process {} belongs to user {user}, who can give it any name. If you \
                mean this VM, give its id: --vm {}",
                vm.name, vm.pid, vm.id.0
            ));
        }
        false
    }

    fn has(&self, name: &str, id: &VmId) -> bool {
        self.names.iter().any(|given| is_named(given, name, id))
    }

    /// The person whose process has a name that the user gave, but no id.
    fn poser(&self, pid: u32, name: &str, id: &VmId) -> Option<u32> {
        let by_name = self.has(name, id) && !self.names.contains(&id.0);
        let user = by_name.then(|| task::user(&self.root, pid)).flatten()?;
        (may_be_a_persons(user) && !trusted::obeys(user)).then_some(user)
    }

    /// Refuses a name that several VMs have.
    ///
    /// # Errors
    /// `Usage`, with the ids of those that have it.
    pub fn need_distinct(&self, config: &HostConfig) -> Result<(), Fault> {
        for name in self.names {
            let called: Vec<&VmConfig> =
                config.vms.iter().filter(|vm| vm.name == *name || vm.id.0 == *name).collect();
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

    /// A host on which process 70 runs as root and process 71 as a person.
    fn host() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (pid, user) in [(70, 0), (71, 12_345)] {
            let process = folder.path().join(format!("proc/{pid}"));
            std::fs::create_dir_all(&process).unwrap();
            std::fs::write(process.join("status"), format!("Uid:\t{user}\t{user}\t{user}\t{user}\n"))
                .unwrap();
        }
        folder
    }

    #[test]
    fn a_name_does_not_stand_for_another_persons_process() {
        let host = host();
        for (given, poser) in
            [("bank", Some(12_345)), ("b*", Some(12_345)), ("qemu:71:1", None), ("other", None)]
        {
            let names = [given.to_owned()];
            let root = Root::open(host.path()).unwrap();
            let meant = Meant { names: &names, root, refused: RefCell::default() };
            let poser_of = |pid: u32| meant.poser(pid, "bank", &VmId(format!("qemu:{pid}:1")));
            assert_eq!((poser_of(70), poser_of(71)), (None, poser), "{given}");
        }
    }
}
