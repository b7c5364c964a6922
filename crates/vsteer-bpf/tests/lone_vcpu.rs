//! Does the only vCPU of a VM lag? It has no sibling that could run while it waits, so never, at whatever moment it is
//! looked at.
//!
//! A thread that runs for some microseconds and sleeps for as long, beside a hog on the same pCPU, is read without
//! pause: many readings fall into a wait that ends while they are under way.

mod common;

use rustix::thread::{CpuSet, gettid, sched_getaffinity, sched_setaffinity};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};
use vsteer_bpf::Watched;
use vsteer_core::nouns::{Role, Tid, VmId};

const LOOKS_FOR: Duration = Duration::from_secs(3);
const BURST: Duration = Duration::from_micros(5);

#[test]
#[ignore = "needs root: it loads eBPF"]
fn a_vm_of_one_vcpu_has_no_sibling_to_lag_behind() {
    let mut observer = common::observer(vsteer_bpf::Options::default());
    let allowed = sched_getaffinity(None).unwrap();
    let cpu = (0..CpuSet::MAX_CPU).find(|c| allowed.is_set(*c)).unwrap();
    let mut only = CpuSet::new();
    only.set(cpu);
    let stop = AtomicBool::new(false);
    let (tell, tid) = channel();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            sched_setaffinity(None, &only).unwrap();
            while !stop.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        });
        scope.spawn(|| {
            sched_setaffinity(None, &only).unwrap();
            tell.send(gettid().as_raw_nonzero().get() as u32).unwrap();
            while !stop.load(Ordering::Relaxed) {
                let begun = Instant::now();
                while begun.elapsed() < BURST {
                    std::hint::spin_loop();
                }
                std::thread::sleep(BURST);
            }
        });
        let tid = tid.recv().unwrap();
        let vcpu = Watched {
            vm: VmId("one".into()),
            role: Role::Vcpu(0),
            tid: Tid(tid),
            affinity: std::iter::once(cpu as u32).collect(),
        };
        let looked = observer.watch(&[vcpu]).map(|_| {
            let (begun, mut readings, mut lagged) = (Instant::now(), 0, Vec::new());
            while begun.elapsed() < LOOKS_FOR {
                let reading = observer.read().unwrap();
                let lags = reading.threads.iter().filter_map(|t| t.counters.lag_ns);
                readings += lags.clone().count();
                lagged.extend(lags.filter(|ns| *ns > 0));
            }
            (readings, lagged)
        });
        // Before anything may fail, or the scope waits for ever.
        stop.store(true, Ordering::Relaxed);
        let (readings, lagged) = looked.unwrap();
        println!("{readings} readings, {} with a lag", lagged.len());
        assert!(readings > 100, "only {readings} readings");
        assert!(
            lagged.is_empty(),
            "{} of {readings} readings have a lag, {:?} ns",
            lagged.len(),
            &lagged[..lagged.len().min(8)]
        );
    });
}
