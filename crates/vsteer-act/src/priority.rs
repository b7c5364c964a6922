//! Puts VMs first with a real-time class, as long as they ask for no more CPU than their share.
//!
//! This is for kernels without sched_ext. The vCPU, emulator and I/O threads of a VM run in `SCHED_RR`, so that the
//! kernel runs them as soon as they wake. A keeper thread, with a higher priority, reads the CPU time of each VM
//! whenever its credit could be used up. It puts a VM without credit ([`vsteer_core::realtime`]) back into the normal
//! class until the VM has credit again. Emulator threads are included, because without hardware virtualization a
//! guest's timers end there (measured: with vCPU threads only, it had no effect).
//!
//! On cgroup v1 with RT_GROUP_SCHED each cgroup needs a real-time budget. vsteer grants equal budgets from the top
//! down, and demotes each VM before its cgroup's budget is used up, when the kernel would stop it.
//!
//! Every change is in a journal first, and a watchdog undoes it however this process ends ([`Steering`]).
//!
//! Limits: a VM that asks for more than its share is served by weight, its urgent work too. Two VMs that wake at once
//! on a pCPU alternate. Kernel threads in the normal class, such as ksoftirqd, wait behind a VM that is first until it
//! sleeps or its credit ends. `GAP(rt-budget-parts)`: budgets are equal parts, whatever each VM needs; with many VMs a
//! part is small.

pub mod keeping;

use crate::apply::{Receipt, Setting};
use crate::steering::Steering;
use crate::system_log::By;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use vsteer_core::forecast::fluid;
use vsteer_core::model::HostModel;
use vsteer_core::nouns::{HostConfig, Role, RtBudget, SchedClass, Tid, VmConfig, VmId, VmThread};
use vsteer_core::realtime::{Credit, KERNEL_AT_ONCE, KERNEL_RATE, granted};
use vsteer_core::setting;
use vsteer_core::setting::{Change, Step};
use vsteer_core::{Fault, FaultKind};
use vsteer_host::actuate::Actuate;
use vsteer_host::linux::sched;
use vsteer_host::linux::schedstat::{Polled, Schedstat};

/// The lowest real-time priority: above every ordinary thread, below every real-time one that was there before.
const FIRST: SchedClass = SchedClass::RoundRobin(1);
/// The keeper is above those that it takes back.
const KEEPER: SchedClass = SchedClass::Fifo(2);
/// Credits are looked at when the first could have been used up, but no more often than this: waking up costs the host
/// some 0.1 ms.
const SOONEST: Duration = Duration::from_millis(2);
/// And no less often: whose credit was used up gets some again.
const LATEST: Duration = Duration::from_millis(20);
/// Of every pCPU, what all VMs may have of it in real time where the kernel asks for budgets: it keeps 5 % for others.
const TOGETHER: f64 = 0.93;
/// What each cgroup takes of that for rounding ([`granted`]), and the least that is of use to a thread.
const ROUNDING: f64 = 0.001;
const LEAST: f64 = 0.002;

/// What became of one VM.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Kept {
    /// Its name.
    pub name: String,
    /// Is it put first now?
    pub first: bool,
    /// For how long it was, s.
    pub first_s: f64,
    /// How often the VM used up its credit, which means that it wanted more than its share.
    pub used_up: u64,
    /// How often the VM was demoted because the kernel's real-time budget was nearly used up.
    pub budget_used_up: u64,
    /// What it is due of the pCPUs, by weight; `None` until the host has been looked at.
    pub due_pcpus: Option<f64>,
    /// CPU time of its threads, s.
    pub cpu_s: f64,
    /// Why the kernel refused to put it first, if so.
    pub refused: Option<String>,
}

impl Kept {
    /// What happened since `earlier`.
    #[must_use]
    pub fn since(self, earlier: &Kept) -> Kept {
        Kept {
            first_s: self.first_s - earlier.first_s,
            used_up: self.used_up.saturating_sub(earlier.used_up),
            budget_used_up: self.budget_used_up.saturating_sub(earlier.budget_used_up),
            cpu_s: self.cpu_s - earlier.cpu_s,
            ..self
        }
    }
}

/// VMs that are put first.
pub struct Priority {
    steering: Steering,
    words: Sender<Word>,
    keeper: JoinHandle<()>,
    meant: BTreeSet<VmId>,
    /// Budgets of cgroups as they were when they were first seen, us: what is granted comes on top, for others may
    /// need those.
    found: BTreeMap<String, i64>,
    notes: Vec<String>,
}

