//! Loads the observer, marks the threads to watch, and reads what it counted.
//!
//! The reader copies whole slots and never locks the writers: a slot's two sequence numbers tell a torn copy, which is
//! read again ([`Shared::whole`]). A spell that is still open when it is read is counted up to that moment.

use crate::batches;
use crate::events::{EVENT_PCPUS_MAX, Events};
use crate::kvm;
use crate::layout::{BlameKey, CPU_SETS, CulpritKey, Membership, Pcpu, QuotaClocksRaw, Slot, culprit, state};
use crate::load::{AFFINITY_SETS, Options, load, quiet_libbpf};
use crate::refused::refused;
use crate::shared::Shared;
use libbpf_rs::btf::Btf;
use libbpf_rs::btf::types::Struct;
use libbpf_rs::{Iter, Link, MapCore, MapFlags, Object};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::Read;
use std::sync::Arc;
use vsteer_core::nouns::{
    BlameSample, Collector, Culprit, HISTOGRAM_BUCKETS, Histogram, QuotaClocks, Role, ThreadCounters,
    ThreadSample, Tid, VmId,
};
use vsteer_core::{CpuSet, Fault, FaultKind};

/// vsteer forgets a culprit without charges for this number of readings: processes come and go, and the table shall not
/// fill with those that are gone. Many, so that nobody is adding to the sum that is being taken away.
const STILL_READINGS: u32 = 50;
/// How often the tables are copied until a copy was quick, and what quick is: a system call, 1.8 KB per slot, a hashed
/// cell of blame.
const COPY_TRIES: u32 = 10;
const COPY_QUICK_NS: u64 = 200_000;
const COPY_PER_SLOT_NS: u64 = 2_000;
const COPY_PER_CELL_NS: u64 = 1_000;

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
    /// The watched threads that still live, with their counters.
    pub threads: Vec<ThreadSample>,
    /// Blame: which culprit made which thread wait.
    pub blame: Vec<BlameSample>,
    /// Number of impossible transitions; not 0 if the kernel skipped a probe.
    pub surprises: u64,
}

/// A cell of the blame table as last returned.
#[derive(Debug, Clone, Copy, Default)]
struct Charged {
    ns: u64,
    /// Number of readings without a change of the kernel's sum.
    still: u32,
}

/// Copies of the kernel's tables.
struct Copied {
    /// `CLOCK_MONOTONIC` just before, ns.
    mono_ns: u64,
    slots: Vec<(u32, Slot)>,
    /// Copied after the slots: the excess over a slot's own sum came in between.
    blame: BTreeMap<BlameKey, u64>,
}

/// The loaded and attached observer. Dropping it detaches all programs.
pub struct Observer {
    object: Object,
    links: Vec<Link>,
    pcpus: u32,
    slots: Shared<Slot>,
    ran: Arc<Shared<Pcpu>>,
    watched: BTreeMap<u32, Watched>, // 0-based slot
    vm_index: BTreeMap<VmId, u32>,   // 1-based
    sets: Vec<CpuSet>,               // set i + 1
    free: Vec<u32>,
    told: RefCell<BTreeMap<u32, (u64, u64)>>, // slot -> (ready, limited) as last handed out
    charged: RefCell<BTreeMap<BlameKey, Charged>>,
    forgotten: RefCell<BTreeMap<u32, u64>>, // 1-based slot -> what cells that are gone held, ns
    limits: Options,
    collector: Collector,
}

