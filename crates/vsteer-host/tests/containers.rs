//! Is the container named whose process makes a VM wait? A process in a cgroup with a container's name burns the pCPU of a
//! thread that looks like a vCPU.
//!
//! Needs root, eBPF, and the cpu controller of version 1 or a tree of version 2. Each process is this program again, so this
//! file has a harness that leaves its arguments alone. Left out: containers that a manager made.

use libtest_mimic::{Arguments, Completion, Failed, Trial};
use std::collections::BTreeMap;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};
use vsteer_core::CpuSet;
use vsteer_core::nouns::{Batch, Culprit, Tid};
use vsteer_host::kvm::host::{KvmHost, Options};
use vsteer_host::linux::{sched, task};
use vsteer_host::observe::{CollectorChoice, Observe};
use vsteer_host::root::Root;

/// What a child process does: `vcpu`, `burn`, or `short` (a process every few ms).
const TASK: &str = "VSTEER_CONTAINER_TASK";
/// Names `/bin/sh` the loop of a short process.
const SHORT: &str = "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done";

fn main() -> ExitCode {
    match std::env::var(TASK).as_deref() {
        Ok("vcpu") => vcpu(),
        Ok("burn") => burn(),
        Ok("short") => short(),
        _ => {}
    }
    let trial = |name: &'static str, test: fn() -> Completion| {
        Trial::ignorable_test(name, move || Ok::<_, Failed>(test()))
            .with_kind("needs root")
            .with_ignored_flag(true)
    };
    let trials = vec![
        trial("an_lxc_container_is_named_by_the_cpu_controller", by_version_1),
        trial("a_pod_is_named_by_the_unified_tree", by_version_2),
        trial("short_processes_of_a_container_are_not_taken_for_others", of_short_ones),
    ];
    // One after the other: each burns the same pCPU.
    let arguments = Arguments { test_threads: Some(1), ..Arguments::from_args() };
    libtest_mimic::run(&arguments, trials).exit_code()
}

fn compute() -> ! {
    let mut sum = 1_u64;
    loop {
        sum = std::hint::black_box(sum.wrapping_mul(3));
    }
}

fn first_cpu() -> u32 {
    let pid = std::process::id();
    task::affinity(&Root::live().unwrap(), pid, Tid(pid)).unwrap().iter().next().unwrap()
}

fn stay_on_first_cpu() {
    sched::set_affinity(Tid(std::process::id()), &CpuSet::single(first_cpu())).unwrap();
}

/// Looks like a QEMU with one vCPU, which computes.
fn vcpu() -> ! {
    stay_on_first_cpu();
    std::thread::Builder::new().name("CPU 0/TCG".to_owned()).spawn(|| compute()).unwrap();
    loop {
        std::thread::sleep(Duration::from_secs(3600));
    }
}

fn burn() -> ! {
    stay_on_first_cpu();
    compute()
}

fn short() -> ! {
    stay_on_first_cpu();
    loop {
        let _ = Command::new("/bin/sh").args(["-c", SHORT]).status();
    }
}

/// A process, in a cgroup if one was made for it; ended with this value.
struct Running {
    child: Child,
    /// Deepest first.
    folders: Vec<PathBuf>,
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        for folder in &self.folders {
            let gone = (0..200).any(|_| {
                std::thread::sleep(Duration::from_millis(10));
                std::fs::remove_dir(folder).is_ok()
            });
            if !gone {
                eprintln!("{} is left", folder.display());
            }
        }
    }
}

/// Runs this program as `name`, in this group of a tree of cgroups.
fn run(name: &str, task: &str, arguments: &[&str], group: Option<(&Path, &str)>) -> Running {
    let folders: Vec<PathBuf> = group.map_or_else(Vec::new, |(tree, path)| {
        let whole = tree.join(path);
        std::fs::create_dir_all(&whole).unwrap();
        whole.ancestors().take_while(|a| *a != tree).map(Path::to_owned).collect()
    });
    let child = Command::new(std::env::current_exe().unwrap())
        .arg0(name)
        .args(arguments)
        .env(TASK, task)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let running = Running { child, folders };
    if let Some(folder) = running.folders.first() {
        std::fs::write(folder.join("cgroup.procs"), running.child.id().to_string()).unwrap();
    }
    running
}

/// A stand-in for a VM, and the host that observes only this one.
fn observed(name: &str) -> (Running, KvmHost) {
    let name = format!("{name}-{}", std::process::id());
    let arguments = ["-name", &format!("{name},debug-threads=on"), "-accel", "tcg"];
    let vm = run("qemu-system-x86_64", "vcpu", &arguments, None);
    let tasks = format!("/proc/{}/task", vm.child.id());
    let begun = Instant::now();
    while std::fs::read_dir(&tasks).map_or(0, Iterator::count) < 2 {
        assert!(begun.elapsed() < Duration::from_secs(20), "the vCPU did not start");
        std::thread::sleep(Duration::from_millis(20));
    }
    let options = Options { vms: vec![name], collector: CollectorChoice::Ebpf, ..Options::default() };
    (vm, KvmHost::open(options).unwrap_or_else(|fault| panic!("{fault}")))
}

