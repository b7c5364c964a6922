//! Reads the results of the emulated Xen. Per domain: what the trace shows, and what the domain itself
//! reports.
//!
//! For each case there are `CASE/host.xentrace`, `CASE/DOMAIN.reports` (the lines that arrived during the
//! trace, and the one before), and what `xl` reported about host, domains, vCPUs, pools and scheduler.

use super::job::{Case, Domain};
use crate::accel::Accel;
use crate::report::window::{self, GuestReport, Stamped, VmWindow};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use vsteer_core::model::derive;
use vsteer_core::stats::quantile;
use vsteer_core::{Fault, FaultKind};
use vsteer_record::xentrace::{self, IDLE_DOMAIN, Runstate, Seen, Trace};

/// The results of one case.
#[derive(Debug, Clone, Serialize)]
pub struct CaseResult {
    pub name: String,
    pub trace: PathBuf,
    /// The clock frequency that Xen reports, kHz.
    pub khz: u64,
    /// The number of records that Xen dropped for lack of room.
    pub lost: u64,
    /// The median time of a switch between domains, ns: from one domain's last moment on the pCPU to the next
    /// one's first.
    pub switch_ns: u64,
    /// The part of the time in which Domain-0 ran.
    pub domain0: f64,
    /// The domains, in order, without those that run Linux.
    pub domains: Vec<DomainResult>,
    /// The domains that run Linux.
    pub linux: Vec<LinuxResult>,
}

/// One domain that runs Linux and a program.
#[derive(Debug, Clone, Serialize)]
pub struct LinuxResult {
    pub name: String,
    /// The shares of each of its vCPUs, from the trace.
    pub traced: Vec<Shares>,
    /// Its console output.
    pub console: PathBuf,
}

/// One domain with one vCPU.
#[derive(Debug, Clone, Serialize)]
pub struct DomainResult {
    pub name: String,
    pub workload: String,
    /// The shares from the trace.
    pub traced: Shares,
    /// The length of the trace, s.
    pub traced_s: f64,
    /// The shares that the domain itself reports, for about the same time.
    pub own: Shares,
    /// The shares from `vsteer record` in Domain-0, and from the domain itself at that time; `None` if the
    /// job does not ask for it.
    pub observed: Option<(Shares, Shares)>,
    /// The same without a trace. There, ready stands for ready plus offline, because the two cannot be
    /// separated.
    pub sampled: Option<(Shares, Shares)>,
    /// The same from the metrics of the service.
    pub served: Option<(Shares, Shares)>,
    /// Dispatches per second.
    pub dispatches_per_s: f64,
    /// The number of wake-ups in the trace.
    pub wake_ups: usize,
    /// The shortest time from wake-up to pCPU, ms, which is the time of the switch alone.
    pub wake_least_ms: Option<f64>,
    /// 99th percentile from wake-up to pCPU, ms.
    pub wake_p99_ms: Option<f64>,
    /// The domain's own measurements.
    pub window: VmWindow,
}

/// Shares of the time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Shares {
    /// On a pCPU.
    pub run: f64,
    /// Could run, but had no pCPU.
    pub ready: f64,
    /// Waited for an event.
    pub blocked: f64,
    /// Neither: parked by a cap.
    pub offline: f64,
}

impl Shares {
    fn of(ns: [u64; 4]) -> Shares {
        let all = ns.iter().sum::<u64>().max(1) as f64;
        let [run, ready, blocked, offline] = ns.map(|n| n as f64 / all);
        Shares { run, ready, blocked, offline }
    }

    /// The largest difference of any share, in percentage points.
    pub fn points_apart(&self, other: &Shares) -> f64 {
        let pairs = [
            (self.run, other.run),
            (self.ready, other.ready),
            (self.blocked, other.blocked),
            (self.offline, other.offline),
        ];
        let apart = pairs.iter().map(|(a, b)| (a - b).abs());
        // A missing value never agrees.
        100.0 * apart.map(|x| if x.is_nan() { f64::INFINITY } else { x }).fold(0.0, f64::max)
    }
}

/// A domain's report.
#[derive(Deserialize)]
struct Report {
    #[serde(flatten)]
    guest: GuestReport,
    runstate_ns: RunstateNs,
}

#[derive(Deserialize)]
struct RunstateNs {
    run: u64,
    ready: u64,
    blocked: u64,
    offline: u64,
}

