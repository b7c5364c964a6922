//! Are VMs of managers that cannot be tried here recognised by their files? Small trees made here, as a Proxmox, a
//! KubeVirt and a systemd host with libvirt on version 2 cgroups and an older kernel would show them.

use std::path::Path;
use vsteer_core::CpuSet;
use vsteer_core::nouns::*;
use vsteer_core::setting;
use vsteer_host::kvm::actuate::proxmox_command;
use vsteer_host::kvm::config;
use vsteer_host::kvm::inventory::Inventory;
use vsteer_host::kvm::slow;
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

fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

fn shown(sockets: u32, cores: u32, threads: u32) -> Option<GuestTopology> {
    Some(GuestTopology { sockets, cores, threads })
}

fn labels(vm: &VmConfig) -> String {
    vm.labels.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(" ")
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
    assert_eq!((&*vm.id.0, vm.guest_topology), ("proxmox:100", shown(1, 2, 1)));
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

/// As Proxmox VE 9 starts a VM with two sockets, two NUMA nodes and a disk on each of two I/O threads.
#[test]
fn proxmox_with_two_sockets_and_cut_names() {
    let tree = Tree::new("6.8.12-4-pve\n");
    let scope = "/qemu.slice/101.scope";
    let line = "/usr/bin/kvm -id 101 -name db,debug-threads=on -no-shutdown -pidfile /var/run/qemu-server/101.pid \
        -daemonize -smbios type=1,uuid=6FD1E1F2-3a5c-4a53-9c86-0f9a8f1f8f11 -smp 8,sockets=2,cores=4,maxcpus=8 \
        -nodefaults -m 65536 -object iothread,id=iothread-virtioscsi0 -object iothread,id=iothread-virtioscsi1 \
        -machine type=pc-i440fx-9.0+pve0";
    tree.process(500, &words(line), scope);
    let names = ["kvm", "call_rcu", "IO iothread-vir", "IO iothread-vir", "CPU 0/KVM"];
    names.into_iter().zip(500..).for_each(|(comm, tid)| tree.thread(500, tid, comm, scope));
    tree.file(&format!("sys/fs/cgroup{scope}/cgroup.procs"), "500\n");
    let vm = &tree.vms().0.vms[0];
    assert_eq!((&*vm.id.0, &vm.manager), ("proxmox:101", &Manager::Proxmox(101)));
    assert_eq!((vm.guest_topology, vm.memory_bytes), (shown(2, 4, 1), Some(64 << 30)));
    let io: Vec<(Role, u32)> = vm.threads.iter().map(|t| (t.role, t.tid.0)).collect();
    assert!(io.contains(&(Role::IoThread(1), 502)) && io.contains(&(Role::IoThread(2), 503)), "{io:?}");
    // Its users know it by its number.
    for (given, found) in [("101", 1), ("db", 1), ("100", 0), ("500", 0)] {
        let mut inventory =
            Inventory::new(Root::open(tree.dir.path()).unwrap(), None, vec![given.to_owned()]);
        inventory.look().unwrap();
        assert_eq!(inventory.vms.len(), found, "--vm {given}");
    }
}

/// As Proxmox VE starts a VM with two NUMA nodes of which each is bound, huge pages and a device of the host.
#[test]
fn guest_nodes_and_the_node_of_a_device() {
    let tree = Tree::new("6.8.12-4-pve\n");
    let scope = "/qemu.slice/102.scope";
    let line = "/usr/bin/kvm -id 102 -name db,debug-threads=on -pidfile /var/run/qemu-server/102.pid -smp 4,sockets=2,cores=2 \
        -m 4096 -object memory-backend-file,id=ram-node0,size=2048M,mem-path=/run/hugepages/kvm/1048576kB,share=on,host-nodes=0,policy=bind \
        -numa node,nodeid=0,cpus=0-1,memdev=ram-node0 \
        -object memory-backend-file,id=ram-node1,size=2048M,mem-path=/run/hugepages/kvm/1048576kB,share=on,host-nodes=1,policy=bind \
        -numa node,nodeid=1,cpus=2-3,memdev=ram-node1 \
        -device vfio-pci,host=0000:3b:00.0,id=hostpci0 -device vfio-pci,host=0000:3b:00.1,id=hostpci1";
    tree.process(500, &words(line), scope);
    tree.thread(500, 500, "kvm", scope);
    tree.file(&format!("sys/fs/cgroup{scope}/cgroup.procs"), "500\n");
    tree.file("sys/bus/pci/devices/0000:3b:00.0/numa_node", "1\n");
    tree.file("sys/bus/pci/devices/0000:3b:00.1/numa_node", "-1\n");
    let (host, _) = tree.vms();
    let vm = &host.vms[0];
    let nodes: Vec<String> = vm.guest_nodes.iter().map(ToString::to_string).collect();
    assert_eq!(nodes, ["0 (vCPUs 0-1, 2048 MiB) on nodes 0", "1 (vCPUs 2-3, 2048 MiB) on nodes 1"]);
    let device = |function: u32, node| Fixed::Device { address: format!("0000:3b:00.{function}"), node };
    assert_eq!(vm.fixed, [Fixed::HugePages, device(0, Some(1)), device(1, None)]);
    assert_eq!(vm.memory_nodes, Some(CpuSet::first(2)));
}

#[test]
fn command_lines_of_every_form() {
    let tree = Tree::new("6.1.0\n");
    let lines = [
        "kvm -id 102 -name hot,debug-threads=on -no-shutdown -pidfile /var/run/qemu-server/102.pid -daemonize \
         -smp 1,sockets=1,cores=4,maxcpus=4 -nodefaults -m size=1024,slots=255,maxmem=4194304M",
        "qemu-system-x86_64 -mem-prealloc -smp 4,sockets=1,cores=2,threads=2 -m 4G -name a,debug-threads=on -enable-kvm",
        "qemu-system-x86_64 -M microvm,x-option-roms=off,accel=kvm -smp cpus=4,maxcpus=8,cores=4,threads=1 -m 512 \
         -name b,debug-threads=on -kernel k -nodefaults -no-user-config -nographic",
        "qemu-system-x86_64 -enable-kvm -machine q35,smp.cpus=4,smp.sockets=1,smp.cores=2,smp.threads=2 -m 1.5G \
         -name process=web,guest=c,debug-threads=on -smp 4",
        "/usr/bin/kvm-spice -name guest=u16,debug-threads=on -S -smp 2,sockets=2,cores=1,threads=1 -m 1024",
        "qemu-system-x86_64 -name rhel,debug-threads=on -M pc-q35-rhel8.6.0 -smp 8 -m 1G",
    ];
    for (line, pid) in lines.iter().zip((1_000..).step_by(100)) {
        tree.process(pid, &words(line), "/user.slice/x.scope");
        tree.thread(pid, pid, "qemu-system-x86", "/user.slice/x.scope");
        tree.thread(pid, pid + 1, "CPU 0/KVM", "/user.slice/x.scope");
    }
    let (host, notes) = tree.vms();
    let of = |name: &str| {
        let vm = host.vms.iter().find(|vm| vm.name == name).unwrap_or_else(|| panic!("{name} is not found"));
        (vm.guest_topology, vm.memory_bytes)
    };
    assert_eq!(of("hot"), (shown(1, 4, 1), Some(1 << 30)));
    assert_eq!(of("a"), (shown(1, 2, 2), Some(4 << 30)));
    assert_eq!(of("b"), (shown(2, 4, 1), Some(512 << 20)));
    assert_eq!(of("c"), (shown(1, 2, 2), Some(3 << 29)));
    assert_eq!(of("u16"), (shown(2, 1, 1), Some(1 << 30)));
    assert_eq!(of("rhel"), (None, Some(1 << 30)));
    assert!(notes.iter().any(|n| n.contains("\"rhel\"") && n.contains("pc-q35-rhel8.6.0")), "{notes:?}");
}

/// Incus names no thread and keeps most options in a file. The kernel says which thread is which vCPU.
#[test]
fn incus() {
    let tree = Tree::new("6.12.9\n");
    let group = "/system.slice/incus.service";
    let line = "/opt/incus/bin/qemu-system-x86_64 -S -name v1 -uuid 4f0c1f4e-9c7b-4b6e-8f0f-9a4f4b2b7d11 -daemonize \
        -nographic -nodefaults -readconfig /run/incus/v1/qemu.conf -pidfile /run/incus/v1/qemu.pid";
    tree.process(700, &words(line), group);
    for tid in 700..704 {
        tree.thread(700, tid, "qemu-system-x86", group);
    }
    let conf = "[machine]\ntype = \"pc-q35-9.1\"\n[smp-opts]\ncpus = \"2\"\nmaxcpus = \"64\"\n[memory]\nsize = \"4096M\"\n";
    tree.file("run/incus/v1/qemu.conf", conf);
    std::fs::create_dir_all(tree.dir.path().join("proc/700/fd")).unwrap();
    std::os::unix::fs::symlink("anon_inode:kvm-vm", tree.dir.path().join("proc/700/fd/12")).unwrap();
    tree.file("proc/700/status", "Name:\tqemu\nTgid:\t700\nUid:\t0\t0\t0\t0\n");
    // Numbers of the interrupt controller, with a gap.
    for (vcpu, tid) in [(0, 702), (4, 703), (5, 0), (6, 1)] {
        tree.file(&format!("sys/kernel/debug/kvm/700-12/vcpu{vcpu}/pid"), &format!("{tid}\n"));
    }
    let (host, notes) = tree.vms();
    let vm = &host.vms[0];
    assert_eq!((vm.guest_topology, vm.memory_bytes), (shown(1, 64, 1), Some(4 << 30)));
    let vcpus: Vec<(u32, u32)> = vm.vcpus().map(|t| (t.role.vcpu().unwrap(), t.tid.0)).collect();
    assert_eq!(vcpus, [(0, 702), (1, 703)], "others have not run, or are another process's: {notes:?}");
    assert_eq!(labels(vm), "instance=v1 project=default");
    // Elsewhere anybody can name a file: it is not read, and nothing is made up.
    let elsewhere = line.replace("/run/incus/v1/qemu.conf", "/dev/watchdog");
    tree.process(700, &words(&elsewhere), group);
    tree.file("dev/watchdog", conf);
    let (host, notes) = tree.vms();
    assert_eq!((host.vms[0].memory_bytes, host.vms[0].guest_topology), (None, None));
    assert!(notes.iter().any(|n| n.contains("/dev/watchdog")), "{notes:?}");
}

/// The kernel cuts the names of three I/O threads, two of them to the same text. The thread with a whole name started last.
#[test]
fn cut_names_get_the_numbers_that_whole_names_leave() {
    let tree = Tree::new("6.1.0\n");
    let line = "qemu-system-x86_64 -name a,debug-threads=on -m 64 -object iothread,id=virtioscsi-disks-a \
        -object iothread,id=iothread1 -object iothread,id=virtioscsi-disks-b";
    tree.process(600, &words(line), "/vms.slice/a.scope");
    let names = ["qemu-system-x86", "IO virtioscsi-d", "IO virtioscsi-d", "CPU 0/TCG", "IO iothread1"];
    names.into_iter().zip(600..).for_each(|(comm, tid)| tree.thread(600, tid, comm, "/vms.slice/a.scope"));
    let vm = &tree.vms().0.vms[0];
    let role = |tid: u32| vm.threads.iter().find(|t| t.tid.0 == tid).unwrap().role;
    assert_eq!([601, 602, 604].map(role), [2, 3, 1].map(Role::IoThread));
}

#[test]
fn io_threads_of_cloud_hypervisor() {
    let tree = Tree::new("6.1.0\n");
    let line = "/usr/bin/cloud-hypervisor --api-socket /run/vm7.sock --cpus boot=2 --memory size=2G --disk path=/d --net tap=t";
    tree.process(700, &words(line), "/vms.slice/vm7.scope");
    let names = ["cloud-hyperviso", "vmm", "http-server", "_disk0_q0", "_net1_qp0", "vcpu0", "vcpu1"];
    names.into_iter().zip(700..).for_each(|(comm, tid)| tree.thread(700, tid, comm, "/vms.slice/vm7.scope"));
    tree.file("proc/700/status", "Name:\tcloud-hyperviso\nTgid:\t700\nUid:\t0\t0\t0\t0\n");
    std::fs::create_dir_all(tree.dir.path().join("proc/700/fd")).unwrap();
    std::os::unix::fs::symlink("anon_inode:kvm-vm", tree.dir.path().join("proc/700/fd/12")).unwrap();
    std::fs::create_dir_all(tree.dir.path().join("sys/kernel/debug/kvm/700-12")).unwrap();
    let vm = &tree.vms().0.vms[0];
    assert_eq!(
        (vm.name.as_str(), vm.guest_topology, vm.memory_bytes),
        ("vm7", shown(1, 2, 1), Some(2 << 30))
    );
    let roles: Vec<Role> = vm.threads.iter().map(|t| t.role).collect();
    let (worker, io) = (Role::Worker, Role::IoThread);
    assert_eq!(roles, [Role::Vcpu(0), Role::Vcpu(1), Role::Emulator, worker, worker, io(1), io(2)]);
}

/// Two projects have an instance of the same name. A person's process that says it is one of them is not.
#[test]
fn incus_instances_of_one_name() {
    let tree = Tree::new("6.12.9\n");
    for (pid, project, user) in [(700, "shop", 998), (800, "my_blog", 998), (900, "bank", 1000)] {
        let line = format!(
            "qemu-system-x86_64 -S -name web,debug-threads=on -m 64 -pidfile /run/incus/{project}_web/qemu.pid"
        );
        tree.process(pid, &words(&line), "/system.slice/incus.service");
        tree.file(
            &format!("proc/{pid}/status"),
            &format!("Name:\tq\nTgid:\t{pid}\nUid:\t{user}\t{user}\t{user}\t{user}\n"),
        );
        tree.thread(pid, pid, "qemu-system-x86", "/system.slice/incus.service");
    }
    let found: Vec<String> = tree.vms().0.vms.iter().map(labels).collect();
    assert_eq!(found, ["instance=web project=shop", "instance=web project=my_blog", ""]);
    for (given, found) in [("my_blog/web", 1), ("bank/web", 0), ("web", 3)] {
        let mut inventory =
            Inventory::new(Root::open(tree.dir.path()).unwrap(), None, vec![given.to_owned()]);
        inventory.look().unwrap();
        assert_eq!(inventory.vms.len(), found, "--vm {given}");
    }
}

/// Kata runs a pod in a VM without libvirt. The shim that started it lives in the same group.
#[test]
fn kata_is_not_kubevirt() {
    let tree = Tree::new("6.1.0\n");
    let group = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1.slice/kata_a1b2";
    let line = "/opt/kata/bin/qemu-system-x86_64 -name sandbox-a1b2,debug-threads=on -machine q35,accel=kvm -m 2048M \
        -smp 1,cores=1,threads=1,sockets=8,maxcpus=8 --no-reboot";
    tree.process(800, &words(line), group);
    tree.thread(800, 800, "qemu-system-x86", group);
    tree.thread(800, 801, "CPU 0/KVM", group);
    tree.process(799, &["/opt/kata/bin/containerd-shim-kata-v2"], group);
    tree.file(&format!("sys/fs/cgroup{group}/cgroup.procs"), "799\n800\n");
    let vm = &tree.vms().0.vms[0];
    assert_eq!((&vm.manager, vm.guest_topology, &vm.cgroup), (&Manager::Kata, shown(8, 1, 1), &None));
    assert_eq!(labels(vm), "pod=1 sandbox=a1b2");
}

#[test]
fn kubevirt_and_a_shared_cgroup() {
    for release in ["5.14.0-427.el9\n", "6.17.0\n"] {
        kubevirt(&Tree::new(release));
    }
}

fn kubevirt(tree: &Tree) {
    let pod = "/kubepods.slice/kubepods-burstable.slice/pod1.slice/cri-containerd-1.scope";
    let uuid = "63715d0b-76a4-4a2a-8db6-9bda3af71014";
    let secret = r#"{"qom-type":"secret","id":"masterKey0","file":"/var/run/kubevirt-private/libvirt/qemu/lib/domain-1-ns_vm/master-key.aes"}"#;
    let name = "guest=ns_vm,debug-threads=on";
    tree.process(700, &["/usr/libexec/qemu-kvm", "-name", name, "-object", secret, "-uuid", uuid], pod);
    tree.thread(700, 700, "qemu-kvm", pod);
    tree.thread(700, 701, "CPU 0/KVM", pod);
    tree.file(&format!("sys/fs/cgroup{pod}/cgroup.procs"), "1\n700\n");
    tree.file(&format!("sys/fs/cgroup{pod}/cpu.weight"), "79\n");
    // Before Linux 6.4, and again since 6.17, the vhost worker may be a kernel thread.
    for (pid, flags) in [(800, 2_129_984), (801, 0)] {
        tree.process(pid, &[], "/");
        tree.file(&format!("proc/{pid}/comm"), "vhost-700\n");
        tree.thread(pid, pid, "vhost-700", "/");
        let rest = format!(
            "0 0 0 0 0 {flags} 0 0 0 0 0 0 0 0 0 20 0 1 0 4200 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 3 0 0 0 0 0"
        );
        tree.file(&format!("proc/{pid}/task/{pid}/stat"), &format!("{pid} (vhost-700) S {rest}\n"));
    }
    let (host, _) = tree.vms();
    assert!(host.vms[0].threads.iter().all(|t| t.tid != Tid(801)), "a user's process of that name");
    let vm = &host.vms[0];
    assert_eq!((&vm.manager, &*vm.id.0), (&Manager::KubeVirt, uuid));
    assert_eq!(labels(vm), "instance=vm namespace=ns");
    for (given, found) in [("ns/vm", 1), ("vm", 1), ("ns_vm", 1), ("ns", 0), ("other/vm", 0)] {
        let mut inventory =
            Inventory::new(Root::open(tree.dir.path()).unwrap(), None, vec![given.to_owned()]);
        inventory.look().unwrap();
        assert_eq!(inventory.vms.len(), found, "--vm {given}");
    }
    assert_eq!((&vm.cgroup, vm.weight), (&None, None), "virt-launcher lives in it too");
    assert!(vm.threads.iter().any(|t| t.role == Role::Vhost && t.tid == Tid(800)), "{:?}", vm.threads);
}

/// Quotas of a slice and of a pod hold VMs whose own groups have none.
#[test]
fn quotas_above_a_vm_are_seen() {
    let tree = Tree::new("6.1.0-18-amd64\n");
    let scope = "/machine.slice/machine-qemu\\x2d3\\x2dweb.scope";
    let secret = r#"{"qom-type":"secret","file":"/var/lib/libvirt/qemu/domain-3-web/master-key.aes"}"#;
    let uuid = "c33072c9-3b40-46dc-9c0f-7e7c6068098a";
    let (emulator, vcpu) = (format!("{scope}/libvirt/emulator"), format!("{scope}/libvirt/vcpu0"));
    let line = [
        "/usr/bin/qemu-system-x86_64",
        "-name",
        "guest=web,debug-threads=on",
        "-object",
        secret,
        "-uuid",
        uuid,
    ];
    tree.process(1700, &line, &emulator);
    tree.thread(1700, 1700, "qemu-system-x86", &emulator);
    tree.thread(1700, 1701, "CPU 0/KVM", &vcpu);
    tree.file(&format!("sys/fs/cgroup{scope}/cpu.max"), "max 100000\n");
    tree.file("sys/fs/cgroup/machine.slice/cpu.max", "400000 100000\n");
    tree.file(&format!("sys/fs/cgroup{vcpu}/cpu.max"), "50000 100000\n");
    let vm = &tree.vms().0.vms[0];
    let quotas: Vec<(&str, f64, bool)> =
        vm.quotas.iter().map(|q| (q.cgroup.as_str(), q.quota.cpus(), q.shared)).collect();
    assert_eq!(quotas, [("/machine.slice", 4.0, true), (vcpu.as_str(), 0.5, false)]);
    tree.file(&format!("sys/fs/cgroup{vcpu}/cpu.max"), "max 100000\n");
    let vm = &tree.vms().0.vms[0];
    assert_eq!(vm.quota_above().map(|q| q.cgroup.as_str()), Some("/machine.slice"));

    let tree = Tree::new("5.14.0-427.el9\n");
    let pod = "/kubepods.slice/kubepods-pod2.slice";
    let container = format!("{pod}/crio-2.scope");
    tree.process(900, &line, &container);
    tree.thread(900, 900, "qemu-kvm", &container);
    tree.thread(900, 901, "CPU 0/KVM", &container);
    tree.process(891, &["/usr/bin/virt-launcher"], &container);
    tree.file(&format!("sys/fs/cgroup{container}/cgroup.procs"), "891\n900\n");
    tree.file(&format!("sys/fs/cgroup{container}/cpu.max"), "200000 100000\n");
    tree.file(&format!("sys/fs/cgroup{container}/cpu.stat"), "nr_throttled 500\nthrottled_usec 70\n");
    tree.file(&format!("sys/fs/cgroup{pod}/cpu.max"), "210000 100000\n");
    let mut inventory = Inventory::new(Root::open(tree.dir.path()).unwrap(), None, Vec::new());
    inventory.look().unwrap();
    let host = config::host(&mut inventory).unwrap();
    let vm = &host.vms[0];
    assert_eq!(vm.manager, Manager::KubeVirt);
    assert_eq!(vm.quota_above().map(|q| q.cgroup.as_str()), Some(container.as_str()));
    let counted = [false, true].map(|shared| slow::throttled_once(&inventory, vm, shared));
    assert_eq!(counted.map(|t| t.map(|t| (t.times, t.ns))), [Some((0, 0)), Some((500, 70_000))]);
}

/// Two VMs below one slice: what the slice has set is of both, and what is the default is of none.
#[test]
fn settings_of_cgroups_besides_weight_and_quota() {
    let tree = Tree::new("6.12.0\n");
    for (pid, name) in [(1700, "a"), (1800, "b")] {
        let group = format!("/qemu.slice/{name}.service");
        tree.process(pid, &["qemu-system-x86_64", "-name", &format!("{name},debug-threads=on")], &group);
        tree.thread(pid, pid, "qemu-system-x86", &group);
        tree.thread(pid, pid + 1, "CPU 0/KVM", &group);
        tree.file(&format!("sys/fs/cgroup{group}/cgroup.procs"), &format!("{pid}\n"));
        tree.file(&format!("sys/fs/cgroup{group}/cpu.weight"), if name == "a" { "0\n" } else { "100\n" });
        tree.file(&format!("sys/fs/cgroup{group}/cpu.idle"), if name == "a" { "1\n" } else { "0\n" });
        tree.file(&format!("sys/fs/cgroup{group}/cpu.max.burst"), "0\n");
        tree.file(&format!("sys/fs/cgroup{group}/cpu.uclamp.min"), "12.50\n");
        tree.file(&format!("sys/fs/cgroup{group}/cpu.uclamp.max"), "max\n");
        tree.file(&format!("sys/fs/cgroup{group}/cpuset.cpus.partition"), "member\n");
    }
    let slice = "sys/fs/cgroup/qemu.slice";
    tree.file(&format!("{slice}/cpu.idle"), "0\n");
    tree.file(&format!("{slice}/cpu.uclamp.max"), "80.00\n");
    tree.file(
        &format!("{slice}/cpuset.cpus.partition"),
        "root invalid (Cpu list in cpuset.cpus not exclusive)\n",
    );
    let host = tree.vms().0;
    let of = |vm: &VmConfig| {
        let all = vm.scheduling.iter().map(|g| format!("{}{g}", if g.shared { "shared " } else { "" }));
        all.collect::<Vec<_>>()
    };
    let above = "shared /qemu.slice: uclamp.max 80.00 %, cpuset partition root invalid (Cpu list in cpuset.cpus not exclusive)";
    assert_eq!(of(&host.vms[0]), [above, "/qemu.slice/a.service: idle, uclamp.min 12.50 %"]);
    assert_eq!(of(&host.vms[1]), [above, "/qemu.slice/b.service: uclamp.min 12.50 %"]);
    let idle = host.vms[0].idle_group().map(|g| g.cgroup.as_str());
    assert_eq!(idle, Some("/qemu.slice/a.service"));
    assert_eq!(host.vms[0].weight, Some(CpuWeight::Weight(1)), "0 is not a weight");
    // Neither has a file here.
    let scheduler = host.scheduler.unwrap();
    assert_eq!((scheduler.nohz_full, scheduler.preempt_rt), (None, None));
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
    assert_eq!((&*vm.id.0, &vm.manager), (uuid, &Manager::Libvirt(String::new())));
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

#[test]
fn programs_that_change_vms_by_themselves() {
    let tree = Tree::new("6.12.0\n");
    let contenders = || tree.vms().0.contenders;
    assert!(contenders().is_empty());
    let run = |pid: u32, line: &str, user: Option<u32>| {
        tree.process(pid, &words(line), "/system.slice/x.service");
        if let Some(user) = user {
            tree.file(
                &format!("proc/{pid}/status"),
                &format!("Name:\tx\nUid:\t{user}\t{user}\t{user}\t{user}\n"),
            );
        }
    };
    run(700, "/usr/bin/numad -i 15", None);
    run(701, "tuned", Some(1000));
    assert!(contenders().is_empty(), "whose it is is not known, or it is a person's");
    run(700, "/usr/bin/numad -i 15", Some(0));
    run(702, "/usr/bin/kubelet", Some(0));
    assert_eq!(contenders(), [Contender::Numad], "the state of the CPU manager is not there");
    let state = "var/lib/kubelet/cpu_manager_state";
    tree.file(state, r#"{"policyName":"none"}"#);
    assert_eq!(contenders(), [Contender::Numad]);
    tree.file(state, r#"{"policyName":"static","defaultCpuSet":"0-1"}"#);
    assert_eq!(contenders(), [Contender::Numad, Contender::StaticCpuManager]);
    tree.file("run/systemd/system/x", "");
    run(703, "/usr/bin/python3 -s /usr/bin/nova-compute", Some(162));
    assert_eq!(
        contenders(),
        [Contender::Numad, Contender::StaticCpuManager, Contender::NovaCompute, Contender::Systemd]
    );
}

#[test]
fn a_cpuset_of_a_unit_is_read_if_it_is_narrower_than_the_group_above() {
    let tree = Tree::new("6.12.0\n");
    let group = "/qemu.slice/a.service";
    tree.process(1700, &["qemu-system-x86_64", "-name", "a,debug-threads=on"], group);
    tree.thread(1700, 1700, "qemu-system-x86", group);
    tree.thread(1700, 1701, "CPU 0/KVM", group);
    let cpuset = |group: &str, cpus: &str, effective: &str| {
        tree.file(&format!("sys/fs/cgroup{group}/cpuset.cpus"), &format!("{cpus}\n"));
        tree.file(&format!("sys/fs/cgroup{group}/cpuset.cpus.effective"), &format!("{effective}\n"));
    };
    let found = || -> Vec<String> { tree.vms().0.vms[0].scheduling.iter().map(|g| g.to_string()).collect() };
    tree.file("sys/fs/cgroup/cpuset.cpus.effective", "0-7\n");
    cpuset("/qemu.slice", "0-7", "0-7");
    cpuset(group, "", "0-7");
    assert!(found().is_empty(), "all pCPUs, and none of its own");
    cpuset("/qemu.slice", "0-5", "0-5");
    cpuset(group, "0-5", "0-5");
    assert_eq!(found(), ["/qemu.slice: cpuset pCPUs 0-5"]);
    cpuset(group, "2-3", "2-3");
    assert_eq!(found(), ["/qemu.slice: cpuset pCPUs 0-5", "/qemu.slice/a.service: cpuset pCPUs 2-3"]);
}
