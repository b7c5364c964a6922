//! The second pass over a trace: the time of every thread of a VM in each state, and who ran meanwhile.
//!
//! The accounts are those of traces of Xen ([`crate::xentrace::account`]), with one tick per ns. vCPUs of a VM are one
//! domain there, its other threads are a second one, and the threads of one name on the rest of the host are another
//! one for each name, with the pCPU in place of a vCPU's number.

use super::line::{self, Event, Left, Line, Switch as Switched, What};
use super::survey::Survey;
use super::vms::Vms;
use crate::event::InMemory;
use crate::xentrace::account::{Accounts, Ran, Vcpu, Whose};
use crate::xentrace::{Change, IDLE_DOMAIN, Runstate};
use std::collections::BTreeMap;
use vsteer_core::limits;
use vsteer_core::nouns::{
    Batch, BlameSample, Collector, Culprit, PcpuSample, Role, ThreadCounters, ThreadSample, Tid, VmId,
};
use vsteer_core::plural::counted;
use vsteer_core::timeline::Switch;

/// One tick is one ns.
const KHZ: u64 = 1_000_000;
/// The time between two samples, ns.
const EVERY_NS: u64 = 1_000_000_000;
/// A short trace has at least this number of samples, at most one in [`LEAST_NS`].
const SAMPLES: u64 = 10;
const LEAST_NS: u64 = 10_000_000;
/// Thread ids and pCPUs that a stored switch has room for.
const STORED_PCPUS: u32 = 1 << 10;
/// `include/linux/sched.h`: the state of a thread that ends.
const TASK_DEAD: u16 = 0x80;

/// A thread of a VM.
struct Known {
    tid: u32,
    role: Role,
    vm: VmId,
    whose: Whose,
    siblings: bool,
    state: State,
    /// It was woken while it ran. If it sleeps then, the wake-up was for that sleep: `sched_waking` can come before the
    /// switch to sleep, `sched_wakeup` comes after it. `perf sched record` has only the former.
    waking: bool,
    /// When it left its pCPU, ns.
    left_ns: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Unknown,
    Running(u32),
    Ready,
    Asleep,
}

/// All other threads of one name.
struct Others {
    comm: String,
    /// The thread, or its process; 0: there are several.
    pid: u32,
}

/// The second pass.
pub(super) struct Account {
    accounts: Accounts,
    known: Vec<Known>,
    by_tid: BTreeMap<u32, usize>,
    /// Whose vCPUs each domain of the accounts has, up to the first of the others.
    domains: Vec<VmId>,
    others: Vec<Others>,
    by_comm: BTreeMap<String, usize>,
    /// What ran before the first switch of each pCPU, until it is met; afterwards what runs.
    on: BTreeMap<u32, Option<u32>>,
    wakes_recorded: bool,
    begin_ns: u64,
    now_ns: u64,
    /// The time of the last sample.
    sampled_ns: u64,
    end_ns: u64,
    next_ns: u64,
    every_ns: u64,
    epoch_ns: u64,
    done: Done,
}

/// The result.
#[derive(Default)]
pub(super) struct Done {
    pub batches: Vec<Batch>,
    pub events: InMemory,
    pub switches: u64,
    pub wakes: u64,
    /// Switches and wake-ups that are not kept.
    left_out: u64,
    /// Switches that contradict what came before, because events are missing.
    contradictions: u64,
    /// Threads that ran after a sleep without a wake-up.
    unwoken: u64,
}

impl Done {
    pub(super) fn notes(&self, name: &str) -> Vec<String> {
        let mut notes = Vec::new();
        if self.contradictions > 0 {
            notes.push(format!(
                "{name}: {} to another thread than the one before got the pCPU: events are missing there",
                counted(self.contradictions, "switch")
            ));
        }
        if self.unwoken > 0 {
            notes.push(format!(
                "{name}: {} without a recorded wake-up: that time counts as blocked",
                counted(self.unwoken, "sleep")
            ));
        }
        if self.left_out > 0 {
            notes.push(format!(
                "{name}: the timeline lacks {}, for which memory has no room",
                counted(self.left_out, "later event")
            ));
        }
        notes
    }
}

