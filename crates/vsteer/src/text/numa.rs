//! Formats advice on NUMA: demand of each node, the published flowchart's answer, vsteer's own, and sockets of each VM.

use super::{folded, one_line};
use serde::Serialize;
use vsteer_core::numa::flowchart::{End, Walk};
use vsteer_core::numa::moves::{Mend, Move};
use vsteer_core::numa::vnuma::{Advice, Answer, HostShape, VmShape};

/// A node and what it is asked for.
#[derive(Debug, Serialize)]
pub struct NodeLoad {
    pub node: u32,
    pub cores: f64,
    /// vCPUs at home on it.
    pub vcpus: f64,
    /// Cores wanted on average.
    pub wanted_mean: f64,
    /// And 99 times in 100 at most.
    pub wanted_most: f64,
    /// Is that within its cores?
    pub has_room: bool,
}

/// What is said of a host's nodes.
#[derive(Debug, Serialize)]
pub struct Nodes {
    pub nodes: Vec<NodeLoad>,
    /// How far vCPUs want cores together.
    pub bunching: f64,
    /// The published flowchart, by the letter, VM by VM.
    pub flowchart: Vec<Walk>,
    /// The project's own rule.
    pub mend: Mend,
    /// The VMs that its moves are of.
    pub vms: Vec<String>,
}

/// What is said of one VM's topology.
#[derive(Debug, Serialize)]
pub struct OfVm {
    pub vm: String,
    /// What was asked about.
    pub shape: VmShape,
    /// What both rules say.
    #[serde(flatten)]
    pub answer: Answer,
}

/// All of it.
pub fn numa(nodes: Option<&Nodes>, host: &HostShape, vms: &[OfVm]) -> String {
    let mut out = String::new();
    if let Some(nodes) = nodes {
        out.push_str(&loads(nodes));
        out.push_str(&flowchart(nodes));
        out.push_str(&own_rule(nodes));
        out.push('\n');
    }
    out.push_str(&shapes(host, vms, nodes.is_none()));
    out
}

fn loads(n: &Nodes) -> String {
    let mut out =
        format!("{:<6} {:>6} {:>6} {:>12} {:>14}\n", "node", "cores", "vCPUs", "wanted, mean", "wanted, p99");
    for node in &n.nodes {
        out.push_str(&format!(
            "{:<6} {:>6.0} {:>6.0} {:>12.2} {:>14.2}  {}\n",
            node.node,
            node.cores,
            node.vcpus,
            node.wanted_mean,
            node.wanted_most,
            if node.has_room { "has room" } else { "OVERLOADED" }
        ));
    }
    out.push_str(&format!(
        "wanted: cores for run, ready and co-stop of the VMs whose home is this node; vCPUs want them at the same time \
         {:.1} times as often as independent vCPUs would\n",
        n.bunching
    ));
    out
}

fn flowchart(n: &Nodes) -> String {
    let mut out =
        "\npublished flowchart (doi:10.6109/jkiice.2022.26.10.1432), applied to each VM as printed:\n"
            .to_owned();
    for w in &n.flowchart {
        let end = match w.end {
            End::NothingToDo => "nothing to do: the VM does not wait".to_owned(),
            End::AnotherCause => {
                "look for another cause: its node has enough cores for all its vCPUs".to_owned()
            }
            End::Migrate(to) => format!(
                "migrate to node {} and set its node affinity ({} vCPUs on {} cores; {:.1} cores idle there)",
                n.nodes[to].node, w.vcpus_on_node, w.cores, w.idle_elsewhere
            ),
            End::ReduceOrUpgrade => format!(
                "reduce the vCPUs or upgrade the CPUs ({} vCPUs on {} cores; {:.1} cores idle elsewhere)",
                w.vcpus_on_node, w.cores, w.idle_elsewhere
            ),
        };
        out.push_str(&format!("  {:<22} {end}\n", one_line(&w.name)));
    }
    out
}

fn moves(n: &Nodes, all: &[Move]) -> String {
    let one = |m: &Move| format!("{} to node {}", one_line(&n.vms[m.guest]), n.nodes[m.to].node);
    all.iter().map(one).collect::<Vec<_>>().join(", ")
}

