//! Loads the observer, marks the threads to watch, and reads what it counted.
//!
//! The reader copies whole slots and never locks the writers: a slot's two sequence numbers tell a torn copy, which is
//! read again ([`Shared::whole`]). A spell that is still open when it is read is counted up to that moment.

use crate::births::{Birth, Births};
use crate::blame::{Cause, Copied, Keeper, Open, Reader};
use crate::clock::{now_ns, thread_cpu_ns};
use crate::events::{EVENT_PCPUS_MAX, Events};
use crate::kvm;
use crate::layout::{CulpritKey, NO_LAG_MARK, Pcpu, QuotaClocksRaw, SPARES, Slot, culprit, state};
use crate::load::{Options, load, quiet_libbpf};
use crate::refused::refused;
use crate::shared::Shared;
use bytemuck::Zeroable;
use libbpf_rs::btf::Btf;
use libbpf_rs::btf::types::Struct;
use libbpf_rs::{Iter, Link, MapCore, MapFlags, Object};
use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::mem::offset_of;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use vsteer_core::nouns::{
    BlameSample, Collector, Culprit, HISTOGRAM_BUCKETS, Histogram, QuotaClocks, Role, ThreadCounters,
    ThreadSample, Tid, VmId,
};
use vsteer_core::{CpuSet, Fault, FaultKind};

/// Number of different affinities for which idle pCPUs count as placement: each costs looks at all its pCPUs.
const WIDE_AFFINITIES: usize = 128;
/// Names of VMs that are kept: traces may name one that is gone.
const NAMES: usize = 1 << 14;
/// How often the slots are copied until this thread kept its pCPU meanwhile.
const COPY_TRIES: u32 = 10;
/// The thread lost its pCPU if it did not run for this long.
const COPY_LOST_NS: u64 = 200_000;
/// A copy of 1.8 KB per slot takes less from any memory. If it took longer, a hypervisor may have taken the pCPU.
const COPY_LONG_NS: u64 = 200_000;
const COPY_PER_SLOT_NS: u64 = 10_000;

/// A thread to watch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Watched {
    /// VM that owns the thread.
    pub vm: VmId,
    /// Role of the thread in its VM.
    pub role: Role,
    /// Its host thread id.
    pub tid: Tid,
    /// Allowed pCPUs: if one of these idles while the thread is ready, its wait counts as placement.
    pub affinity: CpuSet,
}

/// Everything counted up to one moment.
#[derive(Debug, Clone, Default)]
pub struct Reading {
    /// `CLOCK_MONOTONIC`, ns.
    pub mono_ns: u64,
    /// The watched threads, with their counters. One that has ended is in the first reading after its end, and in none later.
    pub threads: Vec<ThreadSample>,
    /// How many of the watched threads have ended.
    pub ended: usize,
    /// Blame: which culprit made which thread wait.
    pub blame: Vec<BlameSample>,
    /// Number of impossible transitions; not 0 if the kernel skipped a probe.
    pub surprises: u64,
}

/// A VM of which threads are watched.
#[derive(Debug, Clone, Copy)]
struct Vm {
    /// No other VM ever gets it.
    number: u32,
    /// Index of its running clock.
    clock: u32,
    threads: u32,
}

/// Copies of the slots.
#[derive(Default)]
struct Slots {
    /// `CLOCK_MONOTONIC` just before, ns.
    mono_ns: u64,
    slots: Vec<(u32, Slot)>,
}

