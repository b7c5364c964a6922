//! The server of the fair class: a reservation that runs fair tasks above real-time tasks that would starve
//! them.
//!
//! The server is deferred. All run time of fair tasks counts against its budget, and a new period begins
//! whenever the budget is used up. Fair tasks run on the server only at the last moment at which the rest of
//! the budget can still run before the deadline. From then on the server is replenished at each deadline and
//! runs at once, until fair tasks use up a reservation without its help.
//!
//! Source: kernel/sched/deadline.c of Linux 6.12.117 (`dl_server_*`, states A to E of its comment). Left out:
//! other tasks of the deadline class, the revised wake-up rule, and that an idle pCPU counts as time that the
//! class could have had.

use super::super::fair::next_tick;
use crate::policy::Values;

/// The shortest time by which it is deferred (`dl_server_min_res`).
const LEAST_NS: i64 = 1_000_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Is {
    /// No fair task has been awake (A).
    Off,
    /// Waiting for the last moment (B).
    Deferred,
    /// Fair tasks run on it (D).
    Running,
    /// Used up; replenished at the deadline (E).
    Spent,
}

#[derive(Debug, Clone)]
pub(super) struct Server {
    is: Is,
    budget_ns: i64,
    period_ns: i64,
    runtime_ns: i64,
    deadline_ns: i64,
    /// It has run since fair tasks last managed without it.
    proven: bool,
    charged_ns: i64,
    pub(super) timer_ns: Option<i64>,
}

impl Server {
    /// `None` if the kernel has no server, or the server has no budget.
    pub(super) fn new(values: &Values, exists: bool) -> Option<Server> {
        let (budget_ns, period_ns) = match exists {
            true => (values.get("fair_server_runtime_us"), values.get("fair_server_period_us")),
            false => return None,
        };
        let of = |us: u64| us as i64 * 1000;
        (budget_ns > 0).then(|| Server {
            is: Is::Off,
            budget_ns: of(budget_ns.min(period_ns)),
            period_ns: of(period_ns),
            runtime_ns: 0,
            deadline_ns: -1,
            proven: false,
            charged_ns: 0,
            timer_ns: None,
        })
    }

    pub(super) fn runs(&self) -> bool {
        self.is == Is::Running
    }

    /// While it runs: the rest of its budget.
    pub(super) fn left_ns(&self) -> Option<i64> {
        self.runs().then_some(self.runtime_ns)
    }

    fn defer(&mut self, now_ns: i64) {
        self.is = Is::Deferred;
        self.timer_ns = Some((self.deadline_ns - self.runtime_ns).max(now_ns + 1));
    }

    fn new_period(&mut self, now_ns: i64) {
        self.deadline_ns = now_ns + self.period_ns;
        self.runtime_ns = self.budget_ns;
    }

    /// Would the rest of the budget need more than its rate until the deadline?
    fn overflows(&self, now_ns: i64) -> bool {
        let need = i128::from(self.runtime_ns) * i128::from(self.period_ns);
        need > i128::from(self.deadline_ns - now_ns) * i128::from(self.budget_ns)
    }

    /// Fair tasks are awake. True if the server was off.
    pub(super) fn start(&mut self, now_ns: i64) -> bool {
        if self.is != Is::Off {
            return false;
        }
        self.charged_ns = now_ns;
        if self.deadline_ns < now_ns || self.overflows(now_ns) {
            self.proven = false;
            self.new_period(now_ns);
        }
        if self.proven {
            self.is = Is::Running;
            self.timer_ns = None;
        } else {
            self.defer(now_ns);
        }
        true
    }

    pub(super) fn stop(&mut self) {
        self.is = Is::Off;
        self.timer_ns = None;
    }

    /// Charges up to now. `ran`: did a fair task run since the last call? The kernel checks at ticks; this function makes up for
    /// them.
    pub(super) fn charge(&mut self, now_ns: i64, ran: bool, tick_ns: i64) {
        let from_ns = std::mem::replace(&mut self.charged_ns, now_ns);
        if self.is == Is::Off || !ran {
            return;
        }
        if self.is == Is::Running {
            self.runtime_ns -= now_ns - from_ns;
            if self.runtime_ns <= 0 {
                self.is = Is::Spent;
                self.timer_ns = Some(self.deadline_ns);
            }
            return;
        }
        let first_ns = next_tick((from_ns + self.runtime_ns).max(from_ns + 1), tick_ns);
        if first_ns > now_ns {
            self.runtime_ns -= now_ns - from_ns;
            if self.runtime_ns > 0 {
                return;
            }
            self.new_period(now_ns);
        } else {
            // Once for each tick that would have found it used up.
            let every_ns = (self.budget_ns + tick_ns - 1) / tick_ns * tick_ns;
            let last_ns = first_ns + (now_ns - first_ns) / every_ns * every_ns;
            self.new_period(last_ns);
            self.runtime_ns -= now_ns - last_ns;
        }
        self.proven = false;
        self.defer(now_ns);
    }

    /// Handles its timer. True if fair tasks should run on it from now on.
    pub(super) fn timer(&mut self, now_ns: u64) -> bool {
        let now_ns = now_ns as i64;
        if self.timer_ns.is_none_or(|t| t > now_ns) {
            return false;
        }
        if self.is == Is::Deferred {
            if now_ns < self.deadline_ns - self.runtime_ns - LEAST_NS {
                self.defer(now_ns);
                return false;
            }
            self.proven = true;
            if self.overflows(now_ns) {
                self.new_period(now_ns);
            }
        }
        while self.runtime_ns <= 0 {
            self.deadline_ns += self.period_ns;
            self.runtime_ns += self.budget_ns;
        }
        self.is = Is::Running;
        self.timer_ns = None;
        true
    }
}
