//! What shall be tried, by running what, how often, and what counts?
//!
//! The form of an experiment's file (TOML, docs/experiments.md). Everything that a run needs is in it, so that a copy beside the runs tells years later what was
//! done. A factor is a knob of the host or of a VM, set and read back by a file, by commands, by tuned or on the kernel's command line; or a
//! word of the workload's command alone.
//!
//! Left out: knobs that are set through libvirt's API: `virsh` is a command. GAP(experiment-remote-boot): words of another machine's kernel (`kernel` with
//! `on`), which nobody boots.

use super::counted::{self, Event};
use super::design::{Design, Laid, Varied, lay_out, order};
use super::lasting::{Element, Lasting, Loader, Profile};
use crate::quantity::Quantity;
use crate::{Fault, FaultKind};
use serde::{Deserialize, Serialize};

/// An experiment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Experiment {
    /// Its name.
    pub name: String,
    /// Decides every order.
    #[serde(default = "one")]
    pub seed: u64,
    /// How settings are chosen.
    pub design: Design,
    /// Blocks of the first stage: fewest runs of each setting.
    #[serde(default = "five")]
    pub runs_least: usize,
    /// Most blocks.
    #[serde(default = "thirty")]
    pub runs_most: usize,
    /// Half the width of each effect's interval that is asked for, in per cent of the first measure; without it `runs_least` blocks are all.
    pub margin_percent: Option<f64>,
    /// Runs at each visit of a setting that count, as their mean.
    #[serde(default = "one_run")]
    pub runs_per_visit: usize,
    /// Runs at each visit before those, which do not count.
    #[serde(default)]
    pub warm_up: usize,
    /// A run that takes longer is ended, s.
    #[serde(default = "an_hour")]
    pub timeout_s: f64,
    /// Wait so long after a setting was set, s.
    #[serde(default)]
    pub settle_s: f64,
    /// What is run.
    pub workload: Workload,
    /// What is measured; the first one decides on the number of runs. Without any: the time.
    #[serde(default, rename = "measure")]
    pub measures: Vec<Measure>,
    /// What is varied.
    #[serde(rename = "factor")]
    pub factors: Vec<Factor>,
    /// How the machine is booted, where a factor needs that.
    pub boot: Option<Boot>,
    /// Whose VMs the observer's measures are of, as `--connect` of other commands; without it all of this host.
    pub connect: Option<String>,
}

fn one() -> u64 {
    1
}
fn one_run() -> usize {
    1
}
fn five() -> usize {
    5
}
fn thirty() -> usize {
    30
}
fn an_hour() -> f64 {
    3600.0
}

/// What is run. In commands `{NAME}` is the level of that factor.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Workload {
    /// By `/bin/sh -c`; this is what is timed.
    pub command: String,
    /// Before each run, untimed; it must succeed.
    pub prepare: Option<String>,
    /// After each run, whatever became of it.
    pub clean: Option<String>,
    /// Where: `user@host` for ssh (a VM, another machine); without it here.
    pub on: Option<String>,
}

/// What is better of a measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Better {
    /// Less of it.
    Less,
    /// More of it.
    More,
}

/// Where a number comes from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Of {
    /// How long the command took, s.
    Time,
    /// What it printed: the number at `{}` in this text, the last time that it stands there; `*` is any text.
    Printed(String),
    /// Idle watts after each visit of a setting, by the meter: the lowest of what it shows over so many seconds (the study's protocol: 120).
    IdleWatts {
        /// A command that prints watts; or `rapl`, `hwmon`, `acpi`, `ipmi`.
        meter: String,
        /// How long it is watched, s.
        #[serde(default = "two_minutes")]
        for_s: f64,
    },
    /// Of the observer, over the run: how long vCPUs of the VMs of this name (or id, or pattern with `*`) could run and had no pCPU, % of the run.
    Ready(String),
    /// The same, and what a quota held: esxtop's `%RDY`.
    Wait(String),
    /// Ready while a sibling ran (part of ready).
    Lag(String),
    /// Held by a quota.
    Limited(String),
    /// On a pCPU.
    Run(String),
    /// Unbroken waits for a pCPU, ms: median.
    ReadyP50(String),
    /// 95th percentile.
    ReadyP95(String),
    /// 99th percentile.
    ReadyP99(String),
    /// The longest.
    ReadyMax(String),
    /// From wake-up to running, ms: median.
    WakeP50(String),
    /// 95th percentile.
    WakeP95(String),
    /// 99th percentile.
    WakeP99(String),
    /// The longest.
    WakeMax(String),
    /// What the kernel's performance counters count in the vCPUs of VMs, all together, per second.
    Counter {
        /// What.
        event: Event,
        /// The VMs' name, id, or pattern with `*`.
        vm: String,
    },
}

