//! Writes a recording from any hypervisor as a batch file of esxtop, for VMware users' tools.
//!
//! Rows are at least a second apart, because most readers know no finer times. A value is the share of the
//! time since the previous row, in percent of one CPU, with two decimal places. The first row has blanks, as
//! Windows' performance logs have for unknown values. What a recording does not contain gets no column. What
//! is missing for one thread or at one moment is a blank, never 0.
//!
//! A VM's threads become worlds: its vCPUs `vmx-vcpu-N:NAME`, the emulator `vmx`. A group's values are what
//! the hypervisor counted for it, otherwise the sum of its threads.
//!
//! Left out: `% Idle`, `% VmWait` and `% Swap Wait`, which show why a vCPU slept, and blame.
//!
//! GAP(esxtop-tools): no tool of VMware has opened such a file yet.

use super::columns::{CPU, MEMBERS, RUN};
use super::own::is_own;
use super::times;
use crate::folder::Recording;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use vsteer_core::nouns::{Batch, HostConfig, Role, ThreadCounters, Tid, VmId};

/// The shortest time between rows, ns.
const APART_NS: u64 = 1_000_000_000;
/// Stands for an unknown value.
const BLANK: &str = " ";

/// Writes a recording.
///
/// # Errors
/// If writing to `to` fails.
pub fn recording(recording: &Recording, to: &mut impl Write) -> io::Result<()> {
    let configs: Vec<&HostConfig> = recording.configs.iter().map(|c| &c.config).collect();
    samples(&configs, &recording.batches, to)
}

