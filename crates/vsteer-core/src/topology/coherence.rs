//! How do contradicting statements about a machine become one that placement can trust?
//!
//! The idea: take statements in a fixed order (by lowest pCPU; nodes by number), keep the first, leave out what
//! overlaps a kept one of the same sort, and supply what is missing, marked as assumed. Everything left out is noted.
//!
//! Source: hwloc 2.9.0, `hwloc/topology-linux.c`: `look_sysfsnode` (overlapping nodes), `read_node_initiators` and
//! `fixup_cpuless_node_locality_from_distances` (nodes without CPUs), `look_sysfscpu` (dies and clusters that equal
//! their neighbours).

use super::{Cache, CacheKind, Core, Group, GroupKind, NodeId, NumaNode, Oddity, Package, Parts, no_cpu};
use crate::cpuset::CpuSet;
use crate::fault::Fault;
use std::collections::{BTreeMap, BTreeSet};

/// Makes `parts` coherent; see [`super::Topology::new`].
pub(super) fn settle(mut parts: Parts) -> Result<Parts, Fault> {
    parts.online = parts.online.intersection(&parts.present);
    parts.allowed = parts.allowed.intersection(&parts.present);
    if parts.online.is_empty() {
        return Err(no_cpu());
    }
    let online = parts.online.clone();
    let odd = &mut parts.oddities;
    if !online.intersects(&parts.allowed) {
        note(odd, "cgroup cpuset", "permits none of the online CPUs".into());
    }
    parts.packages = packages(parts.packages, &online, odd);
    parts.cores = cores(parts.cores, &online, odd);
    parts.groups = groups(parts.groups, &parts.packages, &parts.cores, &online, odd);
    parts.caches = caches(parts.caches, &online, odd);
    parts.nodes = nodes(parts.nodes, parts.memory_bytes, &online, odd);
    parts.oddities.sort();
    parts.oddities.dedup();
    Ok(parts)
}

fn note(oddities: &mut Vec<Oddity>, place: &str, what: String) {
    oddities.push(Oddity { place: place.into(), what });
}

fn first(cpus: &CpuSet) -> u32 {
    cpus.iter().next().unwrap_or(u32::MAX)
}

/// A part that is a set of pCPUs.
trait Part {
    fn cpus(&mut self) -> &mut CpuSet;
}

impl Part for Package {
    fn cpus(&mut self) -> &mut CpuSet {
        &mut self.cpus
    }
}

impl Part for Core {
    fn cpus(&mut self) -> &mut CpuSet {
        &mut self.cpus
    }
}

impl Part for Group {
    fn cpus(&mut self) -> &mut CpuSet {
        &mut self.cpus
    }
}

impl Part for Cache {
    fn cpus(&mut self) -> &mut CpuSet {
        &mut self.cpus
    }
}

/// Keeps of `parts` (clipped to the online CPUs, by lowest CPU) those that overlap no earlier one and notes the
/// others; returns with them the CPUs they cover. An exact repetition is dropped without a note.
fn disjoint<T: Part>(
    parts: impl IntoIterator<Item = T>,
    name: &str,
    online: &CpuSet,
    odd: &mut Vec<Oddity>,
) -> (Vec<T>, CpuSet) {
    let mut sets: Vec<(CpuSet, T)> = Vec::new();
    for mut part in parts {
        *part.cpus() = part.cpus().intersection(online);
        sets.push((part.cpus().clone(), part));
    }
    sets.retain(|(set, _)| !set.is_empty());
    sets.sort_by_key(|(set, _)| first(set));
    let (mut kept, mut covered, mut seen) = (Vec::with_capacity(sets.len()), CpuSet::new(), BTreeSet::new());
    for (set, part) in sets {
        if seen.contains(&set) {
            continue;
        }
        if covered.intersects(&set) {
            note(odd, name, format!("the {name} of CPUs {set} overlaps another one: left out"));
            continue;
        }
        covered = covered.union(&set);
        seen.insert(set);
        kept.push(part);
    }
    (kept, covered)
}

/// As [`disjoint`]; then the assumed ones, less what is covered, so that a report always beats a supposition.
fn reported_then_assumed<T: Part>(
    parts: Vec<T>,
    assumed: impl Fn(&T) -> bool,
    name: &str,
    online: &CpuSet,
    odd: &mut Vec<Oddity>,
) -> (Vec<T>, CpuSet) {
    let (supposed, reported): (Vec<T>, Vec<T>) = parts.into_iter().partition(assumed);
    let (mut kept, covered) = disjoint(reported, name, online, odd);
    let (more, supplied) = disjoint(supposed, name, &online.difference(&covered), odd);
    kept.extend(more);
    (kept, covered.union(&supplied))
}

fn packages(packages: Vec<Package>, online: &CpuSet, odd: &mut Vec<Oddity>) -> Vec<Package> {
    let (mut kept, covered) = reported_then_assumed(packages, |p| p.assumed, "package", online, odd);
    let rest = online.difference(&covered);
    if !rest.is_empty() {
        kept.push(Package { id: None, cpus: rest, assumed: true });
    }
    kept.sort_by_key(|p| first(&p.cpus));
    kept
}

fn cores(cores: Vec<Core>, online: &CpuSet, odd: &mut Vec<Oddity>) -> Vec<Core> {
    let (mut kept, covered) = reported_then_assumed(cores, |c| c.assumed, "core", online, odd);
    let alone = |cpu| Core { cpus: CpuSet::single(cpu), assumed: true, ..Core::default() };
    kept.extend(online.difference(&covered).iter().map(alone));
    kept.sort_by_key(|c| first(&c.cpus));
    kept
}

