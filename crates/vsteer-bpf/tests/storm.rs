//! When hundreds of short processes run beside VMs' threads, is the time that these waited still charged to somebody?
//!
//! Shells that start and end processes all the time share a pCPU with threads that want it, too. What a thread was
//! charged from the first reading to the last must be the time that it was ready. Left out: which process is
//! charged.

mod common;

use rustix::thread::{CpuSet, gettid, sched_getaffinity, sched_setaffinity};
use std::collections::{BTreeMap, BTreeSet};
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;
use vsteer_bpf::{Options, Reading, Watched};
use vsteer_core::nouns::{BlameSample, Culprit, Role, Tid, VmId};

const HOGS: u32 = 12;
const SHELLS: usize = 8;

/// A shell that is killed when this value is dropped.
struct Shell(Child);

impl Drop for Shell {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn pin(cpu: usize) {
    let mut only = CpuSet::new();
    only.set(cpu);
    sched_setaffinity(None, &only).unwrap();
}

fn ready(reading: &Reading) -> BTreeMap<VmId, i64> {
    reading.threads.iter().map(|t| (t.vm.clone(), t.counters.wait_ns.unwrap() as i64)).collect()
}

#[test]
#[ignore = "needs root: it loads eBPF"]
fn the_charges_sum_up_to_what_each_thread_waited() {
    let mut observer = common::observer(Options::default());
    let allowed = sched_getaffinity(None).unwrap();
    let cpu = (0..CpuSet::MAX_CPU).find(|c| allowed.is_set(*c)).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let (tell, tids) = channel();
    let hogs: Vec<_> = (0..HOGS)
        .map(|_| {
            let (stop, tell) = (Arc::clone(&stop), tell.clone());
            std::thread::spawn(move || {
                pin(cpu);
                tell.send(gettid().as_raw_nonzero().get() as u32).unwrap();
                while !stop.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            })
        })
        .collect();
    let watched: Vec<Watched> = (0..HOGS)
        .map(|n| Watched {
            vm: VmId(format!("vm{n}")),
            role: Role::Vcpu(0),
            tid: Tid(tids.recv().unwrap()),
            affinity: std::iter::once(cpu as u32).collect(),
        })
        .collect();
    observer.watch(&watched).unwrap();
    let mut readings = vec![observer.read().unwrap()];
    // What a thread starts has its pCPU.
    let storm = std::thread::spawn(move || {
        pin(cpu);
        let shell = || Command::new("sh").args(["-c", "while :; do (:); done"]).spawn().map(Shell).unwrap();
        (0..SHELLS).map(|_| shell()).collect::<Vec<_>>()
    });
    let storm = storm.join().unwrap();
    for _ in 0..4 {
        std::thread::sleep(Duration::from_secs(1));
        readings.push(observer.read().unwrap());
    }
    // The first reading and the last are outside the storm, which could delay this thread between two tables.
    drop(storm);
    std::thread::sleep(Duration::from_millis(500));
    readings.push(observer.read().unwrap());
    stop.store(true, Ordering::Relaxed);
    hogs.into_iter().for_each(|hog| hog.join().unwrap());

    let (first, last) = (&readings[0], &readings[readings.len() - 1]);
    let (before, after) = (ready(first), ready(last));
    // What each reading tells has come since the one before.
    let blame = || readings[1..].iter().flat_map(|reading| &reading.blame);
    for (vm, ns) in &after {
        let waited = ns - before[vm];
        let charged: i64 = blame().filter(|b| b.victim == *vm).map(|b| b.ns).sum();
        assert!(waited > 0, "{vm:?} did not wait");
        assert!(
            (charged - waited).abs() <= waited / 100,
            "{vm:?} waited {waited} ns and was charged {charged}"
        );
    }
    let process = |b: &BlameSample| match b.culprit {
        Culprit::Process { pid, .. } => Some(pid),
        _ => None,
    };
    let processes: BTreeSet<u32> = blame().filter_map(process).collect();
    // More pairs of a thread and a process than one batch of the kernel's copies.
    assert!(processes.len() > 300, "only {} processes: no storm", processes.len());
}
