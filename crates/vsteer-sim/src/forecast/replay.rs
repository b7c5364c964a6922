//! Simulates a recorded host, to forecast its load under other settings.
//!
//! Every thread of every VM becomes a simulated one with its recorded demand ([`super::demand`]). The
//! configuration is the recorded one (calibration: the simulation should reproduce the measurement) or a
//! changed one (prediction). vCPUs, emulator and I/O threads are treated alike, because they wait for each
//! other's pCPUs.
//!
//! [`super::scheduler`] selects the scheduler.
//!
//! Left out:
//! - `GAP(replay-anew)`: kernels from 6.13 to 6.19 place a task again when its weight changes
//!   (`places_anew`). On several pCPUs the simulation of this gives far worse waits than measured. So replays
//!   do not use it, and waits of more than 100 ms on these kernels are missing.
//! - `GAP(replay-host)`: processes that belong to no VM. If they used much of the pCPUs, forecasts are too
//!   good. (Simulating them as one more VM was tried: no better if they use little, worse if they use much.)
//! - `GAP(replay-hz)`: recordings made before vsteer recorded the kernel's tick and base slice are simulated
//!   with the defaults.
//! - `GAP(replay-slices)`: groups above VMs have the default weight and contain nothing else.

use super::demand::Demands;
use super::scheduler;
use crate::account::Account;
use crate::engine::Stop;
use crate::guest::Demand;
use crate::policy::Values;
use crate::scenario::Case;
use crate::sched::{Entry, Simulation};
use crate::setup::{GroupSetup, Setup, Vcpu, VcpuSetup, VmSetup};
use crate::state::State;
use serde::Serialize;
use vsteer_core::nouns::{Histogram, HostConfig, Quota, Role, Tid, VmConfig, VmId};
use vsteer_core::{CpuSet, Fault, FaultKind};

/// The kernel starts the periods of each group's quota at a random offset. If the recording does not contain
/// the offsets, results for a host with quotas are means over this many offsets.
const PHASES: u64 = 8;
/// Events between two checks whether to continue.
const EVENTS_AT_A_TIME: u64 = 200_000;

/// A simulated thread and its VM.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Thread {
    /// Id of the VM.
    pub vm: VmId,
    /// Its role in the VM.
    pub role: Role,
    /// Its id in the recording.
    pub tid: Tid,
}

/// A recorded host, ready to be simulated.
#[derive(Clone)]
pub struct Replay {
    /// The host to simulate.
    pub setup: Setup,
    /// Its scheduler.
    pub policy: &'static Entry,
    /// The parameters of the scheduler.
    pub values: Values,
    /// The simulated vCPUs in order.
    pub threads: Vec<Thread>,
    /// A simulated thread that wakes and finds an idle pCPU runs at once; on the host this takes so long, ns.
    pub hand_over_ns: u64,
}

/// What one thread got.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Got {
    /// The thread.
    pub thread: Thread,
    /// Share of the time on a pCPU.
    pub run: f64,
    /// Share of the time ready, without a pCPU.
    pub ready: f64,
    /// Share of the time throttled by a quota.
    pub limited: f64,
    /// Ready while a sibling ran (part of ready).
    pub lag: f64,
    /// How often it got a pCPU, per second.
    pub switches_per_s: f64,
    /// From wake-up to running, of all runs together.
    #[serde(skip)]
    pub wake: Histogram,
    /// Sum of these times, ns.
    #[serde(skip)]
    pub wake_wait_ns: u64,
    /// How many runs the shares are means of.
    #[serde(skip)]
    pub runs: u64,
}

/// Groups that have been in line since before a change of the base slice keep asking for the old slice.
///
/// # Errors
/// `BadInput` for a slice that cannot be simulated.
pub fn keep_slices(before: &Replay, after: &mut Replay) -> Result<(), Fault> {
    const SLICE: &str = "base_slice_us";
    // If tasks of all groups compete in one line, groups ask for no slice. And a value that would still be
    // scaled cannot come from a recording.
    if after.policy.about.name != "eevdf"
        || after.values.get("flat") == 1
        || after.values.get("tunable_scaling") == 1
    {
        return Ok(());
    }
    let was_us = before.values.get(SLICE);
    if was_us != after.values.get(SLICE) {
        after.values.set("kept_slice_us", was_us)?;
    }
    Ok(())
}

