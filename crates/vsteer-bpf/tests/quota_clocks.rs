//! Does the observer know when periods of a quota begin? A thread that a quota holds most of the time continues when
//! one does.
//!
//! Needs root and the cpu controller of cgroup v1. Only the machine can tell whether that controller is there, so this
//! test has a harness that lets a test ignore itself when it runs.

mod common;

use libtest_mimic::{Arguments, Completion, Failed, Trial};
use rustix::thread::gettid;
use rustix::time::{ClockId, clock_gettime};
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use vsteer_bpf::Watched;
use vsteer_core::nouns::{Role, Tid, VmId};

const PERIOD_NS: u64 = 100_000_000;
/// Where cgroup v1 mounts the cpu controller.
const CONTROLLER: &str = "/sys/fs/cgroup/cpu";

/// A group of the cpu controller that goes when this does.
struct Group(PathBuf);

impl Group {
    fn new() -> std::io::Result<Group> {
        let group = Group(Path::new(CONTROLLER).join(format!("vsteer-test-{}", std::process::id())));
        std::fs::create_dir(&group.0)?;
        std::fs::write(group.0.join("cpu.cfs_period_us"), (PERIOD_NS / 1000).to_string())?;
        Ok(group)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.0);
    }
}

fn now_ns() -> u64 {
    let t = clock_gettime(ClockId::Monotonic);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// The ends of waits of half a period or more.
fn held_until(for_ns: u64) -> Vec<u64> {
    let (begin, mut last, mut ends) = (now_ns(), now_ns(), Vec::new());
    while last < begin + for_ns {
        let now = now_ns();
        if now - last > PERIOD_NS / 2 {
            ends.push(now);
        }
        last = now;
    }
    ends
}

fn main() {
    let test = Trial::ignorable_test("a_thread_goes_on_when_a_period_begins", goes_on_when_a_period_begins);
    let tests = vec![test.with_kind("needs root: it loads eBPF").with_ignored_flag(true)];
    libtest_mimic::run(&Arguments::from_args(), tests).exit();
}

fn goes_on_when_a_period_begins() -> Result<Completion, Failed> {
    if !Path::new(CONTROLLER).join("tasks").exists() {
        return Ok(Completion::ignored_with("this machine has no cpu controller of cgroup v1"));
    }
    let mut observer = common::observer(vsteer_bpf::Options::default());
    let group = Group::new()?;
    let (tell, told) = channel();
    let (go_on, going) = channel();
    let (at, quota) = (group.0.join("tasks"), group.0.join("cpu.cfs_quota_us"));
    let hog = std::thread::spawn(move || {
        std::fs::write(at, gettid().as_raw_nonzero().to_string()).unwrap();
        tell.send(gettid().as_raw_nonzero().get() as u32).unwrap();
        going.recv().unwrap();
        held_until(3 * 1_000_000_000)
    });
    let tid = Tid(told.recv().unwrap());
    observer
        .watch(&[Watched { vm: VmId("a".into()), role: Role::Vcpu(0), tid, affinity: (0..1).collect() }])
        .unwrap();
    // Before it has a quota.
    let clock = observer.quota_clocks().unwrap()[&tid].own_ns;
    std::fs::write(quota, "20000").unwrap();
    go_on.send(()).unwrap();
    let ends = hog.join().unwrap();
    assert!(ends.len() > 10, "{ends:?}");
    let after = |ns: u64| (ns + PERIOD_NS - clock % PERIOD_NS) % PERIOD_NS;
    let late: Vec<u64> = ends.iter().map(|ns| after(*ns) / 1_000_000).collect();
    // Others may have the pCPU when it may go on.
    let soon = late.iter().filter(|ms| **ms < 10).count();
    assert!(soon * 2 > late.len(), "after the begin of a period, ms: {late:?}");
    Ok(Completion::Completed)
}
