//! Pins vCPUs if the scheduler moves them so often that the moves cost more than pins leave idle.
//!
//! A pin saves at most the cost of moves: moves per second times the cost of one, the refill of the core's private
//! caches. A pin costs that a ready vCPU cannot use an idle pCPU. Both are compared as parts of the host's work:
//!
//! - *gain*: moves x cost, for each vCPU at most its run time. If vCPUs of a VM wait for each other, as at the end of a
//!   parallel loop, all wait for the moved one. The report prints that larger value, but the gain does not include it.
//!   The cost is `--move-cost-us` or, as an upper bound, the size of the private caches divided by [`REFILL`].
//! - *loss*: each vCPU wants a pCPU independently, for its demand (run and ready). Floating vCPUs keep as many
//!   pCPUs busy as vCPUs want one. A pinned pCPU is busy while any of its own vCPUs wants it; floating vCPUs fill
//!   the rest.
//!
//! Pins pay if the gain is at least [`WORTH`] and more than the loss. Checked by the lab's cases
//! `openmp` (real VMs) and by tests on the published matrix (scenarios/published/openmp-pinning).
//!
//! Left out:
//!   barriers between vCPUs of one VM, which make pins cost 2 to 5 % more in the lab's loops. Also caches that VMs
//!   share, and last level caches and memory nodes, which `node` covers. A VM that is pinned already stays pinned.

use super::{Action, Context, Propose};
use crate::CpuSet;
use crate::model::ThreadModel;
use crate::nouns::VmConfig;
use crate::setting;
use crate::setting::{Change, Step};
use crate::topology::{CacheKind, Topology};
use std::collections::BTreeMap;

pub const ACTION: Action = Action {
    name: "pin",
    doc: "pin each vCPU to one pCPU, because moves between pCPUs cost more than pins would",
    severity: 2,
    asked_only: true,
    on_vsphere: false,
    propose: Propose::Directly(propose),
};

/// Bytes per second at which a core refills its caches, in the worst case from memory: one core's share of a
/// server's bandwidth.
const REFILL: f64 = 8e9;
/// Least part of a VM's work that moves must cost before pins are worth it.
const WORTH: f64 = 0.001;

/// A vCPU that this action may pin.
struct Moved<'a> {
    vm: &'a VmConfig,
    seen: &'a ThreadModel,
    /// Share of a pCPU that the vCPU wants, 0..=1.
    demand: f64,
}

