//! A dry run, an apply, a rollback and their refusals, on a plan that sets a file.

use crate::place::{PLACE, Place};
use vsteer_core::forecast::Forecast;
use vsteer_core::nouns::{CgroupLayout, HostConfig, VmId};
use vsteer_core::plan::Plan;
use vsteer_core::setting::knob::{How, Knob};
use vsteer_core::setting::{Change, HostKnob, Scope, Step};
use vsteer_core::topology::{Parts, Topology};

fn plan(place: &Place, from: &str, to: &str) -> Plan {
    let cpus = || "0-1".parse().unwrap();
    let parts = Parts { present: cpus(), online: cpus(), allowed: cpus(), ..Parts::default() };
    let parent = HostConfig {
        hostname: "host".into(),
        machine_id: None,
        kernel: "6.1".into(),
        topology: Topology::new(parts).unwrap(),
        cgroups: CgroupLayout::None,
        scheduler: None,
        vms: Vec::new(),
    };
    let path = place.path().join("defrag").to_str().unwrap().to_owned();
    let knob = Box::new(Knob { name: "huge page defrag".into(), how: How::File { path }, on: None });
    let change = Change::Knob(HostKnob { knob, from: from.into(), to: to.into() });
    let reason = "direct compaction delays page faults".into();
    let step = Step { vm: VmId("knob:defrag".into()), vm_name: "host".into(), change, reason };
    let forecast = Forecast { method: "none".into(), vms: Vec::new() };
    Plan::new(parent, "defer the compaction of memory".into(), vec![step], Scope::Live, forecast)
}

#[test]
fn a_plan_is_shown_applied_and_undone() {
    let plan = plan(&PLACE, "always", "defer");
    PLACE.write("defrag", "always");
    PLACE.write("defrag.json", &serde_json::to_string(&plan).unwrap());
    let mut all = String::new();
    let mut run = |line: &str| all += &format!("{}\n", PLACE.printed(line).replace(&plan.id, "PLAN"));
    run("apply defrag.json");
    run("apply defrag.json --yes");
    run("apply defrag.json --yes");
    run(&format!("rollback {}", plan.id));
    run(&format!("rollback {}", plan.id));
    // Somebody else changes the setting after the plan was made.
    PLACE.write("defrag", "never");
    run("apply defrag.json");
    run("apply defrag.json --yes");
    insta::assert_snapshot!("apply", all);
}