fn own_rule(n: &Nodes) -> String {
    let searched = |exact: &bool| if *exact { "" } else { " (the search stopped at its time limit)" };
    let text = match &n.mend {
        Mend::NothingToDo => "every node has room".to_owned(),
        Mend::Moves { moves: all, exact } => {
            format!(
                "{}: the smallest set of moves that gives every node room{}",
                moves(n, all),
                searched(exact)
            )
        }
        Mend::Cannot { relief, fewer_vcpus, more_cores, exact } => {
            let what = vsteer_core::numa::moves::cannot(*fewer_vcpus, *more_cores);
            let relief = match &relief[..] {
                [] => String::new(),
                some => format!("; this would reduce the overload: {}", moves(n, some)),
            };
            format!("{what}{relief}{}", searched(exact))
        }
    };
    format!("\nvsteer's own rule:\n{}", folded(&text, "  ", 110))
}

fn own(a: &Answer, of_host_alone: bool) -> String {
    let number = |n: &Option<u32>| n.map_or("none".to_owned(), |n| n.to_string());
    match &a.own {
        Advice::Shape(s) => {
            let nodes: Vec<String> = s.on_nodes.iter().map(usize::to_string).collect();
            let room = if s.has_room { "" } else { ", no room there now" };
            // Which VM goes where is said above, for all of them at once.
            let on = match (of_host_alone, s.has_room) {
                (true, _) => format!(" (node {}{room})", nodes.join("+")),
                (false, true) => String::new(),
                (false, false) => " (no room now)".to_owned(),
            };
            format!("{} x {}{on}", s.sockets, s.cores_per_socket)
        }
        Advice::OtherVcpus { nodes, fewer, more } => {
            format!("{nodes} nodes, uneven: {} or {} vCPUs", number(fewer), number(more))
        }
        Advice::TooLarge { of } => format!("more {of} than the host has"),
    }
}

fn shapes(host: &HostShape, vms: &[OfVm], of_host_alone: bool) -> String {
    let cores: Vec<String> = host.nodes.iter().map(|n| n.cores.to_string()).collect();
    let esxi =
        host.esxi.map_or("unknown version of ESXi".to_owned(), |v| format!("ESXi {}.{}", v.major, v.minor));
    let mut out = format!(
        "sockets x cores per socket, on nodes of {} cores, {esxi} (*: vsteer's rule and the paper's differ)\n",
        cores.join("+")
    );
    out.push_str(&format!(
        "{:<22} {:>5} {:>8}  {:>8}  {:<34} {}\n",
        "VM", "vCPUs", "GiB", "paper", "vsteer", "virtual nodes that the guest sees: now -> then"
    ));
    for of in vms {
        let a = &of.answer;
        let whole = if a.paper.is_whole { "" } else { "!" };
        let then = a.exposed_then.as_ref().map_or("-".to_owned(), |e| e.nodes.to_string());
        out.push_str(&format!(
            "{:<22} {:>5} {:>8}  {:>8}  {:<34} {} -> {then}\n",
            one_line(&of.vm),
            of.shape.vcpus,
            of.shape.memory_gib.map_or("-".to_owned(), |g| format!("{g:.1}")),
            format!("{:.4}{whole}", a.paper.cores_per_socket).replace(".0000", ""),
            format!("{}{}", own(a, of_host_alone), if a.differs { " *" } else { "" }),
            a.exposed_now.nodes
        ));
    }
    if vms.iter().any(|of| !of.answer.paper.is_whole) {
        out.push_str("  !: not a whole number, so nobody can set it\n");
    }
    let mut reasons: Vec<&str> = vms.iter().map(|of| of.answer.exposed_now.because.as_str()).collect();
    reasons.sort_unstable();
    reasons.dedup();
    reasons
        .iter()
        .take(4)
        .for_each(|why| out.push_str(&folded(&format!("seen by the guest: {why}"), "  ", 110)));
    let mut assumed: Vec<&str> =
        vms.iter().flat_map(|of| of.answer.assumed.iter().map(String::as_str)).collect();
    assumed.sort_unstable();
    assumed.dedup();
    if !assumed.is_empty() {
        out.push_str(&folded(&format!("assumed: {}", assumed.join("; ")), "  ", 110));
    }
    out.push_str("  untried on a real ESXi\n");
    out
}
