//! What is this machine made of: which CPUs share a core, a cache, a memory node, a socket?
//!
//! The idea: the machine is a value. Each part (package, core, cache, node) is a set of pCPUs with what is known
//! about it; a backend passes on what it read ([`Parts`]) and [`Topology::new`] makes it coherent. After that
//! every online pCPU lies in exactly one core and one package and in at most one node and one cache per level and
//! kind, so that placement need not check. What had to be supplied (a kernel that names no cores) is marked
//! `assumed`; what contradicted itself is left out and listed in [`Topology::oddities`].
//!
//! Sources: the kernel's `Documentation/admin-guide/cputopology.rst`, `Documentation/ABI/stable/sysfs-devices-node`
//! and `Documentation/admin-guide/mm/numaperf.rst` (6.12); the rules for overlapping nodes and for the place of nodes
//! without CPUs are hwloc's (`hwloc/topology-linux.c`, `look_sysfsnode`, 2.9.0), against which they are tested.
//!
//! Left out: devices and their locality, memory-side caches, page sizes, latencies and bandwidths of memory (HMAT).

use crate::cpuset::CpuSet;
use crate::{Fault, FaultKind};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

pub use machine::{hybrid, machine};

mod coherence;
mod machine;
#[cfg(test)]
mod tests;

/// The kernel's number of a NUMA node; numbers may have holes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct NodeId(pub u32);

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A socket: the physical processor package.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Package {
    /// The firmware's number, where it gives one; not always unique, and with holes.
    pub id: Option<u32>,
    /// Its online pCPUs.
    pub cpus: CpuSet,
    /// True when the machine did not say so.
    #[serde(default)]
    pub assumed: bool,
}

/// What a [`Group`] is, from the widest to the narrowest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GroupKind {
    /// s390: a drawer of books.
    Drawer,
    /// s390: a book of packages.
    Book,
    /// A die inside a package.
    Die,
    /// Cores that share something between core and die (Arm's L3 tags, x86's shared L2).
    Cluster,
}

/// A level between machine and core that not every machine has; kept only where it differs from its neighbours.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    /// Kind of the group.
    pub kind: GroupKind,
    /// The firmware's number, where it gives one.
    pub id: Option<u32>,
    /// Its online pCPUs.
    pub cpus: CpuSet,
}

/// The kind of a core on a machine that has several.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CoreKind {
    /// Intel Core (P-core).
    Performance,
    /// Intel Atom (E-core).
    Efficiency,
    /// Intel's low-power E-core, on a die of its own.
    LowPower,
}

/// A core: what executes; its pCPUs (hyper-threads) share its execution units.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Core {
    /// The firmware's number, where it gives one; unique at most inside a package.
    pub id: Option<u32>,
    /// Its online pCPUs, the threads.
    pub cpus: CpuSet,
    /// The kind, where the machine names kinds.
    #[serde(default)]
    pub kind: Option<CoreKind>,
    /// How much it computes at its highest frequency, of 1,024 for the machine's strongest core (`cpu_capacity`).
    #[serde(default)]
    pub capacity: Option<u32>,
    /// The highest frequency the hardware claims.
    #[serde(default)]
    pub frequency_max_khz: Option<u64>,
    /// The guaranteed frequency, where the driver names it (intel_pstate).
    #[serde(default)]
    pub frequency_base_khz: Option<u64>,
    /// True when the machine did not say so.
    #[serde(default)]
    pub assumed: bool,
}

/// What a cache holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CacheKind {
    /// Data alone.
    Data,
    /// Instructions alone.
    Instruction,
    /// Both.
    Unified,
}

/// One cache and who shares it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cache {
    /// 1 is nearest the core.
    pub level: u8,
    /// What it holds.
    pub kind: CacheKind,
    /// Its size.
    pub size_bytes: Option<u64>,
    /// The online pCPUs that share it.
    pub cpus: CpuSet,
}

