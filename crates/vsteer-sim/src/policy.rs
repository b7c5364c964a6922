//! The interface between the engine and every scheduler policy: what a policy knows, and what it decides.
//!
//! Idea: a policy gets facts and returns decisions, and cannot change the engine. Facts: a vCPU arrives,
//! wakes, blocks or yields, its slice ends, a pCPU was interrupted, a timer fires, a weight or cap changed.
//! Decisions: which vCPU runs on a pCPU and for how long at most ([`Choice`]); which pCPU to interrupt, which
//! timer to set, which vCPU to hold or release ([`Orders`]). The policy owns the run queues and places woken
//! vCPUs in them. A chosen vCPU must be ready, not held and allowed on that pCPU; otherwise an assertion
//! stops the run.
//!
//! - **Ticks** are not facts. A policy computes from [`View::now_ns`] what ticks would have done since the
//!   last call. If a tick can change a decision, the policy names that time: as the length of a slice, or by
//!   a timer.
//! - **Caps and quotas**: [`Orders::hold`] with [`Held::Limited`]; **co-scheduling**: with
//!   [`Held::CoStopped`]. A held vCPU that runs keeps its pCPU until the policy interrupts it and picks
//!   another.
//! - **Pools**: one instance of the policy per pool, which knows only its own pCPUs and vCPUs.
//! - **Reservations, classes, group trees**: facts of the [`Host`].
//!
//! The engine is compiled once per policy (static dispatch), so a call costs no more than a function call. A
//! new policy is one file under `sched/` and one line in [`super::sched::POLICIES`].

use super::setup::{Host, Pcpu, Pool, Vcpu, Vm};
use super::state::State;
use serde::Serialize;
use vsteer_core::{Fault, FaultKind};

/// One parameter of a policy, for help, docs, scenario files and sweeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Parameter {
    /// Its name, with the unit at the end.
    pub name: &'static str,
    /// What it does, one line.
    pub doc: &'static str,
    /// Unit of the value.
    pub unit: &'static str,
    /// The default value.
    pub default: u64,
    /// The smallest accepted value.
    pub min: u64,
    /// The largest accepted value.
    pub max: u64,
}

/// The values of a policy's parameters, in the order of its table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Values {
    table: &'static [Parameter],
    values: Vec<u64>,
}

impl Values {
    /// The default values.
    pub fn defaults(table: &'static [Parameter]) -> Values {
        Values { table, values: table.iter().map(|p| p.default).collect() }
    }

    /// Sets `name`.
    ///
    /// # Errors
    /// `BadInput` for an unknown name (the known ones are listed) or a value out of range.
    pub fn set(&mut self, name: &str, value: u64) -> Result<(), Fault> {
        let Some(i) = self.table.iter().position(|p| p.name == name) else {
            let known: Vec<&str> = self.table.iter().map(|p| p.name).collect();
            return Err(Fault::new(
                FaultKind::BadInput,
                format!("`{name}` is not a parameter of this scheduler"),
            )
            .help(format!("known parameters: {}", known.join(", "))));
        };
        let p = &self.table[i];
        if !(p.min..=p.max).contains(&value) {
            return Err(Fault::new(
                FaultKind::BadInput,
                format!(
                    "{name} is {value} {}, which is out of \
                range",
                    p.unit
                ),
            )
            .help(format!("give a value from {} to {}", p.min, p.max)));
        }
        self.values[i] = value;
        Ok(())
    }

    /// The value of `name`.
    ///
    /// # Panics
    /// If the policy's table has no such name, which is a bug in the policy.
    pub fn get(&self, name: &str) -> u64 {
        let i = self.table.iter().position(|p| p.name == name);
        self.values[i.unwrap_or_else(|| panic!("no parameter `{name}` in the policy's table"))]
    }
}

/// Whether the policy never leaves a pCPU idle while a vCPU that may run there is ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Conserving {
    /// At every instant.
    Always,
    /// Except for at most this long, ns.
    Within(u64),
    /// No, with the reason.
    No(&'static str),
}

