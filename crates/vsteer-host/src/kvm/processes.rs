//! Finds the processes of this machine that run VMs, and the manager that started each.
//!
//! vsteer reads the command line of every process, because QEMU can take any name (`-name process=…`). It
//! recognises other VMMs by the descriptors they hold ([`super::vmms`]). A QEMU of libvirt holds libvirt's
//! secret. Proxmox numbers its VMs (`-id`) and keeps their pid files in `qemu-server`. KubeVirt's VMs are a
//! libvirt's in the cgroup of a pod, and Kata's are other VMs there.
//!
//! Source: `man 5 proc`; `src/qemu/qemu_command.c` (libvirt 9.0); `PVE/QemuServer.pm` (Proxmox VE 8, read,
//! not tried); KubeVirt 1.x (read, not tried).
//!
//! Left out: QEMUs inside a container that hides its processes.

use super::command_line::{self, CommandLine};
use super::contenders;
use super::readconfig;
use super::roles::vhost_of;
use super::vmms::{self, Holders};
use crate::linux::task::{self, text};
use crate::root::Root;
use std::collections::BTreeMap;
use vsteer_bpf::Birth;
use vsteer_core::limits;
use vsteer_core::nouns::{Contender, Tid};

/// A process that runs a VM: a QEMU, or another VMM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    /// Its process id.
    pub pid: u32,
    /// Start time in clock ticks since boot. Together with the pid, it identifies the process.
    pub start_ticks: u64,
    /// The command line.
    pub line: CommandLine,
    /// The manager that started it, as far as vsteer can see.
    pub origin: Origin,
    /// The user it runs as (its effective user id); `None` if unreadable.
    pub user: Option<u32>,
    /// The text of its `/proc/PID/cgroup`.
    pub cgroup: String,
}

impl Process {
    /// Can it be a person's?
    pub fn is_a_persons(&self) -> bool {
        self.user.is_some_and(task::may_be_a_persons)
    }
}

/// The manager that started a QEMU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// A libvirt; which one is not known here.
    Libvirt,
    /// Proxmox VE, with this VM number. Untried.
    Proxmox(u32),
    /// A pod of KubeVirt. Untried.
    KubeVirt,
    /// Another pod: Kata Containers runs it in a VM. Untried.
    Kata,
    /// No manager: a person or a script.
    Nobody,
}

/// The result of one look at all processes.
#[derive(Debug, Clone, Default)]
pub struct Found {
    /// The QEMUs and other VMMs, by pid.
    pub qemus: Vec<Process>,
    /// Kernel threads `vhost-PID` by that pid. From Linux 6.4 to 6.16 they are threads of the process instead; since
    /// 6.17 the VMM chooses (`VHOST_SET_FORK_FROM_OWNER`).
    pub vhosts: BTreeMap<u32, Vec<Tid>>,
    /// Programs that change by themselves what a plan changes, by pid.
    pub contenders: BTreeMap<u32, Contender>,
}

/// The numbers of all processes, ascending.
pub fn pids(root: &Root) -> Vec<u32> {
    let mut pids: Vec<u32> =
        root.names("/proc").unwrap_or_default().iter().filter_map(|n| n.parse().ok()).collect();
    pids.sort_unstable();
    pids
}

/// Looks at all processes. A process that ends during the look is left out.
pub fn find(root: &Root) -> Found {
    find_among(root, &pids(root), &vmms::holders(root))
}

/// Looks at these processes.
pub fn find_among(root: &Root, pids: &[u32], holders: &Holders) -> Found {
    let mut found = Found::default();
    let vhosts_apart = vhosts_are_processes(&text(root, "/proc/sys/kernel/osrelease").unwrap_or_default());
    for &pid in pids {
        let Some(arguments) = command_line_of(root, pid) else { continue };
        if arguments.is_empty() {
            // Any process can take such a name.
            let is_kernels = || task::read_stat(root, pid, Tid(pid)).is_some_and(|stat| stat.is_kernels());
            if vhosts_apart
                && let Some(of) = vhost_name(root, pid)
                && is_kernels()
            {
                found.vhosts.entry(of).or_default().push(Tid(pid));
            }
            continue;
        }
        let arguments: Vec<String> =
            arguments.trim_end_matches('\0').split('\0').map(str::to_owned).collect();
        if let Some(contender) = contenders::of_process(&arguments, || task::user(root, pid)) {
            found.contenders.insert(pid, contender);
            continue;
        }
        let arguments = with_files(root, arguments);
        let line = command_line::parse(&arguments).or_else(|| vmms::line_of(root, holders, pid, &arguments));
        let Some(line) = line else { continue };
        let Some(stat) = task::read_stat(root, pid, Tid(pid)).filter(|s| !s.is_dead()) else { continue };
        let cgroup = text(root, &format!("/proc/{pid}/cgroup")).unwrap_or_default();
        let user = task::user(root, pid);
        let origin = origin(&cgroup, user, &line);
        found.qemus.push(Process { pid, start_ticks: stat.start_ticks, line, origin, user, cgroup });
    }
    found
}

