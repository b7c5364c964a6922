//! Does a captured host say what the host said, and nothing that it must not say?

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use vsteer_core::CpuSet;
use vsteer_core::nouns::{Batch, Contender, GroupScheduling, Pressure, Role, Tid};
use vsteer_experiment::audit::WANTED;
use vsteer_host::captured::capture::{Asked, capture};
use vsteer_host::captured::{CapturedHost, look};
use vsteer_host::kvm::host::{KvmHost, Options};
use vsteer_host::kvm::inventory::Inventory;
use vsteer_host::observe::{CollectorChoice, Observe};
use vsteer_host::root::Root;

const UUID: &str = "63715d0b-76a4-4a2a-8db6-9bda3af71014";
const SCOPE: &str = "machine.slice/machine-qemu\\x2d3\\x2dpayroll.scope";
const MAC: &str = "52:54:00:aa:bb:cc";
/// Names, and secrets, that no redacted capture may hold.
const HIDDEN: [&str; 8] =
    ["payroll", "node7", "alice", "63715d0b", "63715D0B", "52:54:00:aa:bb:cc", "hunter2", "4c4c4544004e"];

fn file(root: &Path, path: &str, text: &str) {
    let path = root.join(path);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

fn thread(root: &Path, tid: u32, comm: &str, schedstat: &str) {
    let task = format!("proc/500/task/{tid}");
    let group = "/machine.slice/machine-qemu\\x2d3\\x2dpayroll.scope/libvirt";
    file(root, &format!("{task}/comm"), &format!("{comm}\n"));
    let rest = "0 0 0 0 0 0 0 0 0 0 0 0 20 0 1 0 4200 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 3 0 0 0 0 0";
    file(root, &format!("{task}/stat"), &format!("{tid} ({comm}) S 1 {rest}\n"));
    file(
        root,
        &format!("{task}/cgroup"),
        &format!("0::{group}/{}\n", if tid == 500 { "emulator" } else { "vcpu0" }),
    );
    file(root, &format!("{task}/status"), "Name:\thunter2\nCpus_allowed_list:\t0-1\n");
    file(root, &format!("{task}/schedstat"), schedstat);
}

/// A file of the kernel's pressure.
fn stall(root: &Path, path: &str, full_us: u64) {
    let line = |line: &str, us: u64| format!("{line} avg10=0.00 avg60=0.00 avg300=0.00 total={us}\n");
    file(root, path, &(line("some", 2 * full_us) + &line("full", full_us)));
}

/// A host with one VM of libvirt's and a shell, full of names and secrets.
fn machine(root: &Path) {
    std::fs::create_dir_all(root.join("run/systemd/system")).unwrap();
    for (path, text) in [
        ("proc/sys/kernel/osrelease", "6.8.0\n"),
        ("proc/sys/kernel/version", "#1 SMP PREEMPT_RT\n"),
        ("sys/devices/system/cpu/nohz_full", "1\n"),
        ("proc/sys/kernel/hostname", "node7.corp\n"),
        ("etc/machine-id", "4c4c4544004e3510\n"),
        ("etc/passwd", "root:x:0:0::/root:/bin/sh\nalice:x:1001:1001:Alice:/home/alice:/bin/sh\n"),
        ("proc/uptime", "1000.00 1.0\n"),
        ("proc/cmdline", "root=UUID=63715d0b-76a4-4a2a-8db6-9bda3af71014 rd.password=hunter2 isolcpus=1\n"),
        ("proc/mounts", "//nas/alice /m cifs password=hunter2 0 0\ncgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n"),
        ("proc/stat", "cpu0 10 0 10 100 0 0 0 0 0 0\ncpu1 10 0 10 100 0 0 0 0 0 0\nintr 1\n"),
        ("sys/fs/cgroup/cgroup.controllers", "cpuset cpu\n"),
        ("sys/fs/cgroup/user.slice/alice/cgroup.procs", "600\n"),
        ("sys/devices/system/cpu/online", "0-1\n"),
        ("sys/devices/system/cpu/cpu0/topology/core_cpus_list", "0\n"),
        ("sys/devices/system/cpu/cpu1/topology/core_cpus_list", "1\n"),
        ("proc/600/cmdline", "bash\0-c\0echo hunter2 alice\0"),
        ("proc/600/environ", "TOKEN=hunter2\0"),
        ("proc/700/cmdline", "/usr/bin/numad\0-l\0hunter2\0"),
        ("proc/700/status", "Name:\tnumad\nUid:\t0\t0\t0\t0\n"),
        ("proc/701/cmdline", "/usr/bin/kubelet\0--token\0hunter2\0"),
        ("proc/701/status", "Name:\tkubelet\nUid:\t0\t0\t0\t0\n"),
        ("var/lib/kubelet/cpu_manager_state", "{\"policyName\":\"static\",\"entries\":{\"hunter2\":{}}}"),
        ("proc/500/environ", "TOKEN=hunter2\0"),
        ("proc/500/statm", "1000 500 0 0 0 0 0\n"),
        ("proc/500/status", "Name:\thunter2\nCpus_allowed_list:\t0-1\n"),
    ] {
        file(root, path, text);
    }
    let scope = format!("sys/fs/cgroup/{SCOPE}");
    file(root, &format!("{scope}/cpu.weight"), "300\n");
    stall(root, "proc/pressure/io", 900);
    stall(root, &format!("{scope}/io.pressure"), 100);
    stall(root, "sys/fs/cgroup/user.slice/alice/io.pressure", 5);
    file(root, &format!("{scope}/libvirt/vcpu0/cpu.max"), "50000 100000\n");
    file(root, &format!("{scope}/libvirt/vcpu0/cpu.max.burst"), "10000\n");
    file(root, &format!("{scope}/cpu.idle"), "1\n");
    file(root, &format!("{scope}/cpuset.cpus.partition"), "isolated\n");
    file(root, &format!("{scope}/libvirt/vcpu0/cpu.stat"), "nr_periods 9\nnr_throttled 4\n");
    let secret = "secret,id=masterKey0,file=/var/lib/libvirt/qemu/domain-3-payroll/master-key.aes";
    let nic = format!("virtio-net-pci,id=n0,mac={MAC}");
    let upper = UUID.to_uppercase();
    let words = [
        "/usr/bin/qemu-system-x86_64",
        "-name",
        "guest=payroll,debug-threads=on",
        "-object",
        secret,
        "-uuid",
        &upper,
        "-m",
        "2G",
        "-smp",
        "1,sockets=1,cores=1,threads=1",
        "-accel",
        "kvm",
        "-device",
        &nic,
        "-vnc",
        ":1,password=hunter2",
        "-drive",
        "file=/home/alice/hunter2.qcow2,if=virtio,id=d0",
    ];
    file(root, "proc/500/cmdline", &words.iter().map(|w| format!("{w}\0")).collect::<String>());
    file(
        root,
        "proc/500/cgroup",
        "0::/machine.slice/machine-qemu\\x2d3\\x2dpayroll.scope/libvirt/emulator\n",
    );
    let xml = format!(
        "<domain><name>payroll</name><uuid>{UUID}</uuid><vcpu>1</vcpu><description>of alice</description>\
         <interface type='bridge'><mac address='{MAC}'/></interface><graphics passwd='hunter2'/></domain>"
    );
    file(root, "etc/libvirt/qemu/payroll.xml", &xml);
    thread(root, 500, "qemu-system-x86", "1000 0 5\n");
    thread(root, 501, "CPU 0/KVM", "1000000 2000000 10\n");
}

fn asked<'a>(root: &'a Path, folder: &'a Path, redact: bool) -> Asked<'a> {
    Asked { root, folder, redact, apart: Duration::from_secs(5), vms: &[], wanted: &WANTED }
}

/// All files and links in a folder and its subfolders.
fn files(folder: &Path, all: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        all.push(path.clone());
        if path.is_dir() && !path.is_symlink() {
            files(&path, all);
        }
    }
}

