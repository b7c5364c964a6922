//! One ESXi host behind the API, in the form that the rest of the program uses: its configuration and its
//! counters.
//!
//! vSphere counts by itself and keeps its counters, so vsteer need not wait for them. [`Esxi::past`] reads
//! the last minutes (or days, from the statistics) at once. [`Observe::sample`] continues from the newest
//! interval, and returns the same sample again until there is a new one.
//!
//! All times are from the service's clock. The time of a sample is the end of its interval. The time between
//! two samples is the interval's length, even if the service's clock jumped or intervals are missing (then a
//! note says so). If a VM or vCPU lacks one of its usual values, the sample leaves it out. The model counts
//! only intervals with the VM at both ends.
//!
//! Left out: other hosts of a vCenter; `GAP(vsphere-nodes)`: home nodes of VMs, which the API does not
//! report.

use super::counters::{Counter, Instance, Metrics, Numbers, collector, raise};
use super::inventory::{Found, Inventory};
use super::names::host_meant;
use super::series::{Asked, Interval, Series};
use super::{Access, Client};
use crate::actuate::Settings;
use crate::observe::{Observe, Statistics};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};
use vsteer_core::nouns::{
    Batch, Collector, GroupSample, HostConfig, PcpuSample, Role, ThreadCounters, ThreadSample, Tid, VmId,
    VmSample,
};
use vsteer_core::{CpuSet, Fault, FaultKind};

/// The interval of real-time counters in s, unless the service reports another one.
const REAL_TIME_S: u64 = 20;
/// How often to read the inventory again.
const INVENTORY: Duration = Duration::from_secs(30);
/// The shortest time between two requests for a new interval.
const ASK: Duration = Duration::from_secs(5);
/// How many intervals back to look for the newest one, because a host reports with some delay.
const NEWEST: u64 = 9;
const S: u64 = 1_000_000_000;

/// Which counters are read, in vSphere's terms.
trait OfVsphere {
    fn seconds(self) -> u64;
    fn kept(self) -> String;
}

impl OfVsphere for Statistics {
    fn seconds(self) -> u64 {
        match self {
            Statistics::RealTime => REAL_TIME_S,
            Statistics::Every(s) => s.max(1),
        }
    }

    fn kept(self) -> String {
        match self {
            Statistics::RealTime => "in real time".to_owned(),
            Statistics::Every(s) => format!("in the statistics of every {s} s (see their level)"),
        }
    }
}

/// A host that vsteer can observe and change.
pub struct Esxi {
    pub(super) client: Client,
    /// The host that the user named, if any.
    named: Option<String>,
    inventory: Inventory,
    read_at: Instant,
    /// Names or ids of the VMs to observe; empty means all.
    only: Vec<String>,
    statistics: Statistics,
    counted: Option<Counted>,
    notes: Vec<String>,
    /// The settings as journalled right before the step changes them.
    pub(super) read: Option<Settings>,
}

/// The counters up to now.
struct Counted {
    numbers: Numbers,
    metrics: BTreeMap<VmId, Metrics>,
    /// The VMs for which vsteer knows which metrics really have values.
    confirmed: BTreeSet<VmId>,
    of_host: Metrics,
    accounts: BTreeMap<(VmId, Instance), ThreadCounters>,
    pcpus: BTreeMap<u32, (u64, u64)>,
    mono_ns: u64,
    /// End of the newest counted interval, s since 1970.
    last_s: u64,
    asked: Option<Instant>,
    waiting: VecDeque<Batch>,
    now: Option<Batch>,
    gaps: u64,
}

impl Esxi {
    /// Logs in and reads the inventory.
    ///
    /// # Errors
    /// As [`Client::login`] and [`Client::inventory`].
    pub fn open(access: &Access, password: &str) -> Result<Esxi, Fault> {
        let mut client = Client::login(access.place.clone(), password, &access.trust)?;
        let inventory = client.inventory()?;
        Ok(Esxi {
            named: access.esxi.clone(),
            notes: std::iter::once(UNTRIED.to_owned()).chain(inventory.notes.iter().cloned()).collect(),
            inventory,
            client,
            read_at: Instant::now(),
            only: Vec::new(),
            statistics: Statistics::RealTime,
            counted: None,
            read: None,
        })
    }

