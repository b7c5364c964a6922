//! Who makes whom wait, and why? Rules over a host model, each with evidence and with what would prove it wrong.
//!
//! A rule is one file and one line in [`RULES`]. It is a pure function of configuration and model; it says nothing
//! where what it rests on was not measured (the rule `not_measured` says that once, for all). Findings are sorted
//! by how much pCPU time is lost to what they name.

mod boost_starved;
mod dead_weight;
mod driver_starved;
mod emulator_starved;
mod host_process;
mod limited;
mod memory_remote;
mod no_home_node;
mod node_overloaded;
mod noisy_neighbour;
mod not_measured;
mod nothing_wrong;
mod overcommitted;
mod pcpus_overloaded;
mod pinned_busy;
mod runs_slowly;
mod timers_refused;
mod too_many_vcpus;
mod weight_starved;

use crate::delay;
use crate::model::{HostModel, Shares, VmModel};
use crate::nouns::{Culprit, HostConfig, VmConfig, VmId};
use crate::numa::flowchart::{Walk, walk};
use crate::numa::load::Load;
use crate::thresholds::Thresholds;
use serde::{Deserialize, Serialize};

/// One measured value that a finding rests on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Evidence {
    /// What was measured.
    pub quantity: String,
    /// The value.
    pub value: f64,
    /// Its unit: `%`, `ms`, `pCPUs`, …
    pub unit: String,
    /// The threshold or reference it is held against, in the same unit.
    pub against: Option<f64>,
}

/// What a rule found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// The rule's name.
    pub rule: String,
    /// The VM it is about; `None`: the host.
    pub vm: Option<VmId>,
    /// In one sentence, with names.
    pub title: String,
    /// Why, and what follows.
    pub explanation: String,
    /// What it rests on.
    pub evidence: Vec<Evidence>,
    /// Time lost to it, in pCPUs (0.5: half a pCPU's time, all the time): findings are sorted by it.
    pub loss_pcpus: f64,
    /// What would prove it wrong.
    pub disproved_by: String,
    /// What to do next.
    pub next: String,
}

/// What rules are given.
pub struct Context<'a> {
    /// The settings.
    pub config: &'a HostConfig,
    /// What was measured.
    pub model: &'a HostModel,
    /// When it matters.
    pub thresholds: Thresholds,
}

impl<'a> Context<'a> {
    /// Every VM that was observed, with its settings.
    pub fn vms(&self) -> impl Iterator<Item = (&'a VmConfig, &'a VmModel)> + '_ {
        let config = self.config;
        self.model.vms.iter().filter_map(move |m| Some((config.vm(&m.id)?, m)))
    }

    /// Ready (with limited where they cannot be told apart), summed over a VM's vCPUs; of its group where they are not
    /// told apart.
    pub fn ready(&self, vm: &VmModel) -> f64 {
        let (shares, _) = vm.vcpus_or_group();
        shares.ready.or(shares.wait).unwrap_or(0.0)
    }

    /// As the published thresholds per group want it: of all worlds where the hypervisor counts them, else of the vCPUs.
    fn of_group(&self, vm: &VmModel, of: impl Fn(&Shares) -> Option<f64>) -> Option<f64> {
        of(if vm.worlds.is_some() { &vm.group } else { &vm.vcpus })
    }

    /// What the published flowchart asks first of a VM, its ready time and its co-stop, with the paper's two thresholds: both per group.
    fn of_paper(&self, vm: &VmModel) -> [(&'static str, Option<f64>, f64); 2] {
        let t = &self.thresholds;
        [
            ("ready per VM group (J. Park 2022)", self.of_group(vm, waited), t.ready_group),
            ("co-stop per VM group (J. Park 2022)", self.of_group(vm, |s| s.costop), t.costop_group),
        ]
    }

    /// Which thresholds a VM exceeds, as evidence that says which set each is of: per vCPU, and per group.
    pub fn exceeded(&self, vm: &VmModel) -> Vec<Evidence> {
        let t = &self.thresholds;
        let counted = vm.vcpu_threads().next().is_some();
        let sleeper = counted && delay::is_sleeper(vm, t);
        let sleeper_waits = delay::waits_per_vcpu(vm).filter(|_| sleeper);
        let [ready_group, costop_group] = self.of_paper(vm);
        let checks = [
            ("ready per vCPU (public level, warning)", vm.per_vcpu(waited), t.ready_per_vcpu),
            ("ready per vCPU of a VM that mostly sleeps", sleeper_waits, t.ready_sleeper),
            ready_group,
            ("co-stop per vCPU (public level, warning)", vm.per_vcpu(|s| s.costop), t.costop_per_vcpu),
            costop_group,
        ];
        let late = vm.wake_latency.filter(|_| delay::wakes_late(vm, t));
        let late =
            late.map(|l| millis("wake-up to running, 99th percentile", l.p99_ns, Some(t.wake_p99_of(vm))));
        let over = checks.into_iter().filter_map(|(what, is, most)| Some((what, is?, most)));
        let over =
            over.filter(|(_, is, most)| is > most).map(|(what, is, most)| percent(what, is, Some(most)));
        over.chain(late).collect()
    }

    /// Does this VM wait more than the thresholds allow?
    pub fn waits(&self, vm: &VmModel) -> bool {
        !self.exceeded(vm).is_empty()
    }

    /// Does this VM wait by the letter of the published flowchart? Its thresholds are those of a group alone.
    pub fn waits_by_the_paper(&self, vm: &VmModel) -> bool {
        self.of_paper(vm).into_iter().any(|(_, is, most)| is.is_some_and(|is| is > most))
    }

    /// The published flowchart, by the letter, of every VM.
    pub fn flowchart(&self, load: &Load) -> Vec<Walk> {
        walk(load, &|g| self.model.vm(&g.vm).is_some_and(|vm| self.waits_by_the_paper(vm)))
    }

    /// The name of a VM, for people.
    pub fn name(&self, id: &VmId) -> String {
        self.config.vm(id).map_or_else(|| id.to_string(), |v| v.name.clone())
    }

    /// A culprit's name, for people.
    pub fn culprit(&self, c: &Culprit) -> String {
        match c {
            Culprit::Vm(id) => format!("VM {:?}", self.name(id)),
            Culprit::Process { comm, pid: 0 } => format!("process {comm}"),
            Culprit::Process { comm, pid } => format!("process {comm} (pid {pid})"),
            Culprit::Kernel { comm } => format!("kernel thread {comm}"),
            Culprit::Placement => "placement (an allowed pCPU was idle)".to_owned(),
            Culprit::Unattributed => "unknown".to_owned(),
        }
    }
}

