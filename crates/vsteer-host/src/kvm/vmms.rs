//! Finds processes other than QEMU that run VMs with KVM: those that hold a VM descriptor of KVM.
//!
//! Whatever the VMM's name, the kernel gives it a descriptor that reads `anon_inode:kvm-vm`. Reading every
//! descriptor of every process would cost tens of milliseconds on a busy host. So vsteer first asks the
//! kernel which processes made VMs: `/sys/kernel/debug/kvm` has a folder `TID-FD` for each. Only if that
//! folder is not mounted, and only while KVM's module is in use, does vsteer read all descriptors.
//!
//! Since Linux 5.18 these folders say which thread runs which vCPU, whatever the VMM calls its threads (`vcpuN/pid`).
//!
//! Source: `virt/kvm/kvm_main.c`, `kvm_create_vm_debugfs` and `kvm_create_vcpu_debugfs` (Linux 6.18). Names: `--name` (the emulated host's
//! own VMM; crosvm and kvmtool, **untried**), `--id` (Firecracker, **untried**). Threads: see
//! [`super::roles`].
//!
//! vCPUs and memory are Cloud Hypervisor's options (`docs/cpu.md`, `docs/memory.md` of version 44, **untried**).
//!
//! Left out: everything else on such a command line; VMMs inside a container that hides its processes.

use super::command_line::CommandLine;
use crate::linux::files::numbered;
use crate::linux::task::text;
use crate::root::Root;
use std::collections::{BTreeMap, BTreeSet};
use vsteer_core::nouns::{Accel, GuestTopology, Tid};
use vsteer_core::smp;

const DEBUG_FOLDER: &str = "/sys/kernel/debug/kvm";
const VM_DESCRIPTOR: &str = "anon_inode:kvm-vm";

/// The processes that may hold a VM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Holders {
    /// Exactly these processes hold one.
    Known(BTreeSet<u32>),
    /// Any process may hold one; its descriptors decide.
    Any,
}

/// Asks the kernel which processes hold VMs.
pub fn holders(root: &Root) -> Holders {
    if let Ok(names) = root.names(DEBUG_FOLDER) {
        return Holders::Known(names.iter().filter_map(|n| holder(root, n)).collect());
    }
    holders_among_few(root)
}

/// For a look at a few processes, whose descriptors say at little cost whether they hold VMs.
pub fn holders_among_few(root: &Root) -> Holders {
    if in_use(root) { Holders::Any } else { Holders::Known(BTreeSet::new()) }
}

/// What the kernel reports of vCPUs: of each of these processes, the vCPU of each of its threads.
///
/// The kernel's numbers are those of the interrupt controller, with gaps (two sockets of three cores: 0 to 2, 4 to 6).
/// Their order is that of the VM's vCPUs.
pub fn vcpu_threads(root: &Root, pids: &BTreeSet<u32>) -> BTreeMap<u32, BTreeMap<Tid, u32>> {
    let mut all: BTreeMap<u32, BTreeMap<Tid, u32>> = BTreeMap::new();
    for vm in root.names(DEBUG_FOLDER).unwrap_or_default() {
        let Some(pid) = holder(root, &vm).filter(|pid| pids.contains(pid)) else { continue };
        let folder = format!("{DEBUG_FOLDER}/{vm}");
        let names = root.names(&folder).unwrap_or_default();
        let mut numbers: Vec<u32> = names.iter().filter_map(|name| numbered(name, "vcpu")).collect();
        numbers.sort_unstable();
        for (number, vcpu) in numbers.into_iter().zip(0..) {
            let tid =
                text(root, &format!("{folder}/vcpu{number}/pid")).and_then(|t| t.trim().parse::<u32>().ok());
            // 0: it has never run. A thread that is not the process's has ended.
            if let Some(tid) = tid.filter(|tid| root.has_folder(&format!("/proc/{pid}/task/{tid}"))) {
                all.entry(pid).or_default().insert(Tid(tid), vcpu);
            }
        }
    }
    all
}