impl RunstateNs {
    fn array(&self) -> [u64; 4] {
        [self.run, self.ready, self.blocked, self.offline]
    }
}

/// The length of the recording, ns, and the shares of every domain by name. If the recording only has the sum
/// of ready and offline, ready is that sum.
fn recorded(folder: &Path) -> Result<(u64, BTreeMap<String, Shares>), Fault> {
    let recording = vsteer_record::Recording::open(folder)?;
    let odd = || Fault::new(FaultKind::BadInput, format!("{} holds no sample", folder.display()));
    let last = recording.batches.last().ok_or_else(odd)?;
    let config = recording.config_at(last.mono_ns);
    let model = derive(config, &recording.manifest.collector, &recording.batches)?;
    let shares = model.vms.iter().map(|vm| {
        let part = |x: Option<f64>| x.unwrap_or(f64::NAN);
        let s = &vm.vcpus;
        let (run, blocked) = (part(s.run), part(s.blocked));
        let told = match s.limited {
            None => Shares { run, ready: part(s.wait), blocked, offline: 0.0 },
            offline => Shares { run, ready: part(s.ready), blocked, offline: part(offline) },
        };
        (vm.name.clone(), told)
    });
    Ok((model.window_ns, shares.collect()))
}

/// Time in each state, s, of each VM, as the service's metrics have it; a domain of these jobs has one vCPU.
fn states(text: &str) -> BTreeMap<String, BTreeMap<String, f64>> {
    let mut all: BTreeMap<String, BTreeMap<String, f64>> = BTreeMap::new();
    for line in text.lines().filter(|line| line.starts_with("vsteer_vcpu_state_seconds_total{")) {
        let label = |name: &str| line.split(&format!("{name}=\"")).nth(1)?.split('"').next();
        let value = line.rsplit(' ').next().and_then(|value| value.parse::<f64>().ok());
        if let (Some(vm), Some(state), Some(value)) = (label("vm"), label("state"), value) {
            all.entry(vm.to_owned()).or_default().insert(state.to_owned(), value);
        }
    }
    all
}

/// The time between two expositions, ns, and the shares of every domain meanwhile.
fn served(before: &str, after: &str) -> (u64, BTreeMap<String, Shares>) {
    let (before, mut length_ns) = (states(before), 0);
    let shares = states(after).into_iter().map(|(vm, now)| {
        let grown = |state: &str| {
            let then = before.get(&vm).and_then(|all| all.get(state));
            now.get(state).zip(then).map_or(0, |(now, then)| (1e9 * (now - then)) as u64)
        };
        let ns = ["run", "ready", "blocked", "limited"].map(grown);
        length_ns = length_ns.max(ns.iter().sum());
        (vm, Shares::of(ns))
    });
    let shares = shares.collect();
    (length_ns, shares)
}

/// One case's folder.
struct Folder<'a> {
    case: &'a Case,
    path: PathBuf,
}

impl Folder<'_> {
    fn text(&self, name: &str) -> Result<String, Fault> {
        let file = self.path.join(name);
        std::fs::read_to_string(&file).map_err(|e| Fault::io(format!("reading {}", file.display()), &e))
    }

    fn odd(&self, what: String) -> Fault {
        Fault::new(FaultKind::BadInput, format!("case {}: {what}", self.case.name))
    }

    /// All reports of one kind from a domain, and the shares that its runstate gives for the last
    /// `length_ns`.
    fn reports(&self, domain: &str, kind: &str, length_ns: u64) -> Result<(Vec<Report>, Shares), Fault> {
        let reports: Vec<Report> = self
            .text(&format!("{domain}.{kind}"))?
            .lines()
            .map(|l| serde_json::from_str(l).map_err(|e| self.odd(format!("{domain} reports {l:?}: {e}"))))
            .collect::<Result<_, Fault>>()?;
        let begin_ns = reports.last().map_or(0, |r| r.guest.t_ns.saturating_sub(length_ns));
        let first = reports.iter().find(|r| r.guest.t_ns >= begin_ns);
        let (Some(first), Some(last)) = (first, reports.last()) else {
            return Err(self.odd(format!("{domain} has not reported")));
        };
        let (before, after) = (first.runstate_ns.array(), last.runstate_ns.array());
        let own = Shares::of(std::array::from_fn(|i| after[i].saturating_sub(before[i])));
        Ok((reports, own))
    }
}

