//! The job of an emulated host: cases, each a set-up of VMs and competitors that is recorded.
//!
//! People write TOML; text.rs makes the form that the host inside reads. An unknown key is an error. Several
//! cases in one boot share the cost of the boot.
//!
//! Left out: settings of single threads other than vCPUs.

use crate::image::programs;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path};
use vsteer_core::{CpuSet, Fault, FaultKind};

/// Everything to do in one boot.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Job {
    /// pCPUs of the host.
    #[serde(default = "two")]
    pub pcpus: u32,
    /// NUMA nodes of the host, each with the same number of pCPUs.
    #[serde(default = "one")]
    pub nodes: u32,
    /// pCPUs of each core: siblings share it in the topology, but not in speed.
    #[serde(default = "one")]
    pub threads: u32,
    /// Its memory, MiB.
    #[serde(default = "gibibyte")]
    pub memory_mib: u32,
    /// Time before the first case, virtual s, because the kernel still works for some seconds after boot.
    #[serde(default = "fifteen")]
    pub settle_s: u32,
    /// The pCPUs of the observer.
    #[serde(default = "first")]
    pub observer_cpus: String,
    /// An instruction takes 2^shift ns. A higher value means fewer instructions per virtual second, and a
    /// slower pCPU for the VMs.
    #[serde(default = "one")]
    pub shift: u32,
    /// Files below /files/ for commands, with their content.
    #[serde(default)]
    pub files: BTreeMap<String, String>,
    /// The cases, executed in order.
    #[serde(rename = "case")]
    pub cases: Vec<Case>,
}

/// One set-up and its recording.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// Its name, also the name of its folder.
    pub name: String,
    /// Time before the recording, virtual s. With `begin_s`: time between the changes and the recording.
    #[serde(default = "two")]
    pub settle_s: u32,
    /// The recording begins this many virtual s after the VMs were started, by this case or by the first case
    /// that it continues. So continued cases follow their servers' schedules, however long each takes.
    pub begin_s: Option<u32>,
    /// Length of the recording, virtual s.
    #[serde(default = "ten")]
    pub record_s: u32,
    /// Record at all? Without it, only the guests measure. The difference shows the observer's cost to them.
    #[serde(default = "yes")]
    pub observe: bool,
    /// Ask the guests for their counts, soon after the first sample and soon before the last? This wakes
    /// their VMs' emulator threads, which may change the effect of a weight on Linux 7.3. Without it, the
    /// recording can only be compared with itself.
    #[serde(default = "yes")]
    pub ask: bool,
    /// Write access logs every this many virtual s, for a command that reads them; otherwise only at the
    /// case's end.
    pub log_every_s: Option<u32>,
    /// Events of VMs during the recording.
    #[serde(default, rename = "event")]
    pub happens: Vec<Event>,
    /// The words of another vsteer command that runs on the observer's pCPU, from the start of the recording.
    /// It is interrupted at the end of `record_s`. Its output and exit status are in `command.out`,
    /// `command.txt` and `command.status`.
    #[serde(default)]
    pub command: Vec<String>,
    /// The command starts before the case settles, and the case continues after it has printed `vsteer:
    /// ready`.
    #[serde(default)]
    pub ahead: bool,
    /// How often the command is started and, once it is ready, interrupted, before it starts for the case.
    /// `cycles.txt` has the kernel's eBPF objects and memory before and after.
    #[serde(default)]
    pub cycles: u32,
    /// Time between samples, virtual ms. While a sample is taken and written, the pCPUs are emulated in turn.
    /// Then the VMs' pCPU stands still for some ms to some tens of ms, which affects their timers. So fewer
    /// samples are better.
    #[serde(default = "second")]
    pub interval_ms: u32,
    /// Record every context switch.
    #[serde(default)]
    pub events: bool,
    /// How samples are taken: `ebpf` or `schedstat`. `schedstat` starts immediately, while checking eBPF
    /// programs occupies the VMs' pCPU for seconds.
    #[serde(default)]
    pub collector: Collector,
    /// The scheduler's base slice, us (Linux 6.6 and later).
    pub base_slice_us: Option<u64>,
    /// Files of /proc or /sys, with their content during the case.
    #[serde(default)]
    pub set: BTreeMap<String, String>,
    /// The VMs and competitors of the previous case continue to run, with these changes. So a change is
    /// measured on the same VMs. Then the case itself names no VMs or competitors.
    #[serde(default)]
    pub continues: bool,
    /// New limits, for a case that continues. Files and slices apply only to their case; these limits apply
    /// until the VMs end.
    #[serde(default, rename = "change")]
    pub changes: Vec<Change>,
    /// The VMs; for a case that continues, those that continue to run.
    #[serde(default, rename = "vm")]
    pub vms: Vec<Start>,
    /// Competitors: processes with one thread.
    #[serde(default, rename = "process")]
    pub processes: Vec<Start>,
}

