//! The format of a scenario file (host, VMs, scheduler, length), and its conversion to a simulation.
//!
//! [`Scenario`] is the format of a scenario file (TOML; the command line reads it, because nothing here reads
//! files). [`Scenario::case`] checks it against the scheduler and the machine and returns a [`Case`] that the
//! simulator runs. A refusal names its place in the file as a key path (`vm[2].pins[0]`). [`outcome`] has the
//! results per VM, of one run or of several seeds with an interval. [`published`] compares results with
//! numbers from papers.
//!
//! A key that the scheduler does not support is an error. Otherwise a person could read a result as if a cap
//! had been enforced. Left out: devices, and memory except its node and whether it fits.

use crate::guest::Demand;
use crate::policy::{About, Values};
use crate::sched::{self, Entry};
use crate::setup::{Costs, GroupSetup, Host, Reservation, Setup, VcpuSetup, VmSetup, Warp};
use demand::DemandForm;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use vsteer_core::nouns::{Quota, SchedClass};
use vsteer_core::span::Span;
use vsteer_core::topology::NodeId;
use vsteer_core::topology::machine;
use vsteer_core::{CpuSet, Fault, FaultKind};

pub mod demand;
pub mod headroom;
pub mod outcome;
pub mod published;

/// The most pCPUs of a simulated machine, and the most vCPUs on it.
const PCPUS_MAX: u64 = 4096;
const VCPUS_MAX: u64 = 100_000;

/// A scenario file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// What the scenario shows, in one line.
    pub title: String,
    /// More text about the scenario.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub about: String,
    /// The sources of its numbers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<String>,
    /// The measured simulated time.
    #[serde(rename = "for")]
    pub length: Span,
    /// The simulated time before the measurement.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warm_up: Option<Span>,
    /// Determines every random draw.
    #[serde(default = "first_seed")]
    pub seed: u64,
    /// The scheduler.
    pub scheduler: SchedulerForm,
    /// The simulated machine.
    pub machine: MachineForm,
    /// The costs of switches, moves and shared cores; 0 by default.
    #[serde(default)]
    pub costs: Costs,
    /// CPU pools; default: one pool of all pCPUs.
    #[serde(default, rename = "pool", skip_serializing_if = "Vec::is_empty")]
    pub pools: Vec<PoolForm>,
    /// Groups above VMs (cgroups).
    #[serde(default, rename = "group", skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<GroupForm>,
    /// VMs of the scenario.
    #[serde(rename = "vm")]
    pub vms: Vec<VmForm>,
}

fn first_seed() -> u64 {
    1
}

/// A scheduler and its settings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table such as { policy = \"eevdf\" }")]
pub struct SchedulerForm {
    /// Its name, see docs/schedulers.md.
    pub policy: String,
    /// Its parameters that differ from the defaults.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parameters: BTreeMap<String, u64>,
}

/// A machine whose parts are all equal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table such as { cores_per_node = 2 }")]
pub struct MachineForm {
    /// Sockets.
    #[serde(default = "one")]
    pub sockets: u32,
    /// NUMA nodes of each socket; each has one last-level cache.
    #[serde(default = "one")]
    pub nodes_per_socket: u32,
    /// Cores of each node.
    pub cores_per_node: u32,
    /// Hardware threads of each core.
    #[serde(default = "one")]
    pub threads_per_core: u32,
    /// Memory of each node, MiB; default: memory is not checked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_memory_mib: Option<u64>,
}

fn one() -> u32 {
    1
}

/// A CPU pool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PoolForm {
    /// Name of the pool.
    pub name: String,
    /// Its pCPUs, such as `0-3,8`.
    pub cpus: CpuSet,
}

/// A limit: this much CPU time in every period.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table such as { quota = \"50ms\", period = \"100ms\" }")]
pub struct QuotaForm {
    /// CPU time.
    pub quota: Span,
    /// The period.
    pub period: Span,
}

/// A group above VMs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GroupForm {
    /// Name of the group.
    pub name: String,
    /// The group that contains it, which must come earlier in the file; default: the root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// Its weight among its siblings, on the scheduler's scale.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<u32>,
    /// Limit of the group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quota: Option<QuotaForm>,
}