impl Of {
    /// What of which VMs the observer is asked for; `None`: it is not.
    pub fn observed(&self) -> Option<(&'static Quantity, &str)> {
        let (name, vms) = match self {
            Of::Time | Of::Printed(_) | Of::IdleWatts { .. } | Of::Counter { .. } => return None,
            Of::Ready(vms) => ("ready", vms),
            Of::Wait(vms) => ("wait", vms),
            Of::Lag(vms) => ("lag", vms),
            Of::Limited(vms) => ("limited", vms),
            Of::Run(vms) => ("run", vms),
            Of::ReadyP50(vms) => ("ready_p50", vms),
            Of::ReadyP95(vms) => ("ready_p95", vms),
            Of::ReadyP99(vms) => ("ready_p99", vms),
            Of::ReadyMax(vms) => ("ready_max", vms),
            Of::WakeP50(vms) => ("wake_p50", vms),
            Of::WakeP95(vms) => ("wake_p95", vms),
            Of::WakeP99(vms) => ("wake_p99", vms),
            Of::WakeMax(vms) => ("wake_max", vms),
        };
        let quantity = Quantity::named(name).expect("every measure of the observer's is a quantity");
        Some((quantity, vms))
    }
}

fn two_minutes() -> f64 {
    120.0
}

/// One measure.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measure {
    /// Its name.
    pub name: String,
    /// Where it comes from.
    pub of: Of,
    /// Its unit, for people.
    #[serde(default)]
    pub unit: String,
    /// What is better.
    #[serde(default = "less")]
    pub better: Better,
}

fn less() -> Better {
    Better::Less
}

/// One factor.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Factor {
    /// Its name.
    pub name: String,
    /// Its levels; the first is what others are held against.
    pub levels: Vec<String>,
    /// A file that is written and read back (sysfs, procfs, cgroups). Of one that lists its choices (`always [madvise] never`) the bracketed
    /// one is in force.
    pub file: Option<String>,
    /// Sets `{level}`.
    pub set: Option<String>,
    /// Prints the level that is in force.
    pub read: Option<String>,
    /// The profile of the tuned daemon.
    #[serde(default)]
    pub tuned: bool,
    /// Words of the kernel's command line; needs `[boot]`.
    #[serde(default)]
    pub kernel: bool,
    /// Where it is set: `user@host` for ssh; without it here.
    pub on: Option<String>,
    /// How the best level is kept for good (`report --plan`): in a VM's definition, or by commands. While the experiment runs it is set as above.
    pub lasting: Option<Lasting>,
}

/// How a machine is booted with another command line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Boot {
    /// Changes what the next boot's command line will be: `{add}` are the words that shall be there, `{remove}` the names of all words that levels
    /// speak of. For grubby: `grubby --update-kernel=ALL --remove-args="{remove}" --args="{add}"`.
    pub set: String,
    /// Boots.
    #[serde(default = "reboot")]
    pub reboot: String,
}

fn reboot() -> String {
    "systemctl reboot".to_owned()
}

