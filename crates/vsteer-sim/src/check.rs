//! Checks the invariants of every scheduler at every event: could a real machine do this?
//!
//! Idea: an independent observer. It sees every transition ([`Watch`]) and derives only from these where each
//! vCPU is and for how long, without the engine's arrays. It checks:
//! 1. time never runs backwards;
//! 2. a transition begins in the state that the last one of that vCPU ended in;
//! 3. a vCPU is on at most one pCPU, a pCPU runs at most one vCPU, and its affinity and pool allow that vCPU
//!    there;
//! 4. for every vCPU, the times in all states sum exactly to the elapsed time;
//! 5. a capped VM uses no more than its cap, within three accounting periods of 30 ms at the full speed of
//!    its vCPUs;
//! 6. if the policy claims to conserve work, no pCPU stays idle (longer than the policy says) while a vCPU
//!    that may run there is ready.
//!
//! A violation is a bug and panics with the time, the vCPU and both states. Left out: properties of single
//! schedulers (weights, latencies), which the closed forms in `tests/` check.

use super::engine::Watch;
use super::policy::{About, Conserving, View};
use super::setup::{Host, Pcpu, Vcpu};
use crate::state::{STATES, State};

/// Three accounting periods of Xen's Credit scheduler at its default.
const CAP_SLACK_NS: u64 = 90_000_000;

#[derive(Debug, Clone)]
struct Book {
    state: State,
    since_ns: u64,
    ns: [u64; STATES],
    pcpu: Option<Pcpu>,
    /// Since when it has been ready while an allowed pCPU idles.
    slighted_since_ns: Option<u64>,
}

/// The observer's data of a host.
#[derive(Debug, Clone)]
pub struct Invariants {
    policy: &'static str,
    conserving: Conserving,
    now_ns: u64,
    books: Vec<Book>,
    on: Vec<Option<Vcpu>>,
    ready: usize,
    idle: usize,
    /// Events seen.
    pub events: u64,
}

impl Invariants {
    /// An observer for `host` before any event.
    pub fn new(host: &Host, about: &About) -> Invariants {
        let book =
            Book { state: State::Absent, since_ns: 0, ns: [0; STATES], pcpu: None, slighted_since_ns: None };
        Invariants {
            policy: about.name,
            conserving: about.conserving,
            now_ns: 0,
            books: vec![book; host.vcpus.len()],
            on: vec![None; host.pcpus.len()],
            ready: 0,
            idle: host.pcpus.len(),
            events: 0,
        }
    }

    fn fail(&self, what: &str, v: Vcpu) -> ! {
        panic!("{}: {what}: {v:?} at {} ns: {:?}", self.policy, self.now_ns, self.books[v.i()]);
    }

    fn sums(&self) {
        for (i, b) in self.books.iter().enumerate() {
            let sum: u64 = b.ns.iter().sum::<u64>() + (self.now_ns - b.since_ns);
            if sum != self.now_ns {
                self.fail("the times in all states do not sum to the elapsed time", Vcpu(i as u32));
            }
        }
    }

    fn caps(&self, host: &Host) {
        for vm in host.vms.iter() {
            let Some(cap_pct) = vm.cap_pct else { continue };
            let range = vm.first.i()..vm.first.i() + vm.vcpus as usize;
            let running = State::Running as usize;
            let run_ns: u64 = self.books[range.clone()]
                .iter()
                .map(|b| b.ns[running] + if b.state == State::Running { self.now_ns - b.since_ns } else { 0 })
                .sum();
            let most_ns = (u128::from(self.now_ns) * u128::from(cap_pct) / 100) as u64
                + CAP_SLACK_NS * u64::from(vm.vcpus);
            if run_ns > most_ns {
                self.fail(&format!("VM {:?} ran {run_ns} ns, its cap allows {most_ns}", vm.name), vm.first);
            }
        }
    }

    fn conserved(&mut self, host: &Host) {
        let within_ns = match self.conserving {
            Conserving::No(_) => return,
            Conserving::Always => 0,
            Conserving::Within(ns) => ns,
        };
        let nobody = self.ready == 0 || self.idle == 0;
        for i in 0..self.books.len() {
            let slighted = !nobody && self.books[i].state == State::Ready && {
                let affinity = &host.vcpus[i].affinity;
                affinity.iter().any(|p| self.on[p].is_none())
            };
            let now_ns = self.now_ns;
            let book = &mut self.books[i];
            if !slighted {
                book.slighted_since_ns = None;
                continue;
            }
            let since_ns = *book.slighted_since_ns.get_or_insert(now_ns);
            // Several events may be needed at one time, so this checks only after time has advanced.
            if now_ns - since_ns > within_ns {
                self.fail("the vCPU is ready while an allowed pCPU idles", Vcpu(i as u32));
            }
        }
    }
}

impl Watch for Invariants {
    fn moved(&mut self, now_ns: u64, v: Vcpu, from: State, to: State, p: Option<Pcpu>) {
        if now_ns < self.now_ns {
            self.fail("time runs backwards", v);
        }
        self.now_ns = now_ns;
        let book = &self.books[v.i()];
        if book.state != from || from == to {
            self.fail(&format!("the vCPU goes from {from:?} to {to:?}"), v);
        }
        if from == State::Running {
            let on = book.pcpu.expect("a running vCPU has a pCPU");
            if p != Some(on) || self.on[on.i()] != Some(v) {
                self.fail("the vCPU leaves a pCPU that it was not on", v);
            }
            self.on[on.i()] = None;
            self.idle += 1;
        }
        if to == State::Running {
            let Some(p) = p else { self.fail("the vCPU runs on no pCPU", v) };
            if let Some(other) = self.on[p.i()] {
                self.fail(&format!("the vCPU gets {p:?}, where {other:?} runs"), v);
            }
            self.on[p.i()] = Some(v);
            self.idle -= 1;
        }
        self.ready += usize::from(to == State::Ready);
        self.ready -= usize::from(from == State::Ready);
        let book = &mut self.books[v.i()];
        book.ns[from as usize] += now_ns - book.since_ns;
        book.state = to;
        book.since_ns = now_ns;
        book.pcpu = if to == State::Running { p } else { None };
    }

    fn event_over(&mut self, view: &View<'_>) {
        self.now_ns = view.now_ns();
        self.events += 1;
        let host = view.host();
        for (i, v) in self.on.iter().enumerate() {
            let p = Pcpu(i as u32);
            if view.running(p) != *v {
                panic!("{}: {p:?} runs {:?}, but the observer expects {v:?}", self.policy, view.running(p));
            }
            if let Some(v) = v
                && !host.allows(*v, p)
            {
                self.fail(&format!("the vCPU runs on {p:?}, which its affinity forbids"), *v);
            }
        }
        for (i, b) in self.books.iter().enumerate() {
            if view.state(Vcpu(i as u32)) != b.state {
                self.fail("the engine has the vCPU in another state", Vcpu(i as u32));
            }
        }
        self.sums();
        self.caps(host);
        self.conserved(host);
    }
}
