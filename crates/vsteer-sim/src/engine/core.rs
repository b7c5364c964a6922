//! Executes a vCPU's change of state: accounts, speeds, the next event of its pCPU, and the effect on others.
//!
//! This file has everything of a host that no policy decides. [`super::Engine`] decides the order of events;
//! this file executes them.
//!
//! Left out: the order of events (the engine's), and which vCPU runs (the policy's).

use super::Watch;
use crate::account::{Account, Rows, SPELL, Together, WOKEN, WOKEN_SPELL};
use crate::event::{NEVER, Queue};
use crate::guest::linked::Links;
use crate::guest::poke::Poke;
use crate::guest::{Guest, Next};
use crate::hot::{Hot, NONE, Running, Tally};
use crate::policy::View;
use crate::setup::{Host, Pcpu, Setup, Vcpu, VcpuFacts, VcpuSetup, VmSetup};
use crate::state::State;
use vsteer_core::Fault;
use vsteer_core::random::Random;

/// The number of vCPUs above which prefetching pays off: some 300 bytes each, compared with a second-level
/// cache of 512 KiB to 2 MiB.
const LARGE: usize = 1500;

/// Everything except the policy.
pub(super) struct Core<W> {
    pub(super) now_ns: u64,
    pub(super) host: Host,
    pub(super) hot: Vec<Hot>,
    pub(super) running: Vec<Running>,
    pub(super) queue: Queue,
    pub(super) guests: Vec<Guest>,
    pub(super) links: Links,
    pub(super) rows: Rows,
    pub(super) together: Vec<Together>,
    pub(super) lag_ns: Vec<u64>,
    /// First slots of pCPUs and of vCPUs in the queue.
    pub(super) first_pcpu: usize,
    pub(super) first_vcpu: usize,
    /// Do all pCPUs always run at speed 1,000?
    pub(super) uniform: bool,
    /// Do siblings of a core slow each other?
    pub(super) smt: bool,
    /// Does a switch have a cost?
    pub(super) costly: bool,
    /// Does its data exceed the nearer caches?
    pub(super) large: bool,
    pub(super) watch: W,
}

/// The vCPUs' guests, and which of them poll.
fn guests_of(setup: &Setup) -> (Vec<Guest>, Vec<bool>) {
    let all = setup.vms.iter().flat_map(|vm| vm.vcpus.iter().map(move |v| (vm, v)));
    let one = |(i, (vm, v)): (usize, (&VmSetup, &VcpuSetup))| {
        let guest = Guest::new(v.demand.clone(), Random::new(setup.seed, i as u64));
        // A guest that reports expired timers to the hypervisor does not need to poll.
        let polls = v.polls && !vm.vit && v.demand.may_poll();
        (if polls { guest.polling() } else { guest }, polls)
    };
    all.enumerate().map(one).unzip()
}

/// A vCPU that does not exist yet.
fn absent(host: &Host, v: &VcpuFacts, special: bool) -> Hot {
    Hot {
        since_ns: 0,
        work_ns: 0,
        woken_ns: NEVER,
        wake_wait_ns: 0,
        lag_mark_ns: 0,
        pcpu: NONE,
        vm: v.vm.0,
        pool: v.pool.0,
        prompt: 0,
        state: State::Absent,
        held: State::Ready,
        bound: v.affinity.len() < host.pcpus.len(),
        siblings: host.vms[v.vm.i()].vcpus > 1,
        special,
        polls: false,
        tally: Tally::default(),
    }
}

/// A pCPU on which nothing runs.
const IDLE: Running = Running {
    vcpu: NONE,
    last: NONE,
    speed: 1000,
    from_ns: 0,
    work_end_ns: NEVER,
    slice_end_ns: NEVER,
    busy_since_ns: 0,
    busy_ns: 0,
};

impl<W: Watch> Core<W> {
    /// The host of `setup` at time 0. `timers`: the queue's slots for timers of policies.
    pub(super) fn new(setup: &Setup, host: Host, timers: usize, watch: W) -> Result<Core<W>, Fault> {
        let (pcpus, vcpus) = (host.pcpus.len(), host.vcpus.len());
        let (first_pcpu, first_vcpu) = (timers, timers + pcpus);
        let links = Links::new(&setup.guests(), setup.seed)?;
        let mut queue = Queue::new(first_vcpu + vcpus);
        for (i, v) in setup.vms.iter().flat_map(|vm| &vm.vcpus).enumerate() {
            queue.set(first_vcpu + i, v.from_ns);
        }
        let (guests, polls) = guests_of(setup);
        let hot = host.vcpus.iter().enumerate().map(|(i, v)| absent(&host, v, polls[i] || links.holds(i)));
        let costs = host.costs;
        let smt = costs.smt_speed < 1000 && host.cores.iter().any(|c| c.len() > 1);
        let remote = costs.remote_speed < 1000 && host.vms.iter().any(|vm| vm.memory_node.is_some());
        Ok(Core {
            now_ns: 0,
            hot: hot.collect(),
            running: vec![IDLE; pcpus],
            queue,
            guests,
            links,
            rows: Rows::new(vcpus),
            together: vec![Together::default(); host.vms.len()],
            lag_ns: vec![0; vcpus],
            first_pcpu,
            first_vcpu,
            uniform: !smt && !remote && host.pcpus.iter().all(|p| p.speed == 1000),
            smt,
            large: vcpus > LARGE,
            costly: costs.switch_ns > 0 || costs.cold_core_ns > 0 || costs.cold_llc_ns > 0,
            host,
            watch,
        })
    }

