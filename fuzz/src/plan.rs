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
        contenders: Vec::new(),
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

/// Every kind of change, as a plan holds it.
const CHANGES: [&str; 17] = [
    r#"{"setting":"affinity","role":{"vcpu":0},"tid":12,"from":"0-1","to":"1"}"#,
    r#"{"setting":"preference","role":{"vcpu":1},"tid":13,"from":null,"to":"0"}"#,
    r#"{"setting":"reservation","role":{"vcpu":0},"tid":12,"from":{"budget_us":4000,"period_us":10000,"extra_time":true},"to":{"budget_us":5000,"period_us":10000,"extra_time":false}}"#,
    r#"{"setting":"weight","from":{"shares":1024},"to":{"shares":2772}}"#,
    r#"{"setting":"quota","scope":"per_vcpu","from":null,"to":{"quota_us":50000,"period_us":100000}}"#,
    r#"{"setting":"rt_budget","cgroup":"/machine/a","from_us":0,"to_us":950000}"#,
    r#"{"setting":"class","role":"emulator","tid":11,"from":{"other":0},"to":{"fifo":1}}"#,
    r#"{"setting":"memory_nodes","from":null,"to":"0"}"#,
    r#"{"setting":"node_affinity","from":"0-1","to":null}"#,
    r#"{"setting":"vm_affinity","from":null,"to":"0,2-3"}"#,
    r#"{"setting":"reservation_mhz","from":0,"to":2000}"#,
    r#"{"setting":"limit_mhz","from":null,"to":4000}"#,
    r#"{"setting":"latency","from":"normal","to":"high"}"#,
    r#"{"setting":"topology","from":null,"to":{"sockets":1,"cores":2,"threads":1}}"#,
    r#"{"setting":"host","from":"host-1","to":"host-2","cpus":"0-3"}"#,
    r#"{"setting":"pool","from":{"name":"Pool-0","scheduler":"credit","cpus":"0"},"to":{"name":"b","scheduler":"credit2","cpus":"1","parameters":{"tslice":"30ms"}},"weight":{"credit":256},"limit":null}"#,
    r#"{"setting":"knob","knob":{"name":"swap","how":{"commands":{"set":["sysctl","x={level}"],"read":["sysctl","x"]}},"on":null},"from":"1","to":"0"}"#,
];

const FORECAST: &str = r#"{"method":"fluid","vms":[{"vm":"a","name":"a","run_before":0.5,"run_after":{"low":0.1,"likely":0.2,"high":0.3},
    "ready_before":0.2,"with_limited":true,"ready_after":{"low":0.1,"likely":0.2,"high":0.3},"wake_wait_ns_before":1e6,
    "wake_wait_ns_after":{"low":1e5,"likely":2e5,"high":3e5},"lag_before":0.1,"lag_after":{"low":0.1,"likely":0.2,"high":0.3},
    "costop_before":0.1,"wake_p99_ns_before":1e6,"wake_p99_ns_after":{"low":1e5,"likely":2e5,"high":3e5}}]}"#;

/// A plan with a step of every kind, and a forecast.
pub fn of_every_kind() -> Plan {
    let change = |text: &str| serde_json::from_str::<Change>(text).unwrap_or_else(|e| panic!("{text}: {e}"));
    let step = |text: &str| Step { change: change(text), ..example().steps.remove(0) };
    let forecast = serde_json::from_str(FORECAST).expect("a forecast");
    Plan { steps: CHANGES.map(step).into(), forecast, ..example() }
}

pub fn seeds() -> Vec<Vec<u8>> {
    [example(), of_every_kind()].map(|plan| serde_json::to_vec(&plan).expect("a plan is plain data")).into()
}
