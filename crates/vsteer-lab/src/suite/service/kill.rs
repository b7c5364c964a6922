//! If the steering process is killed, do the former weights return?
//!
//! On real VMs and a real libvirt, `vsteer steer --yes` follows logs that this case writes. Their requests
//! take too long for one VM. There is no real server, because only setting and rolling back weights is
//! tested. Once weights are set, SIGKILL ends one of these: the steering process; its watchdog and, after a
//! new watchdog has started, the process; or both at once, after which `vsteer rollback` must finish. If
//! interrupted, the process rolls back by itself. A collector that dies (the process that asks libvirt) is
//! replaced, and steering continues.

use crate::command;
use crate::drive::Vsteer;
use crate::interrupt;
use crate::suite::{Bench, Case, Findings, Minutes};
use serde_json::{Value, json};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use vsteer_core::{Fault, FaultKind};

/// The case; see the head of this file.
pub const CASE: Case = Case {
    name: "steer",
    doc: "weights that vsteer steer has set return when it is interrupted or killed, with its watchdog or without",
    in_test: true,
    minutes: Minutes::new(2.0, 2.5),
    beside: false,
    run,
};

const LIMIT: Duration = Duration::from_secs(60);
const PERIOD_S: u64 = 3;
/// The process that asks libvirt. And the time limit until weights are set, and until they have returned.
const COLLECTOR: &str = "vsteer-libvirt";
const WITHIN: Duration = Duration::from_secs(60);
/// Requests of each VM per second, and their times, s: the first VM's exceed its level.
const RATE_HZ: f64 = 20.0;
const TOOK_S: (f64, f64) = (0.100, 0.060);
/// A service level that is missed only slightly, so that weights can fix it however busy the host is.
const LEVELS_MS: (u32, u32) = (95, 400);

fn failed(what: impl Into<String>) -> Fault {
    Fault::new(FaultKind::Failed, what)
}

fn run(bench: &Bench) -> Result<Findings, Fault> {
    let mut findings = Findings::default();
    let figures = bench.on_lab("burst(on_ms=40;off_ms=60)=4x1", bench.seed, |_, v| {
        let mut figures = Vec::new();
        for how in [How::Interrupted, How::Collector, How::Killed, How::WatchdogFirst, How::Both] {
            figures.push(one(bench, v, how, &mut findings)?);
        }
        Ok(figures)
    })?;
    findings.figures = json!(figures);
    Ok(findings)
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum How {
    Interrupted,
    Collector,
    Killed,
    WatchdogFirst,
    Both,
}

impl How {
    fn words(self) -> &'static str {
        match self {
            How::Interrupted => "interrupted",
            How::Collector => "its collector killed, some periods later interrupted",
            How::Killed => "killed",
            How::WatchdogFirst => "killed after its watchdog was, and another had taken over",
            How::Both => "killed together with its watchdog, then rollback",
        }
    }
}

/// Logs that grow.
struct Logs {
    files: Vec<(std::fs::File, f64)>,
    until: SystemTime,
}

impl Logs {
    fn new(folder: &Path, names: &[String]) -> Result<Logs, Fault> {
        let open = |(i, name): (usize, &String)| {
            let path = folder.join(format!("{name}.log"));
            let file = std::fs::File::create(&path)
                .map_err(|e| Fault::io(format!("making {}", path.display()), &e))?;
            Ok((file, if i == 0 { TOOK_S.0 } else { TOOK_S.1 }))
        };
        let files = names.iter().enumerate().map(open).collect::<Result<_, Fault>>()?;
        Ok(Logs { files, until: SystemTime::now() })
    }

    /// Writes the requests that have ended since the last call.
    fn grow(&mut self) -> Result<(), Fault> {
        let gap = Duration::from_secs_f64(1.0 / RATE_HZ);
        while self.until + gap < SystemTime::now() {
            self.until += gap;
            let ts = self.until.duration_since(UNIX_EPOCH).map_or(0.0, |d| d.as_secs_f64());
            for (file, took_s) in &mut self.files {
                writeln!(file, "{{\"ts\":{ts:.6},\"duration_s\":{took_s}}}")
                    .map_err(|e| Fault::io("writing a log", &e))?;
            }
        }
        Ok(())
    }
}

