//! What does a vCPU without an operating system do? Its workload, by whatever clock it has.
//!
//! The same for the VMs of the emulated host (vmm/payload.rs) and the domains of the emulated Xen (xen/payload.rs), which
//! differ in how they tell time and sleep. It does what `run.rs` does in a VM with Linux, by the same counters and the
//! same unit of work.
//!
//! Left out: floating point (a server's requests are drawn outside and come as a table).

use crate::abi::{Orders, Request, kind};
use crate::counters::Counters;
use crate::generator::Generator;

/// Time, and sleep.
pub trait Clock {
    /// ns since some beginning.
    fn now_ns(&self) -> u64;
    /// Sleeps until `due_ns`; returns at once where that has passed.
    fn sleep_until(&self, due_ns: u64);
    /// Sets the timer that ends a sleep, without sleeping: the host shall see it end while work is done instead.
    fn arm(&self, _due_ns: u64) {}
    /// Tells the host by a hypercall when a timer that matters ends.
    fn call(&self, _in_ns: u64) {}
    /// Called after every unit of work and every sleep.
    fn pass(&self, _counters: &Counters) {}
    /// Called after every request of a server that keeps its responses.
    fn answered(&self, _arrived_ns: u64, _done_ns: u64) {}
    /// Waits for a request from outside: its name, to be given back with the answer, and what it takes, work units.
    fn asked(&self, _counters: &Counters) -> (u64, u64) {
        self.stop()
    }
    /// Answers the request of this name.
    fn answer(&self, _name: u64) {}
    /// Does nothing more, for good.
    fn stop(&self) -> !;
}

/// Sleeps until `due_ns` and counts how late that was.
fn wait(clock: &impl Clock, due_ns: u64, counters: &Counters) {
    clock.sleep_until(due_ns);
    counters.late.record(clock.now_ns().saturating_sub(due_ns));
    clock.pass(counters);
}

fn work(clock: &impl Clock, units: u64, generator: &mut Generator, counters: &Counters) {
    for _ in 0..units {
        generator.work();
        counters.unit_done();
        clock.pass(counters);
    }
}

fn burn_until(clock: &impl Clock, end_ns: u64, generator: &mut Generator, counters: &Counters) {
    while clock.now_ns() < end_ns {
        work(clock, 1, generator, counters);
    }
}

/// Waits for a request, unless it is there already, and does its work; when that was done.
fn serve(
    clock: &impl Clock,
    due_ns: u64,
    request: &Request,
    generator: &mut Generator,
    counters: &Counters,
) -> u64 {
    if clock.now_ns() < due_ns {
        wait(clock, due_ns, counters);
    }
    work(clock, request.demand_units, generator, counters);
    let done_ns = clock.now_ns();
    counters.resp.record(done_ns - due_ns);
    done_ns
}

/// Alternates between sleep and work. Background units run during the sleep; units that do not fit are carried over.
fn sleep_and_work(clock: &impl Clock, orders: &Orders, mut generator: Generator, counters: &Counters) -> ! {
    let mut backlog = 0;
    loop {
        let begun_ns = clock.now_ns();
        let due_ns = begun_ns + orders.second_ns;
        if orders.call != 0 {
            clock.call(orders.second_ns);
        }
        backlog += orders.background_units;
        if backlog > 0 {
            clock.arm(due_ns);
        }
        while backlog > 0 && clock.now_ns() < due_ns {
            work(clock, 1, &mut generator, counters);
            backlog -= 1;
        }
        wait(clock, due_ns, counters);
        work(clock, orders.work_units, &mut generator, counters);
        counters.resp.record(clock.now_ns() - begun_ns);
    }
}

/// Follows its orders for ever.
pub fn run(clock: &impl Clock, orders: &Orders, requests: &[Request], counters: &Counters, vcpu: u64) -> ! {
    let mut generator = Generator::new(vcpu + 1);
    // From where it was to begin: that is a while ago, if it did not get a pCPU at once.
    let mut due_ns = match orders.kind {
        kind::PERIODIC if orders.start_ns > 0 => orders.start_ns,
        _ => clock.now_ns(),
    };
    match orders.kind {
        kind::BURN => loop {
            work(clock, 1, &mut generator, counters);
        },
        kind::PERIODIC => loop {
            due_ns += orders.first_ns;
            wait(clock, due_ns, counters);
            work(clock, orders.work_units, &mut generator, counters);
        },
        kind::SERVER => loop {
            for request in requests {
                due_ns += request.gap_ns;
                serve(clock, due_ns, request, &mut generator, counters);
            }
        },
        kind::SERVER_ONCE => {
            for request in requests {
                due_ns += request.gap_ns;
                clock.answered(due_ns, serve(clock, due_ns, request, &mut generator, counters));
            }
            clock.stop()
        }
        kind::SERVER_ASKED => loop {
            let (name, units) = clock.asked(counters);
            work(clock, units, &mut generator, counters);
            clock.answer(name);
        },
        kind::BURST => loop {
            burn_until(clock, due_ns + orders.first_ns, &mut generator, counters);
            due_ns += orders.first_ns + orders.second_ns;
            wait(clock, due_ns, counters);
        },
        kind::SLEEPER => sleep_and_work(clock, orders, generator, counters),
        kind::FLOOD => loop {
            clock.call(orders.first_ns);
            work(clock, 1, &mut generator, counters);
        },
        kind::WAKER => loop {
            let begun_ns = clock.now_ns();
            burn_until(clock, begun_ns + orders.first_ns, &mut generator, counters);
            let due_ns = clock.now_ns() + orders.second_ns;
            wait(clock, due_ns, counters);
        },
        _ => clock.stop(),
    }
}
