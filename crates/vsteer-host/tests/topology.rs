//! Does the reader find its way where sysfs is old, partial, broken or absent? Small trees made here, one trait each;
//! whole real machines are in `hwloc_trees.rs`.

use proptest::prelude::*;
use std::path::Path;
use vsteer_core::topology::{CacheKind, CoreKind, GroupKind, NodeId, Topology};
use vsteer_core::{Fault, FaultKind};
use vsteer_host::linux::topology::read;
use vsteer_host::root::Root;

const CPU: &str = "sys/devices/system/cpu";
const NODE: &str = "sys/devices/system/node";

fn read_tree<P: AsRef<str>, T: AsRef<[u8]>>(files: &[(P, T)]) -> Result<Topology, Fault> {
    let dir = tempfile::tempdir().unwrap();
    for (path, content) in files {
        let path = dir.path().join(path.as_ref());
        std::fs::create_dir_all(path.parent().unwrap_or(Path::new("/"))).unwrap();
        std::fs::write(path, content).unwrap();
    }
    read(&Root::open(dir.path()).unwrap())
}

fn at(folder: &str, name: &str) -> String {
    format!("{folder}/{name}")
}

fn cores(machine: &Topology) -> Vec<String> {
    machine.cores().iter().map(|c| c.cpus.to_string()).collect()
}

#[test]
fn this_machine_can_be_read() {
    let machine = read(&Root::live().unwrap()).unwrap();
    let here = std::thread::available_parallelism().unwrap().get();
    assert!(machine.online().len() >= here, "{machine:?}");
    assert!(!machine.usable().is_empty());
    assert!(machine.memory_bytes().unwrap() > 1 << 20);
}

#[test]
fn lists_serve_where_masks_are_missing_and_hybrid_cores_are_told_apart() {
    let mut files = vec![(at(CPU, "online"), "0-3\n".to_owned())];
    for (cpu, threads) in [(0, "0-1"), (1, "0-1"), (2, "2"), (3, "3"), (4, "4")] {
        let topology = |name: &str| format!("{CPU}/cpu{cpu}/topology/{name}");
        files.push((topology("core_cpus_list"), format!("{threads}\n")));
        files.push((topology("package_cpus_list"), "0-3\n".into()));
        files.push((topology("cluster_cpus_list"), if cpu < 2 { threads } else { "2-3" }.into()));
        files.push((format!("{CPU}/cpu{cpu}/cpufreq/cpuinfo_max_freq"), "4700000\n".into()));
        files.push((format!("{CPU}/cpu{cpu}/cpufreq/base_frequency"), "0\n".into()));
    }
    files.push(("sys/devices/cpu_core/cpus".into(), "0-1\n".into()));
    files.push(("sys/devices/cpu_atom/cpus".into(), "2-3\n".into()));
    files.push((format!("{CPU}/cpu2/cpu_capacity"), "446\n".into()));
    let machine = read_tree(&files).unwrap();
    assert_eq!(cores(&machine), ["0-1", "2", "3"]);
    assert_eq!(machine.core_of(1).unwrap().kind, Some(CoreKind::Performance));
    let small = machine.core_of(2).unwrap();
    assert_eq!((small.kind, small.capacity), (Some(CoreKind::Efficiency), Some(446)));
    assert_eq!((small.frequency_max_khz, small.frequency_base_khz), (Some(4_700_000), None));
    assert_eq!(machine.offline().to_string(), "4");
    let groups: Vec<(GroupKind, String)> =
        machine.groups().iter().map(|g| (g.kind, g.cpus.to_string())).collect();
    assert_eq!(groups, [(GroupKind::Cluster, "2-3".into())]);
    assert_eq!((machine.packages().len(), machine.oddities()), (1, [].as_slice()));
}

