//! Finds the VMs of this machine, the manager that owns each, and the threads that belong to it.
//!
//! libvirt's list and `/proc` show the same processes. vsteer joins the two by the UUID on QEMU's command
//! line and by evidence that an ordinary user cannot fake ([`super::identity`]). A QEMU that no libvirt lists
//! has no manager. vsteer asks a libvirt again only if a new QEMU appears, but lists the
//! threads each time.
//!
//! Left out: libvirt's remote connections. vsteer measures threads on this machine, so it leaves out a VM
//! without a process here, and prints a note.

use super::client::{Client, Listed};
use super::processes::{self, Found, Origin, Process};
use super::roles::{self, Known, Said};
use super::{identity, labels, qmp, vmms, xml};
use crate::actuate::Run;
use crate::linux::cgroups::Cgroups;
use crate::linux::task;
use crate::root::Root;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{Duration, Instant};
use vsteer_bpf::Birth;
use vsteer_core::limits;
use vsteer_core::nouns::{Contender, Manager, Role, Tid, VmId};
use vsteer_core::{Fault, FaultKind};

/// If a QEMU is younger than this, its libvirt may not list it as active yet.
const YOUNG_S: u64 = 60;
/// A process that is new may be about to become a VMM. After this time it has.
const SETTLED: Duration = Duration::from_secs(1);
/// For so long a thread with a vCPU's name waits to be known as a VM's: a libvirt may list its VM late.
const BORN: Duration = Duration::from_secs(10);
/// At this age the threads of a VMM have their names.
const NAMED_S: f64 = 3.0;

/// A VM with its process.
#[derive(Debug, Clone)]
pub struct Vm {
    /// Its identity.
    pub id: VmId,
    /// Its name.
    pub name: String,
    /// The manager that owns it.
    pub manager: Manager,
    /// Its QEMU.
    pub process: Process,
    /// The VM in its libvirt's list.
    pub listed: Option<Listed>,
    /// The live description, parsed.
    pub domain: Option<xml::Domain>,
    /// The vCPU of each thread as QEMU's monitor reported it, if the threads' names do not show it.
    pub asked: Option<BTreeMap<Tid, u32>>,
}

impl Vm {
    /// What its users call it.
    pub fn labels(&self) -> labels::Labels {
        let of_definition = self.domain.as_ref().map(|d| d.labels.clone()).unwrap_or_default();
        if of_definition.is_empty() { labels::of_process(&self.process) } else { of_definition }
    }
}

/// A thread of a VM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Thread {
    /// Its id.
    pub tid: Tid,
    /// The process that contains it (itself, for a vhost kernel thread).
    pub pid: u32,
    /// What it does.
    pub role: Role,
}

/// The VMs of this machine, kept up to date.
pub struct Inventory {
    /// The machine.
    pub root: Root,
    /// Its cgroups.
    pub cgroups: Cgroups,
    /// Kernel threads (`vhost-PID`) of VMs, by the VM's process.
    pub vhosts: BTreeMap<u32, Vec<Tid>>,
    /// Programs that change by themselves what a plan changes, by their process, at the last full look.
    pub contenders: BTreeMap<u32, Contender>,
    /// The VMs at the last look, by id.
    pub vms: Vec<Vm>,
    /// Notes for the user, each once.
    pub notes: Vec<String>,
    connect: Option<String>,
    names: Vec<String>,
    clients: Vec<Client>,
    considered: BTreeSet<(u32, u64)>,
    /// When each process was first seen.
    processes: BTreeMap<u32, Instant>,
    roles: BTreeMap<(u32, Tid), Role>,
    /// Young processes of which all vCPUs have been found.
    listed: BTreeSet<u32>,
    /// Of how many VMs a note said this.
    said: BTreeMap<String, usize>,
    /// Threads that took a vCPU's name, until it is known whose they are.
    born: Vec<(Birth, Instant)>,
    /// What the kernel or a monitor said of the vCPUs of a process; `None` if the threads' names tell, or nothing does.
    told_vcpus: BTreeMap<(u32, u64), Option<BTreeMap<Tid, u32>>>,
}

