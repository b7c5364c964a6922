//! Does [`Topology::new`] return a coherent topology for any input?

use super::*;
use proptest::prelude::*;

fn set(text: &str) -> CpuSet {
    text.parse().unwrap()
}

fn node(id: u32, cpus: &str, distances: &[(u32, u32)]) -> NumaNode {
    NumaNode {
        id: NodeId(id),
        cpus: set(cpus),
        nearest_cpus: CpuSet::new(),
        memory_bytes: Some(1 << 30),
        distances: distances.iter().map(|(n, d)| (NodeId(*n), *d)).collect(),
        initiators: Vec::new(),
        gpu: None,
        allowed: true,
        assumed: false,
    }
}

fn core(cpus: &str) -> Core {
    Core { cpus: set(cpus), ..Core::default() }
}

fn cache(level: u8, kind: CacheKind, cpus: &str) -> Cache {
    Cache { level, kind, size_bytes: None, cpus: set(cpus) }
}

fn parts(online: &str) -> Parts {
    Parts { present: set(online), online: set(online), allowed: set(online), ..Parts::default() }
}

/// Two sockets of two hyper-threaded cores, numbered as x86 does: siblings are 4 apart.
fn two_sockets() -> Parts {
    Parts {
        present: set("0-8"),
        online: set("0-7"),
        allowed: set("0-1,4-5,8"),
        packages: vec![
            Package { id: Some(0), cpus: set("0-1,4-5"), assumed: false },
            Package { id: Some(1), cpus: set("2-3,6-7"), assumed: false },
        ],
        cores: ["3,7", "2,6", "1,5", "0,4"].map(core).into(),
        caches: vec![
            cache(3, CacheKind::Unified, "0-1,4-5"),
            cache(1, CacheKind::Data, "0,4"),
            cache(2, CacheKind::Instruction, "2,6"),
            cache(1, CacheKind::Data, "2,6"),
        ],
        nodes: vec![
            node(4, "", &[(0, 30), (2, 20), (4, 10)]),
            node(0, "0-1,4-5", &[(0, 10), (2, 21), (4, 30)]),
            node(2, "2-3,6-7", &[(0, 21), (2, 10), (4, 20)]),
        ],
        ..Parts::default()
    }
}

#[test]
fn queries_answer_what_placement_asks() {
    let m = Topology::new(two_sockets()).unwrap();
    assert_eq!((m.siblings(5), m.siblings(8)), (set("1,5"), CpuSet::new()));
    assert_eq!(m.package_of(6).unwrap().id, Some(1));
    assert_eq!(m.node_of(6).unwrap().id, NodeId(2));
    assert_eq!(m.llc_of(4).unwrap().level, 3);
    // Neither an instruction cache nor someone else's level 3 is CPU 2's last level.
    assert_eq!(m.llc_of(2).unwrap().level, 1);
    assert_eq!((m.llc_of(3), m.node_of(8), m.core_of(9999)), (None, None, None));
    assert_eq!((m.usable(), m.offline()), (set("0-1,4-5"), set("8")));
    assert_eq!(m.distance(NodeId(0), NodeId(2)), Some(21));
    assert_eq!(m.node(NodeId(4)).unwrap().nearest_cpus, set("2-3,6-7"));
    assert_eq!(m.memory_bytes(), Some(3 << 30));
    let states: Vec<(bool, bool)> = m.threads().map(|t| (t.online, t.allowed)).collect();
    assert_eq!((states[0], states[2], states[8]), ((true, true), (true, false), (false, true)));
    assert_eq!(m.oddities(), []);
}

