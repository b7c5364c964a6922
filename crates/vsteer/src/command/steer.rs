//! `vsteer steer`: keeps every VM inside its service level. Without --yes it only says what it would do.

use super::apply::open;
use crate::cli::Steer;
use crate::interrupt::Interrupt;
use crate::moving::Hosts;
use crate::sla::Sla;
use serde::Serialize;
use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use vsteer_act::{Setting, Steering, journal_folder};
use vsteer_core::model;
use vsteer_core::nouns::{Batch, CpuWeight, HostConfig, VmConfig};
use vsteer_core::requests::Answered;
use vsteer_core::setting;
use vsteer_core::setting::{Change, Step};
use vsteer_core::{Fault, FaultKind};
use vsteer_host::backend::{Host, Request};
use vsteer_host::backends;
use vsteer_host::pace::{Pace, due};
use vsteer_sla::control::Decision;
use vsteer_sla::driven;
use vsteer_sla::estimate;
use vsteer_sla::facts::{dead, facts, find};
use vsteer_sla::histogram::Lots;
use vsteer_sla::hold::{Around, Holder, Outcome, Period, Promise, VmPeriod};
use vsteer_sla::round::{CGROUP_V1, CGROUP_V2, XEN, rounded};
use watched::{Sight, Watched};

mod watched;

/// Hidden first word of the watchdog's command line: see [`guard`].
pub const GUARD: &str = "__guard";
/// Requests drawn for an estimate: enough that chance in it is less than in the minutes that are measured.
const EFFORT: usize = 60_000;
/// Logs are read so often within a period, a little at a time.
const POLLS: u32 = 30;
/// Histograms are scraped each time that so many of these are over, but in periods shorter than [`SCRAPED_LEAST`] at their end alone.
const POLLS_A_SCRAPE: u32 = 3;
const SCRAPED_LEAST: Duration = Duration::from_secs(10);
/// Estimates take no more than this part of a pCPU, since the host is there for others ...
const OF_A_PCPU: f64 = 0.1;
/// ... and less of it in a Domain-0, through which others' requests go.
const OF_A_DOMAIN0: f64 = 0.04;
/// Nor do they rest for longer than this at a time.
const REST_MOST: Duration = Duration::from_secs(2);
/// Of a log whose requests ended so far from now the clock is another one.
const CLOCK_APART: Duration = Duration::from_secs(600);
/// A VM that uses more pCPUs than this does something that its log should tell of.
const USED_UNSEEN: f64 = 0.05;
/// A loss by rounding that is worth a note.
const LOSS_TOLD: f64 = 0.01;
/// A line with its time.
const SECOND_NS: u64 = 1_000_000_000;

/// Steers until interrupted.
///
/// # Errors
/// Levels, logs or VMs that are not there; a host that cannot be observed or set. Weights that were set are taken back first.
pub fn run(a: &Steer, json: bool) -> Result<(), Fault> {
    let sla = Sla::read(&a.sla)?;
    if let Some(length) = a.length.filter(|length| *length < sla.period) {
        let what = format!(
            "--for {} s is shorter than a period of {} s",
            length.as_secs_f64(),
            sla.period.as_secs_f64()
        );
        return Err(
            Fault::new(FaultKind::Usage, what).way_out("longer, or a shorter `period` in the file of levels")
        );
    }
    let estimator = estimate::find(&a.by)?;
    let interrupt = Interrupt::listen();
    let backend = backends::of(a.connect.as_deref())?;
    if !backend.steers {
        let what = format!("steering weights on {}", backend.name);
        return Err(
            Fault::new(FaultKind::Unsupported, what).way_out("vsteer plan and vsteer apply work there")
        );
    }
    let mut host = (backend.open)(&Request { light: true, ..Request::of(a.connect.as_deref()) })?;
    let config = host.config()?;
    for promise in &sla.promises {
        find(&config, &promise.vm)?;
    }
    let mut watched = Vec::new();
    for (promise, source) in sla.promises.iter().zip(&sla.sources) {
        let whose = |f: Fault| Fault { what: format!("VM {:?}: {}", promise.vm, f.what), ..f };
        watched.push(Watched::new(source).map_err(whose)?);
    }
    let mut world = World {
        sla: &sla,
        in_domain0: config.vms.iter().any(VmConfig::is_domain0),
        host,
        watched,
        holder: Holder::new(sla.promises.clone(), estimator, EFFORT),
        last: None,
        cut_ns: 0,
        steering: Steering::new("weights for service levels (vsteer steer)", &[GUARD]),
        set: Vec::new(),
        connect: a.connect.as_deref(),
        hosts: Hosts::new(&sla.hosts),
    };
    if !a.yes && !json {
        println!("nothing is set without --yes; what would be is said");
    }
    let steered = world.live(a, &interrupt, json);
    let World { mut host, steering, .. } = world;
    let receipts = steering.end(host.actuator()?)?;
    if json {
        println!("{}", serde_json::json!({ "ended": receipts }));
    } else {
        receipts.iter().flat_map(|r| &r.steps).for_each(|line| println!("{line}"));
    }
    steered
}

