//! How much of each pCPU would each thread get if time were infinitely divisible?
//!
//! Real-time threads are served first, then all others share what is left, in proportion to their weights, each up
//! to its demand and only on its allowed pCPUs: weighted max-min fairness by progressive filling (Bertsekas and
//! Gallager, "Data Networks", 6.5.2). Whether a set of rates fits is a maximum-flow question between affinity sets
//! and pCPUs. Waits of threads that mostly sleep are scaled from the measured ones by how busy others keep the
//! pCPUs they may use. A quota limits the sum of its cgroup's flows ([`Ceiling`]), except real-time threads, as in
//! Linux. Each set of rates must respect it. Time that a quota takes from a thread counts as limited.
//!
//! Left out: time slices, wake-up preemption, caches; quotas' periods, so that a VM that is held within a period
//! while it stays below its quota on average is not seen to be held by it; limits in MHz. Forecast intervals are
//! wide for that reason. `GAP(fluid-concur)`: a weight is what it says, also on kernels where a cgroup weighs it
//! once for each of its runnable threads (Linux 7.3).

use crate::CpuSet;
use crate::Interval;
use crate::forecast::{Forecast, VmForecast};
use crate::model::{HostModel, ThreadModel};
use crate::nouns::{CpuPool, CpuWeight, HostConfig, Role, SchedClass, Tid, VmId};
use crate::setting;
use crate::setting::{Change, Step};
use std::collections::BTreeMap;

/// Below this rates are equal: far under what a share is measured to.
const EPSILON: f64 = 1e-9;
/// What a set of rates may exceed the capacity by and still fit, while the common level is searched. A flow is
/// settled when a rise by far more than this does not fit within ten times of it.
const TOLERANCE: f64 = 1e-7;
/// A thread that ran or waited more than this share of the time is taken to want a whole pCPU, less what it sleeps.
const HUNGRY: f64 = 0.8;
/// Shortest wait that a forecast claims, ns: a wake-up through the scheduler costs some microseconds at best.
const WAIT_FLOOR_NS: f64 = 20_000.0;

/// A thread as the fluid model sees it.
#[derive(Debug, Clone)]
pub struct Flow {
    /// VM of the thread.
    pub vm: VmId,
    /// Host thread id.
    pub tid: Tid,
    /// Role of the thread.
    pub role: Role,
    /// What it would use of a pCPU if it never waited, 0..=1.
    pub demand: f64,
    /// Its weight against other threads.
    pub weight: f64,
    /// Where it may run.
    pub allowed: CpuSet,
    /// Served before all others.
    pub realtime: bool,
}

/// What some flows get together at most: a quota of the cgroup that they are in.
#[derive(Debug, Clone, PartialEq)]
pub struct Ceiling {
    /// Which flows, by their places.
    pub flows: Vec<usize>,
    /// How many pCPUs.
    pub cpus: f64,
}

impl Ceiling {
    fn holds(&self, rates: &[f64], tolerance: f64) -> bool {
        self.flows.iter().map(|&i| rates[i]).sum::<f64>() <= self.cpus + tolerance
    }
}

/// Capacity of each pCPU for the flows, 0..=1.
pub type Capacity = BTreeMap<u32, f64>;

/// Rates of the flows (same order) and what they use of each pCPU.
#[derive(Debug, Clone, Default)]
pub struct Allocation {
    /// Rate of each flow, in pCPUs.
    pub rates: Vec<f64>,
    /// Use of each pCPU by all flows.
    pub used: Capacity,
}

/// Shares `capacity` among `flows`, under `ceilings`.
pub fn allocate(flows: &[Flow], ceilings: &[Ceiling], capacity: &Capacity) -> Allocation {
    let mut left = capacity.clone();
    let mut rates = vec![0.0; flows.len()];
    for realtime in [true, false] {
        let class: Vec<usize> = (0..flows.len()).filter(|i| flows[*i].realtime == realtime).collect();
        let used = fill(flows, ceilings, &class, &left, &mut rates);
        for (cpu, u) in used {
            left.entry(cpu).and_modify(|c| *c = (*c - u).max(0.0));
        }
    }
    let used = capacity.iter().map(|(cpu, c)| (*cpu, c - left[cpu])).collect();
    Allocation { rates, used }
}

