//! Turns esxtop's shares per interval into counters that only rise, and its rows into samples.
//!
//! esxtop's value is a share of the interval, so the sum of value times interval is a cumulative counter. `%
//! Ready` includes `% Max Limited`; this file separates the two.
//!
//! If a world's row lacks a value, or its states show that it has ended, the sample leaves the world out. The
//! model counts only intervals with the world at both ends.

use super::beside::{Beside, bytes};
use super::clock::Clock;
use super::columns::{
    COSTOP, CPU, Columns, LIMITED, LOCAL, MEMBERS, MIGRATES, OVERLAP, READY, RUN, SIZE, SWITCHES, SYSTEM,
    USED, WAIT,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use vsteer_core::nouns::{
    Batch, CgroupLayout, GroupSample, HostConfig, Manager, PcpuSample, Role, ThreadCounters, ThreadSample,
    Tid, VmConfig, VmId, VmSample, VmThread,
};
use vsteer_core::plural::counted;
use vsteer_core::topology::{Parts, Topology};
use vsteer_core::{CpuSet, Fault};

/// Number of rows to read before the first sample, to learn the usual interval.
const LOOK: usize = 8;
/// The states of a world add up to 100 %. If their sum is below this (percent), the world has ended.
const GONE: f64 = 1.0;
/// A larger value is not valid: a group has a few thousand worlds at most, and no world switches that often
/// in a second.
const MOST: f64 = 1e7;

/// A VM in the samples.
#[derive(Debug, Clone)]
struct VmSeen {
    /// The name, with the group's number if two VMs share the name.
    id: VmId,
    gid: u64,
    name: String,
    group: Option<usize>,
    memory: Option<usize>,
    local_ppm: Option<u32>,
    size_mib: Option<f64>,
}

/// A range of slots with its counters.
#[derive(Debug)]
struct Account {
    slot: usize,
    /// Which counters have a column.
    there: [bool; CPU.len()],
    counters: ThreadCounters,
    worlds: Option<u32>,
    seen: bool,
    /// Present in every row since the last sample.
    whole: bool,
}

/// The counters of all VMs, worlds and pCPUs.
pub(super) struct Accounts {
    clock: Clock,
    vms: Vec<VmSeen>,
    /// Per world: the index of its VM, its role, its number, and its account.
    threads: Vec<(usize, Role, Tid, Account)>,
    groups: Vec<(usize, Account)>,
    pcpus: Vec<(u32, usize, u64, u64)>,
    /// Rows that wait until the clock knows the usual interval.
    first: VecDeque<(u64, Vec<f64>)>,
    learnt: bool,
    /// A row was counted that no sample contains yet.
    fresh: bool,
    unix_ns: u64,
    usable: CpuSet,
    topology: Topology,
    unseen: u64,
}

impl Account {
    fn new(slot: usize, filled: &[bool]) -> Account {
        let there: [bool; CPU.len()] = std::array::from_fn(|k| filled[slot + k]);
        Account { slot, there, counters: ThreadCounters::default(), worlds: None, seen: false, whole: true }
    }

    /// Adds an interval.
    fn go_on(&mut self, values: &[f64], ns: u64, is_first: bool) {
        let v = |k: usize| values[self.slot + k];
        let is_one = |v: f64| (0.0..=MOST).contains(&v);
        let lacking = (USED..=MIGRATES).any(|k| self.there[k] && !is_one(v(k)));
        let states = [RUN, READY, COSTOP, WAIT];
        let all = states.iter().filter(|k| self.there[**k]).map(|k| v(*k)).sum::<f64>();
        let gone = self.there[RUN] && self.there[WAIT] && all < GONE;
        // The first row covers the time before the start. It only shows which worlds exist at the start.
        self.seen = is_first || (!lacking && !gone);
        self.whole &= self.seen;
        if !self.seen {
            return;
        }
        let there = self.there;
        let share = |k: usize| there[k].then(|| v(k) / 100.0);
        let time = |share: Option<f64>| share.map(|s| (s * ns as f64 + 0.5) as u64);
        let count = |k: usize| there[k].then(|| (v(k).max(0.0) * ns as f64 / 1e9 + 0.5) as u64);
        let (ready, limited) = (share(READY), share(LIMITED));
        let c = &mut self.counters;
        let raise = |counter: &mut Option<u64>, by: Option<u64>| {
            *counter = by.map(|by| counter.unwrap_or(0).saturating_add(by));
        };
        raise(&mut c.run_ns, time(share(RUN)));
        // Both values are rounded, so their difference may be negative by a hundredth of a percent.
        raise(&mut c.ready_ns, time(ready.zip(limited).map(|(r, l)| (r - l).max(0.0))));
        raise(&mut c.limited_ns, time(limited));
        raise(&mut c.wait_ns, time(ready));
        raise(&mut c.costop_ns, time(share(COSTOP)));
        raise(&mut c.blocked_ns, time(share(WAIT)));
        raise(&mut c.overlap_ns, time(share(OVERLAP)));
        raise(&mut c.system_ns, time(share(SYSTEM)));
        raise(&mut c.used_ns, time(share(USED)));
        raise(&mut c.switches, count(SWITCHES));
        raise(&mut c.migrations, count(MIGRATES));
        if there[MEMBERS] && v(MEMBERS) >= 1.0 {
            self.worlds = Some(v(MEMBERS) as u32);
        }
    }
}

/// Names of VMs: the name, with the group's number if several VMs share it.
fn ids(columns: &Columns) -> Vec<VmId> {
    let mut times: BTreeMap<&str, usize> = BTreeMap::new();
    columns.groups.iter().for_each(|g| *times.entry(&g.name).or_default() += 1);
    let mut taken: BTreeSet<String> =
        times.iter().filter(|(_, n)| **n == 1).map(|(n, _)| (*n).to_owned()).collect();
    let of = |g: &super::columns::Group| {
        if times[g.name.as_str()] == 1 {
            return VmId(g.name.clone());
        }
        let mut id = format!("{} (gid {})", g.name, g.gid);
        while !taken.insert(id.clone()) {
            id.push('\'');
        }
        VmId(id)
    };
    columns.groups.iter().map(of).collect()
}

impl Accounts {
    pub(super) fn new(
        columns: &Columns,
        beside: &Beside,
        file: &str,
        notes: &mut Vec<String>,
    ) -> Result<Accounts, Fault> {
        let filled = columns.filled();
        let vms: Vec<VmSeen> = columns
            .groups
            .iter()
            .zip(ids(columns))
            .map(|(g, id)| VmSeen {
                id,
                gid: g.gid,
                name: g.name.clone(),
                group: g.slot,
                memory: g.memory,
                local_ppm: None,
                size_mib: None,
            })
            .collect();
        let of_gid: BTreeMap<u64, usize> = vms.iter().enumerate().map(|(i, vm)| (vm.gid, i)).collect();
        let threads = columns
            .worlds
            .iter()
            .filter_map(|w| Some((*of_gid.get(&w.gid)?, w.role, Tid(w.wid), Account::new(w.slot, &filled))));
        let groups = vms.iter().enumerate().filter_map(|(i, vm)| Some((i, Account::new(vm.group?, &filled))));
        let told = beside.topology(columns.pcpus.len())?;
        let topology = match told {
            Some(topology) => topology,
            None => {
                notes.push(format!(
                    "{file}: esxtop does not report sockets, cores and nodes: write them into host.toml next to the file \
                    (sockets = 2, cores_per_socket = 18)"
                ));
                undescribed(columns, file, notes)?
            }
        };
        let mut accounts = Accounts {
            clock: Clock::default(),
            threads: threads.collect(),
            groups: groups.collect(),
            pcpus: columns.pcpus.iter().map(|(cpu, slot)| (*cpu, *slot, 0, 0)).collect(),
            vms,
            first: VecDeque::new(),
            learnt: false,
            fresh: false,
            unix_ns: 0,
            usable: topology.usable(),
            topology,
            unseen: 0,
        };
        accounts.threads.sort_by_key(|(vm, role, tid, _)| (*vm, *role, *tid));
        Ok(accounts)
    }

    /// Takes a row with its time and values.
    pub(super) fn see(&mut self, unix_ns: u64, values: &[f64]) {
        if self.learnt && self.first.is_empty() {
            self.go_on(unix_ns, values);
            self.fresh = true;
            return;
        }
        self.first.push_back((unix_ns, values.to_vec()));
        if self.first.len() >= LOOK {
            self.learn();
        }
    }

    fn learn(&mut self) {
        self.learnt = true;
        let times: Vec<u64> = self.first.iter().map(|(t, _)| *t).collect();
        self.clock.learn(&times);
    }

    /// Adds one row; `false` if there is none yet.
    pub(super) fn next(&mut self, ended: bool) -> bool {
        if ended && !self.learnt {
            self.learn();
        }
        if std::mem::take(&mut self.fresh) {
            return true;
        }
        if !self.learnt {
            return false;
        }
        match self.first.pop_front() {
            Some((unix_ns, values)) => {
                self.go_on(unix_ns, &values);
                true
            }
            None => false,
        }
    }

    fn go_on(&mut self, unix_ns: u64, values: &[f64]) {
        let is_first = !self.clock.has_begun();
        let ns = self.clock.step(unix_ns);
        self.unix_ns = unix_ns;
        for (.., account) in &mut self.threads {
            account.go_on(values, ns, is_first);
            self.unseen += u64::from(!account.seen);
        }
        self.groups.iter_mut().for_each(|(_, account)| account.go_on(values, ns, is_first));
        for (_, slot, busy_ns, idle_ns) in &mut self.pcpus {
            let busy = (values[*slot] / 100.0).clamp(0.0, 1.0);
            let busy = if busy.is_nan() { 0.0 } else { busy };
            let part = (busy * ns as f64 + 0.5) as u64;
            *busy_ns = busy_ns.saturating_add(part);
            *idle_ns = idle_ns.saturating_add(ns.saturating_sub(part));
        }
        for vm in &mut self.vms {
            let Some(slot) = vm.memory else { continue };
            let (local, size) = (values[slot + LOCAL], values[slot + SIZE]);
            vm.local_ppm = (local <= 100.0).then_some((local * 1e4 + 0.5) as u32).or(vm.local_ppm);
            vm.size_mib = (size > 0.0).then_some(size).or(vm.size_mib);
        }
    }

    /// The present sample: worlds seen in every row since the last one.
    pub(super) fn batch(&mut self) -> Batch {
        let batch = self.sample();
        self.threads.iter_mut().for_each(|(.., a)| a.whole = true);
        self.groups.iter_mut().for_each(|(_, a)| a.whole = true);
        batch
    }

    fn sample(&self) -> Batch {
        let threads = self.threads.iter().filter(|(.., a)| a.whole).map(|(vm, role, tid, a)| ThreadSample {
            vm: self.vms[*vm].id.clone(),
            role: *role,
            tid: *tid,
            last_cpu: None,
            waiting_ns: None,
            counters: a.counters.clone(),
        });
        let pcpus = self.pcpus.iter().map(|(cpu, _, busy_ns, idle_ns)| PcpuSample {
            cpu: *cpu,
            user_ns: *busy_ns,
            idle_ns: *idle_ns,
            ..PcpuSample::default()
        });
        let mut vms: Vec<VmSample> = self
            .vms
            .iter()
            .map(|vm| VmSample { memory_local_ppm: vm.local_ppm, ..VmSample::new(vm.id.clone()) })
            .collect();
        for (vm, account) in self.groups.iter().filter(|(_, a)| a.whole) {
            vms[*vm].group = Some(GroupSample { worlds: account.worlds, counters: account.counters.clone() });
        }
        Batch {
            mono_ns: self.clock.mono_ns,
            unix_ns: self.unix_ns,
            threads: threads.collect(),
            pcpus: pcpus.collect(),
            vms,
            blame: Vec::new(),
            pressure: None,
        }
    }

    pub(super) fn config(&self, columns: &Columns, beside: &Beside) -> Result<HostConfig, Fault> {
        let mut vms: Vec<VmConfig> =
            self.vms.iter().enumerate().map(|(i, vm)| self.vm(i, vm, beside)).collect();
        vms.sort_by(|a, b| a.id.cmp(&b.id));
        let version = beside.esxi.as_deref().unwrap_or("of unknown version");
        Ok(HostConfig {
            hostname: columns.host.clone(),
            machine_id: None,
            kernel: format!("VMware ESXi {version}"),
            topology: self.topology.clone(),
            cgroups: CgroupLayout::None,
            contenders: Vec::new(),
            scheduler: None,
            vms,
        })
    }

    fn vm(&self, index: usize, vm: &VmSeen, beside: &Beside) -> VmConfig {
        let threads = self.threads.iter().filter(|(i, ..)| *i == index).map(|(_, role, tid, _)| VmThread {
            tid: *tid,
            role: *role,
            affinity: self.usable.clone(),
            class: None,
            cgroup: None,
            prefers: None,
            reserved: None,
        });
        let mut config = VmConfig {
            manager: Manager::Vsphere(String::new()),
            threads: threads.collect(),
            ..VmConfig::new(vm.id.clone(), vm.name.clone(), u32::try_from(vm.gid).unwrap_or(0))
        };
        let said = beside.vm(vm.gid, &vm.name);
        config.vsphere = Some(said.map_or_else(Default::default, super::beside::Vm::vsphere));
        let size = vm.size_mib.map(|mib| (mib * 1_048_576.0) as u64);
        config.memory_bytes = said.and_then(|s| s.memory_gib).map(bytes).or(size);
        config.guest_topology = said.and_then(|s| s.guest_topology(config.vcpu_count() as u32));
        config
    }

    pub(super) fn notes(&self, file: &str) -> Vec<String> {
        let mut notes = Vec::new();
        let Clock { back, gaps, longest_gap_ns, .. } = &self.clock;
        if *back > 0 {
            notes.push(format!(
                "{file}: its clock stood still or went back {}: vsteer gives those rows the usual length",
                counted(*back, "time")
            ));
        }
        if *gaps > 0 {
            notes.push(format!(
                "{file}: {} between rows, the longest {:.0} s: vsteer gives the rows after a gap the usual length",
                counted(*gaps, "gap"),
                *longest_gap_ns as f64 / 1e9
            ));
        }
        if self.unseen > 0 {
            notes.push(format!("{file}: worlds are missing from {}", counted(self.unseen, "row")));
        }
        notes
    }
}

/// The topology of a host if the file only has its pCPUs: one core per pCPU on one node. All of this is
/// assumed.
fn undescribed(columns: &Columns, file: &str, notes: &mut Vec<String>) -> Result<Topology, Fault> {
    let counted: CpuSet = columns.pcpus.iter().map(|(cpu, _)| *cpu).collect();
    let cpus = if counted.is_empty() {
        notes.push(format!("{file}: pCPUs are not listed: vsteer assumes as many pCPUs as vCPUs"));
        let vcpus = columns.worlds.iter().filter(|w| w.role.vcpu().is_some()).count();
        CpuSet::first(vcpus.max(1) as u32)
    } else {
        counted
    };
    Topology::new(Parts { present: cpus.clone(), online: cpus.clone(), allowed: cpus, ..Parts::default() })
}
