//! What shall be tried, by running what, how often, and what counts?
//!
//! The form of an experiment's file (TOML, docs/experiments.md). Everything that a run needs is in it, so that a copy beside the runs tells years later what was
//! done. A factor is a knob of the host or of a VM, set and read back by a file, by commands, by tuned or on the kernel's command line; or a
//! word of the workload's command alone.
//!
//! Left out: knobs that are set through libvirt's API: `virsh` is a command. GAP(experiment-remote-boot): words of another machine's kernel (`kernel` with
//! `on`), which nobody boots.

use super::design::{Design, Laid, Varied, lay_out, order};
use serde::{Deserialize, Serialize};
use vsteer_core::counted::{self, Event};
use vsteer_core::quantity::Quantity;
use vsteer_core::setting::knob::{How, Knob, TUNED_READ, TUNED_SET};
use vsteer_core::setting::lasting::{Element, Lasting};
use vsteer_core::setting::words::word_name;
use vsteer_core::{Fault, FaultKind};

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

/// Whose definitions are meant where an experiment names no libvirt.
const LIBVIRT: &str = "qemu:///system";

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
            return Err(wrong("it is set in several ways").help("one of file, set and read, tuned, kernel"));
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
                    boot.ok_or_else(|| wrong("it needs a boot").help("a section [boot] with `set`"))?;
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
}

/// A small one, for tests of what is made of them.
#[cfg(test)]
pub(super) const SMALL: &str = r#"
name = "j"
design = "pair"
[workload]
command = "make -j{jobs}"
[[factor]]
name = "jobs"
levels = ["1", "2"]
"#;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boots_are_counted() {
        let factor = "levels = [\"x=1\", \"x=2\"]\nkernel = true\n[boot]\nset = \"true\"";
        let text = SMALL.replace("levels = [\"1\", \"2\"]", factor);
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
        let plain: Experiment = toml::from_str(SMALL).unwrap();
        assert_eq!(plain.boots(&plain.laid().unwrap(), &[None], 30), 0);
    }
}
