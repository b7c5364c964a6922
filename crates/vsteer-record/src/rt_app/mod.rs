//! Reads and writes workloads of rt-app, which runs and sleeps in place of a program.
//!
//! A description has tasks. A task repeats its phases, and a phase repeats its events: `run`, `runtime`, `sleep` and
//! `timer`. All times are us. Only the start of an event's name counts, so that `run0` and `run1` may stand in one
//! object.
//!
//! GAP(rt-app-together): what depends on other tasks, memory or devices is refused by name, because a simulation without
//! it would look as if it had been there. A written workload lacks waits of threads for each other.
//!
//! A timer counts from the start of its task. In the mode `relative` (the default), a task that is late restarts the
//! timer. In the mode `absolute` it catches up.
//!
//! Source: rt-app@1.0 (commit 55cb0c0): doc/tutorial.txt, src/rt-app_parse_config.c, src/rt-app.c.

mod json;
mod write;

use json::{Kind, Value};
use vsteer_core::{CpuSet, Fault, FaultKind, limits};
pub use write::text;

/// The longest time of an event, us: a year.
const LONGEST_US: i64 = 366 * 24 * 3600 * 1_000_000;

/// A workload.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Workload {
    /// How long it lasts, s; `None`: until somebody ends it.
    pub duration_s: Option<u64>,
    /// Its tasks.
    pub tasks: Vec<Task>,
}

/// A task: one thread, or several equal ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Task {
    /// Its name.
    pub name: String,
    /// The number of such threads.
    pub instances: u32,
    /// When it starts, us.
    pub delay_us: u64,
    /// How often it repeats its phases; `None`: without end.
    pub rounds: Option<u64>,
    /// The pCPUs that it may use; `None`: all.
    pub cpus: Option<CpuSet>,
    /// Its scheduling class.
    pub class: Class,
    /// Its phases.
    pub phases: Vec<Phase>,
}

/// A scheduling class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// `SCHED_OTHER` at this nice level.
    Other(i8),
    /// `SCHED_FIFO` at this priority.
    Fifo(u8),
    /// `SCHED_RR` at this priority.
    Rr(u8),
}

/// Events that are repeated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Phase {
    /// How often; `None`: without end.
    pub rounds: Option<u64>,
    /// In this order.
    pub events: Vec<Event>,
}

/// What a task does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// Computes, us of CPU time.
    Run(u64),
    /// Sleeps, us.
    Sleep(u64),
    /// Sleeps until the timer's next time.
    Timer {
        /// Timers of one name are the same timer.
        name: String,
        /// From its last time to this one, us.
        period_us: u64,
        /// A task that is late catches up; otherwise the timer restarts.
        absolute: bool,
    },
}

/// Name of the format, for `export`.
pub const NAME: &str = "rt-app";
/// What the exported file is, one line.
pub const DOC: &str =
    "Workload for rt-app: a task per vCPU, which needs the CPU time that was recorded (needs --events)";

/// Could this text be a workload? It begins as JSON does, and has tasks.
pub fn is_one(text: &str) -> bool {
    let begins = |text: &str| text.trim_start().starts_with(['{', '/']);
    begins(text.trim_start_matches('\u{feff}')) && text.contains("\"tasks\"") && text.contains('{')
}

fn wrong(path: &str, value: &Value, why: impl std::fmt::Display) -> Fault {
    Fault::new(FaultKind::BadInput, format!("line {}: {path}", value.line)).because(why)
}