/// How the observer takes samples.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Collector {
    /// With counters in the kernel.
    #[default]
    Ebpf,
    Schedstat,
}

impl Collector {
    /// The word on the observer's command line.
    pub fn word(self) -> &'static str {
        match self {
            Collector::Ebpf => "ebpf",
            Collector::Schedstat => "schedstat",
        }
    }
}

/// An event of a VM, with its time after the start of the recording.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Event {
    pub at_s: u32,
    /// The VM; `command` if the case's command is killed; `cpuN` if a pCPU goes offline or online.
    pub vm: String,
    pub what: Happens,
}

/// The kinds of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Happens {
    /// The VM is killed, and its cgroup is removed.
    Stop,
    /// The VM is started again, and so is its schedule.
    Start,
    /// Its access log becomes `NAME.log.1`, and a new one begins.
    Rotate,
    /// The VM loses its quota.
    Unlimit,
    /// Its last vCPU is unplugged: the thread ends, and the VM keeps the vCPU's other resources.
    Unplug,
    /// A live migration to another process, as the VM `NAME-moved`; only for VMs with Linux.
    Migrate,
    /// A pCPU (`cpuN` in place of the VM) goes offline.
    Offline,
    /// The pCPU comes online.
    Online,
    /// The case's command is killed, so that it cannot roll anything back.
    Kill,
}

impl Case {
    /// Does a VM with this name move during the case?
    pub fn moves(&self, name: &str) -> bool {
        self.happens.iter().any(|e| e.what == Happens::Migrate && e.vm == name)
    }
}

impl Happens {
    /// The word in the text for the host inside.
    pub fn word(self) -> &'static str {
        match self {
            Happens::Stop => "stop",
            Happens::Start => "start",
            Happens::Rotate => "rotate",
            Happens::Unlimit => "unlimit",
            Happens::Unplug => "unplug",
            Happens::Migrate => "migrate",
            Happens::Offline => "offline",
            Happens::Online => "online",
            Happens::Kill => "kill",
        }
    }
}

/// New limits of a running VM or competitor.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Change {
    pub name: String,
    /// `cpu.weight`.
    pub weight: Option<u32>,
    /// Quota of the whole VM or competitor, us per period; 0 means none.
    pub quota_us: Option<u64>,
    /// Period of the quota, us; by default the kernel's own 100 ms.
    pub quota_period_us: Option<u64>,
}

/// A VM or a competitor.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Start {
    pub name: String,
    /// vCPUs (only of a VM).
    pub vcpus: Option<u32>,
    /// The workload, in the form of vsteer-guest's README.
    pub workload: String,
    /// It runs Linux under QEMU, for any workload; a player always does.
    #[serde(default)]
    pub linux: bool,
    /// pCPUs of all its threads; default: any.
    pub cpus: Option<String>,
    /// pCPUs of each vCPU.
    pub vcpu_cpus: Option<Vec<String>>,
    /// `cpu.weight`.
    pub weight: Option<u32>,
    /// Quota of the whole VM or competitor, us per period.
    pub quota_us: Option<u64>,
    /// Quota of each vCPU, us per period.
    pub vcpu_quota_us: Option<u64>,
    /// Period of quotas, us; by default the kernel's own 100 ms.
    pub quota_period_us: Option<u64>,
    /// `other`, `batch`, `idle`, `ext`, `fifo:N`, `rr:N`.
    pub class: Option<String>,
}

impl Start {
    /// Its workload without parameters.
    fn kind(&self) -> &str {
        self.workload.split(',').next().unwrap_or_default()
    }
}

fn one() -> u32 {
    1
}
fn two() -> u32 {
    2
}
fn ten() -> u32 {
    10
}
fn fifteen() -> u32 {
    15
}
fn gibibyte() -> u32 {
    1024
}
fn second() -> u32 {
    1000
}
fn yes() -> bool {
    true
}
fn first() -> String {
    "0".to_owned()
}