/// A reservation for real-time schedulers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table such as { budget = \"2ms\", period = \"10ms\" }")]
pub struct ReservationForm {
    /// CPU time per period.
    pub budget: Span,
    /// The period and relative deadline.
    pub period: Span,
    /// May it use time that no vCPU reserved?
    #[serde(default)]
    pub extra_time: bool,
}

/// Permission to run ahead of its virtual time (BVT).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table such as { value = \"5ms\" }")]
pub struct WarpForm {
    /// How far ahead, as CPU time at the default weight.
    pub value: Span,
    /// How long without a pause; default: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<Span>,
    /// How long it may not warp after that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unwarp: Option<Span>,
}

/// A VM, or several equal ones.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table such as { name = \"web\", demand = \"hog\" }")]
pub struct VmForm {
    /// Its name; for several VMs, the start of their names.
    pub name: String,
    /// The number of such VMs.
    #[serde(default = "one")]
    pub count: u32,
    /// vCPUs per VM.
    #[serde(default = "one")]
    pub vcpus: u32,
    /// The demand of all vCPUs, or a list with one per vCPU.
    pub demand: OneOrEach,
    /// Its weight on the scheduler's scale; default: the scheduler's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<u32>,
    /// Its cap, in hundredths of a pCPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cap_pct: Option<u32>,
    /// A limit for the whole VM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quota: Option<QuotaForm>,
    /// A limit for each vCPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vcpu_quota: Option<QuotaForm>,
    /// Its CPU pool; default: the first one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// The group that contains it; default: the root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// The pCPUs that all its vCPUs may use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub affinity: Option<CpuSet>,
    /// The pCPUs that each vCPU may use, one entry per vCPU.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pins: Vec<CpuSet>,
    /// The pCPUs that its vCPUs prefer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub soft_affinity: Option<CpuSet>,
    /// The node that holds its memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_node: Option<u32>,
    /// Its memory, MiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_mib: Option<u64>,
    /// The VM does not exist before this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<Span>,
    /// For real-time schedulers: each vCPU's reservation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reservation: Option<ReservationForm>,
    /// Its warp, for BVT.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warp: Option<WarpForm>,
    /// Does its guest report expired timers to the hypervisor (the VIT hypercall, for BVT)?
    #[serde(default)]
    pub vit: bool,
    /// For Linux: the real-time class of its vCPUs; default: the fair class.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<ClassForm>,
    /// The time between the guest's ticks, if it checks its timers only at ticks; default: its timers are
    /// exact.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guest_tick: Option<Span>,
    /// What its guest does with a pCPU while it has no work.
    #[serde(default, skip_serializing_if = "IdleForm::blocks")]
    pub idle: IdleForm,
}

/// A guest's idle loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IdleForm {
    /// It gives the pCPU up.
    #[default]
    Blocks,
    /// It keeps the pCPU and polls (`idle=poll`).
    Polls,
}

impl IdleForm {
    fn blocks(&self) -> bool {
        *self == IdleForm::Blocks
    }
}

/// A real-time class of Linux and the priority in it, 1 to 99.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClassForm {
    /// `SCHED_FIFO`.
    Fifo(u8),
    /// `SCHED_RR`.
    Rr(u8),
}

/// One demand for all, or one for each vCPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Each", into = "Each")]
pub struct OneOrEach(pub Vec<DemandForm>);

/// The form as a list. Most scenarios write a single demand without brackets, and [`Each`] accepts both.
#[derive(Clone, Serialize)]
#[serde(untagged)]
enum Each {
    One(DemandForm),
    Many(Vec<DemandForm>),
}

impl From<Each> for OneOrEach {
    fn from(each: Each) -> OneOrEach {
        match each {
            Each::One(d) => OneOrEach(vec![d]),
            Each::Many(all) => OneOrEach(all),
        }
    }
}

impl From<OneOrEach> for Each {
    fn from(each: OneOrEach) -> Each {
        match <[DemandForm; 1]>::try_from(each.0) {
            Ok([one]) => Each::One(one),
            Err(all) => Each::Many(all),
        }
    }
}

