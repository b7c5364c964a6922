//! Is the time limited in which a cgroup's real-time budget is used up, and the wait for other real-time threads ready?
//!
//! Needs root, and a cpu controller of cgroup v1 of a kernel with `CONFIG_RT_GROUP_SCHED`. Elsewhere a test ignores
//! itself, so this file has a harness of its own.

mod common;

use libtest_mimic::{Arguments, Completion, Trial};
use rustix::thread::{CpuSet, gettid, sched_getaffinity, sched_setaffinity};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use vsteer_bpf::{Observer, Options, Watched};
use vsteer_core::nouns::{Role, Tid, VmId};

const CONTROLLER: &str = "/sys/fs/cgroup/cpu";
const WINDOW: Duration = Duration::from_secs(3);

/// A cgroup, removed at the end.
struct Group(PathBuf);

impl Group {
    fn new(path: PathBuf) -> Group {
        std::fs::create_dir(&path).unwrap();
        Group(path)
    }

    fn write(&self, file: &str, text: &str) {
        std::fs::write(self.0.join(file), text).unwrap_or_else(|e| panic!("{file}: {e}"));
    }

    /// Real-time threads here may run so long in every 100 ms.
    fn budget(&self, runtime_us: u32) {
        self.write("cpu.rt_period_us", "100000");
        self.write("cpu.rt_runtime_us", &runtime_us.to_string());
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for _ in 0..50 {
            // The kernel keeps the budget of a removed group for a moment.
            let _ = std::fs::write(self.0.join("cpu.rt_runtime_us"), "0");
            if std::fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// A thread that works for `busy`, sleeps for `asleep`, and so on, on one pCPU.
struct Worker {
    tid: u32,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Worker {
    fn new(cpu: usize, busy: Duration, asleep: Duration) -> Worker {
        let stop = Arc::new(AtomicBool::new(false));
        let (tell, told) = channel();
        let ends = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let mut only = CpuSet::new();
            only.set(cpu);
            sched_setaffinity(None, &only).unwrap();
            tell.send(gettid().as_raw_nonzero().get() as u32).unwrap();
            while !ends.load(Ordering::Relaxed) {
                let begun = Instant::now();
                while begun.elapsed() < busy && !ends.load(Ordering::Relaxed) {}
                if !asleep.is_zero() {
                    std::thread::sleep(asleep);
                }
            }
        });
        Worker { tid: told.recv().unwrap(), stop, thread: Some(thread) }
    }

    fn hog(cpu: usize) -> Worker {
        Worker::new(cpu, Duration::from_millis(50), Duration::ZERO)
    }

    fn into_group(self, group: &Group) -> Worker {
        group.write("tasks", &self.tid.to_string());
        self
    }

    fn fifo(self, priority: u32) -> Worker {
        let done =
            Command::new("chrt").args(["-f", "-p", &priority.to_string(), &self.tid.to_string()]).status();
        assert!(done.unwrap().success(), "chrt");
        self
    }

    fn watched(&self, cpu: usize) -> Watched {
        let vm = VmId(format!("vm{}", self.tid).into());
        Watched {
            vm,
            role: Role::Vcpu(0),
            tid: Tid(self.tid),
            affinity: std::iter::once(cpu as u32).collect(),
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Shares of a window.
#[derive(Debug)]
struct Shares {
    run: f64,
    ready: f64,
    limited: f64,
    blocked: f64,
}

/// The shares of these threads over one window, and by how much the kernel's count of the first one's run time differs.
fn shares(workers: &[&Worker], cpu: usize) -> (Vec<Shares>, f64) {
    let mut observer = common::observer(Options::default());
    observer.watch(&workers.iter().map(|w| w.watched(cpu)).collect::<Vec<_>>()).unwrap();
    std::thread::sleep(Duration::from_millis(300));
    let kernel = || -> f64 {
        let text = std::fs::read_to_string(format!("/proc/self/task/{}/schedstat", workers[0].tid)).unwrap();
        text.split_whitespace().next().unwrap().parse().unwrap()
    };
    let look = |observer: &Observer| (kernel(), observer.read().unwrap());
    let (before, a) = look(&observer);
    std::thread::sleep(WINDOW);
    let (after, b) = look(&observer);
    let ns = (b.mono_ns - a.mono_ns) as f64;
    let of = |worker: &&Worker| {
        let counters = |r: &vsteer_bpf::Reading| {
            let c = &r.threads.iter().find(|t| t.tid == Tid(worker.tid)).unwrap().counters;
            [c.run_ns, c.ready_ns, c.limited_ns, c.blocked_ns].map(|n| n.unwrap() as f64)
        };
        let (before, after) = (counters(&a), counters(&b));
        let [run, ready, limited, blocked] = std::array::from_fn(|i| (after[i] - before[i]) / ns);
        let s = Shares { run, ready, limited, blocked };
        println!("{s:.3?}");
        assert!((s.run + s.ready + s.limited + s.blocked - 1.0).abs() < 0.005, "{s:?}");
        s
    };
    let all: Vec<Shares> = workers.iter().map(of).collect();
    let apart = (after - before) / ns - all[0].run;
    (all, apart)
}

/// Where the kernel has budgets: the group that all of a test lies in.
fn top(name: &str) -> Option<Group> {
    let is_there = Path::new(CONTROLLER).join("cpu.rt_runtime_us").exists();
    is_there.then(|| Group::new(Path::new(CONTROLLER).join(format!("vsteer-{name}-{}", std::process::id()))))
}

fn a_cpu() -> usize {
    let allowed = sched_getaffinity(None).unwrap();
    (0..CpuSet::MAX_CPU).find(|c| allowed.is_set(*c)).unwrap()
}

fn unless(done: Option<()>) -> Completion {
    done.map_or(Completion::ignored_with("no real-time budgets of cgroup v1 here"), |()| {
        Completion::Completed
    })
}

/// Rounds in which a thread beside the measured one must once have run as it should.
const ROUNDS: usize = 4;

/// 20 ms in every 100 ms: the thread runs for a fifth, and is throttled for the rest.
fn a_budget_that_is_used_up() -> Option<()> {
    let top = top("own")?;
    top.budget(20_000);
    let cpu = a_cpu();
    let hog = Worker::hog(cpu).into_group(&top).fifo(10);
    let (all, apart) = shares(&[&hog], cpu);
    let s = &all[0];
    assert!(apart.abs() < 0.01, "run differs from the kernel's by {apart}");
    // The kernel looks at ticks, so it may grant some ms more.
    assert!((0.15..0.30).contains(&s.run), "{s:?}");
    assert!(s.limited > 0.65 && s.ready < 0.02 && s.blocked < 0.01, "{s:?}");
    drop(hog);
    Some(())
}

/// A thread of the parent uses most of the parent's budget, so that the child's own budget never runs out.
fn a_budget_of_a_parent() -> Option<()> {
    let top = top("above")?;
    top.budget(30_000);
    let below = Group::new(top.0.join("vcpu0"));
    below.budget(25_000);
    let cpu = a_cpu();
    // It sleeps for less than the child's budget, so it interrupts the child in each period. After a sleep of 60 ms, it
    // could wake up in each period after the child had used its own 25 ms.
    let other =
        Worker::new(cpu, Duration::from_millis(15), Duration::from_millis(10)).into_group(&top).fifo(50);
    let hog = Worker::hog(cpu).into_group(&below).fifo(10);
    // Where the other thread ran too little, for instance because this machine stood still, the child's own budget ran out.
    let mut rounds = std::iter::repeat_with(|| shares(&[&hog, &other], cpu)).take(ROUNDS);
    let used = rounds.find(|(all, _)| all[0].run < 0.22);
    let (all, apart) = used.expect("its own budget ran out in each round");
    let (s, other_is) = (&all[0], &all[1]);
    assert!(apart.abs() < 0.01, "run differs from the kernel's by {apart}");
    assert!((0.25..0.40).contains(&(s.run + other_is.run)), "{s:?} {other_is:?}");
    assert!(s.limited > 0.3, "{s:?}");
    drop((hog, other));
    drop(below);
    Some(())
}

/// A thread with enough budget waits for one of a higher priority: ready, though the quota of its group is used up all the
/// time by an ordinary thread.
fn a_wait_for_another_realtime_thread() -> Option<()> {
    let top = top("ready")?;
    top.budget(65_000);
    top.write("cpu.cfs_period_us", "100000");
    top.write("cpu.cfs_quota_us", "1000");
    let other = self::top("first")?;
    other.budget(25_000);
    let cpu = a_cpu();
    let ordinary = Worker::hog(cpu).into_group(&top);
    let first =
        Worker::new(cpu, Duration::from_millis(4), Duration::from_millis(16)).into_group(&other).fifo(50);
    // The first one interrupts it each time.
    let second =
        Worker::new(cpu, Duration::from_millis(20), Duration::from_millis(10)).into_group(&top).fifo(10);
    let (all, _) = shares(&[&second, &first, &ordinary], cpu);
    let (second_is, first_is, ordinary_is) = (&all[0], &all[1], &all[2]);
    assert!(second_is.ready > 0.08 && second_is.limited < 0.01, "{second_is:?}");
    assert!(first_is.ready < 0.02 && first_is.limited < 0.01, "{first_is:?}");
    assert!(ordinary_is.limited > 0.5, "{ordinary_is:?}");
    drop((ordinary, first, second));
    Some(())
}

/// Throttled and then behind another real-time thread: each part counts as what it is.
fn limited_and_then_ready() -> Option<()> {
    let top = top("both")?;
    top.budget(20_000);
    let other = self::top("beside")?;
    other.budget(60_000);
    let cpu = a_cpu();
    // It has the pCPU for 55 of 100 ms, of which some are those in which the budget of the other one is filled up.
    let first =
        Worker::new(cpu, Duration::from_millis(55), Duration::from_millis(37)).into_group(&other).fifo(50);
    let second = Worker::hog(cpu).into_group(&top).fifo(10);
    let (all, apart) = shares(&[&second, &first], cpu);
    let (s, first_is) = (&all[0], &all[1]);
    assert!(apart.abs() < 0.01, "run differs from the kernel's by {apart}");
    assert!(first_is.limited < 0.02, "{first_is:?}");
    assert!(s.ready > 0.05 && s.limited > 0.2 && s.run < 0.3, "{s:?}");
    drop((first, second));
    Some(())
}

fn main() {
    let test = |name: &str, run: fn() -> Option<()>| {
        Trial::ignorable_test(name, move || Ok(unless(run()))).with_kind("needs root").with_ignored_flag(true)
    };
    let tests = vec![
        test("a_used_up_budget_is_limited_time", a_budget_that_is_used_up),
        test("a_used_up_budget_of_a_parent_is_limited_time", a_budget_of_a_parent),
        test("a_wait_for_another_realtime_thread_is_ready_time", a_wait_for_another_realtime_thread),
        test("a_wait_may_be_limited_first_and_ready_then", limited_and_then_ready),
    ];
    // One after the other: budgets of cgroups beside each other may not add up to more than their parent's.
    let arguments = Arguments { test_threads: Some(1), ..Arguments::from_args() };
    libtest_mimic::run(&arguments, tests).exit();
}
