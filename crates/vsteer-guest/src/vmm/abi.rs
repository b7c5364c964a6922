//! How do the VMM and the program in its VM understand each other? By what lies where in the VM's memory.
//!
//! Both sides are built from this very file. The VM has no firmware and no operating system: the VMM lays out tables,
//! program and orders, and starts every vCPU in 64-bit mode at the program's entry.

use core::sync::atomic::AtomicU64;

/// The page tables: one PML4, one PDPT, one page directory of 2 MiB pages that maps memory to itself.
pub const PAGE_TABLES_AT: u64 = 0x1000;
/// The segment descriptors; each vCPU's task state segment follows the three that all share.
pub const GDT_AT: u64 = 0x4000;
/// The interrupt descriptors; the program fills in its own handler.
pub const IDT_AT: u64 = 0x5000;
/// Task state segments, [`TSS_BYTES`] each.
pub const TSS_AT: u64 = 0x6000;
/// Room for one task state segment (it takes 104).
pub const TSS_BYTES: u64 = 128;
pub const PROGRAM_AT: u64 = 0x10_0000;
/// Where the program must end.
pub const PROGRAM_END: u64 = ORDERS_AT;
/// One [`Orders`].
pub const ORDERS_AT: u64 = 0x20_0000;
/// One `Counters` per vCPU.
pub const COUNTERS_AT: u64 = 0x20_1000;
/// One [`Begun`], which the VMM fills in for who reads the VM's memory from outside.
pub const BEGUN_AT: u64 = 0x2f_f000;
/// One [`Table`] per vCPU.
pub const TABLES_AT: u64 = 0x30_0000;
/// Stacks: per vCPU [`STACK_BYTES`].
pub const STACKS_AT: u64 = 0x40_0000;
/// Room for one vCPU's stack.
pub const STACK_BYTES: u64 = 16 << 10;
/// A server's requests and its responses, where the tables say.
pub const REQUESTS_AT: u64 = 0x60_0000;
/// Requests per vCPU of a server without a schedule, which are served in turn again and again.
pub const REQUESTS: usize = 32_768;
/// As much memory as one page directory maps.
pub const MEMORY_MAX: u64 = 1 << 30;
/// More vCPUs than this are not needed to try things on.
pub const VCPUS_MAX: usize = 16;
/// A byte written to this port says that the program has failed.
pub const FAILED_PORT: u16 = 0xf4;

/// When the VM began.
#[repr(C)]
pub struct Begun {
    /// CLOCK_REALTIME at the zero of the VM's clock, ns; 0 until that is known.
    pub wall_ns: AtomicU64,
}

/// Where one vCPU's requests and responses lie.
#[repr(C, align(64))]
pub struct Table {
    /// The first [`Request`]'s address.
    pub requests_at: AtomicU64,
    /// How many there are.
    pub requests: AtomicU64,
    /// The first [`Response`]'s address, of which there is room for as many; 0: none are kept.
    pub responses_at: AtomicU64,
    /// Responses written. It is raised after each, so that whoever reads it from outside may read so many.
    pub responses: AtomicU64,
    /// Sleeps that ended without the timer's interrupt.
    pub lost: AtomicU64,
}

/// What every vCPU shall do. Times are of the VM's clock, ns.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Orders {
    /// One of [`kind`].
    pub kind: u64,
    /// Idle until then.
    pub start_ns: u64,
    /// ns per tick of the time stamp counter, in 2^-32.
    pub ns_per_tick_q32: u64,
    /// Ticks of the time stamp counter per ns, in 2^-32.
    pub ticks_per_ns_q32: u64,
    /// `periodic`: from expiry to expiry, ns. `flood`: each timer, ns. `burst`: burning, ns. `waker`: burning between two sleeps, ns.
    pub first_ns: u64,
    /// `burst`: sleeping, ns. `waker`, `sleeper`: each sleep, ns.
    pub second_ns: u64,
    /// `periodic`, `sleeper`: work after each expiry, units.
    pub work_units: u64,
    /// `sleeper`: work that comes with each sleep and is done when nothing else is, units.
    pub background_units: u64,
    /// `sleeper`: not 0 where the host is told when each sleep ends.
    pub call: u64,
}

/// What a vCPU does.
pub mod kind {
    pub const IDLE: u64 = 0;
    /// Works without pause.
    pub const BURN: u64 = 1;
    /// Sleeps to absolute expiries, and works after each.
    pub const PERIODIC: u64 = 2;
    /// Serves the requests of its table, first come first served, again and again.
    pub const SERVER: u64 = 3;
    /// Burns and sleeps on an absolute schedule.
    pub const BURST: u64 = 4;
    /// A burner that wakes often.
    pub const WAKER: u64 = 5;
    /// Serves the requests of its table once, keeps its responses, and then does nothing.
    pub const SERVER_ONCE: u64 = 6;
    /// Serves the requests that its host sends, first come first served.
    pub const SERVER_ASKED: u64 = 7;
    /// Sleeps and works in turn.
    pub const SLEEPER: u64 = 8;
    /// Tells the host of timers, on and on.
    pub const FLOOD: u64 = 9;
}

/// A request to a server.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// How long after the one before it arrives, ns.
    pub gap_ns: u64,
    /// What it takes, work units.
    pub demand_units: u64,
}

/// What a server made of a request. Times are of the VM's clock, ns.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Response {
    /// When the request arrived, that is, was due.
    pub arrived_ns: u64,
    /// When its work was done.
    pub done_ns: u64,
}