    /// Logs in to observe some VMs (by name or id; empty means all), with the real-time counters or the
    /// statistics.
    ///
    /// # Errors
    /// As [`Esxi::open`]; `Usage` if there are several hosts and none is named; `NothingThere` if a VM does
    /// not exist; `Unsupported` or `NoPrivilege` if no counters are available.
    pub fn observe(
        access: &Access,
        password: &str,
        only: Vec<String>,
        statistics: Statistics,
    ) -> Result<Esxi, Fault> {
        let mut esxi = Esxi { only, statistics, ..Esxi::open(access, password)? };
        let known: Vec<String> =
            esxi.host(None)?.config.vms.iter().map(|vm| format!("{:?}", vm.name)).collect();
        if esxi.config()?.vms.is_empty() && !esxi.only.is_empty() {
            let what = format!("no VM is called {}", esxi.only.join(", "));
            return Err(
                Fault::new(FaultKind::NothingThere, what).help(format!("name one of: {}", known.join(", ")))
            );
        }
        let numbers = esxi.client.numbers()?;
        let object = esxi.host(None)?.id.clone();
        let of_host = esxi.client.metrics("HostSystem", &object, statistics.seconds(), &numbers)?;
        esxi.counted = Some(Counted {
            numbers,
            metrics: BTreeMap::new(),
            confirmed: BTreeSet::new(),
            of_host: of_host
                .into_iter()
                .filter(|(i, c)| *c == Counter::Utilization && *i != Instance::Group)
                .collect(),
            accounts: BTreeMap::new(),
            pcpus: BTreeMap::new(),
            mono_ns: 0,
            last_s: 0,
            asked: None,
            waiting: VecDeque::new(),
            now: None,
            gaps: 0,
        });
        Ok(esxi)
    }

    /// True if it reads the statistics, whose values are older, instead of the counters of the last hour.
    pub(super) fn reads_statistics(&self) -> bool {
        self.statistics != Statistics::RealTime
    }

