//! How many virtual NUMA nodes and cores per socket should a VM have, and what does its ESXi version show the guest?
//!
//! **By the paper** ([`paper`]): J. Park 2022 (doi:10.6109/jkiice.2022.26.10.1432), its algorithm exactly as
//! printed. It considers memory or vCPUs, never both. Its quotient can be a fraction. It assumes a symmetric, empty
//! host.
//!
//! **The project's own** ([`advise`]): the fewest nodes on which both the vCPUs and the memory fit when spread
//! evenly, with as many vCPUs on each (so that their number divides), on the nodes with the most room. A node holds
//! as many vCPUs as it has cores; with `preferHT` as many as it has hyper-threads. If no number of nodes fits, it
//! names the next numbers of vCPUs that do. One socket per node, because guests and licences count sockets.
//!
//! **What the guest sees** ([`exposed`]) depends on the ESXi version:
//! - CPU hot add switches vNUMA off (VMware KB 2040375).
//! - So does having fewer vCPUs than `numa.vcpu.min`, 9 unless set.
//! - up to 6.0: cores per socket above 1 are the size of a virtual node. At 1 there are as many nodes as the host's
//!   need, and no more than `numa.vcpu.maxPerVirtualNode`, 8 unless set, on one (vSphere Resource Management 6.0,
//!   "Virtual NUMA Controls").
//! - 6.5 to 7.x: the host's nodes decide, whatever the sockets (6.5, "Using Virtual NUMA"), unless
//!   `numa.vcpu.followcorespersocket` is 1.
//! - 8 and later: the same; the virtual topology lets it be set (`nodes` of the VM's settings), and picks cores per
//!   socket by itself where it is not.
//!
//! Left out: `numa.autosize`, `numa.vcpu.maxPerMachineNode`, caches smaller than a node (AMD's CCX), and vNUMA that
//! a VM keeps from the host on which it was first started. **Untried** on ESXi.

use serde::{Deserialize, Serialize};

/// Bytes of a GiB.
pub const GIB: f64 = 1_073_741_824.0;
/// Slack when comparing GiB, because hosts report a little less memory than they have.
const SLACK_GIB: f64 = 1e-6;

/// A version of ESXi.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Version {
    /// `7` of 7.0.2.
    pub major: u32,
    /// `0`.
    pub minor: u32,
}

impl Version {
    /// Parses `7.0.2`, `6.5 U3`, `8`, also with words before it (`VMware ESXi 7.0.2`).
    pub fn parse(text: &str) -> Option<Version> {
        let digits = &text[text.find(|c: char| c.is_ascii_digit())?..];
        let mut parts = digits.split(|c: char| !c.is_ascii_digit()).map(str::parse);
        let major = parts.next()?.ok()?;
        let minor = parts.next().and_then(Result::ok).unwrap_or(0);
        (3..100).contains(&major).then_some(Version { major, minor })
    }
}

/// A node of a host.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct NodeShape {
    /// Its cores.
    pub cores: u32,
    /// Its memory, GiB; `None` where that is not known.
    pub memory_gib: Option<f64>,
    /// Cores that other VMs use on average.
    #[serde(default)]
    pub busy_cores: f64,
    /// Memory of other VMs, GiB.
    #[serde(default)]
    pub used_gib: f64,
}

/// A host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HostShape {
    /// Its nodes.
    pub nodes: Vec<NodeShape>,
    /// Sockets: the paper divides by them.
    pub sockets: u32,
    /// Hyper-threads of a core.
    pub threads_per_core: u32,
    /// Its ESXi; `None` where it is not known.
    pub esxi: Option<Version>,
}

