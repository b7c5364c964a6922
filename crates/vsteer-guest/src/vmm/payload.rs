//! What runs inside a VM of the emulated host? This, without an operating system.
//!
//! It does what `run.rs` does in a VM with Linux, by the same counters and the same unit of work; only time and sleep
//! are its own: the time stamp counter, and the local APIC's timer in TSC-deadline mode with HLT, so that a vCPU that
//! sleeps blocks in the host's KVM and is woken by KVM's timer, as any guest's is. The APIC is driven by its registers
//! (x2APIC), which KVM serves without emulating instructions.
//!
//! Source: Intel SDM volume 3, 10.5.4.1 (TSC deadline), 10.12 (x2APIC), 6.14 (interrupts in 64-bit mode). build.rs
//! compiles it for no operating system and the VMM carries the result.
//!
//! Left out: floating point (the VMM draws a server's requests), devices, interrupts between vCPUs.
#![no_std]
#![no_main]

#[path = "abi.rs"]
mod abi;
#[path = "../bare.rs"]
mod bare;
#[path = "../counters.rs"]
mod counters;
#[path = "../generator.rs"]
mod generator;
#[path = "../vit.rs"]
mod vit;

use abi::{Orders, Request, Response, Table};
use bare::Clock as _;
use core::arch::{asm, global_asm};
use core::sync::atomic::Ordering::{Relaxed, Release};
use counters::Counters;

const X2APIC_SPURIOUS: u32 = 0x80f;
const X2APIC_TIMER: u32 = 0x832;
const TSC_DEADLINE: u32 = 0x6e0;
/// The interrupt in service is done with.
const X2APIC_EOI: u32 = 0x80b;
/// The vector of the timer's interrupt.
const TIMER_VECTOR: u8 = 0x40;
/// Bits 17 and 18 of the timer's entry: TSC-deadline mode.
const TIMER_BY_DEADLINE: u64 = 0b10 << 17;
/// Bit 8: the APIC is on; the vector is that of spurious interrupts.
const APIC_ON: u64 = 1 << 8 | 0xff;

// The timer's handler only says that it was served (x2APIC register EOI): what it woke looks at the clock itself.
//
// It runs on the stack of whom it interrupts, and may be interrupted by itself: QEMU's emulation of SVM (7.2) delivers an
// interrupt that the hypervisor injects twice where the emulated pCPU has to stop right after (helper_vmrun leaves
// `exception_index` set). On an interrupt stack of its own the second frame lay over the first, and the vCPU went round in
// this handler for ever: one case in ten.
//
// Should it not be delivered at all, the hypervisor would take it as being served and let no further one through. So the handler says in r11
// that it ran, and where it did not, the sleeper says in its place that it was served, and counts that. (One VM in sixty boots slept for ever,
// in each repetition at the same request; whether by this is not known: GAP(emulated-asleep), docs/decisions/0003.)
global_asm!(
    "vsteer_timer:",
    "push rax",
    "push rcx",
    "push rdx",
    "mov ecx, 0x80b",
    "xor eax, eax",
    "xor edx, edx",
    "wrmsr",
    "pop rdx",
    "pop rcx",
    "pop rax",
    "mov r11d, 1",
    "iretq",
);

unsafe extern "C" {
    fn vsteer_timer();
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {
        unsafe { asm!("out 0xf4, al", in("al") 1u8) };
    }
}

/// Where each vCPU begins; the VMM passes its number.
#[unsafe(no_mangle)]
pub extern "C" fn _start(vcpu: u64) -> ! {
    let orders = unsafe { &*(abi::ORDERS_AT as *const Orders) };
    let counters = unsafe { &*(abi::COUNTERS_AT as *const Counters).add(vcpu as usize) };
    let table = unsafe { &*(abi::TABLES_AT as *const Table).add(vcpu as usize) };
    let requests: &[Request] = match table.requests.load(Relaxed) as usize {
        0 => &[],
        count => unsafe {
            core::slice::from_raw_parts(table.requests_at.load(Relaxed) as *const Request, count)
        },
    };
    take_timer_interrupts();
    let clock = Clock { orders, table, vit: vit::Vit::of_this_cpu() };
    while clock.now_ns() < orders.start_ns {
        clock.sleep_until(orders.start_ns);
    }
    bare::run(&clock, orders, requests, counters, vcpu)
}

fn take_timer_interrupts() {
    let handler = vsteer_timer as *const () as u64;
    // A gate of type 14 at privilege 0, code segment 8, on the stack that is in use.
    let low = (handler & 0xffff) | 8 << 16 | 0x8e00 << 32 | (handler >> 16 & 0xffff) << 48;
    let gate = (abi::IDT_AT + 16 * u64::from(TIMER_VECTOR)) as *mut u64;
    unsafe {
        gate.write_volatile(low);
        gate.add(1).write_volatile(handler >> 32);
    }
    write_msr(X2APIC_SPURIOUS, APIC_ON);
    write_msr(X2APIC_TIMER, TIMER_BY_DEADLINE | u64::from(TIMER_VECTOR));
}

fn write_msr(register: u32, value: u64) {
    unsafe {
        asm!("wrmsr", in("ecx") register, in("eax") value as u32, in("edx") (value >> 32) as u32,
            options(nostack, preserves_flags));
    }
}

struct Clock<'a> {
    orders: &'a Orders,
    table: &'a Table,
    vit: vit::Vit,
}

impl bare::Clock for Clock<'_> {
    /// Since the VM began, ns.
    fn now_ns(&self) -> u64 {
        let (low, high): (u32, u32);
        unsafe { asm!("rdtsc", out("eax") low, out("edx") high, options(nomem, nostack, preserves_flags)) };
        let ticks = u64::from(high) << 32 | u64::from(low);
        (u128::from(ticks) * u128::from(self.orders.ns_per_tick_q32) >> 32) as u64
    }

    // Its interrupt stays pending until the next sleep, which it ends at once and which then begins again.
    fn arm(&self, due_ns: u64) {
        // Rounded up, lest it wake one tick early and sleep again.
        let ticks = (u128::from(due_ns) * u128::from(self.orders.ticks_per_ns_q32) >> 32) as u64 + 2;
        unsafe { asm!("cli", options(nostack)) };
        write_msr(TSC_DEADLINE, ticks);
    }

    fn call(&self, in_ns: u64) {
        self.vit.arm(in_ns);
    }

    fn sleep_until(&self, due_ns: u64) {
        while self.now_ns() < due_ns {
            self.arm(due_ns);
            // No interrupt is taken between STI and the instruction after it: the wake-up cannot be missed. Nowhere else are
            // interrupts taken; compiled code may use 128 bytes below the stack's end, which they must leave alone.
            let served: u64;
            unsafe {
                asm!("sub rsp, 128", "xor r11d, r11d", "sti", "hlt", "cli", "add rsp, 128", out("r11") served);
            }
            if served == 0 {
                write_msr(X2APIC_EOI, 0);
                self.table.lost.fetch_add(1, Relaxed);
            }
        }
    }

    /// Keeps the response where the host finds it, which is not told.
    fn answered(&self, arrived_ns: u64, done_ns: u64) {
        let (first, count) = (self.table.responses_at.load(Relaxed), self.table.responses.load(Relaxed));
        if first != 0 {
            let at = first as *mut Response;
            unsafe { at.add(count as usize).write_volatile(Response { arrived_ns, done_ns }) };
            self.table.responses.store(count + 1, Release);
        }
    }

    fn stop(&self) -> ! {
        loop {
            unsafe { asm!("cli", "hlt", options(nomem, nostack)) };
        }
    }
}
