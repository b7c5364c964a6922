//! What does the first program of the emulated host do? The job that lies in its initramfs: case after case, then off.
//!
//! It mounts what an ordinary host has, loads KVM, lets the kernel's work of the first seconds pass, and for each case
//! starts the VMs and competitors where they belong (or leaves those of the case before, with new limits), starts the
//! observer (`vsteer record`), asks the VMs for their counts soon after the first sample and soon before the last, and ends
//! all again. What came of it stays in memory until
//! the last case is done; then it is handed over as one archive, through memory that the machine outside sees as well.
//!
//! What it says on the console begins with [`SAYS`]: the lab reads that, people read the rest.
//!
//! Left out: a shell, a network, users.

mod archive;
pub mod boot;
mod cgroups;
mod command;
mod cycles;
pub mod job;
pub mod linux;
mod log;
mod started;
mod window;

use crate::clock::{now_ns, sleep_until};
use crate::place::Place;
pub use job::place;
use job::{Case, Change, Event, Happens, Job, PERIOD_US, Start};
use log::Log;
use started::Started;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::channel;
use std::sync::{Mutex, PoisonError};

/// Begins every line that the lab reads.
const SAYS: &str = "vsteer-emulated:";
/// Where results are gathered.
const RESULTS: &str = "/run/results";
const OBSERVER: &str = "/bin/vsteer";
/// How often it is looked whether the recording has begun.
const LOOK_EVERY_NS: u64 = 2_000_000;
/// Until the kernel has checked the observer's programs: seconds of emulated time.
const OBSERVER_STARTS_WITHIN_NS: u64 = 120_000_000_000;
/// From a recording's begin to its first sample: the observer lets the host settle.
const FIRST_SAMPLE_AFTER_NS: u64 = 1_000_000_000;
/// From a recording's first sample to the guests' first report, and from their last to its last.
const REPORTS_APART_FROM_SAMPLES_NS: u64 = 500_000_000;
const SECOND_NS: u64 = 1_000_000_000;

/// Does the job, or says why it cannot.
///
/// # Errors
/// A sentence for the console.
pub fn live() -> Result<(), String> {
    boot::mount_all()?;
    boot::start_pcpus()?;
    let text = std::fs::read_to_string(crate::JOB).map_err(|e| format!("reading {}: {e}", crate::JOB))?;
    let job = Job::parse(&text)?;
    // What this starts without a place of its own stays here as well: the observer above all.
    Place { cpus: job.observer_cpus.clone(), ..Place::default() }.take()?;
    boot::load_modules("/modules")?;
    cgroups::prepare()?;
    say(&format!("up, settling for {} s", job.settle_s));
    sleep_s(job.settle_s);
    std::fs::create_dir_all(RESULTS).map_err(|e| format!("making {RESULTS}: {e}"))?;
    let mut running = Running::default();
    for (i, case) in job.cases.iter().enumerate() {
        say(&format!("case {} of {}: {}", i + 1, job.cases.len(), case.name));
        let goes_on = job.cases.get(i + 1).is_some_and(|next| next.continues);
        let done = running.case(case);
        // Unless the next case continues it, that one begins on a host without VMs, whatever happened.
        let ended = if goes_on && done.is_ok() { Ok(()) } else { running.end() };
        done.and(ended).map_err(|why| format!("case {}: {why}", case.name))?;
    }
    hand_over(Path::new(RESULTS))
}

/// Gives the results in this folder to the lab, by the memory that both see.
///
/// # Errors
/// A file that cannot be read; more than there is room for.
pub fn hand_over(results: &Path) -> Result<(), String> {
    say("writing results");
    let bytes = archive::write(results, window::Window::open()?)?;
    say(&format!("done, {bytes} bytes"));
    Ok(())
}

/// Is this a job?
///
/// # Errors
/// Its line and what is wrong with it.
pub fn check(text: &str) -> Result<(), String> {
    Job::parse(text).map(drop)
}

/// Says something to the lab.
pub fn say(what: &str) {
    println!("{SAYS} {what}");
}

pub fn sleep_s(seconds: u64) {
    sleep_until(now_ns() + seconds * SECOND_NS);
}

