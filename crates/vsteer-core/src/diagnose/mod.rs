//! Which VM waits for which thread, and why? Rules over a host model.
//!
//! A rule is one file and one line in [`RULES`]: a pure function of configuration and model. Each finding carries its
//! evidence and an observation that would disprove it. If a value that a rule needs was not measured, the rule finds
//! nothing. The rule `not_measured` lists all such values once. Findings are sorted by the pCPU time lost.

mod boost_starved;
mod dead_weight;
mod driver_starved;
mod emulator_starved;
mod host_process;
mod idle_group;
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
mod realtime_limited;
mod runs_slowly;
mod stalled;
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
    /// Name of the measured quantity.
    pub quantity: String,
    /// The measured value, in `unit`.
    pub value: f64,
    /// Unit of `value`: `%`, `ms`, `pCPUs`, …
    pub unit: String,
    /// Threshold or reference that `value` is compared with, in the same unit.
    pub against: Option<f64>,
}

/// One finding of a rule.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// Name of the rule that found it ([`Rule::name`]).
    pub rule: String,
    /// VM that the finding is about; `None`: the host.
    pub vm: Option<VmId>,
    /// One sentence that names the VM and the problem.
    pub title: String,
    /// Why the problem occurs and what it causes.
    pub explanation: String,
    /// Measured values that support the finding.
    pub evidence: Vec<Evidence>,
    /// Time lost, in pCPUs (0.5: half of one pCPU, all the time). Findings are sorted by this value.
    pub loss_pcpus: f64,
    /// Observation that would disprove the finding.
    pub disproved_by: String,
    /// Recommended next step.
    pub next: String,
}

/// Input of every rule.
pub struct Context<'a> {
    /// Settings of the host and its VMs.
    pub config: &'a HostConfig,
    /// Measured values.
    pub model: &'a HostModel,
    /// Limits above which a wait counts.
    pub thresholds: Thresholds,
}