/// What trace, `xl` and observer report about a case's domains.
struct Known<'a> {
    folder: Folder<'a>,
    /// The output of `xl list`.
    ids: String,
    /// vCPUs in the trace, by domain and number.
    seen: BTreeMap<(u16, u16), Seen>,
    /// The observer's recordings: their lengths, and shares by domain.
    observed: Option<(u64, BTreeMap<String, Shares>)>,
    sampled: Option<(u64, BTreeMap<String, Shares>)>,
    served: Option<(u64, BTreeMap<String, Shares>)>,
}

impl Known<'_> {
    fn id(&self, d: &Domain) -> Result<u16, Fault> {
        let odd = || self.folder.odd(format!("`xl list` tells no id of {}", d.name));
        id_of(&self.ids, &d.name).ok_or_else(odd)
    }

    fn linux(&self, d: &Domain) -> Result<LinuxResult, Fault> {
        let id = self.id(d)?;
        let of = |vcpu: u32| Shares::of(self.seen.get(&(id, vcpu as u16)).map_or([0; 4], |s| s.ns));
        let console = self.folder.path.join(format!("{}.console", d.name));
        Ok(LinuxResult { name: d.name.clone(), traced: (0..d.vcpus).map(of).collect(), console })
    }

    /// Shares from an observer, and from the domain's own runstate, of which `kind` are the reports.
    fn observed(
        &self,
        d: &Domain,
        by: Option<&(u64, BTreeMap<String, Shares>)>,
        kind: &str,
    ) -> Result<Option<(Shares, Shares)>, Fault> {
        let Some((length_ns, all)) = by else { return Ok(None) };
        let odd = || self.folder.odd(format!("{} was not {kind}", d.name));
        let told = all.get(&d.name).ok_or_else(odd)?;
        Ok(Some((*told, self.folder.reports(&d.name, kind, *length_ns)?.1)))
    }

    /// Shares from sampling, which reports ready and offline as one, and from the domain's own runstate.
    fn sampled(&self, d: &Domain) -> Result<Option<(Shares, Shares)>, Fault> {
        let both = self.observed(d, self.sampled.as_ref(), "sampled")?;
        Ok(both.map(|(told, own)| (told, Shares { ready: own.ready + own.offline, offline: 0.0, ..own })))
    }

    fn domain(&self, d: &Domain) -> Result<DomainResult, Fault> {
        let id = self.id(d)?;
        let none = Seen::default();
        // If a vCPU never changed its state, it is not in the trace: it ran, or was parked, all the time.
        let seen = self.seen.get(&(id, 0)).unwrap_or(&none);
        let (reports, own) = self.folder.reports(&d.name, "reports", u64::MAX)?;
        // Domain-0 starts to collect reports before the observer starts. So only the last part counts, with
        // the recording's length.
        let observed = self.observed(d, self.observed.as_ref(), "observed")?;
        let served = self.observed(d, self.served.as_ref(), "served")?;
        let sampled = self.sampled(d)?;
        // By the domain's own clock, which is Xen's.
        let stamped: Vec<Stamped> =
            reports.into_iter().map(|r| Stamped { host_ns: r.guest.t_ns, report: r.guest }).collect();
        let traced_s = seen.ns.iter().sum::<u64>().max(1) as f64 / 1e9;
        let wakes: Vec<f64> = seen.wakes_ns.iter().map(|ns| *ns as f64 / 1e6).collect();
        Ok(DomainResult {
            name: d.name.clone(),
            workload: d.workload.clone(),
            traced: Shares::of(seen.ns),
            traced_s,
            own,
            observed,
            sampled,
            served,
            dispatches_per_s: seen.dispatches as f64 / traced_s,
            wake_ups: wakes.len(),
            wake_least_ms: quantile(&wakes, 0.0),
            wake_p99_ms: quantile(&wakes, 0.99),
            window: window::between(&d.name, &stamped, 0, u64::MAX, Accel::Kvm)?,
        })
    }
}