/// A machine made here, whose counters grow between the looks, captured.
fn captured(redact: bool) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let (root, folder) = (dir.path().join("machine"), dir.path().join("capture"));
    machine(&root);
    let captured = capture(&asked(&root, &folder, redact), &mut |apart| {
        assert_eq!(apart, Duration::from_secs(5));
        thread(&root, 501, "CPU 0/KVM", "4000000 3000000 17\n");
        stall(&root, "proc/pressure/io", 1_900);
        stall(&root, &format!("sys/fs/cgroup/{SCOPE}/io.pressure"), 600);
        false
    });
    assert_eq!(captured.unwrap().vms, 1);
    (dir, folder)
}

#[test]
fn a_capture_reads_as_the_host_did() {
    let (dir, folder) = captured(false);
    let mut host = CapturedHost::open(&folder, &[]).unwrap();
    let config = host.config().unwrap();
    let vm = &config.vms[0];
    assert_eq!((vm.name.as_str(), &*vm.id.0, config.hostname.as_str()), ("payroll", UUID, "node7.corp"));
    assert_eq!((vm.memory_bytes, vm.limits.per_vcpu.map(|q| q.quota_us)), (Some(2 << 30), Some(50_000)));
    assert_eq!(vm.weight.map(|w| w.to_string()).as_deref(), Some("weight 300"));
    let groups = vm.scheduling.iter().map(GroupScheduling::to_string).collect::<Vec<_>>().join("; ");
    let scope = format!("/{SCOPE}");
    assert_eq!(
        groups,
        format!("{scope}: idle, cpuset partition isolated; {scope}/libvirt/vcpu0: burst 10000 µs")
    );
    assert_eq!(config.contenders, [Contender::Numad, Contender::StaticCpuManager, Contender::Systemd]);
    assert_eq!(vm.core_cookies, None, "no file says it");
    let kernel = config.scheduler.as_ref().unwrap();
    assert_eq!((kernel.nohz_full.clone(), kernel.preempt_rt), (Some(CpuSet::single(1)), Some(true)));
    let (first, second) = (host.sample().unwrap(), host.sample().unwrap());
    let vcpu = |b: &Batch| b.threads.iter().find(|t| t.role == Role::Vcpu(0)).unwrap().counters.clone();
    let (a, b) = (vcpu(&first), vcpu(&second));
    assert_eq!(
        (b.run_ns.unwrap() - a.run_ns.unwrap(), b.wait_ns.unwrap() - a.wait_ns.unwrap()),
        (3_000_000, 1_000_000)
    );
    assert!(second.mono_ns > first.mono_ns && first.pcpus.len() == 2);
    assert_eq!(second.vms[0].throttled_periods, Some(4));
    assert!(host.collector().missing.contains_key("blame"));
    // Pressure of the host and of the VM's group, in ns; no file of the CPU's or the memory's is there.
    let io = |us: u64| {
        Some(Pressure { io_some: Some(2_000 * us), io_full: Some(1_000 * us), ..Pressure::default() })
    };
    assert_eq!((first.pressure, second.pressure), (io(900), io(1_900)));
    assert_eq!((first.vms[0].pressure, second.vms[0].pressure), (io(100), io(600)));
    assert!(
        !host.collector().missing.contains_key("psi") && !host.collector().missing.contains_key("psi.vms")
    );
    assert!(!folder.join("1/sys/fs/cgroup/user.slice").exists(), "a group of no VM");
    // No secret, also where names are kept.
    let mut all = Vec::new();
    files(&folder, &mut all);
    for path in all.iter().filter(|p| p.is_file()) {
        let bytes = std::fs::read(path).unwrap();
        assert!(!String::from_utf8_lossy(&bytes).contains("hunter2"), "{}", path.display());
    }
    // The audit reads a look as it reads the machine.
    let audit = |root: &Path| {
        let root = vsteer_host::root::Root::open(root).unwrap();
        vsteer_experiment::audit::audit(&vsteer_host::tree::read(&root, &WANTED))
    };
    assert_eq!(audit(&folder.join("2")), audit(&dir.path().join("machine")));
}

