//! Is the pressure of a VM and of the host what the kernel counts? Processes that look like a QEMU stall in a cgroup of
//! version 2 made here.
//!
//! Needs root, `CONFIG_PSI`, and a tree of cgroups of version 2, with or without controllers. The process that stalls is
//! this program again, under the name of a QEMU, so this file has a harness that leaves its arguments alone.

use libtest_mimic::{Arguments, Trial};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};
use vsteer_core::CpuSet;
use vsteer_core::model;
use vsteer_core::nouns::{Batch, Pressure, STALLS, Tid};
use vsteer_host::kvm::host::{KvmHost, Options};
use vsteer_host::linux::{psi, sched, task};
use vsteer_host::observe::{CollectorChoice, Observe};
use vsteer_host::root::Root;

/// Names the file that a child process writes all the time, or nothing if it only computes.
const TASK: &str = "VSTEER_STALLED_TASK";
/// Long enough for a share, and for a bit of I/O beside other work.
const WINDOW: Duration = Duration::from_secs(3);

fn main() -> ExitCode {
    if let Some(file) = std::env::var_os(TASK) {
        if file.is_empty() { compete() } else { write(Path::new(&file)) }
    }
    let trial = |name: &'static str, test: fn()| {
        let run = move || {
            test();
            Ok(())
        };
        Trial::test(name, run).with_kind("needs root").with_ignored_flag(true)
    };
    let trials = vec![
        trial("a_vm_that_writes_has_the_io_pressure_of_its_cgroup", io),
        trial("vcpus_on_one_pcpu_have_the_cpu_pressure_of_their_cgroup", cpu),
        trial("a_cgroup_with_another_process_gives_a_vm_no_pressure", shared),
    ];
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

/// Starts a thread named as QEMU names the one of a vCPU.
fn vcpu(number: u32, work: impl FnMut() + Send + 'static) {
    let mut work = work;
    let thread = std::thread::Builder::new().name(format!("CPU {number}/TCG"));
    thread
        .spawn(move || {
            loop {
                work();
            }
        })
        .unwrap();
}

/// One vCPU that waits for a disk.
fn write(file: &Path) -> ! {
    use std::os::unix::fs::FileExt;
    let file = std::fs::File::create(file).unwrap();
    let block = vec![7_u8; 1 << 20];
    vcpu(0, move || {
        file.write_all_at(&block, 0).unwrap();
        file.sync_data().unwrap();
    });
    wait()
}

/// Two vCPUs that compute on the same pCPU.
fn compete() -> ! {
    let (root, pid) = (Root::live().unwrap(), std::process::id());
    let first = task::affinity(&root, pid, Tid(pid)).unwrap().iter().next().unwrap();
    // Threads inherit it.
    sched::set_affinity(Tid(pid), &CpuSet::single(first)).unwrap();
    for number in 0..2 {
        let mut sum = 1_u64;
        vcpu(number, move || sum = std::hint::black_box(sum.wrapping_mul(3)));
    }
    wait()
}

fn wait() -> ! {
    loop {
        std::thread::sleep(Duration::from_secs(3600));
    }
}

/// A process in a cgroup of version 2 of its own; ended with this value.
struct Vm {
    child: Child,
    name: String,
    folder: PathBuf,
}

impl Drop for Vm {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        for _ in 0..100 {
            if std::fs::remove_dir(&self.folder).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        eprintln!("{} is left", self.folder.display());
    }
}

/// Where version 2 is mounted.
fn top() -> PathBuf {
    let mounts = std::fs::read_to_string("/proc/mounts").unwrap();
    let words = |l: &str| l.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let v2 = mounts.lines().map(words).find(|w| w[2] == "cgroup2");
    PathBuf::from(&v2.expect("cgroups of version 2 are mounted")[1])
}

/// Starts a process that looks like a QEMU with this many vCPUs.
fn vm(name: &str, task: &str, vcpus: usize) -> Vm {
    let name = format!("{name}-{}", std::process::id());
    let folder = top().join(format!("vsteer-test-{name}"));
    std::fs::create_dir(&folder).unwrap();
    let child = Command::new(std::env::current_exe().unwrap())
        .arg0("qemu-system-x86_64")
        .args(["-name", &format!("{name},debug-threads=on"), "-accel", "tcg"])
        .env(TASK, task)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let vm = Vm { child, name, folder };
    std::fs::write(vm.folder.join("cgroup.procs"), vm.child.id().to_string()).unwrap();
    let begun = Instant::now();
    let tasks = format!("/proc/{}/task", vm.child.id());
    while std::fs::read_dir(&tasks).map_or(0, Iterator::count) <= vcpus {
        assert!(begun.elapsed() < Duration::from_secs(20), "the threads did not start");
        std::thread::sleep(Duration::from_millis(20));
    }
    vm
}

