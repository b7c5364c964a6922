//! Are changes of a VM of Proxmox VE made, undone and refused as they should be? The VM is a process of root's that looks
//! like one, in a cgroup as Proxmox VE makes it; `qm` is a script that behaves as its manual says.
//!
//! Needs root and the cpu controller of cgroup version 1. The VM, and an apply that is killed, are this program again, so this
//! file has a harness that leaves its arguments alone. Left out: a real Proxmox VE.

use libtest_mimic::{Arguments, Completion, Failed, Trial};
use std::collections::BTreeMap;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};
use vsteer_act::{By, Journal, Receipt, Setting, State, apply, conflicts, preview, rollback};
use vsteer_core::forecast::Forecast;
use vsteer_core::nouns::{CpuWeight, Quota, VmConfig};
use vsteer_core::plan::Plan;
use vsteer_core::setting::{self, Change, QuotaScope, Scope, Step};
use vsteer_core::{CpuSet, Fault, FaultKind};
use vsteer_host::kvm::host::{KvmHost, Options};
use vsteer_host::observe::{CollectorChoice, Observe};

const CONTROLLER: &str = "/sys/fs/cgroup/cpu";
/// Set in the process that is a VM.
const VM: &str = "VSTEER_PROXMOX_VM";
/// Names the folder of a test to the process that applies a plan there and is killed, and the VM.
const APPLY: &str = "VSTEER_PROXMOX_APPLY";
const NAME: &str = "VSTEER_PROXMOX_NAME";

fn main() -> ExitCode {
    if std::env::var_os(VM).is_some() {
        vm();
    }
    if let (Some(folder), Ok(name)) = (std::env::var_os(APPLY), std::env::var(NAME)) {
        let folder = PathBuf::from(folder);
        let mut host = open(&folder, &name);
        let (weights, _) = steps(&mut host, &name);
        let done = make(&mut host, weights, Scope::Both, &folder);
        eprintln!("was not killed: {done:?}");
        return ExitCode::FAILURE;
    }
    let trial = |name: &'static str, test: fn()| {
        let run = move || {
            if !Path::new(CONTROLLER).join("cpu.shares").exists() {
                return Ok::<_, Failed>(Completion::ignored_with("no cpu controller of version 1"));
            }
            test();
            Ok(Completion::Completed)
        };
        Trial::ignorable_test(name, run).with_kind("needs root").with_ignored_flag(true)
    };
    let trials = vec![
        trial("a_plan_is_made_with_qm_and_undone", made_and_undone),
        trial("an_apply_killed_around_qm_set_is_undone", killed),
        trial("a_plan_that_qm_refuses_leaves_nothing", refused),
        trial("what_another_person_set_since_is_a_conflict", changed_since),
    ];
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

/// Two vCPUs that sleep.
fn vm() -> ! {
    for number in 0..2 {
        let thread = std::thread::Builder::new().name(format!("CPU {number}/KVM"));
        thread.spawn(|| std::thread::sleep(Duration::from_secs(3600))).unwrap();
    }
    std::thread::sleep(Duration::from_secs(3600));
    std::process::exit(0)
}

/// A running VM with its options, ended with this value.
struct Place {
    folder: tempfile::TempDir,
    child: Child,
    id: u32,
    name: String,
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let slice = Path::new(CONTROLLER).join("qemu.slice");
        let gone = (0..200).any(|_| {
            std::thread::sleep(Duration::from_millis(10));
            std::fs::remove_dir(slice.join(format!("{}.scope", self.id))).is_ok()
        });
        let _ = std::fs::remove_dir(&slice);
        if !gone {
            eprintln!("the cgroup of VM {} is left", self.id);
        }
    }
}

/// The options that the VM has when a test begins.
const BEFORE: &str = "cores: 2\ncpulimit: 2\nname: web\n";