/// Ready; with limited where the two cannot be told apart.
fn waited(s: &Shares) -> Option<f64> {
    s.ready.or(s.wait)
}

/// A value in percent.
fn percent(quantity: &str, share: f64, against: Option<f64>) -> Evidence {
    let against = against.map(|a| 100.0 * a);
    Evidence { quantity: quantity.to_owned(), value: 100.0 * share, unit: "%".to_owned(), against }
}

/// A time in milliseconds.
fn millis(quantity: &str, ns: f64, against_ns: Option<f64>) -> Evidence {
    let against = against_ns.map(|a| a / 1e6);
    Evidence { quantity: quantity.to_owned(), value: ns / 1e6, unit: "ms".to_owned(), against }
}

/// A plain number.
fn count(quantity: &str, value: f64, unit: &str, against: Option<f64>) -> Evidence {
    Evidence { quantity: quantity.to_owned(), value, unit: unit.to_owned(), against }
}

/// One rule.
pub struct Rule {
    /// Its name in reports and options.
    pub name: &'static str,
    /// What it looks for, one line.
    pub doc: &'static str,
    /// Looks.
    pub check: fn(&Context<'_>) -> Vec<Finding>,
}

/// Every rule. `nothing_wrong` and `not_measured` speak for the whole and are asked last.
pub const RULES: &[Rule] = &[
    pcpus_overloaded::RULE,
    node_overloaded::RULE,
    pinned_busy::RULE,
    emulator_starved::RULE,
    driver_starved::RULE,
    dead_weight::RULE,
    boost_starved::RULE,
    weight_starved::RULE,
    limited::RULE,
    timers_refused::RULE,
    too_many_vcpus::RULE,
    memory_remote::RULE,
    no_home_node::RULE,
    noisy_neighbour::RULE,
    host_process::RULE,
    runs_slowly::RULE,
    overcommitted::RULE,
    nothing_wrong::RULE,
    not_measured::RULE,
];

/// All findings, worst first.
pub fn diagnose(config: &HostConfig, model: &HostModel, thresholds: Thresholds) -> Vec<Finding> {
    let context = Context { config, model, thresholds };
    let mut findings: Vec<Finding> = RULES.iter().flat_map(|r| (r.check)(&context)).collect();
    // Stable: rules keep their order where they name the same loss.
    findings.sort_by(|a, b| b.loss_pcpus.total_cmp(&a.loss_pcpus));
    findings
}
