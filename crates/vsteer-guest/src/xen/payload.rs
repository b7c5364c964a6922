//! What runs inside a domain of the emulated Xen? This, a para-virtualised guest without an operating system.
//!
//! It does what the VMs of the emulated host do (bare.rs); time and sleep are Xen's: the clock of the shared info page,
//! and SCHEDOP_poll with a time-out, by which the vCPU blocks until Xen's own timer wakes it. Once a second it writes a
//! report on its console, with what Xen says of its own vCPU: so long it ran, was ready, was blocked, was offline (parked
//! by a cap). That is the truth that an observer is held against.
//!
//! Source: Xen 4.17, xen/include/public/{xen,vcpu,sched,event_channel,elfnote}.h, io/console.h, arch-x86/xen.h. build.rs
//! compiles it for no operating system and the program in Domain-0 carries the result.
//!
//! A server that is asked from outside gets its requests through a page ([`ring`]) that it tells Domain-0 of on its console, and an event
//! channel: `{"vsteer_ring":1,"frame":MFN,"port":PORT}`.
//!
//! Left out: interrupts (events stay masked), more than one vCPU, input from the console.
#![no_std]
#![no_main]

#[path = "../vmm/abi.rs"]
mod abi;
#[path = "../bare.rs"]
mod bare;
#[path = "../counters.rs"]
mod counters;
#[path = "../generator.rs"]
mod generator;
#[path = "ring.rs"]
mod ring;
#[path = "../runs.rs"]
mod runs;

use abi::{Orders, Request};
use bare::Clock as _;
use core::arch::{asm, global_asm};
use core::cell::Cell;
use core::fmt::Write;
use core::ptr::{addr_of, null};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst, fence};
use counters::Counters;
use ring::Ring;

// The notes: which system (6), of which Xen (5), loader (8), entry (1), where hypercalls are to be put (2), where
// virtual addresses begin (3) and physical ones (4), features (10). Each: lengths of name and text, type, both padded.
global_asm!(
    ".section .note.Xen,\"a\",@note",
    ".macro vsteer_note type, text",
    ".align 4",
    ".long 4, 92f - 91f, \\type",
    ".asciz \"Xen\"",
    "91: .asciz \"\\text\"",
    "92: .align 4",
    ".endm",
    ".macro vsteer_note_number type, value",
    ".align 4",
    ".long 4, 8, \\type",
    ".asciz \"Xen\"",
    ".quad \\value",
    ".endm",
    "vsteer_note 6, vsteer",
    "vsteer_note 5, xen-3.0",
    "vsteer_note 8, generic",
    "vsteer_note_number 1, _start",
    "vsteer_note_number 2, vsteer_hypercalls",
    "vsteer_note_number 3, 0",
    "vsteer_note_number 4, 0",
    "vsteer_note 10, \"!writable_page_tables|pae_pgdir_above_4gb\"",
    ".text",
    ".globl _start",
    "_start: cld",
    "lea rsp, [rip + vsteer_stack_top]",
    "mov rdi, rsi",
    "call vsteer_begin",
    "ud2",
    ".section .text.pages,\"ax\",@progbits",
    ".align 4096",
    ".globl vsteer_hypercalls",
    "vsteer_hypercalls: .space 4096",
    ".globl vsteer_shared_info",
    "vsteer_shared_info: .space 4096",
    ".section .data.pages,\"aw\",@progbits",
    ".align 4096",
    ".globl vsteer_ring",
    "vsteer_ring: .space 4096",
    ".section .bss",
    ".align 16",
    ".space 32768",
    "vsteer_stack_top:",
    ".text",
);

unsafe extern "C" {
    static vsteer_hypercalls: [u8; 4096];
    static vsteer_shared_info: [u8; 4096];
    static vsteer_ring: Ring;
}

const UPDATE_VA_MAPPING: usize = 14;
const VCPU_OP: usize = 24;
const SCHED_OP: usize = 29;
const EVENT_CHANNEL_OP: usize = 32;
const UVMF_INVLPG: u64 = 2;
const VCPUOP_GET_RUNSTATE_INFO: u64 = 4;
const SCHEDOP_SHUTDOWN: u64 = 2;
const SCHEDOP_POLL: u64 = 3;
const EVTCHNOP_SEND: u64 = 4;
const EVTCHNOP_ALLOC_UNBOUND: u64 = 6;
const DOMID_SELF: u16 = 0x7ff0;
/// In the shared info page: a bit per event channel, set when it was told.
const EVENTS_AT: usize = 2048;
/// Present, writable, accessed, dirty... as the pages that the builder maps.
const PAGE_FLAGS: u64 = 0b111;
/// From report to report, ns.
const REPORT_EVERY_NS: u64 = 1_000_000_000;
/// A report that does not fit into the console yet waits so long for room, ns.
const ROOM_NS: u64 = 1_000_000;

/// What the builder tells (struct start_info).
#[repr(C)]
struct StartInfo {
    magic: [u8; 32],
    pages: u64,
    shared_info: u64,
    flags: u32,
    store_frame: u64,
    store_event: u32,
    console_frame: u64,
    console_event: u32,
    page_tables: u64,
    page_table_frames: u64,
    frames: *const u64,
    module: *const u8,
    module_bytes: u64,
    command_line: [u8; 1024],
}