impl Place {
    /// `nth`: tests may run at the same time.
    fn new(nth: u32) -> Place {
        let folder = tempfile::tempdir().unwrap();
        let id = 1_000_000 + 10 * std::process::id() + nth;
        let script = include_str!("../../vsteer-host/src/kvm/actuate/qm_stand_in.sh");
        let program = folder.path().join("qm");
        // Another process writes it: one that a test starts meanwhile could inherit the open file.
        let text = format!("#!/bin/sh\n{script}");
        let written = Command::new("sh")
            .args(["-c", "printf %s \"$2\" >\"$1\" && chmod 755 \"$1\"", "sh"])
            .args([program.as_os_str(), text.as_ref()])
            .status();
        assert!(written.unwrap().success());
        std::fs::write(folder.path().join(format!("{id}.conf")), BEFORE).unwrap();
        let name = format!("web-{id}");
        let child = Command::new(std::env::current_exe().unwrap())
            .arg0("/usr/bin/kvm")
            .args(["-id", &id.to_string(), "-name", &format!("{name},debug-threads=on"), "-accel", "kvm"])
            .env(VM, "1")
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let scope = Path::new(CONTROLLER).join(format!("qemu.slice/{id}.scope"));
        std::fs::create_dir_all(&scope).unwrap();
        std::fs::write(scope.join("cgroup.procs"), child.id().to_string()).unwrap();
        let begun = Instant::now();
        while std::fs::read_dir(format!("/proc/{}/task", child.id())).map_or(0, Iterator::count) < 3 {
            assert!(begun.elapsed() < Duration::from_secs(20), "the vCPUs did not start");
            std::thread::sleep(Duration::from_millis(20));
        }
        Place { folder, child, id, name }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn options(&self) -> String {
        std::fs::read_to_string(self.path(&format!("{}.conf", self.id))).unwrap()
    }

    /// What the kernel has in the VM's cgroup.
    fn limits(&self) -> BTreeMap<&'static str, String> {
        let scope = Path::new(CONTROLLER).join(format!("qemu.slice/{}.scope", self.id));
        let read = |file: &'static str| (file, std::fs::read_to_string(scope.join(file)).unwrap());
        ["cpu.shares", "cpu.cfs_quota_us", "cpu.cfs_period_us"].map(read).into()
    }

    fn open(&self) -> KvmHost {
        open(self.folder.path(), &self.name)
    }

    fn journal(&self) -> Journal {
        let mut all = std::fs::read_dir(self.folder.path()).unwrap().map(|e| e.unwrap().path());
        let path = all.find(|p| p.extension().is_some_and(|e| e == "journal"));
        Journal::open(&path.expect("a journal was begun")).unwrap()
    }
}

fn open(folder: &Path, name: &str) -> KvmHost {
    KvmHost::open(Options {
        vms: vec![name.to_owned()],
        collector: CollectorChoice::Schedstat,
        qm: Some(folder.join("qm")),
        ..Options::default()
    })
    .unwrap_or_else(|fault| panic!("{fault}"))
}

/// A step for weight and one for quota; and one pin for each vCPU to the first pCPU.
fn steps(host: &mut KvmHost, name: &str) -> (Vec<Step>, Vec<Step>) {
    let vm = host.config().unwrap().vms.into_iter().find(|vm| vm.name == name).expect("the VM is there");
    let step = |vm: &VmConfig, change| Step {
        vm: vm.id.clone(),
        vm_name: vm.name.clone(),
        change,
        reason: "a test".into(),
    };
    let from = vm.weight.expect("it has a weight");
    let to = CpuWeight::Shares(400);
    let half = Some(Quota { quota_us: 150_000, period_us: 100_000 });
    let whole = QuotaScope::WholeVm;
    let weights = vec![
        step(&vm, Change::Weight(setting::Weight { from, to })),
        step(&vm, Change::Quota(setting::Quota { scope: whole, from: vm.limits.whole_vm, to: half })),
    ];
    let pin = |t: &vsteer_core::nouns::VmThread| {
        let to = CpuSet::single(t.affinity.iter().next().unwrap());
        step(
            &vm,
            Change::Affinity(setting::Affinity { role: t.role, tid: t.tid, from: t.affinity.clone(), to }),
        )
    };
    (weights, vm.vcpus().map(pin).collect())
}

fn plan(host: &mut KvmHost, steps: Vec<Step>, scope: Scope) -> Plan {
    let forecast = Forecast { method: "none".to_owned(), vms: Vec::new() };
    Plan::new(host.config().unwrap(), "a test".to_owned(), steps, scope, forecast)
}

fn make(host: &mut KvmHost, steps: Vec<Step>, scope: Scope, folder: &Path) -> Result<Receipt, Fault> {
    let plan = plan(host, steps, scope);
    let setting = Setting { folder, connect: None, unix_ns: 7 };
    apply(&plan, &host.config().unwrap(), host, setting, |_| Ok(()), || false)
}

