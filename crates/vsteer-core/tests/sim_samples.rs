//! Is a simulation read as a real host is? Samples out of it through model, diagnosis and verification.

use vsteer_core::diagnose::{Thresholds, diagnose};
use vsteer_core::model::derive;
use vsteer_core::nouns::Batch;
use vsteer_core::sim::guest::{Demand, Times};
use vsteer_core::sim::policy::Values;
use vsteer_core::sim::samples;
use vsteer_core::sim::sched::POLICIES;
use vsteer_core::sim::setup::{Setup, VcpuSetup, VmSetup, machine};

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
        let mut s = (entry.build)(&setup, &Values::defaults(entry.about.parameters)).unwrap();
        let config = samples::config(&setup, name, entry.about.default_weight);
        let mut batches: Vec<Batch> = Vec::new();
        for second in 1..=10 {
            s.run(second * S, u64::MAX);
            batches.push(samples::batch(&setup, &*s));
        }
        let model = derive(&config, &samples::collector(), &batches).unwrap();
        assert_eq!(model.vms.len(), 2, "{name}");
        for vm in &model.vms {
            for t in &vm.threads {
                let residual = t.shares.residual().unwrap();
                assert!(residual.abs() < 1e-9, "{name}: residual {residual} of {}", vm.name);
            }
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
