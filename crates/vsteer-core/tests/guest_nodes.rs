//! VMs whose guest is shown NUMA nodes with bound memory, and VMs whose memory or devices cannot move: what is found and planned.

mod common;

use common::{Host, words};
use vsteer_core::nouns::{Fixed, GuestNode};
use vsteer_core::plan::set;
use vsteer_core::setting::{Change, Step};
use vsteer_core::{CpuSet, topology};

fn cell(id: u32, vcpus: &str, on: Option<u32>) -> GuestNode {
    GuestNode {
        id,
        vcpus: vcpus.parse().unwrap(),
        memory_bytes: Some(1 << 28),
        host_nodes: on.map(CpuSet::single),
    }
}

fn device(node: Option<u32>) -> Fixed {
    Fixed::Device { address: "0000:3b:00.0".into(), node }
}

/// A VM of 4 vCPUs in two guest nodes, bound to nodes 0 and 1, with vCPUs where `at` says.
fn in_cells(at: [u32; 4]) -> Host {
    let mut h = Host::new(8, 2, 0.3);
    h.vm("a", 4, 0.3, 0.0, 0.0);
    h.config.vms[0].guest_nodes = vec![cell(0, "0-1", Some(0)), cell(1, "2-3", Some(1))];
    h.model.vms[0].memory_by_node = Some(vec![(0, 500), (1, 500)]);
    for (t, cpu) in h.model.vms[0].threads.iter_mut().zip(at) {
        t.last_cpu = Some(cpu);
    }
    h
}

#[test]
fn memory_beside_each_guest_nodes_vcpus_is_local() {
    let mut h = in_cells([0, 1, 4, 5]);
    assert!(h.found("memory_remote").is_empty(), "{:?}", h.found("memory_remote"));
    // The same VM without bindings: each vCPU is taken to access all memory.
    h.config.vms[0].guest_nodes.clear();
    assert_eq!(h.found("memory_remote")[0].title, "VM \"a\" has 50 % of its memory on remote NUMA nodes");
    h.config.vms[0].guest_nodes = vec![cell(0, "0-1", Some(0)), cell(1, "2-3", None)];
    assert!(h.finds("memory_remote"), "of one guest node the binding is not known");
}

#[test]
fn the_guest_node_whose_vcpus_run_elsewhere_is_named() {
    let h = in_cells([0, 1, 2, 3]);
    let [found] = &h.found("memory_remote")[..] else { panic!() };
    assert_eq!(
        found.title,
        "VM \"a\" runs away from its memory: guest NUMA node 1 runs on node 0, with memory on node 1"
    );
    assert_eq!(
        words(&found.evidence),
        [
            "local share of this VM's memory: 50.00 %",
            "local share of the memory of guest NUMA node 1: 0.00 % against 80.00"
        ]
    );
    assert!(found.explanation.contains("rests on the binding"), "{}", found.explanation);
    assert!(
        found.next.starts_with("pin vCPUs 2-3 (guest NUMA node 1) to pCPUs 4-7; or move both"),
        "{}",
        found.next
    );
    assert!((found.loss_pcpus - 0.1 * 1.2 * 0.5).abs() < 1e-9, "{}", found.loss_pcpus);
}

/// One of eight guest nodes is away: 87.5 % of the memory is local, which is enough for the VM as a whole.
#[test]
fn one_remote_guest_node_of_many_is_found() {
    let mut h = in_cells([0, 1, 4, 5]);
    h.model.vms[0].threads[2].shares.run = Some(0.1);
    h.model.vms[0].threads[2].last_cpu = Some(0);
    h.model.vms[0].threads[3].shares.run = Some(0.0);
    let [found] = &h.found("memory_remote")[..] else { panic!() };
    assert!(found.title.contains("guest NUMA node 1 runs on node 0"), "{}", found.title);
    // A guest node that hardly runs hardly suffers.
    h.model.vms[0].threads[2].shares.run = Some(0.04);
    assert!(!h.finds("memory_remote"));
}

/// Swapped: all memory is remote, though half of it lies on each node that the VM runs on.
#[test]
fn swapped_guest_nodes_are_all_remote() {
    let h = in_cells([4, 5, 0, 1]);
    let [found] = &h.found("memory_remote")[..] else { panic!() };
    assert!(found.title.contains("node 0 runs on node 1") && found.title.contains("node 1 runs on node 0"));
    assert_eq!(words(&found.evidence)[0], "local share of this VM's memory: 0.00 %");
}

#[test]
fn pages_refute_a_binding() {
    let mut h = in_cells([4, 4, 4, 4]);
    h.model.vms[0].memory_by_node = Some(vec![(1, 1000)]);
    assert!(!h.finds("memory_remote"), "no page is on node 0, whatever guest node 0 is bound to");
    // A guest node on two nodes of the host: as far as its pages are there.
    h.config.vms[0].guest_nodes = vec![cell(0, "", None)];
    h.config.vms[0].guest_nodes[0].host_nodes = Some(CpuSet::first(2));
    h.model.vms[0].memory_by_node = Some(vec![(0, 300), (1, 100)]);
    let [found] = &h.found("memory_remote")[..] else { panic!() };
    assert_eq!(words(&found.evidence)[0], "local share of this VM's memory: 25.00 %");
    assert!(found.next.starts_with("bind the memory of guest NUMA node 0 to one node"), "{}", found.next);
}