/// How a setting of a machine is set and read.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum How {
    /// A file.
    File {
        /// Its path.
        path: String,
    },
    /// Commands.
    Commands {
        /// Sets `{level}`.
        set: String,
        /// Prints what is in force.
        read: String,
    },
    /// Words of the kernel's command line, for the next boot; what is in force is what the running kernel was given.
    KernelWords {
        /// The names of the words that levels speak of.
        names: Vec<String>,
        /// Changes the next boot's.
        set: String,
    },
    /// For good, by a profile of tuned's: text is a profile's name, and the one of this name is made before it is set, removed when another is.
    TunedProfile {
        /// The profile.
        profile: Box<Profile>,
    },
    /// For good, words of the kernel's command line, by the boot loader's tool; what is read is what the next boot will be given.
    BootLoader {
        /// The names of the words that are spoken of.
        names: Vec<String>,
        /// Which tool.
        loader: Loader,
    },
    /// For good, in a VM's definition.
    Definition {
        /// Whose libvirt.
        connect: String,
        /// Which element.
        element: Element,
    },
}

/// A setting of a machine that is text.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Knob {
    /// Its name.
    pub name: String,
    /// How.
    pub how: How,
    /// Where: `user@host` for ssh; `None`: here.
    pub on: Option<String>,
}

/// Whose definitions are meant where an experiment names no libvirt.
const LIBVIRT: &str = "qemu:///system";

/// tuned's own commands. `tuned-adm profile` answers 0 where no daemon runs and does nothing: that is what reading back is for. No profile is what
/// [`TUNED_READ`] tells by nothing, and there is none of that name.
pub const TUNED_SET: &str = "if [ -n '{level}' ]; then tuned-adm profile '{level}'; else tuned-adm off; fi";
/// Prints the active profile; nothing where there is none, or no daemon runs.
pub const TUNED_READ: &str = "tuned-adm active | sed -n 's/^Current active profile: //p'";

impl Factor {
    /// How it is set; `None` where its level stands in the workload's command alone.
    ///
    /// # Errors
    /// `BadInput` where several ways are named, or half of one.
    pub fn knob(&self, boot: Option<&Boot>) -> Result<Option<Knob>, Fault> {
        let wrong =
            |why: &str| Fault::new(FaultKind::BadInput, format!("factor {:?}", self.name)).because(why);
        let ways = [self.file.is_some(), self.set.is_some() || self.read.is_some(), self.tuned, self.kernel];
        if ways.iter().filter(|w| **w).count() > 1 {
            return Err(
                wrong("it is set in several ways").way_out("one of file, set and read, tuned, kernel")
            );
        }
        let how = match (&self.file, &self.set, &self.read) {
            (Some(path), ..) => How::File { path: path.clone() },
            (_, Some(set), Some(read)) => How::Commands { set: set.clone(), read: read.clone() },
            (_, Some(_), None) | (_, None, Some(_)) => {
                return Err(wrong("it needs both `set` and `read`: what was set is read back"));
            }
            _ if self.tuned => How::Commands { set: TUNED_SET.to_owned(), read: TUNED_READ.to_owned() },
            _ if self.kernel => {
                let boot =
                    boot.ok_or_else(|| wrong("it needs a boot").way_out("a section [boot] with `set`"))?;
                let mut names: Vec<String> = self
                    .levels
                    .iter()
                    .flat_map(|l| l.split_whitespace())
                    .map(|w| word_name(w).to_owned())
                    .collect();
                names.sort();
                names.dedup();
                How::KernelWords { names, set: boot.set.clone() }
            }
            _ => return Ok(None),
        };
        Ok(Some(Knob { name: self.name.clone(), how, on: self.on.clone() }))
    }

    /// How its best level is kept for good, where its file says that; `connect` is whose definitions are meant.
    ///
    /// # Errors
    /// `BadInput` for commands that cannot keep, or tell, a level.
    pub fn kept(&self, connect: Option<&str>) -> Result<Option<Knob>, Fault> {
        let element = match &self.lasting {
            None => return Ok(None),
            Some(Lasting::Queues { vm, interface }) => {
                Element::Queues { vm: vm.clone(), interface: *interface }
            }
            Some(Lasting::Pin { vm, vcpu }) => Element::Pin { vm: vm.clone(), vcpu: *vcpu },
            Some(Lasting::Commands { set, read }) => {
                if !set.contains("{level}") || read.trim().is_empty() {
                    return Err(Fault::new(FaultKind::BadInput, format!("factor {:?}", self.name)).because(
                        "its lasting commands: `set` has {level} in it, and `read` prints what is kept",
                    ));
                }
                let how = How::Commands { set: set.clone(), read: read.clone() };
                // Another setting than the one that is in force now: in a plan both have a step.
                return Ok(Some(Knob { name: format!("{}, kept", self.name), how, on: self.on.clone() }));
            }
        };
        // libvirt goes to another machine itself.
        let of_on = |on: &String| format!("qemu+ssh://{}/system", on.trim_start_matches("ssh://"));
        let connect = match (connect, &self.on) {
            (Some(uri), _) => uri.to_owned(),
            (None, Some(on)) => of_on(on),
            (None, None) => LIBVIRT.to_owned(),
        };
        Ok(Some(Knob { name: self.name.clone(), how: How::Definition { connect, element }, on: None }))
    }
}