/// Reads the results of one case.
///
/// # Errors
/// Something is missing or not valid.
pub fn read(case: &Case, output: &Path) -> Result<CaseResult, Fault> {
    let folder = Folder { case, path: output.join(&case.name) };
    let khz =
        khz(&folder.text("info.txt")?).ok_or_else(|| folder.odd("`xl info` tells no cpu_mhz".to_owned()))?;
    let trace_file = folder.path.join("host.xentrace");
    let bytes =
        std::fs::read(&trace_file).map_err(|e| Fault::io(format!("reading {}", trace_file.display()), &e))?;
    let trace = xentrace::read(&bytes)?;
    let recorded = |name: &str| recorded(&folder.path.join(name));
    let seen = xentrace::seen(&trace, khz);
    let ids = folder.text("domains.txt")?;
    let observed = (case.observe_s > 0).then(|| recorded("host.vsteer")).transpose()?;
    let sampled = (case.sample_s > 0).then(|| recorded("sampled.vsteer")).transpose()?;
    let metrics =
        || Ok::<_, Fault>(served(&folder.text("served-before.prom")?, &folder.text("served-after.prom")?));
    let served = (case.serve_s > 0).then(metrics).transpose()?;
    let known = Known { folder, ids, seen, observed, sampled, served };
    let (own, linux): (Vec<&Domain>, Vec<&Domain>) = case.domains.iter().partition(|d| d.program.is_empty());
    let linux = linux.into_iter().map(|d| known.linux(d)).collect::<Result<_, Fault>>()?;
    Ok(CaseResult {
        name: case.name.clone(),
        trace: trace_file,
        khz,
        lost: trace.lost,
        switch_ns: switch_ns(&trace, khz),
        domain0: known.seen.get(&(0, 0)).map_or(0.0, |s| Shares::of(s.ns).run),
        domains: own.into_iter().map(|d| known.domain(d)).collect::<Result<_, Fault>>()?,
        linux,
    })
}

/// See [`CaseResult::switch_ns`]; 0 without switches between domains.
fn switch_ns(trace: &Trace, khz: u64) -> u64 {
    let mut left: BTreeMap<u16, u64> = BTreeMap::new();
    let mut gaps = Vec::new();
    for c in trace.changes.iter().filter(|c| c.domain != IDLE_DOMAIN) {
        if (c.from, c.to) == (Runstate::Running, Runstate::Runnable) {
            left.insert(c.pcpu, c.ticks);
        } else if c.to == Runstate::Running
            && let Some(at) = left.remove(&c.pcpu)
        {
            gaps.push((c.ticks - at) as f64 * 1e6 / khz as f64);
        }
    }
    quantile(&gaps, 0.5).map_or(0, |ns| ns as u64)
}

/// `cpu_mhz                : 2596.104`
fn khz(info: &str) -> Option<u64> {
    let line = info.lines().find(|l| l.starts_with("cpu_mhz"))?;
    let mhz: f64 = line.split_once(':')?.1.trim().parse().ok()?;
    let khz = (1000.0 * mhz).round();
    (khz >= 1.0).then_some(khz as u64)
}

/// The second word of a domain's line.
fn id_of(list: &str, name: &str) -> Option<u16> {
    let mut words = list.lines().map(str::split_whitespace).find(|w| w.clone().next() == Some(name))?;
    words.nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_xl_says() {
        assert_eq!(khz("host   : x\ncpu_mhz                : 999.997\n"), Some(999_997));
        assert_eq!(khz("host   : x\n"), None);
        let list = "Name   ID   Mem VCPUs\tState\nDomain-0  0  512  1 r-----\nhog2  7  16  1 r-----\n";
        assert_eq!((id_of(list, "hog2"), id_of(list, "hog")), (Some(7), None));
    }

    #[test]
    fn a_report_holds_the_domains_own_runstate() {
        let line = "{\"vsteer_guest\":1,\"seq\":3,\"t_ns\":9,\"workload\":\"xen\",\"vcpus\":1,\"units\":5,\
            \"late\":{\"n\":0,\"sum_ns\":0,\"runs\":[]},\"resp\":{\"n\":0,\"sum_ns\":0,\"runs\":[]},\"jiffies\":null,\
            \"runstate_ns\":{\"run\":1,\"ready\":2,\"blocked\":3,\"offline\":4}}";
        let report: Report = serde_json::from_str(line).unwrap();
        assert_eq!((report.guest.units, report.runstate_ns.array()), (5, [1, 2, 3, 4]));
        let a = Shares::of([50, 25, 25, 0]);
        assert!((a.points_apart(&Shares::of([40, 35, 25, 0])) - 10.0).abs() < 1e-9);
    }
}