/// Events that vsteer does not simulate, by the start of their names, and why.
const REFUSED: &[(&str, &str)] = &[
    ("memrun", "memory traffic is not simulated"),
    ("mem", "memory traffic is not simulated"),
    ("iorun", "devices are not simulated"),
    ("lock", "tasks that wait for a mutex are not simulated"),
    ("unlock", "tasks that wait for a mutex are not simulated"),
    ("wait", "tasks that wait for a condition variable are not simulated"),
    ("signal", "tasks that wait for a condition variable are not simulated"),
    ("broad", "tasks that wait for a condition variable are not simulated"),
    ("sync", "tasks that wait for a condition variable are not simulated"),
    ("barrier", "tasks that wait for each other are not simulated"),
    ("suspend", "tasks that wake each other are not simulated"),
    ("resume", "tasks that wake each other are not simulated"),
    ("sem_post", "tasks that wait for a semaphore are not simulated"),
    ("sem_wait", "tasks that wait for a semaphore are not simulated"),
    ("yield", "a task that yields its pCPU is not simulated"),
    ("fork", "tasks that start others are not simulated"),
    ("taskgroup", "the weights of task groups are not in the description"),
    ("nodes_membind", "memory is not simulated"),
    ("util_min", "frequencies are not simulated"),
    ("util_max", "frequencies are not simulated"),
    ("dl-", "SCHED_DEADLINE and slices of single tasks are not simulated"),
    ("deadline", "SCHED_DEADLINE is not simulated"),
];

/// Reads a description.
///
/// # Errors
/// `BadInput` with the line, for text of another form and for a key that vsteer does not simulate.
pub fn read(text: &str) -> Result<Workload, Fault> {
    let root = json::read(text)?;
    let Kind::Object(members) = &root.kind else {
        return Err(wrong("the description", &root, format!("it is {}, not an object", root.name())));
    };
    let global = members.iter().find(|(key, _)| key == "global").map(|(_, value)| value);
    let (duration_s, default_class) = global.map_or(Ok((None, "SCHED_OTHER".to_owned())), global_of)?;
    let tasks = members.iter().find(|(key, _)| key == "tasks").map(|(_, value)| value);
    let tasks = tasks.ok_or_else(|| wrong("the description", &root, "it has no object \"tasks\""))?;
    let Kind::Object(of) = &tasks.kind else {
        return Err(wrong("tasks", tasks, format!("it is {}, not an object", tasks.name())));
    };
    let mut all = Vec::new();
    for (name, value) in of {
        let task =
            Reader { path: format!("tasks.{name}"), default_class: &default_class }.task(name, value)?;
        all.extend(Some(task).filter(|task| task.instances > 0));
    }
    if all.is_empty() {
        return Err(wrong("tasks", tasks, "it has no task"));
    }
    shared_timers(&all)?;
    Ok(Workload { duration_s, tasks: all })
}

/// The duration and the default class.
fn global_of(value: &Value) -> Result<(Option<u64>, String), Fault> {
    let Kind::Object(members) = &value.kind else {
        return Err(wrong("global", value, format!("it is {}, not an object", value.name())));
    };
    let (mut duration, mut class) = (None, "SCHED_OTHER".to_owned());
    for (key, value) in members {
        match (key.as_str(), &value.kind) {
            ("duration", Kind::Number(s)) => duration = u64::try_from(*s).ok().filter(|s| *s > 0),
            ("duration", _) => {
                return Err(wrong("global.duration", value, format!("it is {}", value.name())));
            }
            ("default_policy", Kind::Text(policy)) => class.clone_from(policy),
            // Logs, calibration and devices: none changes what tasks do.
            _ => {}
        }
    }
    Ok((duration, class))
}

/// A timer that several threads share wakes them in an order that only rt-app knows.
fn shared_timers(tasks: &[Task]) -> Result<(), Fault> {
    let mut users: std::collections::BTreeMap<&str, (&str, u32)> = std::collections::BTreeMap::new();
    for task in tasks {
        let events = task.phases.iter().flat_map(|phase| &phase.events);
        let timers = events.filter_map(|event| match event {
            Event::Timer { name, .. } if !name.starts_with("unique") => Some(name.as_str()),
            _ => None,
        });
        for timer in timers {
            let (user, threads) = users.entry(timer).or_insert((&task.name, task.instances));
            if *user != task.name || *threads > 1 {
                let what = format!("timer {timer:?} of task {:?}", task.name);
                return Err(Fault::new(FaultKind::BadInput, what)
                    .because("several threads share it, which is not simulated")
                    .help("name it \"unique\", so that every thread has its own timer"));
            }
        }
    }
    Ok(())
}