/// Description of a policy for help and docs.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct About {
    /// Its name in scenario files.
    pub name: &'static str,
    /// One line about the policy.
    pub doc: &'static str,
    /// The source of the policy.
    pub source: &'static str,
    /// Parameters of the policy.
    pub parameters: &'static [Parameter],
    /// Default weight of a VM; 0 if the policy has no weights.
    pub default_weight: u32,
    /// The accepted range of weights.
    pub weights: (u32, u32),
    /// Do weights divide contended CPU time in proportion?
    pub proportional: bool,
    /// Whether it can leave pCPUs idle while vCPUs are ready.
    pub conserving: Conserving,
    /// Does it enforce [`super::setup::VmSetup::cap_pct`]?
    pub caps: bool,
    /// Does it enforce quotas of groups?
    pub quotas: bool,
    /// Does it use [`super::setup::VcpuSetup::class`]?
    pub classes: bool,
    /// Does it use [`super::setup::VcpuSetup::reservation`]?
    pub reservations: bool,
    /// Does it use [`super::setup::VmSetup::warp`] and [`super::setup::VmSetup::vit`]?
    pub warps: bool,
    /// Does it use [`super::setup::VcpuSetup::soft_affinity`]?
    pub soft_affinities: bool,
    /// Known deviations from the original, `id: what`.
    pub gaps: &'static [&'static str],
}

/// Why a pCPU needs a decision, and what happened to the vCPU that ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// The pCPU was idle and got an interrupt.
    Idle,
    /// The pCPU got an interrupt; this vCPU could continue.
    Interrupted(Vcpu),
    /// The slice ended; this vCPU could continue.
    SliceEnd(Vcpu),
    /// This vCPU yielded.
    Yielded(Vcpu),
    /// This vCPU blocked.
    Blocked(Vcpu),
}

impl Why {
    /// The vCPU that could continue.
    #[inline]
    pub fn runnable(self) -> Option<Vcpu> {
        match self {
            Why::Interrupted(v) | Why::SliceEnd(v) | Why::Yielded(v) => Some(v),
            Why::Idle | Why::Blocked(_) => None,
        }
    }

    /// The vCPU that ran until now.
    #[inline]
    pub fn ran(self) -> Option<Vcpu> {
        match self {
            Why::Blocked(v) => Some(v),
            _ => self.runnable(),
        }
    }
}

/// The vCPU that runs next on a pCPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Choice {
    /// The vCPU; `None` leaves the pCPU idle.
    pub vcpu: Option<Vcpu>,
    /// Longest slice, ns; `u64::MAX` for no limit.
    pub slice_ns: u64,
}

impl Choice {
    /// Leaves the pCPU idle.
    pub const IDLE: Choice = Choice { vcpu: None, slice_ns: u64::MAX };

    /// `vcpu` for at most `slice_ns`.
    #[inline]
    pub fn run(vcpu: Vcpu, slice_ns: u64) -> Choice {
        Choice { vcpu: Some(vcpu), slice_ns }
    }
}

/// Why a vCPU is held back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Held {
    /// Because of a cap or quota.
    Limited,
    /// So that siblings catch up.
    CoStopped,
}

/// Requests of the policy, which the engine executes in order after the policy returns.
#[derive(Debug, Default)]
pub struct Orders {
    pub(super) interrupts: Vec<Pcpu>,
    /// One per pCPU: is an interrupt pending?
    pub(super) pending: Vec<bool>,
    pub(super) holds: Vec<(Vcpu, Option<Held>)>,
    pub(super) timers: Vec<(u32, u64)>,
    pub(super) slices: Vec<(Pcpu, u64)>,
}

impl Orders {
    pub(super) fn new(pcpus: usize, vcpus: usize) -> Orders {
        Orders {
            interrupts: Vec::with_capacity(pcpus),
            pending: vec![false; pcpus],
            holds: Vec::with_capacity(2 * vcpus),
            timers: Vec::with_capacity(16),
            slices: Vec::with_capacity(pcpus),
        }
    }