/// The controllers are of version 1, and a tree of version 2 without any lies beside them.
fn hybrid(root: &Path, alone: bool) {
    machine(root);
    let mounts =
        "cgroup /sys/fs/cgroup/cpu cgroup rw,cpu 0 0\ncgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n";
    file(root, "proc/mounts", mounts);
    file(root, "sys/fs/cgroup/unified/cgroup.controllers", "\n");
    for tid in [500, 501] {
        file(root, &format!("proc/500/task/{tid}/cgroup"), "3:cpu:/\n0::/vms/7\n");
    }
    let group = "sys/fs/cgroup/unified/vms/7";
    file(root, &format!("{group}/cgroup.procs"), if alone { "500\n" } else { "500\n600\n" });
    stall(root, &format!("{group}/memory.pressure"), 40);
    stall(root, "sys/fs/cgroup/unified/other/memory.pressure", 4);
}

#[test]
fn pressure_of_a_hybrid_host_is_captured_from_the_tree_of_version_2() {
    for alone in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let (root, folder) = (dir.path().join("machine"), dir.path().join("capture"));
        hybrid(&root, alone);
        let live = look(&mut Inventory::new(Root::open(&root).unwrap(), None, Vec::new())).unwrap();
        capture(&asked(&root, &folder, false), &mut |_| false).unwrap();
        let mut host = CapturedHost::open(&folder, &[]).unwrap();
        let pressure = host.sample().unwrap().vms[0].pressure;
        assert_eq!(pressure, live.batch.vms[0].pressure, "as the host was read");
        let missing = host.collector().missing.get("psi.vms").cloned();
        if alone {
            assert_eq!(pressure.and_then(|p| p.memory_full), Some(40_000));
            assert_eq!(missing, None);
        } else {
            assert_eq!(pressure, None, "a group with another process has a figure of its own");
            assert!(
                missing.as_ref().is_some_and(|why| why.contains("\"payroll\": other processes")),
                "{missing:?}"
            );
        }
        assert!(!folder.join("1/sys/fs/cgroup/unified/other").exists());
    }
}