#[test]
fn a_machine_without_sysfs_is_what_cpuinfo_says() {
    let cpuinfo = "processor\t: 0\nphysical id\t: 0\ncore id\t\t: 0\n\nprocessor\t: 1\nphysical id\t: 1\ncore id\t\t: 0\n\n\
                   processor\t: 2\nphysical id\t: 0\ncore id\t\t: 0\n\nprocessor\t: 3\nphysical id\t: 1\ncore id\t\t: 1\n";
    let machine = read_tree(&[("proc/cpuinfo", cpuinfo), ("proc/meminfo", "MemTotal: 8 kB\n")]).unwrap();
    assert_eq!(cores(&machine), ["0,2", "1", "3"]);
    let packages: Vec<String> = machine.packages().iter().map(|p| p.cpus.to_string()).collect();
    assert_eq!(packages, ["0,2", "1,3"]);
    assert!(machine.cores().iter().all(|c| c.assumed) && machine.packages().iter().all(|p| p.assumed));
    assert_eq!((machine.nodes()[0].memory_bytes, machine.nodes()[0].assumed), (Some(8192), true));
    let nothing = read_tree(&[("proc/meminfo", "MemTotal: 8 kB\n")]).unwrap_err();
    assert_eq!(nothing.kind, FaultKind::BadInput);
    assert!(nothing.help.is_some());
}

#[test]
fn amd_compute_units_hold_two_cores() {
    let tree = |family: &str| {
        let mut files = vec![(
            "proc/cpuinfo".to_owned(),
            format!("processor\t: 0\nvendor_id\t: AuthenticAMD\ncpu family\t: {family}\n\nprocessor\t: 1\n"),
        )];
        for cpu in 0..2 {
            files.push((format!("{CPU}/cpu{cpu}/topology/thread_siblings"), "3\n".into()));
            files.push((format!("{CPU}/cpu{cpu}/topology/core_id"), format!("{cpu}\n")));
        }
        read_tree(&files).unwrap()
    };
    assert_eq!(cores(&tree("21")), ["0", "1"]);
    assert_eq!(cores(&tree("23")), ["0-1"]);
}

#[test]
fn power_without_sysfs_topology_is_what_the_device_tree_says() {
    let cell = |n: u32| n.to_be_bytes().to_vec();
    let dt = "proc/device-tree/cpus";
    let mut files: Vec<(String, Vec<u8>)> = Vec::new();
    for cpu in 0..4u32 {
        // The firmware's numbers have holes: 8 and 9, 16 and 17.
        let physical = 8 + cpu / 2 * 8 + cpu % 2;
        files.push((format!("{CPU}/cpu{cpu}/physical_id"), format!("{physical}\n").into()));
    }
    for core in [8u32, 16] {
        let folder = format!("{dt}/PowerPC,POWER7@{core:x}");
        files.push((at(&folder, "device_type"), b"cpu\0".to_vec()));
        files.push((at(&folder, "ibm,ppc-interrupt-server#s"), [cell(core), cell(core + 1)].concat()));
        files.push((at(&folder, "d-cache-size"), cell(32768)));
        files.push((at(&folder, "l2-cache"), cell(0x2000)));
    }
    let l2 = format!("{dt}/l2-cache@2000");
    files.push((at(&l2, "ibm,phandle"), cell(0x2000)));
    files.push((at(&l2, "d-cache-size"), cell(1 << 20)));
    files.push((at(&l2, "cache-unified"), Vec::new()));
    // A cache that is its own next level must not be followed for ever.
    files.push((at(&l2, "l2-cache"), cell(0x2000)));
    let machine = read_tree(&files).unwrap();
    assert_eq!(cores(&machine), ["0-1", "2-3"]);
    let caches: Vec<(u8, CacheKind, String)> =
        machine.caches().iter().map(|c| (c.level, c.kind, c.cpus.to_string())).collect();
    assert_eq!(caches[..2], [(1, CacheKind::Data, "0-1".into()), (1, CacheKind::Data, "2-3".into())]);
    assert_eq!(caches[2], (2, CacheKind::Unified, "0-3".into()));
    assert_eq!(machine.caches()[2].size_bytes, Some(1 << 20));
}

