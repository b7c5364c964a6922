//! What does an experiment vary, run and measure, and how often? The form of its TOML file (docs/experiments.md).
//!
//! The file contains everything that a run needs, so a copy beside the runs documents them. A factor is a setting
//! of the host or of a VM. vsteer sets it and reads it back through a file, commands, tuned or the kernel's command
//! line. A factor can also be just a word of the workload's command.
//!
//! Left out: settings through libvirt's API (use the command `virsh`). GAP(experiment-remote-boot): kernel words of
//! another machine (`kernel` with `on`), which vsteer does not reboot.

use super::design::{Design, Laid, Varied, lay_out, order};
pub use super::measured::Of;
use serde::{Deserialize, Serialize};
use vsteer_core::counted;
use vsteer_core::setting::argv::Argv;
use vsteer_core::setting::knob::{How, Knob};
use vsteer_core::setting::lasting::{Element, Lasting};
use vsteer_core::setting::words::word_name;
use vsteer_core::{Fault, FaultKind};

/// Description of an experiment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Experiment {
    /// Name of the experiment.
    pub name: String,
    /// Seed of every random order.
    #[serde(default = "one")]
    pub seed: u64,
    /// Which combinations of levels run.
    pub design: Design,
    /// Number of blocks of the first stage, which is the least number of runs per setting.
    #[serde(default = "five")]
    pub runs_least: usize,
    /// Largest number of blocks.
    #[serde(default = "thirty")]
    pub runs_most: usize,
    /// Wanted half width of each effect's interval, in per cent of the first measure. `None`: run `runs_least` blocks.
    pub margin_percent: Option<f64>,
    /// Runs per visit of a setting; their mean counts.
    #[serde(default = "one_run")]
    pub runs_per_visit: usize,
    /// Warm-up runs per visit, which do not count.
    #[serde(default)]
    pub warm_up: usize,
    /// Time limit of a run, s.
    #[serde(default = "an_hour")]
    pub timeout_s: f64,
    /// Wait after a change of settings, s.
    #[serde(default)]
    pub settle_s: f64,
    /// The commands to run.
    pub workload: Workload,
    /// The measures. The first decides the number of runs. If empty, the time is measured.
    #[serde(default, rename = "measure")]
    pub measures: Vec<Measure>,
    /// What is varied.
    #[serde(rename = "factor")]
    pub factors: Vec<Factor>,
    /// How to reboot the machine, if a factor needs it.
    pub boot: Option<Boot>,
    /// Connection URI of the VMs to observe, like `--connect`. `None`: all VMs of this host.
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

/// Commands of a run. `{NAME}` in a command stands for the level of that factor.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Workload {
    /// The timed command.
    pub command: Argv,
    /// Command before each run. It is not timed and must succeed.
    pub prepare: Option<Argv>,
    /// Command after each run, also after a failure.
    pub clean: Option<Argv>,
    /// Machine to run on: `user@host` for ssh. `None`: this machine.
    pub on: Option<String>,
}

/// Which direction of a measure is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Better {
    /// Smaller values are better.
    Less,
    /// Larger values are better.
    More,
}

/// One measure.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measure {
    /// Name of the measure.
    pub name: String,
    /// Source of the number.
    pub of: Of,
    /// Unit for reports.
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
    /// Name of the factor.
    pub name: String,
    /// Levels; the others are compared with the first.
    pub levels: Vec<String>,
    /// File to write and read back (sysfs, procfs, cgroups). If it lists choices (`always [madvise] never`), the
    /// bracketed one is in force.
    pub file: Option<String>,
    /// Command that sets `{level}`.
    pub set: Option<Argv>,
    /// Command that prints the level in force.
    pub read: Option<Argv>,
    /// If true, the levels are profiles of the tuned daemon.
    #[serde(default)]
    pub tuned: bool,
    /// If true, the levels are words of the kernel's command line; needs `[boot]`.
    #[serde(default)]
    pub kernel: bool,
    /// Machine to set it on: `user@host` for ssh. `None`: this machine.
    pub on: Option<String>,
    /// How to keep the best level permanently (`report --plan`): in a VM's definition, or by commands. Not used
    /// during the experiment.
    pub lasting: Option<Lasting>,
}

/// How to reboot a machine with another kernel command line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Boot {
    /// Command that changes the next boot's command line. `{add}` stands for the words to add, `{remove}` for the
    /// names of all words in the levels. For grubby: `grubby --update-kernel=ALL "--remove-args={remove}"
    /// "--args={add}"`.
    pub set: Argv,
    /// Command that boots.
    #[serde(default = "reboot")]
    pub reboot: Argv,
}

fn reboot() -> Argv {
    Argv::parse("systemctl reboot").expect("plain words")
}

/// Default libvirt connection of VM definitions.
const LIBVIRT: &str = "qemu:///system";

