//! Is the time that a wake-up is on its way to another pCPU ready time, and a part of its own?
//!
//! A thread sleeps on one pCPU and is woken from another. The two threads see themselves how long each wake-up took in all.
//! The kernel's run delay begins when the wake-up arrives, so ready less what it was on its way is at least that.

mod common;

use rustix::thread::{CpuSet, gettid, sched_getaffinity, sched_setaffinity};
use std::io::{Read, Write};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};
use vsteer_bpf::{Observer, Watched};
use vsteer_core::nouns::{Role, ThreadCounters, Tid, VmId};

const WAKES: u64 = 1_000;
/// Others compute for less of a round, in ticks of 10 ms.
const OTHERS: u64 = 10;
/// Moments of one event, as the kernel and the observer see it, differ by less.
const APART_NS: u64 = 1_000;

fn stay_on(cpu: usize) {
    let mut only = CpuSet::new();
    only.set(cpu);
    sched_setaffinity(None, &only).unwrap();
}

/// The kernel's count of how long the thread waited for a pCPU, ns.
fn run_delay(tid: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/self/task/{tid}/schedstat")).unwrap();
    text.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// What all pCPUs have computed for everybody but this process, in ticks of 10 ms.
fn others() -> u64 {
    let numbers = |path: &str, line: usize| -> Vec<u64> {
        let text = std::fs::read_to_string(path).unwrap();
        text.lines().nth(line).unwrap().split_whitespace().filter_map(|word| word.parse().ok()).collect()
    };
    // user, nice and system of all pCPUs; the threads' own time is in ns.
    let all: u64 = numbers("/proc/stat", 0)[..3].iter().sum();
    let own = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let own = own.map(|task| numbers(task.path().join("schedstat").to_str().unwrap(), 0)[0]).sum::<u64>();
    all.saturating_sub(own / 10_000_000)
}

/// The same as [`woken`] of a time when the pCPUs were idle but for the two threads: only an idle pCPU is sent wake-ups.
fn woken_alone(observer: &mut Observer, from: usize, to: usize) -> (ThreadCounters, u64, u64, u64, u64) {
    for _ in 0..40 {
        let before = others();
        let told = woken(observer, from, to);
        let busy = others() - before;
        if busy <= OTHERS {
            return told;
        }
        println!("others computed for {busy} ticks: once more");
        std::thread::sleep(Duration::from_secs(2));
    }
    panic!("other processes kept the pCPUs busy for two minutes");
}

/// What was counted of the thread, and the kernel's run delay, of one time; the time, ns; how long wake-ups took by the threads
/// themselves; and how long the waker was in its calls, of which a wake-up takes the part before the kernel begins it.
fn woken(observer: &mut Observer, from: usize, to: usize) -> (ThreadCounters, u64, u64, u64, u64) {
    let (mut read, mut write) = std::io::pipe().unwrap();
    let (tell, told) = channel();
    let epoch = Instant::now();
    let ns = move || epoch.elapsed().as_nanos() as u64;
    let sleeper = std::thread::spawn(move || {
        stay_on(to);
        tell.send(gettid().as_raw_nonzero().get() as u32).unwrap();
        let (mut sent, mut took, mut last) = ([0; 8], 0, 0);
        while read.read_exact(&mut sent).is_ok() {
            let now = ns();
            // One that was sent before the last arrived waited in the pipe, while the thread was late for that one.
            took += now - u64::from_ne_bytes(sent).max(last);
            last = now;
        }
        took
    });
    let tid = told.recv().unwrap();
    let affinity = std::iter::once(to as u32).collect();
    observer
        .watch(&[Watched { vm: VmId("vm".into()), role: Role::Vcpu(0), tid: Tid(tid), affinity }])
        .unwrap();
    std::thread::sleep(Duration::from_millis(50));

    let look = |observer: &Observer| {
        let reading = observer.read().unwrap();
        (reading.threads[0].counters.clone(), run_delay(tid), reading.mono_ns)
    };
    let before = look(observer);
    let wakes = move || {
        stay_on(from);
        let mut calls = 0;
        for _ in 0..WAKES {
            std::thread::sleep(Duration::from_millis(1));
            let begun = ns();
            write.write_all(&begun.to_ne_bytes()).unwrap();
            calls += ns() - begun;
        }
        (write, calls)
    };
    let (write, calls) = std::thread::spawn(wakes).join().unwrap();
    std::thread::sleep(Duration::from_millis(50));
    let after = look(observer);
    drop(write);
    let took = sleeper.join().unwrap();
    (after.0.since(&before.0), after.1 - before.1, after.2 - before.2, took, calls)
}

#[test]
#[ignore = "needs root: it loads eBPF"]
fn a_wake_up_on_its_way_to_another_pcpu_is_ready_time() {
    let allowed = sched_getaffinity(None).unwrap();
    let cpus: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|c| allowed.is_set(*c)).take(2).collect();
    assert_eq!(cpus.len(), 2, "it takes two pCPUs");
    let mut observer = common::observer(vsteer_bpf::Options::default());
    let mut on_their_way = 0;
    for (from, to) in [(cpus[0], cpus[1]), (cpus[1], cpus[0])] {
        let (c, run_delay, window, took, calls) = woken_alone(&mut observer, from, to);
        let [run, wait, blocked, waking] =
            [c.run_ns, c.wait_ns, c.blocked_ns, c.waking_ns].map(|ns| ns.unwrap());
        let what = format!(
            "{from} wakes {to}: {waking} of {wait} ns on its way, run delay {run_delay}, {took} in all, run {run}, blocked \
             {blocked} of {window}, the waker was in its calls for {calls}"
        );
        println!("{what}");
        // What the threads see also contains the waker's entry into the kernel and the sleeper's return from it.
        assert!(wait <= took + WAKES * APART_NS && wait + run + calls + WAKES * APART_NS >= took, "{what}");
        // The clock of a queue may stand still until its pCPU has left idle, and the run delay is then too small.
        assert!(wait - waking + WAKES * APART_NS >= run_delay, "{what}");
        assert!((run + wait + blocked).abs_diff(window) <= window / 1_000, "{what}");
        on_their_way += waking;
    }
    assert!(on_their_way > 0, "no wake-up was sent");
    // One that a thread of the same pCPU makes is not sent.
    let (c, ..) = woken_alone(&mut observer, cpus[0], cpus[0]);
    assert!(c.wakeups.unwrap() >= WAKES * 9 / 10, "{:?}", c.wakeups);
    println!("on one pCPU: {:?} ns on its way", c.waking_ns);
    assert!(c.waking_ns.unwrap() < on_their_way / 20, "{:?}", c.waking_ns);
}
