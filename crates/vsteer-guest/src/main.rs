//! What runs inside a lab VM? This, as process 1, and nothing else. And what runs inside the emulated host? This too.
//!
//! In a VM it mounts the kernel's file systems, reads which workload to be (file `/workload`, else the kernel command
//! line), starts one pinned thread per vCPU and prints a report a second on the console; README.md documents
//! the workloads and the report. It never exits: on a failure it says why and powers the VM off, so that the
//! lab sees an ended VM and not a silent one. Left out: everything else a VM may contain.
//!
//! Where its initramfs holds a job instead (`/job`), it is the first program of the emulated host (host/mod.rs). That
//! starts it again as what runs there: `vmm` is one VM (vmm/mod.rs), `linux` one with an operating system (host/linux.rs), `process` a competitor of VMs. With `/xen-job` it is the
//! first program of an emulated Xen's Domain-0 (xen/mod.rs). In anybody's guest `vit -- COMMAND` runs a program whose timers the host is
//! told of (preload.rs), if the host has opted the VM in, which `vit-agent` hears (agent.rs). `player -- COMMAND` reports a media player's frames and sleeps (player.rs). `check-job FILE` tells the lab, before anything boots, whether
//! a job is one.

mod agent;
mod answered;
mod clock;
mod counters;
mod generator;
mod host;
mod place;
mod play;
mod player;
mod preload;
mod program;
mod reading;
mod report;
mod requests;
mod run;
mod runs;
mod vit;
mod vmm;
mod workload;
mod xen;

use answered::Queue;
use counters::Counters;
use place::Place;
use rustix::mount::{MountFlags, mount};
use rustix::thread::{CpuSet, sched_setaffinity, set_current_timer_slack};
use std::convert::Infallible;
use std::io::{BufRead, Write};
use std::num::NonZeroU64;
use std::path::PathBuf;
use workload::{Plan, Workload};

/// From report to report, ns.
const REPORT_EVERY_NS: u64 = 1_000_000_000;
/// What the kernel needs for the VM's devices, in the order of their names.
const MODULES: &str = "/modules";
/// What an emulated host does.
const JOB: &str = "/job";
/// What a Linux that runs a program finds on its command line, before that program and its words.
const PROGRAM_KEY: &str = "vsteer.program=";

fn main() {
    let mut words = std::env::args().skip(1);
    let mode = words.next();
    let why = match (std::process::id(), mode.as_deref()) {
        (1, _) => first_program(),
        (_, Some("vmm")) => match Started::parse(words).and_then(|s| s.run_vm()) {
            Ok(never) => match never {},
            Err(why) => why,
        },
        (_, Some("linux")) => match Started::parse(words).and_then(|s| s.run_linux()) {
            Ok(never) => match never {},
            Err(why) => why,
        },
        (_, Some("process")) => match Started::parse(words).and_then(compete) {
            Ok(never) => match never {},
            Err(why) => why,
        },
        (_, Some("vit")) => match preload::run(words) {
            Ok(never) => match never {},
            Err(why) => why,
        },
        (_, Some("vit-agent")) => match agent::run(words) {
            Ok(never) => match never {},
            Err(why) => why,
        },
        (_, Some("player")) => match player::run(words) {
            Ok(()) => return,
            Err(why) => why,
        },
        (_, Some("check-job")) => match check_job(words.next().as_deref().unwrap_or_default()) {
            Ok(()) => return,
            Err(why) => why,
        },
        _ => "this is the first program of a lab VM; elsewhere it has the commands vit, vit-agent and player (README.md)".to_owned(),
    };
    eprintln!("vsteer-guest: {why}");
    std::process::exit(2);
}

/// Is what the file holds a job, of the emulated host or of Xen's Domain-0?
fn check_job(file: &str) -> Result<(), String> {
    let text = std::fs::read_to_string(file).map_err(|e| format!("reading {file}: {e}"))?;
    if file.ends_with(xen::JOB) { xen::check(&text) } else { host::check(&text) }
}

/// Is process 1 of a VM, of the emulated host or of Xen's Domain-0, and powers it off when it cannot go on.
fn first_program() -> ! {
    let is_there = |file: &str| std::path::Path::new(file).exists();
    if is_there(JOB) || is_there(xen::JOB) {
        let done = if is_there(JOB) { host::live() } else { xen::live() };
        if let Err(why) = done {
            host::say(&format!("failed: {why}"));
        }
    } else {
        let why = match live() {
            Ok(never) => match never {},
            Err(why) => why,
        };
        println!("vsteer-guest: {why}");
    }
    // The console drains before the power goes: the lab shows this line.
    std::thread::sleep(std::time::Duration::from_millis(200));
    let _ = rustix::system::reboot(rustix::system::RebootCommand::PowerOff);
    loop {
        std::thread::park();
    }
}

/// What the emulated host starts: a VM or a process.
struct Started {
    name: String,
    vcpus: usize,
    workload: String,
    plan: Plan,
    place: Place,
    /// The file that is the VM's memory.
    memory: Option<PathBuf>,
    /// The VM arrives by live migration: its Linux ran on another host before.
    moved: bool,
}

impl Started {
    fn run_vm(&self) -> Result<Infallible, String> {
        vmm::run(self.vcpus, &self.plan, &self.place, self.memory.as_deref())
    }

    fn run_linux(&self) -> Result<Infallible, String> {
        host::linux::run(&self.name, self.vcpus, &self.workload, &self.place, self.moved)
    }

