//! What is each NUMA node asked for, and is that more than it has?
//!
//! A VM asks for what it runs and for what kept it from running: run + ready + co-stop, in cores. That is its mean; what
//! makes a node too small is that its vCPUs want cores at the same time. So the number that want one is taken as a random
//! number with that mean. Were vCPUs independent, its variance would be the sum of p (1 - p) over them, p a vCPU's demand;
//! those of one program wake together, and the variance is a multiple of that, their *bunching*. It is not assumed but read
//! off the observation: what is wanted beyond the cores is what was ready, and the bunching is the one for which a normal
//! number exceeds the cores by as much as was measured ([`bunching`]).
//!
//! A node **has room** where its cores are enough 99 times in 100: mean and 2.33 deviations are within them. No VM wants
//! more cores than it has vCPUs, so vCPUs up to the number of cores always have room.
//!
//! Left out: hyper-threads (a core counts once, whatever its threads), caches, and that bunching may differ from VM to VM.
//! `GAP(node-tails)`: a normal number's tail is thin; where bursts are rare and long, what is foretold to be wanted beyond the
//! cores is too little.

use crate::CpuSet;
use crate::model::{HostModel, VmModel};
use crate::nouns::{HostConfig, VmConfig, VmId};
use crate::topology::{NodeId, NumaNode, Topology};

/// Deviations above the mean that leave one in a hundred outside (the normal distribution's 0.99 quantile).
const ROOM: f64 = 2.326;
/// Bunching beyond this is not bunching: something else makes vCPUs wait.
const BUNCHING_MOST: f64 = 64.0;

/// A node with cores.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// Its number.
    pub id: NodeId,
    /// Its pCPUs.
    pub cpus: CpuSet,
    /// Its cores.
    pub cores: f64,
    /// Its memory, bytes.
    pub memory_bytes: Option<u64>,
    /// What others than VMs that are at home somewhere use of it, cores.
    pub others: f64,
}

/// A VM, as far as nodes are concerned.
#[derive(Debug, Clone, PartialEq)]
pub struct Guest {
    /// Which.
    pub vm: VmId,
    /// Its name.
    pub name: String,
    /// Its vCPUs.
    pub vcpus: u32,
    /// What it wants, cores: run, ready and co-stopped.
    pub demand: f64,
    /// Of that, what it did not get, cores.
    pub waited: f64,
    /// The node that it is at home on, by its place in [`Load::nodes`]; `None`: on several.
    pub home: Option<usize>,
    /// Its memory, bytes.
    pub memory_bytes: Option<u64>,
}

impl Guest {
    /// What its vCPUs add to the variance of how many want a core, were they independent.
    pub fn variance(&self) -> f64 {
        let n = f64::from(self.vcpus.max(1));
        let p = (self.demand / n).clamp(0.0, 1.0);
        n * p * (1.0 - p)
    }
}

/// A host's nodes and what they are asked for.
#[derive(Debug, Clone, PartialEq)]
pub struct Load {
    /// Its nodes with cores, by number.
    pub nodes: Vec<Node>,
    /// Its VMs, in the configuration's order.
    pub guests: Vec<Guest>,
    /// By how many times the variance is larger than that of independent vCPUs, 1 or more.
    pub bunching: f64,
}

/// The node that holds all of a VM's vCPUs: by where its threads may run, or by where its hypervisor keeps it.
pub fn home<'a>(topology: &'a Topology, vm: &VmConfig) -> Option<&'a NumaNode> {
    let mut nodes = topology.nodes().iter().filter(|n| !n.cpus.is_empty());
    if let Some(kept) = vm.vsphere.as_ref().and_then(|v| v.home_nodes.as_ref().or(v.node_affinity.as_ref())) {
        return nodes.find(|n| *kept == CpuSet::single(n.id.0));
    }
    let mut vcpus = vm.vcpus().peekable();
    vcpus.peek()?;
    nodes.find(|n| vm.vcpus().all(|t| !t.affinity.is_empty() && t.affinity.is_subset(&n.cpus)))
}

/// What a VM wants and what of it it waited for, cores; what is held by a limit no move gives it.
fn wants(vm: &VmModel) -> (f64, f64) {
    // A group's other worlds want cores of the node as well.
    let shares = &vm.group;
    let waited = shares.ready.or(shares.wait).unwrap_or(0.0) + shares.costop.unwrap_or(0.0);
    (shares.run.unwrap_or(0.0) + waited, waited)
}