/// Written by hand, because the error of an untagged enum does not name the wrong key.
impl<'de> Deserialize<'de> for Each {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Each, D::Error> {
        use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer, StrDeserializer};
        struct Form;
        impl<'de> serde::de::Visitor<'de> for Form {
            type Value = Each;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(r#"a demand such as "hog" or { periodic = { period = "10ms", work = "1ms" } }, or a list of them"#)
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Each, E> {
                DemandForm::deserialize(StrDeserializer::new(text)).map(Each::One)
            }

            fn visit_map<A: serde::de::MapAccess<'de>>(self, map: A) -> Result<Each, A::Error> {
                DemandForm::deserialize(MapAccessDeserializer::new(map)).map(Each::One)
            }

            fn visit_seq<A: serde::de::SeqAccess<'de>>(self, seq: A) -> Result<Each, A::Error> {
                Vec::deserialize(SeqAccessDeserializer::new(seq)).map(Each::Many)
            }
        }
        d.deserialize_any(Form)
    }
}

/// Why a scenario cannot be simulated, with the place in the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The place, as a path of keys and indices (`vm[2].pins[0]`).
    pub key: String,
    /// The reason and what to do.
    pub fault: Fault,
}

fn refuse(key: impl Into<String>, what: impl Into<String>, help: impl Into<String>) -> Refusal {
    Refusal { key: key.into(), fault: Fault::new(FaultKind::BadInput, what).help(help) }
}

/// What the simulator runs.
#[derive(Clone)]
pub struct Case {
    /// The simulated host.
    pub setup: Setup,
    /// The scheduler.
    pub policy: &'static Entry,
    /// Parameters of the scheduler.
    pub values: Values,
    /// The start of the measurement, ns.
    pub begin_ns: u64,
    /// The end, ns.
    pub end_ns: u64,
}

impl Scenario {
    /// Converts the scenario to a simulation.
    ///
    /// # Errors
    /// The first place in the file that the scheduler or the machine does not support.
    pub fn case(&self) -> Result<Case, Refusal> {
        let at = |key: &'static str| move |fault| Refusal { key: key.into(), fault };
        let policy = sched::find(&self.scheduler.policy).map_err(at("scheduler.policy"))?;
        let mut values = Values::defaults(policy.about.parameters);
        for (name, value) in &self.scheduler.parameters {
            let key = format!("scheduler.parameters.{name}");
            values.set(name, *value).map_err(|fault| Refusal { key, fault })?;
        }
        let topology = self.machine.topology()?;
        for (i, pool) in self.pools.iter().enumerate() {
            once(&format!("pool[{i}].name"), &pool.name, self.pools[..i].iter().map(|p| p.name.as_str()))?;
        }
        let groups: Result<Vec<GroupSetup>, Refusal> =
            (0..self.groups.len()).map(|i| self.group(i, &policy.about)).collect();
        let mut setup = Setup {
            topology,
            vms: Vec::new(),
            groups: groups?,
            pools: self.pools.iter().map(|p| p.cpus.clone()).collect(),
            costs: self.costs,
            seed: self.seed,
        };
        Host::new(&setup).map_err(|fault| Refusal { key: "machine".into(), fault })?;
        let mut vcpus = 0u64;
        for (i, form) in self.vms.iter().enumerate() {
            once(&format!("vm[{i}].name"), &form.name, self.vms[..i].iter().map(|v| v.name.as_str()))?;
            vcpus += u64::from(form.count) * u64::from(form.vcpus);
            if vcpus > VCPUS_MAX {
                return Err(refuse(
                    format!("vm[{i}].count"),
                    format!("the scenario has {vcpus} or more vCPUs"),
                    format!("use at most {VCPUS_MAX} vCPUs in total"),
                ));
            }
            let vm = self.vm(i, &policy.about)?;
            // The simulator's errors name the VM, not the key. Checking VM by VM gives them their place.
            let alone = Setup { vms: vec![vm.clone()], ..setup.clone() };
            Host::new(&alone).map_err(|fault| Refusal { key: format!("vm[{i}]"), fault })?;
            setup.vms.extend((1..=form.count).map(|n| VmSetup {
                name: if form.count == 1 { form.name.clone() } else { format!("{}-{n}", form.name) },
                ..vm.clone()
            }));
        }
        self.memory_fits()?;
        setup.check_links().map_err(|fault| Refusal { key: "vm".into(), fault })?;
        let begin_ns = self.warm_up.map_or(0, Span::ns);
        Ok(Case { setup, policy, values, begin_ns, end_ns: begin_ns + self.length.ns() })
    }