fn made_and_undone() {
    let p = Place::new(0);
    let mut host = p.open();
    let before = p.limits();
    let (mut all, pins) = steps(&mut host, &p.name);
    all.extend(pins.clone());
    let planned = plan(&mut host, all.clone(), Scope::Both);
    let shown = preview(&planned, &host.config().unwrap(), &mut host).unwrap();
    let command = format!("{} set {} --cpuunits 400", p.path("qm").display(), p.id);
    assert!(shown[0].touches.iter().any(|line| line.ends_with(&command)), "{:?}", shown[0].touches);
    assert!(!p.path("calls").exists(), "a dry run runs nothing");

    make(&mut host, all, Scope::Both, p.folder.path()).unwrap_or_else(|f| panic!("{f}"));
    let Change::Affinity(setting::Affinity { to, .. }) = &pins[0].change else { unreachable!() };
    let expected = format!("affinity: {to}\ncores: 2\ncpulimit: 1.5\ncpuunits: 400\nname: web\n");
    assert_eq!(p.options(), expected);
    let now = p.limits();
    assert_eq!((now["cpu.shares"].trim(), now["cpu.cfs_quota_us"].trim()), ("400", "150000"));
    assert_eq!(conflicts(&p.journal(), &mut host), Vec::<String>::new());
    rollback(&mut p.journal(), &mut host, By::Rollback).unwrap_or_else(|f| panic!("{f}"));
    assert_eq!((p.options().as_str(), p.limits()), (BEFORE, before));

    // One affinity cannot hold the pin of one vCPU; nothing is begun.
    std::fs::remove_file(p.path("calls")).unwrap();
    let other = Place::new(4);
    let mut host = other.open();
    let (_, pins) = steps(&mut host, &other.name);
    let fault = make(&mut host, pins[..1].to_vec(), Scope::Persistent, other.folder.path()).unwrap_err();
    assert!(fault.kind == FaultKind::Unsupported && fault.to_string().contains("one affinity"), "{fault}");
    assert_eq!(other.options(), BEFORE);
}

/// Killed before and after `qm` has changed the options, in the middle of a step.
fn killed() {
    for (nth, when) in [(1, "before"), (5, "after")] {
        let p = Place::new(nth);
        let before = p.limits();
        std::fs::write(p.path("kill"), when).unwrap();
        let status = Command::new(std::env::current_exe().unwrap())
            .env(APPLY, p.folder.path())
            .env(NAME, &p.name)
            .status()
            .unwrap();
        assert_eq!(status.signal(), Some(9), "{when}: {status}");
        let begun = Instant::now();
        let made = |text: &str| text.contains("cpuunits: 400");
        while when == "after" && !made(&p.options()) && begun.elapsed() < Duration::from_secs(5) {
            std::thread::sleep(Duration::from_millis(20));
        }
        assert_eq!(made(&p.options()), when == "after", "{when}: {}", p.options());
        let mut journal = p.journal();
        assert_ne!(journal.state(), State::Applied);
        rollback(&mut journal, &mut p.open(), By::Rollback).unwrap_or_else(|f| panic!("{f}"));
        assert_eq!((p.options().as_str(), p.limits()), (BEFORE, before), "{when}");
        assert_eq!(journal.state(), State::RolledBack);
    }
}

fn refused() {
    let p = Place::new(2);
    let mut host = p.open();
    let before = p.limits();
    std::fs::write(p.path("fail"), "VM is locked (backup)").unwrap();
    let (weights, _) = steps(&mut host, &p.name);
    let fault = make(&mut host, weights, Scope::Both, p.folder.path()).unwrap_err();
    let text = fault.to_string();
    assert!(fault.kind == FaultKind::NotApplied && text.contains("VM is locked (backup)"), "{text}");
    assert!(text.contains("no change of it remains"), "{text}");
    assert_eq!((p.options().as_str(), p.limits()), (BEFORE, before));
}

/// Also of a plan that changes only the definition.
fn changed_since() {
    let p = Place::new(3);
    let mut host = p.open();
    let (weights, _) = steps(&mut host, &p.name);
    make(&mut host, weights, Scope::Persistent, p.folder.path()).unwrap_or_else(|f| panic!("{f}"));
    assert_eq!(conflicts(&p.journal(), &mut host), Vec::<String>::new());
    let file = p.path(&format!("{}.conf", p.id));
    std::fs::write(&file, p.options().replace("cpuunits: 400", "cpuunits: 250")).unwrap();
    let found = conflicts(&p.journal(), &mut host);
    assert!(found.len() == 1 && found[0].ends_with("the present value is cpuunits 250"), "{found:?}");
    // --force overwrites it.
    rollback(&mut p.journal(), &mut host, By::Rollback).unwrap_or_else(|f| panic!("{f}"));
    assert_eq!(p.options(), BEFORE);
}
