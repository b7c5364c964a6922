//! Records context switches and wake-ups of a simulation, in the form of a recording.
//!
//! A [`Trace`] is both the engine's watch and the handle with which a caller reads the result. The engine
//! notes which vCPU left and which got a pCPU. [`Trace::drain`] combines a leave and an arrival on the same
//! pCPU at the same time into one [`Switch`].
//!
//! Not filtered: switches that take no time and return to the same vCPU at the same time are recorded too.

use super::engine::Watch;
use super::setup::{Pcpu, Vcpu};
use crate::state::State;
use std::cell::RefCell;
use std::rc::Rc;
use vsteer_core::nouns::Tid;
use vsteer_core::timeline::Switch;

/// The kernel's `TASK_INTERRUPTIBLE`: asleep (include/linux/sched.h, 6.12).
const ASLEEP: u16 = 1;
const IDLE: Tid = Tid(0);

#[derive(Debug, Clone, Copy)]
struct Move {
    ns: u64,
    pcpu: Pcpu,
    vcpu: Vcpu,
    what: What,
}

#[derive(Debug, Clone, Copy)]
enum What {
    Came,
    /// It left the pCPU and entered this state.
    Left(State),
    Woke,
}

/// The vCPU that left a pCPU and its new state, until it is known which vCPU came.
#[derive(Debug, Clone, Copy)]
struct Leave {
    ns: u64,
    prev: Tid,
    prev_state: u16,
}

#[derive(Debug, Default)]
struct Kept {
    moves: Vec<Move>,
    leaves: Vec<Option<Leave>>,
    /// The pCPU of each vCPU's last run.
    last: Vec<Pcpu>,
}

/// A watch whose copies share their data.
#[derive(Debug, Clone, Default)]
pub struct Trace(Rc<RefCell<Kept>>);

impl Watch for Trace {
    fn moved(&mut self, now_ns: u64, v: Vcpu, from: State, to: State, p: Option<Pcpu>) {
        let kept = &mut *self.0.borrow_mut();
        let mut note = |pcpu, what| kept.moves.push(Move { ns: now_ns, pcpu, vcpu: v, what });
        if from == State::Blocked {
            // The pCPU that makes a wake-up is not simulated, so this uses the pCPU of the last run.
            note(kept.last.get(v.i()).copied().unwrap_or(Pcpu(0)), What::Woke);
        }
        let Some(pcpu) = p else { return };
        if from == State::Running {
            note(pcpu, What::Left(to));
        }
        if to == State::Running {
            note(pcpu, What::Came);
            if kept.last.len() <= v.i() {
                kept.last.resize(v.i() + 1, Pcpu(0));
            }
            kept.last[v.i()] = pcpu;
        }
    }
}

impl Trace {
    /// The switches and wake-ups since the last call, in order of time per pCPU. `cpu` returns the kernel's
    /// number of a pCPU, `tid` the thread of a vCPU. A leave at the present time waits until it is known
    /// which vCPU comes. `end`: none will come.
    pub fn drain(
        &self,
        cpu: impl Fn(Pcpu) -> u32,
        tid: impl Fn(Vcpu) -> Tid,
        end: bool,
        mut each: impl FnMut(Switch),
    ) {
        let kept = &mut *self.0.borrow_mut();
        let to_idle = |p: usize, l: Leave| Switch {
            ns: l.ns,
            cpu: cpu(Pcpu(p as u32)),
            prev: l.prev,
            prev_state: l.prev_state,
            next: IDLE,
        };
        for m in kept.moves.drain(..) {
            let p = m.pcpu.i();
            if let What::Woke = m.what {
                each(Switch::wake_up(cpu(m.pcpu), m.ns, tid(m.vcpu)));
                continue;
            }
            if kept.leaves.len() <= p {
                kept.leaves.resize(p + 1, None);
            }
            let before = kept.leaves[p].take();
            match m.what {
                What::Woke => unreachable!("told above"),
                What::Left(state) => {
                    before.into_iter().for_each(|l| each(to_idle(p, l)));
                    let prev_state = if state == State::Blocked { ASLEEP } else { 0 };
                    kept.leaves[p] = Some(Leave { ns: m.ns, prev: tid(m.vcpu), prev_state });
                }
                What::Came => {
                    let from = before.filter(|l| l.ns == m.ns);
                    before.filter(|l| l.ns != m.ns).into_iter().for_each(|l| each(to_idle(p, l)));
                    let (prev, prev_state) = from.map_or((IDLE, 0), |l| (l.prev, l.prev_state));
                    each(Switch { ns: m.ns, cpu: cpu(m.pcpu), prev, prev_state, next: tid(m.vcpu) });
                }
            }
        }
        if end {
            let leaves = kept.leaves.iter_mut().enumerate().filter_map(|(p, l)| Some((p, l.take()?)));
            leaves.for_each(|(p, l)| each(to_idle(p, l)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leave_and_an_arrival_are_one_switch() {
        let trace = Trace::default();
        let mut watch = trace.clone();
        let (a, b, p) = (Vcpu(0), Vcpu(1), Some(Pcpu(0)));
        watch.moved(5, a, State::Ready, State::Running, p);
        watch.moved(9, a, State::Running, State::Ready, p);
        watch.moved(9, b, State::Ready, State::Running, p);
        watch.moved(12, b, State::Running, State::Blocked, p);
        watch.moved(18, b, State::Blocked, State::Ready, None);
        watch.moved(20, a, State::Ready, State::Running, p);
        watch.moved(30, a, State::Running, State::Blocked, p);
        let mut seen = Vec::new();
        let mut drain = |end| {
            trace.drain(
                |p| p.0 + 40,
                |v| Tid(v.0 + 1),
                end,
                |s| seen.push((s.ns, s.cpu, s.prev.0, s.prev_state, s.next.0)),
            );
            seen.clone()
        };
        let first = vec![
            (5, 40, 0, 0, 1),
            (9, 40, 1, 0, 2),
            (18, 40, 2, Switch::WOKEN, 0),
            (12, 40, 2, 1, 0),
            (20, 40, 0, 0, 1),
        ];
        assert_eq!(drain(false), first);
        assert_eq!(drain(true)[5..], [(30, 40, 1, 1, 0)]);
    }
}