/// All that a period needs.
struct World<'a> {
    sla: &'a Sla,
    host: Box<dyn Host>,
    /// Does vsteer share its pCPUs with a Domain-0?
    in_domain0: bool,
    watched: Vec<Watched>,
    holder: Holder,
    last: Option<Batch>,
    /// Until when requests were looked at.
    cut_ns: u64,
    steering: Steering,
    /// What was set last, to see whether it still holds.
    set: Vec<(String, CpuWeight)>,
    connect: Option<&'a str>,
    /// Where VMs may go.
    hosts: Hosts,
}

impl World<'_> {
    fn live(&mut self, a: &Steer, interrupt: &Interrupt, json: bool) -> Result<(), Fault> {
        let begin = Instant::now();
        let mut next = begin;
        let first = self.host.sample()?;
        self.hosts.look(&mut Vec::new());
        self.cut_ns = first.unix_ns;
        self.last = Some(first);
        // What ended before the first period is not its.
        Watched::look(&mut self.watched, true, self.sla.period);
        self.watched.iter_mut().for_each(Watched::forget);
        loop {
            next = due(next, self.sla.period);
            let end = a.length.map(|length| begin + length);
            if end.is_some_and(|end| next > end) {
                return Ok(());
            }
            for poll in (0..POLLS).rev() {
                if interrupt.sleep_until(next - poll * self.sla.period / POLLS) {
                    return Ok(());
                }
                // What is wrong with a log or a scrape is told with the period, whose end has a look of its own.
                let scrape = poll > 0 && poll % POLLS_A_SCRAPE == 0 && self.sla.period >= SCRAPED_LEAST;
                Watched::look(&mut self.watched, scrape, self.sla.period);
            }
            match self.period(a.yes) {
                Ok(Some(told)) => World::say(&told, json),
                Ok(None) => {}
                // What cannot be seen now may be seen in the next period; weights stay as they are.
                Err(fault)
                    if !matches!(
                        fault.kind,
                        FaultKind::NotApplied | FaultKind::NoPrivilege | FaultKind::NoSpace
                    ) =>
                {
                    eprintln!("vsteer: this period is left out: {fault}");
                }
                Err(fault) => return Err(fault),
            }
        }
    }

    /// One period: look, decide, set.
    fn period(&mut self, yes: bool) -> Result<Option<Tell>, Fault> {
        let begun = own_cpu_s();
        let resting = Resting::new(if self.in_domain0 { OF_A_DOMAIN0 } else { OF_A_PCPU });
        let config = self.host.config()?;
        resting.rest();
        self.steering.look_after()?;
        let names: Vec<&str> = self.sla.promises.iter().map(|p| p.vm.as_str()).collect();
        let mut notes = Vec::new();
        let there = self.seen(&config, &names, &mut notes)?;
        let batch = self.host.sample()?;
        let unix_ns = batch.unix_ns;
        let Some(last) = self.last.replace(batch.clone()) else { return Ok(None) };
        self.hosts.look(&mut notes);
        let present: Vec<&str> = there.iter().map(|i| names[*i]).collect();
        let model = model::derive(&config, &self.host.collector(), &[last.clone(), batch])?;
        let of_host = facts(&config, &model, &present)?;
        let of_weights = dead(&config, &model, &present)?;
        // A period's requests are those of which every log can tell.
        let behind =
            there.iter().filter_map(|i| self.watched[*i].behind(unix_ns, self.sla.period)).max().unwrap_or(0);
        let (from_ns, to_ns) =
            (self.cut_ns.max(last.unix_ns - self.sla.period.as_nanos() as u64), unix_ns - behind);
        self.cut_ns = to_ns;
        let (mut vms, mut counted) = (vec![None; names.len()], vec![None; names.len()]);
        for (k, i) in there.iter().enumerate() {
            let (requests, lots) = self.watched[*i].take((from_ns, to_ns));
            counted[*i].clone_from(&lots);
            let waiting = self.watched[*i].waiting();
            if let Some(apart) = apart(waiting, unix_ns) {
                notes.push(format!(
                    "{}: its log's clock is {:.0} s ahead of this host's: is it of another time zone?",
                    names[*i],
                    apart.as_secs_f64()
                ));
                waiting.clear();
            }
            let (requests, old): (Vec<Answered>, Vec<Answered>) = requests
                .into_iter()
                .partition(|r| r.began_ns + r.took_ns + CLOCK_APART.as_nanos() as u64 > last.unix_ns);
            if let Some(latest) = old.iter().map(|r| r.began_ns + r.took_ns).max() {
                let behind_s = (unix_ns - latest) as f64 / 1e9;
                notes.push(format!(
                    "{}: {} requests are of {behind_s:.0} s ago and are left out: is its log of another time zone?",
                    names[*i],
                    old.len()
                ));
            }
            let used = of_host.vms[k].cpu_ns as f64 / (unix_ns.saturating_sub(last.unix_ns)).max(1) as f64;
            if requests.is_empty() && used > USED_UNSEEN {
                let why = self.watched[*i]
                    .missing()
                    .unwrap_or_else(|| "nothing told of a request in this period".to_owned());
                notes.push(format!(
                    "{}: {why}, though it used {used:.2} of a pCPU, which is taken as used",
                    names[*i]
                ));
            }
            let dead = of_weights.iter().find(|(j, _)| *j == k).map(|(_, why)| why.clone());
            vms[*i] = Some(VmPeriod { requests, lots, vm: of_host.vms[k], dead });
        }
        self.set.retain(|(name, weight)| {
            let now = find(&config, name).ok().and_then(|vm| vm.weight);
            let other = now.filter(|now| now != weight);
            if let Some(other) = other {
                notes.push(format!("{name}: its weight is {other}, which is not what was set here: somebody else set it, or it was started anew"));
            }
            // Told once.
            other.is_none()
        });
        let looked = own_cpu_s();
        resting.rest();
        let requests: usize = vms.iter().flatten().map(|v: &VmPeriod| v.requests.len()).sum();
        let requests_hz = requests as f64 / (to_ns.saturating_sub(from_ns).max(1) as f64 / 1e9);
        let period = Period { span_ns: (from_ns, to_ns), vms, pcpus: of_host.pcpus };
        let not_simulated = RefCell::new(None);
        let host = |turned: &[usize]| {
            driven::driver(&config)?;
            let turned: Vec<&str> = turned.iter().map(|i| names[*i]).collect();
            let host = driven::simulated(&config, &model, &turned, requests_hz);
            host.map_err(|why| not_simulated.replace(Some(why))).ok()
        };
        let driver = driven::passing(&config, &model, &present, requests_hz);
        let driver_pcpus = driver.delay;
        let around = Around { between: &|| resting.rest(), host: &host, driver };
        let outcome = self.holder.step(period, around);
        if let Some(why) = not_simulated.into_inner() {
            notes.push(format!("Domain-0's part in requests is left out: the host is not simulated: {why}"));
        }
        resting.rest();
        for (i, promise) in self.sla.promises.iter().enumerate() {
            let p95_s = outcome.seen[i].map(|s| s.response.p95_s);
            notes.extend(p95_s.and_then(|p95_s| unsure(promise, p95_s, counted[i].as_ref()?)));
        }
        let decided = own_cpu_s();
        let (steps, loss) = steps(&config, &names, &outcome);
        if loss > LOSS_TOLD {
            notes.push(format!("weights are whole numbers: a share is {:.1} % off by that", 100.0 * loss));
        }
        let set = yes && !steps.is_empty();
        if set {
            let setting = Setting { folder: &journal_folder(), connect: self.connect, unix_ns };
            self.steering.set(&config, self.host.actuator()?, setting, &steps, &outcome.why)?;
            for step in &steps {
                if let Change::Weight(setting::Weight { to, .. }) = step.change {
                    self.set.retain(|(name, _)| *name != step.vm_name);
                    self.set.push((step.vm_name.clone(), to));
                }
            }
        }
        let plan = self.moved(&config, &outcome, &mut notes);
        let weights = steps.iter().map(|s| format!("{}: {}", s.vm_name, s.change)).collect();
        let own_cpu_s = [looked - begun, decided - looked, own_cpu_s() - decided];
        let vms = names.iter().map(|n| (*n).to_owned()).collect();
        Ok(Some(Tell {
            unix_ns,
            vms,
            outcome,
            weights,
            set,
            plan,
            notes,
            driver_pcpus,
            own_cpu_s,
            own_bytes: own_bytes(),
        }))
    }

    /// The file of a plan that moves a VM, where one has to go and fits somewhere.
    fn moved(
        &mut self,
        config: &HostConfig,
        outcome: &Outcome,
        notes: &mut Vec<String>,
    ) -> Option<std::path::PathBuf> {
        let Decision::Move { candidates, .. } = &outcome.decision else { return None };
        if self.hosts.is_empty() {
            if let Some(first) = candidates.first() {
                let name = &self.sla.promises[first.vm].vm;
                notes.push(format!(
                    "to move it: virsh migrate --live {name} qemu+ssh://OTHER/system (untried); name hosts in [[host]] for a plan"
                ));
            }
            return None;
        }
        let plan = self.hosts.plan(config, &self.sla.promises, outcome, candidates);
        match plan {
            Ok(file) => {
                let to = self.connect.map_or(String::new(), |uri| format!(" --connect '{uri}'"));
                notes.push(format!("a plan that moves it: vsteer apply {} --yes{to}", file.display()));
                Some(file)
            }
            Err(fault) => {
                notes.push(fault.to_string());
                None
            }
        }
    }

    /// The VMs that are there and told of, by their place among the promises; what the others lack is noted.
    ///
    /// # Errors
    /// Where a scrape has yet to tell of this period.
    fn seen(
        &mut self,
        config: &HostConfig,
        names: &[&str],
        notes: &mut Vec<String>,
    ) -> Result<Vec<usize>, Fault> {
        Watched::look(&mut self.watched, true, self.sla.period);
        let now_ns = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos() as u64);
        let is_there = |name: &str| config.vms.iter().any(|vm| vm.name == name);
        let mut sight = |(name, watched): (&&str, &mut Watched)| {
            is_there(name).then(|| watched.sight(self.cut_ns, now_ns, self.sla.period))
        };
        let sights: Vec<Option<Sight>> = names.iter().zip(&mut self.watched).map(&mut sight).collect();
        let mut there = Vec::new();
        for (i, (name, sight)) in names.iter().zip(sights).enumerate() {
            match sight {
                Some(Sight::Whole) => there.push(i),
                None => notes.push(format!("{name} is not there")),
                Some(Sight::Lost(why)) => notes.push(format!(
                    "{name} is not seen: {why}; its weight stays, and what it uses is taken as used"
                )),
                Some(Sight::Later(why)) => {
                    return Err(Fault { what: format!("VM {name:?} is not seen: {}", why.what), ..why });
                }
            }
        }
        for (name, watched) in names.iter().zip(&mut self.watched) {
            notes.extend(watched.notes().into_iter().map(|note| format!("{name}: {note}")));
        }
        Ok(there)
    }

    fn say(told: &Tell, json: bool) {
        if json {
            println!("{}", serde_json::to_string(told).expect("results are plain data"));
            return;
        }
        let clock = crate::clock::text(told.unix_ns / SECOND_NS * SECOND_NS);
        println!("{clock}  {}", told.outcome.why);
        for (name, seen) in told.vms.iter().zip(&told.outcome.seen) {
            if let Some(s) = seen {
                println!(
                    "   {name:<16} {:>7.1} a second, {:>6.2} ms of CPU each; mean {:>7.1} ms, 95th {:>7.1} ms",
                    s.rate_hz,
                    1e3 * s.service_s,
                    1e3 * s.response.mean_s,
                    1e3 * s.response.p95_s
                );
            }
        }
        let word = if told.set { "set" } else { "would set" };
        told.weights.iter().for_each(|w| println!("   {word} {w}"));
        told.notes.iter().for_each(|n| println!("   note: {n}"));
    }
}

