//! The functions with which a program waits for a time: each tells the host when the wait ends, then does what it
//! always did.
//!
//! Times come in four forms: a span or a moment, of one clock or another. Only the attributes of a condition variable
//! tell the clock of its moments. So vsteer assumes the clock by which the moment is ahead, by less than a day.

#![allow(unsafe_code)]

use crate::armed::{self, Which};
use crate::{clock_ns, real, waits};
use libc::{
    CLOCK_MONOTONIC, CLOCK_REALTIME, c_int, c_long, c_uint, c_void, clockid_t, epoll_event, fd_set,
    itimerspec, itimerval, nfds_t, pollfd, pthread_cond_t, pthread_mutex_t, sem_t, sigset_t, size_t, ssize_t,
    timer_t, timespec, timeval, useconds_t,
};

const SECOND_NS: u64 = 1_000_000_000;
const DAY_NS: u64 = 86_400 * SECOND_NS;

fn span_ns(time: &timespec) -> u64 {
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds.saturating_mul(SECOND_NS).saturating_add(u64::try_from(time.tv_nsec).unwrap_or(0))
}

/// # Safety
/// It is null, or points to a time.
unsafe fn span(time: *const timespec) -> Option<u64> {
    // SAFETY: the caller's.
    unsafe { time.as_ref() }.map(span_ns)
}

/// How long until a moment of a clock.
///
/// # Safety
/// As [`span`].
unsafe fn until(clock: clockid_t, time: *const timespec) -> Option<u64> {
    // SAFETY: the caller's.
    unsafe { span(time) }.map(|at| at.saturating_sub(clock_ns(clock)))
}

/// The same for an unknown clock.
///
/// # Safety
/// As [`span`].
unsafe fn until_by_some_clock(time: *const timespec) -> Option<u64> {
    // SAFETY: the caller's.
    let ahead = |clock| unsafe { until(clock, time) }.filter(|ns| (1..DAY_NS).contains(ns));
    ahead(CLOCK_REALTIME).or_else(|| ahead(CLOCK_MONOTONIC))
}

/// Milliseconds as in `poll`; below 0 the wait has no end.
fn ms(ms: c_int) -> Option<u64> {
    u64::try_from(ms).ok().map(|ms| ms * 1_000_000)
}

fn timeval_ns(time: &timeval) -> u64 {
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds
        .saturating_mul(SECOND_NS)
        .saturating_add(u64::try_from(time.tv_usec).unwrap_or(0).saturating_mul(1_000))
}

/// Notes the new setting of a timer, as the kernel reports it, and tells the host when the timer ends.
fn was_set(which: Which, left: &itimerspec) {
    let now_ns = clock_ns(CLOCK_MONOTONIC);
    armed::set(which, now_ns, span_ns(&left.it_value), span_ns(&left.it_interval));
    waits(None);
}

/// A timer that sends signals, by its number in the kernel.
fn signal(timer: timer_t) -> Which {
    Which::Signal(timer as usize)
}

macro_rules! taken_over {
    ($(fn $name:ident($($argument:ident: $kind:ty),*) -> $result:ty { $before:expr })*) => {$(
        /// Tells the host when the wait ends, and waits.
        ///
        /// # Safety
        /// As the C library's function of this name.
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub unsafe extern "C" fn $name($($argument: $kind),*) -> $result {
            // SAFETY: arguments are the caller's, and valid as they must be for the function itself.
            #[allow(unused_unsafe, reason = "some look at numbers alone")]
            waits(unsafe { $before });
            // SAFETY: the caller's.
            unsafe { real::$name($($argument),*) }
        }
    )*};
}