fn refuse(what: String) -> Result<(), Fault> {
    Err(Fault::new(FaultKind::BadInput, what))
}

/// Checks the events of a case.
fn check_events(case: &Case) -> Result<(), Fault> {
    let is_there = |e: &Event| match e.what {
        Happens::Kill => e.vm == "command" && !case.command.is_empty(),
        Happens::Offline | Happens::Online => e.vm.starts_with("cpu"),
        Happens::Migrate => case.vms.iter().any(|vm| vm.name == e.vm && vm.linux),
        _ => case.vms.iter().any(|vm| vm.name == e.vm),
    };
    let in_time = |e: &Event| e.at_s < case.record_s && is_there(e);
    if let Some(e) = case.happens.iter().find(|e| !in_time(e)) {
        return refuse(format!(
            "event: second {} of {:?}: it is before record_s ends, and of a VM that there is",
            e.at_s, e.vm
        ));
    }
    if case.happens.windows(2).any(|w| w[0].at_s > w[1].at_s) {
        return refuse("events are not in the order of time".to_owned());
    }
    Ok(())
}

/// Checks the changes to the case that this one continues.
fn check_changes(case: &Case) -> Result<(), Fault> {
    let both = || case.vms.iter().chain(&case.processes);
    if !case.continues && !case.changes.is_empty() {
        return refuse("only a case that continues another changes something".to_owned());
    }
    for change in &case.changes {
        let name = &change.name;
        if !both().any(|s| s.name == *name) {
            return refuse(format!("change: there is no {name:?}"));
        }
        check_weight(name, change.weight)?;
        let quota = change.quota_us.filter(|us| *us != 0);
        check_quotas(name, [quota, change.quota_period_us])?;
    }
    Ok(())
}

/// Refuses settings of VMs for processes.
fn check_processes(case: &Case) -> Result<(), Fault> {
    if let Some(p) = case
        .processes
        .iter()
        .find(|p| p.vcpus.is_some() || p.vcpu_cpus.is_some() || p.vcpu_quota_us.is_some())
    {
        return refuse(format!("{} is a process and has no vCPUs", p.name));
    }
    if let Some(p) = case.processes.iter().find(|p| p.linux) {
        return refuse(format!("{} is a process: linux = true is for VMs", p.name));
    }
    Ok(())
}

impl Job {
    /// Reads a job.
    ///
    /// # Errors
    /// `BadInput` with line and key, as the TOML parser says it, or what [`Job::check`] says.
    pub fn parse(text: &str) -> Result<Job, Fault> {
        let mut job: Job = toml::from_str(text).map_err(|e| {
            Fault::new(FaultKind::BadInput, "this is not a job for an emulated host").because(e)
        })?;
        job.inherit()?;
        job.check()?;
        Ok(job)
    }

    /// Does any of its processes build C sources?
    pub fn builds(&self) -> bool {
        self.cases.iter().flat_map(|case| &case.processes).any(|p| p.kind() == "build")
    }

    /// Does any of its VMs run Linux?
    pub fn has_linux(&self) -> bool {
        self.plays()
            || !self.programs().is_empty()
            || self.cases.iter().flat_map(|case| &case.vms).any(|vm| vm.linux)
    }

    /// Programs that its VMs run.
    pub fn programs(&self) -> BTreeSet<&str> {
        self.cases.iter().flat_map(|case| &case.vms).filter_map(|vm| programs::named(&vm.workload)).collect()
    }

    /// Does any of its VMs play a film?
    pub fn plays(&self) -> bool {
        self.cases.iter().flat_map(|case| &case.vms).any(|vm| vm.kind() == "play")
    }

    /// Copies the VMs and competitors to the cases that continue another one.
    fn inherit(&mut self) -> Result<(), Fault> {
        let mut before: Option<(Vec<Start>, Vec<Start>)> = None;
        for case in &mut self.cases {
            if case.continues {
                let own = !case.vms.is_empty() || !case.processes.is_empty();
                (case.vms, case.processes) = before.clone().filter(|_| !own).ok_or_else(|| {
                    let what = format!("case {:?} continues the one before", case.name);
                    Fault::new(FaultKind::BadInput, what)
                        .because("then it names no VM or process, and is not the first")
                })?;
            }
            before = Some((case.vms.clone(), case.processes.clone()));
        }
        Ok(())
    }

