//! What if this host, with this load, were set up otherwise? A recorded host as a simulation.
//!
//! Every thread of every VM becomes a simulated one that wants what it wanted ([`super::demand`]), under the configuration
//! that was recorded (the calibration: the simulation should give back what was measured) or a changed one (the
//! prediction). vCPUs, emulator and I/O threads alike: they wait for each other's pCPUs.
//!
//! The scheduler is the kernel's, by its version: EEVDF since 6.6, CFS before; real-time classes above either.
//!
//! Left out: `GAP(replay-host)`: processes that belong to no VM; where they took much of the pCPUs, forecasts are too good.
//! `GAP(replay-cfs)`: kernels before 6.6 are simulated as 6.6. `GAP(replay-hz)`: a recording does not tell the kernel's
//! tick nor a base slice that was changed; the defaults are taken. `GAP(replay-slices)`: groups above VMs.

use super::demand::Wanted;
use crate::model::HostModel;
use crate::nouns::{Histogram, HostConfig, Role, Tid, VmId};
use crate::sim::engine::{State, Stop};
use crate::sim::guest::Demand;
use crate::sim::policy::Values;
use crate::sim::sched::{self, Entry, Simulation};
use crate::sim::setup::{Setup, Vcpu, VcpuSetup, VmSetup};
use crate::{Fault, FaultKind};
use serde::Serialize;
use std::collections::BTreeMap;

/// The first kernel whose fair class is EEVDF.
const EEVDF_SINCE: (u32, u32) = (6, 6);
/// The first kernel with a base slice of 0.7 ms (kernel/sched/fair.c, 6.15).
const SHORTER_SLICE_SINCE: (u32, u32) = (6, 15);
/// Kernels that decide as 6.18 does where that is not what 6.12 does.
const AS_6_18: std::ops::Range<(u32, u32)> = (6, 16)..(7, 0);
/// The first kernel known to have one line of tasks per pCPU, whatever groups they are in, with weights that count once per
/// concurrently runnable task, and slices that end by a timer (kernel/sched/fair.c, 7.3.4).
const FLAT_SINCE: (u32, u32) = (7, 3);
/// What a simulated host says in place of its kernel's version, before the scheduler's name.
pub const SIMULATED: &str = "vsteer simulator, ";
/// Events between two looks at whether to go on.
const EVENTS_AT_A_TIME: u64 = 200_000;

/// A simulated thread and whose it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Thread {
    /// Its VM.
    pub vm: VmId,
    /// What it does there.
    pub role: Role,
    /// Its id in the recording.
    pub tid: Tid,
}

/// A recorded host, ready to be simulated.
#[derive(Clone)]
pub struct Replay {
    /// The host.
    pub setup: Setup,
    /// Its scheduler.
    pub policy: &'static Entry,
    /// With these parameters.
    pub values: Values,
    /// The simulated vCPUs in order.
    pub threads: Vec<Thread>,
    /// Does the kernel put the tasks of all groups into one line? [`Replay::flatten`] then makes it so.
    pub flat: bool,
}

/// What one thread got.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Got {
    /// Which.
    pub thread: Thread,
    /// On a pCPU, part of the time.
    pub run: f64,
    /// Could run, had no pCPU.
    pub ready: f64,
    /// Held by a quota.
    pub limited: f64,
    /// Wake-up to running.
    #[serde(skip)]
    pub wake: Histogram,
}