taken_over! {
    fn nanosleep(time: *const timespec, left: *mut timespec) -> c_int { span(time) }
    fn clock_nanosleep(clock: clockid_t, flags: c_int, time: *const timespec, left: *mut timespec) -> c_int {
        if flags & libc::TIMER_ABSTIME != 0 { until(clock, time) } else { span(time) }
    }
    fn usleep(us: useconds_t) -> c_int { Some(u64::from(us) * 1_000) }
    fn sleep(seconds: c_uint) -> c_uint { Some(u64::from(seconds) * SECOND_NS) }
    fn poll(fds: *mut pollfd, n: nfds_t, timeout: c_int) -> c_int { ms(timeout) }
    fn ppoll(fds: *mut pollfd, n: nfds_t, time: *const timespec, mask: *const sigset_t) -> c_int { span(time) }
    fn select(n: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set, time: *mut timeval) -> c_int {
        time.as_ref().map(timeval_ns)
    }
    fn pselect(n: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set, time: *const timespec, mask: *const sigset_t) -> c_int {
        span(time)
    }
    fn epoll_wait(fd: c_int, events: *mut epoll_event, most: c_int, timeout: c_int) -> c_int { ms(timeout) }
    fn epoll_pwait(fd: c_int, events: *mut epoll_event, most: c_int, timeout: c_int, mask: *const sigset_t) -> c_int {
        ms(timeout)
    }
    fn epoll_pwait2(fd: c_int, events: *mut epoll_event, most: c_int, time: *const timespec, mask: *const sigset_t) -> c_int {
        span(time)
    }
    fn pthread_cond_timedwait(cond: *mut pthread_cond_t, mutex: *mut pthread_mutex_t, time: *const timespec) -> c_int {
        until_by_some_clock(time)
    }
    fn pthread_cond_clockwait(cond: *mut pthread_cond_t, mutex: *mut pthread_mutex_t, clock: clockid_t, time: *const timespec) -> c_int {
        until(clock, time)
    }
    fn pthread_mutex_timedlock(mutex: *mut pthread_mutex_t, time: *const timespec) -> c_int { until(CLOCK_REALTIME, time) }
    fn sem_timedwait(sem: *mut sem_t, time: *const timespec) -> c_int { until(CLOCK_REALTIME, time) }
    fn sem_clockwait(sem: *mut sem_t, clock: clockid_t, time: *const timespec) -> c_int { until(clock, time) }
}

/// Sets a timer of a file descriptor, and tells the host when it ends.
///
/// # Safety
/// As the C library's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn timerfd_settime(
    fd: c_int,
    flags: c_int,
    new: *const itimerspec,
    old: *mut itimerspec,
) -> c_int {
    // SAFETY: the caller's.
    let done = unsafe { real::timerfd_settime(fd, flags, new, old) };
    // SAFETY: the kernel writes through a valid pointer.
    let mut left: itimerspec = unsafe { std::mem::zeroed() };
    if done == 0 && unsafe { libc::timerfd_gettime(fd, &raw mut left) } == 0 {
        was_set(Which::Fd(fd), &left);
    }
    done
}

/// Sets a timer that sends a signal, and tells the host when it ends.
///
/// # Safety
/// As the C library's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn timer_settime(
    timer: timer_t,
    flags: c_int,
    new: *const itimerspec,
    old: *mut itimerspec,
) -> c_int {
    // SAFETY: the caller's.
    let done = unsafe { real::timer_settime(timer, flags, new, old) };
    // SAFETY: the kernel writes through a valid pointer.
    let mut left: itimerspec = unsafe { std::mem::zeroed() };
    if done == 0 && unsafe { libc::timer_gettime(timer, &raw mut left) } == 0 {
        was_set(signal(timer), &left);
    }
    done
}

/// Deletes a timer, which then has no end.
///
/// # Safety
/// As the C library's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn timer_delete(timer: timer_t) -> c_int {
    armed::forget(signal(timer));
    // SAFETY: the caller's.
    unsafe { real::timer_delete(timer) }
}

/// Sets the process's interval timer, and tells the host when it ends.
///
/// # Safety
/// As the C library's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn setitimer(which: c_int, new: *const itimerval, old: *mut itimerval) -> c_int {
    // SAFETY: the caller's.
    let done = unsafe { real::setitimer(which, new, old) };
    // The other two count CPU time.
    if done == 0
        && which == libc::ITIMER_REAL
        // SAFETY: the kernel has just read it.
        && let Some(new) = unsafe { new.as_ref() }
    {
        let now_ns = clock_ns(CLOCK_MONOTONIC);
        armed::set(Which::Interval, now_ns, timeval_ns(&new.it_value), timeval_ns(&new.it_interval));
        waits(None);
    }
    done
}