/// What such a trace measures.
pub(super) fn collector(survey: &Survey) -> Collector {
    let measured = counters(&Vcpu::new(0), true, survey.wakes > 0);
    let why = "a trace of context switches does not show it";
    let collector = Collector::new("sched-trace", |c| measured.holds(c), why)
        .without(&["limited_ns"], "a trace of context switches shows a throttled thread as ready")
        .without(&["psi", "psi.vms"], why);
    if survey.wakes > 0 {
        return collector;
    }
    let unwoken =
        ["ready_ns", "wait_ns", "blocked_ns", "lag_ns", "wakeups", "wake_latency", "ready_spell", "blame"];
    collector.without(&unwoken, "the trace has no wake-ups: record sched_wakeup too")
}

impl Account {
    /// `changed_ns`: wall-clock time at the end of the trace, ns since 1970.
    pub(super) fn new(survey: &Survey, vms: &Vms, changed_ns: u64) -> Account {
        let begin_ns = survey.begin_ns.unwrap_or(0);
        let length = survey.end_ns.saturating_sub(begin_ns);
        let threads: usize = vms.vms.iter().map(|vm| vm.threads.len()).sum();
        let most = (limits::TRACE_THREAD_SAMPLES / threads.max(1) as u64).clamp(1, limits::TRACE_SAMPLES);
        let every_ns = EVERY_NS.min(length / SAMPLES).max(LEAST_NS).max(length / most);
        let mut account = Account {
            accounts: Accounts::new(KHZ, 0),
            known: Vec::new(),
            by_tid: BTreeMap::new(),
            domains: Vec::new(),
            others: Vec::new(),
            by_comm: BTreeMap::new(),
            on: survey.first_on.clone(),
            wakes_recorded: survey.wakes > 0,
            begin_ns,
            now_ns: begin_ns,
            sampled_ns: begin_ns,
            end_ns: survey.end_ns,
            next_ns: begin_ns,
            every_ns,
            epoch_ns: changed_ns.saturating_sub(survey.end_ns),
            done: Done::default(),
        };
        account.introduce(survey, vms);
        account
    }

    /// The threads of VMs, and what ran before the first switches.
    fn introduce(&mut self, survey: &Survey, vms: &Vms) {
        for vm in &vms.vms {
            let siblings = vm.threads.iter().filter(|(_, role)| role.vcpu().is_some()).count() > 1;
            for vcpus in [true, false] {
                let domain = self.domains.len() as u16;
                let threads = vm.threads.iter().filter(|(_, role)| role.vcpu().is_some() == vcpus);
                for (at, (tid, role)) in threads.enumerate().take(usize::from(u16::MAX)) {
                    self.by_tid.insert(*tid, self.known.len());
                    let whose = (domain, at as u16);
                    let siblings = siblings && vcpus;
                    let state = State::Unknown;
                    let (tid, role, vm) = (*tid, *role, vm.id.clone());
                    let (waking, left_ns) = (false, 0);
                    self.known.push(Known { tid, role, vm, whose, siblings, state, waking, left_ns });
                }
                self.domains.push(vm.id.clone());
            }
        }
        if survey.overwritten > 0 {
            // The buffers of pCPUs begin at different times.
            self.on.values_mut().for_each(|on| *on = None);
        }
        for known in &mut self.known {
            if survey.threads.get(&known.tid).is_some_and(|t| t.woken_first) {
                known.state = State::Asleep;
                self.accounts.assume(known.whose, Runstate::Blocked, None);
            }
        }
        for (cpu, tid) in self.on.clone() {
            let Some(tid) = tid else { continue };
            let whose = match self.by_tid.get(&tid) {
                Some(at) => {
                    self.known[*at].state = State::Running(cpu);
                    Some(self.known[*at].whose)
                }
                None => self.stranger(cpu, tid, survey.threads.get(&tid).map_or("", |t| &t.comm)),
            };
            if let Some(whose) = whose {
                self.accounts.assume(whose, Runstate::Running, Some(cpu as u16));
            }
        }
    }