    /// Returns the notes that were not yet shown to the user.
    pub fn take_notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notes)
    }

    /// Chooses the host: the named one, the only one, or the one with the name `called`.
    ///
    /// # Errors
    /// `NothingThere` if it does not exist; `Usage` if there are several and none is named.
    fn host(&self, called: Option<&str>) -> Result<&Found, Fault> {
        let hosts = &self.inventory.hosts;
        host_meant(hosts, self.named.as_deref(), called).ok_or_else(|| {
            let names: Vec<String> = hosts.iter().map(|h| h.config.hostname.clone()).collect();
            let (kind, what) = match &self.named {
                Some(name) => (FaultKind::NothingThere, format!("no host is named {name:?}")),
                None => (FaultKind::Usage, format!("cannot choose among {} hosts", names.len())),
            };
            let place = self.client.place();
            Fault::new(kind, format!("{place}: {what}")).help(format!(
                "name one, for example {place}/{}; hosts: {}",
                names.first().map_or("", String::as_str),
                names.join(", ")
            ))
        })
    }

    /// The present configuration of the host for which a plan was made: the host that the user named,
    /// otherwise the one with the plan's host name.
    ///
    /// # Errors
    /// As for choosing the host.
    pub fn config_of(&mut self, called: &str) -> Result<HostConfig, Fault> {
        let found = self.host(Some(called))?;
        let (name, config) = (found.config.hostname.clone(), found.config.clone());
        self.named = Some(name);
        Ok(config)
    }

    /// The server, user and host in use, for the journal.
    pub fn access(&self, asked: &Access) -> Access {
        Access { esxi: self.named.clone().or_else(|| asked.esxi.clone()), ..asked.clone() }
    }

    /// The managed object of a VM, on whichever host it runs now.
    pub(super) fn object_of(&self, vm: &VmId) -> Option<String> {
        self.inventory.hosts.iter().find_map(|h| h.objects.get(vm)).cloned()
    }

    /// The pCPUs of the host on which the VM runs.
    pub(super) fn pcpus_of(&self, vm: &VmId) -> Option<CpuSet> {
        let host = self.inventory.hosts.iter().find(|h| h.objects.contains_key(vm))?;
        Some(host.config.topology.usable())
    }

    fn look_again(&mut self) -> Result<(), Fault> {
        if self.read_at.elapsed() > INVENTORY {
            self.inventory = self.client.inventory()?;
            self.read_at = Instant::now();
        }
        Ok(())
    }

    fn is_meant(&self, id: &VmId, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|o| **o == *id.0 || o == name)
    }

    /// The samples of the last `length`, in whole intervals, at least two.
    ///
    /// # Errors
    /// `NothingThere` if the service has no values; `BadInput` for impossible times; `Usage` if this host was
    /// not opened for observation.
    pub fn past(&mut self, length: Duration) -> Result<Vec<Batch>, Fault> {
        let to_s = self.client.now_s()?;
        let every_s = self.statistics.seconds();
        let intervals = length.as_secs().div_ceil(every_s).max(2);
        // The service keeps nothing for an unfinished interval, so this asks for one more.
        let from_s = to_s.saturating_sub((intervals + 1).saturating_mul(every_s));
        let (vms, pcpus) = self.pull(from_s, to_s)?;
        let mut times = ends(&vms, &pcpus);
        while times.len() as u64 > intervals {
            times.remove(0);
        }
        let counted = counted(&mut self.counted)?;
        let Some(first) = times.first() else { return Err(self.nothing_kept()) };
        let begun_s = first.saturating_sub(longest(&vms, *first).max(1));
        (counted.mono_ns, counted.last_s) = (begun_s * S, begun_s);
        let mut all = vec![counted.begin(begun_s, *first, &vms, &pcpus)];
        for end_s in times {
            all.push(counted.go_on(end_s, &vms, &pcpus));
        }
        self.say_gaps();
        Ok(all)
    }

    fn nothing_kept(&self) -> Fault {
        let kept = self.statistics.kept();
        Fault::new(FaultKind::NothingThere, format!("{} kept no counters {kept}", self.client.place()))
            .because("no VM on the host was powered on for a complete interval")
            .help("start a VM, wait for one interval, or read other statistics (--statistics)")
    }

    fn say_gaps(&mut self) {
        let gaps = self.counted.as_ref().map_or(0, |c| c.gaps);
        self.notes.retain(|n| !n.contains(GAPS));
        if gaps > 0 {
            self.notes.push(format!("{GAPS}: {gaps}; the percentages use the others"));
        }
    }

    /// Reads the values between two times for every VM that is on, and for the host's pCPUs.
    fn pull(&mut self, from_s: u64, to_s: u64) -> Result<(BTreeMap<VmId, Series>, Series), Fault> {
        self.look_again()?;
        let host = self.host(None)?;
        let (host_object, mut running) = (host.id.clone(), Vec::new());
        for id in &host.running {
            let name = host.config.vm(id).map_or("", |vm| vm.name.as_str());
            if let (true, Some(object)) = (self.is_meant(id, name), host.objects.get(id)) {
                running.push((id.clone(), object.clone()));
            }
        }
        let (every_s, real_time) = (self.statistics.seconds(), self.statistics == Statistics::RealTime);
        let counted = counted(&mut self.counted)?;
        for (id, object) in &running {
            if !counted.metrics.contains_key(id) {
                let all = match self.client.metrics("VirtualMachine", object, every_s, &counted.numbers) {
                    Ok(all) => all,
                    // The VM disappeared in the meantime.
                    Err(refused) if refused.kind == "ManagedObjectNotFound" => continue,
                    Err(refused) => return Err(refused.into()),
                };
                let is_its = |(_, c): &(Instance, Counter)| *c != Counter::Utilization;
                counted.metrics.insert(id.clone(), all.into_iter().filter(is_its).collect());
            }
        }
        let known: Vec<&(VmId, String)> =
            running.iter().filter(|(id, _)| counted.metrics.contains_key(id)).collect();
        let mut asked: Vec<Asked<'_>> = known
            .iter()
            .map(|(id, object)| Asked { kind: "VirtualMachine", object, metrics: &counted.metrics[id] })
            .collect();
        asked.push(Asked { kind: "HostSystem", object: &host_object, metrics: &counted.of_host });
        let mut all = self.client.values(&asked, &counted.numbers, every_s, real_time, (from_s, to_s))?;
        let pcpus = all.pop().unwrap_or_default();
        let vms: BTreeMap<VmId, Series> = known.iter().map(|(id, _)| id.clone()).zip(all).collect();
        counted.confirm(&vms);
        Ok((vms, pcpus))
    }
}