    /// Checks that the job is possible.
    ///
    /// # Errors
    /// `BadInput` with the case, the VM and the reason.
    pub fn check(&self) -> Result<(), Fault> {
        let bad = |what: String| Fault::new(FaultKind::BadInput, what);
        if !(1..=16).contains(&self.pcpus) || self.nodes == 0 || !self.pcpus.is_multiple_of(self.nodes) {
            return Err(bad(format!(
                "{} pCPUs on {} nodes: 1 to 16 pCPUs, as many on each node",
                self.pcpus, self.nodes
            )));
        }
        if !(self.pcpus / self.nodes).is_multiple_of(self.threads) {
            return Err(bad(format!(
                "threads = {}: a node's {} pCPUs are not whole cores of as many",
                self.threads,
                self.pcpus / self.nodes
            )));
        }
        if !(512..=8192).contains(&self.memory_mib) {
            return Err(bad(format!("memory_mib = {}: between 512 and 8192", self.memory_mib)));
        }
        if self.shift > 6 {
            return Err(bad(format!("shift = {}: between 0 and 6", self.shift)));
        }
        if let Some(path) = self.files.keys().find(|path| !is_file(path)) {
            return Err(bad(format!("files: {path:?} is not a plain path below /files/")));
        }
        self.cpus("observer_cpus", &self.observer_cpus)?;
        if self.cases.is_empty() {
            return Err(bad("the job has no case".to_owned()));
        }
        for (i, case) in self.cases.iter().enumerate() {
            let told = |f: Fault| Fault { what: format!("case {:?}: {}", case.name, f.what), ..f };
            if self.cases[..i].iter().any(|c| c.name == case.name) {
                return Err(bad(format!("two cases are named {:?}", case.name)));
            }
            self.check_case(case).map_err(told)?;
        }
        Ok(())
    }

    fn check_case(&self, case: &Case) -> Result<(), Fault> {
        if !is_name(&case.name) || case.vms.is_empty() || case.record_s == 0 {
            return refuse(
                "it needs a name of letters, digits, - _ and ., a VM, and record_s above 0".to_owned(),
            );
        }
        if !(50..=60_000).contains(&case.interval_ms) || (case.events && !case.observe) {
            return refuse("interval_ms is between 50 and 60000, and events need observe = true".to_owned());
        }
        let is_setting = |(file, value): (&String, &String)| {
            let within = file.starts_with("/proc/") || file.starts_with("/sys/");
            within && !file.contains(char::is_whitespace) && !value.contains('\n') && !value.is_empty()
        };
        if let Some((file, value)) = case.set.iter().find(|s| !is_setting(*s)) {
            return refuse(format!(
                "set: {file:?} = {value:?} is not a file of /proc or /sys and one line for it"
            ));
        }
        if case.begin_s.is_some_and(|s| s < case.settle_s && !case.changes.is_empty()) {
            return refuse("begin_s is less than settle_s, which is from the changes until then".to_owned());
        }
        if case.log_every_s == Some(0) {
            return refuse("log_every_s = 0: it is 1 or more".to_owned());
        }
        check_events(case)?;
        if let Some(word) = case.command.iter().find(|w| w.is_empty() || w.contains(char::is_whitespace)) {
            return refuse(format!("command: {word:?} is not a word without spaces"));
        }
        check_changes(case)?;
        self.check_starts(case)?;
        check_processes(case)
    }

    /// Checks the VMs and competitors of a case.
    fn check_starts(&self, case: &Case) -> Result<(), Fault> {
        let both = || case.vms.iter().chain(&case.processes);
        for (i, start) in both().enumerate() {
            let name = &start.name;
            if !is_name(name) || both().take(i).any(|s| s.name == *name) {
                return refuse(format!(
                    "the name {name:?} is not of letters, digits, - _ and ., or is there twice"
                ));
            }
            if start.workload.contains(char::is_whitespace) || start.workload.is_empty() {
                return refuse(format!("{name}: workload = {:?}", start.workload));
            }
            for list in start.cpus.iter().chain(start.vcpu_cpus.iter().flatten()) {
                self.cpus(name, list)?;
            }
            check_weight(name, start.weight)?;
            check_quotas(name, [start.quota_us, start.vcpu_quota_us, start.quota_period_us])?;
            if !(1..=16).contains(&start.vcpus.unwrap_or(1)) {
                return refuse(format!("{name}: a VM has 1 to 16 vCPUs"));
            }
        }
        Ok(())
    }