impl Inventory {
    /// An empty inventory. `connect`: only the VMs of that libvirt. `names`: only VMs whose name or id
    /// matches one of these names, ids or patterns with `*` (empty: all).
    pub fn new(root: Root, connect: Option<String>, names: Vec<String>) -> Inventory {
        let cgroups = Cgroups::find(&root);
        let uris = match &connect {
            Some(uri) => vec![uri.clone()],
            None if root.is_live() => local_uris(std::env::var("XDG_RUNTIME_DIR").ok().as_deref()),
            None => Vec::new(),
        };
        Inventory {
            root,
            cgroups,
            vhosts: BTreeMap::new(),
            contenders: BTreeMap::new(),
            vms: Vec::new(),
            notes: Vec::new(),
            connect,
            names,
            clients: uris.iter().map(|uri| Client::new(uri, false)).collect(),
            considered: BTreeSet::new(),
            processes: BTreeMap::new(),
            roles: BTreeMap::new(),
            listed: BTreeSet::new(),
            said: BTreeMap::new(),
            born: Vec::new(),
            told_vcpus: BTreeMap::new(),
        }
    }

    /// Adds a note, unless it was made before. A note names VMs and processes, and anyone can start more of
    /// these, so the number of notes has a limit.
    pub fn note(&mut self, text: impl Into<String>) {
        let text = text.into();
        if self.notes.len() < limits::NOTES && !self.notes.contains(&text) {
            self.notes.push(text);
            if self.notes.len() == limits::NOTES {
                self.notes.push(format!("vsteer makes no more than {} notes", limits::NOTES));
            }
        }
    }

    /// Adds what `of` says of each VM: in one note for all of which it says the same.
    fn note_of_each(&mut self, vms: &[Vm], of: fn(&Vm) -> Vec<String>) {
        let mut says: BTreeMap<String, Vec<&str>> = BTreeMap::new();
        for vm in vms {
            of(vm).into_iter().for_each(|what| says.entry(what).or_default().push(&vm.name));
        }
        for (what, names) in says {
            if self.said.len() >= limits::NOTES && !self.said.contains_key(&what) {
                return;
            }
            // Where VMs come and go, it is said again when there are twice as many.
            let said = self.said.entry(what.clone()).or_default();
            if names.len() >= (2 * *said).max(1) {
                *said = names.len();
                self.note(format!("{}: {what}", listed(&names)));
            }
        }
    }

    /// The client of the libvirt at this URI.
    pub fn client(&mut self, uri: &str) -> Option<&mut Client> {
        self.clients.iter_mut().find(|c| c.uri() == uri)
    }

    /// The client of the libvirt at this URI, with permission to change something.
    pub fn client_for_writing(&mut self, uri: &str) -> Option<&mut Client> {
        let client = self.client(uri)?;
        client.set_write();
        Some(client)
    }

    /// Reads everything again, including libvirt's descriptions.
    ///
    /// # Errors
    /// If the libvirt that the user named cannot be asked. A libvirt that vsteer found itself only causes a
    /// note.
    pub fn look(&mut self) -> Result<(), Fault> {
        // The list comes before the processes. A VM that starts in between appears at the next look; a VM
        // that stops in between has no process.
        let mut listed = Vec::new();
        let mut faults = Vec::new();
        for client in &mut self.clients {
            match client.list() {
                Ok(all) => {
                    let manager = Manager::Libvirt(client.uri().to_owned());
                    listed.extend(all.into_iter().map(|vm| (manager.clone(), vm)));
                    faults.extend(client.undescribed().iter().map(|left_out| {
                        let uuid = left_out.uuid.as_deref().unwrap_or("with an unknown UUID");
                        format!("cannot describe VM {uuid} of {}: {}", client.uri(), left_out.cause)
                    }));
                }
                Err(fault) if self.connect.is_some() => return Err(fault),
                Err(fault) => faults.push(format!("skipped the VMs of libvirt at {}: {fault}", client.uri())),
            }
        }
        faults.into_iter().for_each(|f| self.note(f));
        let Found { qemus, vhosts, contenders } = processes::find(&self.root);
        self.vhosts = vhosts;
        self.contenders = contenders;
        self.considered = self.settled(&qemus, &listed);
        let vms = self.join(qemus, listed);
        self.vms = vms;
        Ok(())
    }

