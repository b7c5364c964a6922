//! Which VM waits for which thread, and why? Rules over a host model.
//!
//! A rule is one file and one line in [`RULES`]: a pure function of configuration and model. Each finding carries its
//! evidence and an observation that would disprove it. If a value that a rule needs was not measured, the rule finds
//! nothing. The rule `not_measured` lists all such values once.
//!
//! Findings form a tree (`causes.rs`): a cause, and below it the symptoms that it explains. A VM that exceeds a threshold
//! always has a line: below the cause that a rule found, or as a finding of its own, whose cause is unknown. Causes are
//! sorted by the pCPU time lost that no cause of fewer VMs explains.

mod boost_starved;
mod causes;
mod contested;
mod dead_weight;
mod driver_starved;
mod emulator_starved;
mod host_process;
mod idle_group;
mod isolated;
mod limited;
mod long_wait;
mod memory_remote;
mod no_home_node;
mod node_overloaded;
mod noisy_neighbour;
mod not_measured;
mod nothing_wrong;
mod over_threshold;
mod overcommitted;
mod pcpus_overloaded;
mod pinned_busy;
mod realtime_limited;
mod runs_slowly;
mod shared_core;
mod soft_affinity;
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

/// What a threshold limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Measure {
    /// Ready time, per vCPU or per group.
    Ready,
    /// Co-stop, per vCPU or per group.
    CoStop,
    /// Time that a quota or a budget holds the VM.
    Limited,
    /// From a wake-up to the pCPU.
    WakeLatency,
    /// The local share of the memory.
    LocalMemory,
    /// Waits of threads that serve the VM's devices.
    Devices,
}

/// One finding of a rule.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
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
    /// The measures that it explains.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub measures: Vec<Measure>,
    /// The VMs that it concerns; with `vm`, that one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub vms: Vec<VmId>,
    /// What these VMs wait for, as it is printed: a VM, a thread, a container, pCPUs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub culprit: Option<String>,
    /// What it explains: findings that are no causes of their own.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub symptoms: Vec<Finding>,
}

