//! Which parts of a machine's files does a capture keep? Numbers and settings, but no secrets, and no processes except
//! VMs. Of programs that change VMs' settings by themselves, a capture keeps the name and the user.
//!
//! A capture is made to be sent to others. vsteer drops every path that no rule here names. Command lines hold
//! passwords and paths, so vsteer writes new ones from the facts that the KVM backend reads in them.
//!
//! Left out: replacing names ([`super::redact`]).

use crate::kvm::command_line::{self, CommandLine};
use crate::kvm::{contenders, readconfig, vmms};
use crate::root::{Entry, Seen};
use crate::tree::running::reduced;
use std::collections::BTreeSet;
use vsteer_core::CpuSet;
use vsteer_core::nouns::{Accel, Fixed};

/// Lines of `/proc/PID/status` that are read.
const STATUS: [&str; 4] = ["Cpus_allowed_list:", "HugetlbPages:", "Tgid:", "Uid:"];
/// Fields of `/proc/PID/stat` that are read, by their number in the manual page; the others become 0.
const STAT: [usize; 8] = [3, 4, 9, 19, 22, 39, 40, 41];
/// `PF_KTHREAD`: the kernel's own threads.
const PF_KTHREAD: u64 = 0x0020_0000;
/// Words in the name of a kernel parameter whose value is a secret.
const SECRET: [&str; 7] = ["pass", "pw", "secret", "token", "cred", "key", "auth"];
/// Files of one line each, or of numbers, that are kept as they are.
const WHOLE: [&str; 11] = [
    "/etc/machine-id",
    "/proc/uptime",
    "/proc/pressure/",
    "/proc/sysinfo",
    "/proc/sys/kernel/hostname",
    "/proc/sys/kernel/osrelease",
    "/proc/sys/kernel/version",
    "/proc/sys/kernel/numa_balancing",
    "/proc/xen/capabilities",
    "/proc/device-tree/",
    "/proc/driver/nvidia/gpus/",
];

/// Whose files are kept.
pub struct Whose {
    /// The processes of VMs, and kernel threads of theirs.
    pub pids: BTreeSet<u32>,
    /// Programs that change settings of VMs by themselves.
    pub contenders: BTreeSet<u32>,
    /// Where cgroups lie, and those of VMs' threads there: of the cpu controller, and of version 2.
    pub cgroups: Vec<(String, BTreeSet<String>)>,
}

impl Whose {
    /// The tree of cgroups that a path lies in, with the rest of the path.
    fn tree<'a, 'p>(&'a self, path: &'p str) -> Option<(&'a BTreeSet<String>, &'p str)> {
        let within =
            |top: &str| path.strip_prefix(top).filter(|rest| rest.is_empty() || rest.starts_with('/'));
        // One tree may be mounted within another.
        let trees = self.cgroups.iter().filter_map(|(top, groups)| Some((groups, within(top)?)));
        trees.min_by_key(|(_, rest)| rest.len())
    }
}

/// The part of what was read that is kept.
pub fn kept(mut seen: Seen, whose: &Whose) -> Seen {
    options_of_files(&mut seen, whose);
    seen.into_iter().filter_map(|(path, entry)| one(&path, entry, whose).map(|e| (path, e))).collect()
}

fn one(path: &str, entry: Entry, whose: &Whose) -> Option<Entry> {
    let bytes = match entry {
        Entry::File(bytes) => bytes,
        Entry::Folder => return is_kept_folder(path, whose).then_some(Entry::Folder),
        Entry::Link(to) => {
            return (pid_of(path).is_some() && to == "anon_inode:kvm-vm").then_some(Entry::Link(to));
        }
    };
    if let Some((groups, rest)) = whose.tree(path) {
        let group = rest.rsplit_once('/').map_or("", |(group, _)| group);
        let mut of_vms = groups.iter();
        let is_kept =
            group.is_empty() || of_vms.any(|g| g == group || is_above(g, group) || is_above(group, g));
        return is_kept.then_some(Entry::File(bytes));
    }
    if path.starts_with("/sys/")
        || WHOLE.iter().any(|w| path == *w || (w.ends_with('/') && path.starts_with(w)))
    {
        return Some(Entry::File(bytes));
    }
    let text = String::from_utf8_lossy(&bytes);
    let text = match pid_of(path) {
        Some(pid) if whose.contenders.contains(&pid) => of_contender(path.rsplit('/').next()?, &text)?,
        Some(pid) => of_process(path.rsplit('/').next()?, &text, whose.pids.contains(&pid))?,
        None => of_machine(path, &text)?,
    };
    Some(Entry::File(text.into_bytes()))
}

