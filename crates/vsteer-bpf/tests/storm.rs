//! When hundreds of short processes run beside VMs' threads, is the time that these waited still charged to somebody?
//!
//! Shells that start and end processes all the time share a pCPU with threads that want it, too. What a thread was
//! charged between two readings must be what it was ready between them; and of that, nearly all to processes that were
//! seen. Whether the observer counts ready time rightly, two_hogs.rs says. Left out: a storm in another cgroup.

mod common;

use rustix::thread::{CpuSet, gettid, sched_getaffinity, sched_setaffinity};
use std::collections::{BTreeMap, BTreeSet};
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;
use vsteer_bpf::{Options, Reading, Watched};
use vsteer_core::nouns::{Culprit, Role, Tid, VmId};

const HOGS: u32 = 12;
const SHELLS: usize = 2;

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
            vm: VmId(format!("vm{n}").into()),
            role: Role::Vcpu(0),
            tid: Tid(tids.recv().unwrap()),
            affinity: std::iter::once(cpu as u32).collect(),
        })
        .collect();
    observer.watch(&watched).unwrap();
    // What a thread starts has its pCPU.
    let storm = std::thread::spawn(move || {
        pin(cpu);
        let words = ["-n", "-20", "sh", "-c", "while :; do (:); done"];
        let shell = || Command::new("nice").args(words).spawn().map(Shell).unwrap();
        (0..SHELLS).map(|_| shell()).collect::<Vec<_>>()
    });
    let storm = storm.join().unwrap();
    std::thread::sleep(Duration::from_millis(500));

    let mut readings = vec![observer.read().unwrap()];
    for _ in 0..4 {
        std::thread::sleep(Duration::from_secs(1));
        readings.push(observer.read().unwrap());
    }
    stop.store(true, Ordering::Relaxed);
    hogs.into_iter().for_each(|hog| hog.join().unwrap());
    drop(storm);

    let mut names = BTreeSet::new();
    let (mut all, mut unseen) = (0, 0);
    for pair in readings.windows(2) {
        let (before, after) = (ready(&pair[0]), ready(&pair[1]));
        for (vm, ns) in &after {
            let waited = ns - before[vm];
            let charged: i64 = pair[1].blame.iter().filter(|b| b.victim == *vm).map(|b| b.ns).sum();
            assert!(waited > 0, "{vm:?} did not wait");
            assert!(
                (charged - waited).abs() <= waited / 100,
                "{vm:?} waited {waited} ns and was charged {charged}"
            );
        }
        for b in &pair[1].blame {
            all += b.ns;
            match &b.culprit {
                Culprit::Unattributed => unseen += b.ns,
                Culprit::Process { comm, pid: 0, .. } => drop(names.insert(comm.clone())),
                _ => {}
            }
        }
    }
    println!(
        "{unseen} of {all} ns not attributed, {} switches unseen; longest loop: {}; together: {names:?}",
        observer.unseen(),
        observer.longest_loop()
    );
    assert!(observer.longest_loop() <= 16, "a step of a clock was not made");
    // So many processes are told by their name alone.
    assert!(names.contains("sh"), "no storm: {names:?}");
    assert!(unseen <= all / 100, "{unseen} of {all} ns are not attributed");
}