    /// Reads the list of processes; if it holds a new QEMU, reads everything again. If a libvirt does not answer
    /// (it may be restarting), vsteer makes a note and keeps the VMs known so far.
    pub fn refresh(&mut self) {
        let Found { qemus, vhosts, .. } = processes::find(&self.root);
        let now: BTreeSet<(u32, u64)> = qemus.iter().map(|q| (q.pid, q.start_ticks)).collect();
        if !now.is_subset(&self.considered) {
            match self.look() {
                Ok(()) => return,
                Err(fault) => self.note(format!("cannot look for new VMs for now: {fault}")),
            }
        }
        self.vhosts = vhosts;
        self.considered.retain(|process| now.contains(process));
        self.listed.clear();
        self.vms.retain(|vm| now.contains(&(vm.process.pid, vm.process.start_ticks)));
        self.told_vcpus.retain(|process, _| now.contains(process));
        self.tell_vcpus_of_new();
        // vCPUs may have been plugged in, or have run for the first time.
        let named = |pid: u32| {
            let of_process = (pid, Tid(0))..=(pid, Tid(u32::MAX));
            self.roles.range(of_process).any(|(_, role)| role.vcpu().is_some())
        };
        let is_asked = |vm: &Vm| vm.asked.is_some() || !named(vm.process.pid);
        if self.vms.iter().any(is_asked) {
            let these = self.vms.iter().filter(|vm| is_asked(vm)).map(|vm| vm.process.pid).collect();
            let mut all = vmms::vcpu_threads(&self.root, &these);
            for vm in &mut self.vms {
                if let Some(known) = all.remove(&vm.process.pid) {
                    vm.asked = Some(known);
                }
            }
        }
    }

    /// Adds VMs that have started since the last look, in little time. Forgets none. Those of libvirt come at the next
    /// refresh: libvirt describes them.
    pub fn add_new(&mut self) {
        if self.connect.is_some() {
            return;
        }
        let (now, pids) = (Instant::now(), processes::pids(&self.root));
        let there: BTreeSet<u32> = pids.iter().copied().collect();
        self.processes.retain(|pid, _| there.contains(pid));
        let is_unsettled = |pid: &u32| now - *self.processes.entry(*pid).or_insert(now) < SETTLED;
        let mut unsettled: Vec<u32> = pids.into_iter().filter(is_unsettled).collect();
        let known: BTreeSet<u32> = self.considered.iter().map(|(pid, _)| *pid).collect();
        unsettled.retain(|pid| !known.contains(pid));
        if unsettled.is_empty() {
            return;
        }
        let found = processes::find_among(&self.root, &unsettled, &vmms::holders_among_few(&self.root));
        let is_unlisted = |q: &Process| !matches!(q.origin, Origin::Libvirt | Origin::KubeVirt);
        let new: Vec<Process> = found.qemus.into_iter().filter(is_unlisted).collect();
        self.add_unlisted(new);
    }

    /// Adds the VMs of threads that took a vCPU's name, also of those that have ended. A living VM of libvirt comes at the
    /// next refresh.
    pub fn add_born(&mut self, births: Vec<Birth>) {
        self.born.retain(|(_, heard)| heard.elapsed() < BORN);
        if self.connect.is_none() {
            let now = Instant::now();
            self.born.extend(births.into_iter().map(|birth| (birth, now)));
        }
        if self.born.is_empty() {
            return;
        }
        let known: BTreeSet<u32> = self.vms.iter().map(|vm| vm.process.pid).collect();
        let unknown: BTreeSet<u32> = self.born.iter().map(|(birth, _)| birth.pid).collect();
        let unknown: Vec<u32> = unknown.difference(&known).copied().collect();
        if unknown.is_empty() {
            return;
        }
        let found = processes::find_among(&self.root, &unknown, &vmms::holders_among_few(&self.root));
        let there: BTreeSet<u32> = found.qemus.iter().map(|q| q.pid).collect();
        let is_unlisted = |q: &Process| !matches!(q.origin, Origin::Libvirt | Origin::KubeVirt);
        let mut new: Vec<Process> = found.qemus.into_iter().filter(is_unlisted).collect();
        let mut ended: BTreeMap<u32, Process> = BTreeMap::new();
        for (birth, _) in &self.born {
            if unknown.contains(&birth.pid)
                && !there.contains(&birth.pid)
                && let Some(process) = processes::that_was_born(&self.root, birth)
            {
                ended.insert(birth.pid, process);
            }
        }
        new.extend(ended.into_values());
        // Any process can name its threads so. One that runs and is no VM is not looked at again and again; that of a libvirt is
        // awaited.
        self.born.retain(|(birth, heard)| {
            known.contains(&birth.pid) || there.contains(&birth.pid) || heard.elapsed() < SETTLED
        });
        self.add_unlisted(new);
    }