impl Load {
    /// What was observed.
    pub fn of(config: &HostConfig, model: &HostModel) -> Load {
        let topology = &config.topology;
        let usable = topology.usable();
        let mut nodes: Vec<Node> = topology
            .nodes()
            .iter()
            .filter(|n| !n.cpus.is_empty())
            .map(|n| {
                let cpus = n.cpus.intersection(&usable);
                let cores = topology.cores().iter().filter(|k| k.cpus.intersects(&cpus)).count() as f64;
                Node { id: n.id, cpus, cores, memory_bytes: n.memory_bytes, others: 0.0 }
            })
            .collect();
        let guests: Vec<Guest> = config
            .vms
            .iter()
            .filter_map(|vm| {
                let (demand, waited) = wants(model.vm(&vm.id)?);
                let at = home(topology, vm).and_then(|h| nodes.iter().position(|n| n.id == h.id));
                Some(Guest {
                    vm: vm.id.clone(),
                    name: vm.name.clone(),
                    vcpus: vm.vcpu_count() as u32,
                    demand,
                    waited,
                    home: at,
                    memory_bytes: vm.memory_bytes,
                })
            })
            .collect();
        for (i, node) in nodes.iter_mut().enumerate() {
            let here: Vec<f64> =
                model.pcpus.iter().filter(|p| node.cpus.contains(p.cpu)).map(|p| p.busy).collect();
            // Busy hyper-threads of a core are one busy core.
            let per_core = (node.cpus.len() as f64 / node.cores.max(1.0)).max(1.0);
            let busy = here.iter().sum::<f64>() / per_core;
            let at_home: f64 = guests.iter().filter(|g| g.home == Some(i)).map(|g| g.demand - g.waited).sum();
            node.others = (busy - at_home).max(0.0);
        }
        // What floats runs somewhere: where pCPUs were not counted, evenly.
        if model.pcpus.is_empty() {
            let floating: f64 = guests.iter().filter(|g| g.home.is_none()).map(|g| g.demand).sum();
            let n = nodes.len().max(1) as f64;
            nodes.iter_mut().for_each(|node| node.others = floating / n);
        }
        let mut load = Load { nodes, guests, bunching: 1.0 };
        load.bunching = bunching(&load);
        load
    }

    /// Where every VM is at home.
    pub fn homes(&self) -> Vec<Option<usize>> {
        self.guests.iter().map(|g| g.home).collect()
    }

    /// Mean and deviation of how many cores are wanted of a node, with VMs at home as given, and its vCPUs.
    pub fn wanted(&self, node: usize, homes: &[Option<usize>]) -> Wanted {
        let mut sum = Wanted {
            mean: self.nodes[node].others,
            variance: 0.0,
            vcpus: 0.0,
            others: self.nodes[node].others,
        };
        for (guest, home) in self.guests.iter().zip(homes) {
            if *home == Some(node) {
                sum.add(guest, self.bunching);
            }
        }
        sum
    }

    /// Does a node have room for these?
    pub fn has_room(&self, node: usize, homes: &[Option<usize>]) -> bool {
        self.wanted(node, homes).most() <= self.nodes[node].cores + 1e-9 && self.memory_fits(node, homes)
    }

    /// Does the memory of those at home on a node fit there, as far as it is known?
    pub fn memory_fits(&self, node: usize, homes: &[Option<usize>]) -> bool {
        let Some(has) = self.nodes[node].memory_bytes else { return true };
        let here = self.guests.iter().zip(homes).filter(|(_, home)| **home == Some(node));
        here.map(|(g, _)| g.memory_bytes.unwrap_or(0)).sum::<u64>() <= has
    }

    /// What a node is asked for beyond its cores, on average, in cores: what is then ready.
    pub fn excess(&self, node: usize, homes: &[Option<usize>]) -> f64 {
        let wanted = self.wanted(node, homes);
        beyond(wanted.mean, wanted.deviation(), self.nodes[node].cores)
    }
}

/// How many cores are wanted at a time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Wanted {
    /// On average.
    pub mean: f64,
    /// Its variance.
    pub variance: f64,
    /// vCPUs in it.
    pub vcpus: f64,
    others: f64,
}

impl Wanted {
    pub(super) fn add(&mut self, guest: &Guest, bunching: f64) {
        let n = f64::from(guest.vcpus);
        self.mean += guest.demand;
        // However much they bunch, they are all together at most.
        self.variance += (bunching * guest.variance()).min(n * guest.variance());
        self.vcpus += n;
    }