/// The loaded and attached observer. Dropping it detaches all programs.
pub struct Observer {
    object: Object,
    links: Vec<Link>,
    pcpus: u32,
    slots: Shared<Slot>,
    ran: Arc<Shared<Pcpu>>,
    watched: BTreeMap<u32, Watched>, // 0-based slot
    vms: BTreeMap<VmId, Vm>,
    vm_names: BTreeMap<u32, VmId>, // number -> name, also of VMs that are gone
    clocks: BTreeMap<u32, u32>,    // running clock -> number of slots that step it
    free_clocks: Vec<u32>,
    retired: Vec<(u32, Option<u32>)>, // slot and its clock; its thread still writes there
    free: Vec<u32>,
    births: Births,
    told: RefCell<BTreeMap<u32, (u64, u64)>>, // slot -> (ready, limited) as last handed out
    copy: RefCell<Slots>,                     // what the next copy overwrites
    ended: RefCell<BTreeSet<u32>>, // slots whose thread has ended, and whose last counts were handed out
    traces: Arc<Mutex<Reader>>,
    keeper: Keeper,
    limits: Options,
    collector: Collector,
}

impl Observer {
    /// Loads the programs, checks their layout and attaches them. Watches no thread yet.
    ///
    /// # Errors
    /// `NoPrivilege` without CAP_BPF and CAP_PERFMON; `Unsupported` if the kernel has no BTF or rejects a program.
    pub fn start(limits: Options) -> Result<Observer, Fault> {
        quiet_libbpf();
        // Kernels that do not charge BPF memory to a cgroup count it against this limit. Without the privilege to
        // raise it the load itself will say so.
        let unlimited = rustix::process::Rlimit { current: None, maximum: None };
        let _ = rustix::process::setrlimit(rustix::process::Resource::Memlock, unlimited);
        let kernel = Btf::from_vmlinux()
            .map_err(|e| refused("the kernel has no type information (CONFIG_DEBUG_INFO_BTF)", &e))?;
        let pcpus =
            libbpf_rs::num_possible_cpus().map_err(|e| refused("cannot count the possible CPUs", &e))? as u32;
        if limits.event_buffer_bytes.is_some() && pcpus > EVENT_PCPUS_MAX {
            return Err(Fault::new(
                FaultKind::Unsupported,
                format!("cannot record every switch on a host with {pcpus} pCPUs"),
            )
            .because(format!(
                "a recorded switch has 10 bits for its pCPU, so the limit is {EVENT_PCPUS_MAX} pCPUs"
            ))
            .help("record without --events"));
        }
        let slot = <Slot as bytemuck::Zeroable>::zeroed();
        let measured = counters(&slot, &slot.in_state, 0, true, &|_| true);
        let mut collector =
            Collector::new("ebpf", |c| measured.holds(c), "the eBPF observer does not count it");
        let tells_limited = kernel
            .type_by_name::<Struct<'_>>("cfs_rq")
            .is_some_and(|t| t.iter().any(|m| m.name.is_some_and(|n| n == "throttled_clock_self_time")));
        if !tells_limited {
            let why = "this kernel does not report how long a quota holds threads (needs Linux 6.6 with CFS bandwidth)";
            collector = collector
                .without(&["limited_ns"], why)
                .without(&["ready_ns"], &format!("not distinguishable from limited: {why}"));
        }
        let (object, no_kvm) = match kvm::missing(&kernel) {
            Some(why) => (load(&limits, &kernel, pcpus, false)?, Some(why)),
            // What a module describes is less settled than the kernel's own: without it the rest is still worth having.
            None => match load(&limits, &kernel, pcpus, true) {
                Ok(object) => (object, None),
                Err(fault) => {
                    let object = load(&limits, &kernel, pcpus, false)?;
                    let why = fault.cause.unwrap_or(fault.what);
                    (object, Some(format!("the kernel rejects the programs that count KVM exits: {why}")))
                }
            },
        };
        if let Some(why) = no_kvm {
            collector = collector.without(&kvm::COUNTERS, &why);
        }

        let mut links = Vec::new();
        for program in object.progs_mut() {
            let iterates = program.section().to_string_lossy().starts_with("iter");
            if iterates || !program.autoload() {
                continue;
            }
            let name = program.name().to_string_lossy().into_owned();
            links.push(program.attach().map_err(|e| refused(&format!("cannot attach {name}"), &e))?);
        }
        let map = |name: &str| object.maps().find(|m| m.name() == name).expect("checked when loaded");
        let (slots, ran) = (Shared::to_write(&map("slots"))?, Arc::new(Shared::of(&map("pcpus"))?));
        let traces = Arc::new(Mutex::new(Reader::of(Arc::clone(&ran), pcpus)));
        let keeper = Keeper::start(&traces, limits.confine)?;
        let births = Births::of(&object)?;
        let mut observer = Observer {
            object,
            links,
            pcpus,
            slots,
            ran,
            watched: BTreeMap::new(),
            vms: BTreeMap::new(),
            vm_names: BTreeMap::new(),
            clocks: BTreeMap::new(),
            free_clocks: (1..=limits.vms).rev().collect(),
            retired: Vec::new(),
            free: (0..limits.threads).rev().collect(),
            births,
            told: RefCell::default(),
            copy: RefCell::default(),
            ended: RefCell::default(),
            traces,
            keeper,
            limits,
            collector,
        };
        observer.lay_spares()?;
        Ok(observer)
    }

