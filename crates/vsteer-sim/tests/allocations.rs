//! Does a simulation in its steady state allocate anything?
//!
//! The whole test program allocates through a counter; nothing may be added to it while a warmed-up host runs on, for
//! any policy. Only what the thread of the test allocates counts: the harness has threads too.

#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use vsteer_core::topology::machine;
use vsteer_sim::guest::driver::{Asked, ServedSpec};
use vsteer_sim::guest::lock::{LockSpec, Order};
use vsteer_sim::guest::poke::Waiting;
use vsteer_sim::guest::team::{LoopSpec, Schedule};
use vsteer_sim::guest::{Demand, Times};
use vsteer_sim::policy::Values;
use vsteer_sim::sched::POLICIES;
use vsteer_sim::setup::{Setup, VcpuSetup, VmSetup};

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: hands every request on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // A thread that ends has none any more.
        let _ = ALLOCATIONS.try_with(|n| n.set(n.get() + 1));
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, p: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `dealloc`, and `p` is the system's.
        unsafe { System.dealloc(p, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

const MS: u64 = 1_000_000;

#[test]
fn nothing_is_allocated_in_the_steady_state() {
    for entry in POLICIES {
        let demand = |i: u32| match i % 8 {
            0 => Demand::Hog,
            1 => Demand::Periodic { period_ns: 10 * MS, offset_ns: Some(0), work: Times::Fixed(MS) },
            2 => Demand::Server { between: Times::Exponential(4 * MS), service: Times::Fixed(MS) },
            3 => Demand::Loop(Box::new(LoopSpec {
                team: 0,
                iterations: 20,
                work: Times::Exponential(MS),
                schedule: Schedule::Dynamic,
                chunk: None,
                threads: None,
                overhead_ns: 0,
                wait: Waiting::SpinThenSleep(MS),
                serial: None,
                pause: None,
            })),
            4 => Demand::Lock(Box::new(LockSpec {
                lock: 0,
                outside: Times::Exponential(4 * MS),
                sleep: None,
                inside: Times::Fixed(MS),
                wait: Waiting::Spin,
                order: Order::Running,
            })),
            5 if i == 5 => Demand::Driver,
            5 => Demand::Served(Box::new(ServedSpec {
                asked: Asked::Drawn { between: Times::Exponential(20 * MS), service: Times::Fixed(MS) },
                driver: "5".into(),
                before: Times::Fixed(MS / 10),
                after: Times::Fixed(MS / 10),
                backlog: 100,
            })),
            _ => Demand::SleepCompute {
                sleep: Times::Exponential(9 * MS),
                compute: Times::Exponential(3 * MS),
            },
        };
        let vms = (0..40).map(|i| {
            let mut vm = VmSetup::new(format!("{i}"), vec![VcpuSetup::new(demand(i)); 1 + i as usize % 3]);
            vm.cap_pct = (entry.about.caps && i % 7 == 0).then_some(30);
            vm
        });
        let setup = Setup::new(machine(2, 1, 4, 2).unwrap(), vms.collect(), 3);
        let mut s = (entry.build)(&setup, &Values::defaults(entry.about.parameters)).unwrap();
        s.run(2000 * MS, u64::MAX);
        let (before, events) = (ALLOCATIONS.get(), s.events());
        s.run(6000 * MS, u64::MAX);
        let during = ALLOCATIONS.get() - before;
        let events = s.events() - events;
        assert!(events > 5_000, "{}: only {events} events", entry.about.name);
        assert_eq!(during, 0, "{}: {during} allocations in {events} events", entry.about.name);
    }
}
