//! Reads a thread's properties: its name, scheduling class and affinity, from `/proc/PID/task/TID` and
//! `sched_getaffinity`.
//!
//! Source: `man 5 proc` (stat), `fs/proc/array.c`, Linux 6.12. The name in `stat` may contain any character,
//! even closing brackets, so vsteer counts the fields from the last bracket.
//!
//! Left out: more than 1,024 CPUs through the system call (then vsteer uses the `status` file).

use super::files::cpu_list;
use crate::root::Root;
use rustix::process::Pid;
use vsteer_core::CpuSet;
use vsteer_core::nouns::{SchedClass, Tid};

/// The fields of a `stat` file that matter here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stat {
    /// The name (`comm`), at most 15 bytes.
    pub comm: String,
    /// `R`, `S`, `Z`, …
    pub state: char,
    /// The parent process.
    pub parent: u32,
    /// The kernel's flags of the task (`PF_*`).
    pub flags: u64,
    /// Nice level.
    pub nice: i8,
    /// Start time in clock ticks since boot. Together with the pid, it identifies the process.
    pub start_ticks: u64,
    /// The pCPU it ran on last.
    pub last_cpu: u32,
    /// Real-time priority; 0 outside the real-time classes.
    pub rt_priority: u8,
    /// The policy's number (`SCHED_*`).
    pub policy: u32,
}

impl Stat {
    /// The scheduling class; `None` for an unknown policy number.
    pub fn class(&self) -> Option<SchedClass> {
        Some(match self.policy {
            0 => SchedClass::Other(self.nice),
            1 => SchedClass::Fifo(self.rt_priority),
            2 => SchedClass::RoundRobin(self.rt_priority),
            3 => SchedClass::Batch(self.nice),
            5 => SchedClass::Idle,
            6 => SchedClass::Deadline,
            7 => SchedClass::Ext,
            _ => return None,
        })
    }

    /// Is it a kernel thread?
    pub fn is_kernels(&self) -> bool {
        const PF_KTHREAD: u64 = 0x0020_0000;
        self.flags & PF_KTHREAD != 0
    }

    /// Has it ended, and waits only for its parent to collect it?
    pub fn is_dead(&self) -> bool {
        matches!(self.state, 'Z' | 'X' | 'x')
    }
}

/// Reads a `stat` file.
///
/// # Errors
/// What is wrong with the text.
pub fn stat(text: &str) -> Result<Stat, String> {
    let bad = || "not a thread's stat file".to_owned();
    let (head, tail) = text.rsplit_once(')').ok_or_else(bad)?;
    let comm = head.split_once('(').ok_or_else(bad)?.1.to_owned();
    // Field 3 of the manual page is the first after the name.
    let fields: Vec<&str> = tail.split_ascii_whitespace().collect();
    let field = |number: usize| fields.get(number - 3).copied().ok_or_else(bad);
    fn value<T: std::str::FromStr>(text: &str) -> Result<T, String> {
        text.parse().map_err(|_| format!("stat file: `{text}` is not a number"))
    }
    Ok(Stat {
        comm,
        state: field(3)?.chars().next().ok_or_else(bad)?,
        parent: value(field(4)?)?,
        flags: value(field(9)?)?,
        nice: value(field(19)?)?,
        start_ticks: value(field(22)?)?,
        last_cpu: value(field(39)?)?,
        rt_priority: value(field(40)?)?,
        policy: value(field(41)?)?,
    })
}

/// The stat of a thread (or of a process, with `tid` = `pid`); `None` if it is gone.
pub fn read_stat(root: &Root, pid: u32, tid: Tid) -> Option<Stat> {
    stat(&text(root, &format!("/proc/{pid}/task/{}/stat", tid.0))?).ok()
}

/// The threads of a process, ascending; empty if it is gone.
pub fn threads(root: &Root, pid: u32) -> Vec<Tid> {
    let names = root.names(&format!("/proc/{pid}/task")).unwrap_or_default();
    let mut tids: Vec<Tid> = names.iter().filter_map(|n| n.parse().ok().map(Tid)).collect();
    tids.sort_unstable();
    tids
}