/// Progressive filling of one class; writes its rates and returns what it uses of each pCPU.
fn fill(
    flows: &[Flow],
    ceilings: &[Ceiling],
    class: &[usize],
    capacity: &Capacity,
    rates: &mut [f64],
) -> Capacity {
    let fits = |rates: &[f64], tolerance: f64| {
        ceilings.iter().all(|c| c.holds(rates, tolerance))
            && feasible(flows, class, rates, capacity, tolerance)
    };
    let mut open: Vec<usize> = class.iter().copied().filter(|i| flows[*i].weight > 0.0).collect();
    let at_level = |level: f64, open: &[usize], rates: &[f64]| -> Vec<f64> {
        let mut r = rates.to_vec();
        for &i in open {
            r[i] = flows[i].demand.min(level * flows[i].weight);
        }
        r
    };
    for _ in 0..=class.len() {
        if open.is_empty() {
            break;
        }
        // Enough to satisfy every open flow's demand.
        let top = open.iter().map(|&i| flows[i].demand / flows[i].weight).fold(0.0, f64::max);
        let (mut low, mut high) = (0.0, top);
        if fits(&at_level(top, &open, rates), TOLERANCE) {
            let done = at_level(top, &open, rates);
            rates.copy_from_slice(&done);
            break;
        }
        for _ in 0..60 {
            let mid = 0.5 * (low + high);
            if fits(&at_level(mid, &open, rates), TOLERANCE) { low = mid } else { high = mid }
        }
        // A hair below what just fits, so that rounding does not make it unfit beside the next level's flows.
        let reached = at_level(low * (1.0 - 1e-5), &open, rates);
        rates.copy_from_slice(&reached);
        // Those that cannot rise by themselves are settled, as are those whose demand is met. The hair is of all
        // rates together, so what must not fit is more than that, or on a large host nothing would settle.
        let rise = (3e-5 * class.iter().map(|&i| rates[i]).sum::<f64>()).max(1e-4);
        let before = open.len();
        open.retain(|&i| {
            let mut more = rates.to_vec();
            more[i] = (more[i] + rise).min(flows[i].demand);
            more[i] > rates[i] + EPSILON && fits(&more, 10.0 * TOLERANCE)
        });
        if open.len() == before {
            break; // numerical: nothing settles any more
        }
    }
    flow(flows, class, rates, capacity).1
}

fn feasible(flows: &[Flow], class: &[usize], rates: &[f64], capacity: &Capacity, tolerance: f64) -> bool {
    let wanted: f64 = class.iter().map(|&i| rates[i]).sum();
    flow(flows, class, rates, capacity).0 >= wanted - tolerance
}

/// Maximum flow from the flows, grouped by affinity, to the pCPUs: its value, and its use of each pCPU. Augmenting
/// paths alternate group -> pCPU -> group; sizes are those of a host (tens of sets, hundreds of pCPUs).
fn flow(flows: &[Flow], class: &[usize], rates: &[f64], capacity: &Capacity) -> (f64, Capacity) {
    let mut groups: BTreeMap<&CpuSet, f64> = BTreeMap::new();
    for &i in class {
        *groups.entry(&flows[i].allowed).or_default() += rates[i];
    }
    let sets: Vec<&CpuSet> = groups.keys().copied().collect();
    let mut supply: Vec<f64> = groups.values().copied().collect();
    let cpus: Vec<u32> = capacity.keys().copied().collect();
    let mut spare: Vec<f64> = capacity.values().copied().collect();
    let mut carried = vec![vec![0.0f64; cpus.len()]; sets.len()];
    let mut total = 0.0;
    // First spread every group evenly over its pCPUs, as a balancer would; then repair by augmenting paths.
    for (g, set) in sets.iter().enumerate() {
        let mine: Vec<usize> = (0..cpus.len()).filter(|c| set.contains(cpus[*c])).collect();
        // Every round either places all that is left or fills a pCPU.
        for _ in 0..=mine.len() {
            let free: Vec<usize> = mine.iter().copied().filter(|c| spare[*c] > EPSILON).collect();
            if free.is_empty() || supply[g] <= EPSILON {
                break;
            }
            let each = supply[g] / free.len() as f64;
            for c in free {
                let x = each.min(spare[c]);
                carried[g][c] += x;
                spare[c] -= x;
                supply[g] -= x;
                total += x;
            }
        }
    }
    for (g, left) in supply.iter_mut().enumerate() {
        // Every path fills a pCPU, empties the supply, or takes a group off a pCPU; the bound is against rounding.
        for _ in 0..sets.len() * cpus.len() {
            if *left <= EPSILON {
                break;
            }
            let Some(path) = augmenting_path(g, &sets, &cpus, &spare, &carried) else { break };
            // path: cpu0, group1, cpu1, … , cpuN; the last has room, each group moves load to the next pCPU.
            let mut amount = left.min(spare[path[path.len() - 1]]);
            for hop in path.chunks_exact(2).map(|h| (h[0], h[1])) {
                amount = amount.min(carried[hop.1][hop.0]);
            }
            let mut from = g;
            for (k, hop) in path.iter().enumerate() {
                if k % 2 == 0 {
                    carried[from][*hop] += amount;
                } else {
                    carried[*hop][path[k - 1]] -= amount;
                    from = *hop;
                }
            }
            spare[path[path.len() - 1]] -= amount;
            *left -= amount;
            total += amount;
        }
    }
    let used = cpus.iter().zip(&spare).map(|(c, s)| (*c, capacity[c] - s)).collect();
    (total, used)
}

