//! How many virtual nodes and cores per socket should a VM have, and what does its ESXi make of that?
//!
//! **By the paper** ([`paper`]): J. Park 2022 (doi:10.6109/jkiice.2022.26.10.1432), its algorithm exactly as printed. It looks at
//! memory or at vCPUs, never at both, its quotient need not be whole, and its host is symmetric and empty.
//!
//! **The project's own** ([`advise`]): the fewest nodes on which both the vCPUs and the memory fit when spread evenly, with
//! as many vCPUs on each (so that their number divides), on the nodes with the most room. A node holds as many vCPUs as it
//! has cores; with `preferHT` as many as it has hyper-threads. Where no division fits, the next numbers of vCPUs that do are
//! named. One socket per node, for guests and licences count sockets.
//!
//! **What the guest is shown** ([`exposed`]) is another matter, and each version's own:
//! - CPU hot add switches vNUMA off (VMware KB 2040375).
//! - So does having fewer vCPUs than `numa.vcpu.min`, 9 unless set.
//! - up to 6.0: cores per socket above 1 are the size of a virtual node. At 1 there are as many nodes as the host's need, and
//!   no more than `numa.vcpu.maxPerVirtualNode`, 8 unless set, on one (vSphere Resource Management 6.0, "Virtual NUMA
//!   Controls").
//! - 6.5 to 7.x: the host's nodes decide, whatever the sockets (6.5, "Using Virtual NUMA"), unless
//!   `numa.vcpu.followcorespersocket` is 1.
//! - 8 and later: the same; the virtual topology lets it be set (`nodes` of the VM's settings), and picks cores per socket
//!   by itself where it is not.
//!
//! Left out: `numa.autosize`, `numa.vcpu.maxPerMachineNode`, caches smaller than a node (AMD's CCX), and vNUMA that a VM keeps
//! from the host on which it was first started. **Untried**: no ESXi was asked.

use serde::{Deserialize, Serialize};

/// Bytes of a GiB.
pub const GIB: f64 = 1_073_741_824.0;
/// GiB compare with this slack: hosts report a little less than they have.
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
    /// `7.0.2`, `6.5 U3`, `8`; also with words before it, as `VMware ESXi 7.0.2`.
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
    /// Of its cores, what others use on average.
    #[serde(default)]
    pub busy_cores: f64,
    /// Of its memory, what others have.
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

/// A VM and the settings that bear on it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct VmShape {
    /// Its vCPUs.
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
    /// Can a VM have so many?
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
/// Memory that is not known counts as fitting.
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

/// What the project advises.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Advice {
    /// This topology.
    Shape(Shape),
    /// None that is even: these numbers of vCPUs have one.
    OtherVcpus {
        /// Over how many nodes it must be spread at least.
        nodes: u32,
        /// The next smaller number of vCPUs that fits.
        fewer: Option<u32>,
        /// The next larger one.
        more: Option<u32>,
    },
    /// It is more than the host has.
    TooLarge {
        /// What there is too little of: `vCPUs` or `memory`.
        of: String,
    },
}

/// A VM's sockets.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Shape {
    /// Sockets, one for each node.
    pub sockets: u32,
    /// vCPUs of each.
    pub cores_per_socket: u32,
    /// The host's nodes that have most room for it, by number.
    pub on_nodes: Vec<usize>,
    /// Is there room on those now, beside what others use? Else it fits an empty host alone.
    pub has_room: bool,
}

/// How many vCPUs a node holds.
fn holds(host: &HostShape, node: &NodeShape, vm: &VmShape) -> u32 {
    node.cores * if vm.prefer_ht { host.threads_per_core.max(1) } else { 1 }
}

/// The nodes on which `vcpus` fit evenly by `k`, those with most room first; and whether they have it now.
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
    // Where memory is left comes before where cores are: memory is not shared in time.
    all.sort_by(|a, b| roomy(b).cmp(&roomy(a)).then(free(*b).total_cmp(&free(*a))).then(a.cmp(b)));
    all.truncate(k as usize);
    let has_room = all.iter().all(|i| roomy(i) && free(*i) >= f64::from(each) - 1e-9);
    Some((all, has_room))
}

/// The fewest nodes that could hold it if it could be divided at will.
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

/// The project's own rule.
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
    /// Virtual nodes; 1: it sees none.
    pub nodes: u32,
    /// By what rule.
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
            format!("ESXi's version is not known: taken as 6.5 or later, by nodes of {node} {of}"),
        );
    };
    let by_sockets = |why: &str| {
        let nodes = vm.vcpus.div_ceil(cores_per_socket.max(1));
        say(nodes, format!("{why}: {cores_per_socket} cores per socket are a virtual node"))
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
                    "up to ESXi 6.0, at 1 core per socket: {most} vCPUs at most on a virtual node (nodes of {node} {of}, \
                     numa.vcpu.maxPerVirtualNode = {})",
                    vm.max_per_virtual_node.unwrap_or(8)
                ),
            )
        }
        _ if vm.follow_cores_per_socket => by_sockets("numa.vcpu.followcorespersocket = 1"),
        Version { major, .. } => {
            let since = if major >= 8 { "from ESXi 8 on, not set by hand" } else { "ESXi 6.5 to 7.x" };
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
    /// What its guest is shown as it is set up.
    pub exposed_now: Exposed,
    /// And with the advice; `None` where there is none.
    pub exposed_then: Option<Exposed>,
    /// What was assumed.
    pub assumed: Vec<String>,
}

/// Asks both rules.
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