/// A counter of a VM or a thread: the name of its column, and its value.
type Counter = (&'static str, fn(&ThreadCounters) -> Option<f64>);

fn ns(counter: Option<u64>) -> Option<f64> {
    counter.map(|n| n as f64)
}

/// In esxtop's order. The value is a rising counter: in ns for a share, a plain number for a count.
const SHARES: [Counter; 8] = [
    ("% Used", |c| {
        ns(c.used_ns).or_else(|| {
            Some(ns(c.run_ns)? + ns(c.system_ns).unwrap_or(0.0) - ns(c.overlap_ns).unwrap_or(0.0))
        })
    }),
    ("% Run", |c| ns(c.run_ns)),
    ("% System", |c| ns(c.system_ns)),
    ("% Wait", |c| ns(c.blocked_ns)),
    ("% Ready", |c| ns(c.wait_ns)),
    ("% Overlap", |c| ns(c.overlap_ns)),
    ("% CoStop", |c| ns(c.costop_ns)),
    ("% Max Limited", |c| ns(c.limited_ns)),
];
const COUNTS: [Counter; 2] = [("Switches/sec", |c| ns(c.switches)), ("Migrates/sec", |c| ns(c.migrations))];

/// A row of shares: the increase between two samples.
type Rise = [Option<f64>; SHARES.len() + COUNTS.len()];

fn rise(a: &ThreadCounters, b: &ThreadCounters, over_ns: u64) -> Rise {
    let over = over_ns.max(1) as f64;
    let of =
        |get: fn(&ThreadCounters) -> Option<f64>, unit: f64| Some((get(b)? - get(a)?).max(0.0) / over * unit);
    let shares = SHARES.iter().map(|(_, get)| of(*get, 100.0));
    let all: Vec<Option<f64>> = shares.chain(COUNTS.iter().map(|(_, get)| of(*get, 1e9))).collect();
    std::array::from_fn(|i| all[i])
}

fn plus(a: Rise, b: Rise) -> Rise {
    std::array::from_fn(|i| Some(a[i]? + b[i]?))
}

/// A thread's identity throughout the recording.
type Key = (VmId, Role, Tid);

/// The columns of the file.
struct Plan {
    /// VMs with the numbers and names of their groups.
    vms: Vec<(VmId, u64, String)>,
    threads: Vec<Key>,
    pcpus: Vec<u32>,
    /// Which of [`SHARES`] and [`COUNTS`] at least one thread has.
    has: [bool; SHARES.len() + COUNTS.len()],
    group_has: [bool; SHARES.len() + COUNTS.len()],
    local: bool,
    memory: BTreeMap<VmId, u64>,
}

impl Plan {
    fn of(configs: &[&HostConfig], batches: &[Batch]) -> Plan {
        // vCPUs without samples have columns too: a reader takes a group without vCPUs for one of ESXi's own.
        let known = configs.iter().flat_map(|c| &c.vms);
        let known = known.flat_map(|vm| vm.threads.iter().map(|t| (vm.id.clone(), t.role, t.tid)));
        let known = known.filter(|(_, role, _)| role.vcpu().is_some());
        let sampled = batches.iter().flat_map(|b| &b.threads).map(|t| (t.vm.clone(), t.role, t.tid));
        let mut threads: BTreeSet<Key> = sampled.chain(known).collect();
        let mut ids: BTreeSet<VmId> = threads.iter().map(|(vm, ..)| vm.clone()).collect();
        ids.extend(batches.iter().flat_map(|b| &b.vms).map(|v| v.vm.clone()));
        let known: BTreeMap<&VmId, (&str, u32)> =
            configs.iter().flat_map(|c| &c.vms).map(|vm| (&vm.id, (vm.name.as_str(), vm.pid))).collect();
        let mut taken = BTreeSet::new();
        let any_vm = !ids.is_empty();
        let vms = ids.into_iter().map(|id| {
            let (name, pid) = known.get(&id).copied().unwrap_or((&id.0, 0));
            // The id of a group is the VM's process or domain number, if it has one. No two groups have the
            // same id.
            let mut gid = u64::from(pid).max(1);
            while !taken.insert(gid) {
                gid += 1_000_000;
            }
            // Without worlds, the name decides whether a group is a VM. A VM that is called as one of ESXi's own
            // groups shows that it is one by its monitor, whose values are blank.
            if is_own(name) && !threads.iter().any(|(vm, ..)| *vm == id) {
                threads.insert((id.clone(), Role::Emulator, Tid(pid)));
            }
            let name = name.to_owned();
            (id, gid, name)
        });
        let vms = vms.collect();
        let pcpus: BTreeSet<u32> = batches.iter().flat_map(|b| &b.pcpus).map(|p| p.cpu).collect();
        let getters = || SHARES.iter().chain(&COUNTS).map(|(_, get)| *get);
        let any = |all: &dyn Fn(fn(&ThreadCounters) -> Option<f64>) -> bool| {
            let has: Vec<bool> = getters().map(all).collect();
            std::array::from_fn(|i| has[i])
        };
        let mut has = any(&|get| batches.iter().flat_map(|b| &b.threads).any(|t| get(&t.counters).is_some()));
        // A thread without any counter still shows that it exists.
        has[RUN] |= !threads.is_empty() && !has.contains(&true);
        let groups = || batches.iter().flat_map(|b| &b.vms).filter_map(|v| v.group.as_ref());
        let mut counted: [bool; SHARES.len() + COUNTS.len()] =
            any(&|get| groups().any(|g| get(&g.counters).is_some()));
        // As does a VM of which at most the place of its memory is known.
        counted[RUN] |= any_vm && !has.contains(&true) && !counted.contains(&true);
        Plan {
            vms,
            threads: threads.into_iter().collect(),
            pcpus: pcpus.into_iter().collect(),
            has,
            group_has: std::array::from_fn(|i| has[i] || counted[i]),
            local: batches.iter().flat_map(|b| &b.vms).any(|v| v.memory_local_ppm.is_some()),
            memory: configs
                .iter()
                .flat_map(|c| &c.vms)
                .filter_map(|vm| Some((vm.id.clone(), vm.memory_bytes?)))
                .collect(),
        }
    }

    fn named(has: &[bool]) -> impl Iterator<Item = &'static str> + '_ {
        SHARES.iter().chain(&COUNTS).zip(has).filter(|(_, has)| **has).map(|((name, _), _)| *name)
    }

    fn header(&self, host: &str) -> String {
        let mut cells = vec!["(PDH-CSV 4.0) (UTC)(0)".to_owned()];
        let host = if host.is_empty() { "localhost" } else { host };
        let host = host.replace('\\', "_");
        let mut name = |object: String, counter: &str| cells.push(format!("\\\\{host}\\{object}\\{counter}"));
        for (id, gid, vm) in &self.vms {
            name(format!("Group Cpu({gid}:{vm})"), CPU[MEMBERS]);
            Plan::named(&self.group_has).for_each(|c| name(format!("Group Cpu({gid}:{vm})"), c));
            for (_, role, tid) in self.threads.iter().filter(|(of, ..)| of == id) {
                let world = world(*role, vm);
                Plan::named(&self.has).for_each(|c| name(format!("Vcpu({gid}:{vm}:{}:{world})", tid.0), c));
            }
            if self.memory.contains_key(id) {
                name(format!("Group Memory({gid}:{vm})"), "Memory Size MBytes");
            }
            if self.local {
                name(format!("Group Memory({gid}:{vm})"), "Numa % Local");
            }
        }
        self.pcpus.iter().for_each(|cpu| name(format!("Physical Cpu({cpu})"), "% Util Time"));
        if !self.pcpus.is_empty() {
            name("Physical Cpu(_Total)".to_owned(), "% Util Time");
        }
        line(cells.iter().map(String::as_str))
    }

    /// The row for the time from `a` to `b`; blank without `a`.
    fn row(&self, at: String, a: Option<&Batch>, b: &Batch) -> String {
        let mut cells = vec![at];
        let over_ns = a.map_or(0, |a| b.mono_ns.saturating_sub(a.mono_ns));
        let share = |v: Option<f64>| v.map_or_else(|| BLANK.to_owned(), |v| format!("{v:.2}"));
        let by_key = |batch: &Batch| -> BTreeMap<(VmId, Role, Tid), ThreadCounters> {
            batch.threads.iter().map(|t| ((t.vm.clone(), t.role, t.tid), t.counters.clone())).collect()
        };
        let (before, now) = (a.map(by_key).unwrap_or_default(), by_key(b));
        let of = |key: &Key| Some(rise(before.get(key)?, now.get(key)?, over_ns));
        for (id, ..) in &self.vms {
            let group = |batch: &Batch| batch.vms.iter().find(|v| v.vm == *id).and_then(|v| v.group.clone());
            let mine = || self.threads.iter().filter(|(vm, ..)| vm == id);
            let counted = a.and_then(group).zip(group(b));
            // If a thread lacks a value, the sum is missing too. Threads that do not exist do not count.
            let summed = || mine().filter_map(&of).reduce(plus);
            let values = match &counted {
                Some((a, b)) => Some(rise(&a.counters, &b.counters, over_ns)),
                None => summed(),
            };
            let there = b.threads.iter().filter(|t| t.vm == *id).count() as u32;
            let worlds = group(b).and_then(|g| g.worlds).unwrap_or(there);
            cells.push(worlds.to_string());
            let picked = |values: Option<Rise>, has: &[bool]| -> Vec<String> {
                let all = values.unwrap_or_default();
                all.iter().zip(has).filter(|(_, has)| **has).map(|(v, _)| share(*v)).collect()
            };
            cells.extend(picked(values, &self.group_has));
            mine().for_each(|key| cells.extend(picked(of(key), &self.has)));
            if let Some(bytes) = self.memory.get(id) {
                cells.push(format!("{:.2}", *bytes as f64 / 1_048_576.0));
            }
            if self.local {
                let local = b.vms.iter().find(|v| v.vm == *id).and_then(|v| v.memory_local_ppm);
                cells.push(share(local.map(|ppm| f64::from(ppm) / 1e4)));
            }
        }
        let busy: Vec<Option<f64>> = self
            .pcpus
            .iter()
            .map(|cpu| {
                let idle = |batch: &Batch| batch.pcpus.iter().find(|p| p.cpu == *cpu).map(|p| p.idle_ns);
                let idle = idle(b)?.saturating_sub(idle(a?)?) as f64;
                Some((100.0 * (1.0 - idle / over_ns.max(1) as f64)).clamp(0.0, 100.0))
            })
            .collect();
        cells.extend(busy.iter().map(|v| share(*v)));
        if !self.pcpus.is_empty() {
            let all: Option<f64> = busy.iter().copied().sum();
            cells.push(share(all.map(|all| all / busy.len() as f64)));
        }
        line(cells.iter().map(String::as_str))
    }
}

fn world(role: Role, vm: &str) -> String {
    match role {
        Role::Vcpu(i) => format!("vmx-vcpu-{i}:{vm}"),
        Role::Emulator => "vmx".to_owned(),
        Role::IoThread(i) => format!("iothread-{i}:{vm}"),
        Role::Vhost => format!("vhost:{vm}"),
        Role::Worker => format!("worker:{vm}"),
    }
}

fn line<'a>(cells: impl Iterator<Item = &'a str>) -> String {
    let cells: Vec<String> = cells.map(|c| format!("\"{}\"", c.replace('"', "\"\""))).collect();
    cells.join(",") + "\r\n"
}