    /// The account of a thread that belongs to no VM, on this pCPU; `None` if there are too many names.
    fn stranger(&mut self, cpu: u32, tid: u32, comm: &str) -> Option<Whose> {
        if tid == 0 {
            return Some((IDLE_DOMAIN, cpu as u16));
        }
        let at = match self.by_comm.get(comm) {
            Some(at) => *at,
            None if self.others.len() >= limits::TRACE_NAMES => return None,
            None => {
                self.by_comm.insert(comm.to_owned(), self.others.len());
                self.others.push(Others { comm: comm.to_owned(), pid: tid });
                self.others.len() - 1
            }
        };
        if self.others[at].pid != tid {
            self.others[at].pid = 0;
        }
        let domain = u16::try_from(self.domains.len() + at).ok().filter(|d| *d < IDLE_DOMAIN)?;
        Some((domain, cpu as u16))
    }

    pub(super) fn see(&mut self, text: &str) {
        match line::read(text) {
            Some(Line::Event(event)) => self.event(&event),
            Some(Line::Lost { cpu: Some(cpu), events }) if cpu <= limits::TRACE_PCPU => {
                self.keep(Switch::loss(cpu, self.now_ns, events.unwrap_or(0)));
                self.vacate(cpu);
            }
            _ => {}
        }
    }

    fn event(&mut self, event: &Event<'_>) {
        let Some(ns) = event.ns.filter(|_| event.cpu <= limits::TRACE_PCPU) else { return };
        // Some events are out of order; the file may also have grown.
        let ns = ns.clamp(self.now_ns, self.end_ns.max(self.now_ns));
        self.sample_until(ns);
        self.now_ns = ns;
        match &event.what {
            What::Switch(switch) => self.switch(event.cpu, switch),
            What::Wake(w) => self.wake(event.cpu, w.tid, w.target.unwrap_or(event.cpu)),
            What::Migrate { tid, to } => self.queue(*tid, *to),
            What::Garbled | What::Other => {}
        }
    }

    /// Samples every moment before `ns`. If nothing happens for longer, the next sample is at the next event.
    fn sample_until(&mut self, ns: u64) {
        while self.next_ns < ns {
            let at = self.next_ns;
            self.sample(at);
            self.next_ns =
                (at + self.every_ns).max(ns.saturating_sub(self.every_ns)).min(self.end_ns.max(at + 1));
        }
    }

    fn change(&mut self, whose: Whose, cpu: u32, from: Runstate, to: Runstate) {
        let change =
            Change { ticks: self.now_ns, pcpu: cpu as u16, domain: whose.0, vcpu: whose.1, from, to };
        self.accounts.take(change);
    }

    /// Whatever ran on this pCPU: what it does now is unknown.
    fn vacate(&mut self, cpu: u32) {
        if let Some(Some(tid)) = self.on.insert(cpu, None) {
            match self.by_tid.get(&tid) {
                Some(at) if self.known[*at].state == State::Running(cpu) => {
                    self.known[*at].state = State::Unknown;
                    self.accounts.disown(self.now_ns, self.known[*at].whose);
                }
                Some(_) => {}
                None => self.accounts.vacate(self.now_ns, cpu as u16),
            }
        }
    }

    fn switch(&mut self, cpu: u32, s: &Switched<'_>) {
        self.done.switches += 1;
        let prev_state = match s.left {
            Left::Runnable => 0,
            Left::Asleep(state) => state,
            Left::Dead => TASK_DEAD,
        };
        let (prev, next) = (Tid(s.prev), Tid(s.next));
        self.keep(Switch { ns: self.now_ns, cpu, prev, prev_state, next });
        let on = self.on.get(&cpu).copied().flatten();
        if on != Some(s.prev) {
            self.done.contradictions += u64::from(on.is_some());
            self.vacate(cpu);
        }
        self.leave(cpu, s, on == Some(s.prev));
        self.enter(cpu, s);
        self.on.insert(cpu, Some(s.next));
    }