/// Puts options that VMs' command lines have in files into these lines, because the files are not kept.
fn options_of_files(seen: &mut Seen, whose: &Whose) {
    for pid in &whose.pids {
        let path = format!("/proc/{pid}/cmdline");
        let Some(Entry::File(line)) = seen.get(&path) else { continue };
        let line = String::from_utf8_lossy(line).into_owned();
        let words: Vec<String> = line.trim_end_matches('\0').split('\0').map(str::to_owned).collect();
        if readconfig::is_used(&words) {
            let text = |file: &str| match seen.get(file) {
                Some(Entry::File(bytes)) => Some(String::from_utf8_lossy(bytes).into_owned()),
                _ => None,
            };
            let whole: String =
                readconfig::expanded(&words, text).iter().map(|word| format!("{word}\0")).collect();
            seen.insert(path, Entry::File(whole.into_bytes()));
        }
    }
}

/// Is `above` a cgroup that holds `group`?
fn is_above(above: &str, group: &str) -> bool {
    group.strip_prefix(above).is_some_and(|rest| rest.starts_with('/'))
}

/// Of folders, those that say something by being there.
fn is_kept_folder(path: &str, whose: &Whose) -> bool {
    path == "/etc/pve"
        || path == contenders::SYSTEMD
        || (path.starts_with("/sys/") && whose.tree(path).is_none())
}

fn pid_of(path: &str) -> Option<u32> {
    path.strip_prefix("/proc/")?.split('/').next()?.parse().ok()
}

fn of_process(file: &str, text: &str, is_vms: bool) -> Option<String> {
    if !is_vms {
        return match file {
            // A kernel thread beside a VM's threads in a cgroup is the kernel's: that is what its `stat` is kept for.
            "stat" => stat(text).filter(|s| is_kernels(s)),
            // A VM may have been made by another thread than the first of its process.
            "status" => Some(lines(text, |l| l.starts_with("Tgid:"))),
            _ => None,
        };
    }
    match file {
        "cmdline" => Some(arguments(text)),
        "status" => Some(lines(text, |l| STATUS.iter().any(|s| l.starts_with(s)))),
        "stat" => stat(text),
        "comm" | "schedstat" | "cgroup" | "statm" => Some(text.to_owned()),
        "numa_maps" => Some(text.lines().map(|l| pages(l) + "\n").collect()),
        _ => None,
    }
}

/// The name of the program and its user.
fn of_contender(file: &str, text: &str) -> Option<String> {
    match file {
        "cmdline" => {
            let words: Vec<String> = text.trim_end_matches('\0').split('\0').map(str::to_owned).collect();
            contenders::program(&words).map(|name| format!("{name}\0"))
        }
        "status" => Some(lines(text, |l| l.starts_with("Uid:"))),
        _ => None,
    }
}

fn of_machine(path: &str, text: &str) -> Option<String> {
    match path {
        "/proc/stat" => Some(lines(text, |l| l.starts_with("cpu"))),
        "/proc/meminfo" => Some(lines(text, |l| l.starts_with("MemTotal:"))),
        "/proc/cpuinfo" => Some(lines(text, |l| !l.starts_with("Serial"))),
        "/proc/kallsyms" => Some(lines(text, |l| l.ends_with(" calc_concur_shares"))),
        "/proc/mounts" => Some(lines(text, |l| matches!(l.split(' ').nth(2), Some("cgroup" | "cgroup2")))),
        "/proc/cmdline" => Some(parameters(text)),
        contenders::CPU_MANAGER => {
            let policy = contenders::policy(text.as_bytes())?;
            Some(serde_json::json!({ "policyName": policy }).to_string())
        }
        _ => None,
    }
}

