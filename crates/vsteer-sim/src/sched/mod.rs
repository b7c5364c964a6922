//! The schedulers that can be simulated. Each is one file and one entry in [`POLICIES`], which help, docs,
//! scenarios and the conformance suite use.

use super::account::Account;
use super::blame::Blame;
use super::check::Invariants;
use super::engine::{Engine, Stop, Watch};
use super::policy::{About, Policy, Values};
use super::setup::{Host, Pcpu, Setup, Vcpu, Vm};
use super::trace::Trace;
use vsteer_core::{Fault, FaultKind};

pub mod bvt;
pub mod cfs;
pub mod credit;
pub mod credit2;
pub mod eevdf;
pub mod esxi;
pub mod fair;
pub mod linux;
pub mod priority;
pub mod rtds;
pub mod sedf;

/// Every policy.
pub const POLICIES: &[Entry] = &[
    entry::<credit::Credit>(),
    entry::<credit2::Credit2>(),
    entry::<eevdf::Eevdf>(),
    entry::<cfs::Cfs>(),
    entry::<rtds::Rtds>(),
    entry::<sedf::Sedf>(),
    entry::<bvt::Bvt>(),
    entry::<priority::Priority>(),
    entry::<esxi::Esxi>(),
];

/// A policy, and how to simulate a host with it.
#[derive(Clone, Copy)]
pub struct Entry {
    /// Name, parameters and properties of the policy.
    pub about: About,
    /// Makes a simulation of a host with this policy.
    pub build: Build,
    /// Like `build`, but checks every invariant at every event (much slower) and panics if one is violated.
    pub checked: Build,
    /// Like `build`, but records switches, and which vCPU caused which wait.
    pub watched: BuildWatched,
}

/// Makes a simulation that records switches and blame.
pub type BuildWatched = fn(&Setup, &Values, (Trace, Blame)) -> Result<Box<dyn Simulation>, Fault>;

/// Makes a simulation.
pub type Build = fn(&Setup, &Values) -> Result<Box<dyn Simulation>, Fault>;

/// A simulation whose policy is known only at run time. [`Simulation::run`] is compiled for each policy, so this
/// costs no speed.
pub trait Simulation {
    /// Runs until `end_ns`, or for `steps` events.
    fn run(&mut self, end_ns: u64, steps: u64) -> Stop;
    /// Sets a VM's weight and cap from now on.
    ///
    /// # Errors
    /// `BadInput` for a value that the policy does not accept.
    fn change(&mut self, vm: Vm, weight: Option<u32>, cap_pct: Option<u32>) -> Result<(), Fault>;
    /// The present time, ns.
    fn now_ns(&self) -> u64;
    /// The simulated host.
    fn host(&self) -> &Host;
    /// A vCPU's account up to now.
    fn account(&self, v: Vcpu) -> Account;
    /// How long each job of a vCPU took: [`Engine::took_ns`].
    fn took_ns(&self, v: Vcpu) -> &[u64];
    /// How long a pCPU was not idle, ns.
    fn busy_ns(&self, p: Pcpu) -> u64;
    /// Wake-ups, dispatches, preemptions and blocks so far.
    fn events(&self) -> u64;
}

impl<P: Policy, W: Watch> Simulation for Engine<P, W> {
    fn run(&mut self, end_ns: u64, steps: u64) -> Stop {
        Engine::run(self, end_ns, steps)
    }
    fn change(&mut self, vm: Vm, weight: Option<u32>, cap_pct: Option<u32>) -> Result<(), Fault> {
        Engine::change(self, vm, weight, cap_pct)
    }
    fn now_ns(&self) -> u64 {
        Engine::now_ns(self)
    }
    fn host(&self) -> &Host {
        Engine::host(self)
    }
    fn account(&self, v: Vcpu) -> Account {
        Engine::account(self, v)
    }
    fn took_ns(&self, v: Vcpu) -> &[u64] {
        Engine::took_ns(self, v)
    }
    fn busy_ns(&self, p: Pcpu) -> u64 {
        Engine::busy_ns(self, p)
    }
    fn events(&self) -> u64 {
        Engine::events(self)
    }
}

fn build<P: Policy + 'static>(setup: &Setup, values: &Values) -> Result<Box<dyn Simulation>, Fault> {
    Ok(Box::new(Engine::<P>::new(setup, values)?))
}

fn checked<P: Policy + 'static>(setup: &Setup, values: &Values) -> Result<Box<dyn Simulation>, Fault> {
    let watch = Invariants::new(&Host::new(setup)?, &P::ABOUT);
    Ok(Box::new(Engine::<P, Invariants>::watched(setup, values, watch)?))
}

fn watched<P: Policy + 'static>(
    setup: &Setup,
    values: &Values,
    watch: (Trace, Blame),
) -> Result<Box<dyn Simulation>, Fault> {
    Ok(Box::new(Engine::<P, (Trace, Blame)>::watched(setup, values, watch)?))
}

const fn entry<P: Policy + 'static>() -> Entry {
    Entry { about: P::ABOUT, build: build::<P>, checked: checked::<P>, watched: watched::<P> }
}

/// Finds the policy with this name.
///
/// # Errors
/// `BadInput`, with the names of the schedulers.
pub fn find(name: &str) -> Result<&'static Entry, Fault> {
    POLICIES.iter().find(|e| e.about.name == name).ok_or_else(|| {
        let known: Vec<&str> = POLICIES.iter().map(|e| e.about.name).collect();
        Fault::new(FaultKind::BadInput, format!("`{name}` is not the name of a scheduler"))
            .help(format!("known schedulers: {}", known.join(", ")))
    })
}
