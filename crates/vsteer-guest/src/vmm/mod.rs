//! Who runs the VMs of the emulated host? A virtual machine monitor without a machine: vCPUs, memory, KVM's own
//! interrupt controller, and one program inside (payload.rs).
//!
//! One VM is one process; vCPU N is a thread named `CPU N/KVM`, as QEMU names it; the first thread keeps the process
//! and, for each line that it reads on standard input, prints a report of what the VM has counted (report.rs) with the
//! host's time. So the host sees what it sees of any VMM (KVM's descriptors, vCPU threads that block in KVM and are
//! woken by KVM's timers, an emulator thread), and nothing of it costs what booting a guest would cost under emulation.
//!
//! Left out: devices, firmware, an operating system inside.

pub mod abi;
mod kvm;
mod tables;

use crate::counters::Counters;
use crate::place::Place;
use crate::workload::{Plan, Workload};
pub use abi::kind;
use abi::{Begun, Orders, VCPUS_MAX};
use kvm::{Exit, Registers, Segment, SpecialRegisters, Table, Vcpu, Vm};
use rustix::time::{ClockId, clock_gettime};
use std::convert::Infallible;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Release;
use tables::Tables;
pub use tables::requests;

/// The entry's address and the bytes, from build.rs.
static PROGRAM: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/payload.bin"));

const CODE_SELECTOR: u16 = 0x08;
const DATA_SELECTOR: u16 = 0x10;
const FIRST_TSS_SELECTOR: u16 = 0x18;

/// Runs a VM until the process is ended, or says why it cannot. Its memory lies in the file `memory`, if one is named: then
/// others can read there what a server with a schedule has answered.
pub fn run(vcpus: usize, plan: &Plan, place: &Place, memory: Option<&Path>) -> Result<Infallible, String> {
    if !(1..=VCPUS_MAX).contains(&vcpus) {
        return Err(format!("a VM has 1 to {VCPUS_MAX} vCPUs, not {vcpus}"));
    }
    let Some((entry, program)) = PROGRAM.split_at_checked(8).filter(|(_, p)| !p.is_empty()) else {
        return Err("VMs of the emulated host run on x86-64 alone".to_owned());
    };
    if plan.workload.needs_process() {
        let kind = plan.workload.kind();
        return Err(format!("`{kind}` is for a process: a VM of this host has no system"));
    }
    if plan.workload.needs_linux() {
        return Err(format!("`{}` needs Linux, which this VM has not", plan.workload.kind()));
    }
    place.take()?;
    kvm::can_be_interrupted();
    let tables = Tables::draw(&plan.workload, vcpus);
    let bytes = (tables.end() as usize).next_multiple_of(2 << 20);
    if bytes as u64 > abi::MEMORY_MAX {
        return Err(format!("the requests of {vcpus} vCPUs take more than a VM's memory can be"));
    }
    let vm = Arc::new(Vm::new(bytes, memory)?);
    let entry = u64::from_le_bytes(entry.try_into().expect("eight bytes"));
    assert!(program.len() as u64 <= abi::PROGRAM_END - abi::PROGRAM_AT, "the program does not fit");
    vm.memory.write(abi::PROGRAM_AT, program);
    lay_out_tables(&vm, bytes, vcpus);
    tables.lay_out(&vm.memory);
    let told = |vcpu: usize, what: &'static str| move |e: std::io::Error| format!("vCPU {vcpu}: {what}: {e}");
    let mut ready = Vec::new();
    for index in 0..vcpus {
        let vcpu = vm.vcpu(index).map_err(told(index, "creating it"))?;
        if index == 0 {
            let khz = vcpu.tsc_khz().map_err(told(index, "asking its time stamp counter's frequency"))?;
            let mut orders = orders(plan, khz);
            if let Workload::Periodic { period_ns, phase_ns: Some(phase_ns), .. } = plan.workload {
                let begin = in_phase(&vcpu, &orders, period_ns, phase_ns);
                orders.start_ns = begin.map_err(told(index, "asking for its time stamp counter"))?;
            }
            vm.memory.write_value(abi::ORDERS_AT, &orders);
            tell_wall_clock(&vm, &vcpu, &orders).map_err(told(index, "asking for its time stamp counter"))?;
        }
        start_state(&vcpu, index, entry).map_err(told(index, "setting its registers"))?;
        ready.push(vcpu);
    }
    // SAFETY: counters are atomics alone, and anonymous memory begins as zeros.
    #[allow(unsafe_code)]
    let counters = unsafe { vm.memory.shared::<Counters>(abi::COUNTERS_AT, vcpus) };
    for (index, vcpu) in ready.into_iter().enumerate() {
        let keeps_memory = Arc::clone(&vm);
        let place = place.clone();
        std::thread::Builder::new()
            .name(format!("CPU {index}/KVM"))
            .spawn(move || {
                let Some(why) = place.take_as_vcpu(index).err().or_else(|| last_words(&vcpu)) else {
                    std::mem::forget((vcpu, keeps_memory));
                    return;
                };
                drop(keeps_memory);
                eprintln!("vsteer-guest: vCPU {index}: {why}");
                std::process::exit(1);
            })
            .map_err(told(index, "starting its thread"))?;
    }
    crate::report_when_asked(plan.workload.kind(), vcpus, counters)
}

