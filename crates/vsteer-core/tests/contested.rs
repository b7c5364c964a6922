//! Tests of programs on the host that change by themselves what a plan changes.

mod common;

use common::{Host, words};
use std::collections::BTreeMap;
use vsteer_core::nouns::*;
use vsteer_core::plan::Plan;
use vsteer_core::plan::advise::{plan, plan_of};
use vsteer_core::plan::limits::Limits;
use vsteer_core::plan::set::{Setting, steps};
use vsteer_core::setting::knob::{How, Knob};
use vsteer_core::setting::{self, Change, Scope, Step};
use vsteer_core::{CpuSet, forecast::fluid};

/// Two nodes of two pCPUs. The VM `web` has a pin to one pCPU of each node, and is the only one that waits there.
fn pinned(contenders: &[Contender]) -> Host {
    let mut h = Host::new(4, 2, 0.05);
    h.vm("web", 2, 0.4, 0.3, 0.0).pin("web", "0,2");
    [0, 2].iter().for_each(|cpu| h.model.pcpus[*cpu].busy = 1.0);
    h.config.contenders = contenders.to_vec();
    h
}

fn contested(h: &Host) -> Vec<String> {
    h.found("contested").into_iter().map(|f| f.title).collect()
}

#[test]
fn numad_beside_a_pin_is_named() {
    let found = pinned(&[Contender::Numad]).found("contested");
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].title, "numad may move VM \"web\", and its vCPUs are pinned");
    assert!(found[0].next.contains("numad -x 100"), "{}", found[0].next);
    assert_eq!(
        words(&found[0].evidence),
        [
            "NUMA nodes with pCPUs: 2.00 nodes",
            "pCPUs that its vCPUs may use, of those of the host: 2.00 pCPUs against 4.00"
        ]
    );
    let with = |tweak: fn(&mut Host)| {
        let mut h = pinned(&[Contender::Numad]);
        tweak(&mut h);
        contested(&h)
    };
    let none: [&str; 0] = [];
    assert_eq!(with(|h| h.config.topology = common::topology(4, 1)), none, "one node: numad does nothing");
    assert_eq!(with(|h| _ = h.pin("web", "0-3")), none, "it is not pinned");
    assert_eq!(with(|h| _ = h.pin("web", "2-3")), none, "numad itself pins to whole nodes");
    assert_eq!(with(|h| h.config.vms[0].memory_bytes = Some(256 << 20)), none, "too small for numad");
    assert_eq!(with(|h| h.config.contenders = vec![Contender::Tuned, Contender::Systemd]), none);
    let bound = with(|h| {
        h.pin("web", "0-3");
        h.config.vms[0].memory_nodes = Some(CpuSet::single(1));
    });
    assert_eq!(bound, ["numad may move VM \"web\", and its memory is bound to a node"]);
    assert_eq!(with(|h| h.config.vms[0].memory_nodes = Some(CpuSet::first(2))).len(), 1, "the pin alone");
}

#[test]
fn two_programs_that_place_one_vm_are_named() {
    let both = |contender: Contender, tweak: fn(&mut VmConfig)| {
        let mut h = pinned(&[Contender::Numad, contender]);
        h.pin("web", "0-3");
        tweak(&mut h.config.vms[0]);
        contested(&h)
    };
    let libvirt = |vm: &mut VmConfig| vm.manager = Manager::Libvirt("qemu:///system".into());
    assert_eq!(both(Contender::Vdsm, libvirt), ["numad may move VM \"web\", and VDSM places it, too"]);
    let pod = both(Contender::StaticCpuManager, |vm| vm.manager = Manager::KubeVirt);
    assert_eq!(pod, ["numad may move VM \"web\", and kubelet's static CPU manager places it, too"]);
    let lxd = |vm: &mut VmConfig| {
        vm.manager = Manager::Bare;
        vm.threads[0].cgroup = Some("/system.slice/snap.lxd.daemon.service".into());
    };
    assert_eq!(both(Contender::Lxd, lxd).len(), 1);
    // These are not theirs.
    assert!(both(Contender::Vdsm, |_| {}).is_empty() && both(Contender::Lxd, |_| {}).is_empty());
    assert!(
        both(Contender::StaticCpuManager, libvirt).is_empty() && both(Contender::Mom, libvirt).is_empty()
    );
}