/// What runs, from the case that started it to the last that continues it.
#[derive(Default)]
struct Running {
    all: Vec<Started>,
    /// Of the VMs that have one; in the folder of the case that started them.
    logs: Mutex<Vec<Log>>,
    /// Whose groups are to be removed.
    starts: Vec<Start>,
    /// When all were started.
    begun_ns: u64,
}

impl Running {
    fn case(&mut self, case: &Case) -> Result<(), String> {
        let folder = format!("{RESULTS}/{}", case.name);
        std::fs::create_dir_all(&folder).map_err(|e| format!("making {folder}: {e}"))?;
        let former = set_all(&case.settings)?;
        let done = self.start(case, &folder).and_then(|()| self.wait_and_measure(case, &folder));
        let restored = set_all(&former).map(drop);
        done.and(restored)
    }

    fn start(&mut self, case: &Case, folder: &str) -> Result<(), String> {
        for start in &case.starts {
            self.starts.push(start.clone());
            let group = cgroups::make(start)?;
            let log = Log::of(start, folder)?;
            self.all.push(Started::start(start, &group, log.as_ref().map(Log::memory), false)?);
            self.logs.get_mut().unwrap_or_else(PoisonError::into_inner).extend(log);
        }
        if !case.continues {
            self.begun_ns = now_ns();
        }
        // When all have begun: each takes a while.
        let begun = case.starts.iter().zip(&self.all[self.all.len() - case.starts.len()..]);
        begun.into_iter().try_for_each(|(start, started)| started.place_vcpus(start))
    }

    /// Access logs are written meanwhile, if the case wants that, and at its end in any case.
    fn wait_and_measure(&mut self, case: &Case, folder: &str) -> Result<(), String> {
        let Running { all, logs, begun_ns, starts } = self;
        let logs = &*logs;
        let (end, ended) = channel();
        std::thread::scope(|scope| {
            // As its parent, it runs where the observer does.
            let drains = case.log_every_s.map(|s| scope.spawn(move || log::drain_every(s, logs, &ended)));
            let happens = |event: &Event, all: &mut Vec<Started>| happen(event, all, logs, starts);
            let ready = |command: Option<command::Command>| command.map(command::Command::ready).transpose();
            let ahead = || {
                cycles::run(case, folder)?;
                if !case.ahead {
                    return Ok(None);
                }
                command::Command::start(&case.command, folder).and_then(ready)
            };
            let done = ahead().and_then(|ahead| {
                wait(case, *begun_ns)?;
                measure(case, folder, all, ahead, happens)
            });
            drop(end);
            let drained = drains.map_or(Ok(()), |thread| thread.join().expect("it does not panic"));
            done.and(drained)
        })?;
        log::drain_all(logs)?;
        let all = logs.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().filter_map(Log::lost).for_each(|(n, name)| {
            say(&format!("{name}: {n} of its timer's interrupts were lost in emulation, and made up for"));
        });
        Ok(())
    }

    fn end(&mut self) -> Result<(), String> {
        self.all.drain(..).try_for_each(Started::end)?;
        let logs = std::mem::take(self.logs.get_mut().unwrap_or_else(PoisonError::into_inner));
        logs.into_iter().try_for_each(Log::end)?;
        cgroups::remove_all(&std::mem::take(&mut self.starts))
    }
}

/// Makes the case's changes and waits until it is to be recorded: `settle_s` later, at second `begin_s` if it names one.
fn wait(case: &Case, begun_ns: u64) -> Result<(), String> {
    if let Some(second) = case.begin_s {
        // Without a change nothing happens before that second.
        let settle_s = if case.changes.is_empty() { 0 } else { case.settle_s };
        let at = second.checked_sub(settle_s).ok_or("settle_s is more than begin_s")?;
        if now_ns() > begun_ns + at * SECOND_NS {
            let passed_s = (now_ns() - begun_ns) as f64 / 1e9;
            return Err(format!("second {at} has passed: {passed_s:.1} s since the VMs were started"));
        }
        sleep_until(begun_ns + at * SECOND_NS);
    }
    case.changes.iter().try_for_each(cgroups::change)?;
    match case.begin_s {
        Some(second) => sleep_until(begun_ns + second * SECOND_NS),
        None => sleep_s(case.settle_s),
    }
    Ok(())
}