/// A running `vsteer steer`, with the logs that it follows.
struct Steered {
    child: Child,
    logs: Logs,
    out: PathBuf,
}

impl Steered {
    /// Starts it, and waits until it has set weights.
    fn start(bench: &Bench, v: &Vsteer, names: &[String]) -> Result<Steered, Fault> {
        let folder = PathBuf::from(bench.fresh("steer")?);
        std::fs::create_dir_all(&folder)
            .map_err(|e| Fault::io(format!("making {}", folder.display()), &e))?;
        let logs = Logs::new(&folder, names)?;
        let mut sla = format!("period = \"{PERIOD_S}s\"\n");
        for (i, name) in names.iter().enumerate() {
            let ms = if i == 0 { LEVELS_MS.0 } else { LEVELS_MS.1 };
            let log = folder.join(format!("{name}.log"));
            sla += &format!(
                "[[vm]]\nname = \"{name}\"\nlog = \"{}\"\nformat = \"json\"\nmean = \"{ms}ms\"\n",
                log.display()
            );
        }
        let (file, out) = (folder.join("sla.toml"), folder.join("said.jsonl"));
        let told = |e: std::io::Error| Fault::io(format!("writing in {}", folder.display()), &e);
        std::fs::write(&file, sla).map_err(told)?;
        let words = ["steer", "--sla", &file.to_string_lossy(), "--yes", "--json", "--connect", &v.uri]
            .map(str::to_owned);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let mut command = v.command(&words);
        command.stdin(Stdio::null()).stdout(std::fs::File::create(&out).map_err(told)?);
        let errors = std::fs::File::create(folder.join("said.txt")).map_err(told)?;
        let child = command.stderr(errors).spawn().map_err(|e| Fault::io("starting vsteer steer", &e))?;
        let mut steered = Steered { child, logs, out };
        let begun = Instant::now();
        while !steered.said().iter().any(|l| l["set"] == true) {
            let ended = steered.child.try_wait().ok().flatten();
            if ended.is_some() || begun.elapsed() > WITHIN {
                let words = std::fs::read_to_string(folder.join("said.txt")).unwrap_or_default();
                let last = steered.said().last().map_or(String::new(), |l| l["why"].to_string());
                let _ = steered.child.kill();
                return Err(failed("vsteer steer set nothing").because(format!("{words} {last}")));
            }
            steered.pass()?;
        }
        Ok(steered)
    }

    /// Lets a moment pass.
    fn pass(&mut self) -> Result<(), Fault> {
        interrupt::check().inspect_err(|_| drop(self.child.kill()))?;
        self.logs.grow()?;
        std::thread::sleep(Duration::from_millis(100));
        Ok(())
    }

    fn said(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(&self.out).unwrap_or_default();
        text.lines().filter_map(|l| serde_json::from_str(l).ok()).collect()
    }
}

/// Watchdogs in the journals of this state, the newest last.
fn watchdogs(v: &Vsteer) -> Vec<u32> {
    let folder = v.state.join("journal");
    let journals = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|e| e.path());
    let open = journals.filter(|p| p.extension().is_some_and(|e| e == "journal"));
    let lines: Vec<String> = open.filter_map(|p| std::fs::read_to_string(p).ok()).collect();
    let of = |l: &str| serde_json::from_str::<Value>(l).ok().and_then(|v| v["guarded"]["pid"].as_u64());
    lines.iter().flat_map(|t| t.lines()).filter_map(of).map(|pid| pid as u32).collect()
}

/// A child of this process that runs the program with this name.
fn child_of(pid: u32, program: &str) -> Result<u32, Fault> {
    let of = |entry: std::fs::DirEntry| {
        let child: u32 = entry.file_name().to_str()?.parse().ok()?;
        // `PID (NAME) STATE PPID ...`; the kernel keeps 15 characters of a name.
        let stat = std::fs::read_to_string(entry.path().join("stat")).ok()?;
        let (name, rest) = stat.split_once('(')?.1.rsplit_once(')')?;
        let parent = rest.split_whitespace().nth(1)?;
        (parent.parse() == Ok(pid) && name == &program[..program.len().min(15)]).then_some(child)
    };
    let all = std::fs::read_dir("/proc").map_err(|e| Fault::io("reading /proc", &e))?;
    all.flatten().find_map(of).ok_or_else(|| failed(format!("process {pid} has no child {program}")))
}