    /// What this kernel allows to count, and the reasons for the rest.
    pub fn collector(&self) -> &Collector {
        &self.collector
    }

    fn map(&self, name: &str) -> impl MapCore + '_ {
        self.object.maps().find(|m| m.name() == name).expect("the object was checked when it was loaded")
    }

    /// From now on watches exactly these threads: new ones are marked, changed affinities taken over, and those not
    /// named any more forgotten with their counts.
    ///
    /// # Errors
    /// `Unsupported` when there are more threads or VMs than [`Options`] made room for: those with room
    /// are watched all the same. What the kernel refuses.
    pub fn watch(&mut self, threads: &[Watched]) -> Result<(), Fault> {
        let wanted: BTreeMap<Tid, &Watched> = threads.iter().map(|w| (w.tid, w)).collect();
        let gone: BTreeSet<u32> = self
            .watched
            .iter()
            .filter(|(_, w)| wanted.get(&w.tid).is_none_or(|n| n.vm != w.vm || n.role != w.role))
            .map(|(slot, _)| *slot)
            .collect();
        self.forget(&gone)?;
        self.watch_more(threads)
    }

    /// Watches these threads too, or takes over their changed affinities.
    ///
    /// # Errors
    /// As [`Observer::watch`].
    pub fn watch_more(&mut self, threads: &[Watched]) -> Result<(), Fault> {
        let wanted: BTreeMap<Tid, &Watched> = threads.iter().map(|w| (w.tid, w)).collect();
        self.births.hear()?;
        self.free_retired()?;
        let known: BTreeMap<Tid, u32> = self.watched.iter().map(|(slot, w)| (w.tid, *slot)).collect();
        let (mut any_new, mut no_room) = (false, None);
        for w in wanted.values() {
            let slot = match known.get(&w.tid) {
                Some(slot) if self.watched[slot].affinity == w.affinity => continue,
                Some(slot) => *slot,
                None => match self.add_slot(w) {
                    Ok((slot, is_marked)) => {
                        any_new |= !is_marked;
                        slot
                    }
                    Err(full) if full.kind == FaultKind::Unsupported => {
                        no_room.get_or_insert(full);
                        continue;
                    }
                    Err(fault) => return Err(fault),
                },
            };
            self.charge(slot, w);
            self.watched.insert(slot, (*w).clone());
        }
        if any_new {
            self.mark_threads()?;
        }
        no_room.map_or(Ok(()), Err)
    }

    /// A slot for this thread, and whether the kernel side counts there already.
    fn add_slot(&mut self, w: &Watched) -> Result<(u32, bool), Fault> {
        let full = |what: &str, room: u32| {
            Fault::new(FaultKind::Unsupported, format!("cannot watch more than {room} {what}"))
                .help("restart vsteer: it reserves room for twice the threads it finds")
        };
        let born = self.births.take(w.tid);
        if born.is_none() && self.free.is_empty() {
            return Err(full("threads", self.limits.threads));
        }
        let Some(vm) = self.vm_of(&w.vm)? else {
            self.retire_unwatched(born.as_slice());
            return Err(full("VMs", self.limits.vms));
        };
        *self.clocks.entry(vm.clock).or_default() += 1;
        let is_vcpu = u32::from(w.role.vcpu().is_some());
        let slot = match born {
            Some(slot) => {
                self.slots.set(slot, offset_of!(Slot, clock), vm.clock);
                self.slots.set(slot, offset_of!(Slot, vm), vm.number);
                // Last: from now on the thread steps its VM's clock.
                self.slots.set(slot, offset_of!(Slot, is_vcpu), is_vcpu);
                slot
            }
            None => {
                let slot = self.free.pop().expect("it is not empty");
                let (tid, vm, clock) = (w.tid.0, vm.number, vm.clock);
                let blank = Slot { tid, vm, clock, is_vcpu, ..bytemuck::Zeroable::zeroed() };
                self.put("slots", &slot.to_ne_bytes(), bytemuck::bytes_of(&blank))?;
                slot
            }
        };
        self.put("slot_of_tid", &w.tid.0.to_ne_bytes(), &(slot + 1).to_ne_bytes())?;
        Ok((slot, born.is_some()))
    }

    /// The threads that took a vCPU's name since the last call, and which the kernel side counts since then. Those
    /// that are watched within some seconds keep these counts.
    ///
    /// # Errors
    /// What the kernel refuses.
    pub fn births(&mut self) -> Result<Vec<Birth>, Fault> {
        self.births.hear()?;
        let births = self.births.heard();
        let unwanted = self.births.unwanted();
        self.retire_unwatched(&unwanted);
        self.free_retired()?;
        self.lay_spares()?;
        Ok(births)
    }

    /// Gives up slots of threads that no VM has.
    fn retire_unwatched(&mut self, slots: &[u32]) {
        if !slots.is_empty() {
            self.traces().blame.forget(&slots.iter().map(|slot| slot + 1).collect());
            self.retired.extend(slots.iter().map(|slot| (*slot, None)));
        }
    }

    /// Lays slots ready for threads not known yet. With those that such threads got and no VM has, they are at most a quarter
    /// of all: any user can name threads, and must not take the slots of VMs.
    fn lay_spares(&mut self) -> Result<(), Fault> {
        let unwatched = self.retired.iter().filter(|(_, clock)| clock.is_none()).count();
        let most = SPARES.min(self.limits.threads as usize / 4);
        for _ in 0..most.saturating_sub(self.births.held() + unwatched) {
            let Some(slot) = self.free.pop() else { break };
            self.traces().blame.expect(slot + 1);
            self.births.lay(slot)?;
        }
        Ok(())
    }

    fn forget(&mut self, gone: &BTreeSet<u32>) -> Result<(), Fault> {
        if gone.is_empty() {
            return Ok(());
        }
        self.traces().blame.forget(&gone.iter().map(|slot| slot + 1).collect());
        for slot in gone {
            let Some(w) = self.watched.remove(slot) else { continue };
            self.told.borrow_mut().remove(slot);
            self.ended.borrow_mut().remove(slot);
            // The entry of an exited thread is gone already.
            let _ = self.map("slot_of_tid").delete(&w.tid.0.to_ne_bytes());
            let vm = self.vms.get_mut(&w.vm).expect("a watched thread's VM is known");
            vm.threads -= 1;
            // The mark lives as long as the thread; a living one must not write into somebody else's slot.
            self.retired.push((*slot, Some(vm.clock)));
            if vm.threads == 0 {
                self.vms.remove(&w.vm);
            }
        }
        self.free_retired()
    }

    /// Gives back the slots whose threads have ended, and the clocks that no slot steps any more.
    fn free_retired(&mut self) -> Result<(), Fault> {
        for (slot, clock) in std::mem::take(&mut self.retired) {
            if self.slots.whole(slot).is_none_or(|s| s.state != state::ABSENT) {
                self.retired.push((slot, clock));
                continue;
            }
            self.put("slots", &slot.to_ne_bytes(), &vec![0u8; size_of::<Slot>()])?;
            self.free.push(slot);
            let Some(clock) = clock else { continue };
            let users = self.clocks.get_mut(&clock).expect("a slot's clock is in use");
            *users -= 1;
            if *users == 0 {
                self.clocks.remove(&clock);
                self.free_clocks.push(clock);
            }
        }
        Ok(())
    }

    /// The VM of a further thread; `None` if all clocks of VMs are in use.
    fn vm_of(&mut self, id: &VmId) -> Result<Option<Vm>, Fault> {
        if let Some(vm) = self.vms.get_mut(id) {
            vm.threads += 1;
            return Ok(Some(*vm));
        }
        let Some(clock) = self.free_clocks.pop() else { return Ok(None) };
        self.put("running_clocks", &clock.to_ne_bytes(), &0_u64.to_ne_bytes())?;
        let number = self.vm_names.last_key_value().map_or(1, |(last, _)| last + 1);
        let vm = Vm { number, clock, threads: 1 };
        self.vms.insert(id.clone(), vm);
        self.vm_names.insert(number, id.clone());
        if self.vm_names.len() > NAMES.max(2 * self.vms.len()) {
            let live: BTreeSet<u32> = self.vms.values().map(|vm| vm.number).collect();
            let recent = number - (NAMES / 2) as u32;
            self.vm_names.retain(|number, _| *number > recent || live.contains(number));
        }
        Ok(Some(vm))
    }

    /// Charges the waits of a thread, from now on by this affinity.
    fn charge(&mut self, slot: u32, w: &Watched) {
        let mut traces = self.traces();
        let blame = &mut traces.blame;
        let is_told =
            w.affinity.len() <= 1 || blame.knows(&w.affinity) || blame.wide_affinities() < WIDE_AFFINITIES;
        blame.watch(slot + 1, w.tid.0, is_told.then_some(&w.affinity));
        drop(traces);
        if !is_told {
            let why =
                "too many distinct affinity sets: for some threads vsteer does not distinguish idle pCPUs";
            self.collector = self.collector.clone().without(&["blame.placement"], why);
        }
    }

    fn traces(&self) -> MutexGuard<'_, Reader> {
        self.traces.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, map: &str, key: &[u8], value: &[u8]) -> Result<(), Fault> {
        self.map(map)
            .update(key, value, MapFlags::ANY)
            .map_err(|e| refused(&format!("cannot write table {map}"), &e))
    }

    /// Could a thread that starts now be watched? Writes to a table and walks all tasks, without effect.
    ///
    /// # Errors
    /// What the kernel refuses.
    pub fn can_watch(&self) -> Result<(), Fault> {
        if let Some(unused) = self.free.first() {
            self.put("slots", &unused.to_ne_bytes(), &vec![0u8; size_of::<Slot>()])?;
        }
        self.mark_threads()
    }

    /// Walks all tasks in the kernel and marks those in `slot_of_tid`.
    fn mark_threads(&self) -> Result<(), Fault> {
        self.walk_tasks("register_threads").map(|_| ())
    }

    /// When periods of quotas begin, of the groups that the watched threads are in; without those where the kernel
    /// does not tell. It has them for groups without a quota too: one that is set later begins its periods there.
    ///
    /// # Errors
    /// If the tasks cannot be listed.
    pub fn quota_clocks(&self) -> Result<BTreeMap<Tid, QuotaClocks>, Fault> {
        let told = self.walk_tasks("tell_quota_clocks")?;
        let of = |bytes: &[u8]| -> QuotaClocksRaw { bytemuck::pod_read_unaligned(bytes) };
        let all = told.chunks_exact(size_of::<QuotaClocksRaw>()).map(of);
        let known = all.filter(|c| c.own != 0);
        Ok(known.map(|c| (Tid(c.tid), QuotaClocks { own_ns: c.own, above_ns: c.above })).collect())
    }

    /// Runs a program for every task; returns what it wrote.
    fn walk_tasks(&self, program: &str) -> Result<Vec<u8>, Fault> {
        let program = self.object.progs_mut().find(|p| p.name() == program).expect("checked when loaded");
        let link = program.attach().map_err(|e| refused("cannot attach the task iterator", &e))?;
        let mut iter = Iter::new(&link).map_err(|e| refused("cannot list the tasks", &e))?;
        let mut told = Vec::new();
        iter.read_to_end(&mut told).map_err(|e| Fault::io("eBPF: cannot list the tasks", &e))?;
        Ok(told)
    }

    /// The slots in use, with the moment just before. A copy during which this thread lost its pCPU would mix moments, so
    /// the quickest of some tries is taken. Copies overwrite earlier ones, because the kernel clears new memory page by page,
    /// which would slow the copy down.
    fn copy(&self) -> Slots {
        let mut quickest = self.copy.take();
        // Few are repeated, so only the quickest one's memory is kept.
        let mut other = Slots::default();
        let mut least = u64::MAX;
        for _ in 0..COPY_TRIES {
            let next = if least == u64::MAX { &mut quickest } else { &mut other };
            let ran_ns = thread_cpu_ns();
            self.copy_into(next);
            let took = now_ns() - next.mono_ns;
            let lost = took.saturating_sub(thread_cpu_ns() - ran_ns);
            if least != u64::MAX && took < least {
                std::mem::swap(&mut quickest, &mut other);
            }
            least = least.min(took);
            if lost < COPY_LOST_NS && took < COPY_LONG_NS + COPY_PER_SLOT_NS * self.watched.len() as u64 {
                break;
            }
        }
        quickest
    }

    fn copy_into(&self, copy: &mut Slots) {
        copy.slots.resize_with(self.watched.len(), || (0, Slot::zeroed()));
        copy.mono_ns = now_ns();
        let mut copied = 0;
        for slot in self.watched.keys() {
            let (of, to) = &mut copy.slots[copied];
            *of = *slot;
            copied += usize::from(self.slots.whole_into(*slot, to));
        }
        copy.slots.truncate(copied);
    }

    /// Ready and limited so far, so that neither ever falls: while a wait is open which of the two it is is a guess,
    /// and its end may say otherwise. The two together are exact at any moment.
    fn settled(&self, slot: u32, ready: u64, limited: u64) -> (u64, u64) {
        let mut told = self.told.borrow_mut();
        let (ready_told, limited_told) = told.get(&slot).copied().unwrap_or((0, 0));
        let wait = (ready + limited).max(ready_told + limited_told);
        let limited = limited.clamp(limited_told, wait - ready_told);
        told.insert(slot, (wait - limited, limited));
        (wait - limited, limited)
    }

    /// All counters up to now.
    ///
    /// # Errors
    /// If the kernel refuses to read a table.
    pub fn read(&self) -> Result<Reading, Fault> {
        if self.keeper.has_ended() {
            return Err(Fault::new(FaultKind::Failed, "the thread that reads the kernel's traces has ended"));
        }
        // Nothing is charged between the copy of the slots and the reading of the traces.
        let mut traces = self.traces();
        let copy = self.copy();
        let mono_ns = copy.mono_ns;
        let mut reading = Reading { mono_ns, ..Reading::default() };
        let mut copied = BTreeMap::new();
        for (slot, s) in &copy.slots {
            let (slot, s, w) = (*slot, &*arrived(s, mono_ns), &self.watched[slot]);
            reading.surprises += s.surprises;
            let waits = s.state == state::READY;
            let open = waits.then_some(Open { cpu: s.cpu, from: s.charge_since, to: mono_ns });
            copied.insert(slot + 1, Copied { waits: s.waits, charged_ns: s.charged_ns, open });
            if s.state == state::ABSENT {
                reading.ended += 1;
                if !self.ended.borrow_mut().insert(slot) {
                    continue;
                }
            }
            // An event may have come after the clock was read: the open spell then counts nothing.
            let open_ns = reading.mono_ns.saturating_sub(s.since);
            let mut in_state = s.in_state;
            in_state[s.state as usize] += open_ns;
            let (ready, limited) = (in_state[state::READY as usize], in_state[state::LIMITED as usize]);
            let (ready, limited) = self.settled(slot, ready, limited);
            (in_state[state::READY as usize], in_state[state::LIMITED as usize]) = (ready, limited);
            let mut lag_ns = s.lag_ns;
            if waits {
                let clock = self.running_clock(s.clock)?;
                let open_lag_ns = match self.slots.whole(slot) {
                    Some(now) if now.switches == s.switches => open_lag_ns(s, clock, reading.mono_ns),
                    // It got a pCPU since it was copied, and moved the clock itself: how long its siblings ran is in
                    // its slot by now.
                    Some(now) => now.lag_ns.saturating_sub(s.lag_ns),
                    None => 0,
                };
                lag_ns += open_lag_ns.min(open_ns);
            }
            reading.threads.push(sample(w, s, &in_state, lag_ns, open_ns, &self.collector));
        }
        let charges = traces.read(&copied, mono_ns);
        drop(traces);
        self.copy.replace(copy);
        reading.blame = charges
            .into_iter()
            .filter_map(|(slot, cause, ns)| {
                let w = self.watched.get(&slot.checked_sub(1)?)?;
                let culprit = named(&cause, &self.vm_names);
                Some(BlameSample { victim: w.vm.clone(), role: w.role, culprit, ns })
            })
            .collect();
        Ok(reading)
    }

    /// The clock that advances while any vCPU of this VM runs.
    fn running_clock(&self, clock: u32) -> Result<u64, Fault> {
        let word = self.map("running_clocks").lookup(&clock.to_ne_bytes(), MapFlags::ANY);
        let word = word.map_err(|e| refused("cannot read when VMs ran", &e))?;
        Ok(word.map_or(0, |bytes| bytemuck::pod_read_unaligned(&bytes)))
    }

    /// The source of recorded switches; `None` without event mode.
    ///
    /// # Errors
    /// When a table cannot be shared.
    pub fn events(&self) -> Result<Option<Events>, Fault> {
        self.limits
            .event_buffer_bytes
            .map(|_| Events::of(&self.object, self.pcpus, Arc::clone(&self.ran)))
            .transpose()
    }

    /// Number of switches so far that the kernel did not report and the observer inferred from the next one.
    pub fn unseen(&self) -> u64 {
        self.ran.unseen()
    }

    /// The most steps that a loop in one of the kernel's hooks took so far.
    pub fn longest_loop(&self) -> u32 {
        self.ran.most_tries()
    }

    /// Stops counting and recording; the counters remain readable.
    pub fn detach(&mut self) {
        self.links.clear();
    }
}