/// Shortest path from a group to a pCPU with room, through pCPUs whose other groups could move on.
fn augmenting_path(
    g: usize,
    sets: &[&CpuSet],
    cpus: &[u32],
    spare: &[f64],
    carried: &[Vec<f64>],
) -> Option<Vec<usize>> {
    let mut came_from: Vec<Option<(usize, Option<usize>)>> = vec![None; cpus.len()]; // pCPU <- (group, earlier pCPU)
    let mut seen_group = vec![false; sets.len()];
    let mut queue = std::collections::VecDeque::from([(g, None)]);
    seen_group[g] = true;
    while let Some((group, via)) = queue.pop_front() {
        for c in 0..cpus.len() {
            if came_from[c].is_some() || !sets[group].contains(cpus[c]) {
                continue;
            }
            came_from[c] = Some((group, via));
            if spare[c] > EPSILON {
                let mut path = vec![c];
                let mut at = came_from[c];
                while let Some((group, Some(earlier))) = at {
                    path.push(group);
                    path.push(earlier);
                    at = came_from[earlier];
                }
                path.reverse();
                return Some(path);
            }
            for other in 0..sets.len() {
                if !seen_group[other] && carried[other][c] > EPSILON {
                    seen_group[other] = true;
                    queue.push_back((other, Some(c)));
                }
            }
        }
    }
    None
}

/// What a thread would use if it never waited. A throttled thread had work during that time, however little it ran.
fn demand(t: &ThreadModel) -> f64 {
    let (run, wait) = (t.shares.run.unwrap_or(0.0), t.shares.wait.unwrap_or(0.0));
    let kept = if run + wait > HUNGRY { wait } else { t.shares.limited.unwrap_or(0.0) };
    if kept < 1.0 - EPSILON { (run / (1.0 - kept)).min(1.0) } else { run }
}

/// The quotas that hold `flows`. libvirt's `vcpu_quota` is of each vCPU, its `emulator_quota` of the emulator's
/// cgroup, in which the kernel's vhost threads are too, its `global_quota` of all. Linux throttles no real-time
/// thread by them.
pub fn ceilings(config: &HostConfig, flows: &[Flow]) -> Vec<Ceiling> {
    let mut all = Vec::new();
    for vm in &config.vms {
        let of = |is: &dyn Fn(Role) -> bool| -> Vec<usize> {
            let held = |f: &Flow| f.vm == vm.id && !f.realtime && is(f.role);
            flows.iter().enumerate().filter(|(_, f)| held(f)).map(|(i, _)| i).collect()
        };
        if let Some(quota) = vm.limits.per_vcpu {
            let vcpus = of(&|role| role.vcpu().is_some());
            all.extend(vcpus.into_iter().map(|i| Ceiling { flows: vec![i], cpus: quota.cpus() }));
        }
        if let Some(quota) = vm.limits.emulator {
            let flows = of(&|role| matches!(role, Role::Emulator | Role::Worker | Role::Vhost));
            all.push(Ceiling { flows, cpus: quota.cpus() });
        }
        if let Some(quota) = vm.limits.whole_vm {
            all.push(Ceiling { flows: of(&|_| true), cpus: quota.cpus() });
        }
    }
    all
}