struct Reader<'a> {
    path: String,
    default_class: &'a str,
}

impl Reader<'_> {
    fn task(&self, name: &str, value: &Value) -> Result<Task, Fault> {
        let Kind::Object(members) = &value.kind else {
            return Err(wrong(&self.path, value, format!("it is {}, not an object", value.name())));
        };
        let mut task = Task {
            name: name.to_owned(),
            instances: 1,
            delay_us: 0,
            rounds: None,
            cpus: None,
            class: Class::Other(0),
            phases: Vec::new(),
        };
        let (mut policy, mut priority) = (None, None);
        let mut own = Phase { rounds: Some(1), events: Vec::new() };
        for (key, value) in members {
            let path = format!("{}.{key}", self.path);
            match key.as_str() {
                "instance" => task.instances = number(&path, value, 0, 100_000)? as u32,
                "delay" => task.delay_us = number(&path, value, 0, LONGEST_US)?,
                "loop" => task.rounds = rounds(&path, value)?,
                "cpus" => task.cpus = Some(cpus(&path, value)?),
                "policy" => policy = Some((path, value)),
                "priority" => priority = Some((path, value)),
                "phases" => task.phases = self.phases(value)?,
                _ => own.events.push(event(&path, key, value)?),
            }
        }
        task.class = self.class(value, policy, priority)?;
        match (task.phases.is_empty(), own.events.is_empty()) {
            (true, _) => task.phases.push(own),
            (false, true) => {}
            (false, false) => {
                return Err(wrong(&self.path, value, "it has phases, and events beside them")
                    .help("put the events into a phase"));
            }
        }
        let events = || task.phases.iter().flat_map(|phase| &phase.events);
        if events().next().is_none() {
            return Err(wrong(&self.path, value, "it has no event such as run or sleep"));
        }
        Ok(task)
    }

    fn phases(&self, value: &Value) -> Result<Vec<Phase>, Fault> {
        let path = format!("{}.phases", self.path);
        let Kind::Object(members) = &value.kind else {
            return Err(wrong(&path, value, format!("it is {}, not an object", value.name())));
        };
        members.iter().map(|(name, value)| self.phase(&format!("{path}.{name}"), value)).collect()
    }

    fn phase(&self, path: &str, value: &Value) -> Result<Phase, Fault> {
        let Kind::Object(members) = &value.kind else {
            return Err(wrong(path, value, format!("it is {}, not an object", value.name())));
        };
        let mut phase = Phase { rounds: Some(1), events: Vec::new() };
        for (key, value) in members {
            let path = format!("{path}.{key}");
            match key.as_str() {
                "loop" => phase.rounds = rounds(&path, value)?,
                "cpus" | "policy" | "priority" => {
                    return Err(wrong(
                        &path,
                        value,
                        "a task that changes it from phase to phase is not simulated",
                    )
                    .help("give it to the task"));
                }
                _ => phase.events.push(event(&path, key, value)?),
            }
        }
        Ok(phase)
    }

    fn class(
        &self,
        task: &Value,
        policy: Option<(String, &Value)>,
        priority: Option<(String, &Value)>,
    ) -> Result<Class, Fault> {
        let name = match &policy {
            None => self.default_class,
            Some((path, value)) => match &value.kind {
                Kind::Text(name) => name,
                _ => return Err(wrong(path, value, format!("it is {}, not a text", value.name()))),
            },
        };
        let level = |from: i64, to: i64, default: i64| match &priority {
            Some((path, value)) => signed(path, value, from, to),
            None => Ok(default),
        };
        match name.trim_start_matches("SCHED_") {
            "OTHER" | "NORMAL" => Ok(Class::Other(level(-20, 19, 0)? as i8)),
            "FIFO" => Ok(Class::Fifo(level(1, 99, 10)? as u8)),
            "RR" => Ok(Class::Rr(level(1, 99, 10)? as u8)),
            _ => {
                let (path, value) =
                    policy.as_ref().map_or((&self.path, task), |(path, value)| (path, *value));
                Err(wrong(path, value, format!("the class {name} is not simulated"))
                    .help("use SCHED_OTHER, SCHED_FIFO or SCHED_RR"))
            }
        }
    }
}