const UNTRIED: &str = "vSphere's API: tested only with govmomi's simulator, not with a real vCenter or ESXi";
const GAPS: &str = "intervals that the server did not keep";

fn counted(of: &mut Option<Counted>) -> Result<&mut Counted, Fault> {
    of.as_mut().ok_or_else(|| {
        Fault::new(FaultKind::Usage, "cannot sample: vsteer opened this host only to change it")
    })
}

/// The ends of all intervals, in order.
fn ends(vms: &BTreeMap<VmId, Series>, pcpus: &Series) -> Vec<u64> {
    // Without any VM, the host's pCPUs alone do not make a sample.
    let of_vms: BTreeSet<u64> = vms.values().flat_map(|s| s.keys().copied()).collect();
    if of_vms.is_empty() {
        Vec::new()
    } else {
        of_vms.into_iter().chain(pcpus.keys().copied()).collect::<BTreeSet<_>>().into_iter().collect()
    }
}

/// The length in s of the interval that ends at `end_s`.
fn longest(vms: &BTreeMap<VmId, Series>, end_s: u64) -> u64 {
    vms.values().filter_map(|s| s.get(&end_s)).map(|i| i.seconds).max().unwrap_or(0)
}

impl Counted {
    /// If the service lists a metric that never has a value, the metric counts as missing. Otherwise samples
    /// would leave out the VM because of it.
    fn confirm(&mut self, vms: &BTreeMap<VmId, Series>) {
        for (id, series) in vms {
            if series.is_empty() || !self.confirmed.insert(id.clone()) {
                continue;
            }
            let has =
                |m: &(Instance, Counter)| series.values().any(|i| i.values.get(m).is_some_and(|v| *v >= 0));
            self.metrics.entry(id.clone()).or_default().retain(has);
        }
    }

    /// The sample at the start of the first interval, with all VMs counted in it.
    fn begin(&mut self, begun_s: u64, first_s: u64, vms: &BTreeMap<VmId, Series>, pcpus: &Series) -> Batch {
        let nothing: BTreeMap<VmId, Series> = vms
            .iter()
            .filter_map(|(id, series)| {
                let zeros = series.get(&first_s)?.values.iter().map(|(m, v)| (*m, (*v).min(0))).collect();
                Some((id.clone(), [(begun_s, Interval { seconds: 0, values: zeros })].into()))
            })
            .collect();
        let idle = pcpus
            .get(&first_s)
            .map(|i| Interval { seconds: 0, values: i.values.keys().map(|m| (*m, 0)).collect() });
        self.count(begun_s, &nothing, &idle.map(|i| [(begun_s, i)].into()).unwrap_or_default())
    }

    /// The sample at the end of an interval.
    fn go_on(&mut self, end_s: u64, vms: &BTreeMap<VmId, Series>, pcpus: &Series) -> Batch {
        let own = longest(vms, end_s);
        let seconds = if own > 0 { own } else { pcpus.get(&end_s).map_or(1, |i| i.seconds) };
        // If the difference is at most half an interval, somebody set the clock. If it is larger, an interval
        // is missing.
        if end_s.saturating_sub(self.last_s) > seconds + seconds / 2 {
            self.gaps += 1;
        }
        self.mono_ns += seconds * S;
        self.last_s = end_s;
        self.count(end_s, vms, pcpus)
    }