/// A copy of a slot, with a wake-up that is on its way to the thread's pCPU counted as if it arrived now.
fn arrived(s: &Slot, now: u64) -> Cow<'_, Slot> {
    let since = s.waking_since.max(s.since);
    if s.state != state::BLOCKED || s.waking_since == 0 || since >= now {
        return Cow::Borrowed(s);
    }
    let mut s = *s;
    s.in_state[state::BLOCKED as usize] += since - s.since;
    s.waking_ns += now - since;
    s.lag_mark = if since == s.waking_since { s.waking_mark } else { NO_LAG_MARK };
    (s.state, s.since, s.charge_since) = (state::READY, since, since);
    Cow::Owned(s)
}

/// The lag of a wait that is still open, by the clock of when its VM's vCPUs ran.
fn open_lag_ns(s: &Slot, clock: u64, now: u64) -> u64 {
    const COUNT_SHIFT: u32 = 54;
    const MASK: u64 = (1 << COUNT_SHIFT) - 1;
    let clock = if clock >> COUNT_SHIFT > 0 { clock.wrapping_add(now) } else { clock };
    let since = clock.wrapping_sub(s.lag_mark) & MASK;
    if s.is_vcpu == 0 || s.lag_mark == NO_LAG_MARK || since > MASK / 2 { 0 } else { since }
}