/// What a period came to.
#[derive(Serialize)]
struct Tell {
    unix_ns: u64,
    vms: Vec<String>,
    #[serde(flatten)]
    outcome: Outcome,
    /// What was set, or (without --yes) would be.
    weights: Vec<String>,
    set: bool,
    /// A plan that moves a VM, where one has to go and fits on another host.
    plan: Option<std::path::PathBuf>,
    notes: Vec<String>,
    /// pCPUs that the driver domain used (Xen's Domain-0); 0 where there is none.
    driver_pcpus: f64,
    /// CPU time that this period's look took: seeing, deciding, setting.
    own_cpu_s: [f64; 3],
    /// Memory that this process holds.
    own_bytes: u64,
}

/// Who works a little and rests a lot.
struct Resting {
    since: Cell<Instant>,
    of_a_pcpu: f64,
}

impl Resting {
    fn new(of_a_pcpu: f64) -> Resting {
        Resting { since: Cell::new(Instant::now()), of_a_pcpu }
    }

    /// After what was done since the last time.
    fn rest(&self) {
        std::thread::sleep(self.since.get().elapsed().mul_f64(1.0 / self.of_a_pcpu - 1.0).min(REST_MOST));
        self.since.set(Instant::now());
    }
}

/// CPU time of this thread until now, s (the first field of its schedstat: ns on a pCPU); 0 where the kernel does not say.
fn own_cpu_s() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split(' ').next().and_then(|ns| ns.parse::<f64>().ok()).map_or(0.0, |ns| ns / 1e9)
}