    fn add_unlisted(&mut self, new: Vec<Process>) {
        if new.is_empty() {
            return;
        }
        self.considered.extend(new.iter().map(|q| (q.pid, q.start_ticks)));
        let mut vms = std::mem::take(&mut self.vms);
        vms.extend(new.into_iter().map(unlisted));
        // Their threads may have no names yet, so no monitor is asked before the next refresh.
        self.vms = self.sorted(vms);
    }

    /// The threads that took a vCPU's name, each once its VM is known. Some may have ended.
    pub fn born_threads(&mut self) -> Vec<(usize, Vec<Thread>)> {
        if self.born.is_empty() {
            return Vec::new();
        }
        let at: BTreeMap<u32, usize> =
            self.vms.iter().enumerate().map(|(i, vm)| (vm.process.pid, i)).collect();
        let mut all: BTreeMap<usize, Vec<Thread>> = BTreeMap::new();
        for (birth, _) in self.born.extract_if(.., |(birth, _)| at.contains_key(&birth.pid)) {
            let (i, pid, tid) = (at[&birth.pid], birth.pid, birth.tid);
            if let Some(vcpu) = roles::vcpu_name(&birth.name) {
                self.roles.insert((pid, tid), Role::Vcpu(vcpu));
                all.entry(i).or_default().push(Thread { tid, pid, role: Role::Vcpu(vcpu) });
            }
        }
        all.into_iter().collect()
    }

    /// The QEMUs about which vsteer need not ask libvirt again: all except young ones that libvirt does not
    /// list yet.
    fn settled(&self, qemus: &[Process], listed: &[(Manager, Listed)]) -> BTreeSet<(u32, u64)> {
        let uptime_s = self.uptime_s();
        let awaited = |q: &&Process| {
            let known = listed.iter().any(|(_, l)| Some(l.uuid.as_str()) == q.line.uuid.as_deref());
            !self.clients.is_empty()
                && q.origin == Origin::Libvirt
                && !known
                && age_s(uptime_s, q) < YOUNG_S as f64
        };
        qemus.iter().filter(|q| !awaited(q)).map(|q| (q.pid, q.start_ticks)).collect()
    }

    fn uptime_s(&self) -> f64 {
        let uptime = task::text(&self.root, "/proc/uptime").unwrap_or_default();
        uptime.split(' ').next().and_then(|s| s.parse().ok()).unwrap_or(f64::MAX)
    }

    fn join(&mut self, mut qemus: Vec<Process>, listed: Vec<(Manager, Listed)>) -> Vec<Vm> {
        let mut vms: Vec<Vm> = Vec::new();
        for (manager, vm) in listed {
            let domain = xml::parse(&vm.xml)
                .map_err(|e| self.note(format!("cannot read the definition of VM {:?}: {e}", vm.name)));
            let domain = domain.ok();
            let label = domain.as_ref().and_then(|d| d.user.as_deref());
            let user = label.and_then(|label| task::user_called(&self.root, label));
            let chosen = identity::choose(&qemus, &vm, user, &own_users());
            chosen.notes.into_iter().for_each(|note| self.note(note));
            let Some(at) = chosen.at else {
                self.note(format!(
                    "VM {:?} of {} has no process on this machine: measure it on the machine where it runs",
                    vm.name,
                    uri_of(&manager)
                ));
                continue;
            };
            let process = qemus.remove(at);
            vms.push(Vm {
                id: VmId(vm.uuid.to_ascii_lowercase().into()),
                name: vm.name.clone(),
                manager,
                process,
                domain,
                listed: Some(vm),
                asked: None,
            });
        }
        if self.connect.is_none() {
            // If two claim one UUID, the one that a person can have started comes second.
            qemus.sort_by_key(|q| (q.is_a_persons(), q.start_ticks));
            vms.extend(qemus.into_iter().map(unlisted));
        }
        let mut vms = self.sorted(vms);
        self.tell_vcpus(&mut vms);
        vms
    }