    fn leave(&mut self, cpu: u32, s: &Switched<'_>, expected: bool) {
        let Some(at) = self.by_tid.get(&s.prev).copied() else {
            if let Some(whose) = self.stranger(cpu, s.prev, s.prev_comm).filter(|_| expected) {
                self.change(whose, cpu, Runstate::Running, Runstate::Blocked);
            }
            return;
        };
        let whose = self.known[at].whose;
        self.known[at].left_ns = self.now_ns;
        if self.known[at].state != State::Running(cpu) {
            self.accounts.disown(self.now_ns, whose);
        }
        match s.left {
            Left::Dead => {
                self.known[at].state = State::Unknown;
                self.accounts.forget(self.now_ns, whose);
            }
            Left::Runnable => {
                self.known[at].state = State::Ready;
                self.change(whose, cpu, Runstate::Running, Runstate::Runnable);
                self.accounts.queue(self.now_ns, whose, cpu as u16);
            }
            Left::Asleep(_) => {
                self.known[at].state = State::Asleep;
                self.change(whose, cpu, Runstate::Running, Runstate::Blocked);
            }
        }
    }

    fn enter(&mut self, cpu: u32, s: &Switched<'_>) {
        let Some(at) = self.by_tid.get(&s.next).copied() else {
            if let Some(whose) = self.stranger(cpu, s.next, s.next_comm) {
                self.change(whose, cpu, Runstate::Blocked, Runstate::Running);
            }
            return;
        };
        let woken_at = self.known[at].left_ns.max(self.sampled_ns);
        let from = match self.known[at].state {
            State::Asleep if self.known[at].waking => {
                self.done.wakes += 1;
                self.keep(Switch::wake_up(cpu, self.now_ns, Tid(s.next)));
                self.accounts.was_woken(self.now_ns, self.known[at].whose, woken_at);
                Runstate::Runnable
            }
            State::Asleep => {
                self.done.unwoken += u64::from(self.wakes_recorded);
                Runstate::Blocked
            }
            _ => Runstate::Runnable,
        };
        let whose = self.known[at].whose;
        self.known[at].waking = false;
        self.known[at].state = State::Running(cpu);
        self.change(whose, cpu, from, Runstate::Running);
    }

    fn wake(&mut self, cpu: u32, tid: u32, target: u32) {
        let Some(at) = self.by_tid.get(&tid).copied() else { return };
        let whose = self.known[at].whose;
        match self.known[at].state {
            // The thread was about to sleep. Either it stays on its pCPU, or the switch follows.
            State::Running(_) => {
                self.known[at].waking = true;
                return;
            }
            // The second event of the same wake-up.
            State::Ready => {}
            State::Asleep | State::Unknown => {
                self.known[at].waking = false;
                self.done.wakes += 1;
                self.keep(Switch::wake_up(cpu, self.now_ns, Tid(tid)));
                self.known[at].state = State::Ready;
                self.change(whose, target.min(limits::TRACE_PCPU), Runstate::Blocked, Runstate::Runnable);
            }
        }
        self.queue(tid, target);
    }

    /// A ready thread is in the queue of this pCPU.
    fn queue(&mut self, tid: u32, target: u32) {
        let Some(known) = self.by_tid.get(&tid).map(|at| &self.known[*at]) else { return };
        if known.state == State::Ready && target <= limits::TRACE_PCPU {
            self.accounts.queue(self.now_ns, known.whose, target as u16);
        }
    }

    /// Keeps a switch for the timeline.
    fn keep(&mut self, s: Switch) {
        let kept = self.done.switches + self.done.wakes;
        if s.cpu >= STORED_PCPUS || kept > limits::TRACE_SWITCHES {
            self.done.left_out += 1;
        } else {
            self.done.events.push(s);
        }
    }