    fn count(&mut self, end_s: u64, vms: &BTreeMap<VmId, Series>, pcpus: &Series) -> Batch {
        let mut batch = Batch { mono_ns: self.mono_ns, unix_ns: end_s * S, ..Batch::default() };
        for (id, series) in vms {
            let Some(interval) = series.get(&end_s) else { continue };
            let Some(metrics) = self.metrics.get(id) else { continue };
            let mut group = None;
            for instance in metrics.iter().map(|(i, _)| *i).collect::<BTreeSet<_>>() {
                let wanted: Vec<Counter> =
                    metrics.iter().filter(|(i, _)| *i == instance).map(|(_, c)| *c).collect();
                let ns =
                    |c: Counter| interval.values.get(&(instance, c)).and_then(|v| c.ns(*v, interval.seconds));
                if wanted.iter().any(|c| ns(*c).is_none()) {
                    continue;
                }
                let account = self.accounts.entry((id.clone(), instance)).or_default();
                raise(account, instance == Instance::Group, &|c| {
                    if wanted.contains(&c) { ns(c) } else { None }
                });
                match instance {
                    Instance::Group => group = Some(GroupSample { worlds: None, counters: account.clone() }),
                    Instance::Cpu(n) => batch.threads.push(ThreadSample {
                        vm: id.clone(),
                        role: Role::Vcpu(n),
                        tid: Tid(n),
                        last_cpu: None,
                        waiting_ns: None,
                        counters: account.clone(),
                    }),
                }
            }
            batch.vms.push(VmSample { group, ..VmSample::new(id.clone()) });
        }
        if let Some(interval) = pcpus.get(&end_s) {
            for ((instance, counter), value) in &interval.values {
                let (Instance::Cpu(cpu), Some(busy)) = (*instance, counter.ns(*value, interval.seconds))
                else {
                    continue;
                };
                let whole = interval.seconds * S;
                let (busy_ns, idle_ns) = self.pcpus.entry(cpu).or_default();
                (*busy_ns, *idle_ns) = (*busy_ns + busy.min(whole), *idle_ns + whole.saturating_sub(busy));
                let sample =
                    PcpuSample { cpu, user_ns: *busy_ns, idle_ns: *idle_ns, ..PcpuSample::default() };
                batch.pcpus.push(sample);
            }
        }
        batch
    }
}

impl Observe for Esxi {
    fn config(&mut self) -> Result<HostConfig, Fault> {
        self.look_again()?;
        let mut config = self.host(None)?.config.clone();
        config.vms.retain(|vm| self.is_meant(&vm.id, &vm.name));
        Ok(config)
    }

    fn collector(&self) -> Collector {
        let Some(counted) = &self.counted else {
            return Collector { name: "vsphere".into(), missing: BTreeMap::new() };
        };
        let all: Metrics = counted.metrics.values().flatten().copied().collect();
        collector(&counted.numbers, &all, &self.statistics.kept())
    }

