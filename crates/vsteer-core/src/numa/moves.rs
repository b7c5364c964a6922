//! Which is the smallest set of VM moves after which every NUMA node has room? If no moves suffice, how many fewer
//! vCPUs or more cores would?
//!
//! The search considers all VMs together, because a move can relieve one node and overload another. It is exact: it
//! tries every set of 0 moves, then 1, then 2 and so on. Of the smallest sets it takes the one that leaves the
//! fullest node least full, then the one that moves least demand. It stops a branch early if some node stays
//! overloaded without its largest VMs that may still move. If a search exceeds [`LOOKS`] placements, the result
//! says that it is not exact.
//!
//! VMs on several nodes, VMs wider than a node, and VMs whose memory or devices cannot follow ([`super::ties`]) stay where
//! they are. Memory must fit the node if both sizes are known.

use super::load::{Guest, Load, Wanted};
use crate::plural::counted;
use serde::{Deserialize, Serialize};

/// Placements that a search tries before it stops and is no longer exact.
const LOOKS: u64 = 200_000;
/// The same limit for each trial with more cores or fewer vCPUs.
const LOOKS_WHAT_IF: u64 = 5_000;
/// A move that only relieves must remove at least this part of the demand beyond the cores.
const WORTH: f64 = 0.1;
/// Largest busy share of a vCPU after vCPUs are removed.
const BUSY: f64 = 0.7;

/// A move of one VM to another node. VM and nodes are indexes in [`Load`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Move {
    /// VM, as index in [`Load::guests`].
    pub guest: usize,
    /// Old node, as index in [`Load::nodes`].
    pub from: usize,
    /// New node, as index in [`Load::nodes`].
    pub to: usize,
}

/// What gives every node room.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mend {
    /// Every node has room already.
    NothingToDo,
    /// This smallest set of moves.
    Moves {
        /// The moves, in order.
        moves: Vec<Move>,
        /// Whether the search tried all sets of at most this many moves.
        exact: bool,
    },
    /// No set of moves suffices.
    Cannot {
        /// Moves that reduce the overload. Each removes a good part of the demand beyond the cores. Not the best of
        /// all sets.
        relief: Vec<Move>,
        /// Number of vCPUs to remove from all VMs together (each vCPU at most 70 % busy) so that moves suffice;
        /// `None`: impossible.
        fewer_vcpus: Option<u32>,
        /// Number of cores to add to every node so that moves suffice; `None`: more than twice as many cores.
        more_cores: Option<u32>,
        /// Whether the search tried all sets of moves.
        exact: bool,
    },
}

struct Search<'a> {
    load: &'a Load,
    /// VMs that may move, largest demand first.
    order: Vec<usize>,
    homes: Vec<Option<usize>>,
    /// Demand on each node by the VMs whose place is decided.
    decided: Vec<Wanted>,
    memory: Vec<u64>,
    best: Option<(f64, f64, Vec<Option<usize>>)>,
    looks: u64,
    most_looks: u64,
}

/// `wanted` plus one more VM.
fn with(wanted: &Wanted, guest: &Guest, bunching: f64) -> Wanted {
    let mut sum = *wanted;
    sum.add(guest, bunching);
    sum
}