#[test]
fn what_is_not_said_is_assumed_and_marked() {
    let m = Topology::new(Parts { memory_bytes: Some(5), ..parts("0-2") }).unwrap();
    assert_eq!((m.cores().len(), m.packages().len(), m.nodes().len()), (3, 1, 1));
    assert!(m.cores().iter().all(|c| c.assumed) && m.packages()[0].assumed && m.nodes()[0].assumed);
    assert_eq!((m.nodes()[0].memory_bytes, m.node_of(2).unwrap().id), (Some(5), NodeId(0)));
    // A report beats a supposition, and a supposition fills only what is left.
    let said = Core { cpus: set("0-1"), ..Core::default() };
    let supposed = Core { cpus: set("1-2"), assumed: true, ..Core::default() };
    let m = Topology::new(Parts { cores: vec![supposed, said], ..parts("0-2") }).unwrap();
    assert_eq!((m.siblings(1), m.siblings(2)), (set("0-1"), set("2")));
    assert_eq!(Topology::new(Parts::default()).unwrap_err().kind, FaultKind::BadInput);
}

#[test]
fn contradictions_are_left_out_and_noted() {
    let m = Topology::new(Parts {
        cores: vec![core("0-1"), core("1-2"), core("0-1")],
        nodes: vec![node(0, "0-3", &[]), node(1, "3", &[]), node(0, "", &[])],
        caches: vec![cache(2, CacheKind::Unified, "0-2"), cache(2, CacheKind::Unified, "2-3")],
        ..parts("0-3")
    })
    .unwrap();
    assert_eq!(
        (m.siblings(0), m.siblings(2), m.nodes().len(), m.caches().len()),
        (set("0-1"), set("2"), 1, 1)
    );
    let places: Vec<&str> = m.oddities().iter().map(|o| o.place.as_str()).collect();
    assert_eq!(places, ["core", "level 2 unified cache", "node 0", "node 1"]);
}

#[test]
fn groups_are_kept_where_they_say_something() {
    let group = |kind, cpus| Group { kind, id: None, cpus: set(cpus) };
    let m = Topology::new(Parts {
        packages: vec![Package { id: None, cpus: set("0-7"), assumed: false }],
        cores: vec![core("0-1")],
        groups: vec![
            group(GroupKind::Cluster, "0-3"),
            group(GroupKind::Drawer, "0-7"),
            group(GroupKind::Die, "0-3"),
            group(GroupKind::Cluster, "0-1"),
            group(GroupKind::Cluster, "4-5"),
            group(GroupKind::Cluster, "6"),
        ],
        ..parts("0-7")
    });
    let m = m.unwrap();
    let kept: Vec<(GroupKind, String)> = m.groups().iter().map(|g| (g.kind, g.cpus.to_string())).collect();
    assert_eq!(kept, [(GroupKind::Die, "0-3".into()), (GroupKind::Cluster, "4-5".into())]);
    assert_eq!(m.dies().count(), 1);
}

#[test]
fn memory_without_cpus_lies_near_its_initiators_else_near_the_least_distance_else_nowhere() {
    let mut far = node(2, "", &[(0, 20), (1, 14), (2, 10)]);
    let near = |nodes: Vec<NumaNode>, id| {
        let m = Topology::new(Parts { nodes, ..parts("0-3") }).unwrap();
        m.node(NodeId(id)).unwrap().nearest_cpus.to_string()
    };
    let others = || vec![node(0, "0-1", &[]), node(1, "2-3", &[])];
    assert_eq!(near([others(), vec![far.clone()]].concat(), 2), "2-3");
    far.initiators = vec![NodeId(0)];
    assert_eq!(near([others(), vec![far]].concat(), 2), "0-1");
    let alike = node(2, "", &[(0, 14), (1, 14), (2, 10)]);
    assert_eq!(near([others(), vec![alike]].concat(), 2), "");
    // A GPU's memory has its place from the PCI bus.
    let gpu =
        NumaNode { nearest_cpus: set("3"), gpu: Some("0000:01:00.0".into()), ..node(2, "", &[(1, 14)]) };
    assert_eq!(near([others(), vec![gpu]].concat(), 2), "3");
}