/// A memory node, with or without CPUs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NumaNode {
    /// The kernel's number.
    pub id: NodeId,
    /// The online pCPUs that belong to it; empty for memory without CPUs (HBM, CXL, persistent memory).
    pub cpus: CpuSet,
    /// The online pCPUs nearest to its memory: its own and those the firmware calls its initiators; for a node
    /// without either, those of the nodes at the least distance. Empty where nothing tells. Leave it empty and
    /// [`Topology::new`] fills it in.
    #[serde(default)]
    pub nearest_cpus: CpuSet,
    /// Its memory; `None` where the kernel does not say.
    pub memory_bytes: Option<u64>,
    /// The relative distance to each node (10 is itself), as the firmware's SLIT has it.
    #[serde(default)]
    pub distances: BTreeMap<NodeId, u32>,
    /// The nodes whose CPUs reach this memory fastest (HMAT), where the firmware says.
    #[serde(default)]
    pub initiators: Vec<NodeId>,
    /// The PCI address of the GPU whose memory this is: no place for a VM.
    #[serde(default)]
    pub gpu: Option<String>,
    /// May the observed process take memory from it (cgroup cpuset)?
    pub allowed: bool,
    /// True when the machine has no NUMA information and this is its whole memory.
    #[serde(default)]
    pub assumed: bool,
}

/// Something the machine said that cannot be so, and what was made of it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Oddity {
    /// The file or part concerned.
    pub place: String,
    /// What is odd, and what was done.
    pub what: String,
}

/// What a backend read about a machine, before it is made coherent; also the stored form.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Parts {
    /// Every pCPU that exists.
    pub present: CpuSet,
    /// Those that run.
    pub online: CpuSet,
    /// Those that the observed process's cgroup cpuset permits, offline ones perhaps among them.
    pub allowed: CpuSet,
    /// The machine's memory, where it is known apart from the nodes.
    pub memory_bytes: Option<u64>,
    /// Sockets.
    pub packages: Vec<Package>,
    /// Drawers, books, dies, clusters.
    pub groups: Vec<Group>,
    /// Cores.
    pub cores: Vec<Core>,
    /// Caches.
    pub caches: Vec<Cache>,
    /// Memory nodes.
    pub nodes: Vec<NumaNode>,
    /// What was odd so far.
    pub oddities: Vec<Oddity>,
}

/// One logical CPU (pCPU) and its state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Thread<'a> {
    /// The kernel's number.
    pub cpu: u32,
    /// Does it run?
    pub online: bool,
    /// Does the cgroup cpuset permit it?
    pub allowed: bool,
    /// Its core; `None` while it is offline.
    pub core: Option<&'a Core>,
}

/// A machine's parts, coherent: see the module for what holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Parts", into = "Parts")]
pub struct Topology {
    parts: Parts,
    /// Per pCPU number, the places of its parts in the lists above: the queries are asked in placement's inner loop.
    places: Vec<Place>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Place {
    core: Option<u32>,
    package: Option<u32>,
    node: Option<u32>,
    llc: Option<u32>,
}

impl Topology {
    /// Makes `parts` coherent.
    ///
    /// # Errors
    /// `BadInput` when no CPU is online. Every lesser contradiction becomes an [`Oddity`].
    pub fn new(parts: Parts) -> Result<Topology, Fault> {
        let parts = coherence::settle(parts)?;
        let places = places(&parts);
        Ok(Topology { parts, places })
    }

    /// Every pCPU that exists.
    pub fn present(&self) -> &CpuSet {
        &self.parts.present
    }

    /// The pCPUs that run.
    pub fn online(&self) -> &CpuSet {
        &self.parts.online
    }

    /// The pCPUs that exist and do not run.
    pub fn offline(&self) -> CpuSet {
        self.parts.present.difference(&self.parts.online)
    }

    /// The pCPUs that the observed process's cgroup cpuset permits, whether or not they run.
    pub fn allowed(&self) -> &CpuSet {
        &self.parts.allowed
    }

    /// The pCPUs that run and are permitted: where something can be placed.
    pub fn usable(&self) -> CpuSet {
        self.parts.online.intersection(&self.parts.allowed)
    }

    /// The machine's memory: as it says, else the sum of the nodes.
    pub fn memory_bytes(&self) -> Option<u64> {
        let nodes = || self.nodes().iter().map(|n| n.memory_bytes).try_fold(0u64, |a, b| a.checked_add(b?));
        self.parts.memory_bytes.or_else(nodes)
    }

    /// Sockets, by their first pCPU.
    pub fn packages(&self) -> &[Package] {
        &self.parts.packages
    }

    /// Drawers, books, dies and clusters where they are distinct, by kind and first pCPU.
    pub fn groups(&self) -> &[Group] {
        &self.parts.groups
    }