/// Messages to the keeper thread.
enum Word {
    /// These VMs, and no others.
    Follow(Vec<Followed>),
    /// What each is due, in pCPUs.
    Due(Vec<(VmId, f64)>),
    /// Say what became of them.
    Report(Sender<Vec<Kept>>),
}

/// A VM as the keeper thread knows it.
struct Followed {
    vm: VmId,
    name: String,
    threads: Vec<Followable>,
}

/// One of its threads.
#[derive(Debug, Clone, PartialEq)]
struct Followable {
    tid: Tid,
    role: Role,
    former: SchedClass,
    /// Its cgroup's budget of real time: us, of how many us.
    budget: Option<(String, i64, u64)>,
}

impl Priority {
    /// Nobody is put first yet. `limit`: how much CPU time beyond its due a VM may have at once. `watchdog`: as
    /// [`Steering::new`].
    ///
    /// # Errors
    /// The keeper's thread cannot be had.
    pub fn start(limit: Duration, watchdog: &[&str]) -> Result<Priority, Fault> {
        let (words, heard) = channel();
        let (told, told_class) = channel();
        let keep = move || {
            let me = Tid(rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned());
            let _ = told.send(sched::set_class(me, KEEPER));
            Keeper::new(limit).keep(&heard);
        };
        let keeper = std::thread::Builder::new()
            .name("keeper".to_owned())
            .spawn(keep)
            .map_err(|e| Fault::io("cannot start the thread that keeps accounts", &e))?;
        let mut notes = Vec::new();
        if let Ok(Err(errno)) = told_class.recv() {
            notes.push(format!(
                "vsteer cannot run in a real-time class itself ({errno}): if pCPUs are busy, it demotes VMs late"
            ));
        }
        let steering = Steering::new(By::Realtime, "VMs put first (vsteer realtime)", watchdog);
        Ok(Priority { steering, words, keeper, meant: BTreeSet::new(), found: BTreeMap::new(), notes })
    }