impl<'a> Search<'a> {
    fn new(load: &'a Load, most_looks: u64) -> Search<'a> {
        let widest = |i: usize| load.nodes[i].cores;
        let mut order: Vec<usize> = (0..load.guests.len())
            .filter(|i| load.guests[*i].home.is_some_and(|h| f64::from(load.guests[*i].vcpus) <= widest(h)))
            .filter(|i| !is_tied(load, &load.guests[*i]))
            .collect();
        order.sort_by(|a, b| load.guests[*b].demand.total_cmp(&load.guests[*a].demand).then(a.cmp(b)));
        let staying: Vec<Option<usize>> =
            load.guests.iter().enumerate().map(|(i, g)| g.home.filter(|_| !order.contains(&i))).collect();
        let decided = (0..load.nodes.len()).map(|n| load.wanted(n, &staying)).collect();
        let memory = (0..load.nodes.len())
            .map(|n| {
                let here = load.guests.iter().zip(&staying).filter(|(_, h)| **h == Some(n));
                here.map(|(g, _)| g.memory_bytes.unwrap_or(0)).sum()
            })
            .collect();
        Search { load, order, homes: load.homes(), decided, memory, best: None, looks: 0, most_looks }
    }

    fn fits(&self, node: usize, wanted: &Wanted, memory: u64) -> bool {
        wanted.most() <= self.load.nodes[node].cores + 1e-9
            && self.load.nodes[node].memory_bytes.is_none_or(|has| memory <= has)
    }

    /// Lower bound on the number of VMs from `at` on that must leave their nodes.
    fn must_leave(&self, at: usize) -> usize {
        let load = self.load;
        (0..load.nodes.len())
            .map(|n| {
                let here: Vec<&Guest> =
                    self.order[at..].iter().map(|i| &load.guests[*i]).filter(|g| g.home == Some(n)).collect();
                let mut all = self.decided[n];
                let mut memory = self.memory[n];
                here.iter().for_each(|g| {
                    all.add(g, load.bunching);
                    memory += g.memory_bytes.unwrap_or(0);
                });
                let sorted = |of: &dyn Fn(&Guest) -> f64| {
                    let mut values: Vec<f64> = here.iter().map(|g| of(g)).collect();
                    values.sort_by(|a, b| b.total_cmp(a));
                    values
                };
                let means = sorted(&|g| g.demand);
                let variances = sorted(&|g| {
                    let own = g.variance();
                    (load.bunching * own).min(f64::from(g.vcpus) * own)
                });
                let vcpus = sorted(&|g| f64::from(g.vcpus));
                let bytes = sorted(&|g| g.memory_bytes.unwrap_or(0) as f64);
                let (mut left, mut memory) = (all, memory as f64);
                for k in 0..=here.len() {
                    // Removing the k largest values of each kind: no choice of k VMs leaves less.
                    if self.fits(n, &left, memory.max(0.0) as u64) {
                        return k;
                    }
                    if k < here.len() {
                        left.mean -= means[k];
                        left.variance -= variances[k];
                        left.vcpus -= vcpus[k];
                        memory -= bytes[k];
                    }
                }
                // The VMs that stay overload the node already.
                usize::MAX / 1024
            })
            .sum()
    }

    /// Places the VMs from `at` on with at most `left` more moves.
    fn place(&mut self, at: usize, left: usize, moved: f64) {
        self.looks += 1;
        if self.looks > self.most_looks || self.must_leave(at) > left {
            return;
        }
        let Some(guest) = self.order.get(at).copied() else {
            let fullest = (0..self.load.nodes.len())
                .map(|n| self.decided[n].most() / self.load.nodes[n].cores.max(1.0))
                .fold(0.0, f64::max);
            let better = |(f, m, _): &(f64, f64, _)| {
                (fullest, moved) < (f - 1e-9, *m) || (fullest < f + 1e-9 && moved < m - 1e-9)
            };
            if self.best.as_ref().is_none_or(better) {
                self.best = Some((fullest, moved, self.homes.clone()));
            }
            return;
        };
        let g = &self.load.guests[guest];
        let home = g.home.expect("only those at home move");
        let nodes = std::iter::once(home).chain((0..self.load.nodes.len()).filter(|n| *n != home));
        for node in nodes.collect::<Vec<_>>() {
            let goes = node != home;
            if goes && left == 0 {
                break;
            }
            if goes && !g.may_move_to(self.load.nodes[node].id) {
                continue;
            }
            let wanted = with(&self.decided[node], g, self.load.bunching);
            let memory = self.memory[node] + g.memory_bytes.unwrap_or(0);
            if !self.fits(node, &wanted, memory) {
                continue;
            }
            let (was, before) = (std::mem::replace(&mut self.decided[node], wanted), self.memory[node]);
            self.memory[node] = memory;
            self.homes[guest] = Some(node);
            self.place(at + 1, left - usize::from(goes), moved + if goes { g.demand } else { 0.0 });
            self.homes[guest] = Some(home);
            (self.decided[node], self.memory[node]) = (was, before);
        }
    }
}

/// The smallest set of moves after which every node has room (`None`: no such set), and whether the search was exact.
fn fewest(load: &Load, most_looks: u64) -> (Option<Vec<Move>>, bool) {
    let mut search = Search::new(load, most_looks);
    let least = search.must_leave(0);
    for k in least..=search.order.len() {
        search.place(0, k, 0.0);
        if let Some((.., homes)) = &search.best {
            let moves = load.guests.iter().zip(homes).enumerate().filter_map(|(guest, (g, to))| {
                let (from, to) = (g.home?, (*to)?);
                (from != to).then_some(Move { guest, from, to })
            });
            return (Some(moves.collect()), search.looks <= most_looks);
        }
        if search.looks > most_looks {
            return (None, false);
        }
    }
    (None, true)
}

/// Do memory or devices keep a VM from every other node than its home?
fn is_tied(load: &Load, guest: &Guest) -> bool {
    let mut others = load.nodes.iter().enumerate().filter(|(n, _)| Some(*n) != guest.home);
    !guest.ties.is_empty() && !others.any(|(_, node)| guest.may_move_to(node.id))
}

/// How many tied VMs a text names.
const NAMED: usize = 3;

/// VMs at home on nodes without room that memory or devices keep there, each with its reason; `None` if there are none.
pub fn tied(load: &Load) -> Option<String> {
    let homes = load.homes();
    let stays = |g: &&Guest| g.home.is_some_and(|n| !load.has_room(n, &homes)) && is_tied(load, g);
    let all: Vec<&Guest> = load.guests.iter().filter(stays).collect();
    let one = |g: &&Guest| {
        let whys: Vec<&str> = g.ties.iter().map(|tie| tie.why.as_str()).collect();
        format!("VM {:?} cannot move, because {}", g.name, whys.join(" and "))
    };
    let mut told: Vec<String> = all.iter().take(NAMED).map(one).collect();
    if all.len() > NAMED {
        told.push(format!("{} cannot move either", counted((all.len() - NAMED) as u32, "more VM")));
    }
    (!told.is_empty()).then(|| told.join("; "))
}

/// What gives every node of this host room.
pub fn mend(load: &Load) -> Mend {
    let homes = load.homes();
    if (0..load.nodes.len()).all(|n| load.has_room(n, &homes)) {
        return Mend::NothingToDo;
    }
    match fewest(load, LOOKS) {
        (Some(moves), exact) => Mend::Moves { moves, exact },
        (None, exact) => {
            let (more_cores, fewer_vcpus) = (more_cores(load), fewer_vcpus(load));
            Mend::Cannot { relief: relief(load), fewer_vcpus, more_cores, exact }
        }
    }
}

fn is_mended(load: &Load) -> bool {
    fewest(load, LOOKS_WHAT_IF).0.is_some()
}

/// Greedy moves: each removes most of the demand beyond the cores, as long as it removes at least [`WORTH`] of it.
fn relief(load: &Load) -> Vec<Move> {
    let mut homes = load.homes();
    let total =
        |homes: &[Option<usize>]| -> f64 { (0..load.nodes.len()).map(|n| load.excess(n, homes)).sum() };
    let mut moves: Vec<Move> = Vec::new();
    loop {
        let now = total(&homes);
        let mut best: Option<(f64, Move)> = None;
        for (guest, g) in load.guests.iter().enumerate() {
            let Some(from) = homes[guest].filter(|_| homes[guest] == g.home) else { continue };
            let may = |to: &usize| {
                let node = &load.nodes[*to];
                *to != from && f64::from(g.vcpus) <= node.cores && g.may_move_to(node.id)
            };
            for to in (0..load.nodes.len()).filter(may) {
                homes[guest] = Some(to);
                let then = total(&homes);
                let enough = then <= (1.0 - WORTH) * now && load.memory_fits(to, &homes);
                homes[guest] = Some(from);
                if enough && best.as_ref().is_none_or(|(least, _)| then < least - 1e-9) {
                    best = Some((then, Move { guest, from, to }));
                }
            }
        }
        let Some((_, next)) = best else { return moves };
        homes[next.guest] = Some(next.to);
        moves.push(next);
    }
}

/// Number of cores to add to every node so that moves suffice.
fn more_cores(load: &Load) -> Option<u32> {
    let most = load.nodes.iter().map(|n| n.cores as u32).max().unwrap_or(0).max(1);
    (1..=most).find(|more| {
        let mut larger = load.clone();
        larger.nodes.iter_mut().for_each(|n| n.cores += f64::from(*more));
        is_mended(&larger)
    })
}

/// Number of vCPUs to remove so that moves suffice. Takes each from the VM with the least busy vCPUs, as long as
/// the others stay at most 70 % busy. The demand stays the same, but fewer vCPUs want a core at once.
fn fewer_vcpus(load: &Load) -> Option<u32> {
    let mut smaller = load.clone();
    let least = |g: &Guest| (libm::ceil(g.demand / BUSY) as u32).max(1);
    for taken in 1..=smaller.guests.iter().map(|g| g.vcpus).sum::<u32>() {
        let busy = |g: &Guest| g.demand / f64::from(g.vcpus.max(1));
        let next = (0..smaller.guests.len())
            .filter(|i| smaller.guests[*i].vcpus > least(&smaller.guests[*i]))
            .min_by(|a, b| busy(&smaller.guests[*a]).total_cmp(&busy(&smaller.guests[*b])))?;
        smaller.guests[next].vcpus -= 1;
        if is_mended(&smaller) {
            return Some(taken);
        }
    }
    None
}

/// Text that says that no moves suffice, and what would.
pub fn cannot(fewer_vcpus: Option<u32>, more_cores: Option<u32>) -> String {
    let less = fewer_vcpus.map(|n| format!("{} in total", counted(n, "fewer vCPU")));
    let more = more_cores.map(|n| format!("{} on every node", counted(n, "more core")));
    match (less, more) {
        (Some(less), Some(more)) => format!("no moves give every node room, but {less} or {more} would"),
        (Some(one), None) | (None, Some(one)) => format!("no moves give every node room, but {one} would"),
        (None, None) => "no moves give every node room, and twice the cores would not either".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::load::Node;
    use super::*;
    use crate::CpuSet;
    use crate::nouns::VmId;
    use crate::topology::NodeId;
    use proptest::prelude::*;

    fn host(cores: &[f64], guests: &[(u32, f64, usize)], bunching: f64) -> Load {
        let node = |(i, cores): (usize, &f64)| Node {
            id: NodeId(i as u32),
            cpus: CpuSet::new(),
            cores: *cores,
            memory_bytes: Some(100),
            others: 0.0,
        };
        let guest = |(i, (vcpus, demand, home)): (usize, &(u32, f64, usize))| Guest {
            vm: VmId(format!("{i}").into()),
            name: format!("{i}"),
            vcpus: *vcpus,
            demand: *demand,
            waited: 0.0,
            home: Some(*home),
            memory_bytes: Some(10),
            ties: Vec::new(),
        };
        Load {
            nodes: cores.iter().enumerate().map(node).collect(),
            guests: guests.iter().enumerate().map(guest).collect(),
            bunching,
        }
    }

    /// Every assignment, one after another.
    fn by_force(load: &Load) -> Option<usize> {
        let (n, m) = (load.guests.len() as u32, load.nodes.len());
        let homes =
            |code: usize| -> Vec<Option<usize>> { (0..n).map(|i| Some(code / m.pow(i) % m)).collect() };
        let movable = |i: usize| {
            let g = &load.guests[i];
            f64::from(g.vcpus) <= load.nodes[g.home.unwrap()].cores
        };
        (0..m.pow(n))
            .map(homes)
            .filter(|homes| {
                (0..load.guests.len()).all(|i| homes[i] == load.guests[i].home || movable(i))
                    && (0..m).all(|node| load.has_room(node, homes))
            })
            .map(|homes| homes.iter().zip(&load.guests).filter(|(h, g)| **h != g.home).count())
            .min()
    }

    #[test]
    fn the_papers_testbed_is_two_and_two() {
        let load =
            host(&[18.0, 18.0], &[(12, 3.571, 0), (12, 3.179, 0), (12, 3.363, 0), (12, 3.346, 0)], 3.2);
        let Mend::Moves { moves, exact } = mend(&load) else { panic!("{:?}", mend(&load)) };
        assert!(exact && moves.len() == 2 && moves.iter().all(|m| m.to == 1), "{moves:?}");
    }

    #[test]
    fn a_swap_is_found_where_no_single_move_helps() {
        // Node 0 wants 9 of 8, node 1 has 2 free: only exchanging the VM of 4 with the one of 2 gives both room.
        let load = host(&[8.0, 8.0], &[(5, 5.0, 0), (4, 4.0, 0), (4, 4.0, 1), (2, 2.0, 1)], 1.0);
        let Mend::Moves { moves, .. } = mend(&load) else { panic!("{:?}", mend(&load)) };
        assert_eq!(moves.len(), 2, "{moves:?}");
    }

    #[test]
    fn a_tied_vm_moves_within_its_ties_alone() {
        let mut load = host(&[4.0, 4.0, 8.0], &[(4, 3.0, 0), (4, 3.0, 0)], 1.0);
        let to = |load: &Load| match mend(load) {
            Mend::Moves { moves, .. } => moves.iter().map(|m| m.to).collect::<Vec<_>>(),
            other => panic!("{other:?}"),
        };
        assert_eq!(to(&load), [1]);
        let tie = super::super::ties::Tie { nodes: [0, 2].into_iter().collect(), why: "of the test".into() };
        load.guests.iter_mut().for_each(|g| g.ties = vec![tie.clone()]);
        assert_eq!(to(&load), [2]);
        assert_eq!(tied(&load), None, "they can move");
    }

    #[test]
    fn what_no_moves_mend_says_how_much() {
        let load = host(&[4.0, 4.0], &[(4, 3.0, 0), (4, 3.0, 0), (4, 3.0, 1)], 1.0);
        let Mend::Cannot { fewer_vcpus, more_cores, exact, .. } = mend(&load) else {
            panic!("{:?}", mend(&load))
        };
        assert!(exact && more_cores.is_some(), "{more_cores:?}");
        assert_eq!(fewer_vcpus, None, "three cores' work each: vCPUs are busy already");
        let idle = host(&[4.0, 4.0], &[(8, 1.0, 0), (8, 1.0, 0), (8, 1.0, 1), (8, 1.0, 1)], 8.0);
        let Mend::Cannot { fewer_vcpus: Some(n), .. } = mend(&idle) else { panic!("{:?}", mend(&idle)) };
        assert!((1..=28).contains(&n), "{n}");
        assert_eq!(mend(&host(&[4.0], &[(4, 3.9, 0)], 9.0)), Mend::NothingToDo);
    }

    #[test]
    fn a_large_host_is_searched_in_time() {
        let guests: Vec<(u32, f64, usize)> =
            (0..40).map(|i| (2 + i % 7, 0.2 * f64::from(2 + i % 7), i as usize / 14)).collect();
        let load = host(&[24.0; 4], &guests, 2.0);
        assert!(matches!(mend(&load), Mend::Moves { .. }), "{:?}", mend(&load));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        /// As many moves as trying everything finds, and every node has room after them.
        #[test]
        fn as_few_as_by_force(
            cores in proptest::collection::vec(3u32..12, 1..4),
            guests in proptest::collection::vec((1u32..9, 1u32..10, 0usize..3), 1..7),
            bunching in 1.0f64..5.0,
        ) {
            let cores: Vec<f64> = cores.into_iter().map(f64::from).collect();
            let guests: Vec<(u32, f64, usize)> = guests
                .iter().map(|(n, p, home)| (*n, f64::from(*n) * f64::from(*p) / 10.0, home % cores.len())).collect();
            let load = host(&cores, &guests, bunching);
            let wanted = by_force(&load);
            match mend(&load) {
                Mend::NothingToDo => prop_assert_eq!(wanted, Some(0)),
                Mend::Moves { moves, exact } => {
                    prop_assert!(exact);
                    prop_assert_eq!(wanted, Some(moves.len()));
                    let mut homes = load.homes();
                    moves.iter().for_each(|m| homes[m.guest] = Some(m.to));
                    prop_assert!((0..cores.len()).all(|n| load.has_room(n, &homes)));
                }
                Mend::Cannot { exact, .. } => {
                    prop_assert!(exact);
                    prop_assert_eq!(wanted, None);
                }
            }
        }
    }
}