/// The simulation of `config` with the demands of its threads. A thread without a demand sleeps.
///
/// # Errors
/// `Unsupported` if the kernel's scheduler is unknown; `BadInput` if the configuration cannot be simulated.
pub fn replay(config: &HostConfig, wanted: &Demands, seed: u64) -> Result<Replay, Fault> {
    let (policy, values) = scheduler::of(config)?;
    let pools = pools(config);
    let threads = config
        .vms
        .iter()
        .flat_map(|vm| vm.threads.iter().map(|t| Thread { vm: vm.id.clone(), role: t.role, tid: t.tid }));
    let mut above = Above { groups: Vec::new(), config };
    // A VM without a known thread cannot wait.
    let vms = config.vms.iter().filter(|vm| !vm.threads.is_empty());
    let vms: Vec<VmSetup> = vms
        .map(|vm| {
            let relative = vm.weight.map(|w| w.relative() * f64::from(policy.about.default_weight));
            let (least, most) = policy.about.weights;
            let cgroup = vm.cgroup.as_deref().filter(|_| policy.about.classes);
            let limit = vm.limits.whole_vm;
            let cap = limit.filter(|q| policy.about.caps && q.period_us > 0);
            VmSetup {
                cap_pct: cap.map(|q| percent(q, vm.vcpu_count())),
                quota: limit.filter(|_| !policy.about.caps),
                pool: vm
                    .pool
                    .as_ref()
                    .and_then(|own| pools.iter().position(|cpus| *cpus == own.cpus))
                    .unwrap_or(0),
                weight: relative.map(|w| libm::round(w).clamp(least.into(), most.into()) as u32),
                group: cgroup.and_then(|own| above.of(own)),
                ..vm_setup(vm, config, wanted)
            }
        })
        .collect();
    let setup = Setup { groups: above.groups, pools, ..Setup::new(config.topology.clone(), vms, seed) };
    Ok(Replay { setup, policy, values, threads: threads.collect(), hand_over_ns: wanted.hand_over_ns })
}

/// A quota as a cap, in hundredths of a pCPU. A higher cap than that of all its vCPUs limits nothing.
fn percent(quota: Quota, vcpus: usize) -> u32 {
    let most = 100 * vcpus.max(1) as u64;
    (quota.quota_us.saturating_mul(100) / quota.period_us).clamp(1, most) as u32
}

/// The pCPUs of each of Xen's pools; none where there is one for all, or a VM's pool is unknown.
fn pools(config: &HostConfig) -> Vec<CpuSet> {
    let mut pools: Vec<CpuSet> = Vec::new();
    for vm in &config.vms {
        match &vm.pool {
            Some(pool) if !pools.contains(&pool.cpus) => pools.push(pool.cpus.clone()),
            Some(_) => {}
            None => return Vec::new(),
        }
    }
    pools
}

/// A VM's threads with their demands, the groups below it, and its quotas.
fn vm_setup(vm: &VmConfig, config: &HostConfig, wanted: &Demands) -> VmSetup {
    let clocks = config.scheduler.as_ref().map(|s| &s.quota_clocks);
    let begins = |ns: u64, quota: Option<Quota>| {
        let quota = quota.filter(|q| ns > 0 && q.period_us > 0)?;
        Some(wanted.round.second(ns, 1000 * quota.period_us))
    };
    // libvirt's groups below the VM's group. Each divides its weight itself.
    let mut below: Vec<&str> = Vec::new();
    let mut begins_ns = None;
    let vcpus = vm.threads.iter().map(|t| {
        let own = t.cgroup.as_deref().filter(|own| vm.cgroup.as_deref().is_some_and(|vm| vm != *own));
        let subgroup = own.map(|own| {
            below.iter().position(|b| *b == own).unwrap_or_else(|| {
                below.push(own);
                below.len() - 1
            }) as u32
        });
        let clock = clocks.and_then(|all| all.get(&t.tid));
        let of_vm = clock.map(|c| if subgroup.is_some() { c.above_ns } else { c.own_ns });
        begins_ns = begins_ns.or(of_vm.and_then(|ns| begins(ns, vm.limits.whole_vm)));
        let quota = match t.role {
            Role::Vcpu(_) => vm.limits.per_vcpu,
            Role::Emulator => vm.limits.emulator,
            _ => None,
        };
        // A mask may name pCPUs that are offline, or of another pool.
        let within = vm.pool.as_ref().map_or_else(|| config.topology.usable(), |pool| pool.cpus.clone());
        let affinity = t.affinity.intersection(&within);
        VcpuSetup {
            affinity: (!affinity.is_empty()).then_some(affinity),
            soft_affinity: t.prefers.clone(),
            class: t.class,
            quota,
            quota_begins_ns: subgroup.and(clock).and_then(|c| begins(c.own_ns, quota)),
            subgroup,
            helper: t.role.vcpu().is_none(),
            ..VcpuSetup::new(wanted.by_thread.get(&t.tid).map_or(Demand::Idle, |w| w.demand.clone()))
        }
    });
    let vcpus = vcpus.collect();
    VmSetup { quota_begins_ns: begins_ns, ..VmSetup::new(vm.name.clone(), vcpus) }
}