/// The flows of a host as observed, with the capacity that its other work leaves.
pub fn flows(config: &HostConfig, model: &HostModel) -> (Vec<Flow>, Capacity) {
    let mut flows = Vec::new();
    let mut vm_run = 0.0;
    for vm in &config.vms {
        let Some(seen) = model.vm(&vm.id) else { continue };
        let wanted: f64 = seen.threads.iter().map(demand).sum();
        let works = vm.weight.filter(|_| vm.pinned_within().is_none());
        let weight = works.map_or(1.0, CpuWeight::relative);
        for t in &seen.threads {
            let d = demand(t);
            vm_run += t.shares.run.unwrap_or(0.0);
            let known = vm.threads.iter().find(|k| k.tid == t.tid);
            flows.push(Flow {
                vm: vm.id.clone(),
                tid: t.tid,
                role: t.role,
                demand: d,
                // A group's weight is spread over its threads by their load, as Linux spreads it over run queues.
                weight: if wanted > 0.0 { weight * d / wanted } else { 0.0 },
                allowed: known.map_or_else(|| config.topology.usable(), |k| k.affinity.clone()),
                realtime: known.and_then(|k| k.class).is_some_and(SchedClass::is_realtime),
            });
        }
    }
    let busy: f64 = model.pcpus.iter().map(|p| p.busy).sum();
    let steal: f64 = model.pcpus.iter().map(|p| p.steal.unwrap_or(0.0)).sum();
    let n = model.pcpus.len().max(1) as f64;
    // Busy counts the VMs' own threads and stolen time; what remains is the host's other work.
    let others = ((busy - steal - vm_run).max(0.0) / n).min(0.95);
    let capacity =
        model.pcpus.iter().map(|p| (p.cpu, (1.0 - others - p.steal.unwrap_or(0.0)).max(0.05))).collect();
    (flows, capacity)
}

/// What a VM would get of the pCPUs, by weight, if its vCPUs wanted all they could get and nobody had a real-time
/// class; others want what they were seen to want. 0 for a VM that was not seen.
pub fn due(config: &HostConfig, model: &HostModel, vm: &VmId) -> f64 {
    let Some(of) = config.vms.iter().find(|known| known.id == *vm) else { return 0.0 };
    let (mut flows, capacity) = flows(config, model);
    flows.iter_mut().for_each(|f| f.realtime = false);
    let mine = |f: &&mut Flow| f.vm == *vm;
    flows.iter_mut().filter(mine).filter(|f| f.role.vcpu().is_some()).for_each(|f| f.demand = 1.0);
    let wanted: f64 = flows.iter_mut().filter(mine).map(|f| f.demand).sum();
    let weight = of.weight.filter(|_| of.pinned_within().is_none()).map_or(1.0, CpuWeight::relative);
    flows.iter_mut().filter(mine).for_each(|f| f.weight = weight * f.demand / wanted);
    let rates = allocate(&flows, &ceilings(config, &flows), &capacity).rates;
    flows.iter().zip(rates).filter(|(f, _)| f.vm == *vm).map(|(_, rate)| rate).sum()
}

/// The configuration as it will be once `steps` are made (live settings only).
#[must_use]
pub fn after(config: &HostConfig, steps: &[Step]) -> HostConfig {
    let (mut next, anywhere) = (config.clone(), config.topology.usable());
    for step in steps {
        let Some(vm) = next.vms.iter_mut().find(|v| v.id == step.vm) else { continue };
        step.change.apply_to(vm, &anywhere);
        if let Change::Pool(setting::Pool { from, to, .. }) = &step.change {
            made(&mut next, from, to);
        }
    }
    next
}

/// The pCPUs of a new pool are gone from the former one, and from where its VMs may run.
fn made(config: &mut HostConfig, from: &CpuPool, to: &CpuPool) {
    for vm in config.vms.iter_mut().filter(|vm| vm.pool.as_ref().is_some_and(|p| p.name == from.name)) {
        vm.pool.iter_mut().for_each(|p| p.cpus = p.cpus.difference(&to.cpus));
        vm.threads.iter_mut().for_each(|t| t.affinity = t.affinity.difference(&to.cpus));
    }
}