    fn parse(mut words: impl Iterator<Item = String>) -> Result<Started, String> {
        let (mut vcpus, mut workload, mut placed) = (1, None, Vec::new());
        let mut name = String::new();
        let (mut memory, mut moved) = (None, false);
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or_else(|| format!("{word} lacks a value"));
            match word.as_str() {
                // Mostly for those who look at the process list.
                "--name" => name = value()?,
                "--vcpus" => vcpus = value()?.parse().map_err(|_| "--vcpus is not a number".to_owned())?,
                "--workload" => workload = Some(value()?),
                "--memory" => memory = Some(PathBuf::from(value()?)),
                "--moved" => moved = true,
                "--group-per-vcpu" => placed.push(word),
                _ => {
                    let value = value()?;
                    placed.extend([word, value]);
                }
            }
        }
        let workload = workload.ok_or("--workload is missing")?;
        let plan = Plan::parse(&workload)?;
        let mut place = Place::default();
        host::place(&mut placed.into_iter(), &mut place)?;
        Ok(Started { name, vcpus, workload, plan, place, memory, moved })
    }
}

/// Competes with VMs by one thread, and reports when asked.
fn compete(started: Started) -> Result<Infallible, String> {
    started.place.take()?;
    let counters: &'static [Counters] = vec![Counters::new()].leak();
    let Plan { workload, start_ns } = started.plan;
    let kind = workload.kind();
    if workload.needs_linux() {
        return Err(format!("`{kind}` is for a VM: it needs a Linux of its own"));
    }
    std::thread::Builder::new()
        .stack_size(128 << 10)
        .name("competitor".to_owned())
        .spawn(move || {
            let _ = set_current_timer_slack(NonZeroU64::new(1));
            clock::sleep_until(start_ns);
            // Nobody would empty a queue of answers.
            run::run(&workload, 0, &counters[0], None)
        })
        .map_err(|e| format!("starting the thread: {e}"))?;
    report_when_asked(kind, 1, counters)
}

/// Prints a report for each line that is read, until there is none any more.
fn report_when_asked(kind: &str, vcpus: usize, counters: &[Counters]) -> Result<Infallible, String> {
    let mut asked = std::io::stdin().lock().lines();
    for seq in 0.. {
        if !matches!(asked.next(), Some(Ok(_))) {
            break;
        }
        let line = report::line(seq, clock::now_ns(), kind, vcpus, &reading::read(counters), None);
        let mut out = std::io::stdout();
        out.write_all(line.as_bytes()).and_then(|()| out.flush()).map_err(|e| format!("reporting: {e}"))?;
    }
    std::process::exit(0)
}

/// The console is a serial line to somebody who asks, and would be told each question again.
fn hear_plainly() -> rustix::io::Result<()> {
    use rustix::termios::{OptionalActions, tcgetattr, tcsetattr};
    let console = std::io::stdin();
    let mut settings = tcgetattr(&console)?;
    settings.make_raw();
    tcsetattr(&console, OptionalActions::Now, &settings)
}

/// Runs a program of /bin to its end, which none should come to; how it ended.
fn run_program(words: &str) -> String {
    let mut words = words.split(',');
    let program = format!("/bin/{}", words.next().unwrap_or_default());
    match std::process::Command::new(&program).args(words).status() {
        Ok(status) => format!("{program} ended ({status})"),
        Err(e) => format!("starting {program}: {e}"),
    }
}

/// Runs for ever, or says why it cannot.
fn live() -> Result<Infallible, String> {
    for (source, target, kind) in
        [("proc", "/proc", "proc"), ("sysfs", "/sys", "sysfs"), ("dev", "/dev", "devtmpfs")]
    {
        // The folder may be there already; mount says what matters.
        let _ = std::fs::create_dir(target);
        let flags = MountFlags::NOSUID | MountFlags::NOEXEC;
        mount(source, target, kind, flags, None).map_err(|e| format!("mounting {target}: {e}"))?;
    }
    host::boot::load_modules(MODULES)?;
    let cmdline =
        std::fs::read_to_string("/proc/cmdline").map_err(|e| format!("reading /proc/cmdline: {e}"))?;
    if let Some(words) = cmdline.split_whitespace().find_map(|word| word.strip_prefix(PROGRAM_KEY)) {
        return Err(run_program(words));
    }
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
    let answered: &'static [Queue] = (0..vcpus).map(|_| Queue::default()).collect::<Vec<_>>().leak();
    for (vcpu, (counters, queue)) in all.iter().zip(answered).enumerate() {
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
                clock::sleep_until(start_ns);
                run::run(&workload, vcpu as u64, counters, Some(queue))
            })
            .map_err(|e| format!("starting the thread of vCPU {vcpu}: {e}"))?;
    }

    if cmdline.split_whitespace().any(|word| word == host::linux::ASKED) {
        hear_plainly().map_err(|e| format!("setting the console: {e}"))?;
        return report_when_asked(workload.kind(), vcpus, all);
    }
    let mut console = std::io::stdout();
    let mut due_ns = clock::now_ns();
    for seq in 0.. {
        let jiffies = std::fs::read_to_string("/proc/stat").ok().and_then(|s| report::parse_jiffies(&s));
        let t_ns = clock::now_ns();
        let line = report::line(seq, t_ns, workload.kind(), vcpus, &reading::read(all), jiffies.as_ref());
        // One write; a console that fails cannot be told so.
        let _ = console.write_all(line.as_bytes());
        // After the report, which is read for its time of arrival as well: the shorter line comes first.
        if let Some(line) = answered::line(answered, clock::now_ns) {
            let _ = console.write_all(line.as_bytes());
        }
        due_ns += REPORT_EVERY_NS;
        clock::sleep_until(due_ns);
    }
    Err("the report counter overflowed".into())
}
