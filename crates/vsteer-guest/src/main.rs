//! What runs inside a lab VM? This, as process 1, and nothing else.
//!
//! It mounts the kernel's file systems, reads which workload to be (file `/workload`, else the kernel command
//! line), starts one pinned thread per vCPU and prints a report a second on the console; README.md documents
//! the workloads and the report. It never exits: on a failure it says why and powers the VM off, so that the
//! lab sees an ended VM and not a silent one. Left out: everything else a VM may contain.

mod counters;
mod report;
mod run;
mod workload;

use counters::Counters;
use rustix::mount::{MountFlags, mount};
use rustix::thread::{CpuSet, sched_setaffinity, set_current_timer_slack};
use std::io::Write;
use std::num::NonZeroU64;
use workload::{Plan, Workload};

/// From report to report, ns.
const REPORT_EVERY_NS: u64 = 1_000_000_000;

fn main() {
    if std::process::id() != 1 {
        eprintln!("vsteer-guest: this is the first program of a lab VM; it does nothing elsewhere");
        std::process::exit(2);
    }
    let why = match live() {
        Ok(never) => match never {},
        Err(why) => why,
    };
    println!("vsteer-guest: {why}");
    // The console drains before the power goes: the lab shows this line.
    std::thread::sleep(std::time::Duration::from_millis(200));
    let _ = rustix::system::reboot(rustix::system::RebootCommand::PowerOff);
    loop {
        std::thread::park();
    }
}

/// Runs for ever, or says why it cannot.
fn live() -> Result<std::convert::Infallible, String> {
    for (source, target, kind) in
        [("proc", "/proc", "proc"), ("sysfs", "/sys", "sysfs"), ("dev", "/dev", "devtmpfs")]
    {
        // The folder may be there already; mount says what matters.
        let _ = std::fs::create_dir(target);
        let flags = MountFlags::NOSUID | MountFlags::NOEXEC;
        mount(source, target, kind, flags, None).map_err(|e| format!("mounting {target}: {e}"))?;
    }
    let cmdline =
        std::fs::read_to_string("/proc/cmdline").map_err(|e| format!("reading /proc/cmdline: {e}"))?;
    let text = match std::fs::read_to_string("/workload") {
        Ok(text) => text,
        Err(_) => Workload::on_command_line(&cmdline)
            .ok_or("neither /workload nor vsteer.workload= says what to do")?
            .to_owned(),
    };
    let Plan { workload, start_ns } = Plan::parse(&text)?;

    let vcpus = std::thread::available_parallelism().map_err(|e| format!("counting vCPUs: {e}"))?.get();
    // Leaked on purpose: the threads never end.
    let all: &'static [Counters] = (0..vcpus).map(|_| Counters::new()).collect::<Vec<_>>().leak();
    for (vcpu, counters) in all.iter().enumerate() {
        let workload = workload.clone();
        std::thread::Builder::new()
            .stack_size(128 << 10)
            .spawn(move || {
                let mut only = CpuSet::new();
                only.set(vcpu);
                if let Err(e) = sched_setaffinity(None, &only) {
                    println!("vsteer-guest: pinning to vCPU {vcpu}: {e}");
                }
                // Timers as sharp as they can be: the lateness shall be the host's.
                let _ = set_current_timer_slack(NonZeroU64::new(1));
                run::sleep_until(start_ns);
                run::run(&workload, vcpu as u64, counters)
            })
            .map_err(|e| format!("starting the thread of vCPU {vcpu}: {e}"))?;
    }

    let mut console = std::io::stdout();
    let mut due_ns = run::now_ns();
    for seq in 0.. {
        let jiffies = std::fs::read_to_string("/proc/stat").ok().and_then(|s| report::parse_jiffies(&s));
        let t_ns = run::now_ns();
        let line = report::line(seq, t_ns, workload.kind(), vcpus, &counters::read(all), jiffies.as_ref());
        // One write; a console that fails cannot be told so.
        let _ = console.write_all(line.as_bytes());
        due_ns += REPORT_EVERY_NS;
        run::sleep_until(due_ns);
    }
    Err("the report counter overflowed".into())
}