    /// The VMs that the caller asked for, in order.
    fn sorted(&mut self, mut vms: Vec<Vm>) -> Vec<Vm> {
        self.tell_apart(&mut vms);
        self.retain_named(&mut vms);
        self.note_of_each(&vms, limits_of_knowledge);
        vms.sort_by(|a, b| a.id.cmp(&b.id));
        vms
    }

    /// Leaves the VMs that the user named. If a text is not a VM's name or id, it may be what its users call it, unless
    /// they call another VM the same.
    fn retain_named(&mut self, vms: &mut Vec<Vm>) {
        if self.names.is_empty() {
            return;
        }
        let mut meant = vec![false; vms.len()];
        for pattern in self.names.clone() {
            let named: Vec<bool> = vms.iter().map(|vm| is_named(&pattern, &vm.name, &vm.id)).collect();
            let called =
                || vms.iter().map(|vm| labels::is_meant(&pattern, &vm.labels())).collect::<Vec<bool>>();
            let these = if named.contains(&true) { named } else { called() };
            let several = these.iter().filter(|is| **is).count() > 1;
            if several && !vms.iter().any(|vm| is_named(&pattern, &vm.name, &vm.id)) {
                self.note(format!(
                    "several VMs are called {pattern:?} by their users: give the project too, or a name or id"
                ));
                continue;
            }
            meant.iter_mut().zip(these).for_each(|(meant, is)| *meant |= is);
        }
        let mut meant = meant.into_iter();
        vms.retain(|_| meant.next().unwrap_or(false));
    }

    /// Two libvirts may run VMs with the same UUID (a copied definition), and anyone can write a UUID on a
    /// command line. The id of the second VM comes from its process.
    fn tell_apart(&mut self, vms: &mut [Vm]) {
        let mut taken: BTreeMap<VmId, u32> = BTreeMap::new();
        for vm in vms {
            let pid = vm.process.pid;
            if let Some(first) = taken.get(&vm.id).copied() {
                let uuid = std::mem::replace(&mut vm.id, id_of(&vm.process));
                self.note(format!(
                    "processes {first} and {pid} both have the id {}: vsteer measures both, and calls the second {}",
                    uuid.0, vm.id.0
                ));
            }
            taken.insert(vm.id.clone(), pid);
        }
    }

    /// Finds the vCPUs of VMs whose threads' names do not show them: the kernel may know, or the VM's monitor.
    fn tell_vcpus(&mut self, vms: &mut [Vm]) {
        // However many processes pose as VMs: the others are asked at the next look.
        let end = Instant::now() + limits::MONITORS_TIME;
        let these = vms.iter().map(|vm| vm.process.pid).collect();
        let mut of_kernel = None;
        for vm in vms.iter_mut() {
            let key = (vm.process.pid, vm.process.start_ticks);
            if let Some(told) = self.told_vcpus.get(&key) {
                vm.asked = told.clone();
                continue;
            }
            let told = if self.threads_of(vm).iter().any(|t| t.role.vcpu().is_some()) {
                None
            } else {
                let all = of_kernel.get_or_insert_with(|| vmms::vcpu_threads(&self.root, &these));
                if let Some(known) = all.get(&vm.process.pid) {
                    Some(known.clone())
                } else if self.root.is_live() && vm.process.origin == Origin::Nobody {
                    if Instant::now() > end {
                        continue;
                    }
                    self.ask_monitor(vm)
                } else {
                    continue;
                }
            };
            self.told_vcpus.insert(key, told.clone());
            vm.asked = told;
        }
    }

    /// The same of VMs that [`Inventory::add_new`] added. A VMM that has just started, or is about to end, may have no
    /// thread with a vCPU's name: its monitor is asked only at an age at which it must have them.
    fn tell_vcpus_of_new(&mut self) {
        let uptime_s = self.uptime_s();
        let is_due = |vm: &Vm| {
            let process = &vm.process;
            let is_told = self.told_vcpus.contains_key(&(process.pid, process.start_ticks));
            !is_told && age_s(uptime_s, process) >= NAMED_S
        };
        if self.vms.iter().any(is_due) {
            let mut vms = std::mem::take(&mut self.vms);
            let (mut due, others): (Vec<Vm>, Vec<Vm>) = vms.drain(..).partition(is_due);
            self.tell_vcpus(&mut due);
            vms.extend(due.into_iter().chain(others));
            vms.sort_by(|a, b| a.id.cmp(&b.id));
            self.vms = vms;
        }
    }

