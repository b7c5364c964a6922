//! What does one vCPU do, exactly?
//!
//! Every wait is to an absolute time, so lateness does not push the schedule ahead of itself: an expiry that
//! was slept through is counted too (no coordinated omission; G. Tene, "How NOT to Measure Latency"). A
//! request's demand is a number of work units, so a slower vCPU serves it more slowly, as it would in truth.
//! Left out: memory traffic and I/O; these VMs contend for the CPU only.

use crate::answered::{Answered, Queue};
use crate::clock::{now_ns, sleep_until};
use crate::counters::Counters;
use crate::generator::Generator;
use crate::play;
use crate::program;
use crate::requests::{Arrivals, Due};
use crate::vit::Vit;
use crate::workload::Workload;

use std::io::{PipeReader, PipeWriter, Read, Write};

/// Where the C sources lie that [`Workload::Build`] builds.
const TREE: &str = "/tree";

/// Runs `workload` on the vCPU numbered `vcpu` for ever. What a server with a schedule answers goes to `answered`, if there is
/// one: somebody has to empty it.
pub fn run(workload: &Workload, vcpu: u64, counters: &Counters, answered: Option<&Queue>) -> ! {
    let generator = Generator::new(vcpu + 1);
    let vit = Vit::of_this_cpu();
    let worker = Worker { generator, counters, start_ns: now_ns() };
    match *workload {
        Workload::Scheduled(ref schedule) => worker.scheduled(schedule.draw(vcpu), answered),
        Workload::Idle => idle(),
        Workload::Burn => worker.burn(),
        Workload::Periodic { period_ns, work_units, .. } => worker.periodic(period_ns, work_units),
        // The work's own generator, so that the arrivals do not depend on the demands served.
        Workload::Server { rate_hz, mean_units, seed } => {
            worker.server(Arrivals::new(rate_hz, mean_units, seed, vcpu))
        }
        Workload::Burst { on_ns, off_ns } => worker.burst(on_ns, off_ns),
        // Its background is another program's business here: a Linux guest has threads of its own.
        Workload::Sleeper { sleep_ns, work_units, call, .. } => {
            worker.sleeper(sleep_ns, work_units, call.then_some(vit))
        }
        Workload::Flood { timer_ns } => worker.flood(timer_ns, vit),
        Workload::Build { jobs } => builds(jobs, counters),
        Workload::Niced { nice } => worker.niced(nice),
        Workload::Switch => {
            let why = switch(counters);
            fail(format!("switching to and fro: {why}"))
        }
        Workload::Play { background, call } => {
            let why = play::play(background, call, counters);
            fail(why)
        }
        // One for all vCPUs.
        Workload::Program { .. } if vcpu > 0 => idle(),
        Workload::Program { ref words } => {
            let why = program::run(words, counters, answered);
            // On the console, where those look who wonder why a VM says nothing any more.
            println!("vsteer-guest: {why}");
            std::process::exit(1);
        }
        Workload::Waker { every_ns, sleep_ns } => worker.waker(every_ns, sleep_ns),
    }
}

fn idle() -> ! {
    loop {
        std::thread::park();
    }
}

fn fail(why: impl std::fmt::Display) -> ! {
    eprintln!("vsteer-guest: {why}");
    std::process::exit(1);
}

/// A thread that does work units.
struct Worker<'a> {
    generator: Generator,
    counters: &'a Counters,
    start_ns: u64,
}

