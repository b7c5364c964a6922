//! What shall the emulated host do? The job's text, as the lab writes it.
//!
//! A line is a word and what belongs to it; a case begins with `case NAME`. README.md has the words. A mistake is an
//! error that names the line, never a default. Left out: comments and nesting; people write TOML, and the lab this.

use crate::place::{Class, Place, cpu_list};
use crate::workload::Plan;

/// All that is to be done in one boot.
#[derive(Debug, Clone, PartialEq)]
pub struct Job {
    /// Let the kernel's work after boot pass, s.
    pub settle_s: u64,
    /// Where the observer runs, and everything that has no place of its own.
    pub observer_cpus: Vec<usize>,
    /// One after the other.
    pub cases: Vec<Case>,
}

/// One set-up and its recording.
#[derive(Debug, Clone, PartialEq)]
pub struct Case {
    /// Names the folder of its results.
    pub name: String,
    /// Let the VMs' beginnings pass, s; with `begin_s`, from what is changed to the recording.
    pub settle_s: u64,
    /// It is recorded from so long after the VMs were started, s, be that by this case or by one that it continues.
    pub begin_s: Option<u64>,
    /// How long is recorded, s.
    pub record_s: u64,
    /// Is it recorded? If not, VMs and competitors are asked for their counts alone.
    pub observed: bool,
    /// Are VMs and competitors asked for their counts? That wakes threads that would have slept.
    pub asked: bool,
    /// Access logs are written every so many s, not at the case's end alone.
    pub log_every_s: Option<u64>,
    /// What happens to VMs while it is recorded, in the order of time.
    pub events: Vec<Event>,
    /// What the observer's program does besides, while it is recorded: its words.
    pub command: Vec<String>,
    /// It begins before the case settles, and the case goes on once it says that it is ready.
    pub ahead: bool,
    /// So often the command is begun and, once it is ready, ended, before all else.
    pub cycles: u64,
    /// More for the observer's command line.
    pub record_options: Vec<String>,
    /// Files of /proc or /sys and what is written to them for the case.
    pub settings: Vec<(String, String)>,
    /// VMs and competitors, in the order of starting.
    pub starts: Vec<Start>,
    /// The VMs and competitors of the case before go on running; it starts none.
    pub continues: bool,
    /// What is changed of them before this case settles.
    pub changes: Vec<Change>,
}

/// What happens to a VM, so long after recording began.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    pub at_s: u64,
    pub name: String,
    pub what: Happens,
}

/// What can happen to a VM.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Happens {
    /// It is killed.
    Stop,
    /// It is started anew, its schedule too.
    Start,
    /// Its access log gets another name, and a new one begins.
    Rotate,
    /// It loses its quota.
    Unlimit,
    /// The thread of its last vCPU ends.
    Unplug,
    /// It is moved, live, into another process (`NAME-moved`): with Linux alone.
    Migrate,
    /// A pCPU goes, or comes back; its name is `cpuN`.
    Online(bool),
    /// The case's command is killed, without a chance to take back anything.
    Kill,
}

/// New limits of a group that runs.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    pub name: String,
    /// `cpu.weight`.
    pub weight: Option<u64>,
    /// `cpu.max`: quota (`None`: without limit) and period, us.
    pub quota_us: Option<(Option<u64>, u64)>,
}

/// A VM or a process that competes with VMs.
#[derive(Debug, Clone, PartialEq)]
pub struct Start {
    /// Its name: the process's, and its cgroup's.
    pub name: String,
    /// vCPUs; `None`: no VM, but a process with one thread.
    pub vcpus: Option<usize>,
    /// The workload's text.
    pub workload: String,
    /// It has one, be it that its workload needs that or that the job says so: a VM of the other kind.
    pub has_linux: bool,
    /// The words for its command line that say where it runs.
    pub place: Vec<String>,
    /// `cpu.weight` of its group.
    pub weight: Option<u64>,
    /// `cpu.max` of its group: quota and period, us.
    pub quota_us: Option<(u64, u64)>,
    /// The same of each vCPU's own group.
    pub vcpu_quota_us: Option<(u64, u64)>,
}

impl Job {
    /// Reads a job.
    ///
    /// # Errors
    /// The line and what is wrong with it.
    pub fn parse(text: &str) -> Result<Job, String> {
        let mut job = Job { settle_s: 15, observer_cpus: Vec::new(), cases: Vec::new() };
        for (i, line) in text.lines().enumerate().filter(|(_, l)| !l.trim().is_empty()) {
            job.line(line.trim()).map_err(|why| format!("line {} of the job: {why}", i + 1))?;
        }
        if job.cases.is_empty() { Err("the job has no case".to_owned()) } else { Ok(job) }
    }