    /// What the VM's monitor says of its vCPUs, once.
    fn ask_monitor(&mut self, vm: &Vm) -> Option<BTreeMap<Tid, u32>> {
        let vcpus = match vmms::vcpu_descriptors(&self.root, vm.process.pid) {
            0 => "its vCPUs".to_owned(),
            n => format!("which threads are its {n} vCPUs"),
        };
        if let Some(program) = &vm.process.line.program {
            self.note(format!(
                "VM {:?} of {program}: cannot tell {vcpus}: no thread has a name that vsteer knows as a vCPU's, and \
                 /sys/kernel/debug/kvm does not say it either",
                vm.name
            ));
            return None;
        }
        let said = match vm.process.line.qmp_sockets.first() {
            Some(path) => qmp::vcpu_threads(&self.root, vm.process.pid, path),
            None => Err("the VM has no monitor of its own".to_owned()),
        };
        if let Err(why) = &said {
            self.note(format!(
                "VM {:?}: cannot tell {vcpus}: its threads have no names, /sys/kernel/debug/kvm does not tell them, and \
                 {why}: start it with -name NAME,debug-threads=on",
                vm.name
            ));
        }
        said.ok()
    }

    /// The existing runs of this VM, from processes alone. So it includes a VM that its libvirt does not
    /// list, and a VM whose libvirt is unreachable.
    pub fn runs_of(&self, id: &VmId) -> Vec<Run> {
        let is_it = |q: &Process| {
            let uuid = q.line.uuid.as_deref();
            uuid.is_some_and(|uuid| uuid.eq_ignore_ascii_case(&id.0))
                || unlisted_id(q) == *id
                || id_of(q) == *id
        };
        let qemus = processes::find(&self.root).qemus;
        let these = qemus.iter().filter(|q| is_it(q));
        these.map(|q| Run { pid: q.pid, start_ticks: q.start_ticks }).collect()
    }

    /// The URIs of the connected libvirts.
    pub fn uris(&self) -> Vec<String> {
        self.clients.iter().map(|c| c.uri().to_owned()).collect()
    }

    /// The present threads of every VM: vCPUs first in index order, then the others by tid. A VM without
    /// threads is gone.
    pub fn threads(&mut self) -> Vec<(usize, Vec<Thread>)> {
        let all: Vec<(usize, Vec<Thread>)> = self
            .vms
            .iter()
            .enumerate()
            .map(|(i, vm)| (i, self.threads_of(vm)))
            .filter(|(_, t)| !t.is_empty())
            .collect();
        // A worker may be a vCPU thread that did not have its name yet.
        let lasting = |t: &&Thread| t.role != Role::Worker;
        self.roles =
            all.iter().flat_map(|(_, t)| t).filter(lasting).map(|t| ((t.pid, t.tid), t.role)).collect();
        all
    }

    /// The threads of VMs that have just started, as far as their names say what they are.
    pub fn new_threads(&mut self) -> Vec<(usize, Vec<Thread>)> {
        let uptime_s = self.uptime_s();
        let mut all = Vec::new();
        for (i, vm) in self.vms.iter().enumerate() {
            let is_young = age_s(uptime_s, &vm.process) < NAMED_S;
            if !is_young || self.listed.contains(&vm.process.pid) {
                continue;
            }
            let mut threads = self.threads_of(vm);
            threads.retain(|t| t.role != Role::Worker);
            all.push((i, threads));
        }
        for (i, threads) in &all {
            let vcpus = || threads.iter().filter(|t| t.role.vcpu().is_some());
            // Once there are vCPUs, the next look finds the others.
            if vcpus().next().is_some() && vcpus().all(|t| self.roles.contains_key(&(t.pid, t.tid))) {
                self.listed.insert(self.vms[*i].process.pid);
            }
            self.roles.extend(threads.iter().map(|t| ((t.pid, t.tid), t.role)));
        }
        all
    }