/// Writes samples under these configurations, which name the VMs.
///
/// # Errors
/// If writing to `to` fails.
pub fn samples(configs: &[&HostConfig], batches: &[Batch], to: &mut impl Write) -> io::Result<()> {
    let plan = Plan::of(configs, batches);
    let host = configs.last().map_or("", |c| c.hostname.as_str());
    to.write_all(plan.header(host).as_bytes())?;
    let Some(first) = batches.first() else { return Ok(()) };
    // The wall clock may jump, but the interval that a reader computes must be right.
    let wall_ns = |b: &Batch| first.unix_ns.saturating_add(b.mono_ns.saturating_sub(first.mono_ns));
    let whole = batches.iter().all(|b| wall_ns(b).is_multiple_of(APART_NS));
    let at = |b: &Batch| {
        let fraction = if whole { String::new() } else { format!(".{:03}", wall_ns(b) / 1_000_000 % 1000) };
        times::text(wall_ns(b)) + &fraction
    };
    to.write_all(plan.row(at(first), None, first).as_bytes())?;
    let mut before = first;
    for (i, b) in batches.iter().enumerate().skip(1) {
        let apart = b.mono_ns.saturating_sub(before.mono_ns);
        let is_last = i + 1 == batches.len();
        if apart >= APART_NS || (is_last && apart > 0) {
            to.write_all(plan.row(at(b), Some(before), b).as_bytes())?;
            before = b;
        }
    }
    Ok(())
}