    /// The dies, where they are not the packages themselves.
    pub fn dies(&self) -> impl Iterator<Item = &Group> {
        self.parts.groups.iter().filter(|g| g.kind == GroupKind::Die)
    }

    /// Cores, by their first pCPU.
    pub fn cores(&self) -> &[Core] {
        &self.parts.cores
    }

    /// Caches, by level, kind and first pCPU.
    pub fn caches(&self) -> &[Cache] {
        &self.parts.caches
    }

    /// Memory nodes by number.
    pub fn nodes(&self) -> &[NumaNode] {
        &self.parts.nodes
    }

    /// What contradicted itself or could not be read.
    pub fn oddities(&self) -> &[Oddity] {
        &self.parts.oddities
    }

    /// Every pCPU with its state, by number.
    pub fn threads(&self) -> impl Iterator<Item = Thread<'_>> {
        self.parts.present.iter().map(|cpu| Thread {
            cpu,
            online: self.parts.online.contains(cpu),
            allowed: self.parts.allowed.contains(cpu),
            core: self.core_of(cpu),
        })
    }

    /// The core of an online pCPU.
    pub fn core_of(&self, cpu: u32) -> Option<&Core> {
        self.parts.cores.get(self.place(cpu)?.core? as usize)
    }

    /// The pCPUs of `cpu`'s core, itself among them; empty when it is offline or unknown.
    pub fn siblings(&self, cpu: u32) -> CpuSet {
        self.core_of(cpu).map(|c| c.cpus.clone()).unwrap_or_default()
    }

    /// The package of an online pCPU.
    pub fn package_of(&self, cpu: u32) -> Option<&Package> {
        self.parts.packages.get(self.place(cpu)?.package? as usize)
    }

    /// The memory node an online pCPU belongs to; `None` also where the kernel puts it in no node.
    pub fn node_of(&self, cpu: u32) -> Option<&NumaNode> {
        self.parts.nodes.get(self.place(cpu)?.node? as usize)
    }

    /// The node of that number.
    pub fn node(&self, id: NodeId) -> Option<&NumaNode> {
        self.parts.nodes.iter().find(|n| n.id == id)
    }

    /// The last-level cache of an online pCPU: the highest level that holds data; `None` where no cache is known.
    pub fn llc_of(&self, cpu: u32) -> Option<&Cache> {
        self.parts.caches.get(self.place(cpu)?.llc? as usize)
    }

    /// The relative distance between two nodes (10 is itself), where the firmware says.
    pub fn distance(&self, from: NodeId, to: NodeId) -> Option<u32> {
        self.node(from)?.distances.get(&to).copied()
    }

    fn place(&self, cpu: u32) -> Option<Place> {
        self.places.get(cpu as usize).copied()
    }
}

impl TryFrom<Parts> for Topology {
    type Error = Fault;

    fn try_from(parts: Parts) -> Result<Self, Fault> {
        Topology::new(parts)
    }
}

impl From<Topology> for Parts {
    fn from(topology: Topology) -> Parts {
        topology.parts
    }
}

fn places(parts: &Parts) -> Vec<Place> {
    let mut places = vec![Place::default(); parts.online.iter().last().map_or(0, |c| c as usize + 1)];
    let mut put = |cpus: &CpuSet, set: &dyn Fn(&mut Place)| {
        cpus.iter().for_each(|c| places.get_mut(c as usize).into_iter().for_each(set));
    };
    for (i, core) in (0u32..).zip(&parts.cores) {
        put(&core.cpus, &|p| p.core = Some(i));
    }
    for (i, package) in (0u32..).zip(&parts.packages) {
        put(&package.cpus, &|p| p.package = Some(i));
    }
    for (i, node) in (0u32..).zip(&parts.nodes) {
        put(&node.cpus, &|p| p.node = Some(i));
    }
    // Caches are sorted by level: the last that holds data stays.
    for (i, cache) in (0u32..).zip(&parts.caches).filter(|(_, c)| c.kind != CacheKind::Instruction) {
        put(&cache.cpus, &|p| p.llc = Some(i));
    }
    places
}

/// The fault of a machine without a CPU.
fn no_cpu() -> Fault {
    Fault::new(FaultKind::BadInput, "the machine's topology names no online CPU")
        .help("check that /sys and /proc of the machine are readable (or that the captured tree holds them)")
}