fn lines(text: &str, is_kept: impl Fn(&str) -> bool) -> String {
    text.lines().filter(|l| is_kept(l)).map(|l| format!("{l}\n")).collect()
}

/// The kernel's command line without secrets, and without what follows `--`: that is for init.
pub fn parameters(text: &str) -> String {
    let word = |w: &str| match w.split_once('=') {
        Some((name, _)) if SECRET.iter().any(|s| name.to_ascii_lowercase().contains(s)) => {
            format!("{name}=removed")
        }
        _ => w.to_owned(),
    };
    text.split_whitespace().take_while(|w| *w != "--").map(word).collect::<Vec<_>>().join(" ") + "\n"
}

/// A thread's `stat` without addresses and without what nobody reads.
fn stat(text: &str) -> Option<String> {
    let (head, tail) = text.rsplit_once(')')?;
    let fields = tail.split_ascii_whitespace().enumerate();
    let kept = fields.map(|(i, field)| if STAT.contains(&(i + 3)) { field } else { "0" });
    Some(format!("{head}) {}\n", kept.collect::<Vec<_>>().join(" ")))
}

fn is_kernels(stat: &str) -> bool {
    let flags =
        stat.rsplit_once(')').and_then(|(_, tail)| tail.split_ascii_whitespace().nth(6)?.parse().ok());
    flags.is_some_and(|flags: u64| flags & PF_KTHREAD != 0)
}

/// A line of `numa_maps` without its address and file.
fn pages(line: &str) -> String {
    let is_kept = |w: &&str| {
        let of_node = w.strip_prefix('N').and_then(|w| w.split_once('='));
        w.starts_with("kernelpagesize_kB=") || of_node.is_some_and(|(n, _)| n.parse::<u32>().is_ok())
    };
    line.split_ascii_whitespace().filter(is_kept).collect::<Vec<_>>().join(" ")
}

/// A command line that says what the KVM backend and the audit read in this one, and no more.
pub fn arguments(line: &str) -> String {
    if line.is_empty() {
        return String::new(); // A kernel thread.
    }
    let words: Vec<String> = line.trim_end_matches('\0').split('\0').map(str::to_owned).collect();
    let Some(facts) = command_line::parse(&words) else { return of_other(&words) };
    reduced(line).unwrap_or_default() + &more(&facts)
}

/// What [`reduced`] leaves out and the KVM backend reads.
fn more(facts: &CommandLine) -> String {
    let mut words: Vec<String> = Vec::new();
    match facts.accel {
        Some(Accel::Kvm) => words.extend(["-accel".into(), "kvm".into()]),
        Some(Accel::Tcg) => words.extend(["-accel".into(), "tcg".into()]),
        None => {}
    }
    if let Some(Ok(bytes)) = facts.memory {
        words.extend(["-m".into(), format!("size={bytes}b")]);
    }
    if let Some(nodes) = &facts.memory_nodes {
        let nodes = nodes.to_string().replace(',', ",,");
        words.extend(["-object".into(), format!("memory-backend-ram,id=m,policy=bind,host-nodes={nodes}")]);
    }
    guest_memory(facts, &mut words);
    for id in &facts.iothreads {
        words.extend(["-object".into(), format!("iothread,id={}", id.replace(',', ",,"))]);
    }
    if let (Some(id), true) =
        (facts.proxmox_id, facts.pid_file.as_deref().is_some_and(|f| f.contains("/qemu-server/")))
    {
        words.extend(["-pidfile".into(), format!("/var/run/qemu-server/{id}.pid")]);
    }
    if let Some(file) = facts.pid_file.as_deref().filter(|file| file.starts_with("/run/incus/")) {
        words.extend(["-pidfile".into(), file.to_owned()]);
    }
    if facts.of_libvirt {
        // `reduced` keeps that there is a secret, in words that this backend does not take for libvirt's.
        words.extend([
            "-object".into(),
            "secret,id=masterKey0,file=/libvirt/qemu/domain/master-key.aes".into(),
        ]);
    }
    words.iter().map(|w| format!("{w}\0")).collect()
}