/// Ends the thread of a vCPU, as QEMU does when one is unplugged: what KVM has of it, its timer too, stays with the VM.
///
/// # Errors
/// There is no such thread, or it is somebody else's.
pub fn unplug(process: u32, thread: i32) -> std::io::Result<()> {
    kvm::interrupt(process, thread)
}

/// Runs a vCPU until it leaves for good, which a sound program does not; why it did. `None`: it was unplugged.
fn last_words(vcpu: &Vcpu) -> Option<String> {
    let what = match vcpu.run() {
        Ok(Exit::Unplugged) => return None,
        Ok(Exit::Port(abi::FAILED_PORT)) => "the program inside failed".to_owned(),
        Ok(exit) => format!("left the VM unexpectedly: {exit:?}"),
        Err(e) => format!("running: {e}"),
    };
    let rip = vcpu.registers().map_or_else(|e| e.to_string(), |r| format!("{:#x}", r.rip));
    Some(format!("{what} (at {rip})"))
}

/// What the workload means to the program inside.
pub fn orders(plan: &Plan, tsc_khz: u64) -> Orders {
    let q32 = |over: u64, under: u64| ((u128::from(over) << 32) / u128::from(under)) as u64;
    let (kind, first_ns, second_ns, work_units) = match plan.workload {
        // These need a system: refused before.
        Workload::Idle
        | Workload::Build { .. }
        | Workload::Switch
        | Workload::Niced { .. }
        | Workload::Play { .. }
        | Workload::Program { .. } => (kind::IDLE, 0, 0, 0),
        Workload::Burn => (kind::BURN, 0, 0, 0),
        Workload::Periodic { period_ns, work_units, .. } => (kind::PERIODIC, period_ns, 0, work_units),
        Workload::Server { .. } => (kind::SERVER, 0, 0, 0),
        Workload::Scheduled(_) => (kind::SERVER_ONCE, 0, 0, 0),
        Workload::Burst { on_ns, off_ns } => (kind::BURST, on_ns, off_ns, 0),
        Workload::Sleeper { sleep_ns, work_units, .. } => (kind::SLEEPER, 0, sleep_ns, work_units),
        Workload::Flood { timer_ns } => (kind::FLOOD, timer_ns, 0, 0),
        Workload::Waker { every_ns, sleep_ns } => (kind::WAKER, every_ns, sleep_ns, 0),
    };
    let (background_units, call) = match plan.workload {
        Workload::Sleeper { background_units, call, .. } => (background_units, u64::from(call)),
        _ => (0, 0),
    };
    Orders {
        kind,
        start_ns: plan.start_ns,
        ns_per_tick_q32: q32(1_000_000, tsc_khz),
        ticks_per_ns_q32: q32(tsc_khz, 1_000_000),
        first_ns,
        second_ns,
        work_units,
        background_units,
        call,
    }
}