/// Number of vCPUs of the process, by its descriptors.
pub fn vcpu_descriptors(root: &Root, pid: u32) -> usize {
    let folder = format!("/proc/{pid}/fd");
    let is_vcpu = |fd: &String| root.link(&folder, fd).is_ok_and(|to| to.starts_with("anon_inode:kvm-vcpu"));
    root.names(&folder).unwrap_or_default().iter().filter(|fd| is_vcpu(fd)).count()
}

/// The process of a folder `TID-FD`, if that thread's descriptor is a VM's. The numbers of another namespace
/// mean nothing here, and this check fails for them.
fn holder(root: &Root, name: &str) -> Option<u32> {
    let (tid, fd) = name.split_once('-')?;
    let (tid, fd): (u32, u32) = (tid.parse().ok()?, fd.parse().ok()?);
    let is_vm = root.link(&format!("/proc/{tid}/fd"), &fd.to_string()).is_ok_and(|to| to == VM_DESCRIPTOR);
    let status = is_vm.then(|| text(root, &format!("/proc/{tid}/status")))??;
    status.lines().find_map(|l| l.strip_prefix("Tgid:"))?.trim().parse().ok()
}

/// Is KVM in use? A kernel with built-in KVM does not report it.
fn in_use(root: &Root) -> bool {
    let count =
        |module: &str| text(root, &format!("/sys/module/{module}/refcnt"))?.trim().parse::<u32>().ok();
    match ["kvm_intel", "kvm_amd"].into_iter().filter_map(count).max() {
        Some(count) => count > 0,
        None => root.has_folder("/sys/module/kvm"),
    }
}

/// The VM that this process runs, if it holds a VM and is not QEMU (whose command line says more).
pub fn line_of(root: &Root, holders: &Holders, pid: u32, arguments: &[String]) -> Option<CommandLine> {
    let holds = match holders {
        Holders::Known(pids) => pids.contains(&pid),
        Holders::Any => {
            let folder = format!("/proc/{pid}/fd");
            let fds = root.names(&folder).unwrap_or_default();
            fds.iter().any(|fd| root.link(&folder, fd).is_ok_and(|to| to == VM_DESCRIPTOR))
        }
    };
    let program = arguments.first()?.rsplit('/').next()?.to_owned();
    if is_gvisor(&program, arguments) {
        return None;
    }
    let of = |option: &str| value(arguments, option).filter(|_| is_cloud_hypervisor(&program));
    holds.then(|| CommandLine {
        name: name(arguments).or_else(|| socket_name(arguments)),
        accel: Some(Accel::Kvm),
        topology: of("--cpus").map(topology),
        memory: of("--memory").and_then(memory).map(Ok),
        program: Some(program.clone()),
        ..CommandLine::default()
    })
}

/// Is this a sandbox of gVisor? Its KVM platform holds a VM descriptor, but runs a container's processes, no guest.
/// Source: `runsc/sandbox/sandbox.go` (2024).
fn is_gvisor(program: &str, arguments: &[String]) -> bool {
    let has = |word: &str| arguments.iter().any(|given| given == word);
    program.starts_with("runsc") && has("--platform=kvm") && has("boot")
}

fn is_cloud_hypervisor(program: &str) -> bool {
    program.starts_with("cloud-hyperviso")
}

/// The value of `--name`, `-n` or `--id`, also after `=`.
pub fn name(arguments: &[String]) -> Option<String> {
    let names = ["--name", "-n", "--id"];
    let given = names.iter().find_map(|key| value(arguments, key));
    given.filter(|name| !name.is_empty()).map(str::to_owned)
}