/// The guest's NUMA nodes, and what keeps memory and devices where they are.
fn guest_memory(facts: &CommandLine, words: &mut Vec<String>) {
    let list = |set: &CpuSet| set.to_string().replace(',', ",,");
    for node in &facts.guest_nodes {
        let id = node.id;
        let size = node.memory_bytes.map_or(String::new(), |bytes| format!(",size={bytes}"));
        let bound = node.host_nodes.as_ref().map_or(String::new(), |nodes| {
            // `memory_nodes` counts `bind` alone.
            let is_bound = facts.memory_nodes.as_ref().is_some_and(|all| nodes.is_subset(all));
            format!(",policy={},host-nodes={}", if is_bound { "bind" } else { "preferred" }, list(nodes))
        });
        words.extend(["-object".into(), format!("memory-backend-ram,id=node{id}{size}{bound}")]);
        let cpus = Some(list(&node.vcpus)).filter(|cpus| !cpus.is_empty());
        let cpus = cpus.map_or(String::new(), |cpus| format!(",cpus={cpus}"));
        words.extend(["-numa".into(), format!("node,nodeid={id}{cpus},memdev=node{id}")]);
    }
    for fixed in &facts.fixed {
        words.extend(match fixed {
            Fixed::HugePages => ["-mem-path".into(), "/dev/hugepages".into()],
            Fixed::Locked => ["-overcommit".into(), "mem-lock=on".into()],
            Fixed::Device { address, .. } => ["-device".into(), format!("vfio-pci,host={address}")],
        });
    }
}

