//! Tests what a change does to a definition, and that undoing it restores the definition.

use crate::actuate::Part;
use crate::kvm::definition::{self, put};
use proptest::prelude::*;
use vsteer_core::CpuSet;
use vsteer_core::nouns::{CpuWeight, GuestNode, GuestTopology, Quota, Role, SchedClass, Tid, VmConfig, VmId};
use vsteer_core::setting::{self, Change, QuotaScope};

fn changed(xml: &str, change: &Change) -> Result<(String, Vec<Part>), String> {
    definition::changed(xml, &super::of(change)?.parts(xml)?)
}

const XML: &str = "<domain type='kvm'>\n  <name>a&lt;b</name>\n  <vcpu>4</vcpu>\n  <cputune>\n    \
    <shares>512</shares>\n    <vcpupin vcpu='0' cpuset='1'/>\n    <vcpupin vcpu='1' cpuset='1'/>\n    \
    <vcpusched vcpus='0-2' scheduler='fifo' priority='3'/>\n  </cputune>\n  <numatune/>\n</domain>\n";

fn affinity(role: Role, to: &str) -> Change {
    Change::Affinity(setting::Affinity { role, tid: Tid(1), from: CpuSet::first(2), to: to.parse().unwrap() })
}

fn class(role: Role, to: SchedClass) -> Change {
    Change::Class(setting::Class { role, tid: Tid(1), from: SchedClass::Other(0), to })
}

#[test]
fn only_what_is_meant_changes() {
    let (text, before) = changed(XML, &affinity(Role::Vcpu(1), "0,3")).unwrap();
    assert_eq!(text, XML.replace("vcpu='1' cpuset='1'", "vcpu='1' cpuset='0,3'"));
    assert_eq!(put(&text, &before[0]).unwrap(), XML);
    let (text, before) = changed(XML, &affinity(Role::Emulator, "2")).unwrap();
    assert!(text.contains("<emulatorpin cpuset='2'/></cputune>"));
    assert_eq!(put(&text, &before[0]).unwrap(), XML);
    assert!(changed(XML, &affinity(Role::Worker, "2")).is_err());
}

#[test]
fn an_element_for_several_vcpus_is_divided() {
    let (text, before) = changed(XML, &class(Role::Vcpu(1), SchedClass::RoundRobin(9))).unwrap();
    assert!(text.contains("<vcpusched vcpus='0,2' scheduler='fifo' priority='3'/>"), "{text}");
    assert!(text.contains("<vcpusched vcpus='1' scheduler='rr' priority='9'/>"), "{text}");
    assert_eq!(put(&text, &before[0]).unwrap(), XML);
    let (text, _) = changed(XML, &class(Role::Vcpu(1), SchedClass::Other(0))).unwrap();
    assert!(text.contains("<vcpusched vcpus='0,2' ") && !text.contains("rr"), "{text}");
    assert!(changed(XML, &class(Role::Vcpu(1), SchedClass::Other(5))).is_err());
}

#[test]
fn parents_that_are_missing_or_empty_are_made() {
    let nodes = Change::MemoryNodes(setting::MemoryNodes { from: None, to: Some(CpuSet::single(1)) });
    let (text, before) = changed(XML, &nodes).unwrap();
    assert!(text.contains("<numatune><memory mode='strict' nodeset='1'/></numatune>"), "{text}");
    assert!(before[0].elements.is_empty());
    let to = GuestTopology { sockets: 1, cores: 2, threads: 2 };
    let (text, _) = changed(XML, &Change::Topology(setting::Topology { from: None, to })).unwrap();
    assert!(
        text.contains("<cpu><topology sockets='1' dies='1' cores='2' threads='2'/></cpu></domain>"),
        "{text}"
    );
    assert_eq!(crate::kvm::xml::parse(&text).unwrap().topology, Some(to));
    let wrong = GuestTopology { sockets: 1, cores: 2, threads: 1 };
    assert!(changed(XML, &Change::Topology(setting::Topology { from: None, to: wrong })).is_err());
}