fn end(pid: u32, signal: rustix::process::Signal) -> Result<(), Fault> {
    let pid = rustix::process::Pid::from_raw(pid as i32).ok_or_else(|| failed("no process 0"))?;
    rustix::process::kill_process(pid, signal).map_err(|e| failed(format!("ending process {pid:?}: {e}")))
}

/// The newest watchdog in the journals of this state.
fn newest(v: &Vsteer) -> Result<u32, Fault> {
    watchdogs(v).last().copied().ok_or_else(|| failed("no watchdog in the journal"))
}

/// Kills the process that this case is about.
fn strike(steered: &mut Steered, v: &Vsteer, how: How, notes: &mut Vec<String>) -> Result<(), Fault> {
    use rustix::process::Signal;
    match how {
        How::Interrupted => end(steered.child.id(), Signal::INT),
        How::Collector => {
            let collector = child_of(steered.child.id(), COLLECTOR)?;
            end(collector, Signal::KILL)?;
            let (lines, begun) = (steered.said().len(), Instant::now());
            // The line that is being written may be from before the kill.
            while steered.said().len() < lines + 3 {
                if begun.elapsed() > WITHIN {
                    return Err(failed("vsteer steer says nothing any more without its collector"));
                }
                steered.pass()?;
            }
            // A new one starts when libvirt is asked again, at the latest for the rollback.
            let another = child_of(steered.child.id(), COLLECTOR).ok();
            notes.push(format!("collector {collector} killed; then {another:?}"));
            end(steered.child.id(), Signal::INT)
        }
        How::Killed => end(steered.child.id(), Signal::KILL),
        How::WatchdogFirst => {
            let first = newest(v)?;
            end(first, Signal::KILL)?;
            let begun = Instant::now();
            while newest(v)? == first {
                if begun.elapsed() > WITHIN {
                    return Err(failed("the watchdog was not replaced"));
                }
                steered.pass()?;
            }
            end(steered.child.id(), Signal::KILL)
        }
        How::Both => {
            end(newest(v)?, Signal::KILL)?;
            end(steered.child.id(), Signal::KILL)
        }
    }
}

fn one(bench: &Bench, v: &Vsteer, how: How, findings: &mut Findings) -> Result<Value, Fault> {
    // Journals of earlier runs have watchdogs that are gone, so this uses a new state folder.
    let v = &Vsteer { state: PathBuf::from(bench.fresh(&format!("state-{how:?}"))?), ..v.clone() };
    let before = v.settings()?;
    let names: Vec<String> = before
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|vm| vm["name"].as_str().map(str::to_owned))
        .collect();
    let mut steered = Steered::start(bench, v, &names)?;
    let during = v.settings()?;
    let mut notes = Vec::new();
    let killed = strike(&mut steered, v, how, &mut notes);
    if killed.is_err() {
        let _ = steered.child.kill();
    }
    let _ = steered.child.wait();
    killed?;
    if how == How::Both {
        let done = command::run(&mut v.command(&["rollback", "--connect", &v.uri]), LIMIT)?;
        notes.push(format!("rollback: {}", done.stdout.trim()));
    }
    let begun = Instant::now();
    let mut after = v.settings()?;
    while after != before && begun.elapsed() < WITHIN {
        std::thread::sleep(Duration::from_millis(500));
        after = v.settings()?;
    }
    let weights = |all: &Value| -> Vec<Value> {
        all.as_array().into_iter().flatten().map(|vm| vm["weight"].clone()).collect()
    };
    findings.claim(
        format!("{}: the former weights return", how.words()),
        after == before && during != before,
        format!("{:?} -> {:?} -> {:?}", weights(&before), weights(&during), weights(&after)),
    );
    Ok(
        json!({"how": how.words(), "before": weights(&before), "during": weights(&during), "after": weights(&after), "notes": notes}),
    )
}
