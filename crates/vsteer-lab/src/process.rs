//! Identifies the lab's processes, and ends them without ever hitting another process.
//!
//! A pid alone does not identify a process, because the kernel reuses pids. A process is the pair of pid and
//! start time (field 22 of `/proc/PID/stat`, in ticks since boot; `man 5 proc`) within one boot. A signal
//! goes through a pidfd that was opened before the pair was checked, so no reuse can happen in between. If
//! the lab died before it recorded a process, the process is found by its private mount namespace, in which
//! the lab mounted a file system with a unique name.

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use vsteer_core::{Fault, FaultKind};

/// One process of this boot, never another one with the same pid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ProcessId {
    /// The process number.
    pub pid: i32,
    /// Start time, ticks since boot.
    pub start_ticks: u64,
}

impl ProcessId {
    /// The process that has `pid` now. `None` if there is none, or if only its exit status remains.
    pub fn of(pid: i32) -> Option<ProcessId> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let (state, start_ticks) = parse_stat(&stat)?;
        (!matches!(state, 'Z' | 'X')).then_some(ProcessId { pid, start_ticks })
    }

    /// Does it still run?
    pub fn is_alive(&self) -> bool {
        ProcessId::of(self.pid) == Some(*self)
    }

    /// Sends `signal` if it still runs; returns whether it did.
    fn signal(&self, signal: Signal) -> bool {
        let Some(pid) = Pid::from_raw(self.pid) else { return false };
        let Ok(fd) = pidfd_open(pid, PidfdFlags::empty()) else { return false };
        self.is_alive() && pidfd_send_signal(fd, signal).is_ok()
    }
}

/// A program that ends when this value is dropped.
pub struct Ends(pub Child);

impl Ends {
    /// Starts it with nothing to read.
    ///
    /// # Errors
    /// As the system says.
    pub fn start(command: &mut Command) -> Result<Ends, Fault> {
        let child = command.stdin(Stdio::null()).spawn();
        child.map(Ends).map_err(|e| Fault::io(format!("starting {:?}", command.get_program()), &e))
    }

    /// Its pid.
    pub fn pid(&self) -> i32 {
        self.0.id().cast_signed()
    }
}