    fn cpus(&self, whose: &str, list: &str) -> Result<CpuSet, Fault> {
        let bad = |why: String| {
            let what = format!("{whose}: {list:?} is not a list of the host's pCPUs 0-{}", self.pcpus - 1);
            Fault::new(FaultKind::BadInput, what).because(why)
        };
        let set: CpuSet = list.parse().map_err(|e| bad(format!("{e}")))?;
        let absent = set.iter().find(|cpu| *cpu >= self.pcpus);
        match absent {
            Some(cpu) => Err(bad(format!("there is no pCPU {cpu}"))),
            None if set.is_empty() => Err(bad("it is empty".to_owned())),
            None => Ok(set),
        }
    }

    /// Why the case's times mean nothing; `None` if they are exact. They are exact if the VMs and competitors
    /// share one pCPU, and the observer has another.
    pub fn inexact(&self, case: &Case) -> Option<String> {
        let mut busy = CpuSet::default();
        for start in case.vms.iter().chain(&case.processes) {
            let lists = start.vcpu_cpus.iter().flatten().chain(&start.cpus);
            let Some(all) = lists.map(|l| self.cpus(&start.name, l).ok()).collect::<Option<Vec<_>>>() else {
                return Some(format!("{}: its pCPUs are not known", start.name));
            };
            if start.cpus.is_none() {
                return Some(format!("{} may run on any pCPU", start.name));
            }
            all.iter().flat_map(CpuSet::iter).for_each(|cpu| busy.insert(cpu));
        }
        if busy.iter().count() != 1 {
            return Some(format!(
                "VMs and competitors have the pCPUs {busy}, and pCPUs take turns in being emulated"
            ));
        }
        let observer = self.cpus("observer_cpus", &self.observer_cpus).unwrap_or_default();
        let shared = observer.iter().find(|cpu| busy.contains(*cpu));
        shared.map(|cpu| format!("the observer runs on pCPU {cpu}, too"))
    }
}

fn check_weight(name: &str, weight: Option<u32>) -> Result<(), Fault> {
    if weight.is_some_and(|w| !(1..=10_000).contains(&w)) {
        let what = format!("{name}: weight is not between 1 and 10000");
        return Err(Fault::new(FaultKind::BadInput, what));
    }
    Ok(())
}

fn check_quotas<const N: usize>(name: &str, quotas: [Option<u64>; N]) -> Result<(), Fault> {
    if quotas.iter().flatten().any(|us| !(1_000..=1_000_000_000).contains(us)) {
        let what = format!("{name}: quotas and periods are 1000 us and more");
        return Err(Fault::new(FaultKind::BadInput, what));
    }
    Ok(())
}

/// Is this a valid path for a file that commands read?
pub fn is_file(path: &str) -> bool {
    let below = path.strip_prefix("/files/").unwrap_or_default();
    let plain = Path::new(below).components().all(|c| matches!(c, Component::Normal(_)));
    plain && !below.is_empty() && !below.ends_with('/') && !below.contains(char::is_whitespace)
}