/// How busy others keep the pCPUs that a flow may use, 0..=1: what a waking thread finds on a random one of them.
/// Real-time flows are delayed by real-time flows only.
fn contention(i: usize, flows: &[Flow], rates: &[f64], capacity: &Capacity) -> f64 {
    let allowed: Vec<u32> = flows[i].allowed.iter().filter(|c| capacity.contains_key(c)).collect();
    if allowed.is_empty() {
        return 0.0;
    }
    let spread = |j: usize| -> f64 {
        let theirs = flows[j].allowed.iter().filter(|c| capacity.contains_key(c)).count().max(1) as f64;
        let shared = allowed.iter().filter(|c| flows[j].allowed.contains(**c)).count() as f64;
        rates[j] * shared / theirs
    };
    let others: f64 =
        (0..flows.len()).filter(|j| *j != i && (flows[*j].realtime || !flows[i].realtime)).map(spread).sum();
    (others / allowed.len() as f64).min(1.0)
}

/// A host before and after a change, both shared out.
struct Solved {
    before: Vec<Flow>,
    next: Vec<Flow>,
    now: Allocation,
    then: Allocation,
    /// What quotas keep from each flow, in pCPUs.
    held_now: Vec<f64>,
    held_then: Vec<f64>,
    capacity: Capacity,
}

/// What a thread is expected to do, parts of the time.
struct Will {
    run: f64,
    /// Ready share; includes limited time if the two could not be separated.
    ready: f64,
    /// Ready and limited.
    wait: f64,
}

/// What ceilings keep from each flow, less than which is rounding.
const HELD: f64 = 1e-3;

/// Shared out under the host's quotas, and what these keep from each flow.
fn under_quotas(config: &HostConfig, flows: &[Flow], capacity: &Capacity) -> (Allocation, Vec<f64>) {
    let ceilings = ceilings(config, flows);
    let got = allocate(flows, &ceilings, capacity);
    if ceilings.is_empty() {
        return (got, vec![0.0; flows.len()]);
    }
    let free = allocate(flows, &[], capacity).rates;
    let held = free.iter().zip(&got.rates).map(|(free, got)| free - got);
    let held = held.map(|h| if h > HELD { h } else { 0.0 }).collect();
    (got, held)
}

impl Solved {
    fn of(config: &HostConfig, next: &HostConfig, model: &HostModel) -> Solved {
        let (before, capacity) = flows(config, model);
        let (now, held_now) = under_quotas(config, &before, &capacity);
        let (of_next, _) = flows(next, model);
        let (then, held_then) = under_quotas(next, &of_next, &capacity);
        Solved { before, next: of_next, now, then, held_now, held_then, capacity }
    }

    /// What a thread will run and wait; `None` for one that the configuration does not have.
    fn after(&self, t: &ThreadModel) -> Option<Will> {
        let Solved { before, next, now, then, held_now, held_then, capacity } = self;
        let i = before.iter().position(|b| b.tid == t.tid)?;
        let (run, wait) = (t.shares.run.unwrap_or(0.0), t.shares.wait.unwrap_or(0.0));
        // The model's own error cancels where only the ratio of its two answers is used.
        let ratio = if now.rates[i] > EPSILON { then.rates[i] / now.rates[i] } else { 1.0 };
        let run_after = (run * ratio).min(1.0);
        let scale = wait_scale(i, t, before, next, now, then, capacity);
        let starved = before[i].demand > HUNGRY || then.rates[i] < next[i].demand - 0.01;
        let most = 1.0 - run_after;
        let unserved = (wait + run - run_after).clamp(0.0, most);
        let Some(ready) = t.shares.ready else {
            let wait_after = if starved { unserved } else { (wait * scale).min(most) };
            return Some(Will { run: run_after, ready: wait_after, wait: wait_after });
        };
        let limited = (wait - ready).max(0.0);
        let held =
            if held_now[i] > 0.0 { limited * held_then[i] / held_now[i] } else { limited + held_then[i] };
        let ready_after = if starved { unserved - held.min(unserved) } else { (ready * scale).min(most) };
        let wait_after = if starved { unserved } else { (ready_after + held).min(most) };
        Some(Will { run: run_after, ready: ready_after, wait: wait_after })
    }
}