/// `mitigations` of `mitigations=off`.
pub fn word_name(word: &str) -> &str {
    word.split_once('=').map_or(word, |(name, _)| name)
}

/// Those words of a command line whose names are among these, in its order.
pub fn words_of(line: &str, names: &[String]) -> String {
    let words = line.split_whitespace().filter(|w| names.iter().any(|n| n == word_name(w)));
    words.collect::<Vec<_>>().join(" ")
}

/// Among `always [madvise] never` the one in brackets; else the text itself, without space around it.
pub fn in_brackets(text: &str) -> &str {
    let text = text.trim();
    text.split_whitespace().find_map(|w| w.strip_prefix('[')?.strip_suffix(']')).unwrap_or(text)
}

/// What `pattern` says stands at its `{}` in `text`: the last one. Between the number and what follows `{}` stands nothing but space, unless `*` follows.
pub fn printed(pattern: &str, text: &str) -> Option<f64> {
    let (before, after) = pattern.split_once("{}")?;
    // A pattern with a comma at its number speaks of columns, not of thousands.
    let grouped = !before.ends_with(',') && !after.starts_with(',');
    text.lines().rev().find_map(|line| {
        // The least that `*` can stand for, from the left.
        let mut at = 0;
        for part in before.split('*') {
            at += line[at..].find(part)? + part.len();
        }
        let (number, rest) = number(line[at..].trim_start(), grouped)?;
        let mut parts = after.split('*');
        let mut tail = follows(rest, parts.next().unwrap_or(""))?;
        for part in parts {
            tail = &tail[tail.find(part)? + part.len()..];
        }
        number.is_finite().then_some(number)
    })
}

/// The number that a text begins with, and what is after it. Of `1,234,567` all; of `1,23` and `1.2.3` none, since nobody knows what they mean.
fn number(text: &str, grouped: bool) -> Option<(f64, &str)> {
    let length = text.find(|c: char| !(c.is_ascii_digit() || "+-.eE".contains(c))).unwrap_or(text.len());
    // "12.5e" is 12.5 and an "e"; "3.2." of a sentence is 3.2.
    let (mut value, mut end) = (1..=length).rev().find_map(|n| Some((text[..n].parse::<f64>().ok()?, n)))?;
    let digit_at = |i: usize| text.as_bytes().get(i).is_some_and(u8::is_ascii_digit);
    if grouped && text.as_bytes().get(end) == Some(&b',') && digit_at(end + 1) {
        end = thousands(text).filter(|all| *all > end)?;
        value = text[..end].replace(',', "").parse().ok()?;
    }
    let goes_on = match text.as_bytes().get(end) {
        Some(b'.') => digit_at(end + 1),
        Some(b',') => grouped && digit_at(end + 1),
        _ => false,
    };
    (!goes_on).then(|| (value, &text[end..]))
}

/// How long a number is that is written in groups of three digits, with what is after its point.
fn thousands(text: &str) -> Option<usize> {
    let digits = |t: &str| t.bytes().take_while(u8::is_ascii_digit).count();
    let sign = usize::from(text.starts_with(['+', '-']));
    let first = digits(&text[sign..]);
    let mut end = sign + first;
    if !(1..=3).contains(&first) {
        return None;
    }
    while let Some(group) = text[end..].strip_prefix(',') {
        if digits(group) != 3 {
            return None;
        }
        end += 4;
    }
    let fraction = text[end..].strip_prefix('.').map_or(0, digits);
    Some(if fraction > 0 { end + 1 + fraction } else { end })
}