fn event(path: &str, key: &str, value: &Value) -> Result<Event, Fault> {
    if key.starts_with("run") {
        return Ok(Event::Run(number(path, value, 0, LONGEST_US)?));
    }
    if key.starts_with("sleep") {
        return Ok(Event::Sleep(number(path, value, 0, LONGEST_US)?));
    }
    if key.starts_with("timer") {
        return timer(path, value);
    }
    match REFUSED.iter().find(|(begin, _)| key.starts_with(begin)) {
        Some((_, why)) => Err(wrong(path, value, why)
            .help("vsteer simulates run, runtime, sleep and timer: remove the others from a copy")),
        None => Err(wrong(path, value, "it is not an event or a property of rt-app")),
    }
}

fn timer(path: &str, value: &Value) -> Result<Event, Fault> {
    let Kind::Object(members) = &value.kind else {
        return Err(wrong(path, value, format!("it is {}, not an object", value.name())));
    };
    let (mut name, mut period_us, mut absolute) = (None, None, false);
    for (key, value) in members {
        match (key.as_str(), &value.kind) {
            ("ref", Kind::Text(text)) => name = Some(text.clone()),
            ("period", _) => period_us = Some(number(&format!("{path}.period"), value, 0, LONGEST_US)?),
            ("mode", Kind::Text(mode)) if mode == "relative" || mode == "absolute" => {
                absolute = mode == "absolute";
            }
            ("mode", _) => {
                return Err(wrong(
                    &format!("{path}.mode"),
                    value,
                    "it is neither \"relative\" nor \"absolute\"",
                ));
            }
            _ => return Err(wrong(&format!("{path}.{key}"), value, "it is not a property of a timer")),
        }
    }
    match (name, period_us) {
        (Some(name), Some(period_us)) => Ok(Event::Timer { name, period_us, absolute }),
        (None, _) => Err(wrong(path, value, "it has no \"ref\"")),
        (_, None) => Err(wrong(path, value, "it has no \"period\"")),
    }
}

fn signed(path: &str, value: &Value, from: i64, to: i64) -> Result<i64, Fault> {
    match value.kind {
        Kind::Number(n) if (from..=to).contains(&n) => Ok(n),
        Kind::Number(n) => Err(wrong(path, value, format!("{n} is not from {from} to {to}"))),
        _ => Err(wrong(path, value, format!("it is {}, not a whole number", value.name()))),
    }
}

fn number(path: &str, value: &Value, from: i64, to: i64) -> Result<u64, Fault> {
    signed(path, value, from, to).map(i64::unsigned_abs)
}

/// A number of repetitions; -1: without end.
fn rounds(path: &str, value: &Value) -> Result<Option<u64>, Fault> {
    let n = signed(path, value, -1, i64::from(u32::MAX))?;
    match n {
        0 => Err(wrong(path, value, "0 repetitions do nothing")),
        n => Ok(u64::try_from(n).ok()),
    }
}

fn cpus(path: &str, value: &Value) -> Result<CpuSet, Fault> {
    let Kind::List(list) = &value.kind else {
        return Err(wrong(path, value, format!("it is {}, not a list of pCPUs", value.name())));
    };
    let most = i64::from(limits::TRACE_PCPU);
    let cpus: CpuSet =
        list.iter().map(|cpu| number(path, cpu, 0, most).map(|n| n as u32)).collect::<Result<_, _>>()?;
    if cpus.is_empty() { Err(wrong(path, value, "the list is empty")) } else { Ok(cpus) }
}

#[cfg(test)]
mod tests;