    fn group(&self, i: usize, about: &About) -> Result<GroupSetup, Refusal> {
        let form = &self.groups[i];
        let key = |k: &str| format!("group[{i}].{k}");
        let before = || self.groups[..i].iter().map(|g| g.name.as_str());
        once(&key("name"), &form.name, before())?;
        check_weight(&key("weight"), form.weight, about)?;
        let quota = quota(&key("quota"), form.quota, about)?;
        let parent = form.parent.as_ref().map(|p| named(&key("parent"), p, before())).transpose()?;
        Ok(GroupSetup { name: form.name.clone(), parent, weight: form.weight, quota })
    }

    fn vm(&self, i: usize, about: &About) -> Result<VmSetup, Refusal> {
        let form = &self.vms[i];
        let key = |k: &str| format!("vm[{i}].{k}");
        check_vm(form, about, &key)?;
        let whole = quota(&key("quota"), form.quota, about)?;
        let own = quota(&key("vcpu_quota"), form.vcpu_quota, about)?;
        check_vcpus(form, &key)?;
        let class = class(&key("class"), form)?;
        let vcpus = (0..form.vcpus as usize).map(|k| VcpuSetup { quota: own, class, ..form.vcpu(k) });
        let pools = self.pools.iter().map(|p| p.name.as_str());
        let groups = self.groups.iter().map(|g| g.name.as_str());
        Ok(VmSetup {
            name: form.name.clone(),
            vcpus: vcpus.collect(),
            weight: form.weight,
            cap_pct: form.cap_pct,
            quota: whole,
            quota_begins_ns: None,
            pool: form.pool.as_ref().map_or(Ok(0), |p| named(&key("pool"), p, pools))?,
            group: form.group.as_ref().map(|g| named(&key("group"), g, groups)).transpose()?,
            memory_node: form.memory_node.map(NodeId),
            warp: form.warp.map(|w| Warp {
                value_ns: w.value.ns(),
                limit_ns: w.limit.map_or(0, Span::ns),
                unwarp_ns: w.unwarp.map_or(0, Span::ns),
            }),
            vit: form.vit,
        })
    }

    fn memory_fits(&self) -> Result<(), Refusal> {
        let Some(node_mib) = self.machine.node_memory_mib else { return Ok(()) };
        let nodes = u64::from(self.machine.sockets * self.machine.nodes_per_socket);
        let (mut of_node, mut of_all) = (BTreeMap::<u32, u64>::new(), 0u64);
        for (i, vm) in self.vms.iter().enumerate() {
            let mib = vm.memory_mib.unwrap_or(0).saturating_mul(vm.count.into());
            let key = || format!("vm[{i}].memory_mib");
            if let Some(node) = vm.memory_node {
                let sum = of_node.entry(node).or_default();
                *sum = sum.saturating_add(mib);
                if *sum > node_mib {
                    let what = format!("the VMs on node {node} have {sum} MiB of memory");
                    return Err(refuse(key(), what, format!("use at most {node_mib} MiB per node")));
                }
            }
            of_all = of_all.saturating_add(mib);
            if of_all > node_mib.saturating_mul(nodes) {
                let what = format!("the VMs have {of_all} MiB of memory");
                return Err(refuse(
                    key(),
                    what,
                    format!(
                        "use at most {} MiB, the memory of the \
                    machine",
                        node_mib * nodes
                    ),
                ));
            }
        }
        Ok(())
    }
}