#[test]
fn sparse_nodes_with_and_without_cpus() {
    let node = |n: u32, name: &str| format!("{NODE}/node{n}/{name}");
    let files = [
        (format!("{CPU}/cpu0/topology/core_cpus"), "1\n"),
        (format!("{CPU}/cpu1/topology/core_cpus"), "2\n"),
        (at(NODE, "online"), "0,5,9\n"),
        (node(0, "cpumap"), "1\n"),
        (node(0, "distance"), "10 20 20\n"),
        (node(5, "cpulist"), "1\n"),
        (node(5, "distance"), "20 10 17\n"),
        (node(9, "cpumap"), "0\n"),
        (node(9, "distance"), "20 17 10\n"),
        (node(9, "meminfo"), "Node 9 MemTotal: 4 kB\n"),
        (node(7, "cpumap"), "3\n"),
    ];
    let machine = read_tree(&files).unwrap();
    let ids: Vec<u32> = machine.nodes().iter().map(|n| n.id.0).collect();
    assert_eq!(ids, [0, 5, 9]);
    assert_eq!(machine.distance(NodeId(9), NodeId(5)), Some(17));
    let memory = machine.node(NodeId(9)).unwrap();
    assert_eq!((memory.nearest_cpus.to_string().as_str(), memory.memory_bytes), ("1", Some(4096)));
    assert_eq!(machine.node_of(1).unwrap().id, NodeId(5));
}

#[test]
fn one_broken_file_costs_what_it_says_and_is_named() {
    let mut files = vec![
        (at(CPU, "online"), "0-1\n"),
        (format!("{CPU}/cpu1/topology/core_cpus"), "2\n"),
        (format!("{CPU}/cpu0/topology/core_cpus"), "1\n"),
    ];
    let broken = [
        (format!("{CPU}/cpu0/topology/package_cpus"), "zz\n"),
        (format!("{CPU}/cpu0/cache/index0/shared_cpu_map"), "2\n"),
        (format!("{CPU}/cpu1/cache/index0/shared_cpu_map"), "2\n"),
        (format!("{CPU}/cpu1/cache/index0/level"), "1\n"),
        (format!("{CPU}/cpu1/cache/index0/size"), "much\n"),
        (at(NODE, "online"), "0\n"),
        (at(NODE, "node0/cpumap"), "\n"),
    ];
    files.extend(broken);
    let machine = read_tree(&files).unwrap();
    assert_eq!((machine.cores().len(), machine.packages().len()), (2, 1));
    assert_eq!((machine.caches().len(), machine.caches()[0].size_bytes), (1, None));
    let places: Vec<&str> = machine.oddities().iter().map(|o| o.place.as_str()).collect();
    for part in
        ["cpu0/topology/package_cpus", "cpu0/cache/index0", "cpu0/cache", "index0/size", "node0/cpumap"]
    {
        assert!(places.iter().any(|p| p.ends_with(part)), "{part} is not among {places:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Whatever the files say, the answer is a topology or a fault.
    #[test]
    fn any_tree_is_read_or_refused(
        texts in proptest::collection::vec(prop_oneof!["[0-9,f-]{0,6}\n", "\\PC{0,12}", "(10 ){0,3}", Just("3\n".into())], 16),
    ) {
        let names = [
            "online", "cpu0/topology/core_cpus", "cpu1/topology/core_cpus", "cpu0/topology/package_cpus",
            "cpu1/topology/core_id", "cpu0/topology/die_cpus", "cpu1/topology/cluster_cpus_list",
            "cpu0/cache/index0/shared_cpu_map", "cpu0/cache/index0/level", "cpu0/cpu_capacity",
            "../node/online", "../node/node0/cpumap", "../node/node1/cpulist", "../node/node0/distance",
            "../node/node1/meminfo", "../../../../proc/cpuinfo",
        ];
        let files: Vec<(String, &String)> = names.iter().map(|n| at(CPU, n)).zip(&texts).collect();
        if let Ok(machine) = read_tree(&files) {
            prop_assert!(!machine.online().is_empty());
            prop_assert!(machine.online().iter().all(|cpu| machine.siblings(cpu).contains(cpu)));
        }
    }
}