/// Two samples; how long the vCPU waited between them, and how long because of each culprit, ns.
fn waited_for(host: &mut KvmHost) -> (i64, BTreeMap<Culprit, i64>) {
    let wait = |b: &Batch| b.threads.iter().filter_map(|t| t.counters.wait_ns).sum::<u64>() as i64;
    let before = wait(&host.sample().unwrap());
    std::thread::sleep(Duration::from_secs(2));
    let last = host.sample().unwrap();
    let mut by = BTreeMap::new();
    last.blame.iter().for_each(|b| *by.entry(b.culprit.clone()).or_default() += b.ns);
    (wait(&last) - before, by)
}

/// What is charged to processes in this container, and to all.
fn charged(by: &BTreeMap<Culprit, i64>, container: &str) -> (i64, i64) {
    let of = by.iter().filter(|(c, _)| c.container() == Some(container)).map(|(_, ns)| ns).sum();
    (of, by.values().sum())
}

/// A process in the container and one outside burn the pCPU of the VM.
fn named(tree: &Path, group: &str, container: &str) {
    let inside = run("vsteer-inside", "burn", &[], Some((tree, group)));
    let outside = run("vsteer-outside", "burn", &[], None);
    let (_vm, mut host) = observed("waits");
    let (waited, by) = waited_for(&mut host);
    let (of, all) = charged(&by, container);
    println!("waited {waited} ns, {of} of {all} for {container}: {by:?}");
    assert!(waited > 300_000_000, "the vCPU waited {waited} ns");
    assert!((all - waited).abs() <= waited / 100, "the charges sum up: {all} of {waited}");
    assert!(of > waited / 10, "{of} of {waited} ns: {by:?}");
    for (culprit, ns) in &by {
        let Culprit::Process { pid, container: named, .. } = culprit else { continue };
        if *pid == inside.child.id() {
            assert_eq!(named.as_deref(), Some(container), "{ns} ns");
        } else {
            assert_ne!(named.as_deref(), Some(container), "{culprit:?}");
        }
        assert!(*pid != outside.child.id() || named.is_none(), "{culprit:?}");
    }
    let theirs =
        by.iter().filter(|(c, _)| matches!(c, Culprit::Process { pid, .. } if *pid == outside.child.id()));
    assert!(theirs.map(|(_, ns)| ns).sum::<i64>() > waited / 10, "{by:?}");
}

fn by_version_1() -> Completion {
    let tree = Path::new("/sys/fs/cgroup/cpu");
    if !tree.join("cpu.shares").exists() {
        return Completion::ignored_with("no cpu controller of version 1");
    }
    let name = format!("vsteer-test-{}", std::process::id());
    named(tree, &format!("lxc.payload.{name}"), &format!("lxc {name}"));
    Completion::Completed
}

/// Where version 2 is mounted.
fn unified() -> Option<PathBuf> {
    let mounts = std::fs::read_to_string("/proc/mounts").unwrap();
    let v2 = mounts.lines().map(|l| l.split(' ').collect::<Vec<_>>()).find(|w| w[2] == "cgroup2");
    v2.map(|words| PathBuf::from(words[1]))
}

fn by_version_2() -> Completion {
    let Some(tree) = unified() else { return Completion::ignored_with("no cgroups of version 2") };
    let number = std::process::id();
    let id = "0123456789abcdef".repeat(4);
    let group = format!("kubepods-burstable-pod5d2a_{number}.slice/cri-containerd-{id}.scope");
    named(&tree, &group, &format!("pod 5d2a-{number}"));
    Completion::Completed
}

/// Short processes have mostly ended when a sample is read. They may be nameless, but never somebody else's.
fn of_short_ones() -> Completion {
    let Some(tree) = unified() else { return Completion::ignored_with("no cgroups of version 2") };
    let name = format!("vsteer-short-{}", std::process::id());
    let _inside = run("vsteer-shell", "short", &[], Some((&tree, &format!("lxc.payload.{name}"))));
    let outside = run("vsteer-outside", "burn", &[], None);
    let (_vm, mut host) = observed("waits-too");
    let (waited, by) = waited_for(&mut host);
    let (of, all) = charged(&by, &format!("lxc {name}"));
    println!("waited {waited} ns, {of} of {all} for named processes of the container");
    assert!((all - waited).abs() <= waited / 100, "the charges sum up: {all} of {waited}");
    for culprit in by.keys() {
        let Culprit::Process { comm, pid, container } = culprit else { continue };
        assert!(*pid != outside.child.id() || container.is_none(), "{culprit:?}");
        let is_ours = container.as_deref().is_none_or(|c| c == format!("lxc {name}"));
        assert!(comm != "sh" || is_ours, "{culprit:?}");
    }
    let shells = by.keys().filter(|c| matches!(c, Culprit::Process { comm, .. } if comm == "sh")).count();
    assert!(shells > 0, "short processes ran: {by:?}");
    Completion::Completed
}