/// The CPUs on which a thread may run, from pins and cgroup cpusets together. `None` if it is gone.
pub fn affinity(root: &Root, pid: u32, tid: Tid) -> Option<CpuSet> {
    if root.is_live()
        && let Some(who) = Pid::from_raw(tid.0 as i32)
        && let Ok(mask) = rustix::thread::sched_getaffinity(Some(who))
    {
        let cpus = (0..rustix::thread::CpuSet::MAX_CPU).filter(|c| mask.is_set(*c)).map(|c| c as u32);
        // Not the thousand others that there may be: thousands of threads are asked.
        return Some(cpus.take(mask.count() as usize).collect());
    }
    allowed_list(&text(root, &format!("/proc/{pid}/task/{}/status", tid.0))?)
}

/// The effective user id of a process; `None` if it is gone.
pub fn user(root: &Root, pid: u32) -> Option<u32> {
    user_of(&text(root, &format!("/proc/{pid}/status"))?)
}

/// Can this user be a person? Debian and its relatives give people the numbers from 1,000 on, and services those below.
/// systemd-homed has its own range. 65534 is nobody. libvirt's own user is 64055 on Debian.
pub fn may_be_a_persons(user: u32) -> bool {
    (1000..60_000).contains(&user) || (60_001..60_514).contains(&user) || user >= 65_534
}

/// The number of a user: a number, or a name in `/etc/passwd`.
pub fn user_called(root: &Root, name: &str) -> Option<u32> {
    if let Ok(number) = name.parse() {
        return Some(number);
    }
    let users = text(root, "/etc/passwd")?;
    users.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(':')?.split(':').nth(1)?.parse().ok())
}

/// The effective user in a text of `/proc/PID/status`.
fn user_of(status: &str) -> Option<u32> {
    let ids = status.lines().find_map(|l| l.strip_prefix("Uid:"))?;
    ids.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// `Cpus_allowed_list` of a `status` file.
pub fn allowed_list(status: &str) -> Option<CpuSet> {
    cpu_list(status.lines().find_map(|l| l.strip_prefix("Cpus_allowed_list:"))?.trim()).ok()
}

/// A file's text, with bytes that are not UTF-8 replaced; `None` if it cannot be read.
pub(crate) fn text(root: &Root, path: &str) -> Option<String> {
    root.bytes(path).ok().map(|b| String::from_utf8_lossy(&b).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const STAT: &str = "26130 (CPU 0/TCG) R 1 26130 26130 0 -1 138412416 3 0 0 0 101 2 0 0 -2 -5 9 0 253021 \
        1590775808 49728 18446744073709551615 1 1 0 0 0 0 268444224 4096 1073786367 0 0 0 -1 1 7 2 0 0 0 0 0 0 0";

    #[test]
    fn a_thread_is_read_whatever_its_name() {
        for name in ["CPU 0/TCG", "a) R 1 (b", "((", ""] {
            let s = stat(&STAT.replace("CPU 0/TCG", name)).unwrap();
            assert_eq!((s.comm.as_str(), s.nice, s.start_ticks, s.last_cpu), (name, -5, 253_021, 1));
            assert_eq!(s.class(), Some(SchedClass::RoundRobin(7)));
            assert!(!s.is_kernels());
        }
        // kthreadd and kvm-nx-lpage-re both have these flags on Linux 6.18.
        assert!(stat(&STAT.replace("138412416", "2129984")).unwrap().is_kernels());
        assert!(stat("1 (x) R 1 2").is_err() && stat("").is_err());
    }

    #[test]
    fn this_thread_is_read() {
        let root = Root::live().unwrap();
        let pid = std::process::id();
        let me = Tid(rustix::thread::gettid().as_raw_nonzero().get() as u32);
        assert!(threads(&root, pid).contains(&me));
        let stat = read_stat(&root, pid, me).unwrap();
        assert!(matches!(stat.class(), Some(SchedClass::Other(_) | SchedClass::Batch(_))), "{stat:?}");
        let status = text(&root, &format!("/proc/{pid}/task/{}/status", me.0)).unwrap();
        assert_eq!(affinity(&root, pid, me), allowed_list(&status));
        assert_eq!(affinity(&root, u32::MAX, Tid(i32::MAX as u32)), None);
        assert_eq!(user(&root, pid), Some(rustix::process::geteuid().as_raw()));
        assert_eq!((user_called(&root, "107"), user_called(&root, "root")), (Some(107), Some(0)));
        assert_eq!(user_of("Name:\tx\nUid:\t1\t2\t3\t4\n"), Some(2));
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(s in "\\PC{0,80}", cut in 0usize..260) {
            let _ = (stat(&s), allowed_list(&s), allowed_list(&format!("Cpus_allowed_list:{s}")));
            let _ = stat(&STAT[..cut.min(STAT.len())]);
        }
    }
}