    fn line(&mut self, line: &str) -> Result<(), String> {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        if word == "case" {
            is_name(rest)?;
            self.cases.push(Case::new(rest));
            return Ok(());
        }
        let follows = self.cases.len() > 1;
        if let Some(case) = self.cases.last_mut() {
            return case.line(word, rest, follows);
        }
        match word {
            "settle_s" => self.settle_s = number(rest)?,
            "observer_cpus" => self.observer_cpus = cpu_list(rest)?,
            _ => return Err(format!("`{word}` outside a case")),
        }
        Ok(())
    }
}

fn number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("`{text}` is not a number"))
}

impl Case {
    fn new(name: &str) -> Case {
        Case {
            name: name.to_owned(),
            settle_s: 2,
            begin_s: None,
            record_s: 10,
            observed: true,
            asked: true,
            log_every_s: None,
            events: Vec::new(),
            command: Vec::new(),
            ahead: false,
            cycles: 0,
            record_options: Vec::new(),
            settings: Vec::new(),
            starts: Vec::new(),
            continues: false,
            changes: Vec::new(),
        }
    }

    /// Reads one line of the case. `follows`: another case precedes this one.
    fn line(&mut self, word: &str, rest: &str, follows: bool) -> Result<(), String> {
        match word {
            "settle_s" => self.settle_s = number(rest)?,
            "record_s" => self.record_s = number(rest)?,
            "begin_s" => self.begin_s = Some(number(rest)?),
            "log_every_s" => match number(rest)? {
                0 => return Err("`log_every_s 0` would never sleep".into()),
                seconds => self.log_every_s = Some(seconds),
            },
            "command" if rest.is_empty() => return Err("`command` lacks its words".into()),
            "command" => self.command = rest.split_whitespace().map(str::to_owned).collect(),
            "ahead" => self.ahead = true,
            "cycles" => self.cycles = number(rest)?,
            "event" => {
                let event = event(rest)?;
                if self.events.last().is_some_and(|last| last.at_s > event.at_s) {
                    return Err("events are not in the order of time".into());
                }
                self.events.push(event);
            }
            "unobserved" => self.observed = false,
            "unasked" => self.asked = false,
            "record_option" => self.record_options.push(rest.to_owned()),
            "set" => {
                let (file, value) = rest.split_once(' ').ok_or("`set` lacks a value")?;
                self.settings.push((file.to_owned(), value.to_owned()));
            }
            "continues" if follows && self.starts.is_empty() => self.continues = true,
            "vm" | "process" if self.continues => {
                return Err("it continues the case before and starts nothing".into());
            }
            "vm" => self.starts.push(start(rest, true)?),
            "process" => self.starts.push(start(rest, false)?),
            "change" if self.continues => self.changes.push(change(rest)?),
            _ => return Err(format!("`{word}` is unknown")),
        }
        Ok(())
    }
}

/// Names become those of files and cgroups.
pub fn is_name(name: &str) -> Result<(), String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let fits = !name.is_empty() && name.len() <= 60 && name.chars().all(plain) && !name.starts_with('.');
    if fits { Ok(()) } else { Err(format!("`{name}` is not a name (letters, digits, - _ .)")) }
}

fn start(rest: &str, is_vm: bool) -> Result<Start, String> {
    let mut start = Start {
        name: String::new(),
        vcpus: is_vm.then_some(1),
        workload: String::new(),
        has_linux: false,
        place: Vec::new(),
        weight: None,
        quota_us: None,
        vcpu_quota_us: None,
    };
    for word in rest.split_whitespace() {
        let (key, value) = word.split_once('=').ok_or_else(|| format!("`{word}` is not key=value"))?;
        let number = || value.parse::<u64>().map_err(|_| format!("`{word}`: not a number"));
        match key {
            "name" => {
                is_name(value)?;
                start.name = value.to_owned();
            }
            "workload" => {
                let workload = Plan::parse(value)?.workload;
                if is_vm && workload.needs_process() {
                    return Err(format!(
                        "`{}` is for a process: a VM of this host has no system",
                        workload.kind()
                    ));
                }
                if !is_vm && workload.needs_linux() {
                    return Err(format!("`{}` is for a VM: it needs a Linux of its own", workload.kind()));
                }
                start.has_linux |= workload.needs_linux();
                start.workload = value.to_owned();
            }
            "linux" if is_vm && value == "yes" => start.has_linux = true,
            "vcpus" if is_vm => start.vcpus = Some(number()? as usize),
            "weight" => start.weight = Some(number()?),
            "quota_us" => start.quota_us = Some(quota(value)?),
            "vcpu_quota_us" if is_vm => start.vcpu_quota_us = Some(quota(value)?),
            "cpus" | "vcpu_cpus" | "class" => {
                let words = [format!("--{key}"), value.to_owned()];
                place(&mut words.iter().cloned(), &mut Place::default())?;
                start.place.extend(words);
            }
            _ => return Err(format!("`{key}` is unknown")),
        }
    }
    if start.name.is_empty() || start.workload.is_empty() {
        return Err("name= or workload= is missing".to_owned());
    }
    if start.has_linux && start.vcpu_quota_us.is_some() {
        return Err(format!("{}: a VM with Linux has no quotas of its vCPUs' own", start.name));
    }
    Ok(start)
}