/// Makes something happen to a VM.
fn happen(
    event: &Event,
    all: &mut Vec<Started>,
    logs: &Mutex<Vec<Log>>,
    starts: &mut Vec<Start>,
) -> Result<(), String> {
    let mut logs = logs.lock().unwrap_or_else(PoisonError::into_inner);
    let mut log = logs.iter_mut().find(|log| log.is_of(&event.name));
    let at = all.iter().position(|s| s.name() == event.name);
    let absent = || format!("event at second {}: there is no {:?} for it", event.at_s, event.name);
    match event.what {
        Happens::Stop => {
            log.map_or(Ok(()), Log::drain)?;
            all.remove(at.ok_or_else(absent)?).end()?;
            // As a manager does: its group goes with it, and what was set there.
            let gone: Vec<Start> = starts.iter().filter(|s| s.name == event.name).cloned().collect();
            cgroups::remove_all(&gone)
        }
        Happens::Start => {
            let start = starts.iter().find(|s| s.name == event.name && at.is_none()).ok_or_else(absent)?;
            log.as_mut().map_or(Ok(()), |log| log.anew())?;
            let group = cgroups::make(start)?;
            all.push(Started::start(start, &group, log.as_ref().map(|log| log.memory()), false)?);
            Ok(())
        }
        Happens::Rotate => log.ok_or_else(absent)?.rotate(),
        Happens::Unlimit => {
            let quota_us = Some((None, PERIOD_US));
            cgroups::change(&Change { name: event.name.clone(), weight: None, quota_us })
        }
        Happens::Unplug => all[at.ok_or_else(absent)?].unplug(),
        Happens::Migrate => {
            let at = at.ok_or_else(absent)?;
            let here = starts.iter().find(|s| s.name == event.name && s.has_linux);
            let here = here.ok_or_else(|| format!("{} has no Linux, and cannot be moved", event.name))?;
            let there = Start { name: format!("{}-moved", event.name), ..here.clone() };
            let group = cgroups::make(&there)?;
            starts.push(there.clone());
            let mut come = Started::start(&there, &group, None, true)?;
            linux::migrate(&event.name, &there.name)?;
            come.goes_on(&mut all[at]);
            std::mem::replace(&mut all[at], come).end()?;
            let gone: Vec<Start> = starts.iter().filter(|s| s.name == event.name).cloned().collect();
            cgroups::remove_all(&gone)
        }
        Happens::Online(is) => {
            let file = format!("/sys/devices/system/cpu/{}/online", event.name);
            std::fs::write(&file, if is { "1" } else { "0" }).map_err(|e| format!("writing {file}: {e}"))
        }
        Happens::Kill => Err("only a case's command is killed".to_owned()),
    }
}

fn measure(
    case: &Case,
    folder: &str,
    all: &mut Vec<Started>,
    ahead: Option<command::Command>,
    mut happens: impl FnMut(&Event, &mut Vec<Started>) -> Result<(), String>,
) -> Result<(), String> {
    let observer = if case.observed { Some(Observer::start(case, folder)?) } else { None };
    let mut command = if case.ahead { ahead } else { command::Command::start(&case.command, folder)? };
    let begin = now_ns() + if case.observed { FIRST_SAMPLE_AFTER_NS } else { 0 };
    // Not while the observer takes its first sample or its last: the guests' pCPU stands still meanwhile.
    let apart = (case.record_s * SECOND_NS / 10).min(REPORTS_APART_FROM_SAMPLES_NS);
    sleep_until(begin + apart);
    all.iter_mut().try_for_each(|s| s.count(case.asked))?;
    for event in &case.events {
        sleep_until(begin + event.at_s * SECOND_NS);
        match (event.what, &mut command) {
            (Happens::Kill, Some(command)) => command.kill()?,
            _ => happens(event, all)?,
        }
    }
    sleep_until(begin + case.record_s * SECOND_NS - apart);
    for s in all {
        s.count(case.asked)?;
        let (name, reports, kvm_counts) = s.take_reports();
        std::fs::write(format!("{folder}/{name}.reports"), reports)
            .map_err(|e| format!("writing the reports of {name}: {e}"))?;
        if !kvm_counts.is_empty() {
            std::fs::write(format!("{folder}/{name}.kvm"), kvm_counts)
                .map_err(|e| format!("writing KVM's counts of {name}: {e}"))?;
        }
    }
    if let Some(command) = command {
        sleep_until(begin + case.record_s * SECOND_NS);
        command.end()?;
    }
    if let Some(observer) = &observer {
        observer.programs(folder)?;
    }
    observer.map_or(Ok(()), Observer::end)
}