/// A VM and its settings that matter here.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct VmShape {
    /// Number of vCPUs.
    pub vcpus: u32,
    /// Its memory, GiB; `None` where that is not known.
    pub memory_gib: Option<f64>,
    /// Cores per socket that it has now; `None`: 1.
    pub cores_per_socket: Option<u32>,
    /// CPU hot add.
    pub hot_add: bool,
    /// `numa.vcpu.preferHT`.
    pub prefer_ht: bool,
    /// `numa.vcpu.min`; `None`: 9.
    pub vcpu_min: Option<u32>,
    /// `numa.vcpu.maxPerVirtualNode`, up to ESXi 6.0; `None`: 8.
    pub max_per_virtual_node: Option<u32>,
    /// `numa.vcpu.followcorespersocket`, from ESXi 6.5 on.
    pub follow_cores_per_socket: bool,
}

impl VmShape {
    /// A VM without settings of its own.
    pub fn new(vcpus: u32, memory_gib: Option<f64>) -> VmShape {
        VmShape {
            vcpus,
            memory_gib,
            cores_per_socket: None,
            hot_add: false,
            prefer_ht: false,
            vcpu_min: None,
            max_per_virtual_node: None,
            follow_cores_per_socket: false,
        }
    }
}

/// Cores per socket by the paper's algorithm.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ByPaper {
    /// As it divides; not always whole.
    pub cores_per_socket: f64,
    /// By how many it divides.
    pub parts: u32,
    /// Whether a VM can have this number (a whole number).
    pub is_whole: bool,
}

/// J. Park 2022's algorithm, line by line:
///
/// ```text
/// node_memory = host memory / sockets; cores_per_socket = host cores / sockets
/// if vm.memory <= node_memory:
///     if vm.vcpus <= cores_per_socket: vm.cores_per_socket = vm.vcpus
///     else:                            vm.cores_per_socket = vm.vcpus / ceil(vm.vcpus / cores_per_socket)
/// else:                                vm.cores_per_socket = vm.vcpus / ceil(vm.memory / node_memory)
/// ```
///
/// Unknown memory counts as fitting.
pub fn paper(host: &HostShape, vm: &VmShape) -> ByPaper {
    let sockets = f64::from(host.sockets.max(1));
    let memory: Option<f64> = host.nodes.iter().map(|n| n.memory_gib).sum();
    let cores_per_socket = host.nodes.iter().map(|n| f64::from(n.cores)).sum::<f64>() / sockets;
    let vcpus = f64::from(vm.vcpus);
    let parts = match (memory.map(|m| m / sockets), vm.memory_gib) {
        (Some(node), Some(wants)) if wants > node + SLACK_GIB => libm::ceil(wants / node - SLACK_GIB),
        _ if vcpus <= cores_per_socket => 1.0,
        _ => libm::ceil(vcpus / cores_per_socket),
    };
    let cores_per_socket = vcpus / parts;
    ByPaper {
        cores_per_socket,
        parts: parts as u32,
        is_whole: libm::trunc(cores_per_socket) == cores_per_socket,
    }
}

/// Advice of vsteer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Advice {
    /// This topology.
    Shape(Shape),
    /// No even topology exists. These numbers of vCPUs have one.
    OtherVcpus {
        /// Least number of nodes.
        nodes: u32,
        /// The next smaller number of vCPUs that fits.
        fewer: Option<u32>,
        /// The next larger one.
        more: Option<u32>,
    },
    /// The VM is larger than the host.
    TooLarge {
        /// What the host lacks: `vCPUs` or `memory`.
        of: String,
    },
}

/// A VM's sockets.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Shape {
    /// Sockets, one for each node.
    pub sockets: u32,
    /// vCPUs per socket.
    pub cores_per_socket: u32,
    /// Host nodes with the most room for the VM, by number.
    pub on_nodes: Vec<usize>,
    /// Whether these nodes have room now, next to the other VMs' use. If not, the VM fits only an empty host.
    pub has_room: bool,
}

/// Number of vCPUs that a node holds.
fn holds(host: &HostShape, node: &NodeShape, vm: &VmShape) -> u32 {
    node.cores * if vm.prefer_ht { host.threads_per_core.max(1) } else { 1 }
}