#[test]
fn what_would_be_undone_is_not_proposed_unless_asked_for() {
    let free = pinned(&[]).plan();
    assert!(!free.steps.is_empty() && free.contested.is_empty(), "{}", free.title);
    let refused = pinned(&[Contender::Numad]).plan();
    assert!(refused.steps.is_empty(), "{}", refused.title);
    let why = refused.alternatives.iter().find(|a| a.why_not.contains("numad")).unwrap();
    assert!(
        why.why_not.starts_with("numad would undo the change of VM \"web\", because it pins"),
        "{}",
        why.why_not
    );
    assert!(why.why_not.contains("systemctl disable --now numad"), "{}", why.why_not);
    // On one node numad does nothing.
    let mut one = pinned(&[Contender::Numad]);
    one.config.topology = common::topology(4, 1);
    assert!(!one.plan().steps.is_empty());
    // Programs that act at a reload alone are no reason to refuse.
    assert!(!pinned(&[Contender::Systemd, Contender::Tuned]).plan().steps.is_empty());
    let h = pinned(&[Contender::Numad]);
    let asked = plan(&h.config, &h.model, Limits::default(), Scope::Live, Some("unpin")).unwrap();
    assert!(!asked.steps.is_empty());
    assert_eq!(asked.contested.len(), 1);
    assert!(asked.contested[0].starts_with("VM \"web\": numad pins"), "{}", asked.contested[0]);
}

fn set(h: &Host, setting: &str, scope: Scope) -> Plan {
    let steps = steps(&h.config, &[setting.parse::<Setting>().unwrap()]).unwrap();
    made(h, steps, scope)
}

fn made(h: &Host, steps: Vec<Step>, scope: Scope) -> Plan {
    let forecaster = &mut |steps: &[Step]| Ok(fluid::forecast(&h.config, &h.model, steps));
    plan_of(&h.config, "by hand", steps, scope, forecaster).unwrap()
}

#[test]
fn settings_by_hand_are_made_with_a_note() {
    let h = pinned(&[Contender::Numad]);
    let by_hand = set(&h, "web:pin=1", Scope::Live);
    assert_eq!((by_hand.steps.len(), by_hand.contested.len()), (2, 1));
    assert!(set(&h, "web:weight=512", Scope::Live).contested.is_empty(), "numad sets no weights");
    assert!(set(&h, "web:pin=1", Scope::Persistent).contested.is_empty(), "nor definitions");
}

#[test]
fn each_program_is_a_note_where_it_changes_the_same() {
    let mut h = pinned(&[Contender::NovaCompute, Contender::Systemd, Contender::Mom]);
    let notes = |h: &Host, setting: &str, scope| set(h, setting, scope).contested;
    assert!(notes(&h, "web:weight=512", Scope::Live).is_empty(), "its cgroup is not a unit's");
    h.config.vms[0].cgroup = Some("/qemu.slice/web.scope".into());
    let weight = notes(&h, "web:weight=512", Scope::Live);
    assert!(weight[0].contains("systemd writes the weight") && weight.len() == 1, "{weight:?}");
    assert_eq!(notes(&h, "web:limit=1", Scope::Both).len(), 1, "a quota");
    assert!(notes(&h, "web:pin=1", Scope::Both).is_empty());

    let vm = &mut h.config.vms[0];
    vm.manager = Manager::Libvirt("qemu:///system".into());
    assert!(notes(&h, "web:weight=512", Scope::Persistent).is_empty(), "not one of OpenStack's");
    h.config.vms[0].labels = BTreeMap::from([("flavour".to_owned(), "m1".to_owned())]);
    let nova = notes(&h, "web:weight=512", Scope::Persistent);
    assert!(nova[0].contains("nova-compute writes the definitions") && nova.len() == 1, "{nova:?}");
    assert!(notes(&h, "web:weight=512", Scope::Live).is_empty(), "until its restart it holds");
    // MoM sets the quotas of vCPUs, not that of the VM.
    let quota = |scope| {
        let to = Some(Quota { quota_us: 50_000, period_us: 100_000 });
        let (vm, vm_name, reason) = (VmId("web".into()), "web".into(), String::new());
        let change = Change::Quota(setting::Quota { scope, from: None, to });
        made(&h, vec![Step { vm, vm_name, change, reason }], Scope::Live).contested.len()
    };
    assert_eq!(quota(setting::QuotaScope::PerVcpu), 1);
    assert_eq!(quota(setting::QuotaScope::WholeVm), 0);
}