impl<'a> Context<'a> {
    /// Every observed VM with its settings.
    pub fn vms(&self) -> impl Iterator<Item = (&'a VmConfig, &'a VmModel)> + '_ {
        let config = self.config;
        self.model.vms.iter().filter_map(move |m| Some((config.vm(&m.id)?, m)))
    }

    /// Ready share of a VM, summed over its vCPUs. Includes limited time if the collector cannot separate the two.
    /// If vCPUs were not counted one by one, the share of the VM's group.
    pub fn ready(&self, vm: &VmModel) -> f64 {
        let (shares, _) = vm.vcpus_or_group();
        shares.ready.or(shares.wait).unwrap_or(0.0)
    }

    /// A share as the published group thresholds define it: over all worlds if the hypervisor counts them, else
    /// over vCPUs.
    fn of_group(&self, vm: &VmModel, of: impl Fn(&Shares) -> Option<f64>) -> Option<f64> {
        of(if vm.worlds.is_some() { &vm.group } else { &vm.vcpus })
    }

    /// The two values that the published flowchart checks first, ready and co-stop per group, with the paper's
    /// thresholds.
    fn of_paper(&self, vm: &VmModel) -> [(&'static str, Option<f64>, f64); 2] {
        let t = &self.thresholds;
        [
            ("ready per VM group (J. Park 2022)", self.of_group(vm, waited), t.ready_group),
            ("co-stop per VM group (J. Park 2022)", self.of_group(vm, |s| s.costop), t.costop_group),
        ]
    }

    /// The thresholds that a VM exceeds, as evidence. Each entry says whether its threshold is per vCPU or per group.
    pub fn exceeded(&self, vm: &VmModel) -> Vec<Evidence> {
        let t = &self.thresholds;
        let counted = vm.vcpu_threads().next().is_some();
        let sleeper = counted && delay::is_sleeper(vm, t);
        let sleeper_waits = delay::waits_per_vcpu(vm).filter(|_| sleeper);
        let [ready_group, costop_group] = self.of_paper(vm);
        let checks = [
            ("ready per vCPU (published threshold, warning)", vm.per_vcpu(waited), t.ready_per_vcpu),
            ("ready per vCPU of a VM that mostly sleeps", sleeper_waits, t.ready_sleeper),
            ready_group,
            ("co-stop per vCPU (published threshold, warning)", vm.per_vcpu(|s| s.costop), t.costop_per_vcpu),
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

    /// Does this VM wait according to the published flowchart, which has thresholds per group only?
    pub fn waits_by_the_paper(&self, vm: &VmModel) -> bool {
        self.of_paper(vm).into_iter().any(|(_, is, most)| is.is_some_and(|is| is > most))
    }

    /// The path of every VM through the published flowchart.
    pub fn flowchart(&self, load: &Load) -> Vec<Walk> {
        walk(load, &|g| self.model.vm(&g.vm).is_some_and(|vm| self.waits_by_the_paper(vm)))
    }

    /// Name of a VM as a person knows it; its id if the configuration does not have the VM.
    pub fn name(&self, id: &VmId) -> String {
        self.config.name_of(id)
    }

    /// Printable name of a culprit.
    pub fn culprit(&self, c: &Culprit) -> String {
        match c {
            Culprit::Vm(id) => format!("VM {:?}", self.name(id)),
            Culprit::Process { comm, pid, container } => {
                let number = if *pid == 0 { String::new() } else { format!(" (pid {pid})") };
                let of = container.as_ref().map_or_else(String::new, |name| format!(" in {name}"));
                format!("process {comm}{number}{of}")
            }
            Culprit::Kernel { comm } => format!("kernel thread {comm}"),
            Culprit::Placement => "placement (an allowed pCPU was idle)".to_owned(),
            Culprit::Unattributed => "unknown".to_owned(),
        }
    }
}

/// Ready share; includes limited time if the collector cannot separate the two.
fn waited(s: &Shares) -> Option<f64> {
    s.ready.or(s.wait)
}

fn percent(quantity: &str, share: f64, against: Option<f64>) -> Evidence {
    let against = against.map(|a| 100.0 * a);
    Evidence { quantity: quantity.to_owned(), value: 100.0 * share, unit: "%".to_owned(), against }
}

fn millis(quantity: &str, ns: f64, against_ns: Option<f64>) -> Evidence {
    let against = against_ns.map(|a| a / 1e6);
    Evidence { quantity: quantity.to_owned(), value: ns / 1e6, unit: "ms".to_owned(), against }
}

fn count(quantity: &str, value: f64, unit: &str, against: Option<f64>) -> Evidence {
    Evidence { quantity: quantity.to_owned(), value, unit: unit.to_owned(), against }
}

/// A rule that looks for one kind of problem.
pub struct Rule {
    /// Name in reports and options.
    pub name: &'static str,
    /// One line that says what the rule looks for.
    pub doc: &'static str,
    /// Returns the findings; empty if the problem is absent or was not measured.
    pub check: fn(&Context<'_>) -> Vec<Finding>,
}

/// Every rule. `nothing_wrong` and `not_measured` describe the whole host and run last.
pub const RULES: &[Rule] = &[
    pcpus_overloaded::RULE,
    node_overloaded::RULE,
    pinned_busy::RULE,
    emulator_starved::RULE,
    driver_starved::RULE,
    dead_weight::RULE,
    boost_starved::RULE,
    weight_starved::RULE,
    idle_group::RULE,
    limited::RULE,
    realtime_limited::RULE,
    timers_refused::RULE,
    too_many_vcpus::RULE,
    memory_remote::RULE,
    no_home_node::RULE,
    noisy_neighbour::RULE,
    host_process::RULE,
    runs_slowly::RULE,
    stalled::RULE,
    overcommitted::RULE,
    nothing_wrong::RULE,
    not_measured::RULE,
];

/// All findings, largest loss first.
pub fn diagnose(config: &HostConfig, model: &HostModel, thresholds: Thresholds) -> Vec<Finding> {
    let context = Context { config, model, thresholds };
    let mut findings: Vec<Finding> = RULES.iter().flat_map(|r| (r.check)(&context)).collect();
    // The sort is stable: findings with the same loss keep the order of the rules.
    findings.sort_by(|a, b| b.loss_pcpus.total_cmp(&a.loss_pcpus));
    findings
}