/// What is after `part`, where nothing but space stands before it.
fn follows<'a>(text: &'a str, part: &str) -> Option<&'a str> {
    if part.is_empty() {
        return Some(text);
    }
    let (rest, word) = (text.trim_start(), part.trim_start());
    // Space that the pattern has is asked for, some of it.
    let apart = word.len() == part.len() || rest.len() < text.len();
    rest.strip_prefix(word).filter(|_| apart)
}

impl Experiment {
    /// What is measured: the time, where nothing is named.
    pub fn measured(&self) -> Vec<Measure> {
        if !self.measures.is_empty() {
            let mut all = self.measures.clone();
            // Units of the observer's are what they are.
            for m in &mut all {
                if let Some((quantity, _)) = m.of.observed() {
                    quantity.unit().clone_into(&mut m.unit);
                } else if let Of::Counter { .. } = m.of {
                    counted::UNIT.clone_into(&mut m.unit);
                }
            }
            return all;
        }
        vec![Measure { name: "time".into(), of: Of::Time, unit: "s".into(), better: Better::Less }]
    }

    /// The factors, for a design.
    pub fn varied(&self) -> Vec<Varied> {
        let of = |f: &Factor| Varied { name: f.name.clone(), levels: f.levels.clone(), boots: f.kernel };
        self.factors.iter().map(of).collect()
    }

    /// Settings and questions.
    ///
    /// # Errors
    /// As [`lay_out`].
    pub fn laid(&self) -> Result<Laid, Fault> {
        lay_out(self.design, &self.varied())
    }

    /// How often this machine is booted, where so many blocks are run and no run is cut off; `in_force` are the levels that are in force first, where what
    /// is in force is one.
    pub fn boots(&self, laid: &Laid, in_force: &[Option<usize>], blocks: usize) -> usize {
        let kernel: Vec<usize> = (0..self.factors.len()).filter(|f| self.factors[*f].kernel).collect();
        let words = |levels: &[usize]| kernel.iter().map(|f| Some(levels[*f])).collect::<Vec<_>>();
        let first: Vec<Option<usize>> = kernel.iter().map(|f| in_force.get(*f).copied().flatten()).collect();
        let (mut now, mut boots) = (first.clone(), 0);
        for block in 0..blocks {
            for setting in order(&self.varied(), &laid.settings, self.seed, block as u64) {
                let wanted = words(&laid.settings[setting]);
                boots += usize::from(wanted != now);
                now = wanted;
            }
        }
        // And back.
        boots + usize::from(now != first)
    }

    /// A setting in words.
    pub fn words(&self, levels: &[usize]) -> String {
        let shown = |l: &str| if l.is_empty() { "(none)".to_owned() } else { l.to_owned() };
        let each =
            self.factors.iter().zip(levels).map(|(f, l)| format!("{}={}", f.name, shown(&f.levels[*l])));
        each.collect::<Vec<_>>().join(", ")
    }

    /// A command with this setting's levels in it.
    pub fn with_levels(&self, command: &str, levels: &[usize]) -> String {
        self.factors
            .iter()
            .zip(levels)
            .fold(command.to_owned(), |text, (f, l)| text.replace(&format!("{{{}}}", f.name), &f.levels[*l]))
    }

    /// Is it one that can be run?
    ///
    /// # Errors
    /// `BadInput`, naming what is wrong.
    pub fn check(&self) -> Result<(), Fault> {
        self.check_form()?;
        let wrong = |of: String, why: &str| Fault::new(FaultKind::BadInput, of).because(why);
        if let Some(f) = self.factors.iter().find(|f| f.kernel && f.on.is_some()) {
            return Err(wrong(
                format!("factor {:?}", f.name),
                "its words are another machine's (`on`), and what is booted is this one",
            )
            .way_out(
                "run vsteer on that machine, or set its words and boot it by hand, an experiment for each",
            ));
        }
        for m in &self.measures {
            if let Of::IdleWatts { for_s, .. } = m.of
                && !(for_s > 0.0 && for_s <= 86_400.0)
            {
                return Err(wrong(format!("measure {:?}", m.name), "for_s is above 0 and a day at most"));
            }
        }
        Ok(())
    }