/// `<memory nodeset=…>` would leave the memory of each `<cell>` where its `<memnode>` says.
#[test]
fn memory_that_is_bound_by_guest_nodes_is_not_bound_as_a_whole() {
    let nodes = setting::MemoryNodes { from: None, to: Some(CpuSet::single(1)) };
    let cells = XML.replace(
        "<numatune/>",
        "<numatune><memnode cellid='0' mode='strict' nodeset='0'/></numatune><cpu><numa><cell id='0' memory='1'/></numa></cpu>",
    );
    let refused = changed(&cells, &Change::MemoryNodes(nodes.clone())).unwrap_err();
    assert!(refused.contains("one by one") && refused.contains("<memnode>"), "{refused}");
    let unbound = cells.replace("<memnode cellid='0' mode='strict' nodeset='0'/>", "");
    assert!(changed(&unbound, &Change::MemoryNodes(nodes.clone())).is_ok());
    let mut vm = VmConfig::new(VmId("a".into()), "a", 1);
    let able = |vm: &VmConfig| {
        let asked = super::Asked { vm, seen: None, of_libvirt: true };
        let setting: &dyn super::KvmSetting = &nodes;
        [setting.live(&asked), setting.defined(&asked)]
    };
    assert!(able(&vm)[0].is_err_and(|why| why.contains("restrictive")) && able(&vm)[1].is_ok());
    let vcpus = CpuSet::first(1);
    vm.guest_nodes =
        vec![GuestNode { id: 0, vcpus, memory_bytes: None, host_nodes: Some(CpuSet::single(0)) }];
    assert!(able(&vm).iter().all(|able| able.is_err_and(|why| why.contains("one by one"))));
}

fn any_change() -> impl Strategy<Value = Change> {
    let role =
        prop_oneof![(0u32..6).prop_map(Role::Vcpu), Just(Role::Emulator), (1u32..3).prop_map(Role::IoThread)];
    let cpus = proptest::collection::vec(0u32..9, 1..4).prop_map(|c| c.into_iter().collect::<CpuSet>());
    let classes = prop_oneof![
        Just(SchedClass::Other(0)),
        Just(SchedClass::Idle),
        (1u8..99).prop_map(SchedClass::Fifo),
        (1u8..99).prop_map(SchedClass::RoundRobin)
    ];
    let scopes =
        prop_oneof![Just(QuotaScope::PerVcpu), Just(QuotaScope::Emulator), Just(QuotaScope::WholeVm)];
    let quota = proptest::option::of((1000u64..99999, 1000u64..99999));
    prop_oneof![
        (role.clone(), cpus.clone()).prop_map(|(role, to)| Change::Affinity(setting::Affinity {
            role,
            tid: Tid(1),
            from: to.clone(),
            to
        })),
        (2u64..9999).prop_map(|n| Change::Weight(setting::Weight {
            from: CpuWeight::Shares(2),
            to: CpuWeight::Shares(n)
        })),
        (scopes, quota).prop_map(|(scope, q)| {
            let to = q.map(|(quota_us, period_us)| Quota { quota_us, period_us });
            Change::Quota(setting::Quota { scope, from: None, to })
        }),
        (role, classes).prop_map(|(role, to)| class(role, to)),
        proptest::option::of(cpus)
            .prop_map(|to| Change::MemoryNodes(setting::MemoryNodes { from: None, to })),
    ]
}

proptest! {
    #[test]
    fn changes_taken_back_in_reverse_order_leave_nothing(changes in proptest::collection::vec(any_change(), 1..8)) {
        let (mut text, mut undo) = (XML.to_owned(), Vec::new());
        for change in &changes {
            let (new, before) = changed(&text, change).unwrap();
            // A second application of the same change has no effect.
            prop_assert_eq!(&changed(&new, change).unwrap().0, &new);
            text = new;
            undo.push(before);
        }
        for part in undo.iter().rev().flat_map(|parts| parts.iter().rev()) {
            text = put(&text, part).unwrap();
        }
        let squeeze = |t: &str| t.replace("<numatune></numatune>", "<numatune/>").replace(char::is_whitespace, "");
        prop_assert_eq!(squeeze(&text), squeeze(XML));
    }

    #[test]
    fn any_text_is_changed_or_refused(s in "\\PC{0,40}", change in any_change()) {
        let _ = changed(&s, &change);
        let _ = changed(&format!("<domain><cputune>{s}</cputune></domain>"), &change);
        let _ = changed(&format!("<domain><cputune><vcpusched vcpus='{s}'/></cputune></domain>"), &change);
    }
}