/// A level is worth naming only where it differs from its neighbours: the kernel writes a die and a cluster for
/// every CPU, which on most machines are the package and the core over again.
fn groups(
    groups: Vec<Group>,
    packages: &[Package],
    cores: &[Core],
    online: &CpuSet,
    odd: &mut Vec<Oddity>,
) -> Vec<Group> {
    let mut known: BTreeSet<CpuSet> = packages.iter().map(|p| p.cpus.clone()).collect();
    known.extend(cores.iter().map(|c| c.cpus.clone()));
    let mut by_kind: BTreeMap<GroupKind, Vec<Group>> = BTreeMap::new();
    for group in groups {
        by_kind.entry(group.kind).or_default().push(group);
    }
    let mut kept = Vec::new();
    for (kind, of_kind) in by_kind {
        let name = match kind {
            GroupKind::Drawer => "drawer",
            GroupKind::Book => "book",
            GroupKind::Die => "die",
            GroupKind::Cluster => "cluster",
        };
        for group in disjoint(of_kind, name, online, odd).0 {
            // A die or cluster of one CPU is the kernel's default for an architecture that knows none.
            if group.cpus.len() > 1 && known.insert(group.cpus.clone()) {
                kept.push(group);
            }
        }
    }
    kept
}

fn caches(caches: Vec<Cache>, online: &CpuSet, odd: &mut Vec<Oddity>) -> Vec<Cache> {
    let mut by_sort: BTreeMap<(u8, CacheKind), Vec<Cache>> = BTreeMap::new();
    for cache in caches {
        by_sort.entry((cache.level, cache.kind)).or_default().push(cache);
    }
    let kept = by_sort.into_iter().flat_map(|((level, kind), of_sort)| {
        let name = format!("level {level} {kind:?} cache").to_lowercase();
        disjoint(of_sort, &name, online, odd).0
    });
    kept.collect()
}

fn nodes(
    mut nodes: Vec<NumaNode>,
    memory_bytes: Option<u64>,
    online: &CpuSet,
    odd: &mut Vec<Oddity>,
) -> Vec<NumaNode> {
    nodes.sort_by_key(|n| n.id);
    let count = nodes.len();
    let (mut covered, mut kept): (CpuSet, Vec<NumaNode>) = (CpuSet::new(), Vec::with_capacity(count));
    for mut node in nodes {
        if kept.last().is_some_and(|k| k.id == node.id) {
            note(odd, &format!("node {}", node.id), "appears twice: the second one is left out".into());
        } else if covered.intersects(&node.cpus) {
            // Firmware that puts a CPU in two nodes is wrong about the memory of one of them, and nothing tells which.
            let what =
                format!("claims the CPUs {}, some of which are an earlier node's: left out", node.cpus);
            note(odd, &format!("node {}", node.id), what);
        } else {
            covered = covered.union(&node.cpus);
            node.cpus = node.cpus.intersection(online);
            kept.push(node);
        }
    }
    if kept.is_empty() {
        kept.push(NumaNode {
            id: NodeId(0),
            cpus: online.clone(),
            nearest_cpus: CpuSet::new(),
            memory_bytes,
            distances: BTreeMap::new(),
            initiators: Vec::new(),
            gpu: None,
            allowed: true,
            assumed: true,
        });
    }
    place_memory(&mut kept, count, online);
    kept
}

/// Fills in [`NumaNode::nearest_cpus`] where the backend has not (it knows the place of a GPU's memory from the PCI
/// bus). Nodes with CPUs come first, since the others take theirs from them; `count` is the number of nodes before
/// contradicting ones were left out.
fn place_memory(nodes: &mut [NumaNode], count: usize, online: &CpuSet) {
    let mut unplaced = Vec::new();
    for (i, node) in nodes.iter_mut().enumerate() {
        node.nearest_cpus = node.nearest_cpus.intersection(online);
        if node.nearest_cpus.is_empty() {
            node.nearest_cpus = node.cpus.clone();
            unplaced.push(i);
        }
    }
    let (with, without): (Vec<usize>, Vec<usize>) =
        unplaced.into_iter().partition(|&i| !nodes[i].cpus.is_empty());
    for i in with {
        nodes[i].nearest_cpus = nodes[i].nearest_cpus.union(&initiators_of(nodes, i));
    }
    for i in without {
        let mut near = initiators_of(nodes, i);
        if near.is_empty() {
            near = at_least_distance(nodes, i, count);
        }
        nodes[i].nearest_cpus = near;
    }
}

fn initiators_of(nodes: &[NumaNode], i: usize) -> CpuSet {
    let others = nodes.iter().filter(|n| n.id != nodes[i].id && nodes[i].initiators.contains(&n.id));
    others.fold(CpuSet::new(), |set, n| set.union(&n.nearest_cpus))
}

fn at_least_distance(nodes: &[NumaNode], i: usize, count: usize) -> CpuSet {
    let far = |n: &NumaNode| nodes[i].distances.get(&n.id).copied();
    let others = || nodes.iter().filter(|n| n.id != nodes[i].id);
    let Some(least) = others().filter_map(far).min() else { return CpuSet::new() };
    let nearest: Vec<&NumaNode> = others().filter(|n| far(n) == Some(least)).collect();
    // All equally far, or no farther than itself: the numbers say nothing.
    if nearest.len() + 1 == count || far(&nodes[i]).is_none_or(|own| least <= own) {
        return CpuSet::new();
    }
    nearest.iter().fold(CpuSet::new(), |set, n| set.union(&n.nearest_cpus))
}
