//! A model over several samples is the sum over their intervals, whatever threads do meanwhile: restart, go away, change places.

use proptest::prelude::*;
use vsteer_core::model::derive;
use vsteer_core::nouns::{
    Batch, Collector, Histogram, HostConfig, Role, ThreadCounters, ThreadSample, Tid, VmConfig, VmId,
};
use vsteer_core::topology::machine;

const SECOND: u64 = 1_000_000_000;

fn id() -> VmId {
    VmId("web".into())
}

/// A thread whose counters all say `n`.
fn sample(tid: u32, n: u64) -> ThreadSample {
    let counters = ThreadCounters {
        run_ns: Some(n),
        wakeups: Some(n),
        wake_latency: Some(Histogram { counts: vec![(40, n)].into_iter().filter(|(_, n)| *n > 0).collect() }),
        ..ThreadCounters::default()
    };
    ThreadSample {
        vm: id(),
        role: Role::Vcpu(tid),
        tid: Tid(tid),
        last_cpu: None,
        waiting_ns: None,
        counters,
    }
}

proptest! {
    /// Each sample has what each of three threads counted, or that it is away; and whether their order is the other one.
    #[test]
    fn a_model_is_the_sum_over_its_intervals(
        all in prop::collection::vec((prop::array::uniform3(prop::option::weighted(0.9, 0_u64..9)), any::<bool>()), 2..9)
    ) {
        let batch = |(i, (counts, turned)): (usize, &([Option<u64>; 3], bool))| {
            let mut threads: Vec<_> = (0..3).filter_map(|tid| Some(sample(tid, counts[tid as usize]?))).collect();
            if *turned {
                threads.reverse();
            }
            Batch { mono_ns: i as u64 * SECOND, unix_ns: i as u64 * SECOND, threads, ..Batch::default() }
        };
        let batches: Vec<Batch> = all.iter().enumerate().map(batch).collect();
        let config = HostConfig {
            vms: vec![VmConfig::new(id(), "web", 1)],
            ..HostConfig::new("h", "6", machine(1, 1, 2, 1).unwrap())
        };
        let model = derive(&config, &Collector::new("test", |_| true, "no"), &batches).unwrap();
        for tid in 0..3_u32 {
            let counts = all.iter().map(|(counts, _)| counts[tid as usize]).collect::<Vec<_>>();
            let rises: Vec<u64> =
                counts.windows(2).filter_map(|pair| Some(pair[1]?.saturating_sub(pair[0]?))).collect();
            let thread = model.vm(&id()).and_then(|vm| vm.threads.iter().find(|t| t.tid == Tid(tid)));
            let seen = rises.len() as f64;
            let rate = thread.and_then(|t| t.wakeups_per_s);
            let expected = (seen > 0.0).then(|| rises.iter().sum::<u64>() as f64 / seen);
            prop_assert_eq!(thread.is_some(), seen > 0.0);
            match (rate, expected) {
                (Some(rate), Some(expected)) => prop_assert!((rate - expected).abs() < 1e-9, "{rate} {expected}"),
                (rate, expected) => prop_assert_eq!(rate, expected),
            }
            let has_times = thread.is_some_and(|t| t.wake_latency.is_some());
            prop_assert_eq!(has_times, rises.iter().any(|rise| *rise > 0));
        }
    }
}
