//! A library that is preloaded (`LD_PRELOAD`) into an unmodified program in a guest, and tells the host with a
//! hypercall when the program's next timer ends ([`vit`], docs/realtime.md).
//!
//! It replaces the functions of the C library with which a program sleeps or waits for a time ([`calls`]). Each
//! computes the length of the wait, tells the host, and does what it did before. The library remembers timers armed
//! earlier (of a file descriptor, or with a signal) ([`armed`]): while the program waits for something else, the
//! earliest of all counts.
//!
//! A hypercall costs an exit even if the host ignores it. So the library tells the host nothing until the VM is opted
//! in ([`flag`]), nor if the end is within [`TOGETHER_NS`] of the last one, nor without KVM.
//!
//! Not covered: statically linked programs, and those that make system calls without the C library (Go's runtime).
//! `vsteer-guest vit` warns when it starts one.
//!
//! No code here allocates or locks once the program runs, because signal handlers may call these functions.

mod armed;
pub mod calls;
mod flag;
mod real;
#[path = "../../vsteer-guest/src/vit.rs"]
mod vit;

use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering::Relaxed};

/// Ends this close together count as one: the host looks at a VM's requests at most every 250 us.
const TOGETHER_NS: u64 = 50_000;
/// Longer waits have no deadline that matters, and no host accepts them.
const LONGEST_NS: u64 = 86_400_000_000_000;

/// Number of calls to the host, number of calls avoided, and total time of the calls, ns.
static SAID: AtomicU64 = AtomicU64::new(0);
static SPARED: AtomicU64 = AtomicU64::new(0);
static TOOK_NS: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// The last end that this thread reported, ns of CLOCK_MONOTONIC.
    static LAST_NS: Cell<u64> = const { Cell::new(0) };
}

/// Present time of a clock, ns.
fn clock_ns(clock: libc::clockid_t) -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes one timespec through a valid pointer.
    #[allow(unsafe_code)]
    unsafe {
        libc::clock_gettime(clock, &raw mut now);
    }
    now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
}

/// This thread is about to wait, for at most `own_ns` if known. Tells the host the first end of all timers.
fn waits(own_ns: Option<u64>) {
    if !flag::is_set() {
        return;
    }
    let now_ns = clock_ns(libc::CLOCK_MONOTONIC);
    let own = own_ns.map(|ns| now_ns.saturating_add(ns));
    let Some(end_ns) = [own, armed::first_ns(now_ns)].into_iter().flatten().min() else { return };
    says(now_ns, end_ns);
}

fn says(now_ns: u64, end_ns: u64) {
    let in_ns = end_ns.saturating_sub(now_ns);
    if in_ns == 0 || in_ns > LONGEST_NS {
        return;
    }
    let last_ns = LAST_NS.try_with(Cell::get).unwrap_or(0);
    if last_ns > now_ns && last_ns.abs_diff(end_ns) <= TOGETHER_NS {
        SPARED.fetch_add(1, Relaxed);
        return;
    }
    how().arm(in_ns);
    let _ = LAST_NS.try_with(|last| last.set(end_ns));
    SAID.fetch_add(1, Relaxed);
    TOOK_NS.fetch_add(clock_ns(libc::CLOCK_MONOTONIC) - now_ns, Relaxed);
}

fn how() -> vit::Vit {
    static HOW: OnceLock<vit::Vit> = OnceLock::new();
    *HOW.get_or_init(vit::Vit::of_this_cpu)
}

/// Where to report the cost: standard error as it was at the start, because programs close theirs before they end. -1:
/// no report (`VSTEER_VIT_REPORT` is not set).
static REPORT_TO: AtomicI32 = AtomicI32::new(-1);

extern "C" fn at_exit() {
    let file = REPORT_TO.load(Relaxed);
    if file < 0 {
        return;
    }
    let (said, spared) = (SAID.load(Relaxed), SPARED.load(Relaxed));
    let each = TOOK_NS.load(Relaxed).checked_div(said).unwrap_or(0);
    let told = match (flag::is_set(), how()) {
        (false, _) => "this VM is not opted in",
        (true, vit::Vit::Silent) => "no KVM host answers",
        (true, _) => "the host was told",
    };
    let line = format!(
        "vsteer-vit: {told}; sent {said} timer expiries to the host, at a cost of {each} ns each; skipped {spared} that repeat the last one\n"
    );
    // SAFETY: writes bytes that live; a file that is closed by now takes none.
    #[allow(unsafe_code)]
    unsafe {
        libc::write(file, line.as_ptr().cast(), line.len());
    }
}

/// Runs when the library is loaded, before the program's own first function.
extern "C" fn begins() {
    flag::find();
    if std::env::var_os("VSTEER_VIT_REPORT").is_none() {
        return;
    }
    // SAFETY: plain calls; the function that is registered lives as long as the process.
    #[allow(unsafe_code)]
    unsafe {
        REPORT_TO.store(libc::fcntl(libc::STDERR_FILENO, libc::F_DUPFD_CLOEXEC, 3), Relaxed);
        libc::atexit(at_exit);
    }
}

// SAFETY: the loader calls what this section names, with no arguments that are looked at.
#[allow(unsafe_code)]
#[cfg_attr(not(test), unsafe(link_section = ".init_array"))]
#[used]
static BEGINS: extern "C" fn() = begins;