    /// Is it one that a log may be of? Those that were begun before [`Experiment::check`] refused them can still be read and reported.
    ///
    /// # Errors
    /// `BadInput`, naming what is wrong.
    pub fn check_form(&self) -> Result<(), Fault> {
        let wrong = |why: String| {
            Err(Fault::new(FaultKind::BadInput, format!("experiment {:?}", self.name)).because(why))
        };
        if self.name.is_empty() || self.name.contains(['/', '\n']) || self.name.starts_with('.') {
            return wrong("its name becomes a folder's: letters, digits, dashes".into());
        }
        if !(5..=10_000).contains(&self.runs_least)
            || self.runs_most < self.runs_least
            || self.runs_most > 10_000
        {
            return wrong(format!(
                "runs_least {} and runs_most {}: 5 at least, in this order",
                self.runs_least, self.runs_most
            ));
        }
        if !(1..=100).contains(&self.runs_per_visit) || self.warm_up > 100 {
            return wrong("runs_per_visit is 1 to 100, warm_up 0 to 100".into());
        }
        if self.margin_percent.is_some_and(|m| !(m > 0.0 && m < 100.0)) {
            return wrong("margin_percent is above 0 and below 100".into());
        }
        let times = self.timeout_s > 0.0
            && self.timeout_s <= 7.0 * 86_400.0
            && (0.0..=86_400.0).contains(&self.settle_s);
        if !times {
            return wrong("timeout_s is above 0 and a week at most, settle_s a day at most".into());
        }
        if self.workload.command.trim().is_empty() {
            return wrong("its workload has no command".into());
        }
        let mut names: Vec<&str> = self.factors.iter().map(|f| f.name.as_str()).collect();
        names.sort_unstable();
        if names.windows(2).any(|w| w[0] == w[1]) || names.iter().any(|n| n.is_empty()) {
            return wrong("every factor has a name of its own".into());
        }
        for f in &self.factors {
            let mut levels = f.levels.clone();
            levels.sort();
            levels.dedup();
            if levels.len() != f.levels.len() {
                return wrong(format!("factor {:?} has a level twice", f.name));
            }
            f.kept(self.connect.as_deref())?;
            if f.knob(self.boot.as_ref())?.is_none() {
                let place = format!("{{{}}}", f.name);
                let w = &self.workload;
                let used = [Some(&w.command), w.prepare.as_ref(), w.clean.as_ref()];
                if !used.into_iter().flatten().any(|c| c.contains(&place)) {
                    return wrong(format!(
                        "factor {:?} is neither set by anything nor in the workload as {place}",
                        f.name
                    ));
                }
            }
        }
        for m in &self.measures {
            if let Of::Printed(pattern) = &m.of
                && pattern.matches("{}").count() != 1
            {
                return wrong(format!("measure {:?}: its text has one {{}} where the number stands", m.name));
            }
        }
        for m in &self.measures {
            if let Of::Counter { event, vm } = &m.of {
                if vm.is_empty() {
                    return wrong(format!("measure {:?}: which VM's {}?", m.name, event.name()));
                }
                if !m.unit.is_empty() && m.unit != counted::UNIT {
                    return wrong(format!(
                        "measure {:?}: {} is per second ({})",
                        m.name,
                        event.name(),
                        counted::UNIT
                    ));
                }
            }
            if let Some((quantity, vms)) = m.of.observed() {
                if vms.is_empty() {
                    return wrong(format!("measure {:?}: which VM's {}?", m.name, quantity.name));
                }
                if !m.unit.is_empty() && m.unit != quantity.unit() {
                    return wrong(format!(
                        "measure {:?}: {} is in {}",
                        m.name,
                        quantity.name,
                        quantity.unit()
                    ));
                }
            }
        }
        if self.measures.first().is_some_and(|m| matches!(m.of, Of::IdleWatts { .. })) {
            return wrong("the first measure decides on the number of runs: not idle watts".into());
        }
        self.laid().map(|_| ())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_found_where_they_are_said_to_be() {
        let iperf = "[SUM]   0.00-10.00  sec  41.2 GBytes  35.4 Gbits/sec  12  sender\n[SUM]   0.00-10.04  sec  41.2 GBytes  35.2 Gbits/sec  receiver\n";
        assert_eq!(printed("[SUM]*Bytes {} Gbits/sec*receiver", iperf), Some(35.2));
        assert_eq!(printed("real {}", "user 1\nreal 12.5s\nreal 13.25s\n"), Some(13.25));
        assert_eq!(printed("watts: {} W", "watts: 3.2e1 W"), Some(32.0));
        assert_eq!(printed("{}.", "took 3.2."), None);
        assert_eq!(printed("took {}.", "took 3.2."), Some(3.2));
        assert_eq!(printed("x={}", "x=nan x=inf"), None);
        assert_eq!(printed("x={}", ""), None);
    }

    #[test]
    fn a_number_is_all_of_what_stands_there_or_none() {
        let perf = "         1,234,567      cache-misses              #   12.345 % of all cache refs\n";
        assert_eq!(printed("{} cache-misses", perf), Some(1_234_567.0));
        assert_eq!(printed("cache-misses*# {} %", perf), Some(12.345));
        assert_eq!(printed("took {} us", "took -12,345.5 us"), Some(-12_345.5));
        for odd in ["1,23", "1,2345", "1234,567", "1,234,56", "1.234.567", "1,234.5.6", "1e5,000", ".5,000"] {
            assert_eq!(printed("{}", odd), None, "{odd}");
            assert_eq!(printed("{} x", &format!("{odd} x")), None, "{odd}");
        }
        assert_eq!(printed("{} x", "1 234 x"), None);
        // Columns, where the pattern says so.
        assert_eq!(printed("a,{},*", "a,350,100,7"), Some(350.0));
        assert_eq!(printed("a,{}", "a,350,100"), Some(350.0));
        assert_eq!(printed("sum, {}", "sum, 1,350"), Some(1350.0));
        assert_eq!(printed("sum: {}, mean", "sum: 350, mean 7"), Some(350.0));
        // What follows the number follows it.
        assert_eq!(printed("{} s", "350 ms, total 1 s"), None);
        assert_eq!(printed("{}*s", "350 ms, total 1 s"), Some(350.0));
        assert_eq!(printed("total {}s", "350 ms, total 1  s"), Some(1.0));
        assert_eq!(printed("total {} s", "total 1s"), None, "the space that is asked for");
        assert_eq!(printed("{} rows", "12 rows\n7 columns, 3 rows\n"), Some(12.0));
    }

    #[test]
    fn words_and_brackets() {
        let names = vec!["mitigations".to_owned(), "amd_pstate".to_owned()];
        assert_eq!(
            words_of("ro quiet amd_pstate=active mitigations=off x", &names),
            "amd_pstate=active mitigations=off"
        );
        assert_eq!(words_of("ro", &names), "");
        assert_eq!(
            (in_brackets("always [madvise] never\n"), in_brackets(" active\n")),
            ("madvise", "active")
        );
    }

    const FILE: &str = r#"
name = "j"
design = "pair"
[workload]
command = "make -j{jobs}"
[[factor]]
name = "jobs"
levels = ["1", "2"]
"#;

    #[test]
    fn every_quantity_is_a_measure() {
        for q in crate::quantity::QUANTITIES {
            let text = FILE.replace(
                "[workload]",
                &format!("[[measure]]\nname = \"m\"\nof = {{ {} = \"web*\" }}\n[workload]", q.name),
            );
            let e: Experiment = toml::from_str(&text).unwrap();
            e.check().unwrap();
            let m = &e.measured()[0];
            assert_eq!((m.of.observed(), m.unit.as_str()), (Some((&q, "web*")), q.unit()));
        }
        let text = FILE.replace(
            "[workload]",
            "[[measure]]\nname = \"m\"\nunit = \"s\"\nof = { ready = \"web*\" }\n[workload]",
        );
        let e: Experiment = toml::from_str(&text).unwrap();
        assert!(e.check().unwrap_err().to_string().contains("in %"));
    }

    #[test]
    fn what_cannot_be_run_is_refused() {
        let good: Experiment = toml::from_str(FILE).unwrap();
        good.check().unwrap();
        assert_eq!(good.with_levels("make -j{jobs}", &[1]), "make -j2");
        assert_eq!(good.measured()[0].of, Of::Time);
        for (from, to) in [
            ("make -j{jobs}", "make"),
            ("levels = [\"1\", \"2\"]", "levels = [\"1\", \"1\"]"),
            ("levels = [\"1\", \"2\"]", "levels = [\"1\", \"2\"]\nset = \"x\""),
            ("levels = [\"1\", \"2\"]", "levels = [\"1\", \"2\"]\nkernel = true"),
            ("levels = [\"1\", \"2\"]", "levels = [\"1\", \"2\"]\ntuned = true\nfile = \"/x\""),
            ("name = \"j\"", "name = \"../j\""),
            ("design = \"pair\"", "design = \"pair\"\nruns_least = 3"),
            ("design = \"pair\"", "design = \"pair\"\nmargin_percent = 0.0"),
        ] {
            let bad: Experiment = toml::from_str(&FILE.replace(from, to)).unwrap();
            assert_eq!(bad.check().unwrap_err().kind, FaultKind::BadInput, "{to}");
        }
        let idle = |for_s: &str| {
            let measures = format!(
                "[[measure]]\nname = \"t\"\nof = \"time\"\n[[measure]]\nname = \"w\"\nof = {{ idle_watts = {{ meter = \"rapl\", for_s = {for_s} }} }}\n[workload]"
            );
            toml::from_str::<Experiment>(&FILE.replace("[workload]", &measures)).unwrap().check()
        };
        idle("120.0").unwrap();
        for for_s in ["0.0", "-1.0", "nan", "inf", "86401.0"] {
            assert!(idle(for_s).unwrap_err().to_string().contains("for_s"), "{for_s}");
        }
        assert!(toml::from_str::<Experiment>(&FILE.replace("[workload]", "margin = 3\n[workload]")).is_err());
    }

    #[test]
    fn boots_are_counted() {
        let factor = "levels = [\"x=1\", \"x=2\"]\nkernel = true\n[boot]\nset = \"true\"";
        let text = FILE.replace("levels = [\"1\", \"2\"]", factor);
        let e: Experiment = toml::from_str(&text).unwrap();
        let laid = e.laid().unwrap();
        // Two levels, each once a block: a boot between the two, one between blocks where the order turns, and to and from what was found.
        let turns = |blocks: u64| {
            let orders: Vec<usize> =
                (0..blocks).flat_map(|b| order(&e.varied(), &laid.settings, e.seed, b)).collect();
            orders.windows(2).filter(|w| w[0] != w[1]).count()
        };
        for blocks in [5, 30] {
            assert_eq!(e.boots(&laid, &[None], blocks as usize), turns(blocks) + 2);
            let first = order(&e.varied(), &laid.settings, e.seed, 0)[0];
            let here = e.boots(&laid, &[Some(laid.settings[first][0])], blocks as usize);
            assert!((turns(blocks)..=turns(blocks) + 1).contains(&here), "{here}");
        }
        let plain: Experiment = toml::from_str(FILE).unwrap();
        assert_eq!(plain.boots(&plain.laid().unwrap(), &[None], 30), 0);
    }

    #[test]
    fn words_of_another_machines_kernel_are_refused_and_logs_of_them_read() {
        let kernel = |on: &str| {
            let factor = format!("levels = [\"x=1\", \"x=2\"]\nkernel = true\n{on}\n[boot]\nset = \"true\"");
            let e: Experiment = toml::from_str(&FILE.replace("levels = [\"1\", \"2\"]", &factor)).unwrap();
            e
        };
        kernel("").check().unwrap();
        let there = kernel("on = \"root@guest\"");
        let fault = there.check().unwrap_err();
        assert!(
            fault.kind == FaultKind::BadInput && fault.to_string().contains("another machine's"),
            "{fault}"
        );
        assert!(fault.way_out.is_some());
        there.check_form().unwrap();
    }
}