/// Is this a valid name for a file or a VM? The rule is vsteer-guest's (its host/job.rs).
pub fn is_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    !name.is_empty() && name.len() <= 60 && name.chars().all(plain) && !name.starts_with('.')
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::emulated) const JOB: &str = "settle_s = 12\n[[case]]\nname = \"a\"\nbase_slice_us = 3000\n\
        [[case.vm]]\nname = \"web\"\nvcpus = 2\nworkload = \"periodic,period_us=5000\"\ncpus = \"1\"\nweight = 200\nquota_us = 50000\n\
        [[case.process]]\nname = \"hog\"\nworkload = \"burn\"\ncpus = \"1\"\nclass = \"fifo:3\"\n";

    #[test]
    fn times_are_exact_on_one_busy_pcpu_alone() {
        let inexact = |from: &str, to: &str| {
            let job = Job::parse(&JOB.replacen(from, to, 1)).unwrap();
            job.inexact(&job.cases[0])
        };
        assert!(inexact("cpus = \"1\"", "cpus = \"0-1\"").unwrap().contains("0-1"));
        assert!(inexact("cpus = \"1\"\n", "").unwrap().contains("any pCPU"));
        assert!(inexact("settle_s = 12", "observer_cpus = \"0-1\"").unwrap().contains("observer"));
        assert!(inexact("weight = 200", "vcpu_cpus = [\"0\", \"1\"]").is_some());
        assert_eq!(inexact("weight = 200", "vcpu_cpus = [\"1\", \"1\"]"), None);
    }

    #[test]
    fn what_cannot_be_is_refused_by_name() {
        for (from, to, names) in [
            ("cpus = \"1\"", "cpus = \"2\"", "no pCPU 2"),
            ("cpus = \"1\"", "cpus = \"x\"", "web"),
            ("weight = 200", "weight = 0", "weight"),
            ("weight = 200", "wieght = 2", "wieght"),
            ("quota_us = 50000", "quota_us = 5", "quotas"),
            ("\"hog\"", "\"web\"", "twice"),
            ("\"hog\"", "\"../x\"", "letters"),
            ("class = \"fifo:3\"", "vcpus = 2", "hog"),
            ("settle_s = 12", "pcpus = 3\nnodes = 2", "nodes"),
            ("settle_s = 12", "pcpus = 6\nnodes = 2\nthreads = 2", "threads = 2"),
            ("settle_s = 12", "memory_mib = 9", "memory_mib"),
            ("settle_s = 12", "shift = 7", "shift"),
            ("settle_s = 12", "files = { \"/etc/x\" = \"\" }", "/etc/x"),
            ("settle_s = 12", "files = { \"/files/../x\" = \"\" }", "/files/../x"),
            ("base_slice_us = 3000", "log_every_s = 0", "log_every_s"),
            ("base_slice_us = 3000", "command = [\"a b\"]", "a b"),
            ("base_slice_us = 3000", "command = [\"\"]", "command"),
            ("base_slice_us = 3000", "event = [{ at_s = 10, vm = \"web\", what = \"stop\" }]", "second 10"),
            ("base_slice_us = 3000", "event = [{ at_s = 1, vm = \"wob\", what = \"stop\" }]", "wob"),
            ("base_slice_us = 3000", "event = [{ at_s = 1, vm = \"web\", what = \"burn\" }]", "burn"),
            (
                "base_slice_us = 3000",
                "event = [{ at_s = 1, vm = \"web\", what = \"migrate\" }]",
                "of a VM that",
            ),
            ("class = \"fifo:3\"", "linux = true", "hog"),
            ("base_slice_us = 3000", "interval_ms = 5", "interval_ms"),
            ("base_slice_us = 3000", "observe = false\nevents = true", "observe"),
            ("base_slice_us = 3000", "set = { \"/etc/x\" = \"1\" }", "/etc/x"),
        ] {
            let fault = Job::parse(&JOB.replacen(from, to, 1)).unwrap_err();
            assert!(fault.to_string().contains(names), "{to}: {fault}");
            assert_eq!(fault.kind, FaultKind::BadInput);
        }
        assert!(Job::parse("settle_s = 5\n").is_err(), "no case");
    }

    #[test]
    fn a_case_may_continue_the_one_before() {
        let more = "[[case]]\nname = \"b\"\ncontinues = true\n\
            change = [{ name = \"web\", weight = 10, quota_us = 0 }, { name = \"hog\", quota_us = 30000 }]\n";
        let job = Job::parse(&format!("{JOB}{more}")).unwrap();
        assert!(job.for_guest().ends_with(
            "case b\nsettle_s 2\nrecord_s 10\nrecord_option --collector\nrecord_option ebpf\nrecord_option --interval\n\
             record_option 1000ms\ncontinues\nchange name=web weight=10 quota_us=max/100000\n\
             change name=hog quota_us=30000/100000\n"
        ));
        assert_eq!(job.cases[1].vms, job.cases[0].vms);
        assert_eq!(job.inexact(&job.cases[1]), None);
        for (text, names) in [
            (more.to_owned(), "\"b\""),
            (format!("{JOB}{more}").replace("continues = true", ""), "name"),
            (format!("{JOB}{more}").replace("\"hog\", q", "\"hug\", q"), "hug"),
            (format!("{JOB}{more}").replace("weight = 10,", "weight = 0,"), "weight"),
            (format!("{JOB}{more}").replace("continues = true", "continues = true\nbegin_s = 1"), "settle_s"),
            (format!("{JOB}{more}[[case.vm]]\nname = \"x\"\nworkload = \"burn\"\n"), "\"b\""),
        ] {
            let fault = Job::parse(&text).unwrap_err();
            assert!(fault.to_string().contains(names), "{names}: {fault}");
        }
    }
}
