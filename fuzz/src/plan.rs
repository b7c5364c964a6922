//! Any bytes are a plan or are refused. A plan is written and read as the same plan, and can be shown and compared.

use vsteer_core::CpuSet;
use vsteer_core::forecast::Forecast;
use vsteer_core::nouns::{CgroupLayout, HostConfig, VmId};
use vsteer_core::plan::Plan;
use vsteer_core::setting::knob::{How, Knob};
use vsteer_core::setting::{Change, HostKnob, Scope, Step};
use vsteer_core::topology::{Parts, Topology};

pub fn run(bytes: &[u8]) -> bool {
    let Ok(plan) = serde_json::from_slice::<Plan>(bytes) else { return false };
    let text = serde_json::to_vec(&plan).expect("a plan is plain data");
    // Compared as text: a forecast may hold what is not equal to itself.
    let again: Plan = serde_json::from_slice(&text).expect("what was written is read");
    assert_eq!(serde_json::to_vec(&again).expect("a plan is plain data"), text);
    assert!(plan.parent.differences(&plan.parent).is_empty());
    let _ = plan.parent.fingerprint();
    for step in &plan.steps {
        let _ = (step.change.to_string(), step.change.undo(), step.change.irreversible());
    }
    true
}

/// A plan with one step.
pub fn example() -> Plan {
    let cpus = || CpuSet::first(2);
    let parts = Parts { present: cpus(), online: cpus(), allowed: cpus(), ..Parts::default() };
    let host = HostConfig {
        hostname: "host".into(),
        machine_id: None,
        kernel: "6.1".into(),
        topology: Topology::new(parts).expect("two CPUs are a topology"),
        cgroups: CgroupLayout::None,
        scheduler: None,
        vms: Vec::new(),
    };
    let knob =
        Knob { name: "swap".into(), how: How::File { path: "/proc/sys/vm/swappiness".into() }, on: None };
    let change = Change::Knob(HostKnob { knob: Box::new(knob), from: "60".into(), to: "10".into() });
    let vm = VmId("knob:swap".into());
    let step = Step { vm, vm_name: "host".into(), change, reason: "a test".into() };
    let forecast = Forecast { method: "none".into(), vms: Vec::new() };
    Plan::new(host, "swap less".into(), vec![step], Scope::Live, forecast)
}

pub fn seeds() -> Vec<Vec<u8>> {
    vec![serde_json::to_vec(&example()).expect("a plan is plain data")]
}