impl Drop for Ends {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// CPU time of all of a process's threads so far, ns.
///
/// # Errors
/// There is no such process.
pub fn cpu_ns(pid: i32) -> Result<f64, Fault> {
    Ok(schedstat_ns(pid, 0)?.values().sum())
}

/// How long each of a process's threads was ready but did not run so far, ns.
///
/// # Errors
/// The process has ended.
pub fn waited_ns(pid: i32) -> Result<BTreeMap<i32, f64>, Fault> {
    schedstat_ns(pid, 1)
}

/// The field of every thread's schedstat (Linux, Documentation/scheduler/sched-stats.rst).
///
/// # Errors
/// The process has ended.
pub fn schedstat_ns(pid: i32, field: usize) -> Result<BTreeMap<i32, f64>, Fault> {
    let folder = format!("/proc/{pid}/task");
    let read = std::fs::read_dir(&folder).map_err(|e| Fault::io(format!("reading {folder}"), &e))?;
    let of = |entry: std::fs::DirEntry| -> Option<(i32, f64)> {
        let text = std::fs::read_to_string(entry.path().join("schedstat")).ok()?;
        let value = text.split_ascii_whitespace().nth(field)?.parse().ok()?;
        Some((entry.file_name().to_str()?.parse().ok()?, value))
    };
    Ok(read.flatten().filter_map(of).collect())
}

/// Time of this machine's pCPUs so far, ns: the sum of `fields` of the line of /proc/stat that starts with
/// `begins` (`man 5 proc`).
fn stat_ns(begins: &str, fields: &[usize]) -> Result<f64, Fault> {
    /// USER_HZ: the unit of /proc/stat on every architecture that Linux and the lab share.
    const TICK_NS: f64 = 1e7;
    let text = std::fs::read_to_string("/proc/stat").map_err(|e| Fault::io("reading /proc/stat", &e))?;
    let line = text.lines().find(|l| l.split_ascii_whitespace().next() == Some(begins));
    let ticks: Vec<f64> = line.unwrap_or("").split_ascii_whitespace().skip(1).flat_map(str::parse).collect();
    let sum: Option<f64> = fields.iter().map(|field| ticks.get(*field)).sum();
    sum.map(|ticks| TICK_NS * ticks).ok_or_else(|| Fault::new(FaultKind::BadInput, "/proc/stat"))
}

/// Time in which this machine's pCPUs were ready but did not run, as its own kernel counts it, ns.
///
/// # Errors
/// /proc/stat cannot be read.
pub fn stolen_ns() -> Result<f64, Fault> {
    stat_ns("cpu", &[7])
}

/// Time in which they ran anything, ns.
///
/// # Errors
/// As [`stolen_ns`].
pub fn busy_ns() -> Result<f64, Fault> {
    stat_ns("cpu", BUSY)
}

/// user, nice, system, irq, softirq
const BUSY: &[usize] = &[0, 1, 2, 5, 6];

/// Time in which this pCPU ran anything, ns.
///
/// # Errors
/// As [`stolen_ns`]; the pCPU does not exist.
pub fn busy_on_ns(pcpu: usize) -> Result<f64, Fault> {
    stat_ns(&format!("cpu{pcpu}"), BUSY)
}

/// The state letter and the start time from the text of `/proc/PID/stat`. The name in parentheses may contain
/// anything, even parentheses and spaces, so fields are counted from the last parenthesis.
fn parse_stat(stat: &str) -> Option<(char, u64)> {
    let fields: Vec<&str> = stat.get(stat.rfind(')')? + 1..)?.split_whitespace().collect();
    // `fields[0]` is field 3, the state; field 22 is the start time.
    Some((fields.first()?.chars().next()?, fields.get(22 - 3)?.parse().ok()?))
}

/// Ends processes: SIGTERM, then SIGKILL for those that remain after `grace`.
///
/// # Errors
/// If one survives SIGKILL by 5 s (it hangs in the kernel); the fault names it.
pub fn end(processes: &[ProcessId], grace: Duration) -> Result<(), Fault> {
    for (signal, limit) in [(Signal::TERM, grace), (Signal::KILL, Duration::from_secs(5))] {
        let mut alive: Vec<&ProcessId> = processes.iter().filter(|p| p.signal(signal)).collect();
        let begun = Instant::now();
        while !alive.is_empty() && begun.elapsed() < limit {
            std::thread::sleep(Duration::from_millis(10));
            alive.retain(|p| p.is_alive());
        }
    }
    match processes.iter().find(|p| p.is_alive()) {
        None => Ok(()),
        Some(p) => Err(Fault::new(FaultKind::Failed, format!("process {} survives SIGKILL", p.pid))
            .help("it hangs in the kernel: look at /proc/PID/stack, then run `vsteer-lab down` again")),
    }
}

/// Every process whose mount namespace has a mount named `source` (the first word in the output of `mount`).
pub fn with_mount_source(source: &str) -> BTreeSet<ProcessId> {
    all().filter(|&pid| mounts_of(pid).iter().any(|m| m.source == source)).filter_map(ProcessId::of).collect()
}

/// Is something mounted at `target` in the mount namespace of any process?
pub fn is_mounted_over(target: &Path) -> bool {
    all().any(|pid| mounts_of(pid).iter().any(|m| Path::new(&m.target) == target))
}

/// Every process in the cgroup folder `folder` or below.
pub fn in_cgroup(folder: &Path) -> BTreeSet<ProcessId> {
    let mut found = BTreeSet::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        if let Ok(text) = std::fs::read_to_string(folder.join("cgroup.procs")) {
            found.extend(text.lines().filter_map(|l| l.parse().ok()).filter_map(ProcessId::of));
        }
        folders.extend(subfolders(&folder));
    }
    found
}