/// The same timer, in seconds.
///
/// # Safety
/// As the C library's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn alarm(seconds: c_uint) -> c_uint {
    armed::set(Which::Interval, clock_ns(CLOCK_MONOTONIC), u64::from(seconds) * SECOND_NS, 0);
    waits(None);
    // SAFETY: none of the arguments is a pointer.
    unsafe { real::alarm(seconds) }
}

/// A program that reads from a timer waits for it.
///
/// # Safety
/// As the C library's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn read(fd: c_int, bytes: *mut c_void, n: size_t) -> ssize_t {
    if n == size_of::<u64>() {
        let now_ns = clock_ns(CLOCK_MONOTONIC);
        if let Some(end_ns) = armed::end_ns(Which::Fd(fd), now_ns) {
            waits(Some(end_ns - now_ns));
        }
    }
    // SAFETY: the caller's.
    unsafe { real::read(fd, bytes, n) }
}

/// A closed descriptor is no longer a timer.
///
/// # Safety
/// As the C library's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn close(fd: c_int) -> c_int {
    armed::forget(Which::Fd(fd));
    // SAFETY: the caller's.
    unsafe { real::close(fd) }
}

/// What a call of `futex` waits for, according to its arguments: a span if it waits for a value, else a moment.
///
/// # Safety
/// The fourth argument of one that waits is null or points to a time.
unsafe fn futex_waits(operation: c_long, time: c_long) -> Option<u64> {
    const WAIT: c_long = 0;
    const LOCK_PI: c_long = 6;
    const WAIT_BITSET: c_long = 9;
    const WAIT_REQUEUE_PI: c_long = 11;
    const COMMAND: c_long = 0x7f;
    const BY_REALTIME: c_long = 256;
    let time = time as *const timespec;
    let clock = if operation & BY_REALTIME != 0 { CLOCK_REALTIME } else { CLOCK_MONOTONIC };
    // SAFETY: the caller's.
    match operation & COMMAND {
        WAIT => unsafe { span(time) },
        LOCK_PI => unsafe { until(CLOCK_REALTIME, time) },
        WAIT_BITSET | WAIT_REQUEUE_PI => unsafe { until(clock, time) },
        _ => None,
    }
}

/// A system call by number: Rust's own waits are such calls of `futex`. In C it takes as many arguments as the call.
/// The callee finds the first seven in these places, meaningful or not (System V ABI, AMD64 supplement, 3.2.3).
///
/// # Safety
/// As the C library's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn syscall(
    number: c_long,
    a: c_long,
    b: c_long,
    c: c_long,
    d: c_long,
    e: c_long,
    f: c_long,
) -> c_long {
    if number == libc::SYS_futex && d != 0 {
        // SAFETY: the caller's.
        if let Some(ns) = unsafe { futex_waits(b, d) } {
            waits(Some(ns));
        }
    }
    // SAFETY: the caller's.
    unsafe { real::syscall(number, a, b, c, d, e, f) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_and_moments() {
        let time = timespec { tv_sec: 2, tv_nsec: 5 };
        assert_eq!(span_ns(&time), 2_000_000_005);
        assert_eq!(span_ns(&timespec { tv_sec: -1, tv_nsec: -5 }), 0);
        assert_eq!(timeval_ns(&timeval { tv_sec: 1, tv_usec: 2 }), 1_000_002_000);
        assert_eq!((ms(-1), ms(3)), (None, Some(3_000_000)));
        // SAFETY: null, or a time that lives.
        unsafe {
            assert_eq!((span(std::ptr::null()), until(CLOCK_REALTIME, &raw const time)), (None, Some(0)));
            assert_eq!(futex_waits(128, (&raw const time) as c_long), Some(2_000_000_005));
            // A wake-up does not wait.
            assert_eq!(futex_waits(129, (&raw const time) as c_long), None);
            let soon = clock_ns(CLOCK_MONOTONIC) + SECOND_NS;
            let soon = timespec { tv_sec: (soon / SECOND_NS) as i64, tv_nsec: (soon % SECOND_NS) as i64 };
            let ahead = until_by_some_clock(&raw const soon).unwrap();
            assert!((SECOND_NS / 2..=SECOND_NS).contains(&ahead), "{ahead}");
        }
    }
}
