//! Turns esxtop's shares per interval into counters that only rise, and its rows into samples.
//!
//! esxtop's value is a share of the interval, so the sum of value times interval is a cumulative counter. `%
//! Ready` includes `% Max Limited`; this file separates the two.
//!
//! [`counted`](mod@super::counted) counts one world, group or pCPU; here, they make a sample of the host.

use super::beside::{Beside, bytes};
use super::clock::{Clock, ESXTOPS_OWN_NS};
use super::columns::{CPU, Columns, LOCAL, SIZE};
use super::counted::{Account, Pcpu};
use super::minutes::{self, Minutes};
use super::times::Moment;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use vsteer_core::limits;
use vsteer_core::nouns::{
    Batch, GroupSample, HostConfig, Manager, Role, ThreadSample, Tid, VmConfig, VmId, VmSample, VmThread,
};
use vsteer_core::plural::counted;
use vsteer_core::topology::{Parts, Topology};
use vsteer_core::{CpuSet, Fault};

/// Number of rows to read before the first sample, to learn the usual interval.
const LOOK: usize = 8;
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

/// The counters of all VMs, worlds and pCPUs.
pub(super) struct Accounts {
    clock: Clock,
    vms: Vec<VmSeen>,
    /// Per world: the index of its VM, its role, its number, and its account.
    threads: Vec<(usize, Role, Tid, Account)>,
    groups: Vec<(usize, Account)>,
    pcpus: Vec<Pcpu>,
    /// Rows that wait until the clock knows the usual interval.
    first: VecDeque<(Moment, Vec<f64>)>,
    /// The times of rows without seconds.
    minutes: Option<Minutes>,
    learnt: bool,
    /// A row was counted that no sample contains yet.
    fresh: bool,
    unix_ns: u64,
    usable: CpuSet,
    topology: Topology,
    unseen: u64,
}

/// Names of VMs: the name, with the group's number if several VMs share it.
fn ids(columns: &Columns) -> Vec<VmId> {
    let mut times: BTreeMap<&str, usize> = BTreeMap::new();
    columns.groups.iter().for_each(|g| *times.entry(&g.name).or_default() += 1);
    let mut taken: BTreeSet<String> =
        times.iter().filter(|(_, n)| **n == 1).map(|(n, _)| (*n).to_owned()).collect();
    let of = |g: &super::columns::Group| {
        if times[g.name.as_str()] == 1 {
            return VmId(g.name.as_str().into());
        }
        let mut id = format!("{} (gid {})", g.name, g.gid);
        while !taken.insert(id.clone()) {
            id.push('\'');
        }
        VmId(id.into())
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
            pcpus: columns.pcpus.iter().map(|(cpu, slot)| Pcpu::new(*cpu, *slot)).collect(),
            vms,
            first: VecDeque::new(),
            minutes: None,
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
    pub(super) fn see(&mut self, moment: Moment, values: &[f64]) {
        if self.learnt && self.first.is_empty() {
            let unix_ns = self.time(moment);
            self.go_on(unix_ns, values);
            self.fresh = true;
            return;
        }
        self.first.push_back((moment, values.to_vec()));
        let bytes = self.first.len() * size_of_val(values);
        let needed = if self.first.iter().all(|(m, _)| m.has_seconds) || bytes > limits::ESXTOP_HELD {
            LOOK
        } else {
            minutes::LOOK
        };
        if self.first.len() >= needed {
            self.learn();
        }
    }

    fn learn(&mut self) {
        self.learnt = true;
        let coarse: Vec<u64> =
            self.first.iter().filter(|(m, _)| !m.has_seconds).map(|(m, _)| m.unix_ns).collect();
        self.minutes = (!coarse.is_empty()).then(|| Minutes::learn(&coarse, ESXTOPS_OWN_NS));
        let mut first = std::mem::take(&mut self.first);
        for (moment, _) in &mut first {
            *moment = Moment { unix_ns: self.time(*moment), has_seconds: true };
        }
        let times: Vec<u64> = first.iter().map(|(m, _)| m.unix_ns).collect();
        self.clock.learn(&times);
        self.threads.iter_mut().for_each(|(.., account)| account.give_up(&first));
        self.groups.iter_mut().for_each(|(_, account)| account.give_up(&first));
        self.first = first;
    }

    /// The time of the next row.
    fn time(&mut self, moment: Moment) -> u64 {
        if moment.has_seconds {
            return moment.unix_ns;
        }
        let usual_ns = self.clock.usual_ns();
        self.minutes.get_or_insert_with(|| Minutes::learn(&[], usual_ns)).next(moment.unix_ns)
    }

    /// Do all worlds and groups lack valid values of this counter, although it has columns?
    pub(super) fn lost(&self, k: usize) -> bool {
        let mut all = self.accounts().filter(|(_, a)| a.has_column[k]).peekable();
        all.peek().is_some() && all.all(|(_, a)| !a.there[k])
    }

    /// All accounts with the index of their VM.
    fn accounts(&self) -> impl Iterator<Item = (usize, &Account)> {
        self.threads.iter().map(|(vm, .., a)| (*vm, a)).chain(self.groups.iter().map(|(vm, a)| (*vm, a)))
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
            Some((moment, values)) => {
                self.go_on(moment.unix_ns, &values);
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
        self.pcpus.iter_mut().for_each(|pcpu| pcpu.go_on(values, ns));
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
        let pcpus = self.pcpus.iter().filter_map(|pcpu| pcpu.sample(self.clock.mono_ns));
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
            vms,
            ..HostConfig::new(columns.host.clone(), format!("VMware ESXi {version}"), self.topology.clone())
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
        if let Some(Minutes { interval_ns, is_assumed, .. }) = self.minutes {
            let s = interval_ns as f64 / 1e9;
            notes.push(match is_assumed {
                true => format!(
                    "{file}: its times have no seconds, and too few rows show their interval: vsteer assumes {s:.0} s, \
                     esxtop's default. Shares do not depend on it"
                ),
                false => format!(
                    "{file}: its times have no seconds: according to the number of rows per minute, they are {s:.1} s apart"
                ),
            });
        }
        for (k, name) in CPU.iter().enumerate() {
            let vms: BTreeSet<usize> =
                self.accounts().filter(|(_, a)| a.has_column[k] && !a.there[k]).map(|(vm, _)| vm).collect();
            if !vms.is_empty() {
                let vms = counted(vms.len(), "VM");
                notes.push(format!(
                    "{file}: {name:?} is missing for {vms}, because most cells have no valid number"
                ));
            }
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