    fn sample(&mut self, at: u64) {
        self.accounts.settle_to(at);
        self.sampled_ns = at;
        let accounts = &self.accounts;
        let threads = self.known.iter().map(|known| {
            let unused = Vcpu::new(0);
            let vcpu = accounts.counted(known.whose).unwrap_or(&unused);
            ThreadSample {
                vm: known.vm.clone(),
                role: known.role,
                tid: Tid(known.tid),
                last_cpu: vcpu.pcpu.map(u32::from),
                waiting_ns: self.wakes_recorded.then(|| accounts.waiting_ns(known.whose)),
                counters: counters(vcpu, known.siblings, self.wakes_recorded),
            }
        });
        let threads = threads.collect();
        let pcpus = self.on.keys().filter_map(|cpu| {
            let idle_ns = accounts.counted((IDLE_DOMAIN, *cpu as u16))?.ticks[Runstate::Running as usize];
            let busy = at.saturating_sub(self.begin_ns).saturating_sub(idle_ns);
            Some(PcpuSample { cpu: *cpu, user_ns: busy, idle_ns, ..PcpuSample::default() })
        });
        let pcpus = pcpus.collect();
        let blame = self.blame();
        self.done.batches.push(Batch {
            mono_ns: at,
            unix_ns: self.epoch_ns.saturating_add(at),
            threads,
            pcpus,
            vms: Vec::new(),
            pressure: None,
            blame,
        });
    }

    fn blame(&mut self) -> Vec<BlameSample> {
        let blamed = self.accounts.take_blame();
        if !self.wakes_recorded {
            return Vec::new();
        }
        let roles: BTreeMap<Whose, (&VmId, Role)> =
            self.known.iter().map(|k| (k.whose, (&k.vm, k.role))).collect();
        let culprit = |ran: Ran| match ran {
            Ran::Nobody => Culprit::Placement,
            Ran::Unknown => Culprit::Unattributed,
            Ran::Domain(domain) => match self.domains.get(usize::from(domain)) {
                Some(vm) => Culprit::Vm(vm.clone()),
                None => match self.others.get(usize::from(domain) - self.domains.len()) {
                    Some(others) if is_kernel(&others.comm) => Culprit::Kernel { comm: others.comm.clone() },
                    Some(others) => Culprit::process(others.comm.clone(), others.pid),
                    None => Culprit::Unattributed,
                },
            },
        };
        let samples = blamed.into_iter().filter_map(|(whose, ran, ns)| {
            let (vm, role) = roles.get(&whose)?;
            Some(BlameSample { victim: (*vm).clone(), role: *role, culprit: culprit(ran), ns: ns as i64 })
        });
        samples.collect()
    }

    pub(super) fn finish(mut self) -> Done {
        let end = self.end_ns;
        if self.done.batches.last().is_none_or(|b| b.mono_ns < end) {
            self.sample_until(end);
            self.sample(end);
        }
        self.done
    }
}

/// A kernel thread, by its name: the trace does not say it.
fn is_kernel(comm: &str) -> bool {
    const BEGINS: [&str; 14] = [
        "kworker/",
        "ksoftirqd/",
        "migration/",
        "rcu_",
        "rcuo",
        "kswapd",
        "cpuhp/",
        "irq/",
        "vhost-",
        "kcompactd",
        "khugepaged",
        "ktimers/",
        "jbd2/",
        "kvm-",
    ];
    BEGINS.iter().any(|begin| comm.starts_with(begin))
}

/// The counters of a thread. `siblings`: does its VM have other vCPUs? `woken`: does the trace have wake-ups?
fn counters(vcpu: &Vcpu, siblings: bool, woken: bool) -> ThreadCounters {
    let of = |state: Runstate| Some(vcpu.ticks[state as usize]).filter(|_| woken);
    ThreadCounters {
        run_ns: Some(vcpu.ticks[Runstate::Running as usize]),
        ready_ns: of(Runstate::Runnable),
        wait_ns: of(Runstate::Runnable),
        blocked_ns: of(Runstate::Blocked),
        lag_ns: (siblings && woken).then_some(vcpu.lag_ticks),
        switches: Some(vcpu.dispatches),
        preemptions: Some(vcpu.preemptions),
        wakeups: woken.then_some(vcpu.wakes),
        migrations: Some(vcpu.migrations),
        wake_latency: woken.then(|| vcpu.wake_latency()),
        ready_spell: woken.then(|| vcpu.ready_spell()),
        ..ThreadCounters::default()
    }
}