#[test]
fn a_pin_beyond_the_cpuset_of_a_cgroup_is_cut() {
    let slice = |cpus: &str| GroupScheduling {
        cgroup: "/m".into(),
        shared: true,
        cpus: Some(cpus.parse().unwrap()),
        ..Default::default()
    };
    let mut h = pinned(&[]);
    h.config.vms[0].scheduling = vec![slice("0-2")];
    let wide = set(&h, "web:pin=0-3", Scope::Live);
    let why = "VM \"web\": the kernel cuts the pin to pCPUs 0-2, the cpuset of the cgroup /m; widen it first";
    assert!(wide.contested.len() == 1 && wide.contested[0].starts_with(why), "{:?}", wide.contested);
    assert!(set(&h, "web:pin=1-2", Scope::Live).contested.is_empty());
    assert!(set(&h, "web:pin=0-3", Scope::Persistent).contested.is_empty());
    // A default plan keeps within it.
    let unpinned = h.plan();
    let within =
        |s: &Step| matches!(&s.change, Change::Affinity(pin) if pin.to.is_subset(&"0-2".parse().unwrap()));
    assert!(!unpinned.steps.is_empty() && unpinned.steps.iter().all(within), "{:?}", unpinned.steps);
    h.config.vms[0].scheduling[0].cgroup = "/other".into();
    assert!(set(&h, "web:pin=0-3", Scope::Live).contested.is_empty(), "no thread of it is there");
}

#[test]
fn tuned_sets_the_kernel_and_no_vm() {
    let h = pinned(&[Contender::Tuned]);
    let knob = |how: How, on: Option<&str>| {
        let knob = Box::new(Knob { name: "slice".into(), how, on: on.map(str::to_owned) });
        let change = Change::Knob(setting::HostKnob { knob, from: "1".into(), to: "2".into() });
        let (vm, vm_name) = (VmId("host".into()), "host h".into());
        made(&h, vec![Step { vm, vm_name, change, reason: String::new() }], Scope::Live).contested
    };
    let file = knob(How::File { path: "/proc/sys/kernel/numa_balancing".into() }, None);
    assert!(file.len() == 1 && file[0].starts_with("host h: tuned sets"), "{file:?}");
    assert!(knob(How::Tuned {}, None).is_empty(), "its own profile");
    assert!(knob(How::File { path: "/proc/sys/kernel/numa_balancing".into() }, Some("root@b")).is_empty());
    assert!(set(&h, "web:pin=1", Scope::Both).contested.is_empty());
}

#[test]
fn programs_do_not_make_another_plan_or_refuse_one() {
    let (without, with) = (pinned(&[]), pinned(&[Contender::Numad]));
    assert_eq!(without.config.fingerprint(), with.config.fingerprint());
    assert!(without.config.differences(&with.config).is_empty());
    let text = serde_json::to_string(&without.config).unwrap();
    assert!(!text.contains("contenders"), "an older vsteer reads it");
    let text = serde_json::to_string(&with.config).unwrap();
    assert_eq!(serde_json::from_str::<HostConfig>(&text).unwrap(), with.config);
}