#[test]
fn memory_that_cannot_move_is_not_to_be_bound_elsewhere() {
    let mut h = Host::new(8, 2, 0.3);
    h.vm("a", 2, 0.3, 0.0, 0.0);
    h.model.vms[0].memory_by_node = Some(vec![(1, 1000)]);
    assert!(h.found("memory_remote")[0].next.contains("or bind the memory"));
    h.config.vms[0].fixed = vec![Fixed::HugePages];
    let next = &h.found("memory_remote")[0].next;
    assert_eq!(next, "pin the vCPUs to the node of the memory, which cannot move: huge pages");
}

/// Two VMs of 4 vCPUs that want 2.8 cores each, on the first of two nodes of 4 cores.
fn crowded() -> Host {
    let mut h = Host::new(8, 2, 0.0);
    h.config.topology = topology::machine(2, 1, 4, 1).unwrap();
    h.vm("a", 4, 0.4, 0.3, 0.0).vm("b", 4, 0.4, 0.3, 0.0).pin("a", "0-3").pin("b", "0-3");
    for vm in &mut h.config.vms {
        vm.memory_nodes = Some(CpuSet::single(0));
    }
    h.model.pcpus.iter_mut().for_each(|p| p.busy = if p.cpu < 4 { 0.805 } else { 0.0 });
    h
}