#[test]
fn a_host_without_pressure_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let (root, folder) = (dir.path().join("machine"), dir.path().join("capture"));
    machine(&root);
    std::fs::remove_dir_all(root.join("proc/pressure")).unwrap();
    std::fs::remove_file(root.join(format!("sys/fs/cgroup/{SCOPE}/io.pressure"))).unwrap();
    capture(&asked(&root, &folder, false), &mut |_| false).unwrap();
    let mut host = CapturedHost::open(&folder, &[]).unwrap();
    let batch = host.sample().unwrap();
    assert_eq!((batch.pressure, batch.vms[0].pressure), (None, None), "not 0");
    let missing = host.collector().missing;
    assert!(missing["psi"].contains("no pressure files") && missing.contains_key("psi.vms"), "{missing:?}");
}

/// What the users of a VM call it stands in a path of its command line.
#[test]
fn labels_are_kept_and_redacted() {
    for redact in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let (root, folder) = (dir.path().join("machine"), dir.path().join("capture"));
        machine(&root);
        let line = "/opt/incus/bin/qemu-system-x86_64\0-name\0ledger\0-m\x0064\0-pidfile\0/run/incus/treasury_ledger/qemu.pid\0";
        let stat = std::fs::read_to_string(root.join("proc/500/task/500/stat")).unwrap();
        for (path, text) in [
            ("cmdline", line),
            ("cgroup", "0::/incus.service\n"),
            ("status", "Name:\tq\nTgid:\t700\nUid:\t998\t998\t998\t998\n"),
            ("task/700/comm", "qemu-system-x86\n"),
            ("task/700/stat", &stat.replacen("500", "700", 1)),
            ("task/700/cgroup", "0::/incus.service\n"),
            ("task/700/status", "Name:\tq\nCpus_allowed_list:\t0-1\n"),
            ("task/700/schedstat", "1000 0 5\n"),
        ] {
            file(&root, &format!("proc/700/{path}"), text);
        }
        assert_eq!(capture(&asked(&root, &folder, redact), &mut |_| false).unwrap().vms, 2);
        let mut host = CapturedHost::open(&folder, &[]).unwrap();
        let config = host.config().unwrap();
        let vm = config.vms.iter().find(|vm| vm.pid == 700).unwrap();
        let project = if redact { "label-1" } else { "treasury" };
        assert_eq!(vm.labels.get("project").map(String::as_str), Some(project), "{:?}", vm.labels);
        assert_eq!(vm.labels.get("instance"), Some(&vm.name));
        assert_eq!(vm.name == "ledger", !redact);
    }
}

#[test]
fn a_redacted_capture_holds_none_of_the_names() {
    let (_dir, folder) = captured(true);
    let mut all = Vec::new();
    files(&folder, &mut all);
    assert!(all.len() > 40);
    for path in &all {
        let name = path.strip_prefix(&folder).unwrap().to_string_lossy().into_owned();
        let text = if path.is_file() {
            String::from_utf8_lossy(&std::fs::read(path).unwrap()).into_owned()
        } else {
            String::new()
        };
        for hidden in HIDDEN {
            assert!(!name.contains(hidden) && !text.contains(hidden), "{hidden} in {name}: {text}");
        }
    }
    let mut host = CapturedHost::open(&folder, &[]).unwrap();
    let config = host.config().unwrap();
    let vm = &config.vms[0];
    assert_eq!((vm.name.as_str(), config.hostname.as_str()), ("vm-1", "host-1"));
    assert!(vm.id.0.starts_with("00000000-0000-0000-0000-"), "{:?}", vm.id);
    assert_eq!(vm.cgroup.as_deref(), Some("/machine.slice/machine-qemu\\x2d3\\x2dvm\\x2d1.scope"));
    assert_eq!(vm.limits.per_vcpu.map(|q| q.quota_us), Some(50_000));
}