/// The `k` nodes on which `vcpus` fit evenly, most room first, and whether they have room now.
fn evenly(host: &HostShape, vm: &VmShape, vcpus: u32, k: u32) -> Option<(Vec<usize>, bool)> {
    if !vcpus.is_multiple_of(k) {
        return None;
    }
    let (each, memory) = (vcpus / k, vm.memory_gib.map(|m| m / f64::from(k)));
    let fits = |n: &NodeShape, used_gib: f64| {
        let enough = |has: f64| memory.is_none_or(|m| m <= has - used_gib + SLACK_GIB);
        each <= holds(host, n, vm) && n.memory_gib.is_none_or(enough)
    };
    let mut all: Vec<usize> = (0..host.nodes.len()).filter(|i| fits(&host.nodes[*i], 0.0)).collect();
    if all.len() < k as usize {
        return None;
    }
    let free = |i: usize| f64::from(holds(host, &host.nodes[i], vm)) - host.nodes[i].busy_cores;
    let roomy = |i: &usize| fits(&host.nodes[*i], host.nodes[*i].used_gib);
    // Free memory counts before free cores, because memory cannot be shared in time.
    all.sort_by(|a, b| roomy(b).cmp(&roomy(a)).then(free(*b).total_cmp(&free(*a))).then(a.cmp(b)));
    all.truncate(k as usize);
    let has_room = all.iter().all(|i| roomy(i) && free(*i) >= f64::from(each) - 1e-9);
    Some((all, has_room))
}

/// Least number of nodes that could hold the VM with any division.
fn at_least(host: &HostShape, vm: &VmShape) -> Option<u32> {
    let mut vcpus: Vec<u32> = host.nodes.iter().map(|n| holds(host, n, vm)).collect();
    vcpus.sort_unstable_by(|a, b| b.cmp(a));
    let mut memory: Vec<Option<f64>> = host.nodes.iter().map(|n| n.memory_gib).collect();
    memory.sort_by(|a, b| b.unwrap_or(f64::INFINITY).total_cmp(&a.unwrap_or(f64::INFINITY)));
    (1..=host.nodes.len())
        .find(|k| {
            let cpus: u32 = vcpus[..*k].iter().sum();
            let has: Option<f64> = memory[..*k].iter().copied().sum();
            let fits = vm.memory_gib.zip(has).is_none_or(|(wants, has)| wants <= has + SLACK_GIB);
            vm.vcpus <= cpus && fits
        })
        .map(|k| k as u32)
}

/// The advice of vsteer.
pub fn advise(host: &HostShape, vm: &VmShape) -> Advice {
    let n = host.nodes.len() as u32;
    let shape = |vcpus: u32| (1..=n).find_map(|k| Some((k, evenly(host, vm, vcpus, k)?)));
    if let Some((k, (on_nodes, has_room))) = shape(vm.vcpus) {
        return Advice::Shape(Shape { sockets: k, cores_per_socket: vm.vcpus / k, on_nodes, has_room });
    }
    let Some(nodes) = at_least(host, vm) else {
        let cpus: u32 = host.nodes.iter().map(|n| holds(host, n, vm)).sum();
        return Advice::TooLarge { of: if vm.vcpus > cpus { "vCPUs" } else { "memory" }.to_owned() };
    };
    let most: u32 = host.nodes.iter().map(|n| holds(host, n, vm)).sum();
    let fits = |vcpus: &u32| shape(*vcpus).is_some();
    Advice::OtherVcpus {
        nodes,
        fewer: (1..vm.vcpus).rev().find(fits),
        more: (vm.vcpus + 1..=most).find(fits),
    }
}

/// What the guest is shown.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Exposed {
    /// Number of virtual nodes; 1: the guest sees no NUMA.
    pub nodes: u32,
    /// The rule that decides.
    pub because: String,
}