fn change(rest: &str) -> Result<Change, String> {
    let mut change = Change { name: String::new(), weight: None, quota_us: None };
    for word in rest.split_whitespace() {
        let (key, value) = word.split_once('=').ok_or_else(|| format!("`{word}` is not key=value"))?;
        match key {
            "name" => {
                is_name(value)?;
                change.name = value.to_owned();
            }
            "weight" => change.weight = Some(value.parse().map_err(|_| format!("`{word}`: not a number"))?),
            "quota_us" => {
                change.quota_us = Some(match value.strip_prefix("max/") {
                    Some(period) => (None, period.parse().map_err(|_| format!("`{word}`: not a number"))?),
                    None => quota(value).map(|(quota, period)| (Some(quota), period))?,
                });
            }
            _ => return Err(format!("`{key}` is unknown")),
        }
    }
    if change.name.is_empty() { Err("name= is missing".to_owned()) } else { Ok(change) }
}

/// What is killed that is no VM.
const COMMAND: &str = "command";

fn event(rest: &str) -> Result<Event, String> {
    let words: Vec<&str> = rest.split_whitespace().collect();
    let &[at_s, what, name] = &words[..] else {
        return Err(format!(
            "`event {rest}` is not SECOND stop|start|rotate|unlimit|unplug|migrate|offline|online|kill NAME"
        ));
    };
    is_name(name)?;
    let what = match what {
        "stop" => Happens::Stop,
        "start" => Happens::Start,
        "rotate" => Happens::Rotate,
        "unlimit" => Happens::Unlimit,
        "unplug" => Happens::Unplug,
        "migrate" => Happens::Migrate,
        "offline" | "online" if name.starts_with("cpu") => Happens::Online(what == "online"),
        "kill" if name == COMMAND => Happens::Kill,
        _ => {
            return Err(format!(
                "`{what}` does not happen to `{name}` (stop, start, rotate, unlimit, unplug, migrate; offline, online: to `cpuN`; kill: to \
                 `command`)"
            ));
        }
    };
    let at_s = at_s.parse().map_err(|_| format!("`{at_s}` is not a number"))?;
    Ok(Event { at_s, name: name.to_owned(), what })
}

/// A quota's period unless another one is named: the kernel's own.
pub const PERIOD_US: u64 = 100_000;

fn quota(value: &str) -> Result<(u64, u64), String> {
    let (quota, period) =
        value.split_once('/').map_or((value, None), |(quota, period)| (quota, Some(period)));
    let both = quota.parse().ok().zip(period.map_or(Some(PERIOD_US), |p| p.parse().ok()));
    both.ok_or_else(|| format!("`{value}` is not a quota (write QUOTA/PERIOD, us)"))
}