/// The value of an option, in the next word or after `=`.
fn value<'a>(arguments: &'a [String], option: &str) -> Option<&'a str> {
    let mut words = arguments.iter().skip(1);
    while let Some(word) = words.next() {
        match word.split_once('=') {
            Some((key, value)) if key == option => return Some(value),
            _ if word == option => return words.next().map(String::as_str),
            _ => {}
        }
    }
    None
}

/// The name of the file of `--api-socket`, without its ending: all that names a VM of Cloud Hypervisor. Kata has a folder
/// for each VM, with a `clh-api.sock`.
fn socket_name(arguments: &[String]) -> Option<String> {
    let path = value(arguments, "--api-socket")?;
    let path = std::path::Path::new(path.strip_prefix("path=").unwrap_or(path));
    let stem = path.is_absolute().then(|| path.file_stem()?.to_str())??;
    let name = if stem == "clh-api" { path.parent()?.file_name()?.to_str()? } else { stem };
    Some(name.to_owned())
}

/// Cloud Hypervisor's `boot=8,max=16,topology=THREADS:CORES:DIES:PACKAGES`; without a topology, it shows one socket.
fn topology(cpus: &str) -> Result<GuestTopology, String> {
    let key = |name: &str| cpus.split(',').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
    let odd =
        || format!("vsteer does not understand `--cpus` {:?}", cpus.chars().take(60).collect::<String>());
    let numbers = |text: &str| text.split(':').map(|n| n.parse::<u32>().ok()).collect::<Option<Vec<u32>>>();
    if let Some(topology) = key("topology") {
        let Some(&[threads, cores, dies, sockets]) = numbers(topology).as_deref() else { return Err(odd()) };
        let cores = cores.checked_mul(dies).ok_or_else(odd)?;
        return smp::guest(sockets, cores, threads).ok_or_else(odd);
    }
    let cores = key("max").or_else(|| key("boot")).unwrap_or(cpus).parse().map_err(|_| odd())?;
    smp::guest(1, cores, 1).ok_or_else(odd)
}

/// Cloud Hypervisor's `size=8G`.
fn memory(text: &str) -> Option<u64> {
    let size = text.split(',').find_map(|pair| pair.strip_prefix("size="))?;
    let (digits, unit) = size.split_at(size.find(|c: char| !c.is_ascii_digit()).unwrap_or(size.len()));
    let shift = match unit {
        "" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        "T" => 40,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift).filter(|bytes| (1..=1 << 48).contains(bytes))
}

