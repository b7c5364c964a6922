//! What another host's agent answers is refused, or can be modelled, diagnosed and planned for.

use vsteer_core::diagnose::diagnose;
use vsteer_core::forecast::fluid;
use vsteer_core::model::derive;
use vsteer_core::nouns::Batch;
use vsteer_core::plan::advise::plan_by;
use vsteer_core::plan::limits::Limits;
use vsteer_core::setting::{Scope, Step};
use vsteer_core::thresholds::Thresholds;
use vsteer_host::remote::understood;

pub fn run(bytes: &[u8]) -> bool {
    let (mut config, mut collector) = (None, None);
    let mut batches: Vec<Batch> = Vec::new();
    for line in bytes.split(|b| *b == b'\n').take(6) {
        let newest_ns = batches.last().map_or(0, |b| b.mono_ns);
        let Ok(answer) = understood(line, newest_ns) else { return false };
        config = answer.config.or(config);
        collector = answer.collector.or(collector);
        batches.extend(answer.batch);
    }
    let (Some(config), Some(collector)) = (config, collector) else { return false };
    let Ok(model) = derive(&config, &collector, &batches) else { return false };
    diagnose(&config, &model, Thresholds::default());
    let mut forecaster = |steps: &[Step]| Ok(fluid::forecast(&config, &model, steps));
    let _ = plan_by(&config, &model, Limits::default(), Scope::Live, None, &mut forecaster);
    config.fingerprint();
    true
}

const CONFIG: &str = r#"{"config":{"hostname":"h","machine_id":null,"kernel":"6","topology":{"present":"0-1","online":"0-1","allowed":"0-1"},
"cgroups":"v2","vms":[{"id":"a","name":"a","manager":"bare","accel":"kvm","pid":1,"threads":[{"tid":2,"role":{"vcpu":0},
"affinity":"0-1","class":{"other":0},"cgroup":"/a"}],"weight":{"weight":100},"limits":{"per_vcpu":{"quota_us":50000,
"period_us":100000},"emulator":null,"whole_vm":null},"cgroup":"/a","rt_budgets":[],"guest_topology":{"sockets":1,"cores":1,
"threads":1},"memory_bytes":1000,"memory_nodes":"0"}]},"collector":{"name":"ebpf","missing":{}}}"#;

const BATCH: &str = r#"{"batch":{"mono_ns":NS,"unix_ns":NS,"threads":[{"vm":"a","role":{"vcpu":0},"tid":2,"last_cpu":0,
"waiting_ns":0,"counters":{"run_ns":NS,"ready_ns":NS,"limited_ns":0,"wake_latency":{"counts":[[3,NS]]}}}],"pcpus":[{"cpu":0,
"user_ns":NS,"system_ns":1,"irq_ns":0,"softirq_ns":0,"steal_ns":null,"idle_ns":5,"guest_ns":null,"frequency_khz":null}],
"vms":[{"vm":"a","throttled_periods":1,"memory_by_node":[[0,1000]]}],"blame":[{"victim":"a","role":{"vcpu":0},
"culprit":{"process":{"comm":"x","pid":0}},"ns":NS}]},"notes":["n"]}"#;

pub fn seeds() -> Vec<Vec<u8>> {
    let line = |text: &str| text.replace('\n', "");
    let batch = |ns: &str| line(&BATCH.replace("NS", ns));
    vec![[line(CONFIG), batch("1000000"), batch("2000000")].join("\n").into_bytes()]
}
