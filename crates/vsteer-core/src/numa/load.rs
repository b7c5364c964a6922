//! How many cores do the VMs of each NUMA node want, and does the node have them?
//!
//! The demand of a VM is run + ready + co-stop, in cores. This is its mean, but vCPUs also want cores at the same
//! time. So the number of wanted cores is modelled as a normal random number. For independent vCPUs its variance is
//! the sum of p (1 - p), where p is a vCPU's demand. vCPUs of one program wake together, which multiplies the
//! variance by their *bunching*. The bunching is fitted, so that the demand beyond the cores equals the measured
//! ready time ([`bunching`]).
//!
//! A node **has room** if its cores suffice 99 times in 100 (mean plus 2.33 deviations). Up to one vCPU per core
//! always has room.
//!
//! Left out: hyper-threads (a core counts once), caches, and a bunching per VM. `GAP(node-tails)`: a normal
//! distribution has a thin tail, so the forecast is too small if bursts are rare and long.

use super::ties::{self, Tie};
use crate::CpuSet;
use crate::model::{HostModel, VmModel};
use crate::nouns::{HostConfig, VmConfig, VmId};
use crate::topology::{NodeId, NumaNode, Topology};

/// The 0.99 quantile of the normal distribution, in deviations above the mean.
const ROOM: f64 = 2.326;
/// Largest bunching. If more were needed, something else makes the vCPUs wait.
const BUNCHING_MOST: f64 = 64.0;

/// A NUMA node with cores.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// Number of the node.
    pub id: NodeId,
    /// pCPUs of the node.
    pub cpus: CpuSet,
    /// Number of cores.
    pub cores: f64,
    /// Memory, bytes; `None`: unknown.
    pub memory_bytes: Option<u64>,
    /// Cores used by work other than VMs with a home node.
    pub others: f64,
}

/// A VM as far as NUMA nodes matter.
#[derive(Debug, Clone, PartialEq)]
pub struct Guest {
    /// Id of the VM.
    pub vm: VmId,
    /// Name of the VM.
    pub name: String,
    /// Number of vCPUs.
    pub vcpus: u32,
    /// Demand, cores: run, ready and co-stop.
    pub demand: f64,
    /// Part of the demand that the VM did not get, cores.
    pub waited: f64,
    /// Home node, as index of [`Load::nodes`]; `None`: several or unknown.
    pub home: Option<usize>,
    /// Its memory, bytes.
    pub memory_bytes: Option<u64>,
    /// Memory and devices that a move would leave behind.
    pub ties: Vec<Tie>,
}

impl Guest {
    /// May its vCPUs move to this node without leaving memory or a device behind?
    pub fn may_move_to(&self, node: NodeId) -> bool {
        ties::against(&self.ties, node).is_none()
    }

    /// Variance that independent vCPUs would add to the number of wanted cores.
    pub fn variance(&self) -> f64 {
        let n = f64::from(self.vcpus.max(1));
        let p = (self.demand / n).clamp(0.0, 1.0);
        n * p * (1.0 - p)
    }
}

/// A host's NUMA nodes and VMs.
#[derive(Debug, Clone, PartialEq)]
pub struct Load {
    /// Nodes with cores, by number.
    pub nodes: Vec<Node>,
    /// VMs, in the order of the configuration.
    pub guests: Vec<Guest>,
    /// Factor on the variance of independent vCPUs, at least 1.
    pub bunching: f64,
}

/// Node of all vCPUs of a VM, by their affinity or by the hypervisor's home node.
pub fn home<'a>(topology: &'a Topology, vm: &VmConfig) -> Option<&'a NumaNode> {
    let mut nodes = topology.nodes().iter().filter(|n| !n.cpus.is_empty());
    if let Some(kept) = vm.vsphere.as_ref().and_then(|v| v.home_nodes.as_ref().or(v.node_affinity.as_ref())) {
        return nodes.find(|n| *kept == CpuSet::single(n.id.0));
    }
    let mut vcpus = vm.vcpus().peekable();
    vcpus.peek()?;
    nodes.find(|n| vm.vcpus().all(|t| !t.affinity.is_empty() && t.affinity.is_subset(&n.cpus)))
}

/// Demand of a VM and the part that it waited for, cores. Limited time is left out, because no move changes it.
fn wants(vm: &VmModel) -> (f64, f64) {
    // Other worlds of the group also want cores of the node.
    let shares = &vm.group;
    let waited = shares.ready.or(shares.wait).unwrap_or(0.0) + shares.costop.unwrap_or(0.0);
    (shares.run.unwrap_or(0.0) + waited, waited)
}