/// Of a VMM that is not QEMU: what vsteer reads of it.
fn of_other(words: &[String]) -> String {
    vmms::kept(words).iter().map(|word| format!("{word}\0")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The file itself is not kept: it may hold passwords.
    #[test]
    fn options_in_a_file_are_kept_in_the_command_line() {
        let file = |text: &str| Entry::File(text.as_bytes().to_vec());
        let seen: Seen = [
            (
                "/proc/7/cmdline",
                file("/bin/qemu-system-x86_64\0-name\0v1\0-readconfig\0/run/incus/v1/qemu.conf\0"),
            ),
            (
                "/run/incus/v1/qemu.conf",
                file("[smp-opts]\ncpus = \"2\"\nsockets = \"2\"\n[x]\npassword = \"hunter2\"\n"),
            ),
        ]
        .map(|(path, entry)| (path.to_owned(), entry))
        .into();
        let whose = Whose { pids: BTreeSet::from([7]), contenders: BTreeSet::new(), cgroups: Vec::new() };
        let kept = kept(seen, &whose);
        let Some(Entry::File(line)) = kept.get("/proc/7/cmdline") else { panic!("{kept:?}") };
        let line = String::from_utf8_lossy(line);
        let words: Vec<String> = line.trim_end_matches('\0').split('\0').map(str::to_owned).collect();
        let topology = command_line::parse(&words).unwrap().topology;
        assert_eq!(topology.and_then(Result::ok).map(|t| t.sockets), Some(2), "{line:?}");
        assert!(kept.len() == 1 && !line.contains("hunter2"), "{kept:?}");
    }

    #[test]
    fn a_kept_command_line_says_the_same_to_the_backend_and_no_secret() {
        let of = |words: &[&str]| words.iter().map(|w| format!("{w}\0")).collect::<String>();
        let line = of(&[
            "/usr/bin/qemu-system-x86_64",
            "-name",
            "guest=web,debug-threads=on",
            "-object",
            r#"{"qom-type":"secret","id":"masterKey0","file":"/var/lib/libvirt/qemu/domain-12-web/master-key.aes"}"#,
            "-machine",
            "pc-q35-7.2,accel=kvm",
            "-m",
            "size=2097152k",
            "-smp",
            "4,sockets=1,cores=2,threads=2",
            "-object",
            "iothread,id=io1",
            "-object",
            r#"{"qom-type":"memory-backend-ram","id":"m","size":1,"host-nodes":[0,2],"policy":"bind"}"#,
            "-object",
            "memory-backend-file,id=a,size=1G,mem-path=/dev/hugepages/hunter2,policy=preferred,host-nodes=3",
            "-numa",
            "node,cpus=0-1,cpus=4,memdev=a",
            "-numa",
            "node,cpus=2,memdev=m",
            "-overcommit",
            "mem-lock=on",
            "-device",
            "vfio-pci,host=3b:00.0,id=h",
            "-uuid",
            "63715d0b-76a4-4a2a-8db6-9bda3af71014",
            "-vnc",
            ":1,password=hunter2",
            "-drive",
            "file=/secret/hunter2.qcow2,if=virtio,id=d0",
            "-enable-kvm",
        ]);
        let kept = arguments(&line);
        assert!(!kept.contains("hunter2") && !kept.contains("/var/lib"), "{kept:?}");
        let parsed = |line: &str| {
            let words: Vec<String> = line.trim_end_matches('\0').split('\0').map(str::to_owned).collect();
            command_line::parse(&words).unwrap()
        };
        let (before, after) = (parsed(&line), parsed(&kept));
        assert_eq!(CommandLine { libvirt_id: None, ..before }, after);
        assert_eq!(arguments("/opt/vmm\0--name\0web\0--token\0hunter2\0"), "vmm\0--name\0web\0");
    }

    #[test]
    fn what_is_not_named_is_dropped() {
        let whose = Whose {
            pids: BTreeSet::from([7]),
            contenders: BTreeSet::from([9]),
            cgroups: vec![("/sys/fs/cgroup".into(), BTreeSet::from(["/vms/web".to_owned()]))],
        };
        let of = |path: &str, text: &str| match one(path, Entry::File(text.into()), &whose) {
            Some(Entry::File(bytes)) => Some(String::from_utf8(bytes).unwrap()),
            _ => None,
        };
        assert_eq!(of("/proc/8/cmdline", "bash\0"), None);
        let python = "/usr/bin/python3\0/usr/sbin/tuned\0--password\0hunter2\0";
        assert_eq!(of("/proc/9/cmdline", python).as_deref(), Some("tuned\0"));
        assert_eq!(
            of("/proc/9/status", "Name:\ta\nUid:\t0\t0\t0\t0\n").as_deref(),
            Some("Uid:\t0\t0\t0\t0\n")
        );
        assert_eq!(of("/proc/9/environ", "A=hunter2"), None);
        let state = r#"{"policyName":"static","entries":{"pod-uid":{"hunter2":"0-1"}}}"#;
        assert_eq!(of(contenders::CPU_MANAGER, state).as_deref(), Some(r#"{"policyName":"static"}"#));
        assert_eq!(of("/proc/7/environ", "A=hunter2"), None);
        assert_eq!(of("/etc/shadow", "root:x"), None);
        assert_eq!(
            of("/proc/cmdline", "ro rd.pw=hunter2 x -- --token hunter2").as_deref(),
            Some("ro rd.pw=removed x\n")
        );
        assert_eq!(
            of("/proc/mounts", "//h/s /m cifs pw=1 0 0\nc /sys/fs/cgroup cgroup2 rw 0 0\n")
                .unwrap()
                .lines()
                .count(),
            1
        );
        assert!(of("/sys/fs/cgroup/vms/web/cpu.max", "max").is_some());
        assert!(of("/sys/fs/cgroup/vms/cgroup.procs", "1").is_some());
        assert!(of("/sys/fs/cgroup/user.slice/cgroup.procs", "1").is_none());
        assert_eq!(
            of("/proc/7/numa_maps", "7f00 bind:0 file=/secret N0=2 kernelpagesize_kB=4\n").as_deref(),
            Some("N0=2 kernelpagesize_kB=4\n")
        );
        let stat = "8 (x) S 2 0 0 0 -1 2129984 1 2 3 4 5 6 7 8 20 0 1 0 42 9 9 9 9 9 9 9 9 9 9 9 9 9 9 9 9 3 0 0 9 9 9";
        assert!(
            of("/proc/8/task/8/stat", stat).is_some_and(|s| s.starts_with("8 (x) S 2 0 0 0 0 2129984 0"))
        );
        assert!(of("/proc/8/task/8/stat", &stat.replace("2129984", "0")).is_none());
    }
}