    /// The newest sample, or the previous one again if there is no newer one.
    fn sample(&mut self) -> Result<Batch, Fault> {
        let every_s = self.statistics.seconds();
        let counted_now = counted(&mut self.counted)?;
        if counted_now.waiting.is_empty() && counted_now.asked.is_none_or(|at| at.elapsed() >= ASK) {
            counted_now.asked = Some(Instant::now());
            let (is_first, last_s) = (counted_now.now.is_none(), counted_now.last_s);
            let to_s = self.client.now_s()?;
            let from_s = if is_first { to_s.saturating_sub(NEWEST * every_s) } else { last_s };
            let (vms, pcpus) = self.pull(from_s, to_s)?;
            let times = ends(&vms, &pcpus);
            let counted_now = counted(&mut self.counted)?;
            if is_first {
                let Some(end_s) = times.last() else { return Err(self.nothing_kept()) };
                (counted_now.mono_ns, counted_now.last_s) = (end_s * S, *end_s);
                counted_now.now = Some(counted_now.begin(*end_s, *end_s, &vms, &pcpus));
            } else {
                for end_s in times.into_iter().filter(|t| *t > last_s) {
                    let batch = counted_now.go_on(end_s, &vms, &pcpus);
                    counted_now.waiting.push_back(batch);
                }
            }
            self.say_gaps();
        }
        let counted = counted(&mut self.counted)?;
        if let Some(next) = counted.waiting.pop_front() {
            counted.now = Some(next);
        }
        counted.now.clone().ok_or_else(|| Fault::new(FaultKind::NothingThere, "no interval was kept"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(metrics: &[(Instance, Counter)]) -> (Counted, VmId) {
        let id = VmId("u".into());
        let counted = Counted {
            numbers: Numbers::default(),
            metrics: [(id.clone(), metrics.iter().copied().collect())].into(),
            confirmed: BTreeSet::new(),
            of_host: Metrics::new(),
            accounts: BTreeMap::new(),
            pcpus: BTreeMap::new(),
            mono_ns: 100 * S,
            last_s: 100,
            asked: None,
            waiting: VecDeque::new(),
            now: None,
            gaps: 0,
        };
        (counted, id)
    }

    const RUN: (Instance, Counter) = (Instance::Cpu(0), Counter::Run);
    const READY: (Instance, Counter) = (Instance::Cpu(0), Counter::Ready);
    const GROUP: (Instance, Counter) = (Instance::Group, Counter::Run);

    type Values<'a> = &'a [((Instance, Counter), i64)];

    fn series(id: &VmId, all: &[(u64, Values<'_>)]) -> BTreeMap<VmId, Series> {
        let series = all
            .iter()
            .map(|(end, v)| (*end, Interval { seconds: 20, values: v.iter().copied().collect() }))
            .collect();
        [(id.clone(), series)].into()
    }

    #[test]
    fn groups_and_vcpus_are_counted_apart_and_rise() {
        let (mut c, id) = of(&[RUN, READY, GROUP]);
        let vms = series(
            &id,
            &[
                (120, &[(RUN, 5_000), (READY, 1_000), (GROUP, 9_000)]),
                (140, &[(RUN, 1_000), (READY, 0), (GROUP, 2_000)]),
            ],
        );
        let begun = c.begin(100, 120, &vms, &Series::new());
        let first = c.go_on(120, &vms, &Series::new());
        let second = c.go_on(140, &vms, &Series::new());
        assert_eq!((begun.mono_ns, second.mono_ns - begun.mono_ns), (100 * S, 40 * S));
        let run = |b: &Batch| b.threads[0].counters.run_ns;
        assert_eq!((run(&begun), run(&first), run(&second)), (Some(0), Some(5 * S), Some(6 * S)));
        let group = |b: &Batch| b.vms[0].group.as_ref().unwrap().counters.run_ns;
        assert_eq!((group(&begun), group(&second)), (Some(0), Some(11 * S)));
        assert_eq!(second.threads[0].counters.costop_ns, None, "nobody counts it");
    }

    #[test]
    fn a_value_that_is_missing_leaves_its_vcpu_out_of_that_sample_alone() {
        let (mut c, id) = of(&[RUN, READY, GROUP]);
        let whole: &[_] = &[(RUN, 4_000), (READY, 100), (GROUP, 4_000)];
        let vms =
            series(&id, &[(120, whole), (140, &[(RUN, 4_000), (READY, -1), (GROUP, 4_000)]), (200, whole)]);
        c.begin(100, 120, &vms, &Series::new());
        let all: Vec<Batch> = [120, 140, 200].iter().map(|t| c.go_on(*t, &vms, &Series::new())).collect();
        assert_eq!(all.iter().map(|b| b.threads.len()).collect::<Vec<_>>(), [1, 0, 1]);
        assert!(all.iter().all(|b| b.vms[0].group.is_some()));
        assert_eq!((c.gaps, all[2].mono_ns), (1, 160 * S), "an interval is as long as it says");
    }

    #[test]
    fn what_never_has_a_value_is_not_counted() {
        let (mut c, id) = of(&[RUN, READY]);
        let vms = series(&id, &[(120, &[(RUN, 4_000), (READY, -1)])]);
        c.confirm(&vms);
        let batch = c.go_on(120, &vms, &Series::new());
        assert_eq!((batch.threads.len(), batch.threads[0].counters.wait_ns), (1, None));
    }

    #[test]
    fn a_pcpus_utilization() {
        let (mut c, id) = of(&[RUN]);
        let busy = (Instance::Cpu(3), Counter::Utilization);
        let pcpus: Series = [(120, Interval { seconds: 20, values: [(busy, 2_500)].into() })].into();
        let vms = series(&id, &[(120, &[(RUN, 1)])]);
        let batch = c.go_on(120, &vms, &pcpus);
        assert_eq!((batch.pcpus[0].cpu, batch.pcpus[0].user_ns, batch.pcpus[0].idle_ns), (3, 5 * S, 15 * S));
    }
}