    #[inline(always)]
    pub(super) fn view(&self) -> View<'_> {
        View { now_ns: self.now_ns, host: &self.host, hot: &self.hot, running: &self.running }
    }

    /// Moves `v` to state `to`.
    #[inline]
    pub(super) fn shift(&mut self, v: usize, to: State, p: Option<Pcpu>) {
        let now_ns = self.now_ns;
        let h = &mut self.hot[v];
        let from = h.state;
        let spent_ns = now_ns - h.since_ns;
        h.tally.ns[from as usize] += spent_ns;
        h.state = to;
        h.since_ns = now_ns;
        if h.siblings {
            // In this order a vCPU never counts as its own sibling: it stops running before it is ready, and
            // the reverse.
            let t = &mut self.together[h.vm as usize];
            if from == State::Ready {
                self.lag_ns[v] += t.any_ns(now_ns) - h.lag_mark_ns;
            }
            if from == State::Running {
                t.running -= 1;
                if t.running == 0 {
                    t.any_ns += now_ns - t.since_ns;
                }
            }
            if to == State::Running {
                t.running += 1;
                if t.running == 1 {
                    t.since_ns = now_ns;
                }
            }
            if to == State::Ready {
                h.lag_mark_ns = t.any_ns(now_ns);
            }
        }
        if from == State::Ready && to != State::Running {
            self.rows.count(v, SPELL, spent_ns);
        }
        self.watch.moved(now_ns, Vcpu(v as u32), from, to, p);
    }

    /// `v` gets pCPU `p`.
    #[inline]
    pub(super) fn dispatch(&mut self, p: usize, v: usize, slice_ns: u64) {
        let now_ns = self.now_ns;
        let h = &mut self.hot[v];
        assert_eq!(h.state, State::Ready, "vCPU {v} was chosen for pCPU {p}");
        assert!(!h.bound || self.host.vcpus[v].affinity.contains(p), "vCPU {v} may not run on pCPU {p}");
        let spell_ns = now_ns - h.since_ns;
        if h.woken_ns == now_ns {
            h.prompt += 1;
        } else if h.woken_ns == h.since_ns {
            h.wake_wait_ns += spell_ns;
            self.rows.count(v, WOKEN_SPELL, spell_ns);
        } else {
            if h.woken_ns != NEVER {
                h.wake_wait_ns += now_ns - h.woken_ns;
                self.rows.count(v, WOKEN, now_ns - h.woken_ns);
            }
            self.rows.count(v, SPELL, spell_ns);
        }
        h.woken_ns = NEVER;
        let t = &mut h.tally;
        t.switches += 1;
        let before = h.pcpu;
        h.pcpu = p as u32;
        t.migrations += u32::from(before != p as u32 && before != NONE);
        if h.polls {
            // While it had no pCPU, the end of its polling came nearer.
            let until_ns = self.guests[v].polls_until_ns().expect("it polls");
            h.work_ns = until_ns.saturating_sub(now_ns);
        }
        let r = &mut self.running[p];
        if self.costly && r.last != v as u32 {
            let costs = &self.host.costs;
            let (from, to) = (self.host.pcpus.get(before as usize), &self.host.pcpus[p]);
            let cold_ns = match from {
                Some(from) if from.llc != to.llc => costs.cold_llc_ns,
                Some(from) if from.core != to.core => costs.cold_core_ns,
                _ => 0,
            };
            h.work_ns = h.work_ns.saturating_add(costs.switch_ns + cold_ns);
        }
        r.vcpu = v as u32;
        r.last = v as u32;
        r.from_ns = now_ns;
        r.slice_end_ns = now_ns.saturating_add(slice_ns);
        if !self.uniform {
            self.running[p].speed = self.speed(p);
        }
        self.shift(v, State::Running, Some(Pcpu(p as u32)));
    }

    /// The next burst of a vCPU that depends on others or polls. Also executes the pokes for others.
    #[inline(never)]
    pub(super) fn special(&mut self, v: usize, begins: bool) -> Next {
        let now_ns = self.now_ns;
        if !self.links.holds(v) {
            let guest = &mut self.guests[v];
            let next = if begins { guest.begin(now_ns) } else { guest.burst_done(now_ns) };
            self.hot[v].polls = guest.polls_until_ns().is_some();
            return next;
        }
        let next = match begins {
            true => self.links.begin(v, now_ns),
            false => self.links.burst_done(v, now_ns, &self.hot),
        };
        for i in 0..self.links.pokes.len() {
            self.poke(self.links.pokes[i]);
        }
        self.links.pokes.clear();
        next
    }

    /// Ends another vCPU's waiting.
    fn poke(&mut self, poke: Poke) {
        let (v, h) = (poke.vcpu as usize, &mut self.hot[poke.vcpu as usize]);
        match h.state {
            State::Blocked => {
                h.work_ns = poke.work_ns;
                self.queue.set(self.first_vcpu + v, poke.at_ns);
                return;
            }
            // It spins. If it runs, the end of its burst is known from now on.
            State::Running => {
                let p = h.pcpu as usize;
                self.settle(p);
                self.hot[v].work_ns = poke.work_ns;
                self.plan(p);
            }
            State::Ready | State::Limited | State::CoStopped => h.work_ns = poke.work_ns,
            State::Absent => unreachable!("vCPU {v} is waited for before it is there"),
        }
        assert!(poke.at_ns <= self.now_ns, "vCPU {v} is to sleep while it spins");
    }

    /// `p` became busy or idle.
    pub(super) fn turned(&mut self, p: usize, busy: bool) {
        let r = &mut self.running[p];
        if busy {
            r.busy_since_ns = self.now_ns;
        } else {
            r.busy_ns += self.now_ns - r.busy_since_ns;
        }
        if self.smt {
            let core = self.host.pcpus[p].core as usize;
            let mut at = p;
            while let Some(s) = self.host.cores[core].after(at)
                && s != p
            {
                at = s;
                if self.running[s].vcpu != NONE {
                    self.settle(s);
                    self.running[s].speed = self.speed(s);
                    self.plan(s);
                }
            }
        }
    }

    /// The speed of the vCPU on `p`, in 1/1,000.
    fn speed(&self, p: usize) -> u32 {
        let place = &self.host.pcpus[p];
        let mut speed = place.speed;
        if self.smt {
            let others = self.host.cores[place.core as usize].iter().filter(|s| *s != p);
            if others.into_iter().any(|s| self.running[s].vcpu != NONE) {
                speed = (speed * self.host.costs.smt_speed / 1000).max(1);
            }
        }
        let vm = &self.host.vms[self.hot[self.running[p].vcpu as usize].vm as usize];
        match vm.memory_node {
            Some(node) if node != place.node => (speed * self.host.costs.remote_speed / 1000).max(1),
            _ => speed,
        }
    }

    /// Accounts the work done on `p` up to now.
    #[inline]
    pub(super) fn settle(&mut self, p: usize) {
        let r = &mut self.running[p];
        let elapsed_ns = self.now_ns - r.from_ns;
        r.from_ns = self.now_ns;
        let h = &mut self.hot[r.vcpu as usize];
        let done_ns = if self.uniform || h.polls {
            elapsed_ns
        } else {
            (u128::from(elapsed_ns) * u128::from(r.speed) / 1000) as u64
        };
        h.work_ns = h.work_ns.saturating_sub(done_ns);
    }

    /// Sets the event of busy `p`, whose work is already accounted.
    #[inline]
    pub(super) fn plan(&mut self, p: usize) {
        let r = &mut self.running[p];
        let Hot { work_ns, polls, .. } = self.hot[r.vcpu as usize];
        let takes_ns = if self.uniform || polls {
            work_ns
        } else {
            let at_speed = (u128::from(work_ns) * 1000).div_ceil(u128::from(r.speed));
            u64::try_from(at_speed).unwrap_or(NEVER)
        };
        r.work_end_ns = r.from_ns.saturating_add(takes_ns);
        self.queue.set(self.first_pcpu + p, r.work_end_ns.min(r.slice_end_ns));
    }

    pub(super) fn account(&self, v: Vcpu) -> Account {
        let (i, h) = (v.i(), &self.hot[v.i()]);
        let t = &h.tally;
        let mut ns = t.ns;
        ns[h.state as usize] += self.now_ns - h.since_ns;
        let unfinished_lag_ns = match h.state {
            State::Ready => self.together[h.vm as usize].any_ns(self.now_ns) - h.lag_mark_ns,
            _ => 0,
        };
        Account {
            ns,
            lag_ns: h.siblings.then(|| self.lag_ns[i] + unfinished_lag_ns),
            switches: t.switches.into(),
            preemptions: t.preemptions.into(),
            wakeups: t.wakeups.into(),
            migrations: t.migrations.into(),
            wake_latency: self.rows.sum(i, [WOKEN_SPELL, WOKEN], h.prompt),
            wake_wait_ns: h.wake_wait_ns,
            ready_spell: self.rows.sum(i, [WOKEN_SPELL, SPELL], h.prompt),
            last_pcpu: (h.pcpu != NONE).then_some(Pcpu(h.pcpu)),
            jobs: if self.links.holds(i) { self.links.jobs(i) } else { self.guests[i].jobs() },
            frames: self.guests[i].frames(),
            sleeps: self.guests[i].sleeps(),
        }
    }
}