/// The clock in the shared info page (struct vcpu_time_info), of vCPU 0 at byte 32.
#[repr(C)]
struct Time {
    version: u32,
    pad: u32,
    ticks: u64,
    system_ns: u64,
    to_ns: u32,
    shift: i8,
    flags: [u8; 3],
}
const TIME_AT: usize = 32;

/// The console's ring (struct xencons_interface).
#[repr(C)]
struct Console {
    input: [u8; 1024],
    output: [u8; 2048],
    input_taken: AtomicU32,
    input_put: AtomicU32,
    output_taken: AtomicU32,
    output_put: AtomicU32,
}

/// What Xen says of a vCPU (struct vcpu_runstate_info): ns running, ready, blocked, offline.
#[repr(C)]
#[derive(Default)]
struct Runstate {
    state: i32,
    since_ns: u64,
    ns: [u64; 4],
}

static COUNTERS: Counters = Counters::new();

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    // Reason 3: crash.
    let reason = 3u32;
    loop {
        hypercall(SCHED_OP, SCHEDOP_SHUTDOWN, addr_of!(reason) as u64, 0);
    }
}

/// Named by `core`'s formatting; nothing unwinds here.
#[unsafe(no_mangle)]
extern "C" fn rust_eh_personality() {}

fn hypercall(number: usize, a: u64, b: u64, c: u64) -> i64 {
    let entry = addr_of!(vsteer_hypercalls) as usize + 32 * number;
    let result: i64;
    // SAFETY: Xen has put the calls there; they change nothing but what is named, and memory that is handed over.
    unsafe {
        asm!("call {entry}", entry = in(reg) entry, lateout("rax") result,
            inlateout("rdi") a => _, inlateout("rsi") b => _, inlateout("rdx") c => _,
            out("rcx") _, out("r8") _, out("r9") _, out("r10") _, out("r11") _);
    }
    result
}

/// Where the program begins.
#[unsafe(no_mangle)]
extern "C" fn vsteer_begin(info: &StartInfo) -> ! {
    let shared = addr_of!(vsteer_shared_info);
    hypercall(UPDATE_VA_MAPPING, shared as u64, info.shared_info | PAGE_FLAGS, UVMF_INVLPG);
    // SAFETY: the builder says where the list of frames lies and how long it is; memory is mapped from address 0 on.
    let frames = unsafe { core::slice::from_raw_parts(info.frames, info.pages as usize) };
    let page = frames.iter().position(|f| *f == info.console_frame);
    let console = page.map_or(null(), |page| (page << 12) as *const Console);
    // SAFETY: the module holds orders and, behind them, requests (xen/mod.rs writes it).
    let orders = unsafe { &*info.module.cast::<Orders>() };
    let rest = info.module_bytes as usize - size_of::<Orders>();
    // SAFETY: as above.
    let requests = unsafe {
        let first = info.module.add(size_of::<Orders>()).cast::<Request>();
        core::slice::from_raw_parts(first, rest / size_of::<Request>())
    };
    let domain = Domain {
        time: (shared as usize + TIME_AT) as *const Time,
        console,
        console_event: info.console_event,
        ring_port: Cell::new(0),
        due_ns: Cell::new(0),
        reports: Cell::new(0),
    };
    domain.due_ns.set(domain.now_ns());
    if orders.kind == abi::kind::SERVER_ASKED {
        domain.open_ring(frames[addr_of!(vsteer_ring) as usize >> 12]);
    }
    domain.pass(&COUNTERS);
    bare::run(&domain, orders, requests, &COUNTERS, 0)
}

struct Domain {
    time: *const Time,
    console: *const Console,
    console_event: u32,
    /// By which Domain-0 tells of requests, and is told of answers.
    ring_port: Cell<u32>,
    /// When the next report is due.
    due_ns: Cell<u64>,
    reports: Cell<u64>,
}

impl bare::Clock for Domain {
    fn now_ns(&self) -> u64 {
        loop {
            // SAFETY: the page is mapped; Xen writes it, so it is read anew each time.
            let time = unsafe { self.time.read_volatile() };
            fence(SeqCst);
            let (low, high): (u32, u32);
            // SAFETY: reads a counter.
            unsafe { asm!("lfence", "rdtsc", out("eax") low, out("edx") high, options(nomem, nostack)) };
            fence(SeqCst);
            // SAFETY: as above.
            let version = unsafe { (self.time as *const u32).read_volatile() };
            if time.version % 2 == 1 || version != time.version {
                continue;
            }
            let since = (u64::from(high) << 32 | u64::from(low)).wrapping_sub(time.ticks);
            let scaled = if time.shift >= 0 { since << time.shift } else { since >> -time.shift };
            return time.system_ns + (u128::from(scaled) * u128::from(time.to_ns) >> 32) as u64;
        }
    }

