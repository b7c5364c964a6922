//! What does the published flowchart recommend for each VM? Implemented exactly as printed, apart from vsteer's own
//! advice.
//!
//! J. Park 2022 (doi:10.6109/jkiice.2022.26.10.1432):
//! 1. Is co-stop or ready of the VM's group above its threshold (5 %, 10 %)? No: nothing to do.
//! 2. Are more vCPUs scheduled on the VM's local node than it has schedulable cores? No: look for another cause.
//! 3. Has some other node enough idle CPUs for this VM? Yes: migrate it there and set its node affinity.
//! 4. No: scheduling cannot fix it. Reduce the total of vCPUs, or upgrade the server's CPUs.
//!
//! The flowchart is applied to one VM after another, longest wait first. Each sees the moves of those before
//! it. Idle CPUs are the measured ones less the use of VMs moved there. It counts vCPUs, not their demand: on
//! its own testbed two moves removed all waits, but left 24 vCPUs on 18 cores, so it ends in step 4.

use super::load::{Guest, Load};
use crate::nouns::VmId;
use serde::{Deserialize, Serialize};

/// End of the flowchart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// Step 1: the VM does not wait.
    NothingToDo,
    /// Step 2: the VM's node is not overloaded.
    AnotherCause,
    /// Step 3: migrate to this node, an index of [`Load::nodes`].
    Migrate(usize),
    /// Step 4.
    ReduceOrUpgrade,
}

/// Path of one VM through the flowchart.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Walk {
    /// Id of the VM.
    pub vm: VmId,
    /// Name of the VM.
    pub name: String,
    /// End of the path.
    pub end: End,
    /// vCPUs on the VM's node at that time; 0 without a home node.
    pub vcpus_on_node: u32,
    /// Cores of that node.
    pub cores: u32,
    /// Most idle CPUs on another node at that time.
    pub idle_elsewhere: f64,
}

/// Applies the flowchart to every VM. `waits`: whether a VM exceeds a threshold of step 1.
pub fn walk(load: &Load, waits: &dyn Fn(&Guest) -> bool) -> Vec<Walk> {
    let mut homes = load.homes();
    let run = |g: &Guest| g.demand - g.waited;
    let mut idle: Vec<f64> = (0..load.nodes.len())
        .map(|i| {
            let at_home: f64 = load.guests.iter().filter(|g| g.home == Some(i)).map(run).sum();
            (load.nodes[i].cores - load.nodes[i].others - at_home).max(0.0)
        })
        .collect();
    let mut order: Vec<usize> = (0..load.guests.len()).collect();
    order.sort_by(|a, b| load.guests[*b].waited.total_cmp(&load.guests[*a].waited));
    let mut walks = Vec::new();
    for i in order {
        let guest = &load.guests[i];
        let home = homes[i];
        let on_node: u32 = match home {
            Some(_) => {
                load.guests.iter().zip(&homes).filter(|(_, h)| **h == home).map(|(g, _)| g.vcpus).sum()
            }
            None => 0,
        };
        let cores = home.map_or(0, |h| load.nodes[h].cores as u32);
        let others = (0..load.nodes.len()).filter(|n| Some(*n) != home);
        let best = others.max_by(|a, b| idle[*a].total_cmp(&idle[*b]).then(b.cmp(a)));
        let end = if !waits(guest) {
            End::NothingToDo
        } else if home.is_none() || on_node <= cores {
            End::AnotherCause
        } else {
            match best.filter(|n| idle[*n] >= f64::from(guest.vcpus)) {
                Some(n) => End::Migrate(n),
                None => End::ReduceOrUpgrade,
            }
        };
        walks.push(Walk {
            vm: guest.vm.clone(),
            name: guest.name.clone(),
            end,
            vcpus_on_node: on_node,
            cores,
            idle_elsewhere: best.map_or(0.0, |n| idle[n]),
        });
        if let (End::Migrate(to), Some(from)) = (end, home) {
            homes[i] = Some(to);
            idle[from] += run(guest);
            idle[to] -= run(guest);
        }
    }
    walks
}

#[cfg(test)]
mod tests {
    use super::super::load::Node;
    use super::*;
    use crate::CpuSet;
    use crate::topology::NodeId;

    fn load(guests: Vec<Guest>) -> Load {
        let node =
            |i| Node { id: NodeId(i), cpus: CpuSet::new(), cores: 18.0, memory_bytes: None, others: 0.0 };
        Load { nodes: vec![node(0), node(1)], guests, bunching: 1.0 }
    }

    fn paper(homes: [usize; 4]) -> Load {
        let vm = |(name, run, ready): (&str, f64, f64), home| Guest {
            vm: VmId(name.into()),
            name: name.into(),
            vcpus: 12,
            demand: (run + ready) / 100.0,
            waited: ready / 100.0,
            home: Some(home),
            memory_bytes: None,
            ties: Vec::new(),
        };
        let table = [
            ("VM19", 333.60, 23.51),
            ("VM20", 299.01, 18.88),
            ("VM18", 315.53, 20.73),
            ("VM21", 312.94, 21.70),
        ];
        load(table.into_iter().zip(homes).map(|(row, home)| vm(row, home)).collect())
    }

    /// On the paper's own testbed: two move, and then 24 vCPUs on 18 cores end in step 4.
    #[test]
    fn the_papers_testbed_ends_in_reduce_or_upgrade() {
        let walks = walk(&paper([0; 4]), &|g| g.waited > 0.10);
        let ends: Vec<(&str, End)> = walks.iter().map(|w| (w.name.as_str(), w.end)).collect();
        assert_eq!(
            ends,
            [
                ("VM19", End::Migrate(1)),
                ("VM21", End::Migrate(1)),
                ("VM18", End::ReduceOrUpgrade),
                ("VM20", End::ReduceOrUpgrade)
            ]
        );
        assert_eq!((walks[2].vcpus_on_node, walks[2].cores), (24, 18));
        assert!(walks[2].idle_elsewhere < 12.0);
    }

    #[test]
    fn each_end() {
        let mut l = paper([0; 4]);
        assert!(walk(&l, &|_| false).iter().all(|w| w.end == End::NothingToDo));
        l.guests.truncate(1);
        assert_eq!(walk(&l, &|_| true)[0].end, End::AnotherCause, "12 vCPUs on 18 cores");
        let mut floating = paper([0; 4]);
        floating.guests.iter_mut().for_each(|g| g.home = None);
        assert!(walk(&floating, &|_| true).iter().all(|w| w.end == End::AnotherCause));
    }
}