fn propose(c: &Context<'_>) -> Result<Vec<Step>, String> {
    if let Some(why) = c.confined() {
        return Err(why);
    }
    let topology = &c.config.topology;
    let usable = topology.usable();
    let (cost_ns, whence) = match c.limits.move_cost_ns {
        Some(ns) => (ns, "--move-cost-us"),
        None => (refill_ns(topology).ok_or(NO_COST)?, "estimated from the core's private caches"),
    };

    let (mut moved, mut roaming): (Vec<Moved<'_>>, Vec<f64>) = (Vec::new(), Vec::new());
    let (mut measured, mut most) = (false, 0.0_f64);
    let mut reasons = BTreeMap::new();
    for vm in &c.config.vms {
        let Some(seen) = c.model.vm(&vm.id) else { continue };
        let run: f64 = seen.vcpu_threads().filter_map(|t| t.shares.run).sum();
        let moves = seen.vcpu_threads().map(|t| t.migrations_per_s).sum::<Option<f64>>();
        measured |= moves.is_some();
        let costs: f64 = seen.vcpu_threads().map(|t| lost(t, cost_ns)).sum();
        let part = if run > 0.0 { costs / run } else { 0.0 };
        most = most.max(part);
        // With fewer allowed pCPUs than vCPUs, two vCPUs of a VM would share a pCPU.
        let free = vm.vcpus().all(|t| t.affinity.intersection(&usable).len() >= vm.vcpus().count());
        let chosen = part >= WORTH && free && vm.vcpus().any(|t| t.affinity.len() > 1);
        for t in seen.vcpu_threads() {
            let demand = t.shares.demand().unwrap_or(0.0).clamp(0.0, 1.0);
            if chosen { moved.push(Moved { vm, seen: t, demand }) } else { roaming.push(demand) }
        }
        if chosen {
            let moves = moves.unwrap_or(0.0);
            let reason = format!(
                "the scheduler moves its vCPUs {moves:.1} times a second, at {:.0} us each ({whence}): {:.2} % of their run time, up to {:.2} % if they wait for each other",
                cost_ns / 1e3,
                100.0 * part,
                100.0 * (part * vm.vcpus().count() as f64).min(1.0)
            );
            reasons.insert(&vm.id, reason);
        }
    }
    if !measured {
        return Err("the moves of vCPUs between pCPUs were not measured; record with eBPF: run `vsteer \
            record` as root"
            .to_owned());
    }
    if moved.is_empty() {
        return Err(format!(
            "moves between pCPUs cost each VM at most {:.3} % of its run time, at {:.0} us each ({whence})",
            100.0 * most,
            cost_ns / 1e3
        ));
    }

    // Work of host processes and the kernel, spread over all pCPUs.
    let by_vms: f64 = c.model.vms.iter().filter_map(|vm| vm.group.run).sum();
    let busy: f64 = c.model.pcpus.iter().map(|p| p.busy).sum();
    let others = ((busy - by_vms) / usable.len().max(1) as f64).clamp(0.0, 1.0);
    roaming.extend(usable.iter().map(|_| others));

    let places = place(&moved, topology, &usable);
    let all: Vec<f64> = moved.iter().map(|m| m.demand).chain(roaming.iter().copied()).collect();
    let floating = at_work(&all, usable.len());
    let pinned = at_work(&[wanted(&moved, &places), roaming].concat(), usable.len());
    let gain = moved.iter().map(|m| lost(m.seen, cost_ns)).sum::<f64>() / floating.max(f64::MIN_POSITIVE);
    let loss = 1.0 - pinned / floating.max(f64::MIN_POSITIVE);
    if loss >= gain {
        return Err(format!(
            "pins would cost {:.2} % of the work, because pCPUs idle while vCPUs wait, and would save at \
                most {:.2} %",
            100.0 * loss,
            100.0 * gain
        ));
    }
    let steps = steps(&moved, &places, &reasons);
    c.leaves_memory(&steps).map_or(Ok(steps), Err)
}

const NO_COST: &str = "the cost of a move is unknown, because this machine does not report its cache sizes; give it with \
        --move-cost-us";

/// Cost of moves for a vCPU, as a share of a pCPU's time; at most its run time.
fn lost(t: &ThreadModel, cost_ns: f64) -> f64 {
    (t.migrations_per_s.unwrap_or(0.0) * cost_ns / 1e9).min(t.shares.run.unwrap_or(0.0))
}

/// Time to refill the private data caches of a core, ns, for the core with the largest caches.
fn refill_ns(topology: &Topology) -> Option<f64> {
    let private = |core: &CpuSet| -> u64 {
        let own =
            topology.caches().iter().filter(|c| c.kind != CacheKind::Instruction && c.cpus.is_subset(core));
        own.filter_map(|c| c.size_bytes).sum()
    };
    let most = topology.cores().iter().map(|core| private(&core.cpus)).max()?;
    (most > 0).then(|| most as f64 / REFILL * 1e9)
}

/// A pCPU for each vCPU. Places the largest demand first, each on the least wanted pCPU. vCPUs of one VM share no pCPU.
fn place(moved: &[Moved<'_>], topology: &Topology, usable: &CpuSet) -> Vec<u32> {
    let mut order: Vec<usize> = (0..moved.len()).collect();
    order.sort_by(|a, b| moved[*b].demand.total_cmp(&moved[*a].demand));
    let mut wanted: BTreeMap<u32, f64> = usable.iter().map(|cpu| (cpu, 0.0)).collect();
    let mut places = vec![0; moved.len()];
    let mut placed: Vec<usize> = Vec::new();
    for i in order {
        let config = moved[i].vm.vcpus().find(|t| t.tid == moved[i].seen.tid);
        let allowed = config.map_or_else(|| usable.clone(), |t| t.affinity.intersection(usable));
        let taken = |cpu: u32| placed.iter().any(|&p| moved[p].vm.id == moved[i].vm.id && places[p] == cpu);
        let of_core =
            |cpu: u32| -> f64 { topology.siblings(cpu).iter().filter_map(|c| wanted.get(&c)).sum() };
        let best = allowed.iter().filter(|cpu| !taken(*cpu)).min_by(|a, b| {
            wanted[a].total_cmp(&wanted[b]).then(of_core(*a).total_cmp(&of_core(*b))).then(a.cmp(b))
        });
        // `propose` checked that there are at least as many pCPUs as vCPUs.
        let cpu = best.or_else(|| allowed.iter().next()).unwrap_or_default();
        places[i] = cpu;
        placed.push(i);
        *wanted.entry(cpu).or_default() += moved[i].demand;
    }
    places
}

/// For each pCPU with pinned vCPUs: the probability that at least one of them wants it.
fn wanted(moved: &[Moved<'_>], places: &[u32]) -> Vec<f64> {
    let mut none: BTreeMap<u32, f64> = BTreeMap::new();
    for (m, cpu) in moved.iter().zip(places) {
        *none.entry(*cpu).or_insert(1.0) *= 1.0 - m.demand;
    }
    none.into_values().map(|p| 1.0 - p).collect()
}

/// Mean number of busy pCPUs out of `cpus`, if each vCPU wants one independently with its probability in `wants`.
fn at_work(wants: &[f64], cpus: usize) -> f64 {
    // likely[n]: probability that n vCPUs want a pCPU; more than `cpus` count as `cpus`.
    let mut likely = vec![0.0; cpus + 1];
    likely[0] = 1.0;
    for p in wants {
        for n in (0..=cpus).rev() {
            let stay = if n == cpus { likely[n] } else { likely[n] * (1.0 - p) };
            likely[n] = stay + if n > 0 { likely[n - 1] * p } else { 0.0 };
        }
    }
    likely.iter().enumerate().map(|(n, p)| n as f64 * p).sum()
}

fn steps(moved: &[Moved<'_>], places: &[u32], reasons: &BTreeMap<&crate::nouns::VmId, String>) -> Vec<Step> {
    let mut steps = Vec::new();
    for (m, cpu) in moved.iter().zip(places) {
        let Some(t) = m.vm.vcpus().find(|t| t.tid == m.seen.tid) else { continue };
        let to = CpuSet::single(*cpu);
        if t.affinity != to {
            let change = Change::Affinity(setting::Affinity {
                role: t.role,
                tid: t.tid,
                from: t.affinity.clone(),
                to,
            });
            let reason = reasons.get(&m.vm.id).cloned().unwrap_or_default();
            steps.push(Step { vm: m.vm.id.clone(), vm_name: m.vm.name.clone(), change, reason });
        }
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_work_as_want_up_to_all() {
        assert!((at_work(&[1.0, 1.0, 1.0], 2) - 2.0).abs() < 1e-12);
        assert!((at_work(&[0.5, 0.5], 2) - 1.0).abs() < 1e-12);
        // One pCPU works unless nobody wants it.
        assert!((at_work(&[0.5, 0.5, 0.2], 1) - (1.0 - 0.5 * 0.5 * 0.8)).abs() < 1e-12);
        // By counting: of three at a half, two pCPUs: 3/8 x 1 + 4/8 x 2.
        assert!((at_work(&[0.5; 3], 2) - 1.375).abs() < 1e-12);
        assert_eq!(at_work(&[], 3), 0.0);
    }
}
