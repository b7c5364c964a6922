//! The C library's own functions that [`super::calls`] replaces.

#![allow(unsafe_code)]

use libc::{
    c_int, c_long, c_uint, c_void, clockid_t, epoll_event, fd_set, itimerspec, itimerval, nfds_t, pollfd,
    pthread_cond_t, pthread_mutex_t, sem_t, sigset_t, size_t, ssize_t, timer_t, timespec, timeval,
    useconds_t,
};
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

macro_rules! real {
    ($(fn $name:ident($($argument:ident: $kind:ty),*) -> $result:ty;)*) => {$(
        /// The C library's own.
        ///
        /// # Safety
        /// As that function.
        pub unsafe fn $name($($argument: $kind),*) -> $result {
            static FOUND: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
            let mut found = FOUND.load(Relaxed);
            if found.is_null() {
                let name = concat!(stringify!($name), "\0");
                // SAFETY: the name ends in a zero. A program that calls this function has a C library that has it.
                found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr().cast()) };
                if found.is_null() {
                    // SAFETY: ends the process.
                    unsafe { libc::abort() }
                }
                FOUND.store(found, Relaxed);
            }
            // SAFETY: a function of this name has these arguments (POSIX, man pages of sections 2 and 3).
            let function: unsafe extern "C" fn($($kind),*) -> $result = unsafe { std::mem::transmute(found) };
            // SAFETY: the caller's.
            unsafe { function($($argument),*) }
        }
    )*};
}

real! {
    fn nanosleep(time: *const timespec, left: *mut timespec) -> c_int;
    fn clock_nanosleep(clock: clockid_t, flags: c_int, time: *const timespec, left: *mut timespec) -> c_int;
    fn usleep(us: useconds_t) -> c_int;
    fn sleep(seconds: c_uint) -> c_uint;
    fn poll(fds: *mut pollfd, n: nfds_t, ms: c_int) -> c_int;
    fn ppoll(fds: *mut pollfd, n: nfds_t, time: *const timespec, mask: *const sigset_t) -> c_int;
    fn select(n: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set, time: *mut timeval) -> c_int;
    fn pselect(n: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set, time: *const timespec, mask: *const sigset_t) -> c_int;
    fn epoll_wait(fd: c_int, events: *mut epoll_event, most: c_int, ms: c_int) -> c_int;
    fn epoll_pwait(fd: c_int, events: *mut epoll_event, most: c_int, ms: c_int, mask: *const sigset_t) -> c_int;
    fn epoll_pwait2(fd: c_int, events: *mut epoll_event, most: c_int, time: *const timespec, mask: *const sigset_t) -> c_int;
    fn timerfd_settime(fd: c_int, flags: c_int, new: *const itimerspec, old: *mut itimerspec) -> c_int;
    fn timer_settime(timer: timer_t, flags: c_int, new: *const itimerspec, old: *mut itimerspec) -> c_int;
    fn timer_delete(timer: timer_t) -> c_int;
    fn setitimer(which: c_int, new: *const itimerval, old: *mut itimerval) -> c_int;
    fn alarm(seconds: c_uint) -> c_uint;
    fn read(fd: c_int, bytes: *mut c_void, n: size_t) -> ssize_t;
    fn close(fd: c_int) -> c_int;
    fn pthread_cond_timedwait(cond: *mut pthread_cond_t, mutex: *mut pthread_mutex_t, time: *const timespec) -> c_int;
    fn pthread_cond_clockwait(cond: *mut pthread_cond_t, mutex: *mut pthread_mutex_t, clock: clockid_t, time: *const timespec) -> c_int;
    fn pthread_mutex_timedlock(mutex: *mut pthread_mutex_t, time: *const timespec) -> c_int;
    fn sem_timedwait(sem: *mut sem_t, time: *const timespec) -> c_int;
    fn sem_clockwait(sem: *mut sem_t, clock: clockid_t, time: *const timespec) -> c_int;
    fn syscall(number: c_long, a: c_long, b: c_long, c: c_long, d: c_long, e: c_long, f: c_long) -> c_long;
}