/// `vsteer record` at work.
struct Observer {
    child: Child,
    /// The file of what it says.
    words: String,
}

impl Observer {
    /// Starts it and waits until it records.
    fn start(case: &Case, folder: &str) -> Result<Observer, String> {
        let recording = format!("{folder}/host.vsteer");
        let words = format!("{folder}/record.txt");
        let file = std::fs::File::create(&words).map_err(|e| format!("writing {words}: {e}"))?;
        let child = Command::new(OBSERVER)
            .args(["record", "-o", &recording, "--for", &format!("{}s", case.record_s)])
            .args(&case.record_options)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(file)
            .spawn()
            .map_err(|e| format!("starting {OBSERVER}: {e}"))?;
        let mut observer = Observer { child, words };
        let manifest = format!("{recording}/manifest.json");
        let began = now_ns();
        while !Path::new(&manifest).exists() {
            let ended = observer.child.try_wait().map_err(|e| format!("waiting for the observer: {e}"))?;
            if ended.is_some() || now_ns() - began > OBSERVER_STARTS_WITHIN_NS {
                return Err(format!("the observer did not begin to record: {}", observer.said()));
            }
            sleep_until(now_ns() + LOOK_EVERY_NS);
        }
        Ok(observer)
    }

    /// Notes how often each of its eBPF programs ran and how long, ns: a line each. The kernel counts it if the case asks.
    fn programs(&self, folder: &str) -> Result<(), String> {
        let mut programs = BTreeMap::new();
        let open = std::fs::read_dir(format!("/proc/{}/fdinfo", self.child.id()));
        for entry in open.into_iter().flatten().flatten() {
            let text = std::fs::read_to_string(entry.path()).unwrap_or_default();
            let value =
                |key: &str| text.lines().find_map(|line| line.strip_prefix(key)?.trim().parse::<u64>().ok());
            if let (Some(id), Some(runs), Some(ns)) =
                (value("prog_id:"), value("run_cnt:"), value("run_time_ns:"))
                && runs > 0
            {
                programs.insert(id, format!("runs={runs} ns={ns}\n"));
            }
        }
        if programs.is_empty() {
            return Ok(());
        }
        let (file, lines) = (format!("{folder}/programs"), programs.into_values().collect::<String>());
        std::fs::write(&file, lines).map_err(|e| format!("writing {file}: {e}"))
    }

    /// Waits until it ends by itself.
    fn end(mut self) -> Result<(), String> {
        let ended = self.child.wait().map_err(|e| format!("waiting for the observer: {e}"))?;
        if ended.success() {
            Ok(())
        } else {
            Err(format!("the observer ended with {ended}: {}", self.said()))
        }
    }

    fn said(&self) -> String {
        std::fs::read_to_string(&self.words).unwrap_or_default().trim().to_owned()
    }
}

/// Sets files of /proc or /sys; what they held before.
fn set_all(settings: &[(String, String)]) -> Result<Vec<(String, String)>, String> {
    let set = |(file, value): &(String, String)| {
        let former = std::fs::read_to_string(file).map_err(|e| format!("reading {file}: {e}"))?;
        std::fs::write(file, value).map_err(|e| format!("setting {file} to {value}: {e}"))?;
        Ok((file.clone(), former.trim().to_owned()))
    };
    settings.iter().map(set).collect()
}
