//! Does the observer count what the scheduler itself counts? Two threads that want one pCPU each get half of it.
//!
//! They are marked while they run and wait, so the first event of each is one in the middle of a state. Compared with
//! the kernel's own sums in /proc/self/task/TID/schedstat over the same time.

mod common;

use rustix::thread::{CpuSet, gettid, sched_getaffinity, sched_setaffinity};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use vsteer_bpf::{Observer, Watched};
use vsteer_core::nouns::{Role, Tid, VmId};

/// The kernel's own count: (on a pCPU, waiting for one), ns.
fn schedstat(tid: u32) -> (u64, u64) {
    let text = std::fs::read_to_string(format!("/proc/self/task/{tid}/schedstat")).unwrap();
    let n: Vec<u64> = text.split_whitespace().map(|w| w.parse().unwrap()).collect();
    (n[0], n[1])
}

/// A thread that burns one pCPU until `stop` is set. It sends its thread id.
fn hog(cpu: usize, stop: Arc<AtomicBool>, tell: Sender<u32>) -> JoinHandle<()> {
    std::thread::spawn(move || {
        let mut only = CpuSet::new();
        only.set(cpu);
        sched_setaffinity(None, &only).unwrap();
        tell.send(gettid().as_raw_nonzero().get() as u32).unwrap();
        // The second half of each 40 ms or so it sleeps for a moment, so that wake-ups are in it too.
        let mut nap = Instant::now();
        while !stop.load(Ordering::Relaxed) {
            if nap.elapsed() > Duration::from_millis(40) {
                std::thread::sleep(Duration::from_millis(2));
                nap = Instant::now();
            }
        }
    })
}

#[test]
#[ignore = "needs root: it loads eBPF"]
fn two_hogs_on_one_pcpu_are_counted_as_the_scheduler_counts_them() {
    let mut observer = common::observer(vsteer_bpf::Options::default());
    let allowed = sched_getaffinity(None).unwrap();
    let cpu = (0..CpuSet::MAX_CPU).find(|c| allowed.is_set(*c)).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let (tell, tids) = channel();
    let hogs: Vec<_> = (0..2).map(|_| hog(cpu, Arc::clone(&stop), tell.clone())).collect();
    let tids: Vec<u32> = (0..2).map(|_| tids.recv().unwrap()).collect();
    let watched: Vec<Watched> = tids
        .iter()
        .map(|tid| Watched {
            vm: VmId(format!("vm{tid}").into()),
            role: Role::Vcpu(0),
            tid: Tid(*tid),
            affinity: std::iter::once(cpu as u32).collect(),
        })
        .collect();
    observer.watch(&watched).unwrap();
    std::thread::sleep(Duration::from_millis(300));

    let look = |observer: &Observer| {
        let kernel: Vec<(u64, u64)> = tids.iter().map(|t| schedstat(*t)).collect();
        (observer.read().unwrap(), kernel)
    };
    let (a, kernel_a) = look(&observer);
    std::thread::sleep(Duration::from_secs(3));
    let (b, kernel_b) = look(&observer);
    stop.store(true, Ordering::Relaxed);
    hogs.into_iter().for_each(|h| h.join().unwrap());

    let window_ns = (b.mono_ns - a.mono_ns) as f64;
    for (i, tid) in tids.iter().enumerate() {
        let of = |r: &vsteer_bpf::Reading| {
            let c = &r.threads.iter().find(|t| t.tid == Tid(*tid)).unwrap().counters;
            (c.run_ns.unwrap(), c.wait_ns.unwrap(), c.blocked_ns.unwrap(), c.switches.unwrap())
        };
        let (before, after) = (of(&a), of(&b));
        let ours = [(after.0 - before.0) as f64, (after.1 - before.1) as f64, (after.2 - before.2) as f64];
        let kernel = (kernel_b[i].0 - kernel_a[i].0) as f64 + (kernel_b[i].1 - kernel_a[i].1) as f64;
        let what = format!(
            "thread {tid}: run, wait, blocked {ours:?}, run + wait by schedstat {kernel}, of {window_ns} ns"
        );
        println!("{what}");
        assert!(after.3 > before.3 + 50, "{what}");
        // schedstat's wait grows when it ends: an open one of some ms may be missing at either end.
        assert!((ours[0] + ours[1] - kernel).abs() < 0.01 * window_ns, "{what}");
        assert!((ours.iter().sum::<f64>() - window_ns).abs() < 0.005 * window_ns, "{what}");
        assert!(ours[0] > 0.1 * window_ns && ours[1] > 0.1 * window_ns, "{what}");
    }
    assert!(b.surprises - a.surprises <= 2, "{} surprises", b.surprises - a.surprises);
    // Each waits for the other, mostly: who ran is known.
    for tid in &tids {
        let waited = |r: &vsteer_bpf::Reading| {
            r.threads.iter().find(|t| t.tid == Tid(*tid)).unwrap().counters.wait_ns.unwrap() as i64
        };
        let (waited, of) = (waited(&b) - waited(&a), VmId(format!("vm{tid}").into()));
        let blamed: i64 = b.blame.iter().filter(|x| x.victim == of).map(|x| x.ns).sum();
        assert!((blamed - waited).abs() <= waited / 100, "{tid} waited {waited} ns, {blamed} are charged");
    }
}