impl Load {
    /// The load of an observed host.
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
                let seen = model.vm(&vm.id)?;
                let (demand, waited) = wants(seen);
                let at = home(topology, vm).and_then(|h| nodes.iter().position(|n| n.id == h.id));
                Some(Guest {
                    vm: vm.id.clone(),
                    name: seen.name.clone(),
                    vcpus: vm.vcpu_count() as u32,
                    demand,
                    waited,
                    home: at,
                    memory_bytes: vm.memory_bytes,
                    ties: ties::of(topology, vm, Some(seen)),
                })
            })
            .collect();
        for (i, node) in nodes.iter_mut().enumerate() {
            let here: Vec<f64> =
                model.pcpus.iter().filter(|p| node.cpus.contains(p.cpu)).map(|p| p.busy).collect();
            // Busy hyper-threads of one core count as one busy core.
            let per_core = (node.cpus.len() as f64 / node.cores.max(1.0)).max(1.0);
            let busy = here.iter().sum::<f64>() / per_core;
            let at_home: f64 = guests.iter().filter(|g| g.home == Some(i)).map(|g| g.demand - g.waited).sum();
            node.others = (busy - at_home).max(0.0);
        }
        // If pCPUs were not counted, VMs without a home spread evenly over the nodes.
        if model.pcpus.is_empty() {
            let floating: f64 = guests.iter().filter(|g| g.home.is_none()).map(|g| g.demand).sum();
            let n = nodes.len().max(1) as f64;
            nodes.iter_mut().for_each(|node| node.others = floating / n);
        }
        let mut load = Load { nodes, guests, bunching: 1.0 };
        load.bunching = bunching(&load);
        load
    }

    /// Home node of every VM.
    pub fn homes(&self) -> Vec<Option<usize>> {
        self.guests.iter().map(|g| g.home).collect()
    }

    /// Demand on a node if the VMs are at home on these nodes.
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

    /// Does a node have room if the VMs are at home on these nodes?
    pub fn has_room(&self, node: usize, homes: &[Option<usize>]) -> bool {
        self.wanted(node, homes).most() <= self.nodes[node].cores + 1e-9 && self.memory_fits(node, homes)
    }

    /// Does the known memory of the VMs at home on a node fit there?
    pub fn memory_fits(&self, node: usize, homes: &[Option<usize>]) -> bool {
        let Some(has) = self.nodes[node].memory_bytes else { return true };
        let here = self.guests.iter().zip(homes).filter(|(_, home)| **home == Some(node));
        here.map(|(g, _)| g.memory_bytes.unwrap_or(0)).sum::<u64>() <= has
    }

    /// Mean demand on a node beyond its cores, in cores. This is the expected ready time.
    pub fn excess(&self, node: usize, homes: &[Option<usize>]) -> f64 {
        let wanted = self.wanted(node, homes);
        beyond(wanted.mean, wanted.deviation(), self.nodes[node].cores)
    }
}

/// Number of cores wanted at the same time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Wanted {
    /// Mean, cores.
    pub mean: f64,
    /// Variance, cores squared.
    pub variance: f64,
    /// Number of vCPUs.
    pub vcpus: f64,
    others: f64,
}

impl Wanted {
    pub(super) fn add(&mut self, guest: &Guest, bunching: f64) {
        let n = f64::from(guest.vcpus);
        self.mean += guest.demand;
        // Even with full bunching, at most all vCPUs of the VM want cores together.
        self.variance += (bunching * guest.variance()).min(n * guest.variance());
        self.vcpus += n;
    }

    /// Standard deviation, cores.
    pub fn deviation(&self) -> f64 {
        libm::sqrt(self.variance.max(0.0))
    }

    /// 99th percentile, cores.
    pub fn most(&self) -> f64 {
        (self.mean + ROOM * self.deviation()).min((self.others + self.vcpus).max(self.mean))
    }
}

/// Mean excess of a normal number over `limit`: (m - c) F(z) + s f(z) with z = (m - c) / s.
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

/// The bunching for which the demand beyond the cores equals the measured waits of the VMs at home.
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
            ties: Vec::new(),
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

    /// The paper's table: 14.2 cores wanted of 18, 0.85 waited for. Independent vCPUs would have waited a fifth of
    /// that.
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