impl MachineForm {
    fn topology(&self) -> Result<vsteer_core::Topology, Refusal> {
        let parts = [
            ("sockets", self.sockets),
            ("nodes_per_socket", self.nodes_per_socket),
            ("cores_per_node", self.cores_per_node),
            ("threads_per_core", self.threads_per_core),
        ];
        let mut pcpus = 1u64;
        for (k, n) in parts {
            let key = format!("machine.{k}");
            if n == 0 {
                return Err(refuse(key, format!("{k} is 0"), "give 1 or more"));
            }
            pcpus = pcpus.saturating_mul(n.into());
            if pcpus > PCPUS_MAX {
                return Err(refuse(
                    key,
                    format!("the machine has {pcpus} pCPUs"),
                    format!(
                        "use at most \
                    {PCPUS_MAX} pCPUs"
                    ),
                ));
            }
        }
        machine(self.sockets, self.nodes_per_socket, self.cores_per_node, self.threads_per_core)
            .map_err(|fault| Refusal { key: "machine".into(), fault })
    }
}

/// Checks the settings of the whole VM.
fn check_vm(form: &VmForm, about: &About, key: &dyn Fn(&str) -> String) -> Result<(), Refusal> {
    for (k, n) in [("count", form.count), ("vcpus", form.vcpus)] {
        if n == 0 {
            return Err(refuse(key(k), format!("{k} is 0"), "give 1 or more"));
        }
    }
    check_weight(&key("weight"), form.weight, about)?;
    check_obeyed(form, about, key)?;
    if let Some(pct) = form.cap_pct {
        if !about.caps {
            let help = "leave the cap out, or choose a scheduler with caps";
            return Err(refuse(key("cap_pct"), format!("scheduler {} has no caps", about.name), help));
        }
        if pct == 0 {
            return Err(refuse(key("cap_pct"), "the cap is 0", "give 1 or more; 100 is one pCPU"));
        }
    }
    Ok(())
}

/// Refuses what the scheduler ignores: the figures would be the same with and without it, as if it had no effect.
fn check_obeyed(form: &VmForm, about: &About, key: &dyn Fn(&str) -> String) -> Result<(), Refusal> {
    let settings = [
        ("class", form.class.is_some(), about.classes, "classes"),
        ("group", form.group.is_some(), about.quotas, "groups"),
        ("reservation", form.reservation.is_some(), about.reservations, "reservations"),
        ("soft_affinity", form.soft_affinity.is_some(), about.soft_affinities, "soft affinities"),
        ("vit", form.vit, about.warps, "VIT hypercall"),
        ("warp", form.warp.is_some(), about.warps, "warps"),
    ];
    match settings.iter().find(|(_, given, obeyed, _)| *given && !obeyed) {
        None => Ok(()),
        Some((k, _, _, what)) => {
            let help = format!("leave `{k}` out, or choose a scheduler with {what}");
            Err(refuse(key(k), format!("scheduler {} has no {what}", about.name), help))
        }
    }
}

/// The shortest period of a timer or display. Each period is an event of the simulation.
const PERIOD_LEAST_NS: u64 = 1_000;

/// Checks that per-vCPU lists have one entry per vCPU.
fn check_vcpus(form: &VmForm, key: &dyn Fn(&str) -> String) -> Result<(), Refusal> {
    let n = form.vcpus as usize;
    if !form.pins.is_empty() && form.pins.len() != n {
        let what = format!("the VM has {} pins for {n} vCPUs", form.pins.len());
        return Err(refuse(key("pins"), what, "give one pin for each vCPU, or `affinity` for all vCPUs"));
    }
    if !form.pins.is_empty() && form.affinity.is_some() {
        return Err(refuse(
            key("affinity"),
            "the VM has both `affinity` and `pins`",
            "give only one of them",
        ));
    }
    for demand in &form.demand.0 {
        if let DemandForm::Periodic { period, .. } | DemandForm::Display { period, .. } = demand
            && period.ns() < PERIOD_LEAST_NS
        {
            let what = format!("the period is {} ns", period.ns());
            return Err(refuse(key("demand"), what, "give 1us or more: a host has no shorter timers"));
        }
    }
    let demands = form.demand.0.len();
    if demands != n && demands != 1 {
        let what = format!("the VM has {demands} demands for {n} vCPUs");
        return Err(refuse(key("demand"), what, "give one demand for all vCPUs, or one for each"));
    }
    Ok(())
}