fn any_set() -> impl Strategy<Value = CpuSet> {
    proptest::collection::vec(0u32..12, 0..6).prop_map(|cpus| cpus.into_iter().collect())
}

fn any_parts() -> impl Strategy<Value = Parts> {
    let sets = || proptest::collection::vec((any_set(), 0u32..4, any::<bool>()), 0..6);
    (any_set(), any_set(), any_set(), [sets(), sets(), sets(), sets(), sets()]).prop_map(
        |(present, online, allowed, [packages, cores, groups, caches, nodes])| Parts {
            present,
            online,
            allowed,
            memory_bytes: None,
            packages: packages
                .into_iter()
                .map(|(cpus, n, assumed)| Package { id: Some(n), cpus, assumed })
                .collect(),
            cores: cores
                .into_iter()
                .map(|(cpus, _, assumed)| Core { cpus, assumed, ..Core::default() })
                .collect(),
            groups: groups
                .into_iter()
                .map(|(cpus, n, die)| Group {
                    kind: if die { GroupKind::Die } else { GroupKind::Cluster },
                    id: Some(n),
                    cpus,
                })
                .collect(),
            caches: caches
                .into_iter()
                .map(|(cpus, n, data)| Cache {
                    level: n as u8,
                    kind: if data { CacheKind::Data } else { CacheKind::Instruction },
                    size_bytes: None,
                    cpus,
                })
                .collect(),
            nodes: nodes
                .into_iter()
                .map(|(cpus, n, near)| NumaNode {
                    initiators: if near { vec![NodeId(0)] } else { Vec::new() },
                    ..node(n, &cpus.to_string(), &[(0, 10 + n), (1, 20), (n, 10)])
                })
                .collect(),
            oddities: Vec::new(),
        },
    )
}

proptest! {
    #[test]
    fn every_online_cpu_has_its_places_and_all_is_disjoint(parts in any_parts()) {
        let online = parts.online.intersection(&parts.present);
        let Ok(m) = Topology::new(parts) else {
            prop_assert!(online.is_empty());
            return Ok(());
        };
        prop_assert_eq!(m.online(), &online);
        let total = |sets: Vec<&CpuSet>| sets.iter().map(|s| s.len()).sum::<usize>();
        prop_assert_eq!(total(m.cores().iter().map(|c| &c.cpus).collect()), online.len());
        prop_assert_eq!(total(m.packages().iter().map(|p| &p.cpus).collect()), online.len());
        for cpu in m.present().iter() {
            let runs = online.contains(cpu);
            prop_assert_eq!(m.siblings(cpu).contains(cpu), runs);
            prop_assert_eq!(m.package_of(cpu).is_some_and(|p| p.cpus.contains(cpu)), runs);
            prop_assert_eq!(m.nodes().iter().filter(|n| n.cpus.contains(cpu)).count(), m.node_of(cpu).iter().count());
            prop_assert!(m.node_of(cpu).is_none_or(|n| n.cpus.contains(cpu)));
            prop_assert!(m.llc_of(cpu).is_none_or(|c| c.cpus.contains(cpu)));
            for level in 0..4 {
                for kind in [CacheKind::Data, CacheKind::Instruction] {
                    let sharing = m.caches().iter().filter(|c| c.level == level && c.kind == kind);
                    prop_assert!(sharing.filter(|c| c.cpus.contains(cpu)).count() <= 1);
                }
            }
        }
        prop_assert!(m.nodes().iter().all(|n| n.nearest_cpus.is_subset(&online) && n.cpus.is_subset(&online)));
        prop_assert!(m.allowed().is_subset(m.present()));
    }

    #[test]
    fn what_is_stored_reads_back_as_it_was(parts in any_parts()) {
        if let Ok(m) = Topology::new(parts) {
            let text = serde_json::to_string(&m).unwrap();
            prop_assert_eq!(serde_json::from_str::<Topology>(&text).unwrap(), m);
        }
    }
}
