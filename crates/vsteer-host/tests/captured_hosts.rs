//! Are VMs of managers that cannot be tried here told apart from their files? Small trees made here, as a Proxmox, a
//! KubeVirt and a systemd host with libvirt on version 2 cgroups and an older kernel would show them.

use std::path::Path;
use vsteer_core::nouns::*;
use vsteer_core::setting;
use vsteer_host::kvm::actuate::proxmox_command;
use vsteer_host::kvm::config;
use vsteer_host::kvm::inventory::Inventory;
use vsteer_host::root::Root;

struct Tree {
    dir: tempfile::TempDir,
}

impl Tree {
    fn new(release: &str) -> Tree {
        let tree = Tree { dir: tempfile::tempdir().unwrap() };
        tree.file("proc/sys/kernel/osrelease", release);
        tree.file("proc/sys/kernel/hostname", "captured\n");
        tree.file("proc/uptime", "1000.00 1.0\n");
        tree.file("proc/mounts", "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n");
        tree.file("sys/fs/cgroup/cgroup.controllers", "cpuset cpu io memory\n");
        tree.file("sys/devices/system/cpu/online", "0-7\n");
        for cpu in 0..8 {
            let file = format!("sys/devices/system/cpu/cpu{cpu}/topology/core_cpus_list");
            tree.file(&file, &format!("{cpu}\n"));
        }
        tree
    }

    fn file(&self, path: &str, text: &str) {
        let path = self.dir.path().join(path.trim_start_matches('/'));
        std::fs::create_dir_all(path.parent().unwrap_or(Path::new("/"))).unwrap();
        std::fs::write(path, text).unwrap();
    }

    fn process(&self, pid: u32, arguments: &[&str], cgroup: &str) {
        let line: String = arguments.iter().map(|a| format!("{a}\0")).collect();
        self.file(&format!("proc/{pid}/cmdline"), &line);
        self.file(&format!("proc/{pid}/cgroup"), &format!("0::{cgroup}\n"));
        self.file(&format!("proc/{pid}/comm"), arguments.first().unwrap_or(&"kthread"));
    }

    fn thread(&self, pid: u32, tid: u32, comm: &str, cgroup: &str) {
        let task = format!("proc/{pid}/task/{tid}");
        self.file(&format!("{task}/comm"), &format!("{comm}\n"));
        let rest = "0 0 0 0 0 0 0 0 0 0 0 0 20 0 1 0 4200 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 3 0 0 0 0 0";
        self.file(&format!("{task}/stat"), &format!("{tid} ({comm}) S 1 {rest}\n"));
        self.file(&format!("{task}/cgroup"), &format!("0::{cgroup}\n"));
        self.file(&format!("{task}/status"), "Name:\tx\nCpus_allowed_list:\t2-5\n");
    }

    fn vms(&self) -> (HostConfig, Vec<String>) {
        let mut inventory = Inventory::new(Root::open(self.dir.path()).unwrap(), None, Vec::new());
        inventory.look().unwrap();
        (config::host(&mut inventory).unwrap(), inventory.notes)
    }
}

#[test]
fn proxmox() {
    let tree = Tree::new("6.8.12-4-pve\n");
    let scope = "/qemu.slice/100.scope";
    let arguments =
        ["/usr/bin/kvm", "-id", "100", "-name", "web,debug-threads=on", "-no-shutdown", "-pidfile"];
    let more = ["/var/run/qemu-server/100.pid", "-smp", "2,sockets=1,cores=2,maxcpus=2", "-m", "4096"];
    tree.process(500, &[&arguments[..], &more[..]].concat(), scope);
    for (tid, comm) in [(500, "kvm"), (501, "CPU 0/KVM"), (502, "CPU 1/KVM"), (503, "vhost-500")] {
        tree.thread(500, tid, comm, scope);
    }
    tree.file(&format!("sys/fs/cgroup{scope}/cgroup.procs"), "500\n");
    tree.file(&format!("sys/fs/cgroup{scope}/cpu.weight"), "100\n");
    tree.file(&format!("sys/fs/cgroup{scope}/cpu.max"), "150000 100000\n");
    let (host, notes) = tree.vms();
    let vm = &host.vms[0];
    assert_eq!((vm.name.as_str(), &vm.manager, vm.accel), ("web", &Manager::Proxmox(100), Some(Accel::Kvm)));
    assert_eq!((vm.cgroup.as_deref(), vm.weight), (Some(scope), Some(CpuWeight::Weight(100))));
    assert_eq!(vm.limits.whole_vm.map(Quota::cpus), Some(1.5));
    let roles: Vec<Role> = vm.threads.iter().map(|t| t.role).collect();
    assert_eq!(roles, [Role::Vcpu(0), Role::Vcpu(1), Role::Emulator, Role::Vhost]);
    assert_eq!(vm.threads[0].affinity.to_string(), "2-5");
    assert_eq!((host.cgroups, host.topology.online().len()), (CgroupLayout::V2, 8));
    assert!(notes.iter().any(|n| n.contains("untried")), "{notes:?}");
    let weight = vsteer_core::setting::Change::Weight(setting::Weight {
        from: CpuWeight::Weight(100),
        to: CpuWeight::Weight(400),
    });
    assert_eq!(proxmox_command(100, &weight).as_deref(), Some("qm set 100 --cpuunits 400"));
}

