//! A plan for one setting of a host without VMs.

use vsteer_core::forecast::Forecast;
use vsteer_core::nouns::{HostConfig, VmId};
use vsteer_core::plan::Plan;
use vsteer_core::setting::knob::{How, Knob};
use vsteer_core::setting::{Change, HostKnob, Scope, Step};
use vsteer_core::topology::{Parts, Topology};

fn host() -> HostConfig {
    let cpus = || "0-1".parse().unwrap();
    let parts = Parts { present: cpus(), online: cpus(), allowed: cpus(), ..Parts::default() };
    HostConfig::new("host", "6.1", Topology::new(parts).unwrap())
}

/// A plan with one step: it sets `name`, on the machine `on`, from one value to another.
pub fn plan(title: &str, name: &str, how: How, on: Option<&str>, (from, to): (&str, &str)) -> Plan {
    let knob = Box::new(Knob { name: name.into(), how, on: on.map(str::to_owned) });
    let change = Change::Knob(HostKnob { knob, from: from.into(), to: to.into() });
    let vm = VmId(format!("knob:{name}").into());
    let step = Step { vm, vm_name: "host".into(), change, reason: String::new() };
    let forecast = Forecast { method: "none".into(), vms: Vec::new() };
    Plan::new(host(), title.into(), vec![step], Scope::Live, forecast)
}