    /// What the person should know.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Puts these VMs first, and no others any more. Why some cannot be, by their names.
    ///
    /// # Errors
    /// When a journal or watchdog cannot be had.
    pub fn follow<'a>(
        &mut self,
        config: &HostConfig,
        vms: impl Iterator<Item = &'a VmConfig>,
        host: &mut dyn Actuate,
        setting: Setting<'_>,
    ) -> Result<BTreeMap<String, Fault>, Fault> {
        let mut refused = BTreeMap::new();
        let mut able = Vec::new();
        for vm in vms {
            // A known one is in a real-time class by this very service.
            match able_to_be_first(vm).filter(|_| !self.meant.contains(&vm.id)) {
                None => able.push(vm),
                Some(fault) => drop(refused.insert(vm.name.clone(), fault)),
            }
        }
        let grants = self.grant(config, &able, host, setting)?;
        let mut followed = Vec::new();
        for vm in &able {
            let classes: Vec<Step> = threads(vm).filter_map(|t| class_step(vm, t)).collect();
            match self.steering.will_be_put_back(config, host, setting, &classes, "put first") {
                Ok(()) => followed.push(told_of(vm, &grants)),
                Err(fault) => drop(refused.insert(vm.name.clone(), fault)),
            }
        }
        self.meant = able.iter().map(|vm| vm.id.clone()).collect();
        self.tell(Word::Follow(followed))?;
        Ok(refused)
    }

    /// Budgets of real time where the kernel has those: of each cgroup, us of how many us.
    fn grant(
        &mut self,
        config: &HostConfig,
        vms: &[&VmConfig],
        host: &mut dyn Actuate,
        setting: Setting<'_>,
    ) -> Result<BTreeMap<String, (i64, u64)>, Fault> {
        let mut known: BTreeMap<&str, &RtBudget> = BTreeMap::new();
        let mut on_behalf: BTreeMap<&str, &VmConfig> = BTreeMap::new();
        for (vm, budget) in vms.iter().flat_map(|vm| vm.rt_budgets.iter().map(move |b| (*vm, b))) {
            known.entry(&budget.cgroup).or_insert(budget);
            on_behalf.entry(&budget.cgroup).or_insert(vm);
        }
        let leaves: BTreeSet<&str> = vms
            .iter()
            .flat_map(|vm| threads(vm).filter_map(|t| t.cgroup.as_deref()))
            .filter(|group| known.contains_key(group))
            .collect();
        let part = (TOGETHER - ROUNDING * known.len() as f64) / leaves.len().max(1) as f64;
        if !leaves.is_empty() && part < LEAST {
            return Err(Fault::new(FaultKind::Unsupported, "cannot give real-time priority to this many VMs")
                .because(format!(
                    "their threads are in {} cgroups, too many to share the kernel's real-time budget (RT_GROUP_SCHED)",
                    leaves.len()
                ))
                .help("name fewer VMs, or boot the kernel with rt_group_sched=0"));
        }
        let mut granted = granted(&known, &leaves.iter().map(|leaf| (*leaf, part)).collect());
        // One without a limit needs none.
        granted.retain(|(budget, _)| budget.runtime_us >= 0);
        for (budget, to_us) in &mut granted {
            *to_us += *self.found.entry(budget.cgroup.clone()).or_insert(budget.runtime_us);
        }
        let step = |(budget, to_us): &(&RtBudget, i64)| {
            let vm = on_behalf[budget.cgroup.as_str()];
            Step {
                vm: vm.id.clone(),
                vm_name: vm.name.clone(),
                change: Change::RtBudget(setting::RtBudget {
                    cgroup: budget.cgroup.clone(),
                    from_us: budget.runtime_us,
                    to_us: *to_us,
                }),
                reason: "the kernel refuses a real-time class to a cgroup without real-time budget"
                    .to_owned(),
            }
        };
        // Children are lowered before their parents, and raised after them.
        let falls = granted.iter().rev().filter(|(budget, to_us)| *to_us < budget.runtime_us);
        let rises = granted.iter().filter(|(budget, to_us)| *to_us > budget.runtime_us);
        let steps: Vec<Step> = falls.chain(rises).map(step).collect();
        if !steps.is_empty() {
            self.steering.set(config, host, setting, &steps, "real-time budgets, in equal parts")?;
        }
        Ok(granted.into_iter().map(|(b, to_us)| (b.cgroup.clone(), (to_us, b.period_us))).collect())
    }

    /// How busy the host is: from that follows what each VM is due.
    ///
    /// # Errors
    /// When the keeper has gone.
    pub fn shares(&mut self, config: &HostConfig, model: &HostModel) -> Result<(), Fault> {
        self.steering.look_after()?;
        let due = self.meant.iter().map(|vm| (vm.clone(), fluid::due(config, model, vm))).collect();
        self.tell(Word::Due(due))
    }

    /// What became of each VM.
    ///
    /// # Errors
    /// When the keeper has gone.
    pub fn report(&self) -> Result<Vec<Kept>, Fault> {
        let (answer, answered) = channel();
        self.tell(Word::Report(answer))?;
        answered.recv().map_err(|_| keeper_gone())
    }

    fn tell(&self, word: Word) -> Result<(), Fault> {
        self.words.send(word).map_err(|_| keeper_gone())
    }

    /// Puts everything back; what was done.
    ///
    /// # Errors
    /// As [`Steering::end`].
    pub fn end(self, host: &mut dyn Actuate) -> Result<Vec<Receipt>, Fault> {
        drop(self.words);
        let _ = self.keeper.join();
        self.steering.end(host)
    }
}

/// Why a VM cannot be put first, as far as that can be seen before.
pub fn able_to_be_first(vm: &VmConfig) -> Option<Fault> {
    let refused = |why: String| {
        Fault::new(FaultKind::Unsupported, format!("cannot give real-time priority to VM {:?}", vm.name))
            .because(why)
    };
    if let Some(thread) = threads(vm).find(|t| t.class.is_none_or(SchedClass::is_realtime)) {
        let class = thread.class.map_or_else(|| "unknown".to_owned(), |class| class.to_string());
        return Some(
            refused(format!("its {} already has the class {class}", thread.role))
                .help("set the thread to the normal class first: chrt --other --pid 0 TID"),
        );
    }
    if threads(vm).next().is_none() {
        return Some(refused("vsteer knows none of its threads".to_owned()));
    }
    None
}

fn keeper_gone() -> Fault {
    Fault::new(FaultKind::Failed, "the thread that keeps accounts has ended").help("report this bug")
}