/// The kernel's version as numbers: `6.18.44-1-amd64` is (6, 18).
fn version(kernel: &str) -> Option<(u32, u32)> {
    let mut numbers = kernel.split(|c: char| !c.is_ascii_digit()).map(str::parse::<u32>);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

/// The simulation of `config` under the demands of its threads; a thread without one sleeps.
///
/// # Errors
/// `Unsupported` for a kernel whose scheduler is not known; `BadInput` where the configuration cannot be simulated.
pub fn replay(config: &HostConfig, wanted: &BTreeMap<Tid, Wanted>, seed: u64) -> Result<Replay, Fault> {
    // A simulation's recording names its scheduler.
    let simulated = config.kernel.strip_prefix(SIMULATED);
    let linux = version(&config.kernel);
    let policy = match (simulated, linux) {
        (Some(name), _) => sched::find(name)?,
        (None, Some(v)) => sched::find(if v >= EEVDF_SINCE { "eevdf" } else { "cfs" })?,
        (None, None) => {
            return Err(Fault::new(
                FaultKind::Unsupported,
                format!("simulating the kernel {:?}", config.kernel),
            )
            .because("its version cannot be read, so its scheduler is not known"));
        }
    };
    let mut values = Values::defaults(policy.about.parameters);
    if simulated.is_none() && linux >= Some(SHORTER_SLICE_SINCE) {
        values.set("base_slice_us", 700)?;
    }
    if simulated.is_none() && linux.is_some_and(|v| AS_6_18.contains(&v)) {
        values.set("as_6_18", 1)?;
    }
    let flat = simulated.is_none() && linux >= Some(FLAT_SINCE);
    if flat {
        values.set("hrtick", 1)?;
    }
    let mut threads = Vec::new();
    let vms = config.vms.iter().map(|vm| {
        // libvirt's groups below the VM's: each divides its weight by itself.
        let mut below: Vec<&str> = Vec::new();
        let vcpus = vm.threads.iter().map(|t| {
            let own = t.cgroup.as_deref().filter(|own| vm.cgroup.as_deref().is_some_and(|vm| vm != *own));
            let subgroup = own.map(|own| {
                below.iter().position(|b| *b == own).unwrap_or_else(|| {
                    below.push(own);
                    below.len() - 1
                }) as u32
            });
            threads.push(Thread { vm: vm.id.clone(), role: t.role, tid: t.tid });
            let quota = match t.role {
                Role::Vcpu(_) => vm.limits.per_vcpu,
                Role::Emulator => vm.limits.emulator,
                _ => None,
            };
            let demand = wanted.get(&t.tid).map_or(Demand::Idle, |w| w.demand.clone());
            // A mask may name pCPUs that are offline.
            let affinity = t.affinity.intersection(&config.topology.usable());
            VcpuSetup {
                affinity: (!affinity.is_empty()).then_some(affinity),
                class: t.class,
                quota,
                subgroup,
                helper: t.role.vcpu().is_none(),
                ..VcpuSetup::new(demand)
            }
        });
        let relative = vm.weight.map(|w| w.relative() * f64::from(policy.about.default_weight));
        let (least, most) = policy.about.weights;
        VmSetup {
            weight: relative.map(|w| libm::round(w).clamp(least.into(), most.into()) as u32),
            quota: vm.limits.whole_vm,
            ..VmSetup::new(vm.name.clone(), vcpus.collect())
        }
    });
    // A VM without a thread that is known cannot wait either.
    let vms: Vec<VmSetup> = vms.filter(|vm| !vm.vcpus.is_empty()).collect();
    Ok(Replay { setup: Setup::new(config.topology.clone(), vms, seed), policy, values, threads, flat })
}

impl Replay {
    /// Where the kernel keeps one line of tasks: each thread becomes a VM of its own, with the part of its VM's weight that
    /// the kernel gives it (`__calc_prop_weight`, `calc_concur_shares`): the weight counts once per task that is runnable on
    /// average, for as many as there are pCPUs, and those of a VM that are runnable together divide it. How many that are is
    /// taken from what was measured. A VM with a quota and several vCPUs stays a group: its quota needs one.
    pub fn flatten(&mut self, measured: &HostModel) {
        if !self.flat {
            return;
        }
        let pcpus = self.setup.topology.usable().len() as f64;
        let mut threads = self.threads.iter();
        let mut vms = Vec::new();
        for vm in std::mem::take(&mut self.setup.vms) {
            let own: Vec<&Thread> = threads.by_ref().take(vm.vcpus.len()).collect();
            let awake: Vec<f64> = own.iter().map(|t| awake(t, measured)).collect();
            let all: f64 = awake.iter().sum();
            let weight = f64::from(vm.weight.unwrap_or(self.policy.about.default_weight));
            // A hair more, for a thread that never sleeps is awake 0.9999 of the time.
            let times = libm::floor(all + 0.05).clamp(1.0, pcpus);
            if vm.quota.is_some() && awake.iter().filter(|a| **a > 0.01).count() > 1 {
                vms.push(VmSetup { weight: Some(finer(weight * times)), ..vm });
                continue;
            }
            for ((vcpu, thread), awake) in vm.vcpus.iter().zip(own).zip(awake) {
                vms.push(VmSetup {
                    name: format!("{} {}", vm.name, thread.role),
                    vcpus: vec![VcpuSetup { subgroup: None, ..vcpu.clone() }],
                    weight: Some(finer(weight * times / (1.0 + all - awake))),
                    ..vm.clone()
                });
            }
        }
        self.setup.vms = vms;
    }

    /// Simulates `warm_up_ns` and then `measured_ns`, and says what each thread got in the latter. `go_on` is asked now and
    /// then.
    ///
    /// # Errors
    /// As the policy; `Interrupted` where `go_on` says no.
    pub fn run(
        &self,
        warm_up_ns: u64,
        measured_ns: u64,
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<Vec<Got>, Fault> {
        let mut simulation = (self.policy.build)(&self.setup, &self.values)?;
        advance(&mut *simulation, warm_up_ns, go_on)?;
        let all = 0..self.threads.len() as u32;
        let first: Vec<_> = all.clone().map(|v| simulation.account(Vcpu(v))).collect();
        advance(&mut *simulation, warm_up_ns + measured_ns, go_on)?;
        let got = all.zip(first).zip(&self.threads).map(|((v, first), thread)| {
            let last = simulation.account(Vcpu(v));
            let share = |s: State| (last.ns[s as usize] - first.ns[s as usize]) as f64 / measured_ns as f64;
            Got {
                thread: thread.clone(),
                run: share(State::Running),
                ready: share(State::Ready),
                limited: share(State::Limited),
                wake: last.wake_latency.since(&first.wake_latency),
            }
        });
        Ok(got.collect())
    }
}

/// Weights are whole numbers, and only what they are to each other counts. `GAP(flatten-heavy)`: what would be over 2000 is
/// 2000 here.
fn finer(weight: f64) -> u32 {
    libm::round(5.0 * weight).clamp(1.0, 10_000.0) as u32
}

/// The part of the time that a thread ran or was ready.
fn awake(thread: &Thread, measured: &HostModel) -> f64 {
    let seen = measured.vm(&thread.vm).and_then(|vm| vm.threads.iter().find(|t| t.tid == thread.tid));
    seen.map_or(0.0, |t| t.shares.run.unwrap_or(0.0) + t.shares.ready.unwrap_or(0.0))
}

fn advance(
    simulation: &mut dyn Simulation,
    end_ns: u64,
    go_on: &mut dyn FnMut() -> bool,
) -> Result<(), Fault> {
    loop {
        match simulation.run(end_ns, EVENTS_AT_A_TIME) {
            Stop::Reached => return Ok(()),
            Stop::Steps if go_on() => {}
            Stop::Steps => return Err(Fault::new(FaultKind::Interrupted, "stopped while simulating")),
            Stop::Runaway => {
                return Err(Fault::new(FaultKind::BadInput, "the simulation stands still")
                    .because("the scheduler or a demand runs in a circle"));
            }
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::model::{Shares, ThreadModel, VmModel};
    use crate::sim::setup::machine;

    /// A host of one vCPU per pCPU that a VM is to have: name, weight, vCPUs, all hogs; and what they are said to have got.
    pub fn hogs(pcpus: u32, vms: &[(&str, u32, u32)], run: &[f64], flat: bool) -> (Replay, HostModel) {
        let mut threads = Vec::new();
        let (mut setups, mut models) = (Vec::new(), Vec::new());
        let mut shares =
            run.iter().map(|run| Shares { run: Some(*run), ready: Some(1.0 - run), ..Shares::default() });
        for (name, weight, vcpus) in vms {
            let id = VmId((*name).into());
            let first = threads.len() as u32;
            threads.extend((0..*vcpus).map(|i| Thread {
                vm: id.clone(),
                role: Role::Vcpu(i),
                tid: Tid(first + i),
            }));
            let seen = threads[first as usize..].iter().zip(shares.by_ref()).map(|(t, shares)| ThreadModel {
                role: t.role,
                tid: t.tid,
                seen: 1.0,
                shares,
                switches_per_s: None,
                preemptions_per_s: None,
                wakeups_per_s: None,
                migrations_per_s: None,
                wake_latency: None,
                ready_spell: None,
                last_cpu: None,
            });
            models.push(VmModel {
                id,
                name: (*name).into(),
                threads: seen.collect(),
                group: Shares::default(),
                vcpus: Shares::default(),
                throttled_per_s: None,
                wake_latency: None,
                ready_spell: None,
                memory_by_node: None,
            });
            let vcpus = (0..*vcpus).map(|_| VcpuSetup::new(Demand::Hog)).collect();
            setups.push(VmSetup { weight: Some(*weight), ..VmSetup::new(*name, vcpus) });
        }
        let model = HostModel {
            from_unix_ns: 0,
            window_ns: 1,
            vms: models,
            pcpus: Vec::new(),
            blame: None,
            collector: String::new(),
            missing: BTreeMap::new(),
        };
        let policy = sched::find("eevdf").unwrap();
        let setup = Setup::new(machine(1, 1, pcpus, 1).unwrap(), setups, 1);
        let values = Values::defaults(policy.about.parameters);
        (Replay { setup, policy, values, threads, flat }, model)
    }

    /// Linux 7.3: each task stands in line by itself. Two of one VM that are both awake count twice and share it; one that
    /// sleeps half of the time leaves the other half more.
    #[test]
    fn flattened_vms_are_threads_with_the_weights_their_tasks_have() {
        let (mut host, mut model) = hogs(2, &[("a", 100, 2), ("b", 100, 1)], &[0.7, 0.7, 0.6], true);
        let weights = |host: &Replay| host.setup.vms.iter().map(|vm| vm.weight.unwrap()).collect::<Vec<_>>();
        let mut half = host.clone();
        host.flatten(&model);
        assert_eq!(host.setup.vms.len(), 3);
        // In fifths: a's are 2 * 100 / 2 each.
        assert_eq!(weights(&host), [500, 500, 500]);
        model.vms[0].threads[1].shares = Shares { run: Some(0.5), ready: Some(0.0), ..Shares::default() };
        half.flatten(&model);
        // 1.5 are awake on average, which counts once; the first meets the other half of the time.
        assert_eq!(weights(&half), [333, 250, 500]);
        let (mut tree, model) = hogs(2, &[("a", 100, 2)], &[1.0, 1.0], false);
        tree.flatten(&model);
        assert_eq!(tree.setup.vms.len(), 1);
    }

    #[test]
    fn versions_are_read_as_distributions_write_them() {
        assert_eq!(version("6.18.44-fc-v595"), Some((6, 18)));
        assert_eq!(version("6.1.0-44-amd64"), Some((6, 1)));
        assert_eq!(version("vsteer simulator, eevdf"), None);
        assert_eq!(version(""), None);
    }
}