/// The groups above VMs (`machine.slice`), with the quotas that their VMs share. With one line of tasks (7.3), each divides its
/// weight among the awake tasks below it, so a task's weight depends on what others do.
struct Above<'a> {
    groups: Vec<GroupSetup>,
    config: &'a HostConfig,
}

impl Above<'_> {
    /// The group that contains this one; `None`: the root.
    fn of(&mut self, cgroup: &str) -> Option<usize> {
        let (parent, _) =
            cgroup.trim_end_matches('/').rsplit_once('/').filter(|(parent, _)| !parent.is_empty())?;
        if let Some(known) = self.groups.iter().position(|g| g.name == parent) {
            return Some(known);
        }
        let above = self.of(parent);
        let quotas = self.config.vms.iter().flat_map(|vm| &vm.quotas);
        let quota = quotas.filter(|q| q.shared && q.cgroup == parent).map(|q| q.quota).next();
        self.groups.push(GroupSetup { name: parent.to_owned(), parent: above, weight: None, quota });
        Some(self.groups.len() - 1)
    }
}

impl Replay {
    /// Simulates `warm_up_ns` and then `measured_ns`, and returns what each thread got in the latter. Calls
    /// `go_on` from time to time.
    ///
    /// # Errors
    /// As the policy; `Interrupted` if `go_on` returns false.
    pub fn run(
        &self,
        warm_up_ns: u64,
        measured_ns: u64,
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<Vec<Got>, Fault> {
        let mut parts = self.run_in_parts(warm_up_ns, measured_ns, 1, go_on)?;
        Ok(parts.pop().expect("one part"))
    }

    /// The same for each of `parts` equal parts of the measured time.
    ///
    /// # Errors
    /// As [`Replay::run`].
    pub fn run_in_parts(
        &self,
        warm_up_ns: u64,
        measured_ns: u64,
        parts: usize,
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<Vec<Vec<Got>>, Fault> {
        if !self.draws_phases() {
            return self.run_once(&self.values, warm_up_ns, measured_ns, parts, go_on);
        }
        let mut sum: Vec<Vec<Got>> = Vec::new();
        for seed in 1..=PHASES {
            let mut values = self.values.clone();
            values.set("quota_phases", seed)?;
            let one = self.run_once(&values, warm_up_ns, measured_ns, parts, go_on)?;
            if sum.is_empty() {
                sum = one;
            } else {
                sum.iter_mut().flatten().zip(one.iter().flatten()).for_each(|(s, o)| s.add(o));
            }
        }
        sum.iter_mut().flatten().for_each(Got::average);
        Ok(sum)
    }

    /// The same with one draw of the unknown starts of quotas' periods, for who runs many seeds.
    ///
    /// # Errors
    /// As [`Replay::run`].
    pub fn run_with_phases(
        &self,
        phases: u64,
        warm_up_ns: u64,
        measured_ns: u64,
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<Vec<Got>, Fault> {
        let mut values = self.values.clone();
        if self.draws_phases() {
            values.set("quota_phases", phases)?;
        }
        let mut parts = self.run_once(&values, warm_up_ns, measured_ns, 1, go_on)?;
        Ok(parts.pop().expect("one part"))
    }

    /// This replay as a run to record: one round to warm up and one measured. Uses the first offsets of quota
    /// periods.
    ///
    /// # Errors
    /// None, if the replay ran before.
    pub fn case(&self, window_ns: u64) -> Result<Case, Fault> {
        let mut values = self.values.clone();
        if self.draws_phases() {
            values.set("quota_phases", 1)?;
        }
        let (setup, policy) = (self.setup.clone(), self.policy);
        Ok(Case { setup, policy, values, begin_ns: window_ns, end_ns: 2 * window_ns })
    }

    /// Are there quotas whose period starts are not in the recording, and can the policy draw them at random?
    fn draws_phases(&self) -> bool {
        let settable = self.policy.about.parameters.iter().any(|p| p.name == "quota_phases");
        let unknown = |vm: &VmSetup| {
            let own = vm.vcpus.iter().any(|v| v.quota.is_some() && v.quota_begins_ns.is_none());
            own || vm.quota.is_some() && vm.quota_begins_ns.is_none()
        };
        let above = self.setup.groups.iter().any(|g| g.quota.is_some());
        settable && (above || self.setup.vms.iter().any(unknown))
    }

    fn run_once(
        &self,
        values: &Values,
        warm_up_ns: u64,
        measured_ns: u64,
        parts: usize,
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<Vec<Vec<Got>>, Fault> {
        let mut simulation = (self.policy.build)(&self.setup, values)?;
        let part_ns = (measured_ns / parts.max(1) as u64).max(1);
        advance(&mut *simulation, warm_up_ns, go_on)?;
        let mut first = self.accounts(&*simulation);
        let mut all = Vec::with_capacity(parts);
        for part in 1..=parts as u64 {
            advance(&mut *simulation, warm_up_ns + part * part_ns, go_on)?;
            let last = self.accounts(&*simulation);
            let got = self.threads.iter().zip(first.iter().zip(&last));
            let got = got.map(|(thread, (first, last))| Got::between(thread, first, last, part_ns));
            all.push(got.map(|g| g.later(self.hand_over_ns, part_ns)).collect());
            first = last;
        }
        Ok(all)
    }

    fn accounts(&self, simulation: &dyn Simulation) -> Vec<Account> {
        (0..self.threads.len() as u32).map(|v| simulation.account(Vcpu(v))).collect()
    }
}

impl Got {
    fn add(&mut self, other: &Got) {
        self.run += other.run;
        self.ready += other.ready;
        self.limited += other.limited;
        self.lag += other.lag;
        self.switches_per_s += other.switches_per_s;
        self.wake = self.wake.merged(&other.wake);
        self.wake_wait_ns += other.wake_wait_ns;
        self.runs += other.runs;
    }

    /// The mean number of wake-ups in a run.
    pub fn wake_ups(&self) -> u64 {
        self.wake.total() / self.runs.max(1)
    }

    /// Converts sums of shares to means. Latencies stay sums over all runs.
    fn average(&mut self) {
        let by = self.runs as f64;
        let Got { run, ready, limited, lag, switches_per_s, .. } = self;
        [run, ready, limited, lag, switches_per_s].into_iter().for_each(|x| *x /= by);
    }

    /// Delays every wake-up's arrival at the pCPU by this time.
    fn later(mut self, by_ns: u64, window_ns: u64) -> Got {
        let all_ns = by_ns * self.wake.total();
        self.wake = self.wake.later(by_ns);
        self.wake_wait_ns += all_ns;
        self.ready += all_ns as f64 / window_ns as f64;
        self
    }

    fn between(thread: &Thread, first: &Account, last: &Account, ns: u64) -> Got {
        let share = |s: State| (last.ns[s as usize] - first.ns[s as usize]) as f64 / ns as f64;
        let lag_ns = last.lag_ns.zip(first.lag_ns).map_or(0, |(last, first)| last - first);
        Got {
            thread: thread.clone(),
            run: share(State::Running),
            ready: share(State::Ready),
            limited: share(State::Limited),
            lag: lag_ns as f64 / ns as f64,
            switches_per_s: (last.switches - first.switches) as f64 * 1e9 / ns as f64,
            wake: last.wake_latency.since(&first.wake_latency),
            wake_wait_ns: last.wake_wait_ns - first.wake_wait_ns,
            runs: 1,
        }
    }
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
            Stop::Steps => return Err(Fault::new(FaultKind::Interrupted, "the simulation was interrupted")),
            Stop::Runaway => {
                return Err(Fault::new(FaultKind::BadInput, "simulated time stands still")
                    .because("the scheduler or a demand loops"));
            }
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use vsteer_core::model::{HostModel, Shares, ThreadModel, VmModel};
    use vsteer_core::nouns::PressureShares;
    use vsteer_core::topology::machine;

    /// A host with one VM thread per vCPU: name, weight and number of vCPUs of each VM, all hogs; and their
    /// assumed run shares.
    pub fn hogs(pcpus: u32, vms: &[(&str, u32, u32)], run: &[f64]) -> (Replay, HostModel) {
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
                ran_on: Vec::new(),
            });
            models.push(VmModel {
                id,
                name: (*name).into(),
                threads: seen.collect(),
                group: Shares::default(),
                worlds: None,
                vcpus: Shares::default(),
                throttled_per_s: None,
                throttled_above_per_s: None,
                limited_estimate: None,
                io_per_s: None,
                pressure: PressureShares::default(),
                timers_per_s: None,
                timers_late: None,
                timers_refused: None,
                wake_latency: None,
                ready_spell: None,
                memory_by_node: None,
                memory_local: None,
            });
            let vcpus = (0..*vcpus).map(|_| VcpuSetup::new(Demand::Hog)).collect();
            setups.push(VmSetup { weight: Some(*weight), ..VmSetup::new(*name, vcpus) });
        }
        let model = HostModel {
            from_unix_ns: 0,
            window_ns: 1,
            vms: models,
            pcpus: Vec::new(),
            pressure: PressureShares::default(),
            blame: None,
            collector: String::new(),
            missing: std::collections::BTreeMap::new(),
        };
        let policy = crate::sched::find("eevdf").unwrap();
        let setup = Setup::new(machine(1, 1, pcpus, 1).unwrap(), setups, 1);
        let values = Values::defaults(policy.about.parameters);
        (Replay { setup, policy, values, threads, hand_over_ns: 0 }, model)
    }

    /// A timer alone on its pCPU waits only for the host's own switch: 8 us, 100 times a second.
    #[test]
    fn what_a_switch_takes_is_waited_for() {
        let (mut host, _) = hogs(1, &[("a", 100, 1)], &[1.0]);
        host.hand_over_ns = 8_000;
        host.setup.vms[0].vcpus[0].demand = Demand::Periodic {
            period_ns: 10_000_000,
            offset_ns: Some(0),
            work: crate::guest::Times::Fixed(1_000_000),
        };
        let got = host.run(1_000_000_000, 1_000_000_000, &mut || true).unwrap().remove(0);
        assert_eq!((got.wake_ups(), got.wake_wait_ns), (100, 800_000));
        assert!((got.ready - 0.0008).abs() < 1e-9 && got.wake.quantile_ns(0.5).unwrap() > 7_000.0, "{got:?}");
    }

    #[test]
    fn groups_above_vms_are_made_once_parents_first_with_the_quotas_that_vms_share() {
        let quota = Quota { quota_us: 150_000, period_us: 100_000 };
        let group = |name: &str, parent, quota| GroupSetup { name: name.into(), parent, weight: None, quota };
        let vm =
            |name: &str, group| VmSetup { group, ..VmSetup::new(name, vec![VcpuSetup::new(Demand::Hog)]) };
        let vms = vec![vm("a", Some(1)), vm("free", None), vm("b", Some(0)), vm("c", Some(1))];
        let mut setup = Setup::new(machine(1, 1, 2, 1).unwrap(), vms, 1);
        setup.groups = vec![group("m.slice", None, Some(quota)), group("deep", Some(0), None)];
        let config = crate::samples::config(&setup, "eevdf", 100);
        let round = crate::forecast::demand::Round { begins_ns: 0, length_ns: 1 };
        let none = Demands { by_thread: Default::default(), round, hand_over_ns: 0 };
        let told = replay(&config, &none, 1).unwrap();
        assert_eq!(
            told.setup.groups,
            [group("/m.slice", None, Some(quota)), group("/m.slice/deep", Some(0), None)]
        );
        assert_eq!(
            told.setup.vms.iter().map(|vm| vm.group).collect::<Vec<_>>(),
            [Some(1), None, Some(0), Some(1)]
        );
        assert!(told.draws_phases(), "when its periods begin is not recorded");
    }
}