/// Resident memory of this process, bytes (the second field of its statm: pages); 0 where the kernel does not say.
fn own_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = text.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok());
    pages.unwrap_or(0) * rustix::param::page_size() as u64
}

/// How far in the future requests ended, where that is no accident.
fn apart(ended: &[Answered], now_ns: u64) -> Option<Duration> {
    let latest = ended.iter().map(|r| r.began_ns + r.took_ns).max()?;
    Some(Duration::from_nanos(latest.saturating_sub(now_ns))).filter(|d| *d > CLOCK_APART)
}

/// That a histogram's buckets do not tell whether a level holds.
fn unsure(promise: &Promise, p95_s: f64, lots: &Lots) -> Option<String> {
    let level_s = promise.level.p95_s?;
    let (low_s, high_s) = lots.bucket_at(p95_s);
    if level_s <= low_s || level_s >= high_s {
        return None;
    }
    let upto = if high_s.is_infinite() { String::new() } else { format!(" and at most {:.1}", 1e3 * high_s) };
    Some(format!(
        "{}: by its buckets its 95th percentile is above {:.1}{upto} ms: whether its level of {:.1} ms holds is not certain",
        promise.vm,
        1e3 * low_s,
        1e3 * level_s
    ))
}

/// The outcome's weights as steps, and by how much of itself a share is off since weights are whole numbers. Together they are as heavy
/// as before, so that who is not steered gets what it got.
fn steps(config: &HostConfig, names: &[&str], outcome: &Outcome) -> (Vec<Step>, f64) {
    let Decision::Set { weights, .. } = &outcome.decision else { return (Vec::new(), 0.0) };
    let of = |(name, weight): (&&str, &f64)| {
        let vm = find(config, name).ok()?;
        Some((vm, vm.weight?, *weight))
    };
    // Those that are left out have the weight that they had.
    let turned =
        |(_, from, to): &(&VmConfig, CpuWeight, f64)| *to > 0.0 && (to / from.relative() - 1.0).abs() > 1e-9;
    let all: Vec<_> = names.iter().zip(weights).filter_map(of).filter(turned).collect();
    let range = match all.first().map(|(_, from, _)| from) {
        Some(CpuWeight::Shares(_)) => CGROUP_V1,
        Some(CpuWeight::Weight(_)) => CGROUP_V2,
        Some(CpuWeight::Credit(_)) => XEN,
        // Steering does not reach vSphere.
        Some(CpuWeight::Esxi(_)) | None => return (Vec::new(), 0.0),
    };
    let parts: Vec<f64> = all.iter().map(|(_, _, w)| *w).collect();
    let together = all.iter().map(|(_, from, _)| from.number()).sum();
    let Some(rounded) = rounded(&parts, range, Some(together)) else { return (Vec::new(), 0.0) };
    let step = |((vm, from, _), to): (&(&VmConfig, CpuWeight, f64), &u64)| Step {
        vm: vm.id.clone(),
        vm_name: vm.name.clone(),
        change: Change::Weight(setting::Weight { from: *from, to: from.on_same_scale(*to as f64) }),
        reason: outcome.why.clone(),
    };
    let changes = |s: &Step| !matches!(s.change, Change::Weight(setting::Weight { from, to }) if from == to);
    (all.iter().zip(&rounded.numbers).map(step).filter(changes).collect(), rounded.loss)
}

/// The watchdog's own command: `__guard`, of `realtime` too.
///
/// # Errors
/// As [`vsteer_act::guard`].
pub fn guard() -> Result<(), Fault> {
    vsteer_act::guard(|connect| open(connect).map(|(actuator, _)| actuator))
}