    fn sleep_until(&self, due_ns: u64) {
        while self.now_ns() < due_ns {
            let poll = Poll { ports: null(), count: 0, until_ns: due_ns };
            hypercall(SCHED_OP, SCHEDOP_POLL, addr_of!(poll) as u64, 0);
        }
    }

    fn pass(&self, counters: &Counters) {
        let now_ns = self.now_ns();
        if now_ns >= self.due_ns.get() && !self.console.is_null() {
            self.due_ns.set(now_ns + REPORT_EVERY_NS);
            self.report(now_ns, counters);
        }
    }

    fn asked(&self, counters: &Counters) -> (u64, u64) {
        loop {
            // Before the look: what is told after it wakes the poll.
            self.clear_event();
            // SAFETY: both sides know it as this.
            if let Some(request) = unsafe { &vsteer_ring }.take() {
                return (request.arrived_ns, request.units);
            }
            let port = self.ring_port.get();
            let poll = Poll { ports: addr_of!(port), count: 1, until_ns: self.due_ns.get() };
            hypercall(SCHED_OP, SCHEDOP_POLL, addr_of!(poll) as u64, 0);
            self.pass(counters);
        }
    }

    fn answer(&self, name: u64) {
        // SAFETY: as above.
        unsafe { &vsteer_ring }.answer(name);
        let port = self.ring_port.get();
        hypercall(EVENT_CHANNEL_OP, EVTCHNOP_SEND, addr_of!(port) as u64, 0);
    }

    fn stop(&self) -> ! {
        loop {
            self.sleep_until(self.due_ns.get());
            self.pass(&COUNTERS);
        }
    }
}

#[repr(C)]
struct Poll {
    ports: *const u32,
    count: u32,
    until_ns: u64,
}

#[repr(C)]
struct Unbound {
    domain: u16,
    remote: u16,
    port: u32,
}

impl Domain {
    /// Tells Domain-0 where requests are to be put.
    fn open_ring(&self, frame: u64) {
        let channel = Unbound { domain: DOMID_SELF, remote: 0, port: 0 };
        hypercall(EVENT_CHANNEL_OP, EVTCHNOP_ALLOC_UNBOUND, addr_of!(channel) as u64, 0);
        // SAFETY: Xen has written it.
        self.ring_port.set(unsafe { addr_of!(channel.port).read_volatile() });
        let port = self.ring_port.get();
        let _ = writeln!(Out(self), "{{\"vsteer_ring\":1,\"frame\":{frame},\"port\":{port}}}");
        self.tell();
    }

    fn clear_event(&self) {
        let port = self.ring_port.get() as usize;
        let word = addr_of!(vsteer_shared_info) as usize + EVENTS_AT + port / 64 * 8;
        // SAFETY: within the page, which Xen writes as well, a bit at a time.
        let word = unsafe { &*(word as *const AtomicU64) };
        word.fetch_and(!(1 << (port % 64)), SeqCst);
    }

    fn report(&self, now_ns: u64, counters: &Counters) {
        let mut seen = Runstate::default();
        hypercall(VCPU_OP, VCPUOP_GET_RUNSTATE_INFO, 0, addr_of!(seen) as u64);
        // Xen has written it.
        let ns = unsafe { addr_of!(seen.ns).read_volatile() };
        seen.ns = ns;
        let [run, ready, blocked, offline] = ns;
        let out = &mut Out(self);
        // The console does not fail: it waits for room.
        let _ = write!(
            out,
            "{{\"vsteer_guest\":1,\"seq\":{},\"t_ns\":{now_ns},\"workload\":\"xen\",\"vcpus\":1,\"units\":{},",
            self.reports.replace(self.reports.get() + 1),
            counters.units()
        );
        let _ = runs::write(out, "late", counters.late.sum_ns(), |b| counters.late.bucket(b));
        let _ = runs::write(out, "resp", counters.resp.sum_ns(), |b| counters.resp.bucket(b));
        let _ = writeln!(
            out,
            "\"jiffies\":null,\"runstate_ns\":{{\"run\":{run},\"ready\":{ready},\"blocked\":{blocked},\"offline\":{offline}}}}}"
        );
        self.tell();
    }

    /// Tells Domain-0 that there is output.
    fn tell(&self) {
        let port = self.console_event;
        hypercall(EVENT_CHANNEL_OP, EVTCHNOP_SEND, addr_of!(port) as u64, 0);
    }
}

struct Out<'a>(&'a Domain);

impl Write for Out<'_> {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        // SAFETY: the console's page is mapped, and this is its only writer.
        let console = unsafe { &*self.0.console };
        for byte in text.bytes() {
            while console.output_put.load(SeqCst).wrapping_sub(console.output_taken.load(SeqCst)) >= 2048 {
                self.0.tell();
                self.0.sleep_until(self.0.now_ns() + ROOM_NS);
            }
            let put = console.output_put.load(SeqCst);
            let at = addr_of!(console.output) as usize + (put as usize & 2047);
            // SAFETY: within the ring, at a place that the other side has read.
            unsafe { (at as *mut u8).write_volatile(byte) };
            console.output_put.store(put.wrapping_add(1), SeqCst);
        }
        Ok(())
    }
}
