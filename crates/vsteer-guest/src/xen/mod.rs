//! What does the first program of the emulated Xen's Domain-0 do? The job that lies in its initramfs, then off.
//!
//! It mounts what Xen's tools need, starts them (xenstored, xenconsoled), and for each case makes a pool, starts the domains
//! by `xl`, lets `xentrace` write what the scheduler did, keeps what the domains said on their consoles meanwhile, and ends
//! all again. What came of it leaves as from the emulated host (host/archive.rs, host/window.rs).
//!
//! Source: Xen 4.17, docs/man/xl.1.pod.in, xl.cfg.5.pod.in, xlcpupool.cfg.5.pod.in, tools/xentrace/xentrace.8.
//!
//! Servers may be asked from here (asker.rs), as over a network: then Domain-0 has its part in how long that takes.
//!
//! A domain may be a Linux that runs a program: this kernel and an initramfs that lie in Domain-0's own, whose first program is this
//! one again.
//!
//! Left out: disks, networks.

mod asker;
mod job;
mod ring;

use crate::PROGRAM_KEY;
use crate::host::{boot, hand_over, say, sleep_s};
use crate::vmm::{kind, orders, requests};
use crate::workload::Plan;
use asker::{Asker, Door};
use job::{Case, Domain, Job};
use rustix::mount::{MountFlags, mount};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// What Domain-0 does.
pub const JOB: &str = "/xen-job";

/// The program of domains, an ELF file, from build.rs.
static PROGRAM: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/domain.elf"));
const RESULTS: &str = "/run/results";
const PROGRAM_FILE: &str = "/run/domain.elf";
/// Where xenconsoled keeps what domains say.
const CONSOLES: &str = "/var/log/xen";
const POOL: &str = "vsteer";
/// Runstate changes and nothing else: TRC_SCHED_MIN of xen/include/public/trace.h.
const EVENTS: &str = "0x00021000";
/// As the tools expect them.
const FOLDERS: [&str; 8] = [
    "/var/lock",
    "/var/lib/xen",
    "/var/lib/xen/dump",
    "/var/lib/xenstored",
    "/var/log/xen",
    "/run/xen",
    "/run/xenstored",
    "/run/lock",
];
/// What a Linux boots, where the lab puts it.
const LINUX: (&str, &str) = ("/linux/vmlinux", "/linux/initramfs");
/// Of memory for a domain, MiB.
const MEMORY_MIB: u32 = 16;
/// A pool is empty within so many half seconds.
const POOL_TRIES: u32 = 20;
/// A server says within so many tenths of a second where it is asked.
const DOOR_TRIES: u32 = 100;
/// The service writes its metrics every ten seconds.
const WRITES_WITHIN: std::time::Duration = std::time::Duration::from_secs(60);
/// xenstored answers within so many tenths of a second.
const STORE_WITHIN: u32 = 300;

/// Does the job, or says why it cannot.
///
/// # Errors
/// A sentence for the console.
pub fn live() -> Result<(), String> {
    boot::mount_all()?;
    let text = std::fs::read_to_string(JOB).map_err(|e| format!("reading {JOB}: {e}"))?;
    let job = Job::parse(&text)?;
    start_tools()?;
    std::fs::write(PROGRAM_FILE, PROGRAM).map_err(|e| format!("writing {PROGRAM_FILE}: {e}"))?;
    make(RESULTS)?;
    say("up");
    for (i, case) in job.cases.iter().enumerate() {
        say(&format!("case {} of {}: {}", i + 1, job.cases.len(), case.name));
        run_case(&job, case).map_err(|why| format!("case {}: {why}", case.name))?;
    }
    hand_over(Path::new(RESULTS))
}

/// Is what the file holds a job?
///
/// # Errors
/// Its line and what is wrong with it.
pub fn check(text: &str) -> Result<(), String> {
    Job::parse(text).map(drop)
}

fn make(folder: &str) -> Result<(), String> {
    std::fs::create_dir_all(folder).map_err(|e| format!("making {folder}: {e}"))
}