/// Reads the words of a command line that say where a process runs.
///
/// # Errors
/// The word that is wrong.
pub fn place(words: &mut impl Iterator<Item = String>, place: &mut Place) -> Result<(), String> {
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("{word} lacks a value"));
        match word.as_str() {
            "--cpus" => place.cpus = cpu_list(&value()?)?,
            // Per vCPU, between slashes.
            "--vcpu_cpus" => {
                place.vcpu_cpus = value()?.split('/').map(cpu_list).collect::<Result<_, _>>()?;
            }
            "--class" => place.class = Class::parse(&value()?)?,
            "--cgroup" => place.cgroup = Some(value()?),
            "--group-per-vcpu" => place.group_per_vcpu = true,
            _ => return Err(format!("`{word}` is unknown")),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const JOB: &str = "settle_s 12\nobserver_cpus 0\ncase a\nset /sys/kernel/debug/sched/base_slice_ns 3000000\n\
        vm name=web vcpus=2 workload=periodic,period_us=5000 cpus=1 weight=200 quota_us=50000/100000\n\
        process name=hog workload=burn cpus=1 class=fifo:3\nrecord_s 20\nrecord_option --events\nunobserved\nunasked\n";

    #[test]
    fn a_job_is_read() {
        let job = Job::parse(JOB).unwrap();
        assert_eq!((job.settle_s, &job.observer_cpus[..]), (12, &[0][..]));
        let case = &job.cases[0];
        assert_eq!((case.name.as_str(), case.settle_s, case.record_s), ("a", 2, 20));
        assert_eq!((case.settings[0].1.as_str(), case.observed, case.asked), ("3000000", false, false));
        let web = &case.starts[0];
        assert_eq!((web.vcpus, web.weight, web.quota_us), (Some(2), Some(200), Some((50_000, 100_000))));
        assert_eq!(web.place, ["--cpus", "1"]);
        assert_eq!((case.starts[1].vcpus, case.starts[1].place.len()), (None, 4));
    }

    #[test]
    fn a_case_may_wait_for_its_second_and_run_a_command() {
        let text = format!("{JOB}begin_s 240\nlog_every_s 10\ncommand steer --sla /files/sla.toml\n");
        let case = &Job::parse(&text).unwrap().cases[0];
        assert_eq!((case.begin_s, case.log_every_s), (Some(240), Some(10)));
        assert_eq!(case.command, ["steer", "--sla", "/files/sla.toml"]);
        let events = format!("{text}event 5 stop web\nevent 9 start web\nevent 9 rotate web\n");
        let events = &Job::parse(&events).unwrap().cases[0].events;
        assert_eq!(events[0], Event { at_s: 5, name: "web".into(), what: Happens::Stop });
        assert_eq!((events.len(), events[2].what), (3, Happens::Rotate));
        let plain = &Job::parse(JOB).unwrap().cases[0];
        assert_eq!((plain.begin_s, plain.log_every_s, plain.command.len()), (None, None, 0));
    }

    #[test]
    fn a_mistake_names_its_line() {
        for (wrong, line) in [
            ("case a\nvm name=x workload=brun", "line 2"),
            ("case a\nvm workload=burn", "line 2"),
            ("case a\nprocess name=x workload=burn vcpus=2", "line 2"),
            ("case ../a", "line 1"),
            ("record_s 5", "line 1"),
            ("case a\nvm name=x workload=burn cpus=q", "line 2"),
            ("case a\nvm name=x workload=burn quota_us=1/x", "line 2"),
            ("case a\nset /x", "line 2"),
            ("case a\nbegin_s soon", "line 2"),
            ("case a\nlog_every_s 0", "line 2"),
            ("case a\ncommand", "line 2"),
            ("case a\nevent 5 burn web", "line 2"),
            ("case a\nevent x stop web", "line 2"),
            ("case a\nevent 5 stop web\nevent 4 start web", "line 3"),
            ("case a\nvm name=x workload=server,rates=5", "line 2"),
            ("case a\nprocess name=x workload=play", "line 2"),
            ("case a\nvm name=x workload=burn linux=no", "line 2"),
            ("case a\nprocess name=x workload=burn linux=yes", "line 2"),
            ("case a\nvm name=x workload=burn linux=yes vcpu_quota_us=9000", "line 2"),
        ] {
            let why = Job::parse(wrong).unwrap_err();
            assert!(why.starts_with(line), "{wrong}: {why}");
        }
        assert!(Job::parse("settle_s 5").is_err(), "nothing to do");
    }

    #[test]
    fn a_case_may_continue_the_one_before() {
        let text = format!(
            "{JOB}case b\ncontinues\nchange name=web weight=10 quota_us=max/100000\nchange name=hog quota_us=30000\n"
        );
        let b = Job::parse(&text).unwrap().cases.remove(1);
        assert!(b.continues && b.starts.is_empty());
        let web = Change { name: "web".into(), weight: Some(10), quota_us: Some((None, 100_000)) };
        let hog = Change { name: "hog".into(), weight: None, quota_us: Some((Some(30_000), 100_000)) };
        assert_eq!(b.changes, [web, hog]);
        for wrong in [
            "case a\ncontinues",
            "case a\ncase b\nchange name=x",
            "case a\ncase b\ncontinues\nvm name=x workload=burn",
            "case a\ncase b\ncontinues\nchange weight=5",
        ] {
            assert!(Job::parse(wrong).is_err(), "{wrong}");
        }
    }
}