impl Finding {
    /// This finding and all that it explains.
    pub fn all(&self) -> Box<dyn Iterator<Item = &Finding> + '_> {
        Box::new(std::iter::once(self).chain(self.symptoms.iter().flat_map(Finding::all)))
    }
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

    /// The thresholds of waits that a VM exceeds, as evidence. Each entry says whether its threshold is per vCPU or per
    /// group.
    pub fn exceeded(&self, vm: &VmModel) -> Vec<Evidence> {
        self.waits_over(vm).into_iter().map(|(_, evidence)| evidence).collect()
    }

    /// Every threshold that a VM exceeds.
    pub fn over(&self, vm: &VmModel) -> Vec<(Measure, Evidence)> {
        let t = &self.thresholds;
        let mut over = self.waits_over(vm);
        let limited = vm.limited_per_vcpu().filter(|is| *is > t.limited_per_vcpu);
        over.extend(
            limited.map(|is| (Measure::Limited, percent("limited per vCPU", is, Some(t.limited_per_vcpu)))),
        );
        let local = memory_remote::local(self, vm).filter(|is| *is < t.memory_local);
        over.extend(local.map(|is| {
            (Measure::LocalMemory, percent("local share of the memory", is, Some(t.memory_local)))
        }));
        over
    }

    fn waits_over(&self, vm: &VmModel) -> Vec<(Measure, Evidence)> {
        use Measure::{CoStop, Ready};
        let t = &self.thresholds;
        let counted = vm.vcpu_threads().next().is_some();
        let sleeper = counted && delay::is_sleeper(vm, t);
        let sleeper_waits = delay::waits_per_vcpu(vm).filter(|_| sleeper);
        let costop = vm.per_vcpu(|s| s.costop).unwrap_or(0.0);
        let of_sleeper = if costop > vm.per_vcpu(waited).unwrap_or(0.0) { CoStop } else { Ready };
        let [ready_group, costop_group] = self.of_paper(vm);
        let checks = [
            (Ready, "ready per vCPU (published threshold, warning)", vm.per_vcpu(waited), t.ready_per_vcpu),
            (
                of_sleeper,
                "ready and co-stop per vCPU of a VM that mostly sleeps",
                sleeper_waits,
                t.ready_sleeper,
            ),
            (Ready, ready_group.0, ready_group.1, ready_group.2),
            (
                CoStop,
                "co-stop per vCPU (published threshold, warning)",
                vm.per_vcpu(|s| s.costop),
                t.costop_per_vcpu,
            ),
            (CoStop, costop_group.0, costop_group.1, costop_group.2),
        ];
        let late = vm.wake_latency.filter(|_| delay::wakes_late(vm, t));
        let late = late.map(|l| {
            let most = Some(t.wake_p99_of(vm));
            (Measure::WakeLatency, millis("wake-up to running, 99th percentile", l.p99_ns, most))
        });
        let over =
            checks.into_iter().filter_map(|(measure, what, is, most)| Some((measure, what, is?, most)));
        let over = over
            .filter(|(_, _, is, most)| is > most)
            .map(|(measure, what, is, most)| (measure, percent(what, is, Some(most))));
        over.chain(late).collect()
    }

    /// Does this VM wait more than the thresholds allow?
    pub fn waits(&self, vm: &VmModel) -> bool {
        !self.waits_over(vm).is_empty()
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
        // `name_of` computes the names of all VMs for each call. The model already has those of the VMs that it measured.
        self.model.vm(id).map_or_else(|| self.config.name_of(id), |vm| vm.name.clone())
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
    /// Which exceeded thresholds it explains.
    pub explains: &'static [Measure],
    /// Returns the findings; empty if the problem is absent or was not measured.
    pub check: fn(&Context<'_>) -> Vec<Finding>,
}

/// Every rule. A rule explains what those after it find of the same VMs, so causes that one setting removes come before
/// those of the whole host, and these before symptoms.
pub const RULES: &[Rule] = &[
    limited::RULE,
    realtime_limited::RULE,
    idle_group::RULE,
    isolated::RULE,
    pinned_busy::RULE,
    node_overloaded::RULE,
    boost_starved::RULE,
    dead_weight::RULE,
    weight_starved::RULE,
    timers_refused::RULE,
    host_process::RULE,
    pcpus_overloaded::RULE,
    driver_starved::RULE,
    emulator_starved::RULE,
    noisy_neighbour::RULE,
    soft_affinity::RULE,
    memory_remote::RULE,
    no_home_node::RULE,
    contested::RULE,
    too_many_vcpus::RULE,
    long_wait::RULE,
    shared_core::RULE,
    runs_slowly::RULE,
    stalled::RULE,
    overcommitted::RULE,
    over_threshold::RULE,
    nothing_wrong::RULE,
    not_measured::RULE,
];

/// All causes, largest loss first, each with what it explains.
pub fn diagnose(config: &HostConfig, model: &HostModel, thresholds: Thresholds) -> Vec<Finding> {
    let context = Context { config, model, thresholds };
    let mut findings = Vec::new();
    for rule in RULES {
        findings.extend((rule.check)(&context).into_iter().map(|mut f| {
            if f.vms.is_empty() {
                f.vms.extend(f.vm.clone());
            }
            if f.measures.is_empty() {
                f.measures = rule.explains.to_vec();
            }
            f
        }));
    }
    causes::tree(&context, findings)
}

/// Name of the rule that lists what was not measured.
pub const NOT_MEASURED: &str = not_measured::RULE.name;

/// All findings, causes and symptoms alike, without the lines of VMs.
pub fn flat(causes: &[Finding]) -> impl Iterator<Item = &Finding> {
    causes.iter().flat_map(Finding::all)
}