fn start_tools() -> Result<(), String> {
    // Some tools say /var/run.
    let _ = std::os::unix::fs::symlink("/run", "/var/run");
    boot::load_modules("/modules")?;
    FOLDERS.iter().try_for_each(|f| make(f))?;
    mount("xenfs", "/proc/xen", "xenfs", MountFlags::empty(), None)
        .map_err(|e| format!("mounting /proc/xen: {e}"))?;
    make("/dev/pts")?;
    mount("devpts", "/dev/pts", "devpts", MountFlags::empty(), None)
        .map_err(|e| format!("mounting /dev/pts: {e}"))?;
    run("xenstored", &["--pid-file", "/run/xenstored.pid"])?;
    let mut tries = 0;
    while let Err(why) = run("xen-init-dom0", &[]) {
        tries += 1;
        if tries == STORE_WITHIN {
            return Err(why);
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    run("xenconsoled", &["--log=guest", "--log-dir", CONSOLES, "--pid-file=/run/xenconsoled.pid"]).map(drop)
}

fn command(program: &str, words: &[&str]) -> Command {
    // Where the lab puts Xen's programs.
    let mut command = Command::new(format!("/bin/{program}"));
    command.args(words).stdin(Stdio::null());
    command
}

/// Runs a program to its end; what it printed.
fn run(program: &str, words: &[&str]) -> Result<String, String> {
    let line = || format!("`{program} {}`", words.join(" "));
    // Daemons keep what they inherit: files, which nobody waits for, and no pipes.
    let (out, err) = ("/run/out.txt", "/run/err.txt");
    let file = |path: &str| std::fs::File::create(path).map_err(|e| format!("writing {path}: {e}"));
    let status = command(program, words).stdout(file(out)?).stderr(file(err)?).status();
    let status = status.map_err(|e| format!("starting {}: {e}", line()))?;
    let said = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    if status.success() {
        Ok(said(out))
    } else {
        Err(format!("{} failed ({status}): {} {}", line(), said(err).trim(), said(out).trim()))
    }
}

fn xl(words: &[&str]) -> Result<String, String> {
    run("xl", words)
}

fn run_case(job: &Job, case: &Case) -> Result<(), String> {
    let folder = format!("{RESULTS}/{}", case.name);
    make(&folder)?;
    let mut askers = Vec::new();
    let done = prepare(job, case, &folder, &mut askers).and_then(|()| measure(job, case, &folder));
    let heard = askers.into_iter().map(Asker::end).fold(Ok(()), Result::and);
    // Whatever happened, the next case begins on a host without domains.
    let ended = end(case);
    done.and(heard).and(ended)
}

fn prepare(job: &Job, case: &Case, folder: &str, askers: &mut Vec<Asker>) -> Result<(), String> {
    let scheduler = job.scheduler.as_str();
    if let Some(cpu) = case.pool {
        xl(&["cpupool-cpu-remove", "Pool-0", &cpu.to_string()])?;
        let text = format!("name = \"{POOL}\"\nsched = \"{scheduler}\"\ncpus = [\"{cpu}\"]\n");
        std::fs::write("/run/pool.cfg", text).map_err(|e| format!("writing the pool: {e}"))?;
        xl(&["cpupool-create", "/run/pool.cfg"])?;
    }
    if !case.parameters.is_empty() {
        let pool = if case.pool.is_some() { POOL } else { "Pool-0" };
        let command = format!("sched-{scheduler}");
        let mut words = vec![command.as_str(), "-s", "-p", pool];
        words.extend(case.parameters.iter().map(String::as_str));
        xl(&words)?;
    }
    for domain in &case.domains {
        start(case, domain)?;
    }
    // All are there before the first is asked.
    let asked = case.domains.iter().filter(|d| d.asked).map(|d| Ok((d, door_of(d)?)));
    for (d, (id, door)) in asked.collect::<Result<Vec<_>, String>>()? {
        let log = format!("{folder}/{}.log", d.name);
        askers.push(Asker::start(id, door, &Plan::parse(&d.workload)?.workload, &log)?);
    }
    sleep_s(case.settle_s);
    Ok(())
}

fn start(case: &Case, d: &Domain) -> Result<(), String> {
    let told = |e: std::io::Error| format!("preparing {}: {e}", d.name);
    let mut text = format!(
        "name = \"{}\"\ntype = \"pv\"\ncpu_weight = {}\ncap = {}\nvcpus = {}\non_crash = \"preserve\"\n",
        d.name, d.weight, d.cap, d.vcpus
    );
    if d.program.is_empty() {
        let orders_file = format!("/run/{}.orders", d.name);
        std::fs::write(&orders_file, orders_of(&Plan::parse(&d.workload)?, d.asked)).map_err(told)?;
        text += &format!("kernel = \"{PROGRAM_FILE}\"\nramdisk = \"{orders_file}\"\nmemory = {MEMORY_MIB}\n");
    } else {
        let (kernel, initramfs) = LINUX;
        text += &format!(
            "kernel = \"{kernel}\"\nramdisk = \"{initramfs}\"\nmemory = {}\n\
             cmdline = \"console=hvc0 quiet panic=-1 {PROGRAM_KEY}{}\"\n",
            d.memory_mib,
            d.program.join(",")
        );
    }
    if case.pool.is_some() {
        text += &format!("pool = \"{POOL}\"\n");
    }
    if let Some(cpus) = &d.cpus {
        text += &format!("cpus = \"{cpus}\"\n");
    }
    let file = format!("/run/{}.cfg", d.name);
    std::fs::write(&file, text).map_err(told)?;
    xl(&["create", "-q", "-e", &file]).map(drop)
}

/// A domain's number, and where it is asked, once it has said so.
fn door_of(d: &Domain) -> Result<(u16, Door), String> {
    let id = xl(&["domid", &d.name])?;
    let id = id.trim().parse().map_err(|_| format!("`xl domid {}` says {id:?}", d.name))?;
    for _ in 0..DOOR_TRIES {
        if let Some(door) = Door::said(&console(&d.name)) {
            return Ok((id, door));
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    Err(format!("{} does not say where it is asked", d.name))
}

/// What a domain finds as its module: orders, then requests, unless those come from here.
fn orders_of(plan: &Plan, asked: bool) -> Vec<u8> {
    // The clock is Xen's, so that the counter's frequency says nothing.
    let mut o = orders(plan, 1_000_000);
    if asked {
        o.kind = kind::SERVER_ASKED;
    }
    let words =
        [o.kind, o.start_ns, o.ns_per_tick_q32, o.ticks_per_ns_q32, o.first_ns, o.second_ns, o.work_units];
    let mut bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
    for request in requests(&plan.workload, 0).into_iter().filter(|_| !asked) {
        bytes.extend(request.gap_ns.to_le_bytes().into_iter().chain(request.demand_units.to_le_bytes()));
    }
    bytes
}

fn measure(job: &Job, case: &Case, folder: &str) -> Result<(), String> {
    let seconds = case.record_s.to_string();
    reported(case, folder, "reports", || {
        let trace = format!("{folder}/host.xentrace");
        let tracer = command("xentrace", &["-D", "-e", EVENTS, "-T", &seconds, &trace])
            .stdout(Stdio::null())
            .spawn()
            .map_err(|e| format!("starting xentrace: {e}"))?;
        sleep_s(case.record_s);
        wait(tracer)
    })?;
    if case.observe_s > 0 {
        reported(case, folder, "observed", || {
            observe(case.observe_s, &format!("{folder}/host.vsteer"), "auto")
        })?;
    }
    if case.sample_s > 0 {
        let recording = format!("{folder}/sampled.vsteer");
        reported(case, folder, "sampled", || observe(case.sample_s, &recording, "sampled"))?;
    }
    if case.serve_s > 0 {
        reported(case, folder, "served", || serve(case.serve_s, folder))?;
    }
    let mut done = String::new();
    for (i, words) in case.commands.iter().enumerate() {
        let begin = unix_s();
        let status = carry_out(words, &format!("{folder}/command-{}", i + 1))?;
        done += &format!("{begin:.6} {:.6} {status} {}\n", unix_s(), words.join(" "));
    }
    let told = |e: std::io::Error| format!("writing into {folder}: {e}");
    std::fs::write(format!("{folder}/commands.txt"), done).map_err(told)?;
    for d in case.domains.iter().filter(|d| !d.program.is_empty()) {
        std::fs::write(format!("{folder}/{}.console", d.name), console(&d.name)).map_err(told)?;
    }
    for (name, words) in [
        ("info", &["info", "-n"][..]),
        ("domains", &["list", "-v"]),
        ("vcpus", &["vcpu-list"]),
        ("pools", &["cpupool-list"]),
        ("scheduler", &[&format!("sched-{}", job.scheduler)]),
    ] {
        std::fs::write(format!("{folder}/{name}.txt"), xl(words)?)
            .map_err(|e| format!("writing {name}: {e}"))?;
    }
    Ok(())
}

/// Keeps what the domains say while something is done: whole lines that came meanwhile, and the last one before.
fn reported(
    case: &Case,
    folder: &str,
    kind: &str,
    what: impl FnOnce() -> Result<(), String>,
) -> Result<(), String> {
    let before: Vec<usize> = case.domains.iter().map(|d| console(&d.name).len()).collect();
    what()?;
    for (d, before) in case.domains.iter().zip(before) {
        let text = console(&d.name);
        let from = text[..before].trim_end().rfind('\n').map_or(0, |at| at + 1);
        let to = text.rfind('\n').map_or(0, |at| at + 1);
        std::fs::write(format!("{folder}/{}.{kind}", d.name), text.get(from..to).unwrap_or_default())
            .map_err(|e| format!("writing the reports of {}: {e}", d.name))?;
    }
    Ok(())
}

/// The observer, as on any Domain-0: it finds by itself where it is.
fn observe(seconds: u64, recording: &str, collector: &str) -> Result<(), String> {
    let length = format!("{seconds}s");
    let words = ["record", "-o", recording, "--for", &length, "--interval", "1s", "--collector", collector];
    run("vsteer", &words).map(drop)
}

/// The service, as it starts by itself: its metrics soon after its start, and those that it writes `seconds` later.
fn serve(seconds: u64, folder: &str) -> Result<(), String> {
    let textfile = format!("{folder}/served.prom");
    let words =
        ["--socket", "/run/serve.sock", "--history", "none", "--interval", "1s", "--textfile", &textfile];
    let told = |e: std::io::Error| format!("the metrics of the service, {textfile}: {e}");
    let mut service =
        command("vsteer-serve", &words).spawn().map_err(|e| format!("starting the service: {e}"))?;
    let changed = || std::fs::metadata(&textfile).and_then(|m| m.modified()).ok();
    let mut next = |former: Option<std::time::SystemTime>| -> Result<(), String> {
        let end = std::time::Instant::now() + WRITES_WITHIN;
        while changed() == former {
            if let Ok(Some(status)) = service.try_wait() {
                return Err(format!("the service ended with {status}"));
            }
            if std::time::Instant::now() > end {
                return Err("the service writes no metrics".to_owned());
            }
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
        Ok(())
    };
    next(None)?;
    std::fs::copy(&textfile, format!("{folder}/served-before.prom")).map_err(told)?;
    sleep_s(seconds);
    // At once after it was written, so that the domains' newest reports are as old.
    next(changed())?;
    std::fs::copy(&textfile, format!("{folder}/served-after.prom")).map_err(told)?;
    let _ = service.kill();
    let _ = service.wait();
    std::fs::remove_file(&textfile).map_err(told)
}

/// Runs a command to its end, however it ends: what it printed (`.out`), said (`.txt`), and its status, which is returned too. `sleep S`
/// is this program's own.
fn carry_out(words: &[String], to: &str) -> Result<String, String> {
    if let [word, seconds] = words
        && word == "sleep"
    {
        sleep_s(seconds.parse().map_err(|_| format!("`sleep {seconds}`: no number of seconds"))?);
        return Ok("0".to_owned());
    }
    let file = |name: &str| {
        std::fs::File::create(format!("{to}.{name}")).map_err(|e| format!("writing {to}.{name}: {e}"))
    };
    let rest: Vec<&str> = words[1..].iter().map(String::as_str).collect();
    let status = command(&words[0], &rest).stdout(file("out")?).stderr(file("txt")?).status();
    let status = status.map_err(|e| format!("starting `{}`: {e}", words.join(" ")))?;
    let code = status.code().map_or("signal".to_owned(), |code| code.to_string());
    std::fs::write(format!("{to}.status"), &code).map_err(|e| format!("writing {to}.status: {e}"))?;
    Ok(code)
}

fn unix_s() -> f64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(0.0, |d| d.as_secs_f64())
}

fn wait(mut child: Child) -> Result<(), String> {
    let ended = child.wait().map_err(|e| format!("waiting for xentrace: {e}"))?;
    if ended.success() { Ok(()) } else { Err(format!("xentrace ended with {ended}")) }
}

/// What a domain has said.
fn console(name: &str) -> String {
    std::fs::read_to_string(format!("{CONSOLES}/guest-{name}.log")).unwrap_or_default()
}

/// Ends the pool once the last domain has left it, which takes Xen a moment after that was destroyed.
fn empty_pool() -> Result<(), String> {
    let mut tries = 0;
    while let Err(why) = xl(&["cpupool-destroy", POOL]) {
        tries += 1;
        if tries == POOL_TRIES {
            return Err(why);
        }
        std::thread::sleep(std::time::Duration::from_millis(500));
    }
    Ok(())
}

fn end(case: &Case) -> Result<(), String> {
    // All are tried, the first failure is told; one that never began cannot be ended.
    let mut done = Ok(());
    let running = xl(&["list"])?;
    for d in
        case.domains.iter().filter(|d| running.lines().any(|l| l.split_whitespace().next() == Some(&d.name)))
    {
        done = done.and(xl(&["destroy", &d.name]).map(drop));
        let _ = std::fs::remove_file(format!("{CONSOLES}/guest-{}.log", d.name));
    }
    if let Some(cpu) = case.pool {
        done = done.and(empty_pool());
        done = done.and(xl(&["cpupool-cpu-add", "Pool-0", &cpu.to_string()]).map(drop));
    }
    done
}