/// Forecast ready share of every vCPU after `config` has become `next`. Includes limited time if the two could not
/// be separated.
pub fn ready_after(config: &HostConfig, next: &HostConfig, model: &HostModel) -> BTreeMap<Tid, f64> {
    let solved = Solved::of(config, next, model);
    let vcpus = model.vms.iter().flat_map(|vm| vm.vcpu_threads());
    vcpus.filter_map(|t| Some((t.tid, solved.after(t)?.ready))).collect()
}

/// What `steps` are expected to do to every VM.
pub fn forecast(config: &HostConfig, model: &HostModel, steps: &[Step]) -> Forecast {
    let solved = Solved::of(config, &after(config, steps), model);
    let vms = model
        .vms
        .iter()
        .map(|vm| {
            let with_limited = vm.vcpu_threads().any(|t| t.shares.ready.is_none());
            let mut f =
                VmForecast { with_limited, ..VmForecast::unchanged(vm.id.clone(), &vm.name, 0.0, 0.0) };
            let (mut waits, mut spells_per_s, mut wait_after) = (0.0, 0.0, 0.0);
            for t in vm.vcpu_threads() {
                let Some(will) = solved.after(t) else { continue };
                let (run, wait) = (t.shares.run.unwrap_or(0.0), t.shares.wait.unwrap_or(0.0));
                f.run_before += run;
                f.ready_before += t.shares.ready.filter(|_| !with_limited).unwrap_or(wait);
                f.run_after.likely += will.run;
                f.ready_after.likely += if with_limited { will.wait } else { will.ready };
                let spells = t.switches_per_s.unwrap_or(0.0);
                spells_per_s += spells;
                waits += wait * 1e9;
                wait_after += will.wait * 1e9;
            }
            let ready = f.ready_after.likely;
            // What the method leaves out is worth some points or half of the delay, whichever is more.
            let slack = (0.5 * ready).max(0.03);
            f.ready_after.low = (ready - slack).max(0.0);
            f.ready_after.high = ready + slack;
            f.run_after.low = (f.run_after.likely * 0.93 - 0.01).max(0.0);
            f.run_after.high = f.run_after.likely * 1.07 + 0.01;
            // A VM that mostly sleeps and waited longer than it ran had dropped work (timers merged, requests not
            // sent): it runs up to twice as much once it may, as measured with periodic timers.
            if f.ready_before > f.run_before && ready < 0.5 * f.ready_before {
                f.run_after.high = 2.5 * f.run_after.likely;
            }
            if spells_per_s > 0.0 {
                f.wake_wait_ns_before = Some(waits / spells_per_s);
                let likely = (wait_after / spells_per_s).max(WAIT_FLOOR_NS);
                f.wake_wait_ns_after = Some(Interval { low: likely / 4.0, likely, high: likely * 3.0 });
            }
            f
        })
        .collect();
    Forecast { method: "fluid fair share".to_owned(), vms }
}

/// By what factor the waits of a thread that mostly sleeps change.
fn wait_scale(
    i: usize,
    t: &ThreadModel,
    before: &[Flow],
    next: &[Flow],
    now: &Allocation,
    then: &Allocation,
    capacity: &Capacity,
) -> f64 {
    let was = contention(i, before, &now.rates, capacity);
    let will = contention(i, next, &then.rates, capacity);
    if next[i].realtime && !before[i].realtime {
        // It now waits for other real-time threads' bursts only.
        let spells = t.switches_per_s.unwrap_or(0.0).max(1.0);
        let burst_ns = t.shares.run.unwrap_or(0.0) * 1e9 / spells;
        let wait_ns = t.shares.wait.unwrap_or(0.0) * 1e9 / spells;
        return if wait_ns > 0.0 { ((will * burst_ns).max(WAIT_FLOOR_NS) / wait_ns).min(1.0) } else { 1.0 };
    }
    let by_contention = if was > 0.01 { (will / was).min(4.0) } else { 1.0 };
    // A larger weight brings the deadline of a woken group nearer, less than in proportion: measured on EEVDF,
    // eight times the weight halved the wait (four VMs on two pCPUs), which is its cube root.
    let by_weight = if before[i].weight > 0.0 && next[i].weight > 0.0 {
        libm::cbrt(before[i].weight / next[i].weight)
    } else {
        1.0
    };
    by_contention * by_weight
}

#[cfg(test)]
mod tests;