/// The process of a thread that took a vCPU's name, if it has ended and was a QEMU. What it was is known by its command
/// line alone. VMMs that only their descriptors tell are left out, and a pod or Proxmox, which cgroups tell.
pub fn that_was_born(root: &Root, birth: &Birth) -> Option<Process> {
    if task::read_stat(root, birth.pid, Tid(birth.pid)).is_some_and(|stat| !stat.is_dead()) {
        return None;
    }
    let line = command_line::parse(&birth.arguments)?;
    let tick_ns = 1_000_000_000 / rustix::param::clock_ticks_per_second().max(1);
    let (user, cgroup) = (Some(birth.user), String::new());
    let origin = origin(&cgroup, user, &line);
    Some(Process { pid: birth.pid, start_ticks: birth.started_ns / tick_ns, line, origin, user, cgroup })
}

/// The arguments of a QEMU with those of the files that they name.
fn with_files(root: &Root, arguments: Vec<String>) -> Vec<String> {
    if !readconfig::is_used(&arguments) || command_line::qemu(&arguments).is_none() {
        return arguments;
    }
    let read = |path: &str| root.bytes_at_most(path, limits::COMMAND_LINE).ok();
    readconfig::expanded(&arguments, |path| Some(String::from_utf8_lossy(&read(path)?).into_owned()))
}

fn vhost_name(root: &Root, pid: u32) -> Option<u32> {
    vhost_of(text(root, &format!("/proc/{pid}/comm"))?.trim_end())
}

/// Can a vhost worker be a process of the kernel's? An unreadable version counts as yes, which only costs one more
/// look.
fn vhosts_are_processes(release: &str) -> bool {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse::<u32>);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => !((6, 4)..(6, 17)).contains(&(major, minor)),
        _ => true,
    }
}

/// The arguments of a process, each ended by a zero byte. A process can make its command line as long as its
/// memory, and vsteer reads that of every process.
fn command_line_of(root: &Root, pid: u32) -> Option<String> {
    let bytes = root.bytes_at_most(&format!("/proc/{pid}/cmdline"), limits::COMMAND_LINE).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// What the process says of itself counts only if its user could be the manager's: any user can write a number
/// of Proxmox on a command line, or make a group named `kubepods` among their own.
fn origin(cgroups: &str, user: Option<u32>, line: &CommandLine) -> Origin {
    let in_pod = |path: &str| path.contains("/kubepods") && !path.contains(":/user.slice/");
    match (cgroups.lines().any(in_pod), line.of_libvirt) {
        // KubeVirt runs a libvirt in each pod.
        (true, true) => return Origin::KubeVirt,
        (true, false) if cgroups.contains("/kata") => return Origin::Kata,
        (false, true) => return Origin::Libvirt,
        (_, false) => {}
    }
    // Proxmox runs every QEMU as root in a scope of its own, which only root can make.
    let in_scope = |id: u32| cgroups.lines().any(|line| line.ends_with(&format!("/qemu.slice/{id}.scope")));
    match line.proxmox_id {
        Some(id) if user.is_none_or(|user| user == 0) && in_scope(id) => Origin::Proxmox(id),
        _ => Origin::Nobody,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_with_vhost_threads_apart() {
        assert!(
            vhosts_are_processes("6.1.0-18-amd64")
                && vhosts_are_processes("5.15.0")
                && vhosts_are_processes("?")
        );
        assert!(vhosts_are_processes("6.17.0") && vhosts_are_processes("7.0"));
        assert!(!vhosts_are_processes("6.4.0") && !vhosts_are_processes("6.16.9-fc"));
    }
}