impl Factor {
    /// How the factor is set; `None` if its level is only in the workload's commands.
    ///
    /// # Errors
    /// `BadInput` if the factor has several ways to set it, or `set` without `read`.
    pub fn knob(&self, boot: Option<&Boot>) -> Result<Option<Knob>, Fault> {
        let wrong = |why: &str| {
            Fault::new(FaultKind::BadInput, format!("factor {:?} is not valid", self.name)).because(why)
        };
        let ways = [self.file.is_some(), self.set.is_some() || self.read.is_some(), self.tuned, self.kernel];
        if ways.iter().filter(|w| **w).count() > 1 {
            return Err(
                wrong("it has several ways to set it").help("use one of: file; set and read; tuned; kernel")
            );
        }
        let how = match (&self.file, &self.set, &self.read) {
            (Some(path), ..) => How::File { path: path.clone() },
            (_, Some(set), Some(read)) => How::Commands { set: set.clone(), read: read.clone() },
            (_, Some(_), None) => return Err(wrong("it has `set` but no `read` to check the value")),
            (_, None, Some(_)) => return Err(wrong("it has `read` but no `set`")),
            _ if self.tuned => How::Tuned {},
            _ if self.kernel => {
                let boot = boot.ok_or_else(|| {
                    wrong("kernel words need a reboot").help("add a section [boot] with `set`")
                })?;
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

    /// How to keep the best level permanently, if the file says so. `connect` is the libvirt connection of VM
    /// definitions.
    ///
    /// # Errors
    /// `BadInput` if the commands cannot set or print a level.
    pub fn kept(&self, connect: Option<&str>) -> Result<Option<Knob>, Fault> {
        let element = match &self.lasting {
            None => return Ok(None),
            Some(Lasting::Queues { vm, interface }) => {
                Element::Queues { vm: vm.clone(), interface: *interface }
            }
            Some(Lasting::Pin { vm, vcpu }) => Element::Pin { vm: vm.clone(), vcpu: *vcpu },
            Some(Lasting::Commands { set, read }) => {
                let wrong = |why: &str| {
                    Fault::new(FaultKind::BadInput, format!("factor {:?} is not valid", self.name))
                        .because(why)
                };
                if !set.mentions("level") {
                    return Err(wrong("the lasting command `set` does not contain {level}"));
                }
                let how = How::Commands { set: set.clone(), read: read.clone() };
                // Not the setting that is in force now: a plan has a step for each of both.
                return Ok(Some(Knob { name: format!("{}, kept", self.name), how, on: self.on.clone() }));
            }
        };
        // libvirt itself connects to the other machine.
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
    /// The measures; the time if the file names none.
    pub fn measured(&self) -> Vec<Measure> {
        if !self.measures.is_empty() {
            let mut all = self.measures.clone();
            // The observer's units are fixed.
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

    /// The factors in the form that a design needs.
    pub fn varied(&self) -> Vec<Varied> {
        let of = |f: &Factor| Varied { name: f.name.clone(), levels: f.levels.clone(), boots: f.kernel };
        self.factors.iter().map(of).collect()
    }

    /// The settings and questions of the design.
    ///
    /// # Errors
    /// As [`lay_out`].
    pub fn laid(&self) -> Result<Laid, Fault> {
        lay_out(self.design, &self.varied())
    }

    /// Number of reboots for this number of blocks, if no run is cut off. `in_force`: the levels in force first, if
    /// they are levels of the factors.
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

    /// Text of a setting: `factor=level, ...`.
    pub fn words(&self, levels: &[usize]) -> String {
        let shown = |l: &str| if l.is_empty() { "(none)".to_owned() } else { l.to_owned() };
        let each =
            self.factors.iter().zip(levels).map(|(f, l)| format!("{}={}", f.name, shown(&f.levels[*l])));
        each.collect::<Vec<_>>().join(", ")
    }

    /// Everything outside vsteer that the experiment touches: one line for each file, command, machine and connection.
    ///
    /// # Errors
    /// As [`Factor::knob`].
    pub fn touches(&self) -> Result<Vec<String>, Fault> {
        let mut all: Vec<String> = self.connect.iter().map(|uri| format!("connection: {uri}")).collect();
        for factor in &self.factors {
            all.extend(factor.knob(self.boot.as_ref())?.iter().flat_map(|knob| knob.touches("{level}")));
        }
        let w = &self.workload;
        all.extend(w.on.iter().map(|on| format!("machine: {on}, over ssh")));
        let commands = [w.prepare.as_ref(), Some(&w.command), w.clean.as_ref()];
        all.extend(commands.into_iter().flatten().map(|c| format!("command: {c}")));
        for measure in &self.measures {
            if let Of::IdleWatts { meter, .. } = &measure.of {
                all.push(format!("power meter: {meter}"));
            }
        }
        let boots = self.factors.iter().any(|f| f.kernel);
        all.extend(self.boot.iter().filter(|_| boots).map(|boot| format!("command: {}", boot.reboot)));
        let mut seen = std::collections::BTreeSet::new();
        all.retain(|line| seen.insert(line.clone()));
        Ok(all)
    }

    /// `command` with the setting's levels in place of `{NAME}`.
    pub fn with_levels(&self, command: &Argv, levels: &[usize]) -> Argv {
        let levels = self.factors.iter().zip(levels);
        levels.fold(command.clone(), |command, (f, l)| command.with(&f.name, &f.levels[*l]))
    }
}

/// A small experiment for tests.
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
        // Two levels, each once a block: a boot between the two, one between blocks where the order turns, and to
        // and from what was found.
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