#[test]
fn kubevirt_and_a_shared_cgroup() {
    let tree = Tree::new("5.14.0-427.el9\n");
    let pod = "/kubepods.slice/kubepods-burstable.slice/pod1.slice/cri-containerd-1.scope";
    let uuid = "63715d0b-76a4-4a2a-8db6-9bda3af71014";
    tree.process(
        700,
        &["/usr/libexec/qemu-kvm", "-name", "guest=ns_vm,debug-threads=on", "-uuid", uuid],
        pod,
    );
    tree.thread(700, 700, "qemu-kvm", pod);
    tree.thread(700, 701, "CPU 0/KVM", pod);
    tree.file(&format!("sys/fs/cgroup{pod}/cgroup.procs"), "1\n700\n");
    tree.file(&format!("sys/fs/cgroup{pod}/cpu.weight"), "79\n");
    // Before Linux 6.4 the vhost worker is a kernel thread.
    tree.process(800, &[], "/");
    tree.file("proc/800/comm", "vhost-700\n");
    tree.thread(800, 800, "vhost-700", "/");
    let (host, _) = tree.vms();
    let vm = &host.vms[0];
    assert_eq!((&vm.manager, vm.id.0.as_str()), (&Manager::KubeVirt, uuid));
    assert_eq!((&vm.cgroup, vm.weight), (&None, None), "virt-launcher lives in it too");
    assert!(vm.threads.iter().any(|t| t.role == Role::Vhost && t.tid == Tid(800)), "{:?}", vm.threads);
}

#[test]
fn libvirt_beside_systemd_on_version_2() {
    let tree = Tree::new("6.1.0-18-amd64\n");
    let scope = "/machine.slice/machine-qemu\\x2d3\\x2dweb.scope";
    let secret = r#"{"qom-type":"secret","file":"/var/lib/libvirt/qemu/domain-3-web/master-key.aes"}"#;
    let uuid = "a33072c9-3b40-46dc-9c0f-7e7c6068098a";
    let arguments =
        ["qemu-system-x86_64", "-name", "guest=web,debug-threads=on", "-object", secret, "-uuid", uuid];
    let at = |child: &str| format!("{scope}/libvirt/{child}");
    tree.process(900, &arguments, &at("emulator"));
    tree.thread(900, 900, "qemu-system-x86", &at("emulator"));
    tree.thread(900, 901, "IO mon_iothread", &at("emulator"));
    tree.thread(900, 903, "CPU 1/KVM", &at("vcpu1"));
    tree.thread(900, 902, "CPU 0/KVM", &at("vcpu0"));
    tree.file(&format!("sys/fs/cgroup{scope}/cpu.weight"), "200\n");
    for vcpu in ["vcpu0", "vcpu1"] {
        tree.file(&format!("sys/fs/cgroup{}/cpu.max", at(vcpu)), "50000 100000\n");
    }
    // A process that ended while it was looked at.
    tree.process(901_000, &["qemu-system-x86_64", "-name", "gone"], "/");
    // Not VMs.
    tree.process(902_000, &["qemu-system-x86_64", "-S", "-machine", "none"], "/");
    tree.process(903_000, &["bash", "-c", "qemu-system-x86_64"], "/");
    let (host, notes) = tree.vms();
    assert_eq!(host.vms.len(), 1);
    let vm = &host.vms[0];
    assert_eq!((vm.id.0.as_str(), &vm.manager), (uuid, &Manager::Libvirt(String::new())));
    assert_eq!((vm.cgroup.as_deref(), vm.weight), (Some(scope), Some(CpuWeight::Weight(200))));
    assert_eq!(vm.limits.per_vcpu, Some(Quota { quota_us: 50_000, period_us: 100_000 }));
    assert_eq!((vm.limits.whole_vm, vm.limits.emulator), (None, None));
    let roles: Vec<(Role, u32)> = vm.threads.iter().map(|t| (t.role, t.tid.0)).collect();
    assert_eq!(
        roles,
        [(Role::Vcpu(0), 902), (Role::Vcpu(1), 903), (Role::Emulator, 900), (Role::Worker, 901)]
    );
    assert!(notes.iter().any(|n| n.contains("--connect")), "{notes:?}");
}
