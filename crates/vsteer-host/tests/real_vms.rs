//! Do observing, changing and putting back work on real VMs? A QEMU started here, and, where `VSTEER_TEST_CONNECT`
//! names a libvirt whose VMs may be changed, every running VM of it.
//!
//! Needs root and QEMU. Whether the other needs are met shows only when a test runs, so this file has a harness that
//! lets a test ignore itself then.

use libtest_mimic::{Arguments, Completion, Failed, Trial};
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeMap;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use vsteer_core::CpuSet;
use vsteer_core::nouns::*;
use vsteer_core::setting;
use vsteer_core::setting::{Change, QuotaScope, Scope, Step};
use vsteer_core::{FaultKind, model};
use vsteer_host::actuate::{Actuate, Former, Restored, Run};
use vsteer_host::kvm::client::Client;
use vsteer_host::kvm::host::{KvmHost, Options};
use vsteer_host::observe::{CollectorChoice, Observe};

/// Where cgroup v1 mounts the cpu controller.
const CONTROLLER: &str = "/sys/fs/cgroup/cpu";

/// A QEMU in its firmware, in a cgroup of its own if it was asked for; ended with this value.
struct Qemu {
    child: Child,
    cgroup: Option<String>,
}

impl Drop for Qemu {
    fn drop(&mut self) {
        let _ = kill_process(Pid::from_child(&self.child), Signal::KILL);
        let _ = self.child.wait();
        for _ in 0..50 {
            let Some(folder) = &self.cgroup else { return };
            if std::fs::remove_dir(folder).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

fn qemu(name: &str, names: bool, own_cgroup: bool, sockets: &std::path::Path) -> Qemu {
    qemu_with(name, names, own_cgroup, sockets, &[])
}

fn qemu_with(name: &str, names: bool, own_cgroup: bool, sockets: &std::path::Path, more: &[&str]) -> Qemu {
    let title = format!("{},debug-threads={}", name.replace(',', ",,"), if names { "on" } else { "off" });
    let monitor = format!("unix:{}/qmp-{},server=on,wait=off", sockets.display(), u8::from(names));
    let child = Command::new("qemu-system-x86_64")
        .args(["-name", &title, "-qmp", &monitor, "-display", "none", "-serial", "none", "-m", "32"])
        .args(["-accel", "tcg,thread=multi", "-smp", "2,sockets=1,cores=2,threads=1"])
        .args(["-object", "iothread,id=disk"])
        .args(more)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap_or_else(|e| panic!("qemu-system-x86_64: {e}"));
    let mut qemu = Qemu { child, cgroup: None };
    if own_cgroup {
        let folder = format!("{CONTROLLER}/vsteer-test-{}", qemu.child.id());
        std::fs::create_dir(&folder).unwrap();
        qemu.cgroup = Some(folder.clone());
        std::fs::write(format!("{folder}/cgroup.procs"), qemu.child.id().to_string()).unwrap();
    }
    // Until its vCPU threads are there.
    let begun = Instant::now();
    let tasks = format!("/proc/{}/task", qemu.child.id());
    while std::fs::read_dir(&tasks).map_or(0, Iterator::count) < 5
        && begun.elapsed() < Duration::from_secs(20)
    {
        std::thread::sleep(Duration::from_millis(50));
    }
    std::thread::sleep(Duration::from_millis(300));
    qemu
}

fn open(connect: Option<&str>, vms: &[&str], collector: CollectorChoice) -> KvmHost {
    let vms = vms.iter().map(|v| (*v).to_owned()).collect();
    KvmHost::open(Options { connect: connect.map(str::to_owned), vms, collector, ..Options::default() })
        .unwrap_or_else(|fault| panic!("{fault}"))
}

fn step(vm: &VmConfig, change: Change) -> Step {
    Step { vm: vm.id.clone(), vm_name: vm.name.clone(), change, reason: "a test".into() }
}

/// Everything of a VM that a step may change, beyond what the configuration holds.
fn cpusets(vm: &VmConfig) -> BTreeMap<u32, (String, String)> {
    let read = |tid: u32| {
        let groups = std::fs::read_to_string(format!("/proc/{}/task/{tid}/cgroup", vm.pid)).ok()?;
        let path = groups.lines().find_map(|l| Some(l.split_once(":cpuset:")?.1.to_owned()))?;
        let cpus = std::fs::read_to_string(format!("/sys/fs/cgroup/cpuset{path}/cpuset.cpus")).ok()?;
        Some((path, cpus))
    };
    vm.threads.iter().filter_map(|t| Some((t.tid.0, read(t.tid.0)?))).collect()
}

fn vm_named(host: &mut KvmHost, name: &str) -> VmConfig {
    host.config().unwrap().vms.into_iter().find(|vm| vm.name == name).expect("the VM runs")
}

/// Weight, quotas and periods of all cgroups of the VM, as the kernel has them.
fn limits(vm: &VmConfig) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    for group in vm.threads.iter().filter_map(|t| t.cgroup.as_deref()).chain(vm.cgroup.as_deref()) {
        for file in ["cpu.shares", "cpu.cfs_quota_us", "cpu.cfs_period_us", "cpu.weight", "cpu.max"] {
            for top in ["/sys/fs/cgroup/cpu", "/sys/fs/cgroup"] {
                let path = format!("{top}{group}/{file}");
                all.extend(std::fs::read_to_string(&path).ok().map(|text| (path, text)));
            }
        }
    }
    all
}

/// Makes the change, sees that it holds, puts it back, sees that all is as before.
fn there_and_back(host: &mut KvmHost, vm: &VmConfig, change: Change, scope: Scope) {
    let step = step(vm, change);
    let (before, files, numbers) = (host.config().unwrap(), cpusets(vm), limits(vm));
    assert_eq!(host.current(&step).unwrap(), step.change, "the plan's former value is the one in force");
    let former = host.former(&step, scope).unwrap_or_else(|f| panic!("{f}"));
    let text = serde_json::to_string(&former).unwrap();
    let undo = step.change.undo().unwrap();
    host.act(&step, scope).unwrap_or_else(|f| panic!("{f}"));
    let live = scope.live() || matches!(step.change, Change::Topology(_));
    if live {
        assert_eq!(host.current(&step).unwrap().undo(), Some(same_ends(&undo)), "{step:?} holds");
    }
    // From the journal's text, twice: a restore that was interrupted is done again.
    for _ in 0..2 {
        host.restore(&step, &serde_json::from_str(&text).unwrap()).unwrap_or_else(|f| panic!("{f}"));
    }
    assert_eq!(before.differences(&host.config().unwrap()), Vec::<String>::new(), "{step:?} was taken back");
    assert_eq!(cpusets(vm), files, "{step:?}: the cpusets are as before");
    assert_eq!(limits(vm), numbers, "{step:?}: the cgroups are as before");
}

/// The undo of a change that is in force already: both ends are its new value.
fn same_ends(undo: &Change) -> Change {
    match undo.clone() {
        Change::Affinity(setting::Affinity { role, tid, from, .. }) => {
            Change::Affinity(setting::Affinity { role, tid, to: from.clone(), from })
        }
        Change::Weight(setting::Weight { from, .. }) => Change::Weight(setting::Weight { from, to: from }),
        Change::Quota(setting::Quota { scope, from, .. }) => {
            Change::Quota(setting::Quota { scope, from, to: from })
        }
        Change::RtBudget(setting::RtBudget { cgroup, from_us, .. }) => {
            Change::RtBudget(setting::RtBudget { cgroup, from_us, to_us: from_us })
        }
        Change::Class(setting::Class { role, tid, from, .. }) => {
            Change::Class(setting::Class { role, tid, from, to: from })
        }
        Change::MemoryNodes(setting::MemoryNodes { from, .. }) => {
            Change::MemoryNodes(setting::MemoryNodes { to: from.clone(), from })
        }
        Change::Topology(setting::Topology { from, to }) => {
            Change::Topology(setting::Topology { to: from.unwrap_or(to), from })
        }
        // Moved by `lab run move`, which has two hosts.
        Change::Host(_) => panic!("no VM is moved here"),
        Change::Knob(_) => panic!("nothing of the host is set here"),
        Change::Pool(_)
        | Change::NodeAffinity(_)
        | Change::VmAffinity(_)
        | Change::ReservationMhz(_)
        | Change::LimitMhz(_)
        | Change::Latency(_)
        | Change::Preference(_)
        | Change::Reservation(_) => {
            panic!("these are no Xen domains")
        }
    }
}

fn affinities(vm: &VmConfig) -> Vec<Change> {
    let pinned = |t: &VmThread| matches!(t.role, Role::Vcpu(_) | Role::Emulator | Role::IoThread(_));
    vm.threads
        .iter()
        .filter(|t| pinned(t) && t.affinity.len() > 1)
        .map(|t| {
            Change::Affinity(setting::Affinity {
                role: t.role,
                tid: t.tid,
                from: t.affinity.clone(),
                to: CpuSet::single(t.affinity.iter().last().unwrap()),
            })
        })
        .collect()
}

fn main() {
    fn test(name: &str, runner: fn() -> Result<Completion, Failed>) -> Trial {
        Trial::ignorable_test(name, runner).with_kind("needs root and QEMU").with_ignored_flag(true)
    }
    let tests = vec![
        test("a_bare_qemu_is_seen_changed_and_put_back", || Ok(bare_qemu(false))),
        test("a_bare_qemu_in_a_cgroup_of_its_own_is_changed_and_put_back", || {
            match std::path::Path::new(CONTROLLER).join("tasks").exists() {
                true => Ok(bare_qemu(true)),
                false => Ok(Completion::ignored_with("this machine has no cpu controller of cgroup v1")),
            }
        }),
        test("a_quota_of_a_grandparent_is_named_and_counted_as_the_kernel_does", || {
            match std::path::Path::new(CONTROLLER).join("tasks").exists() {
                true => Ok(quota_of_a_grandparent()),
                false => Ok(Completion::ignored_with("this machine has no cpu controller of cgroup v1")),
            }
        }),
        test("an_idle_cgroup_and_a_burst_are_read_as_the_kernel_has_them", || {
            match std::path::Path::new(CONTROLLER).join("tasks").exists() {
                true => Ok(idle_and_burst()),
                false => Ok(Completion::ignored_with("this machine has no cpu controller of cgroup v1")),
            }
        }),
        test("limited_time_is_estimated_where_it_is_not_counted", || {
            match std::path::Path::new(CONTROLLER).join("tasks").exists() {
                true => Ok(estimated_beside_counted()),
                false => Ok(Completion::ignored_with("this machine has no cpu controller of cgroup v1")),
            }
        }),
        test("nameless_threads_are_told_by_the_monitor_and_shared_cgroups_are_left_alone", nameless_threads),
        test("samples_make_a_model_by_either_collector", samples_make_a_model_by_either_collector),
        test("libvirts_vms_are_changed_and_put_back", libvirts_vms_are_changed_and_put_back),
    ];
    libtest_mimic::run(&Arguments::from_args(), tests).exit();
}

/// A step that pins thread `tid` in the role of this vCPU.
fn pinned(vm: &VmConfig, vcpu: &VmThread, tid: Tid, to: &str) -> Step {
    let (role, from, to) = (vcpu.role, vcpu.affinity.clone(), to.parse().unwrap());
    step(vm, Change::Affinity(setting::Affinity { role, tid, from, to }))
}

fn refused(host: &mut KvmHost, step: &Step, scope: Scope) -> FaultKind {
    host.act(step, scope).unwrap_err().kind
}

/// The changes that a bare QEMU allows. Settings of the whole VM need a cgroup of its own.
fn changes_of_bare(vm: &VmConfig, own_cgroup: bool) -> Vec<Change> {
    let mut changes = affinities(vm);
    if own_cgroup {
        let cgroup = vm.cgroup.clone().expect("it is alone in its cgroup");
        let weight = vm.weight.unwrap();
        changes.push(Change::Weight(setting::Weight { from: weight, to: weight.with_relative(4.0) }));
        let to = Some(Quota { quota_us: 150_000, period_us: 50_000 });
        changes.push(Change::Quota(setting::Quota { scope: QuotaScope::WholeVm, from: None, to }));
        if !vm.rt_budgets.is_empty() {
            changes.push(Change::RtBudget(setting::RtBudget { cgroup, from_us: 0, to_us: 1000 }));
        }
    }
    changes
}

/// vsteer restores neither a later process with the same pid nor a thread that never existed.
fn strangers_are_left_alone(host: &mut KvmHost, vm: &VmConfig, vcpu: &VmThread, former: &Former) {
    let anew = former.run.map(|run| Run { start_ticks: run.start_ticks + 1, ..run });
    let in_vain = [
        (pinned(vm, vcpu, vcpu.tid, "0"), Former { run: anew, ..former.clone() }),
        (pinned(vm, vcpu, Tid(1), "0"), former.clone()),
    ];
    for (step, former) in in_vain {
        let came = host.restore(&step, &former).unwrap();
        assert!(matches!(came, Restored::Gone(_)), "{step:?} {former:?}: {came:?}");
    }
}

/// The kernel refuses a real-time class without a budget, and a budget above the parents'. vsteer refuses the root's.
fn budgets_are_refused(host: &mut KvmHost, vm: &VmConfig, vcpu: &VmThread) {
    let (from, to) = (SchedClass::Other(0), SchedClass::Fifo(1));
    let class = Change::Class(setting::Class { role: vcpu.role, tid: vcpu.tid, from, to });
    let fault = host.act(&step(vm, class), Scope::Live).unwrap_err();
    assert!(
        fault.kind == FaultKind::NotApplied && fault.to_string().contains("cpu.rt_runtime_us"),
        "{fault}"
    );
    let cgroup = "/".to_owned();
    let root = Change::RtBudget(setting::RtBudget { cgroup, from_us: 0, to_us: 0 });
    assert_eq!(refused(host, &step(vm, root), Scope::Live), FaultKind::Changed, "never the root's");
    let cgroup = vm.cgroup.clone().unwrap();
    let too_much = Change::RtBudget(setting::RtBudget { cgroup, from_us: 0, to_us: 999_999 });
    let fault = host.act(&step(vm, too_much), Scope::Live).unwrap_err();
    assert!(
        fault.kind == FaultKind::NotApplied && fault.to_string().contains("raise parents before children"),
        "{fault}"
    );
}

fn bare_qemu(own_cgroup: bool) -> Completion {
    let dir = tempfile::tempdir().unwrap();
    let name = format!("it's \"b\u{e4}r\", {} {own_cgroup}\nline", std::process::id());
    let qemu = qemu(&name, true, own_cgroup, dir.path());
    let mut host = open(None, &[&name], CollectorChoice::Schedstat);
    let vm = vm_named(&mut host, &name);
    assert_eq!((vm.pid, vm.manager.clone(), vm.accel), (qemu.child.id(), Manager::Bare, Some(Accel::Tcg)));
    assert_eq!((vm.vcpu_count(), vm.memory_bytes), (2, Some(32 << 20)));
    assert_eq!(vm.guest_topology, Some(GuestTopology { sockets: 1, cores: 2, threads: 1 }));
    assert!(vm.threads.iter().any(|t| t.role == Role::IoThread(1)), "{:?}", vm.threads);

    for change in changes_of_bare(&vm, qemu.cgroup.is_some()) {
        there_and_back(&mut host, &vm, change, Scope::Live);
    }
    let vcpu = vm.vcpus().next().unwrap().clone();
    let pin = |tid, to: &str| pinned(&vm, &vcpu, tid, to);
    let last = pin(vcpu.tid, "0");
    assert_eq!(refused(&mut host, &last, Scope::Both), FaultKind::Unsupported);
    let said = host.refusal(&last, Scope::Both).map_err(|f| f.kind);
    assert_eq!(said, Err(FaultKind::Unsupported), "before it is tried");
    host.refusal(&last, Scope::Live).unwrap();
    let former = host.former(&last, Scope::Live).unwrap();
    assert_eq!(former.run.map(|run| run.pid), Some(vm.pid));
    strangers_are_left_alone(&mut host, &vm, &vcpu, &former);
    assert_eq!(host.restore(&last, &former).unwrap(), Restored::Back);
    assert_eq!(refused(&mut host, &pin(Tid(1), "0"), Scope::Live), FaultKind::Changed);
    assert_eq!(refused(&mut host, &pin(vcpu.tid, "4000"), Scope::Live), FaultKind::NotApplied);
    assert_eq!(refused(&mut host, &pin(vcpu.tid, ""), Scope::Live), FaultKind::BadInput);
    if qemu.cgroup.is_some() && !vm.rt_budgets.is_empty() {
        budgets_are_refused(&mut host, &vm, &vcpu);
    }
    drop(qemu);
    assert_eq!(refused(&mut host, &last, Scope::Live), FaultKind::NothingThere);
    assert!(matches!(host.restore(&last, &former).unwrap(), Restored::Gone(_)));
    assert!(host.sample().unwrap().threads.is_empty() && host.config().unwrap().vms.is_empty());
    Completion::Completed
}

fn nameless_threads() -> Result<Completion, Failed> {
    let dir = tempfile::tempdir().unwrap();
    let name = format!("nameless {}", std::process::id());
    let _qemu = qemu(&name, false, false, dir.path());
    let mut host = open(None, &[&name], CollectorChoice::Schedstat);
    let vm = vm_named(&mut host, &name);
    assert_eq!(vm.vcpu_count(), 2, "{:?} {:?}", vm.threads, host.notes());
    if vm.cgroup.is_none() {
        let weight =
            Change::Weight(setting::Weight { from: CpuWeight::Shares(1024), to: CpuWeight::Shares(2048) });
        let fault = host.act(&step(&vm, weight), Scope::Live).unwrap_err();
        assert!(fault.kind == FaultKind::Unsupported && fault.help.is_some(), "{fault}");
    }
    let fault =
        KvmHost::open(Options { vms: vec!["no such VM".into()], ..Options::default() }).err().unwrap();
    assert!(fault.kind == FaultKind::NothingThere && fault.to_string().contains(&name), "{fault}");
    Ok(Completion::Completed)
}

fn samples_make_a_model_by_either_collector() -> Result<Completion, Failed> {
    let dir = tempfile::tempdir().unwrap();
    let name = format!("sampled {}", std::process::id());
    let _qemu = qemu(&name, true, false, dir.path());
    let mut host = open(None, &[&name], CollectorChoice::Auto);
    let config = host.config().unwrap();
    let first = host.sample_both().unwrap_or_else(|f| panic!("{f}; {:?}", host.notes()));
    std::thread::sleep(Duration::from_millis(1500));
    let last = host.sample_both().unwrap();
    let ebpf = model::derive(&config, &host.collector(), &[first.0, last.0]).unwrap();
    let polled = model::derive(&config, &host.second_collector().unwrap(), &[first.1, last.1]).unwrap();
    assert_eq!((ebpf.vms.len(), polled.vms.len()), (1, 1));
    for (a, b) in ebpf.vms[0].threads.iter().zip(&polled.vms[0].threads) {
        assert_eq!(a.tid, b.tid);
        let near = |x: Option<f64>, y: Option<f64>| (x.unwrap() - y.unwrap()).abs() < 0.03;
        assert!(near(a.shares.run, b.shares.run) && near(a.shares.wait, b.shares.wait), "{a:?} {b:?}");
    }
    assert!(ebpf.vms[0].memory_by_node.as_ref().unwrap().iter().map(|(_, b)| b).sum::<u64>() > 10 << 20);
    Ok(Completion::Completed)
}

fn quota(scope: QuotaScope, from: Option<Quota>, quota_us: u64) -> Change {
    let to = Some(Quota { quota_us, period_us: 60_000 });
    Change::Quota(setting::Quota { scope, from, to })
}

/// A limit of the whole VM.
fn whole(vm: &VmConfig, quota_us: u64) -> Change {
    quota(QuotaScope::WholeVm, vm.limits.whole_vm, quota_us)
}

fn on_node_0(vm: &VmConfig) -> Change {
    let (from, to) = (vm.memory_nodes.clone(), Some(CpuSet::single(0)));
    Change::MemoryNodes(setting::MemoryNodes { from, to })
}

fn weights_and_quotas(host: &mut KvmHost, vm: &VmConfig, scope: Scope) {
    let from = vm.weight.unwrap();
    let weight = Change::Weight(setting::Weight { from, to: from.with_relative(4.0) });
    there_and_back(host, vm, weight, scope);
    there_and_back(host, vm, quota(QuotaScope::PerVcpu, vm.limits.per_vcpu, 30_000), scope);
    there_and_back(host, vm, quota(QuotaScope::Emulator, vm.limits.emulator, 30_000), scope);
    there_and_back(host, vm, whole(vm, 120_000), scope);
}

/// Changes the classes of a vCPU and of the emulator. With real-time budgets a persistent class is refused: libvirt
/// could not start the VM.
fn classes(host: &mut KvmHost, vm: &VmConfig, scope: Scope) {
    for t in vm.threads.iter().filter(|t| matches!(t.role, Role::Vcpu(1) | Role::Emulator)) {
        let class =
            |to| Change::Class(setting::Class { role: t.role, tid: t.tid, from: t.class.unwrap(), to });
        there_and_back(host, vm, class(SchedClass::Idle), scope);
        if scope == Scope::Both && !vm.rt_budgets.is_empty() {
            let fault = host.act(&step(vm, class(SchedClass::Fifo(1))), Scope::Both).unwrap_err();
            assert!(
                fault.kind == FaultKind::Unsupported && fault.to_string().contains("RT_GROUP"),
                "{fault}"
            );
        }
    }
}

fn libvirts_vms_are_changed_and_put_back() -> Result<Completion, Failed> {
    let Ok(uri) = std::env::var("VSTEER_TEST_CONNECT") else {
        return Ok(Completion::ignored_with(
            "VSTEER_TEST_CONNECT does not name a libvirt whose VMs may be changed",
        ));
    };
    let mut host = open(Some(&uri), &[], CollectorChoice::Schedstat);
    let vms = host.config().unwrap().vms;
    assert!(!vms.is_empty(), "a VM runs");
    for vm in &vms {
        let persistent = host.refusal(&step(vm, affinities(vm).remove(0)), Scope::Persistent).is_ok();
        let scope = if persistent { Scope::Both } else { Scope::Live };
        let mut libvirt = Client::new(&uri, true);
        let definition = libvirt.definition(&vm.id.0).ok();
        assert_eq!(definition.is_some(), persistent);
        for change in affinities(vm) {
            there_and_back(&mut host, vm, change, scope);
        }
        weights_and_quotas(&mut host, vm, scope);
        if vm.limits.per_vcpu.is_some() {
            refused_half_way(&mut host, vm, whole(vm, 1_000), scope);
            assert_eq!(libvirt.definition(&vm.id.0).ok(), definition);
        }
        if persistent {
            let n = vm.vcpu_count() as u32;
            let to = GuestTopology { sockets: 1, cores: n, threads: 1 };
            let change = Change::Topology(setting::Topology { from: vm.guest_topology, to });
            there_and_back(&mut host, vm, change, Scope::Both);
            there_and_back(&mut host, vm, on_node_0(vm), Scope::Persistent);
        }
        if host.refusal(&step(vm, on_node_0(vm)), Scope::Live).is_ok() {
            there_and_back(&mut host, vm, on_node_0(vm), scope);
        }
        classes(&mut host, vm, scope);
        budgets_and_classes(&mut host, vm);
        a_quota_that_runs_out_is_counted(&mut host, vm);
        held_narrower_than_its_cpuset(&mut host, vm);
        assert_eq!(libvirt.definition(&vm.id.0).ok(), definition, "the definition is as before, to the byte");
    }
    Ok(Completion::Completed)
}

/// The kernel refuses a limit of the whole that is less than a part's, after libvirt has set the period and the
/// definition was changed: what was begun is taken back.
fn refused_half_way(host: &mut KvmHost, vm: &VmConfig, change: Change, scope: Scope) {
    let (step, numbers) = (step(vm, change), limits(vm));
    let fault = host.act(&step, scope).unwrap_err();
    assert!(fault.kind == FaultKind::NotApplied && fault.help.is_some(), "{fault}");
    assert_eq!(limits(vm), numbers, "{fault}");
}

/// Even a VM in its firmware wants more than a thousandth of a CPU.
fn a_quota_that_runs_out_is_counted(host: &mut KvmHost, vm: &VmConfig) {
    let to = Some(Quota { quota_us: 1000, period_us: 1_000_000 });
    let step =
        step(vm, Change::Quota(setting::Quota { scope: QuotaScope::PerVcpu, from: vm.limits.per_vcpu, to }));
    let former = host.former(&step, Scope::Live).unwrap();
    host.act(&step, Scope::Live).unwrap();
    host.config().unwrap();
    let count = |host: &mut KvmHost| {
        let batch = host.sample().unwrap();
        batch.vms.iter().find(|v| v.vm == vm.id).and_then(|v| v.throttled_periods).unwrap()
    };
    let before = count(host);
    std::thread::sleep(Duration::from_millis(3500));
    let after = count(host);
    host.restore(&step, &former).unwrap();
    assert!(after > before && after < before + 20, "{before} {after}");
}

/// A QEMU two cgroups below the one with the quota, as a VM in a slice or a container in a pod.
fn quota_of_a_grandparent() -> Completion {
    let dir = tempfile::tempdir().unwrap();
    let name = format!("below {}", std::process::id());
    let mut qemu = qemu(&name, true, true, dir.path());
    let above = qemu.cgroup.clone().expect("it was asked for");
    let below = format!("{above}/pod/vm");
    std::fs::create_dir_all(&below).unwrap();
    std::fs::write(format!("{below}/cgroup.procs"), qemu.child.id().to_string()).unwrap();
    // Even a VM in its firmware wants more than a thousandth of a CPU.
    std::fs::write(format!("{above}/cpu.cfs_period_us"), "1000000").unwrap();
    std::fs::write(format!("{above}/cpu.cfs_quota_us"), "1000").unwrap();

    let mut host = open(None, &[&name], CollectorChoice::Ebpf);
    let vm = vm_named(&mut host, &name);
    let path = above.strip_prefix(CONTROLLER).unwrap();
    let quota = Quota { quota_us: 1_000, period_us: 1_000_000 };
    assert_eq!(vm.quotas, [GroupQuota { cgroup: path.to_owned(), quota, shared: true }]);
    assert_eq!(vm.quota_above(), vm.quotas.first());
    let kernels = || {
        let stat = std::fs::read_to_string(format!("{above}/cpu.stat")).unwrap();
        stat.lines().find_map(|l| l.strip_prefix("nr_throttled ")?.parse::<u64>().ok()).unwrap()
    };
    let mut look = || {
        // Between two equal looks at the kernel's count, vsteer's must be the same.
        loop {
            let (before, batch, after) = (kernels(), host.sample().unwrap(), kernels());
            if before == after {
                let limited: u64 = batch.threads.iter().filter_map(|t| t.counters.limited_ns).sum();
                return (batch.vms[0].throttled_above, before, limited);
            }
        }
    };
    let first = look();
    std::thread::sleep(Duration::from_millis(3500));
    let last = look();
    assert_eq!((first.0, last.0), (Some(first.1), Some(last.1)));
    assert!(last.1 > first.1 && last.2 > first.2, "throttled {first:?} {last:?}");

    let _ = kill_process(Pid::from_child(&qemu.child), Signal::KILL);
    let _ = qemu.child.wait();
    for folder in [below.clone(), format!("{above}/pod")] {
        let gone = (0..100).any(|_| {
            std::thread::sleep(Duration::from_millis(20));
            std::fs::remove_dir(&folder).is_ok()
        });
        assert!(gone, "{folder} is left");
    }
    Completion::Completed
}

/// A guest that computes all the time, with a quota of its own and then with one above it: the estimate against what eBPF
/// counts in the same samples.
fn estimated_beside_counted() -> Completion {
    let dir = tempfile::tempdir().unwrap();
    let name = format!("held {}", std::process::id());
    // A boot sector that jumps to itself.
    let mut sector = [0u8; 512];
    (sector[0], sector[1], sector[510], sector[511]) = (0xeb, 0xfe, 0x55, 0xaa);
    let disk = dir.path().join("disk");
    std::fs::write(&disk, sector).unwrap();
    let drive = format!("file={},format=raw", disk.display());
    let mut qemu = qemu_with(&name, true, true, dir.path(), &["-drive", &drive]);
    let above = qemu.cgroup.clone().expect("it was asked for");
    let below = format!("{above}/vm");
    std::fs::create_dir(&below).unwrap();
    std::fs::write(format!("{below}/cgroup.procs"), qemu.child.id().to_string()).unwrap();
    let mut host = open(None, &[&name], CollectorChoice::Ebpf);
    for (group, shared) in [(&below, false), (&above, true)] {
        // So little that it is used up on a busy machine too, where the guest also waits for others.
        std::fs::write(format!("{group}/cpu.cfs_quota_us"), "8000").unwrap();
        let config = host.config().unwrap();
        assert_eq!(config.vms[0].quotas[0].shared, shared || config.vms[0].cgroup.is_none());
        let first = host.sample().unwrap();
        std::thread::sleep(Duration::from_secs(4));
        let batches = [first, host.sample().unwrap()];
        std::fs::write(format!("{group}/cpu.cfs_quota_us"), "-1").unwrap();
        let exact = model::derive(&config, &host.collector(), &batches).unwrap().vms.remove(0);
        // As a kernel before 6.6 tells it.
        let unsplit = batches.map(|mut b| {
            b.threads.iter_mut().for_each(|t| (t.counters.ready_ns, t.counters.limited_ns) = (None, None));
            b
        });
        let estimate = model::derive(&config, &host.collector(), &unsplit).unwrap().vms.remove(0);
        let (counted, wait) = (exact.vcpus.limited.unwrap(), exact.vcpus.wait.unwrap());
        let (estimated, _) = estimate.limited().unwrap();
        println!(
            "limited {counted:.3} as counted, {estimated:.3} estimated, wait {wait:.3}, shared {shared}"
        );
        assert_eq!((exact.limited_estimate, exact.limited()), (None, Some((counted, false))));
        assert!(counted > 0.1 && estimated <= wait, "{counted} {estimated} {wait}");
        assert!((estimated - counted).abs() < 0.15 * counted, "{counted} {estimated}");
    }
    let _ = kill_process(Pid::from_child(&qemu.child), Signal::KILL);
    let _ = qemu.child.wait();
    let gone = (0..100).any(|_| {
        std::thread::sleep(Duration::from_millis(20));
        std::fs::remove_dir(&below).is_ok()
    });
    assert!(gone, "{below} is left");
    Completion::Completed
}

/// A QEMU in an idle cgroup whose quota may burst: read, and found different from before.
fn idle_and_burst() -> Completion {
    let dir = tempfile::tempdir().unwrap();
    let name = format!("idle {}", std::process::id());
    let qemu = qemu(&name, true, true, dir.path());
    let group = qemu.cgroup.clone().expect("it was asked for");
    let write = |file: &str, text: &str| std::fs::write(format!("{group}/{file}"), text).unwrap();
    let mut host = open(None, &[&name], CollectorChoice::Ebpf);
    let before = host.config().unwrap();
    let vm = &before.vms[0];
    assert_eq!((&vm.scheduling, vm.idle_group()), (&Vec::new(), None));

    write("cpu.cfs_quota_us", "50000");
    write("cpu.cfs_burst_us", "20000");
    write("cpu.idle", "1");
    let now = host.config().unwrap();
    let path = group.strip_prefix(CONTROLLER).unwrap();
    let scheduling = &now.vms[0].scheduling;
    assert_eq!(scheduling[0].to_string(), format!("{path}: idle, burst 20000 µs"));
    assert_eq!((scheduling.len(), scheduling[0].shared), (1, false));
    assert_eq!(now.vms[0].weight, Some(CpuWeight::Shares(3)), "as the kernel weighs idle cgroups");
    let told = before.differences(&now).join("\n");
    assert!(told.contains(&format!("other settings of cgroups: was none, is {path}: idle")), "{told}");
    // The kernel refuses another weight, as `plan` says.
    assert!(std::fs::write(format!("{group}/cpu.shares"), "1024").is_err());
    // Kernels without core scheduling do not tell a cookie, and others tell that there is none.
    let cookies = now.vms[0].core_cookies.clone();
    assert!(cookies.is_none_or(|cookies| cookies.is_empty()));
    write("cpu.idle", "0");
    assert_eq!(host.config().unwrap().vms[0].idle_group(), None);
    Completion::Completed
}

/// Budgets from the top down, then classes, then everything back in reverse.
fn budgets_and_classes(host: &mut KvmHost, vm: &VmConfig) {
    let before = host.config().unwrap();
    let mut steps: Vec<Step> = vm
        .rt_budgets
        .iter()
        .zip([40_000, 20_000, 4_000, 4_000, 4_000, 4_000, 4_000])
        .filter(|(b, _)| b.runtime_us == 0)
        .map(|(b, to_us)| Change::RtBudget(setting::RtBudget { cgroup: b.cgroup.clone(), from_us: 0, to_us }))
        .map(|change| step(vm, change))
        .collect();
    let lasting = |t: &&VmThread| t.role.vcpu().is_some() || t.role == Role::Emulator;
    steps.extend(vm.threads.iter().filter(lasting).map(|t| {
        step(
            vm,
            Change::Class(setting::Class {
                role: t.role,
                tid: t.tid,
                from: t.class.unwrap(),
                to: SchedClass::RoundRobin(2),
            }),
        )
    }));
    let formers: Vec<_> = steps
        .iter()
        .map(|s| {
            let former = host.former(s, Scope::Live).unwrap();
            host.act(s, Scope::Live).unwrap_or_else(|f| panic!("{f}"));
            former
        })
        .collect();
    let now = host.config().unwrap();
    let vcpu = now.vm(&vm.id).unwrap().vcpus().next().unwrap().clone();
    assert_eq!(vcpu.class, Some(SchedClass::RoundRobin(2)));
    for (s, former) in steps.iter().zip(&formers).rev() {
        host.restore(s, former).unwrap_or_else(|f| panic!("{f}"));
    }
    assert_eq!(before.differences(&host.config().unwrap()), Vec::<String>::new());
}

/// Somebody narrowed a thread behind libvirt's back: put back are its place and its cgroup's cpuset, each as it was.
fn held_narrower_than_its_cpuset(host: &mut KvmHost, vm: &VmConfig) {
    let t = vm.vcpus().next().unwrap();
    let (Some(first), Some(last)) = (t.affinity.iter().next(), t.affinity.iter().last()) else { return };
    if first == last {
        return;
    }
    let one = CpuSet::single(first);
    vsteer_host::linux::sched::set_affinity(t.tid, &one).unwrap();
    let change =
        Change::Affinity(setting::Affinity { role: t.role, tid: t.tid, from: one, to: CpuSet::single(last) });
    there_and_back(host, vm, change, Scope::Live);
    vsteer_host::linux::sched::set_affinity(t.tid, &t.affinity).unwrap();
}
