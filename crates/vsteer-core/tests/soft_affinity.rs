//! Tests of the rule `soft_affinity`, and of the pCPUs on which samples find a thread.

mod common;

use common::{Host, words};
use std::collections::BTreeMap;
use vsteer_core::diagnose::Finding;
use vsteer_core::model::{RanOn, derive};
use vsteer_core::nouns::*;
use vsteer_core::{CpuSet, topology};

const GIB: u64 = 1 << 30;

fn cpus(text: &str) -> CpuSet {
    text.parse().unwrap()
}

/// A domain on two nodes of two pCPUs. Its two vCPUs prefer node 0, and run 0.24 of a pCPU there and 0.16 on node 1.
fn host() -> Host {
    let mut h = Host::new(4, 2, 0.5);
    h.config.topology = topology::machine(2, 1, 2, 1).unwrap();
    h.vm("web", 2, 0.4, 0.0, 0.0);
    let vm = &mut h.config.vms[0];
    let (name, scheduler) = ("Pool-0".into(), "credit2".into());
    vm.pool = Some(CpuPool { name, scheduler, cpus: CpuSet::first(4), parameters: BTreeMap::new() });
    vm.manager = Manager::Xen;
    vm.threads.iter_mut().filter(|t| t.role.vcpu().is_some()).for_each(|t| t.prefers = Some(cpus("0-1")));
    for t in &mut h.model.vms[0].threads {
        t.ran_on = vec![RanOn { cpu: 1, samples: 5, run: 0.24 }, RanOn { cpu: 2, samples: 3, run: 0.16 }];
    }
    h
}

fn found(tweak: impl Fn(&mut Host)) -> Option<Finding> {
    let mut h = host();
    tweak(&mut h);
    h.found("soft_affinity").pop()
}

fn scheduler(h: &mut Host, name: &str) {
    h.config.vms[0].pool.as_mut().unwrap().scheduler = name.into();
}

fn busy(h: &mut Host, busy: [f64; 4]) {
    h.model.pcpus.iter_mut().zip(busy).for_each(|(pcpu, busy)| pcpu.busy = busy);
}

#[test]
fn full_pcpus_are_told_from_those_with_room() {
    let full = found(|h| busy(h, [0.95, 0.92, 0.4, 0.1])).unwrap();
    assert_eq!(
        full.title,
        "VM \"web\": 40 % of the run time is outside the preferred pCPUs 0-1, because these are full"
    );
    assert_eq!(
        words(&full.evidence),
        [
            "run time outside the preferred pCPUs, part of the run time: 40.00 % against 10.00",
            "samples, summed over vCPUs: 16.00 samples",
            "busy share of the preferred pCPUs, mean: 93.50 % against 90.00",
        ]
    );
    // Less idle time than the domain runs outside is not room for it.
    assert!(found(|h| busy(h, [0.85, 0.9, 0.4, 0.1])).unwrap().title.ends_with("are full"));
    let room = found(|h| busy(h, [0.5, 0.5, 0.4, 0.1])).unwrap();
    assert_eq!(room.title, "VM \"web\": 40 % of the run time is outside the preferred pCPUs 0-1");
    assert_eq!(room.next, "if the vCPUs must stay there, pin them: vsteer plan --set web:pin=0-1");
    assert!(room.explanation.contains("moves between samples are not seen"), "the limit is stated");
}

#[test]
fn what_is_followed_or_hardly_measured_is_not_a_finding() {
    let outside =
        |run: f64| move |h: &mut Host| h.model.vms[0].threads.iter_mut().for_each(|t| t.ran_on[1].run = run);
    assert!(found(outside(0.027)).is_some() && found(outside(0.026)).is_none(), "a tenth of the run time");
    let places = |of: fn(&mut RanOn)| {
        move |h: &mut Host| {
            h.model.vms[0].threads.iter_mut().flat_map(|t| &mut t.ran_on).for_each(of);
        }
    };
    assert!(found(places(|on| on.run /= 20.0)).is_none(), "it hardly runs");
    assert!(found(places(|on| on.samples = 1)).is_none(), "four samples of its two vCPUs");
    let prefers = |set: &'static str| {
        move |h: &mut Host| h.config.vms[0].threads.iter_mut().for_each(|t| t.prefers = Some(cpus(set)))
    };
    assert!(found(prefers("0-3")).is_none(), "all pCPUs are preferred");
    assert!(found(|h| h.config.vms[0].threads.iter_mut().for_each(|t| t.prefers = None)).is_none());
    assert!(found(|h| _ = h.pin("web", "0-1")).is_none(), "it may run nowhere else");
    assert!(found(|h| h.model.vms[0].threads.iter_mut().for_each(|t| t.ran_on.clear())).is_none());
}