fn class(key: &str, form: &VmForm) -> Result<Option<SchedClass>, Refusal> {
    let class = form.class.map(|c| match c {
        ClassForm::Fifo(priority) => (priority, SchedClass::Fifo(priority)),
        ClassForm::Rr(priority) => (priority, SchedClass::RoundRobin(priority)),
    });
    if let Some((priority, _)) = class.filter(|(priority, _)| !(1..=99).contains(priority)) {
        return Err(refuse(key, format!("the priority is {priority}"), "give 1 to 99"));
    }
    Ok(class.map(|(_, class)| class))
}

impl VmForm {
    /// vCPU `k` without quota and class, which are checked separately.
    fn vcpu(&self, k: usize) -> VcpuSetup {
        let demands = &self.demand.0;
        let demand = (&demands[k.min(demands.len() - 1)]).into();
        let demand = match self.guest_tick {
            Some(tick) => Demand::Ticked { tick_ns: tick.ns(), demand: Box::new(demand) },
            None => demand,
        };
        VcpuSetup {
            affinity: self.pins.get(k).or(self.affinity.as_ref()).cloned(),
            soft_affinity: self.soft_affinity.clone(),
            from_ns: self.from.map_or(0, Span::ns),
            reservation: self.reservation.map(|r| Reservation {
                budget_ns: r.budget.ns(),
                period_ns: r.period.ns(),
                extra_time: r.extra_time,
            }),
            polls: self.idle == IdleForm::Polls,
            ..VcpuSetup::new(demand)
        }
    }
}

/// Refuses a name that was used before.
fn once<'a>(key: &str, name: &str, mut before: impl Iterator<Item = &'a str>) -> Result<(), Refusal> {
    if before.any(|b| b == name) {
        return Err(refuse(key, format!("the name {name:?} is used twice"), "give each a different name"));
    }
    Ok(())
}

fn named<'a>(key: &str, name: &str, known: impl Iterator<Item = &'a str>) -> Result<usize, Refusal> {
    let known: Vec<&str> = known.collect();
    known.iter().position(|k| *k == name).ok_or_else(|| {
        let help = if known.is_empty() {
            "define it before this place".to_owned()
        } else {
            format!("use one of: {}", known.join(", "))
        };
        refuse(key, format!("{name:?} does not exist"), help)
    })
}

fn check_weight(key: &str, weight: Option<u32>, about: &About) -> Result<(), Refusal> {
    let Some(weight) = weight else { return Ok(()) };
    let (least, most) = about.weights;
    if about.default_weight == 0 {
        let help = "leave the weight out, or choose a scheduler with weights";
        return Err(refuse(key, format!("scheduler {} has no weights", about.name), help));
    }
    if !(least..=most).contains(&weight) {
        let help = format!(
            "scheduler {} takes weights from {least} to {most}; the default is \
            {}",
            about.name, about.default_weight
        );
        return Err(refuse(key, format!("the weight is {weight}"), help));
    }
    Ok(())
}

fn quota(key: &str, form: Option<QuotaForm>, about: &About) -> Result<Option<Quota>, Refusal> {
    let Some(form) = form else { return Ok(None) };
    if !about.quotas {
        let help = "leave the quota out, or choose a scheduler with quotas";
        return Err(refuse(key, format!("scheduler {} has no quotas", about.name), help));
    }
    let us = |k: &str, t: Span| {
        if t.ns().is_multiple_of(1000) {
            Ok(t.ns() / 1000)
        } else {
            Err(refuse(
                format!("{key}.{k}"),
                format!("{t} is not a whole number of microseconds"),
                "give \
                whole microseconds",
            ))
        }
    };
    Ok(Some(Quota { quota_us: us("quota", form.quota)?, period_us: us("period", form.period)? }))
}