impl Worker<'_> {
    fn work(&mut self, units: u64) {
        for _ in 0..units {
            self.generator.work();
            self.counters.unit_done();
        }
    }

    fn scheduled(mut self, requests: Vec<Due>, answered: Option<&Queue>) -> ! {
        for request in requests {
            let arrival_ns = self.start_ns + request.arrival_ns;
            let took_ns = self.serve(arrival_ns, request.demand_units);
            if let Some(queue) = answered {
                queue.push(Answered { arrival_ns, took_ns });
            }
        }
        idle()
    }

    fn burn(mut self) -> ! {
        loop {
            self.work(1);
        }
    }

    fn periodic(mut self, period_ns: u64, work_units: u64) -> ! {
        let mut due_ns = self.start_ns;
        loop {
            due_ns += period_ns;
            wait(due_ns, self.counters);
            self.work(work_units);
        }
    }

    fn server(mut self, mut arrivals: Arrivals) -> ! {
        let mut arrival_ns = self.start_ns;
        loop {
            let (gap_ns, demand_units) = arrivals.draw();
            arrival_ns += gap_ns;
            self.serve(arrival_ns, demand_units);
        }
    }

    fn burst(mut self, on_ns: u64, off_ns: u64) -> ! {
        let mut begin_ns = self.start_ns;
        loop {
            self.burn_until(begin_ns + on_ns);
            begin_ns += on_ns + off_ns;
            wait(begin_ns, self.counters);
        }
    }

    /// If there is a `vit`, announces the timer of each sleep to the hypervisor.
    fn sleeper(mut self, sleep_ns: u64, work_units: u64, vit: Option<Vit>) -> ! {
        loop {
            let begun_ns = now_ns();
            if let Some(vit) = &vit {
                vit.arm(sleep_ns);
            }
            wait(begun_ns + sleep_ns, self.counters);
            self.work(work_units);
            self.counters.resp.record(now_ns() - begun_ns);
        }
    }

    fn flood(mut self, timer_ns: u64, vit: Vit) -> ! {
        loop {
            vit.arm(timer_ns);
            self.work(1);
        }
    }

    fn niced(self, nice: i32) -> ! {
        std::thread::spawn(|| {
            let mut beside = Generator::new(2);
            loop {
                beside.work();
            }
        });
        // Of this thread alone: so it is on Linux, whatever POSIX says.
        if let Err(e) = rustix::process::setpriority_process(None, nice) {
            fail(format!("nice {nice}: {e}"));
        }
        self.burn()
    }

    fn waker(mut self, every_ns: u64, sleep_ns: u64) -> ! {
        loop {
            self.burn_until(now_ns() + every_ns);
            wait(now_ns() + sleep_ns, self.counters);
        }
    }

    /// Waits for a request, unless it is there already, does its work and counts how long that took since it arrived, which
    /// it gives, ns.
    fn serve(&mut self, arrival_ns: u64, demand_units: u64) -> u64 {
        if now_ns() < arrival_ns {
            wait(arrival_ns, self.counters);
        }
        self.work(demand_units);
        let took_ns = now_ns() - arrival_ns;
        self.counters.resp.record(took_ns);
        took_ns
    }

    fn burn_until(&mut self, end_ns: u64) {
        while now_ns() < end_ns {
            self.work(1);
        }
    }
}

fn builds(jobs: u64, counters: &Counters) -> ! {
    loop {
        let begun_ns = now_ns();
        if let Err(why) = build(jobs) {
            fail(why);
        }
        counters.unit_done();
        counters.resp.record(now_ns() - begun_ns);
    }
}

/// Hands a byte to another thread and back, for ever; why it cannot.
fn switch(counters: &Counters) -> std::io::Error {
    let pass_on = |from: &mut PipeReader, to: &mut PipeWriter| {
        let mut byte = [0];
        from.read_exact(&mut byte).and_then(|()| to.write_all(&byte))
    };
    let (mut here, mut there) = match std::io::pipe().and_then(|first| Ok((first, std::io::pipe()?))) {
        Ok(((there, to_there), (here, to_here))) => ((here, to_there), (there, to_here)),
        Err(e) => return e,
    };
    std::thread::spawn(move || while pass_on(&mut there.0, &mut there.1).is_ok() {});
    if let Err(e) = here.1.write_all(&[0]) {
        return e;
    }
    loop {
        if let Err(e) = pass_on(&mut here.0, &mut here.1) {
            return e;
        }
        counters.unit_done();
    }
}

/// Builds all of [`TREE`], whether it has changed or not.
fn build(jobs: u64) -> Result<(), String> {
    let mut make = std::process::Command::new("make");
    make.args(["--always-make", "--silent", "--directory", TREE, &format!("--jobs={jobs}")]);
    let status = make.env("PATH", "/usr/bin").status().map_err(|e| format!("make: {e}"))?;
    if status.success() { Ok(()) } else { Err(format!("make ended with {status}")) }
}

/// Sleeps until `due_ns` and counts how late that was.
fn wait(due_ns: u64, counters: &Counters) {
    sleep_until(due_ns);
    counters.late.record(now_ns().saturating_sub(due_ns));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sleeping_into_the_past_returns_and_is_counted_late() {
        let counters = [Counters::new()];
        wait(now_ns() - 5_000_000, &counters[0]);
        let read = crate::reading::read(&counters);
        assert!(read.late.sum_ns >= 5_000_000);
        assert_eq!(read.late.buckets.iter().sum::<u64>(), 1);
    }
}