/// When, by the VM's clock, the host's CLOCK_MONOTONIC will be so far behind a multiple of the period; soon.
fn in_phase(vcpu: &Vcpu, orders: &Orders, period_ns: u64, phase_ns: u64) -> std::io::Result<u64> {
    const SOON_NS: u64 = 200_000_000;
    let (own_ns, now_ns) = both_clocks(vcpu, orders, crate::clock::now_ns)?;
    let begin_ns = (now_ns + SOON_NS).next_multiple_of(period_ns) + phase_ns;
    Ok(own_ns + (begin_ns - now_ns))
}

/// The VM's clock and one of the host's at the same moment, ns. Whoever loses its pCPU between reading one and the other is wrong by as
/// much: of some readings the one that took least counts.
fn both_clocks(vcpu: &Vcpu, orders: &Orders, host_ns: impl Fn() -> u64) -> std::io::Result<(u64, u64)> {
    const READINGS: usize = 20;
    let (mut least_ns, mut best) = (u64::MAX, (0, 0));
    for _ in 0..READINGS {
        let before_ns = host_ns();
        let ticks = vcpu.tsc()?;
        let after_ns = host_ns();
        let took_ns = after_ns.saturating_sub(before_ns);
        if took_ns < least_ns {
            let own_ns = ((u128::from(ticks) * u128::from(orders.ns_per_tick_q32)) >> 32) as u64;
            (least_ns, best) = (took_ns, (own_ns, after_ns));
        }
    }
    Ok(best)
}

/// Leaves in the VM's memory what CLOCK_REALTIME was when the VM's clock was at its zero.
fn tell_wall_clock(vm: &Vm, vcpu: &Vcpu, orders: &Orders) -> std::io::Result<()> {
    let wall_clock = || {
        let wall = clock_gettime(ClockId::Realtime);
        wall.tv_sec as u64 * 1_000_000_000 + wall.tv_nsec as u64
    };
    let (own_ns, wall_ns) = both_clocks(vcpu, orders, wall_clock)?;
    // SAFETY: an atomic, and zero is a value of it.
    #[allow(unsafe_code)]
    let begun = unsafe { vm.memory.shared::<Begun>(abi::BEGUN_AT, 1) };
    begun[0].wall_ns.store(wall_ns.saturating_sub(own_ns), Release);
    Ok(())
}

/// Page tables, segments and a task state segment per vCPU (Intel SDM volume 3: 4.5, 3.4.5, 7.7).
fn lay_out_tables(vm: &Vm, bytes: usize, vcpus: usize) {
    const PRESENT_WRITABLE: u64 = 0b11;
    const LARGE: u64 = 1 << 7;
    let at = abi::PAGE_TABLES_AT;
    vm.memory.write_value(at, &((at + 0x1000) | PRESENT_WRITABLE));
    vm.memory.write_value(at + 0x1000, &((at + 0x2000) | PRESENT_WRITABLE));
    for page in 0..(bytes >> 21) as u64 {
        vm.memory.write_value(at + 0x2000 + 8 * page, &(page << 21 | PRESENT_WRITABLE | LARGE));
    }
    // 64-bit code, data.
    vm.memory.write_value(abi::GDT_AT + u64::from(CODE_SELECTOR), &0x00af_9b00_0000_ffff_u64);
    vm.memory.write_value(abi::GDT_AT + u64::from(DATA_SELECTOR), &0x00cf_9300_0000_ffff_u64);
    for vcpu in 0..vcpus as u64 {
        let tss = abi::TSS_AT + vcpu * abi::TSS_BYTES;
        // A busy 64-bit task state segment of 104 bytes; its base is below 16 MiB.
        let descriptor = 0x0000_8b00_0000_0067 | (tss & 0xff_ffff) << 16;
        vm.memory.write_value(abi::GDT_AT + u64::from(FIRST_TSS_SELECTOR) + 16 * vcpu, &descriptor);
    }
}

/// Where the stack of a vCPU begins, which grows down.
fn stack_top(vcpu: u64) -> u64 {
    abi::STACKS_AT + (vcpu + 1) * abi::STACK_BYTES
}