/// Workers come and go, and nobody waits for them by the millisecond.
fn threads(vm: &VmConfig) -> impl Iterator<Item = &VmThread> {
    vm.threads.iter().filter(|t| t.role != Role::Worker)
}

fn class_step(vm: &VmConfig, thread: &VmThread) -> Option<Step> {
    let change =
        Change::Class(setting::Class { role: thread.role, tid: thread.tid, from: thread.class?, to: FIRST });
    Some(Step {
        vm: vm.id.clone(),
        vm_name: vm.name.clone(),
        change,
        reason: "the VM must run as soon as it wakes".to_owned(),
    })
}

fn told_of(vm: &VmConfig, grants: &BTreeMap<String, (i64, u64)>) -> Followed {
    let threads = threads(vm).filter_map(|t| {
        let group = t.cgroup.as_ref();
        let budget = group.and_then(|g| grants.get(g).map(|(us, of_us)| (g.clone(), *us, *of_us)));
        Some(Followable { tid: t.tid, role: t.role, former: t.class?, budget })
    });
    Followed { vm: vm.id.clone(), name: vm.name.clone(), threads: threads.collect() }
}

/// A VM in the keeper's books.
struct Entry {
    kept: Kept,
    threads: Vec<Followable>,
    credit: Credit,
    /// Of each cgroup whose real time the kernel limits, what may still be used of it; full at the rate, of all pCPUs.
    budgets: BTreeMap<String, (Credit, f64)>,
    ran_ns: BTreeMap<Tid, u64>,
}

impl Entry {
    fn set(&mut self, first: bool) {
        for thread in &self.threads {
            match sched::set_class(thread.tid, if first { FIRST } else { thread.former }) {
                Ok(()) | Err(rustix::io::Errno::SRCH) => self.kept.refused = None,
                Err(errno) if first => {
                    self.kept.refused = Some(format!("{}: {errno}", thread.role));
                    return self.set(false);
                }
                // It was allowed before.
                Err(_) => {}
            }
        }
        self.kept.first = first;
    }
}

/// Who reads what VMs use, and changes their classes.
struct Keeper {
    limit: Duration,
    vms: BTreeMap<VmId, Entry>,
    polled: Schedstat,
    read_at: Instant,
    pcpus: usize,
}

impl Keeper {
    fn new(limit: Duration) -> Keeper {
        let pcpus = std::thread::available_parallelism().map_or(1, usize::from);
        Keeper { limit, vms: BTreeMap::new(), polled: Schedstat::new(), read_at: Instant::now(), pcpus }
    }

    /// Until nobody tells it anything any more; then all are in their former classes.
    fn keep(mut self, heard: &Receiver<Word>) {
        let mut next = Instant::now() + SOONEST;
        loop {
            match heard.recv_timeout(next.saturating_duration_since(Instant::now())) {
                Ok(Word::Follow(all)) => self.follow(all),
                Ok(Word::Due(all)) => {
                    for (vm, due) in all {
                        self.vms.entry(vm).and_modify(|entry| entry.kept.due_pcpus = Some(due));
                    }
                }
                Ok(Word::Report(answer)) => {
                    let _ = answer.send(self.vms.values().map(|entry| entry.kept.clone()).collect());
                }
                Err(RecvTimeoutError::Timeout) => {
                    self.look();
                    next = Instant::now() + self.soonest();
                }
                Err(RecvTimeoutError::Disconnected) => {
                    return self.vms.values_mut().for_each(|entry| entry.set(false));
                }
            }
        }
    }