#[test]
fn a_preference_that_the_pin_excludes_has_no_effect() {
    let void = found(|h| _ = h.pin("web", "2-3")).unwrap();
    assert_eq!(
        void.title,
        "the soft affinity of VM \"web\" has no effect: the hard affinity allows none of the preferred pCPUs 0-1"
    );
    assert_eq!(void.next, "allow the vCPUs to run there: vsteer plan --set web:pin=0-1");
    let one = found(|h| h.config.vms[0].threads[1].affinity = cpus("2-3")).unwrap();
    assert!(one.title.starts_with("vCPU 0 of VM \"web\": 40 %"), "{}", one.title);
    let mut both = host();
    both.config.vms[0].threads[1].affinity = cpus("2-3");
    assert!(both.found("soft_affinity").iter().any(|f| f.title.contains("affinity of vCPU 1 of VM")));
    let beyond = found(|h| {
        h.pin("web", "2-3");
        h.config.vms[0].pool.as_mut().unwrap().cpus = cpus("2-3");
    })
    .unwrap();
    assert!(
        beyond.next.ends_with("without a preference: vsteer plan --set web:prefer=any"),
        "{}",
        beyond.next
    );
    // Whether the domain runs does not matter: the configuration is wrong.
    assert!(
        found(|h| {
            h.pin("web", "2-3");
            h.model.vms[0].threads.iter_mut().for_each(|t| t.ran_on.clear());
        })
        .is_some()
    );
}

#[test]
fn schedulers_that_ignore_preferences_are_named() {
    for (name, ignores) in [("rtds", true), ("arinc653", true), ("credit", false), ("null", false)] {
        let f = found(|h| scheduler(h, name)).unwrap();
        assert_eq!(f.title.contains(&format!("scheduler {name} ignores")), ignores, "{}", f.title);
    }
    let ignored = found(|h| scheduler(h, "rtds")).unwrap();
    assert_eq!(ignored.next, "pin the vCPUs instead: vsteer plan --set web:pin=0-1");
    let by_chance = found(|h| {
        scheduler(h, "rtds");
        h.model.vms[0].threads.iter_mut().for_each(|t| _ = t.ran_on.pop());
    });
    assert!(by_chance.is_none(), "it runs where it prefers");
}

#[test]
fn the_loss_is_that_of_remote_memory_where_its_place_is_known() {
    assert_eq!(found(|_| {}).unwrap().loss_pcpus, 0.0);
    let near = |memory: Vec<(u32, u64)>| {
        found(move |h| h.model.vms[0].memory_by_node = Some(memory.clone())).unwrap().loss_pcpus
    };
    // Both vCPUs run 0.16 of a pCPU on node 1.
    assert!((near(vec![(0, GIB), (1, 0)]) - 0.1 * 0.32).abs() < 1e-12);
    assert!((near(vec![(0, GIB), (1, GIB)]) - 0.1 * 0.16).abs() < 1e-12);
    assert_eq!(near(vec![(0, 0), (1, GIB)]), 0.0, "the memory is where it runs");
    let bound = found(|h| h.config.vms[0].memory_nodes = Some(CpuSet::single(0))).unwrap();
    assert!((bound.loss_pcpus - 0.032).abs() < 1e-12);
    let one_node = found(|h| {
        h.config.topology = topology::machine(1, 1, 4, 1).unwrap();
        h.model.vms[0].memory_by_node = Some(vec![(0, GIB)]);
    })
    .unwrap();
    assert_eq!(one_node.loss_pcpus, 0.0);
    assert!(!one_node.explanation.contains("cross nodes"));
}

#[test]
fn run_time_counts_to_the_pcpu_on_which_a_sample_finds_the_thread() {
    let h = host();
    let vm = &h.config.vms[0];
    let batch = |second: u64, cpu: Option<u32>, run_ms: u64| {
        let counters = ThreadCounters { run_ns: Some(run_ms * 1_000_000), ..ThreadCounters::default() };
        let (role, tid) = (vm.threads[0].role, vm.threads[0].tid);
        let sample = ThreadSample { vm: vm.id.clone(), role, tid, last_cpu: cpu, waiting_ns: None, counters };
        Batch { mono_ns: second * 1_000_000_000, threads: vec![sample], ..Batch::default() }
    };
    let collector = Collector { name: "ebpf".into(), missing: BTreeMap::new() };
    let places =
        |batches: &[Batch]| derive(&h.config, &collector, batches).unwrap().vms[0].threads[0].ran_on.clone();
    let run = [(3, 0), (1, 400), (2, 600), (1, 700), (1, 700)];
    let batches: Vec<Batch> = run.iter().zip(0..).map(|((cpu, ms), s)| batch(s, Some(*cpu), *ms)).collect();
    // The first sample has no interval, and in the last one the thread did not run.
    assert_eq!(
        places(&batches),
        [RanOn { cpu: 1, samples: 2, run: 0.5 / 4.0 }, RanOn { cpu: 2, samples: 1, run: 0.2 / 4.0 }]
    );
    assert!(places(&[batch(0, None, 0), batch(1, None, 100)]).is_empty(), "polling does not tell pCPUs");
}