#[test]
fn a_capture_is_private_and_overwrites_nothing() {
    use std::os::unix::fs::PermissionsExt;
    let (dir, folder) = captured(false);
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let mut all = Vec::new();
    files(&folder, &mut all);
    assert_eq!(mode(&folder), 0o700);
    for path in all.iter().filter(|p| !p.is_symlink()) {
        assert_eq!(mode(path), if path.is_dir() { 0o700 } else { 0o600 }, "{}", path.display());
    }
    let root = dir.path().join("machine");
    let again = capture(&asked(&root, &folder, false), &mut |_| false).err().unwrap();
    assert_eq!(again.kind, vsteer_core::FaultKind::Usage);
    let other = dir.path().join("other");
    let interrupted = capture(&asked(&root, &other, false), &mut |_| true).err().unwrap();
    assert_eq!(interrupted.kind, vsteer_core::FaultKind::Interrupted);
    assert!(!other.exists(), "nothing is written before all looks are done");
    // One file beyond what a capture may hold.
    let large = "x".repeat(900 << 10);
    for cpu in 0..13 {
        file(&root, &format!("sys/devices/system/cpu/vulnerabilities/n{cpu}"), &large);
    }
    let refused = capture(&asked(&root, &other, false), &mut |_| false).err().unwrap();
    assert!(refused.to_string().contains("the limit is 20 MB") && !other.exists(), "{refused}");
}

#[test]
fn what_is_not_a_capture_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let refused = CapturedHost::open(dir.path(), &[]).err().unwrap();
    assert_eq!(refused.kind, vsteer_core::FaultKind::BadInput);
    assert!(refused.to_string().contains("vsteer capture"), "{refused}");
}

/// A QEMU, ended with this value.
struct Qemu(Child);

impl Drop for Qemu {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Rates of a capture against those of live sampling by `schedstat` around it: within 10 points of a pCPU.
#[test]
fn a_capture_of_a_real_vm_has_the_rates_of_live_sampling() {
    const BAND: f64 = 0.10;
    let started = Command::new("qemu-system-x86_64")
        .args(["-name", "capturetest,debug-threads=on", "-display", "none", "-serial", "none", "-m", "32"])
        .args(["-accel", "tcg,thread=multi", "-smp", "1"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let Ok(child) = started else {
        eprintln!("skipped: there is no qemu-system-x86_64");
        return;
    };
    let qemu = Qemu(child);
    let name = [format!("qemu:{}:*", qemu.0.id()), "capturetest".to_owned()];
    let options =
        || Options { collector: CollectorChoice::Schedstat, vms: name.to_vec(), ..Options::default() };
    let begun = Instant::now();
    let mut live = loop {
        let opened = KvmHost::open(options()).and_then(|mut host| Ok((host.config()?, host)));
        match opened {
            Ok((config, host)) if config.vms.iter().any(|vm| vm.vcpu_count() == 1) => break host,
            other => assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", other.err()),
        }
        std::thread::sleep(Duration::from_millis(100));
    };
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("capture");
    let mut around = Vec::new();
    let request = Asked { apart: Duration::from_secs(2), vms: &name, ..asked(Path::new("/"), &folder, true) };
    let (files, _) = {
        let captured = capture(&request, &mut |apart| {
            around.push(live.sample().unwrap());
            std::thread::sleep(apart);
            around.push(live.sample().unwrap());
            false
        });
        let captured = captured.unwrap();
        assert_eq!(captured.vms, 1);
        (captured.files, captured.bytes)
    };
    assert!(files > 50);
    let mut host = CapturedHost::open(&folder, &[]).unwrap();
    let config = host.config().unwrap();
    assert_eq!(config.vms[0].name, "vm-1");
    let topology = live.config().unwrap().topology;
    // What this process may use belongs to the process, not to the host.
    if topology.usable() == *topology.online() {
        assert_eq!(config.topology, topology, "every file of the topology is captured");
    }
    let looks = [host.sample().unwrap(), host.sample().unwrap()];
    let (live, captured) = (rates(&around), rates(&looks));
    assert!(!live.is_empty());
    for (tid, (run, wait)) in live {
        let (r, w) = captured[&tid];
        assert!(
            (run - r).abs() < BAND && (wait - w).abs() < BAND,
            "{tid:?}: live {run} {wait}, captured {r} {w}"
        );
    }
}

/// Run and wait of each thread between two samples, in pCPUs.
fn rates(pair: &[Batch]) -> BTreeMap<Tid, (f64, f64)> {
    let span = (pair[1].mono_ns - pair[0].mono_ns) as f64;
    let per = |a: Option<u64>, b: Option<u64>| (b.unwrap() - a.unwrap()) as f64 / span;
    let of = |t: &vsteer_core::nouns::ThreadSample| {
        let old = pair[0].threads.iter().find(|o| o.tid == t.tid)?;
        let (a, b) = (&old.counters, &t.counters);
        Some((t.tid, (per(a.run_ns, b.run_ns), per(a.wait_ns, b.wait_ns))))
    };
    pair[1].threads.iter().filter_map(of).collect()
}