/// The folders directly below `folder`; none if it cannot be read.
pub fn subfolders(folder: &Path) -> Vec<std::path::PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    entries.flatten().filter(|e| e.file_type().is_ok_and(|t| t.is_dir())).map(|e| e.path()).collect()
}

/// One line of `/proc/PID/mountinfo`.
#[derive(Debug, PartialEq, Eq)]
pub struct Mount {
    /// Where it is mounted.
    pub target: String,
    /// The kind of file system.
    pub kind: String,
    /// The mounted thing, with the name given at the mount.
    pub source: String,
    /// The options of the file system; for a version 1 cgroup, its controllers.
    pub options: String,
}

/// The mounts that process `pid` sees; none if it is gone.
pub fn mounts_of(pid: i32) -> Vec<Mount> {
    std::fs::read_to_string(format!("/proc/{pid}/mountinfo")).map(|t| parse_mounts(&t)).unwrap_or_default()
}

/// Parses the text of a mountinfo file (`man 5 proc_pid_mountinfo`).
pub fn parse_mounts(text: &str) -> Vec<Mount> {
    let parse = |line: &str| {
        let (before, after) = line.split_once(" - ")?;
        let mut after = after.split(' ');
        Some(Mount {
            target: before.split(' ').nth(4)?.replace("\\040", " "),
            kind: after.next()?.to_owned(),
            source: after.next()?.to_owned(),
            options: after.next()?.to_owned(),
        })
    };
    text.lines().filter_map(parse).collect()
}

fn all() -> impl Iterator<Item = i32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|e| e.file_name().to_str()?.parse().ok())
}

/// The identity of this boot; pids and start times mean nothing in another one.
pub fn boot_id() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_name_with_parentheses_and_spaces() {
        let stat = "77 (a) b (c) S 1 77 77 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 98765 0 0";
        assert_eq!(parse_stat(stat), Some(('S', 98765)));
        assert_eq!(parse_stat("77 (short) S 1"), None);
    }

    #[test]
    fn a_recycled_pid_is_another_process_and_is_spared() {
        let mut child = Command::new("sleep").arg("30").spawn().unwrap();
        let now = ProcessId::of(child.id() as i32).unwrap();
        let before = ProcessId { start_ticks: now.start_ticks - 1, ..now };
        assert!(now.is_alive() && !before.is_alive());
        end(&[before], Duration::from_millis(50)).unwrap();
        assert!(now.is_alive(), "the process with the same pid but another start was ended");
        end(&[now], Duration::from_secs(5)).unwrap();
        assert!(!now.is_alive());
        child.wait().unwrap();
    }

    #[test]
    fn one_that_ignores_sigterm_is_killed() {
        let mut child =
            Command::new("sh").args(["-c", "trap '' TERM; sleep 30 & wait; wait"]).spawn().unwrap();
        let id = ProcessId::of(child.id() as i32).unwrap();
        std::thread::sleep(Duration::from_millis(100));
        let below: Vec<ProcessId> =
            all().filter_map(ProcessId::of).filter(|p| parent_is(p.pid, id.pid)).collect();
        end(&[id], Duration::from_millis(200)).unwrap();
        assert!(!id.is_alive());
        child.wait().unwrap();
        end(&below, Duration::from_millis(50)).unwrap();
    }

    fn parent_is(pid: i32, parent: i32) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit(')').next().and_then(|t| t.split_whitespace().nth(1)?.parse().ok()) == Some(parent)
    }

    #[test]
    fn mountinfo() {
        let text = "25 1 0:22 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct\n\
                    99 1 0:41 / /a\\040b rw - tmpfs vsteer-lab:12 rw,size=4k\nnonsense\n";
        let mounts = parse_mounts(text);
        assert_eq!(mounts.len(), 2);
        assert_eq!((mounts[0].kind.as_str(), mounts[0].options.as_str()), ("cgroup", "rw,cpu,cpuacct"));
        assert_eq!((mounts[1].target.as_str(), mounts[1].source.as_str()), ("/a b", "vsteer-lab:12"));
    }
}