/// The words that say what vsteer reads of such a command line: the program's file name, the VM's name, vCPUs, memory.
pub fn kept(arguments: &[String]) -> Vec<String> {
    let program = arguments.first().and_then(|w| w.rsplit('/').next()).unwrap_or_default();
    let mut words = vec![program.to_owned()];
    let name = name(arguments).or_else(|| socket_name(arguments));
    words.extend(name.into_iter().flat_map(|name| ["--name".to_owned(), name]));
    if !is_cloud_hypervisor(program) {
        return words;
    }
    if let Some(cpus) = value(arguments, "--cpus").filter(|cpus| topology(cpus).is_ok()) {
        words.extend(["--cpus".to_owned(), cpus.to_owned()]);
    }
    let bytes = value(arguments, "--memory").and_then(memory);
    words.extend(bytes.into_iter().flat_map(|bytes| ["--memory".to_owned(), format!("size={bytes}")]));
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_on_command_lines() {
        let of = |line: &str| name(&line.split(' ').map(str::to_owned).collect::<Vec<_>>());
        assert_eq!(of("/init vmm --name web --vcpus 2").as_deref(), Some("web"));
        assert_eq!(of("firecracker --api-sock /s --id=42").as_deref(), Some("42"));
        assert_eq!(of("cloud-hypervisor --api-socket /s"), None);
        let words: Vec<String> =
            "/bin/cloud-hypervisor --api-socket path=/run/vm7.sock --cpus boot=8,max=16,topology=1:4:1:2 \
            --memory size=8G --disk path=/secret"
                .split_whitespace()
                .map(str::to_owned)
                .collect();
        let line =
            "cloud-hypervisor --name vm7 --cpus boot=8,max=16,topology=1:4:1:2 --memory size=8589934592";
        assert_eq!(kept(&words).join(" "), line);
        assert_eq!(kept(&kept(&words)), kept(&words));
        assert_eq!(socket_name(&words).as_deref(), Some("vm7"));
        let shown = |cpus: &str| topology(cpus).ok().map(|t| [t.sockets, t.cores, t.threads]);
        assert_eq!(shown("boot=8,max=16,topology=2:4:2:3"), Some([3, 8, 2]));
        assert_eq!(
            (shown("boot=2"), shown("boot=2,max=4"), shown("4,topology=1:2")),
            (Some([1, 2, 1]), Some([1, 4, 1]), None)
        );
        assert_eq!((memory("size=512M,shared=on"), memory("mergeable=on")), (Some(512 << 20), None));
        let odd = ["boot=0", "boot=2,topology=0:1:1:1", "boot=1,topology=65536:65536:1:1"];
        assert_eq!(odd.map(shown), [None; 3]);
        let named = |line: &str| socket_name(&line.split(' ').map(str::to_owned).collect::<Vec<_>>());
        assert_eq!(named("clh --api-socket fd=11"), None);
        assert_eq!(named("clh --api-socket=/run/vc/vm/a1b2/clh-api.sock").as_deref(), Some("a1b2"));
        assert_eq!((shown("4"), memory("size=0")), (Some([1, 4, 1]), None));
        assert_eq!(of("x --name"), None);
    }

    #[test]
    fn holders_by_the_kernels_list_and_by_descriptors() {
        let tree = tempfile::tempdir().unwrap();
        let path = |p: &str| tree.path().join(p);
        let words: Vec<String> = ["/init", "vmm", "--name", "web"].map(str::to_owned).to_vec();
        std::fs::create_dir_all(path("proc/70/fd")).unwrap();
        std::fs::create_dir_all(path("proc/80/fd")).unwrap();
        std::os::unix::fs::symlink("/dev/kvm", path("proc/80/fd/3")).unwrap();
        std::os::unix::fs::symlink(VM_DESCRIPTOR, path("proc/70/fd/4")).unwrap();
        std::fs::write(path("proc/70/status"), "Name:\tinit\nTgid:\t70\n").unwrap();
        let root = Root::open(tree.path()).unwrap();
        assert_eq!(holders(&root), Holders::Known(BTreeSet::new()), "a host without KVM is not searched");

        std::fs::create_dir_all(path("sys/module/kvm_amd")).unwrap();
        std::fs::write(path("sys/module/kvm_amd/refcnt"), "0\n").unwrap();
        assert_eq!(holders(&root), Holders::Known(BTreeSet::new()));
        std::fs::write(path("sys/module/kvm_amd/refcnt"), "5\n").unwrap();
        let any = holders(&root);
        assert_eq!(any, Holders::Any);
        let line = line_of(&root, &any, 70, &words).unwrap();
        assert_eq!((line.name.as_deref(), line.accel), (Some("web"), Some(Accel::Kvm)));
        assert_eq!(line_of(&root, &any, 80, &words), None, "/dev/kvm alone is not a VM");
        let sandbox: Vec<String> =
            "runsc-sandbox --root=/run --platform=kvm boot".split(' ').map(str::to_owned).collect();
        assert_eq!(line_of(&root, &any, 70, &sandbox), None);
        assert!(line_of(&root, &any, 70, &sandbox[..1]).is_some(), "a name alone hides no VM");

        // 90-4 is a thread of another namespace.
        for folder in ["70-4", "90-4", "70-5"] {
            std::fs::create_dir_all(path(&format!("sys/kernel/debug/kvm/{folder}"))).unwrap();
        }
        assert_eq!(holders(&root), Holders::Known(BTreeSet::from([70])));
    }
}