/// 64-bit mode at the program's entry, interrupts off, the x2APIC on.
fn start_state(vcpu: &Vcpu, index: usize, entry: u64) -> std::io::Result<()> {
    vcpu.change_special(|s| set_special(s, index as u64))?;
    let mut registers = Registers {
        rip: entry,
        rdi: index as u64,
        // As after a call: the stack is aligned to 16 bytes but for the address to return to.
        rsp: stack_top(index as u64) - 8,
        rflags: 0x2,
        ..Registers::default()
    };
    vcpu.set_registers(&mut registers)
}

fn set_special(s: &mut SpecialRegisters, index: u64) {
    let flat = Segment {
        limit: u32::MAX,
        selector: DATA_SELECTOR,
        kind: 3,
        present: 1,
        db: 1,
        code_or_data: 1,
        pages: 1,
        ..Segment::default()
    };
    s.cs = Segment { selector: CODE_SELECTOR, kind: 11, db: 0, long: 1, ..flat };
    (s.ds, s.es, s.fs, s.gs, s.ss) = (flat, flat, flat, flat, flat);
    s.tr = Segment {
        base: abi::TSS_AT + index * abi::TSS_BYTES,
        limit: 0x67,
        selector: FIRST_TSS_SELECTOR + 16 * index as u16,
        kind: 11,
        present: 1,
        ..Segment::default()
    };
    s.gdt = Table { base: abi::GDT_AT, limit: 0xfff, ..Table::default() };
    s.idt = Table { base: abi::IDT_AT, limit: 0xfff, ..Table::default() };
    s.cr3 = abi::PAGE_TABLES_AT;
    // Physical address extension, SSE (which compiled code uses to move memory).
    s.cr4 = 1 << 5 | 1 << 9 | 1 << 10;
    // Paging, numeric errors, the coprocessor's presence, protection.
    s.cr0 = 1 << 31 | 1 << 5 | 1 << 4 | 1 << 1 | 1;
    // Long mode, on and active.
    s.efer = 1 << 8 | 1 << 10;
    // The APIC on (bit 11), by registers (bit 10), the first vCPU marked as such (bit 8).
    s.apic_base = 0xfee0_0000 | 1 << 11 | 1 << 10 | u64::from(index == 0) << 8;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_programs_addresses_do_not_overlap() {
        let counters_end = abi::COUNTERS_AT + (VCPUS_MAX * size_of::<Counters>()) as u64;
        assert!(
            abi::ORDERS_AT + size_of::<Orders>() as u64 <= abi::COUNTERS_AT && counters_end <= abi::STACKS_AT
        );
        assert!(counters_end <= abi::BEGUN_AT && abi::BEGUN_AT + size_of::<Begun>() as u64 <= abi::TABLES_AT);
        assert!(abi::TABLES_AT + (VCPUS_MAX * size_of::<abi::Table>()) as u64 <= abi::STACKS_AT);
        assert!(stack_top(VCPUS_MAX as u64 - 1) <= abi::REQUESTS_AT);
        assert!(abi::TSS_AT + VCPUS_MAX as u64 * abi::TSS_BYTES <= abi::PROGRAM_AT);
        let entry = u64::from_le_bytes(PROGRAM[..8].try_into().unwrap());
        assert!((abi::PROGRAM_AT..abi::PROGRAM_AT + PROGRAM.len() as u64).contains(&entry));
    }

    #[test]
    fn times_pass_through_the_counters_ticks_unharmed() {
        for khz in [1_000_000, 999_983, 2_399_998, 3_700_000] {
            let o = orders(&Plan { workload: Workload::Burn, start_ns: 5 }, khz);
            // A day, to a tenth of a millisecond there and back.
            let day_ns = 86_400_000_000_000_u64;
            let ticks = ((u128::from(day_ns) * u128::from(o.ticks_per_ns_q32)) >> 32) as u64;
            let ns = ((u128::from(ticks) * u128::from(o.ns_per_tick_q32)) >> 32) as u64;
            assert!(ns.abs_diff(day_ns) < 100_000, "{khz} kHz: {ns}");
            assert!(ticks.abs_diff(86_400_000 * khz) < khz / 10, "{khz} kHz: {ticks}");
        }
    }
}