    /// Are there orders other than interrupts?
    #[inline]
    pub(super) fn any(&self) -> bool {
        !(self.timers.is_empty() && self.holds.is_empty() && self.slices.is_empty())
    }

    /// Interrupts `p`, which then asks for a decision at the same time. A second interrupt has no effect.
    #[inline]
    pub fn interrupt(&mut self, p: Pcpu) {
        if !self.pending[p.i()] {
            self.pending[p.i()] = true;
            self.interrupts.push(p);
        }
    }

    /// Holds `v` until [`Orders::release`]. If `v` runs, the policy must also interrupt its pCPU.
    #[inline]
    pub fn hold(&mut self, v: Vcpu, why: Held) {
        self.holds.push((v, Some(why)));
    }

    /// Releases `v`: it is ready unless it is blocked.
    #[inline]
    pub fn release(&mut self, v: Vcpu) {
        self.holds.push((v, None));
    }

    /// Changes the end of the present slice on busy `p` to `end_ns`, which is in the future.
    #[inline]
    pub fn end_slice(&mut self, p: Pcpu, end_ns: u64) {
        self.slices.push((p, end_ns));
    }

    /// Sets timer `timer` of this instance (below [`Policy::TIMERS`]); `u64::MAX` stops it.
    #[inline]
    pub fn set_timer(&mut self, timer: u32, at_ns: u64) {
        self.timers.push((timer, at_ns));
    }
}

/// What a policy may read.
#[derive(Clone, Copy)]
pub struct View<'a> {
    pub(super) now_ns: u64,
    pub(super) host: &'a Host,
    pub(super) hot: &'a [super::hot::Hot],
    pub(super) running: &'a [super::hot::Running],
}

impl View<'_> {
    /// The present time, ns.
    #[inline]
    pub fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// The simulated host.
    pub fn host(&self) -> &Host {
        self.host
    }

    /// The vCPU on `p`. While `p` asks for a decision, the vCPU that ran until now.
    #[inline]
    pub fn running(&self, p: Pcpu) -> Option<Vcpu> {
        self.running[p.i()].vcpu()
    }

    /// The state of `v`.
    #[inline]
    pub fn state(&self, v: Vcpu) -> State {
        self.hot[v.i()].state()
    }

    /// The time at which `v` entered its state, ns.
    #[inline]
    pub fn since_ns(&self, v: Vcpu) -> u64 {
        self.hot[v.i()].since_ns()
    }
}

/// A scheduler. One instance per CPU pool.
pub trait Policy: Sized {
    /// Its entry in the table.
    const ABOUT: About;
    /// How many timers it needs.
    const TIMERS: u32;

    /// The scheduler of `pool`, without vCPUs.
    ///
    /// # Errors
    /// `BadInput` if it cannot schedule this host or value.
    fn new(host: &Host, pool: Pool, values: &Values) -> Result<Self, Fault>;

    /// The simulation starts.
    fn start(&mut self, view: &View<'_>, orders: &mut Orders);

    /// `v` exists from now on; it is blocked.
    fn arrive(&mut self, view: &View<'_>, v: Vcpu);

    /// `v` was blocked and wants to run; it is ready, or held if the policy holds it.
    fn wake(&mut self, view: &View<'_>, v: Vcpu, orders: &mut Orders);

    /// Decides which vCPU runs on `p` now.
    fn pick(&mut self, view: &View<'_>, p: Pcpu, why: Why, orders: &mut Orders) -> Choice;

    /// Hint: the next event is probably about `v`, so the policy can load its data into the cache.
    #[inline]
    fn touch(&self, _v: Vcpu) {}

    /// A timer fires.
    fn timer(&mut self, view: &View<'_>, timer: u32, orders: &mut Orders);

    /// The owner changed a VM's weight or cap (`None`: the default, no cap).
    fn changed(
        &mut self,
        view: &View<'_>,
        vm: Vm,
        weight: Option<u32>,
        cap_pct: Option<u32>,
        orders: &mut Orders,
    );
}