fn sample(
    w: &Watched,
    s: &Slot,
    in_state: &[u64],
    lag_ns: u64,
    open_ns: u64,
    collector: &Collector,
) -> ThreadSample {
    ThreadSample {
        vm: w.vm.clone(),
        role: w.role,
        tid: w.tid,
        last_cpu: Some(s.cpu),
        waiting_ns: Some(if s.state == state::READY || s.state == state::LIMITED { open_ns } else { 0 }),
        counters: counters(s, in_state, lag_ns, w.role.vcpu().is_some(), &|c| collector.measures(c)),
    }
}

/// What is counted of a thread, as far as this kernel `measures` it.
fn counters(
    s: &Slot,
    in_state: &[u64],
    lag_ns: u64,
    is_vcpu: bool,
    measures: &dyn Fn(&str) -> bool,
) -> ThreadCounters {
    let has_limited = measures("limited_ns");
    let (ready, limited) = (in_state[state::READY as usize], in_state[state::LIMITED as usize]);
    let of_kvm = |counter: &str| is_vcpu && measures(counter);
    let row = |h: &[u32; HISTOGRAM_BUCKETS]| Histogram::from_row(h);
    ThreadCounters {
        run_ns: Some(in_state[state::RUNNING as usize]),
        // Where the kernel does not tell a quota's hold, what is seen as ready holds both.
        ready_ns: has_limited.then_some(ready),
        limited_ns: has_limited.then_some(limited),
        wait_ns: Some(ready + limited),
        blocked_ns: Some(in_state[state::BLOCKED as usize]),
        lag_ns: is_vcpu.then_some(lag_ns),
        waking_ns: Some(s.waking_ns),
        overlap_ns: Some(s.overlap_ns),
        switches: Some(s.switches),
        preemptions: Some(s.preemptions),
        wakeups: Some(s.wakeups),
        migrations: Some(s.migrations),
        wake_latency: Some(row(&s.wake_latency)),
        ready_spell: Some(row(&s.ready_spell)),
        exit_ns: of_kvm("exit_ns").then_some(s.exit_ns),
        halt_poll_ns: of_kvm("halt_poll_ns").then_some(s.halt_poll_ns),
        ..ThreadCounters::default()
    }
}

fn named(cause: &Cause, vms: &BTreeMap<u32, VmId>) -> Culprit {
    let who: &CulpritKey = match cause {
        Cause::Ran(who) => who,
        Cause::Placement => return Culprit::Placement,
        Cause::Unattributed => return Culprit::Unattributed,
    };
    let end = who.comm.iter().position(|b| *b == 0).unwrap_or(who.comm.len());
    let comm = || String::from_utf8_lossy(&who.comm[..end]).into_owned();
    match who.kind {
        culprit::VM => vms.get(&who.id).map_or(Culprit::Unattributed, |vm| Culprit::Vm(vm.clone())),
        culprit::PROCESS => Culprit::process(comm(), who.id),
        culprit::KERNEL => Culprit::Kernel { comm: comm() },
        _ => Culprit::Unattributed,
    }
}