    /// The present threads of one VM.
    pub fn threads_of(&self, vm: &Vm) -> Vec<Thread> {
        let pid = vm.process.pid;
        let line = &vm.process.line;
        let known = Known {
            pid,
            is_qemu: line.program.is_none(),
            iothreads: &line.iothreads,
            asked: vm.asked.as_ref(),
        };
        let mut threads: Vec<Thread> = Vec::new();
        let mut unnumbered = Vec::new();
        for tid in task::threads(&self.root, pid) {
            let said = match self.roles.get(&(pid, tid)) {
                Some(role) => Some(Said::Role(*role)),
                None => self.role_of(&known, tid),
            };
            match said {
                Some(Said::Role(role)) => threads.push(Thread { tid, pid, role }),
                Some(Said::IoThread(name)) => unnumbered.push((tid, name)),
                None => {}
            }
        }
        // After all others, because these hold their numbers. A thread that starts later has a larger id.
        unnumbered.sort_unstable();
        let mut taken: BTreeSet<u32> = threads.iter().filter_map(|t| iothread(t.role)).collect();
        for (tid, name) in unnumbered {
            let number = roles::number(&line.iothreads, &name, &taken);
            taken.insert(number);
            threads.push(Thread { tid, pid, role: Role::IoThread(number) });
        }
        let apart = self.vhosts.get(&pid).into_iter().flatten();
        threads.extend(apart.map(|tid| Thread { tid: *tid, pid: tid.0, role: Role::Vhost }));
        threads.sort_by_key(|t| (t.role.vcpu().unwrap_or(u32::MAX), t.tid));
        threads
    }

    /// The role of a thread, by what its files say; `None` if it has ended.
    fn role_of(&self, known: &Known<'_>, tid: Tid) -> Option<Said> {
        let comm = task::text(&self.root, &format!("/proc/{}/task/{}/comm", known.pid, tid.0))?;
        let comm = comm.strip_suffix('\n').unwrap_or(&comm);
        let cgroup = self.cgroups.of_thread(&self.root, known.pid, tid);
        Some(roles::role(known, tid, comm, cgroup.as_deref()))
    }
}

/// Names of VMs, few of many.
fn listed(names: &[&str]) -> String {
    const NAMED: usize = 3;
    let quoted = names.iter().take(NAMED).map(|name| format!("{name:?}")).collect::<Vec<_>>().join(", ");
    match names.len() {
        1 => format!("VM {quoted}"),
        n if n <= NAMED => format!("VMs {quoted}"),
        n => format!("VMs {quoted} and {} more", n - NAMED),
    }
}

/// What vsteer does not know of a VM, or cannot do with it.
fn limits_of_knowledge(vm: &Vm) -> Vec<String> {
    let mut all = Vec::new();
    match &vm.manager {
        Manager::Libvirt(uri) if uri.is_empty() => all.push(
            "vsteer is not connected to the libvirt of this VM: it measures the VM, but can change it only with \
             --connect URI"
                .to_owned(),
        ),
        Manager::Proxmox(_) => all.push(untried("Proxmox VE")),
        Manager::KubeVirt => all.push(untried("KubeVirt")),
        Manager::Kata => all.push(untried("Kata Containers")),
        _ => {}
    }
    if let (None, Some(Err(why))) = (&vm.domain, &vm.process.line.topology) {
        all.push(format!("cannot tell the topology that the guest sees: {why}"));
    }
    if let (None, Some(Err(why))) = (&vm.domain, &vm.process.line.memory) {
        all.push(format!("cannot tell its memory: {why}"));
    }
    all
}

fn untried(manager: &str) -> String {
    format!("support for {manager} is untried: compare before you rely on it")
}

fn age_s(uptime_s: f64, process: &Process) -> f64 {
    uptime_s - process.start_ticks as f64 / rustix::param::clock_ticks_per_second() as f64
}

/// The number of an I/O thread.
fn iothread(role: Role) -> Option<u32> {
    match role {
        Role::IoThread(n) => Some(n),
        _ => None,
    }
}

/// The users that a libvirt of this person can run as: the user who runs vsteer, and the owner of the session's folder
/// (a shell of root's can have another user's session).
fn own_users() -> Vec<u32> {
    let session = std::env::var_os("XDG_RUNTIME_DIR").and_then(|folder| std::fs::metadata(folder).ok());
    let session = session.map(|folder| std::os::unix::fs::MetadataExt::uid(&folder));
    session.into_iter().chain([rustix::process::geteuid().as_raw()]).collect()
}

fn uri_of(manager: &Manager) -> &str {
    match manager {
        Manager::Libvirt(uri) => uri,
        _ => "",
    }
}