    fn follow(&mut self, all: Vec<Followed>) {
        let named: BTreeSet<&VmId> = all.iter().map(|f| &f.vm).collect();
        self.vms.iter_mut().filter(|(vm, _)| !named.contains(vm)).for_each(|(_, gone)| gone.set(false));
        self.vms.retain(|vm, _| named.contains(vm));
        let polled: Vec<Polled> = all
            .iter()
            .flat_map(|f| f.threads.iter().map(move |t| (f, t)))
            // A thread is found below its own number as well as below its process's.
            .map(|(f, t)| Polled { vm: f.vm.clone(), role: t.role, pid: t.tid.0, tid: t.tid })
            .collect();
        self.polled.watch(&polled);
        for Followed { vm, name, mut threads } in all {
            let limit_ns = self.limit.as_nanos() as f64;
            let entry = self.vms.entry(vm).or_insert_with(|| Entry {
                kept: Kept {
                    name,
                    first: false,
                    first_s: 0.0,
                    used_up: 0,
                    budget_used_up: 0,
                    due_pcpus: None,
                    cpu_s: 0.0,
                    refused: None,
                },
                threads: Vec::new(),
                credit: Credit::new(limit_ns),
                budgets: BTreeMap::new(),
                ran_ns: BTreeMap::new(),
            });
            // What is in force now is this keeper's own doing, where it knows the thread.
            for thread in &mut threads {
                if let Some(known) = entry.threads.iter().find(|t| t.tid == thread.tid) {
                    thread.former = known.former;
                }
            }
            if entry.threads == threads {
                continue;
            }
            entry.budgets = threads
                .iter()
                .filter_map(|t| t.budget.as_ref())
                .map(|(group, us, of_us)| {
                    let at_once = Credit::new(KERNEL_AT_ONCE * *us as f64 * 1e3);
                    (group.clone(), (at_once, KERNEL_RATE * *us as f64 / *of_us as f64))
                })
                .collect();
            entry.threads = threads;
            // All of them alike, those that are new too.
            let first = entry.kept.first;
            entry.set(first);
        }
    }

    /// When the first of those that are put first can have used up its credit.
    fn soonest(&self) -> Duration {
        let pcpus = self.pcpus;
        let lasts = |entry: &Entry| {
            let most = entry.threads.len().min(pcpus) as f64;
            let own = entry.credit.lasts_ns(entry.kept.due_pcpus.unwrap_or(0.0), most);
            // A cgroup's budget is one of each pCPU, and most hold one thread.
            entry.budgets.values().map(|(budget, rate)| budget.lasts_ns(*rate, 1.0)).fold(own, f64::min)
        };
        let ns = self.vms.values().filter(|entry| entry.kept.first).map(lasts).fold(f64::INFINITY, f64::min);
        let ns = ns.clamp(SOONEST.as_nanos() as f64, LATEST.as_nanos() as f64);
        Duration::from_nanos(ns as u64)
    }

    fn look(&mut self) {
        let now = Instant::now();
        let elapsed_ns = now.duration_since(std::mem::replace(&mut self.read_at, now)).as_nanos() as f64;
        let mut ran: BTreeMap<&VmId, Vec<(Tid, u64)>> = BTreeMap::new();
        let samples = self.polled.read();
        for (sample, run_ns) in samples.iter().filter_map(|s| Some((s, s.counters.run_ns?))) {
            ran.entry(&sample.vm).or_default().push((sample.tid, run_ns));
        }
        for (vm, entry) in &mut self.vms {
            let mut used_ns = 0.0;
            let mut by_group: BTreeMap<&str, f64> = BTreeMap::new();
            for (tid, run_ns) in ran.remove(vm).unwrap_or_default() {
                let before = entry.ran_ns.insert(tid, run_ns).unwrap_or(run_ns);
                let since_ns = run_ns.saturating_sub(before) as f64;
                used_ns += since_ns;
                let thread = entry.threads.iter().find(|t| t.tid == tid);
                if let Some((group, ..)) = thread.and_then(|t| t.budget.as_ref()) {
                    *by_group.entry(group).or_default() += since_ns;
                }
            }
            entry.kept.cpu_s += used_ns / 1e9;
            let had = (entry.credit.is_left(), entry.budgets.values().all(|(b, _)| b.is_left()));
            let Some(due) = entry.kept.due_pcpus else { continue };
            entry.credit.passes(elapsed_ns, due, used_ns);
            let first = entry.kept.first;
            for (group, (budget, rate)) in &mut entry.budgets {
                // Only real time counts.
                let used_ns = by_group.get(group.as_str()).copied().filter(|_| first).unwrap_or(0.0);
                budget.passes(elapsed_ns, *rate, used_ns);
            }
            let has = (entry.credit.is_left(), entry.budgets.values().all(|(b, _)| b.is_left()));
            entry.kept.used_up += u64::from(had.0 && !has.0);
            entry.kept.budget_used_up += u64::from(had.1 && !has.1);
            if first {
                entry.kept.first_s += elapsed_ns / 1e9;
            }
            let shall = has.0 && has.1;
            if shall != first && entry.kept.refused.is_none() {
                entry.set(shall);
            }
        }
    }
}