/// Virtual nodes that a VM of `cores_per_socket` is shown.
pub fn exposed(host: &HostShape, vm: &VmShape, cores_per_socket: u32) -> Exposed {
    let say = |nodes: u32, because: String| Exposed { nodes: nodes.max(1), because };
    let min = vm.vcpu_min.unwrap_or(9);
    if vm.hot_add {
        return say(1, "CPU hot add switches vNUMA off (KB 2040375)".into());
    }
    if vm.vcpus < min {
        return say(1, format!("{} vCPUs are fewer than numa.vcpu.min = {min}", vm.vcpus));
    }
    let node = host.nodes.iter().map(|n| holds(host, n, vm)).min().unwrap_or(1).max(1);
    let of = if vm.prefer_ht { "threads (preferHT)" } else { "cores" };
    let Some(version) = host.esxi else {
        return say(
            vm.vcpus.div_ceil(node),
            format!("ESXi version unknown, assumed 6.5 or later: nodes of {node} {of} decide"),
        );
    };
    let by_sockets = |why: &str| {
        let nodes = vm.vcpus.div_ceil(cores_per_socket.max(1));
        say(nodes, format!("{why}: each virtual node has {cores_per_socket} cores, the cores per socket"))
    };
    match version {
        Version { major, minor } if major < 6 || (major, minor) < (6, 5) => {
            if cores_per_socket > 1 {
                return by_sockets("up to ESXi 6.0");
            }
            let most = vm.max_per_virtual_node.unwrap_or(8).min(node);
            say(
                vm.vcpus.div_ceil(most.max(1)),
                format!(
                    "up to ESXi 6.0, at 1 core per socket: at most {most} vCPUs per virtual node (nodes of \
                        {node} {of}, numa.vcpu.maxPerVirtualNode = {})",
                    vm.max_per_virtual_node.unwrap_or(8)
                ),
            )
        }
        _ if vm.follow_cores_per_socket => by_sockets("numa.vcpu.followcorespersocket = 1"),
        Version { major, .. } => {
            let since = if major >= 8 {
                "from ESXi 8 on, without a manual setting"
            } else {
                "ESXi 6.5 to \
                7.x"
            };
            say(
                vm.vcpus.div_ceil(node),
                format!("{since}: the host's nodes of {node} {of} decide, not cores per socket"),
            )
        }
    }
}

/// Everything about one VM.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// The paper's.
    pub paper: ByPaper,
    /// The project's.
    pub own: Advice,
    /// Do the two differ?
    pub differs: bool,
    /// What the guest sees with the present settings.
    pub exposed_now: Exposed,
    /// What the guest would see with the advice; `None` without advice.
    pub exposed_then: Option<Exposed>,
    /// Assumptions.
    pub assumed: Vec<String>,
}

/// Applies both rules.
pub fn answer(host: &HostShape, vm: &VmShape) -> Answer {
    let (paper, own) = (paper(host, vm), advise(host, vm));
    let differs = match &own {
        Advice::Shape(s) => paper.cores_per_socket != f64::from(s.cores_per_socket),
        _ => true,
    };
    let mut assumed = Vec::new();
    let mut assume = |unless: bool, what: &str| {
        if !unless {
            assumed.push(what.to_owned());
        }
    };
    assume(host.esxi.is_some(), "ESXi 6.5 or later");
    assume(vm.vcpu_min.is_some(), "numa.vcpu.min = 9");
    assume(vm.prefer_ht || host.threads_per_core < 2, "preferHT is off: a core counts once");
    assume(vm.cores_per_socket.is_some(), "1 core per socket now");
    assume(
        vm.memory_gib.is_some() && host.nodes.iter().all(|n| n.memory_gib.is_some()),
        "memory fits a node",
    );
    let exposed_then = match &own {
        Advice::Shape(s) => Some(exposed(host, vm, s.cores_per_socket)),
        _ => None,
    };
    Answer {
        exposed_now: exposed(host, vm, vm.cores_per_socket.unwrap_or(1)),
        exposed_then,
        paper,
        own,
        differs,
        assumed,
    }
}