/// A VM that no libvirt lists.
fn unlisted(process: Process) -> Vm {
    let line = &process.line;
    let manager = match process.origin {
        Origin::Libvirt => Manager::Libvirt(String::new()),
        Origin::KubeVirt => Manager::KubeVirt,
        Origin::Kata => Manager::Kata,
        Origin::Proxmox(id) => Manager::Proxmox(id),
        Origin::Nobody => Manager::Bare,
    };
    let program = line.program.as_deref().unwrap_or("qemu");
    let name = line.name.clone().filter(|n| !n.is_empty());
    let name = name.unwrap_or_else(|| format!("{program}-{}", process.pid));
    let name = if name.chars().count() > limits::VM_NAME {
        let begin: String = name.chars().take(limits::VM_NAME - 30).collect();
        format!("{begin}... (process {})", process.pid)
    } else {
        name
    };
    let id = unlisted_id(&process);
    Vm { id, name, manager, process, listed: None, domain: None, asked: None }
}

/// Does the id hold the number and the start of a process? A UUID of a command line never looks like that.
pub fn is_of_process(id: &VmId) -> bool {
    ["kvm:", "qemu:"].iter().any(|kind| id.0.starts_with(kind))
}

/// The id of a VM that no libvirt lists: one that lasts beyond this run, if its manager gives one.
fn unlisted_id(process: &Process) -> VmId {
    let line = &process.line;
    let lasting = match process.origin {
        Origin::Libvirt | Origin::KubeVirt => line.uuid.clone(),
        // Not the UUID that the guest sees: a restored copy of a VM may have the same.
        Origin::Proxmox(id) => Some(format!("proxmox:{id}")),
        // Anybody can write a UUID on a command line; a new pod has a new one.
        Origin::Kata | Origin::Nobody => None,
    };
    lasting.map_or_else(|| id_of(process), |id| VmId(id.into()))
}

fn id_of(process: &Process) -> VmId {
    let vmm = if process.line.program.is_some() { "kvm" } else { "qemu" };
    VmId(format!("{vmm}:{}:{}", process.pid, process.start_ticks).into())
}

/// Does `pattern` match the VM: its id, Proxmox's number of it, its name, or a pattern in which `*` stands for any characters?
pub fn is_named(pattern: &str, name: &str, id: &VmId) -> bool {
    let number = id.0.strip_prefix("proxmox:");
    pattern == name
        || *pattern == *id.0
        || Some(pattern) == number
        || (pattern.contains('*') && fits(pattern, name))
}

fn fits(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = name.strip_prefix(first) else { return false };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else { return rest.is_empty() };
    for part in parts {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

/// The URIs of the libvirts whose sockets are where libvirt's own clients look for them.
fn local_uris(runtime_folder: Option<&str>) -> Vec<String> {
    let has = |folder: &str| {
        ["libvirt-sock", "virtqemud-sock"].iter().any(|s| Path::new(folder).join("libvirt").join(s).exists())
    };
    let mut uris = Vec::new();
    if has("/run") || has("/var/run") {
        uris.push("qemu:///system".to_owned());
    }
    if runtime_folder.is_some_and(has) {
        uris.push("qemu:///session".to_owned());
    }
    uris
}

/// The fault for a filter that matches no VM.
pub fn no_such_vm(names: &[String], there: &[String]) -> Fault {
    let there = if there.is_empty() {
        "no VM runs here".to_owned()
    } else {
        format!("the VMs here are {}", there.join(", "))
    };
    Fault::new(FaultKind::NothingThere, format!("no VM is named {}", names.join(" or ")))
        .because(there)
        .help("give a VM's name, UUID or a pattern with *; name another libvirt with --connect URI")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn patterns() {
        for (pattern, name, yes) in [
            ("web*", "web1", true),
            ("*1", "web1", true),
            ("w*b*", "web1", true),
            ("*", "", true),
            ("w*w", "w", false),
            ("w*x*1", "web1", false),
        ] {
            assert_eq!(fits(pattern, name), yes, "{pattern} {name}");
        }
    }

    proptest! {
        #[test]
        fn any_pattern_answers(pattern in "[a*\u{fc}]{0,8}", name in "[a\u{fc}]{0,8}") {
            let _ = fits(&pattern, &name);
            let (begins, ends) = (format!("{name}*"), format!("*{name}"));
            prop_assert!(fits("*", &name) && fits(&begins, &name) && fits(&ends, &name));
        }
    }
}