    /// Its standard deviation.
    pub fn deviation(&self) -> f64 {
        libm::sqrt(self.variance.max(0.0))
    }

    /// What is wanted 99 times in 100, at most.
    pub fn most(&self) -> f64 {
        (self.mean + ROOM * self.deviation()).min((self.others + self.vcpus).max(self.mean))
    }
}

/// The mean of what a normal number is beyond `limit`: (m - c) F(z) + s f(z) with z = (m - c) / s.
fn beyond(mean: f64, deviation: f64, limit: f64) -> f64 {
    let over = mean - limit;
    if deviation <= 1e-9 {
        return over.max(0.0);
    }
    let z = over / deviation;
    let density = libm::exp(-0.5 * z * z) / libm::sqrt(2.0 * std::f64::consts::PI);
    let below = 0.5 * libm::erfc(-z / std::f64::consts::SQRT_2);
    (over * below + deviation * density).max(0.0)
}

/// The bunching by which what is wanted beyond the cores is what VMs at home waited.
fn bunching(load: &Load) -> f64 {
    let homes = load.homes();
    let waited: f64 = load.guests.iter().filter(|g| g.home.is_some()).map(|g| g.waited).sum();
    let told = |bunching: f64| -> f64 {
        let load = Load { bunching, ..load.clone() };
        (0..load.nodes.len()).map(|i| load.excess(i, &homes)).sum()
    };
    let (mut low, mut high) = (1.0, BUNCHING_MOST);
    if told(low) >= waited {
        return low;
    }
    for _ in 0..60 {
        let middle = 0.5 * (low + high);
        if told(middle) < waited { low = middle } else { high = middle }
    }
    high
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(crate) fn guest(name: &str, vcpus: u32, demand: f64, waited: f64, home: usize) -> Guest {
        Guest {
            vm: VmId(name.into()),
            name: name.into(),
            vcpus,
            demand,
            waited,
            home: Some(home),
            memory_bytes: None,
        }
    }

    pub(crate) fn host(nodes: usize, cores: f64, guests: Vec<Guest>) -> Load {
        let node = |i: usize| Node {
            id: NodeId(i as u32),
            cpus: CpuSet::new(),
            cores,
            memory_bytes: None,
            others: 0.0,
        };
        let mut load = Load { nodes: (0..nodes).map(node).collect(), guests, bunching: 1.0 };
        load.bunching = bunching(&load);
        load
    }

    #[test]
    fn a_normal_number_beyond_a_limit() {
        // The unit normal loss at 0 is 1 / sqrt(2 pi), at 1 it is 0.083315.
        assert!((beyond(5.0, 1.0, 5.0) - 0.398_942).abs() < 1e-6);
        assert!((beyond(4.0, 1.0, 5.0) - 0.083_315).abs() < 1e-6);
        assert!((beyond(9.0, 0.0, 5.0) - 4.0).abs() < 1e-12);
        assert!((beyond(105.0, 1.0, 5.0) - 100.0).abs() < 1e-9);
    }

    /// The paper's table: 14.2 cores wanted of 18, 0.85 waited for. Independent vCPUs would have waited a fifth of that.
    #[test]
    fn bunching_is_what_was_waited() {
        let four = |home: [usize; 4]| {
            [(3.336, 0.235), (2.990, 0.189), (3.155, 0.207), (3.129, 0.217)]
                .iter()
                .zip(home)
                .map(|((run, ready), home)| guest("", 12, run + ready, *ready, home))
                .collect::<Vec<_>>()
        };
        let load = host(2, 18.0, four([0; 4]));
        assert!((load.excess(0, &load.homes()) - 0.848).abs() < 1e-3);
        assert!((2.0..6.0).contains(&load.bunching), "{}", load.bunching);
        assert!(!load.has_room(0, &load.homes()));
        let three = [Some(0), Some(0), Some(0), Some(1)];
        assert!(!load.has_room(0, &three), "{:?}", load.wanted(0, &three));
        let two = [Some(0), Some(0), Some(1), Some(1)];
        assert!(load.has_room(0, &two) && load.has_room(1, &two), "{:?}", load.wanted(0, &two));
        assert!(load.excess(0, &two) < 0.02);
    }

    #[test]
    fn vcpus_up_to_the_cores_have_room_however_busy() {
        let load = host(1, 4.0, vec![guest("a", 4, 3.9, 0.0, 0)]);
        assert!(load.has_room(0, &load.homes()));
    }
}