fn open(vm: &Vm) -> KvmHost {
    let vms = vec![vm.name.clone()];
    KvmHost::open(Options { vms, collector: CollectorChoice::Schedstat, ..Options::default() })
        .unwrap_or_else(|fault| panic!("{fault}"))
}

/// What the kernel counts for a cgroup, or for the host.
fn kernels(group: Option<&Path>) -> Pressure {
    let path = |file: &str| match group {
        Some(group) => group.join(psi::name(file)),
        None => Path::new("/proc/pressure").join(file),
    };
    psi::parse(&psi::FILES.map(|file| std::fs::read_to_string(path(file)).ok()))
        .expect("the kernel counts pressure")
}

/// Each figure lies between what the kernel had counted just before and just after.
fn is_between(before: Pressure, figure: Option<Pressure>, after: Pressure) {
    let figure = figure.expect("it was measured");
    for (i, stall) in STALLS.iter().enumerate() {
        let [low, is, high] = [before, figure, after].map(|p| p.each()[i]);
        assert!(low.is_some() && low <= is && is <= high, "{}: {low:?} {is:?} {high:?}", stall.name);
    }
}

/// Two samples, [`WINDOW`] apart, each compared with the kernel's files.
fn samples(host: &mut KvmHost, vm: &Vm) -> Vec<Batch> {
    let mut look = || {
        let before = (kernels(Some(&vm.folder)), kernels(None));
        let batch = host.sample().unwrap();
        let after = (kernels(Some(&vm.folder)), kernels(None));
        assert_eq!(batch.vms.len(), 1);
        is_between(before.0, batch.vms[0].pressure, after.0);
        is_between(before.1, batch.pressure, after.1);
        batch
    };
    let first = look();
    std::thread::sleep(WINDOW);
    vec![first, look()]
}

fn io() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let vm = vm("writes", dir.path().join("disk").to_str().unwrap(), 1);
    let mut host = open(&vm);
    let config = host.config().unwrap();
    let batches = samples(&mut host, &vm);
    assert_eq!(host.collector().missing.get("psi.vms"), None);
    let model = model::derive(&config, &host.collector(), &batches).unwrap();
    let of = model.vms[0].pressure;
    let [some, full] = [of.io_some, of.io_full].map(|part| part.expect("it was measured"));
    // Both counters are printed in whole microseconds, so each difference may be off by one.
    let rounding = 2e-6 / WINDOW.as_secs_f64();
    assert!(full > 0.02 && full <= some + rounding, "{of:?}");
    assert!(model.pressure.io_some > Some(0.0), "{:?}", model.pressure);
}

fn cpu() {
    let vm = vm("competes", "", 2);
    let mut host = open(&vm);
    let config = host.config().unwrap();
    let batches = samples(&mut host, &vm);
    let model = model::derive(&config, &host.collector(), &batches).unwrap();
    let of = model.vms[0].pressure;
    // One of the two always waits.
    assert!(of.cpu_some > Some(0.9) && of.io_full < Some(0.02), "{of:?}");
}

fn shared() {
    let vm = vm("shares", "", 2);
    let mut other = Command::new("sleep").arg("60").spawn().unwrap();
    std::fs::write(vm.folder.join("cgroup.procs"), other.id().to_string()).unwrap();
    let mut host = open(&vm);
    let batch = host.sample().unwrap();
    let missing = host.collector().missing.get("psi.vms").cloned();
    let _ = other.kill();
    let _ = other.wait();
    assert_eq!(batch.vms[0].pressure, None, "the figure is the group's");
    assert!(batch.pressure.is_some());
    assert!(
        missing.as_ref().is_some_and(|why| why.contains(&vm.name) && why.contains("other processes")),
        "{missing:?}"
    );
    // Alone again, it has a figure from the next look on.
    host.config().unwrap();
    assert!(host.sample().unwrap().vms[0].pressure.is_some());
    assert_eq!(host.collector().missing.get("psi.vms"), None);
}