fn now_ns() -> u64 {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
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
        let (slots, ran) = (Shared::of(&map("slots"))?, Arc::new(Shared::of(&map("pcpus"))?));
        Ok(Observer {
            object,
            links,
            pcpus,
            slots,
            ran,
            watched: BTreeMap::new(),
            vm_index: BTreeMap::new(),
            sets: Vec::new(),
            free: (0..limits.threads).rev().collect(),
            told: RefCell::default(),
            charged: RefCell::default(),
            forgotten: RefCell::default(),
            limits,
            collector,
        })
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
        let gone: Vec<u32> = self
            .watched
            .iter()
            .filter(|(_, w)| wanted.get(&w.tid).is_none_or(|n| n.vm != w.vm || n.role != w.role))
            .map(|(slot, _)| *slot)
            .collect();
        for slot in gone {
            self.forget(slot)?;
        }
        let known: BTreeMap<Tid, u32> = self.watched.iter().map(|(slot, w)| (w.tid, *slot)).collect();
        let (mut any_new, mut no_room) = (false, None);
        for w in wanted.values() {
            let slot = match known.get(&w.tid) {
                Some(slot) if self.watched[slot].affinity == w.affinity => continue,
                Some(slot) => *slot,
                None => match self.add_slot(w) {
                    Ok(slot) => {
                        any_new = true;
                        slot
                    }
                    Err(full) if full.kind == FaultKind::Unsupported => {
                        no_room.get_or_insert(full);
                        continue;
                    }
                    Err(fault) => return Err(fault),
                },
            };
            let set = self.affinity_set(&w.affinity)?;
            self.put("affinity_sets", &slot.to_ne_bytes(), &set.to_ne_bytes())?;
            self.watched.insert(slot, (*w).clone());
        }
        if any_new {
            self.mark_threads()?;
        }
        no_room.map_or(Ok(()), Err)
    }

    fn add_slot(&mut self, w: &Watched) -> Result<u32, Fault> {
        let full = |what: &str, room: u32| {
            Fault::new(FaultKind::Unsupported, format!("cannot watch more than {room} {what}"))
                .help("restart vsteer: it reserves room for twice the threads it finds")
        };
        let next = self.vm_index.len() as u32 + 1;
        let vm = *self.vm_index.entry(w.vm.clone()).or_insert(next);
        if vm > self.limits.vms {
            return Err(full("VMs", self.limits.vms));
        }
        let slot = self.free.pop().ok_or_else(|| full("threads", self.limits.threads))?;
        let blank = Slot {
            tid: w.tid.0,
            vm,
            is_vcpu: u32::from(w.role.vcpu().is_some()),
            ..bytemuck::Zeroable::zeroed()
        };
        self.put("slots", &slot.to_ne_bytes(), bytemuck::bytes_of(&blank))?;
        // Where the kernel side charges what it has no room for. GAP(blame-full): if the table is full already, nowhere.
        let who = CulpritKey { kind: culprit::UNATTRIBUTED, id: 0, comm: [0; 16] };
        let rest = BlameKey { slot: slot + 1, who };
        let _ = self.put("blame", bytemuck::bytes_of(&rest), &0_u64.to_ne_bytes());
        self.put("slot_of_tid", &w.tid.0.to_ne_bytes(), &(slot + 1).to_ne_bytes())?;
        Ok(slot)
    }

    fn forget(&mut self, slot: u32) -> Result<(), Fault> {
        let Some(w) = self.watched.remove(&slot) else { return Ok(()) };
        self.told.borrow_mut().remove(&slot);
        // The entry of an exited thread is gone already.
        let _ = self.map("slot_of_tid").delete(&w.tid.0.to_ne_bytes());
        let blame = self.map("blame");
        for key in blame.keys() {
            if bytemuck::pod_read_unaligned::<BlameKey>(&key).slot == slot + 1 {
                let _ = blame.delete(&key);
            }
        }
        drop(blame);
        self.charged.get_mut().retain(|key, _| key.slot != slot + 1);
        self.forgotten.get_mut().remove(&(slot + 1));
        // The mark lives as long as the thread; a living one must not write into somebody else's slot, so its slot
        // is retired. That happens only when a thread changes its role, which none does in practice.
        let dead = self.slots.whole(slot).is_some_and(|s| s.state == state::ABSENT);
        if dead {
            self.put("slots", &slot.to_ne_bytes(), &vec![0u8; size_of::<Slot>()])?;
            self.free.push(slot);
        }
        Ok(())
    }

    /// Number of the set, new or known; 0 if there is no room for another.
    fn affinity_set(&mut self, cpus: &CpuSet) -> Result<u32, Fault> {
        if let Some(i) = self.sets.iter().position(|s| s == cpus) {
            return Ok(i as u32 + 1);
        }
        let full = self.sets.len() as u32 >= AFFINITY_SETS;
        let in_sets = |cpu: u32| self.sets.iter().filter(|s| s.contains(cpu)).count();
        if full || cpus.iter().any(|c| in_sets(c) >= CPU_SETS) {
            let why =
                "too many distinct affinity sets: for some threads vsteer does not distinguish idle pCPUs";
            self.collector = self.collector.clone().without(&["blame.placement"], why);
            return Ok(0);
        }
        self.sets.push(cpus.clone());
        for cpu in cpus.iter().filter(|c| *c < self.pcpus) {
            let mut m: Membership = bytemuck::Zeroable::zeroed();
            for (i, _) in self.sets.iter().enumerate().filter(|(_, s)| s.contains(cpu)) {
                m.set[m.count as usize] = i as u32 + 1;
                m.count += 1;
            }
            self.put("memberships", &cpu.to_ne_bytes(), bytemuck::bytes_of(&m))?;
        }
        Ok(self.sets.len() as u32)
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

    /// The slots in use and the blame table, with the moment just before. A copy during which this thread lost its pCPU
    /// would mix moments, so the quickest of some tries is taken.
    fn copy(&self) -> Result<Copied, Fault> {
        let mut least = u64::MAX;
        let mut quickest = None;
        let slots = self.watched.len() as u64;
        for _ in 0..COPY_TRIES {
            let begun = now_ns();
            let whole = |slot: &u32| self.slots.whole(*slot).map(|s| (*slot, s));
            let copied = Copied {
                mono_ns: begun,
                slots: self.watched.keys().filter_map(whole).collect(),
                blame: self.read_blame()?,
            };
            let took = now_ns() - begun;
            let cells = copied.blame.len() as u64;
            if took < least {
                (least, quickest) = (took, Some(copied));
            }
            if took < COPY_QUICK_NS + COPY_PER_SLOT_NS * slots + COPY_PER_CELL_NS * cells {
                break;
            }
        }
        Ok(quickest.expect("at least one try"))
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
        let Copied { mono_ns, slots, blame: settled } = self.copy()?;
        let mut reading = Reading { mono_ns, ..Reading::default() };
        let names: BTreeMap<u32, &VmId> = self.vm_index.iter().map(|(id, i)| (*i, id)).collect();
        let mut charged: BTreeMap<u32, u64> = self.forgotten.borrow().clone();
        for (key, ns) in &settled {
            *charged.entry(key.slot).or_default() += ns;
        }
        let mut open: BTreeMap<BlameKey, u64> = BTreeMap::new();
        for (slot, s) in slots {
            let w = &self.watched[&slot];
            reading.surprises += s.surprises;
            if s.state == state::ABSENT {
                continue;
            }
            // An event may have come after the clock was read: the open spell then counts nothing.
            let open_ns = reading.mono_ns.saturating_sub(s.since);
            let mut in_state = s.in_state;
            in_state[s.state as usize] += open_ns;
            let (ready, limited) = (in_state[state::READY as usize], in_state[state::LIMITED as usize]);
            let (ready, limited) = self.settled(slot, ready, limited);
            (in_state[state::READY as usize], in_state[state::LIMITED as usize]) = (ready, limited);
            // GAP(lag-oracle): no independent replay of switches has confirmed lag yet.
            let mut lag_ns = s.lag_ns;
            if s.state == state::READY {
                let clock = self.running_clock(s.vm)?;
                let open_lag_ns = match self.slots.whole(slot) {
                    Some(now) if now.switches == s.switches => open_lag_ns(&s, clock, reading.mono_ns),
                    // It got a pCPU since it was copied, and moved the clock itself: how long its siblings ran is in
                    // its slot by now.
                    Some(now) => now.lag_ns.saturating_sub(s.lag_ns),
                    None => 0,
                };
                lag_ns += open_lag_ns.min(open_ns);
                // A wait that ended between the two copies is in the table already.
                let ended = charged.get(&(slot + 1)).is_some_and(|ns| *ns > s.charged_ns);
                if !ended {
                    self.charge_open_wait(slot + 1, &s, reading.mono_ns, &mut open);
                }
            }
            reading.threads.push(sample(w, &s, &in_state, lag_ns, open_ns, &self.collector));
        }
        reading.blame = self
            .charges(settled, open)?
            .into_iter()
            .filter_map(|(key, ns)| {
                let w = self.watched.get(&(key.slot.checked_sub(1)?))?;
                let culprit = named(&key.who, &names)?;
                Some(BlameSample { victim: w.vm.clone(), role: w.role, culprit, ns })
            })
            .collect();
        Ok(reading)
    }

    /// The kernel's sums: the charge of each culprit since the start.
    fn read_blame(&self) -> Result<BTreeMap<BlameKey, u64>, Fault> {
        let cells = batches::all(&self.map("blame"));
        cells.map_err(|e| refused("cannot read the table of culprits", &e)).map(|c| c.into_iter().collect())
    }

    /// What each cell rose by since it was last handed out: what is settled, and what waits that are still open have
    /// cost so far (`open`), which their end may take back.
    fn charges(
        &self,
        settled: BTreeMap<BlameKey, u64>,
        mut open: BTreeMap<BlameKey, u64>,
    ) -> Result<Vec<(BlameKey, i64)>, Fault> {
        let mut charged = self.charged.borrow_mut();
        let mut rose = Vec::new();
        let mut forget = Vec::new();
        let known: Vec<BlameKey> = charged.keys().chain(settled.keys()).chain(open.keys()).copied().collect();
        for key in std::collections::BTreeSet::from_iter(known) {
            let in_kernel = settled.get(&key).copied();
            let provisional = open.remove(&key);
            let ns = in_kernel.unwrap_or(0) + provisional.unwrap_or(0);
            let cell = charged.entry(key).or_default();
            if ns != cell.ns {
                rose.push((key, ns as i64 - cell.ns as i64));
                *cell = Charged { ns, still: 0 };
                continue;
            }
            cell.still += 1;
            let comes_and_goes = key.who.kind == culprit::PROCESS || key.who.kind == culprit::KERNEL;
            if in_kernel.is_none() && provisional.is_none() {
                charged.remove(&key);
            } else if cell.still >= STILL_READINGS && comes_and_goes && provisional.is_none() {
                forget.push(key);
            }
        }
        let table = self.map("blame");
        for key in forget {
            let last = table
                .lookup_and_delete(bytemuck::bytes_of(&key))
                .map_err(|e| refused("cannot remove a culprit that is gone", &e))?;
            let before = charged.remove(&key).map_or(0, |c| c.ns);
            let last: u64 = last.map_or(before, |b| bytemuck::pod_read_unaligned(&b));
            *self.forgotten.borrow_mut().entry(key.slot).or_default() += last;
            if last != before {
                rose.push((key, last as i64 - before as i64));
            }
        }
        Ok(rose)
    }

    /// The clock that advances while any vCPU of this VM runs.
    fn running_clock(&self, vm: u32) -> Result<u64, Fault> {
        let word = self.map("running_clocks").lookup(&vm.to_ne_bytes(), MapFlags::ANY);
        let word = word.map_err(|e| refused("cannot read when VMs ran", &e))?;
        Ok(word.map_or(0, |bytes| bytemuck::pod_read_unaligned(&bytes)))
    }

    /// Charges a wait that is still open to the runners of its pCPU, as the kernel side will when it ends (but for
    /// placement, which only the end can tell).
    fn charge_open_wait(&self, slot: u32, s: &Slot, now: u64, blame: &mut BTreeMap<BlameKey, u64>) {
        let mut until = now; // falls to `charge_since`, unless the ring does not reach back so far
        for r in self.ran.runners(s.cpu) {
            let began = r.since.max(s.charge_since);
            if began < until {
                let mut who = r.who;
                if who.kind == culprit::IDLE {
                    who = CulpritKey { kind: culprit::PLACEMENT, id: 0, comm: [0; 16] };
                }
                *blame.entry(BlameKey { slot, who }).or_default() += until - began;
                until = began;
            }
            if r.since <= s.charge_since {
                break;
            }
        }
        if until > s.charge_since {
            let who = CulpritKey { kind: culprit::UNATTRIBUTED, id: 0, comm: [0; 16] };
            *blame.entry(BlameKey { slot, who }).or_default() += until - s.charge_since;
        }
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

    /// Stops counting and recording; the counters remain readable.
    pub fn detach(&mut self) {
        self.links.clear();
    }
}

/// The lag of a wait that is still open, by the clock of when its VM's vCPUs ran.
fn open_lag_ns(s: &Slot, clock: u64, now: u64) -> u64 {
    const COUNT_SHIFT: u32 = 54;
    const MASK: u64 = (1 << COUNT_SHIFT) - 1;
    let clock = if clock >> COUNT_SHIFT > 0 { clock.wrapping_add(now) } else { clock };
    let since = clock.wrapping_sub(s.lag_mark) & MASK;
    if s.is_vcpu == 0 || since > MASK / 2 { 0 } else { since }
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
    let row = |h: &[u32; HISTOGRAM_BUCKETS]| Histogram::from_row(&h.map(u64::from));
    ThreadCounters {
        run_ns: Some(in_state[state::RUNNING as usize]),
        // Where the kernel does not tell a quota's hold, what is seen as ready holds both.
        ready_ns: has_limited.then_some(ready),
        limited_ns: has_limited.then_some(limited),
        wait_ns: Some(ready + limited),
        blocked_ns: Some(in_state[state::BLOCKED as usize]),
        lag_ns: is_vcpu.then_some(lag_ns),
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

fn named(who: &CulpritKey, vms: &BTreeMap<u32, &VmId>) -> Option<Culprit> {
    let end = who.comm.iter().position(|b| *b == 0).unwrap_or(who.comm.len());
    let comm = || String::from_utf8_lossy(&who.comm[..end]).into_owned();
    match who.kind {
        culprit::VM => Some(Culprit::Vm((*vms.get(&who.id)?).clone())),
        culprit::PROCESS => Some(Culprit::Process { comm: comm(), pid: who.id }),
        culprit::KERNEL => Some(Culprit::Kernel { comm: comm() }),
        culprit::PLACEMENT | culprit::IDLE => Some(Culprit::Placement),
        _ => Some(Culprit::Unattributed),
    }
}
