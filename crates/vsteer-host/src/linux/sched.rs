//! Changes a thread's affinity and scheduling class: `sched_setaffinity`, `sched_setscheduler`,
//! `setpriority`. Reads its cookie of core scheduling.
//!
//! Source: `man 7 sched`, `kernel/sched/syscalls.c` (Linux 6.12). vsteer sets real-time classes with
//! `SCHED_RESET_ON_FORK`, so a thread that QEMU creates in the meantime starts in the normal class. Otherwise
//! undoing the change would leave that thread in a real-time class.
//!
//! Left out: `SCHED_DEADLINE` (its three parameters are not in a plan), and CPUs beyond number 1,023.

use rustix::io::Errno;
use rustix::process::Pid;
use vsteer_core::CpuSet;
use vsteer_core::nouns::{SchedClass, Tid};

/// Lets a thread run only on `cpus` (within its cgroup's cpuset).
///
/// # Errors
/// The kernel's: ESRCH if the thread is gone, EINVAL if its cpuset allows none of them, EPERM.
pub fn set_affinity(tid: Tid, cpus: &CpuSet) -> Result<(), Errno> {
    let mut mask = rustix::thread::CpuSet::new();
    for cpu in cpus.iter() {
        if cpu as usize >= rustix::thread::CpuSet::MAX_CPU {
            return Err(Errno::INVAL);
        }
        mask.set(cpu as usize);
    }
    rustix::thread::sched_setaffinity(Some(pid(tid)?), &mask)
}

/// Puts a thread into a scheduling class.
///
/// # Errors
/// The kernel's: ESRCH if the thread is gone; EPERM without CAP_SYS_NICE, or if its cgroup has no real-time
/// budget; EINVAL for a class or priority that this kernel does not have, and for `Deadline`.
pub fn set_class(tid: Tid, class: SchedClass) -> Result<(), Errno> {
    const BATCH: i32 = 3;
    const IDLE: i32 = 5;
    const EXT: i32 = 7;
    const RESET_ON_FORK: i32 = 0x4000_0000;
    let (policy, priority, nice) = match class {
        SchedClass::Other(nice) => (libc::SCHED_OTHER, 0, Some(nice)),
        SchedClass::Batch(nice) => (BATCH, 0, Some(nice)),
        SchedClass::Idle => (IDLE, 0, None),
        SchedClass::Ext => (EXT, 0, None),
        SchedClass::Fifo(p) => (libc::SCHED_FIFO | RESET_ON_FORK, i32::from(p), None),
        SchedClass::RoundRobin(p) => (libc::SCHED_RR | RESET_ON_FORK, i32::from(p), None),
        SchedClass::Deadline => return Err(Errno::INVAL),
    };
    set_scheduler(pid(tid)?, policy, priority)?;
    match nice {
        Some(nice) => rustix::process::setpriority_process(Some(pid(tid)?), i32::from(nice)),
        None => Ok(()),
    }
}

/// The thread's cookie of core scheduling: only threads with the same one run on one core at a time. 0: it has none.
///
/// # Errors
/// The kernel's: ESRCH if the thread is gone, EINVAL without `CONFIG_SCHED_CORE`, ENODEV without SMT, EPERM.
pub fn core_cookie(tid: Tid) -> Result<u64, Errno> {
    rustix::thread::core_scheduling_cookie(pid(tid)?, rustix::thread::CoreSchedulingScope::Thread)
}

/// Refuses tid 0, which would mean the caller itself.
fn pid(tid: Tid) -> Result<Pid, Errno> {
    i32::try_from(tid.0).ok().and_then(Pid::from_raw).ok_or(Errno::SRCH)
}

/// The one system call that rustix lacks.
#[allow(unsafe_code)]
fn set_scheduler(who: Pid, policy: i32, priority: i32) -> Result<(), Errno> {
    let parameters = libc::sched_param { sched_priority: priority };
    // SAFETY: the kernel reads one sched_param through a valid pointer and does not keep the pointer.
    let done = unsafe { libc::sched_setscheduler(who.as_raw_nonzero().get(), policy, &raw const parameters) };
    if done == 0 {
        Ok(())
    } else {
        Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::INVAL))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linux::task;
    use crate::root::Root;

    #[test]
    fn a_thread_is_moved_and_moved_back() {
        let root = Root::live().unwrap();
        // Each test has its own thread, so the change affects no other test.
        let me = Tid(rustix::thread::gettid().as_raw_nonzero().get() as u32);
        let before = task::affinity(&root, std::process::id(), me).unwrap();
        let first = CpuSet::single(before.iter().next().unwrap());
        set_affinity(me, &first).unwrap();
        assert_eq!(task::affinity(&root, std::process::id(), me).unwrap(), first);
        set_affinity(me, &before).unwrap();
        assert_eq!(task::affinity(&root, std::process::id(), me).unwrap(), before);
        assert_eq!(set_affinity(me, &CpuSet::new()), Err(Errno::INVAL));
        assert_eq!(set_affinity(Tid(0), &first), Err(Errno::SRCH));
        assert_eq!(set_affinity(me, &CpuSet::single(5000)), Err(Errno::INVAL));
    }

    #[test]
    fn classes_without_privilege_are_set_and_read_back() {
        let root = Root::live().unwrap();
        let me = Tid(rustix::thread::gettid().as_raw_nonzero().get() as u32);
        let class = || task::read_stat(&root, std::process::id(), me).unwrap().class();
        let SchedClass::Other(nice) = class().unwrap() else { return };
        set_class(me, SchedClass::Batch(nice)).unwrap();
        assert_eq!(class(), Some(SchedClass::Batch(nice)));
        set_class(me, SchedClass::Other(nice)).unwrap();
        assert_eq!(class(), Some(SchedClass::Other(nice)));
        assert_eq!(set_class(me, SchedClass::Deadline), Err(Errno::INVAL));
        assert_eq!(set_class(me, SchedClass::Fifo(100)), Err(Errno::INVAL));
    }
}
