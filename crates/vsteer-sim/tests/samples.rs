//! Is a simulation read as a real host is? Samples out of it through model, diagnosis and verification.

use vsteer_core::diagnose::{diagnose, flat};
use vsteer_core::model::derive;
use vsteer_core::nouns::Batch;
use vsteer_core::thresholds::Thresholds;
use vsteer_core::topology::machine;
use vsteer_sim::blame::Blame;
use vsteer_sim::guest::{Demand, Times};
use vsteer_sim::policy::Values;
use vsteer_sim::samples;
use vsteer_sim::sched::{POLICIES, find};
use vsteer_sim::setup::{Host, Setup, VcpuSetup, VmSetup};
use vsteer_sim::trace::Trace;

const MS: u64 = 1_000_000;
const S: u64 = 1_000_000_000;

#[test]
fn model_and_diagnosis_read_a_simulation() {
    for entry in POLICIES {
        let name = entry.about.name;
        let sleeper =
            Demand::SleepCompute { sleep: Times::Exponential(20 * MS), compute: Times::Fixed(2 * MS) };
        let vms = vec![
            VmSetup::new("burner", vec![VcpuSetup::new(Demand::Hog); 2]),
            VmSetup::new("sleeper", vec![VcpuSetup::new(sleeper)]),
        ];
        let setup = Setup::new(machine(1, 1, 2, 1).unwrap(), vms, 2);
        let values = Values::defaults(entry.about.parameters);
        let blame = Blame::new(&Host::new(&setup).unwrap());
        let mut s = (entry.watched)(&setup, &values, (Trace::default(), blame.clone())).unwrap();
        let config = samples::config(&setup, name, entry.about.default_weight);
        let mut batches: Vec<Batch> = Vec::new();
        for second in 1..=10 {
            s.run(second * S, u64::MAX);
            batches.push(samples::batch(&setup, &*s, blame.drain(s.now_ns())));
        }
        let model = derive(&config, &samples::collector(true), &batches).unwrap();
        assert_eq!(model.vms.len(), 2, "{name}");
        for vm in &model.vms {
            for t in &vm.threads {
                let residual = t.shares.residual().unwrap();
                assert!(residual.abs() < 1e-9, "{name}: residual {residual} of {}", vm.name);
            }
        }
        // Blame is by thread and by the batch; ready time is told as it stands.
        for t in &batches.last().unwrap().threads {
            let rows = batches.iter().flat_map(|b| &b.blame);
            let own = rows.filter(|b| b.victim == t.vm && b.role == t.role);
            let sum: i64 = own.map(|b| b.ns).sum();
            let ready_ns = t.counters.ready_ns.unwrap();
            assert_eq!(sum as u64, ready_ns, "{name}: rows of {:?} {}", t.vm, t.role);
        }
        let (busy, run) =
            (model.busy_mean().unwrap(), model.vms.iter().map(|vm| vm.vcpus.run.unwrap()).sum::<f64>());
        assert!((2.0 * busy - run).abs() < 1e-9, "{name}: what runs is what is busy: {busy}, {run}");
        // Whatever it finds: that it can be asked.
        diagnose(&config, &model, Thresholds::default());
        let text = serde_json::to_string(&batches).unwrap();
        assert_eq!(serde_json::from_str::<Vec<Batch>>(&text).unwrap(), batches, "{name}");
    }
}

/// A VM that never sleeps beside one that computes now and then, and a quiet third, all on one pCPU: who makes the second
/// wait is named, and nobody else is.
#[test]
fn diagnosis_names_the_noisy_neighbour() {
    let entry = find("eevdf").unwrap();
    let sleeper = |sleep_ms| Demand::SleepCompute {
        sleep: Times::Exponential(sleep_ms * MS),
        compute: Times::Fixed(3 * MS),
    };
    let vms = vec![
        VmSetup::new("noisy", vec![VcpuSetup::new(Demand::Hog)]),
        VmSetup::new("delayed", vec![VcpuSetup::new(sleeper(8))]),
        VmSetup::new("quiet", vec![VcpuSetup::new(sleeper(500))]),
    ];
    let setup = Setup::new(machine(1, 1, 1, 1).unwrap(), vms, 2);
    let blame = Blame::new(&Host::new(&setup).unwrap());
    let values = Values::defaults(entry.about.parameters);
    let mut s = (entry.watched)(&setup, &values, (Trace::default(), blame.clone())).unwrap();
    let mut batches: Vec<Batch> = Vec::new();
    for second in 1..=10 {
        s.run(second * S, u64::MAX);
        batches.push(samples::batch(&setup, &*s, blame.drain(s.now_ns())));
    }
    let config = samples::config(&setup, "eevdf", entry.about.default_weight);
    let model = derive(&config, &samples::collector(true), &batches).unwrap();
    let found = diagnose(&config, &model, Thresholds::default());
    let of_delayed =
        flat(&found).filter(|f| f.rule == "noisy_neighbour" && f.vm == Some(vsteer_sim::ids::vm_id(1)));
    let titles: Vec<&str> = of_delayed.map(|f| f.title.as_str()).collect();
    assert_eq!(titles, [r#"VM "delayed" waits for VM "noisy""#]);
}