fn ties() -> [(Vec<GuestNode>, Vec<Fixed>, &'static str); 5] {
    [
        (vec![cell(0, "0-3", Some(0))], vec![], "the memory of its guest NUMA node 0 is bound to node 0"),
        (vec![], vec![Fixed::HugePages], "its memory is in huge pages on node 0"),
        (vec![], vec![Fixed::Locked], "its memory is locked on node 0"),
        (vec![], vec![device(None)], "VFIO device 0000:3b:00.0 pins its memory on node 0"),
        (vec![], vec![device(Some(0))], "its VFIO device 0000:3b:00.0 is on node 0"),
    ]
}

#[test]
fn no_plan_moves_a_vm_whose_memory_or_device_would_stay() {
    assert!(crowded().proposed("node").is_ok(), "without ties one of them moves");
    for (cells, fixed, why) in ties() {
        let mut h = crowded();
        for vm in &mut h.config.vms {
            (vm.guest_nodes, vm.fixed) = (cells.clone(), fixed.clone());
        }
        let refused = h.proposed("node").unwrap_err();
        assert!(refused.starts_with("VM \"a\" cannot move, because ") && refused.contains(why), "{refused}");
        let [overloaded] = &h.found("node_overloaded")[..] else { panic!() };
        assert!(overloaded.next.contains(why) && !overloaded.next.starts_with("move"), "{}", overloaded.next);
        // The other VM moves if it can.
        let mut h = crowded();
        (h.config.vms[0].guest_nodes, h.config.vms[0].fixed) = (cells, fixed);
        let steps = h.proposed("node").unwrap();
        assert!(!steps.is_empty() && steps.iter().all(|s| s.vm_name == "b"), "{why}: {steps:?}");
    }
}

/// vCPUs that are away from memory that cannot follow may come back to it.
#[test]
fn a_vm_may_move_to_memory_that_is_there() {
    let mut h = crowded();
    for vm in &mut h.config.vms {
        vm.guest_nodes = vec![cell(0, "0-3", Some(1))];
    }
    let steps = h.proposed("node").unwrap();
    assert!(!steps.is_empty() && steps.iter().all(|s| matches!(s.change, Change::Affinity(_))), "{steps:?}");
    let mut h = crowded();
    for (vm, seen) in h.config.vms.iter_mut().zip(&mut h.model.vms) {
        (vm.fixed, vm.memory_nodes) = (vec![Fixed::HugePages], None);
        seen.memory_by_node = Some(vec![(1, 1000)]);
    }
    assert!(h.proposed("node").is_ok());
    // Nor does a plan of vsteer's own choice fear that the memory would stay behind.
    let stays = |h: &Host| h.plan().alternatives.iter().any(|a| a.why_not.contains("would stay on node 0"));
    assert!(!stays(&h));
    h.config.vms.iter_mut().for_each(|vm| vm.fixed.clear());
    assert!(stays(&h), "memory that is not bound");
}

fn to(steps: &[Step]) -> Vec<String> {
    let one = |s: &Step| match &s.change {
        Change::Affinity(a) => format!("{}: {}", a.role, a.to),
        other => other.to_string(),
    };
    steps.iter().map(one).collect()
}

/// A VM pinned to two pCPUs of each node, all of them busy, beside two idle ones of each node.
fn pinned() -> Host {
    let mut h = Host::new(8, 2, 1.0);
    h.config.topology = topology::machine(2, 1, 4, 1).unwrap();
    h.vm("a", 4, 0.5, 0.4, 0.0).pin("a", "2-5");
    h.model.pcpus.iter_mut().for_each(|p| p.busy = if (2..6).contains(&p.cpu) { 1.0 } else { 0.0 });
    h
}

#[test]
fn a_pin_is_widened_only_on_nodes_of_memory_that_stays() {
    let all = |cpus: &str| {
        let roles = ["vcpu0", "vcpu1", "vcpu2", "vcpu3", "emulator"];
        roles.map(|role| format!("{role}: {cpus}")).to_vec()
    };
    assert_eq!(to(&pinned().proposed("unpin").unwrap()), all("0-7"));
    let mut h = pinned();
    h.config.vms[0].memory_nodes = Some(CpuSet::single(0));
    assert_eq!(to(&h.proposed("unpin").unwrap()), all("0-5"), "bound");
    let mut h = pinned();
    h.config.vms[0].fixed = vec![Fixed::HugePages];
    h.model.vms[0].memory_by_node = Some(vec![(1, 1000)]);
    assert_eq!(to(&h.proposed("unpin").unwrap()), all("2-7"), "huge pages");
    h.config.vms[0].fixed = vec![device(Some(1))];
    assert_eq!(to(&h.proposed("unpin").unwrap()), all("2-7"), "a device beside the memory");
}

#[test]
fn each_vcpu_stays_by_the_memory_of_its_guest_node() {
    let mut h = pinned();
    h.config.vms[0].guest_nodes = vec![cell(0, "0-1", Some(0)), cell(1, "2-3", Some(1))];
    for (t, pin) in h.config.vms[0].threads.iter_mut().zip(["2-3", "2-3", "4-5", "4-5", "2-5"]) {
        t.affinity = pin.parse().unwrap();
    }
    let own = ["vcpu0: 0-3", "vcpu1: 0-3", "vcpu2: 4-7", "vcpu3: 4-7", "emulator: 0-7"];
    assert_eq!(to(&h.proposed("unpin").unwrap()), own);
    // Not bound, and yet a guest that is shown nodes places its memory by them.
    h.config.vms[0].guest_nodes = vec![cell(0, "0-1", None), cell(1, "2-3", None)];
    assert_eq!(to(&h.proposed("unpin").unwrap()), own);
}

/// A delayed VM gets pCPUs of its own from the last node; a vCPU whose memory is on the first one may not go there.
#[test]
fn separation_takes_no_vcpu_from_the_memory_of_its_guest_node() {
    let mut h = Host::new(8, 2, 1.0);
    h.config.topology = topology::machine(2, 1, 4, 1).unwrap();
    h.vm("tick", 2, 0.04, 0.2, 100.0).vm("burn", 4, 0.9, 0.1, 0.0);
    assert!(h.proposed("separate").is_ok());
    h.config.vms[0].guest_nodes = vec![cell(0, "0", Some(0)), cell(1, "1", Some(1))];
    let refused = h.proposed("separate").unwrap_err();
    assert_eq!(refused, "vcpu0 of VM \"tick\" would leave the memory of its guest NUMA node 0");
}

#[test]
fn nodes_of_a_tied_vm_are_refused_with_the_reason() {
    let setting: set::Setting = "a:nodes=1".parse().unwrap();
    let told = |h: &Host| format!("{:?}", set::steps(&h.config, std::slice::from_ref(&setting)).unwrap_err());
    assert!(told(&crowded()).contains("only vSphere has this setting"));
    for (cells, fixed, why) in ties() {
        let mut h = crowded();
        let one_by_one = !cells.is_empty();
        (h.config.vms[0].guest_nodes, h.config.vms[0].fixed) = (cells, fixed);
        let told = told(&h);
        assert!(told.contains(why) && told.contains("one by one") == one_by_one, "{told}");
    }
}

#[test]
fn a_plan_is_for_the_guest_nodes_it_was_made_for() {
    let before = crowded().config;
    let mut now = before.clone();
    now.vms[0].guest_nodes = vec![cell(0, "0-3", Some(0))];
    now.vms[0].fixed = vec![Fixed::HugePages, device(Some(1))];
    assert_eq!(
        before.differences(&now),
        [
            "VM \"a\", guest NUMA nodes: was none, is 0 (vCPUs 0-3, 256 MiB) on nodes 0",
            "VM \"a\", fixed memory and devices: was none, is huge pages, VFIO device 0000:3b:00.0 of node 1",
        ]
    );
    let text = serde_json::to_string(&now).unwrap();
    assert_eq!(serde_json::from_str::<vsteer_core::nouns::HostConfig>(&text).unwrap(), now);
    assert!(
        !serde_json::to_string(&before).unwrap().contains("guest_nodes"),
        "as before, where there are none"
    );
}
