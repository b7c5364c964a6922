//! Random changes of a host: other weights, and other pCPUs.

use vsteer_core::CpuSet;
use vsteer_core::nouns::{HostConfig, VmConfig};
use vsteer_core::random::Random;
use vsteer_core::setting::{Affinity, Change, Step, Weight};

/// Another weight, or other pCPUs, for one to three VMs. Every VM keeps a pCPU per vCPU.
pub fn change(r: &mut Random, config: &HostConfig) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for _ in 0..r.within(1, 3) {
        let vm = &config.vms[r.within(0, config.vms.len() as u64 - 1) as usize];
        if steps.iter().any(|s| s.vm == vm.id) {
            continue;
        }
        if r.unit() < 0.4 {
            steps.extend(weight(r, vm));
        } else {
            steps.extend(place(r, config, vm));
        }
    }
    steps
}

fn step(vm: &VmConfig, change: Change) -> Step {
    Step { vm: vm.id.clone(), vm_name: vm.name.clone(), change, reason: "drawn".to_owned() }
}

fn weight(r: &mut Random, vm: &VmConfig) -> Option<Step> {
    let from = vm.weight?;
    let to = from.with_relative(from.relative() * [0.125, 0.5, 2.0, 8.0][r.within(0, 3) as usize]);
    Some(step(vm, Change::Weight(Weight { from, to })))
}

/// On all pCPUs, a node, or some cores in a row.
fn place(r: &mut Random, config: &HostConfig, vm: &VmConfig) -> Vec<Step> {
    let topology = &config.topology;
    let nodes = topology.nodes();
    let to = match r.within(0, 3) {
        0 => topology.usable(),
        1 => nodes[r.within(0, nodes.len() as u64 - 1) as usize].cpus.clone(),
        _ => {
            let cores = topology.cores();
            let n = r.within(1, cores.len() as u64) as usize;
            let first = r.within(0, (cores.len() - n) as u64) as usize;
            cores[first..first + n].iter().fold(CpuSet::new(), |all, core| all.union(&core.cpus))
        }
    };
    if to.len() < vm.vcpu_count() {
        return Vec::new();
    }
    let moved = vm.threads.iter().filter(|t| t.affinity != to);
    let of = |t: &vsteer_core::nouns::VmThread| {
        let (from, to) = (t.affinity.clone(), to.clone());
        step(vm, Change::Affinity(Affinity { role: t.role, tid: t.tid, from, to }))
    };
    moved.map(of).collect()
}
