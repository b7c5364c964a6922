//! Keeps every VM inside its service level, period after period: looks, decides, sets weights.
//!
//! The rules stand in `vsteer-sla`, which neither reads nor sets anything: which requests belong to a period
//! ([`vsteer_sla::period`]), what to do ([`vsteer_sla::hold`]), which steps set the weights ([`vsteer_sla::weights`]).
//! This loop reads logs, histograms and the host for these rules, and sets the weights through [`Steering`], so that
//! the former weights return whatever ends this process.
//!
//! If a period cannot be read, the loop skips it, and the next period is longer.
//!
//! Left out: signals and printing. The caller brings a [`Pace`] and a closure for these.

mod elsewhere;
mod file;
mod own;
mod watched;

pub use file::{OtherHost, Sla, Source};

use crate::apply::{Receipt, Setting};
use crate::journal::journal_folder;
use crate::steering::Steering;
use crate::system_log::By;
use crate::watchdog::unix_ns;
use elsewhere::Hosts;
use own::Resting;
use serde::Serialize;
use std::cell::RefCell;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use vsteer_core::model::{self, HostModel};
use vsteer_core::nouns::{Batch, HostConfig, VmConfig};
use vsteer_core::setting::Step;
use vsteer_core::setting::argv::move_command;
use vsteer_core::{Fault, FaultKind};
use vsteer_host::backend::{Host, Request};
use vsteer_host::hypervisors;
use vsteer_host::pace::{Pace, due};
use vsteer_sla::control::Decision;
use vsteer_sla::driven;
use vsteer_sla::estimate::Estimator;
use vsteer_sla::facts::{Dead, dead, facts, find};
use vsteer_sla::histogram::Lots;
use vsteer_sla::hold::{Around, Holder, Outcome, Period, VmPeriod};
use vsteer_sla::period::{ahead, span_ns, unseen, unsure, without_old};
use vsteer_sla::rule::Published;
use vsteer_sla::weights::{LastSet, lossy, steps};
use vsteer_sla::window::Vm;
use watched::{Sight, Watched};

/// Requests that an estimate draws: enough that its own randomness is smaller than that of the measured minutes.
const EFFORT: usize = 60_000;
/// How often to read the logs within a period, a little at a time.
const POLLS: u32 = 30;
/// Scrape histograms after every third of these reads. In periods shorter than [`SCRAPED_LEAST`], scrape at the end
/// only.
const POLLS_A_SCRAPE: u32 = 3;
const SCRAPED_LEAST: Duration = Duration::from_secs(10);

/// How to keep the levels.
#[derive(Clone, Copy)]
pub struct Asked<'a> {
    /// The levels.
    pub sla: &'a Sla,
    /// The estimator of response times.
    pub estimator: Estimator,
    /// A published rule that decides instead of vsteer's own.
    pub rule: Option<Published>,
    /// The host's connection URI.
    pub connect: Option<&'a str>,
    /// Set weights; otherwise only report what would be set.
    pub set: bool,
    /// How long to run; `None`: until the user asks to stop.
    pub length: Option<Duration>,
    /// The watchdog's command line, after the program ([`Steering::new`]).
    pub watchdog: &'a [&'a str],
}

/// What the loop reports while it runs.
pub enum Heard<'a> {
    /// A period is over.
    Period(&'a Told),
    /// A period that could not be read, and why. The loop skipped it.
    LeftOut(&'a Fault),
}

/// The result of a period.
#[derive(Debug, Serialize)]
pub struct Told {
    /// When the period ended, ns since 1970.
    pub unix_ns: u64,
    /// The VMs, in the order of the levels.
    pub vms: Vec<String>,
    /// What was measured, and the decision.
    #[serde(flatten)]
    pub outcome: Outcome,
    /// The changes of weights, in words.
    pub weights: Vec<String>,
    /// Were the changes made? If not, they would have been.
    pub set: bool,
    /// The file of a plan that moves a VM, if one must move and another host has room.
    pub plan: Option<PathBuf>,
    /// Notes for the user.
    pub notes: Vec<String>,
    /// pCPUs that the driver domain used (Xen's Domain-0); 0 where there is none.
    pub driver_pcpus: f64,
    /// CPU time that this period's look took: seeing, deciding, setting.
    pub own_cpu_s: [f64; 3],
    /// Memory that this process holds.
    pub own_bytes: u64,
}

/// Keeps levels.
pub struct Keeper<'a> {
    asked: Asked<'a>,
    /// The VMs that have levels.
    names: Vec<&'a str>,
    host: Box<dyn Host>,
    /// Does vsteer share its pCPUs with a Domain-0?
    in_domain0: bool,
    watched: Vec<Watched>,
    holder: Holder,
    last: Option<Batch>,
    /// The end of the last period whose requests were read, ns since 1970.
    cut_ns: u64,
    steering: Steering,
    last_set: LastSet,
    /// The hosts that VMs may move to.
    hosts: Hosts,
}

/// What was read of a period.
struct Seen {
    config: HostConfig,
    model: HostModel,
    /// Indexes into the service levels: those whose VM runs and whose number of requests is known.
    there: Vec<usize>,
    period: Period,
    unix_ns: u64,
}

impl<'a> Keeper<'a> {
    /// Opens the host, and the logs and histograms of every VM. Nothing is set yet.
    ///
    /// # Errors
    /// Logs, histograms or VMs that are not there; `Unsupported` for a host whose weights cannot be steered.
    pub fn open(asked: Asked<'a>) -> Result<Keeper<'a>, Fault> {
        let Asked { sla, connect, .. } = asked;
        let backend = hypervisors::of_changing(connect)?;
        if !backend.steers {
            let what = format!("cannot steer weights on {}", backend.name);
            return Err(
                Fault::new(FaultKind::Unsupported, what).help("use vsteer plan and vsteer apply there")
            );
        }
        let mut host = (backend.open)(&Request { light: true, ..Request::of(connect) })?;
        let config = host.config()?;
        for promise in &sla.promises {
            find(&config, &promise.vm)?;
        }
        let mut watched = Vec::new();
        for (promise, source) in sla.promises.iter().zip(&sla.sources) {
            let whose = |f: Fault| Fault { what: format!("VM {:?}: {}", promise.vm, f.what), ..f };
            watched.push(Watched::new(source).map_err(whose)?);
        }
        Ok(Keeper {
            names: sla.promises.iter().map(|p| p.vm.as_str()).collect(),
            in_domain0: config.vms.iter().any(VmConfig::is_domain0),
            host,
            watched,
            holder: Holder::new(sla.promises.clone(), asked.estimator, EFFORT).by_rule(asked.rule),
            last: None,
            cut_ns: 0,
            steering: Steering::new(By::Steer, "weights for service levels (vsteer steer)", asked.watchdog),
            last_set: LastSet::default(),
            hosts: Hosts::new(&sla.hosts),
            asked,
        })
    }

    /// Keeps the levels until the user asks to stop, or for the time asked for.
    ///
    /// # Errors
    /// A host that cannot be sampled at first, or cannot be set. What was set stays until [`Keeper::end`].
    pub fn keep(&mut self, pace: &dyn Pace, hear: &mut dyn FnMut(Heard<'_>)) -> Result<(), Fault> {
        let every = self.asked.sla.period;
        let begin = Instant::now();
        let end = self.asked.length.map(|length| begin + length);
        let mut next = begin;
        self.begin()?;
        loop {
            next = due(next, every);
            if end.is_some_and(|end| next > end) || self.until(next, pace) {
                return Ok(());
            }
            match self.period() {
                Ok(Some(told)) => hear(Heard::Period(&told)),
                Ok(None) => {}
                Err(fault) if ends_all(fault.kind) => return Err(fault),
                Err(fault) => hear(Heard::LeftOut(&fault)),
            }
        }
    }

    /// Restores the former weights. Returns what was done, one line per VM.
    ///
    /// # Errors
    /// As [`Steering::end`].
    pub fn end(self) -> Result<Vec<Receipt>, Fault> {
        let Keeper { mut host, steering, .. } = self;
        steering.end(host.actuator()?)
    }

    fn begin(&mut self) -> Result<(), Fault> {
        let first = self.host.sample()?;
        self.hosts.look(&mut Vec::new());
        self.cut_ns = first.unix_ns;
        self.last = Some(first);
        // Requests that ended before the first period do not belong to it.
        Watched::look(&mut self.watched, true, self.asked.sla.period);
        self.watched.iter_mut().for_each(Watched::forget);
        Ok(())
    }

    /// Reads logs and scrapes histograms until the period ends at `next`. Returns true if the user asked to stop
    /// before.
    fn until(&mut self, next: Instant, pace: &dyn Pace) -> bool {
        let every = self.asked.sla.period;
        for poll in (0..POLLS).rev() {
            if pace.sleep_until(next - poll * every / POLLS) {
                return true;
            }
            // The read at the end of the period reports what is wrong with a log or a scrape.
            Watched::look(&mut self.watched, scrapes(poll, every), every);
        }
        false
    }

    /// One period: look, decide, set.
    fn period(&mut self) -> Result<Option<Told>, Fault> {
        let begun = own::cpu_s();
        let resting = Resting::new(self.in_domain0);
        let mut notes = Vec::new();
        let Some(seen) = self.look(&resting, &mut notes)? else { return Ok(None) };
        let looked = own::cpu_s();
        resting.rest();
        let Seen { config, model, there, period, unix_ns } = seen;
        let (outcome, driver_pcpus) = self.decide(&config, &model, &there, period, &resting, &mut notes);
        let decided = own::cpu_s();
        let (steps, loss) = steps(&config, &self.names, &outcome);
        notes.extend(lossy(loss));
        let set = self.set(&config, unix_ns, &steps, &outcome.why)?;
        let plan = self.moved(&config, &outcome, &mut notes);
        Ok(Some(Told {
            unix_ns,
            vms: self.names.iter().map(|n| (*n).to_owned()).collect(),
            outcome,
            weights: steps.iter().map(|s| format!("{}: {}", s.vm_name, s.change)).collect(),
            set,
            plan,
            notes,
            driver_pcpus,
            own_cpu_s: [looked - begun, decided - looked, own::cpu_s() - decided],
            own_bytes: own::bytes(),
        }))
    }

    /// Reads host, logs and histograms for the period that ends now. `None` after the first sample, which only begins
    /// a period.
    fn look(&mut self, resting: &Resting, notes: &mut Vec<String>) -> Result<Option<Seen>, Fault> {
        let every = self.asked.sla.period;
        let config = self.host.config()?;
        resting.rest();
        self.steering.look_after()?;
        let there = self.there(&config, notes)?;
        let batch = self.host.sample()?;
        let unix_ns = batch.unix_ns;
        let Some(last) = self.last.replace(batch.clone()) else { return Ok(None) };
        let last_ns = last.unix_ns;
        self.hosts.look(notes);
        let present: Vec<&str> = there.iter().map(|i| self.names[*i]).collect();
        let model = model::derive(&config, &self.host.collector(), &[last, batch])?;
        let of_host = facts(&config, &model, &present)?;
        let of_weights = dead(&config, &model, &present)?;
        // The period ends where the slowest log ends, so that all logs cover it.
        let behind = there.iter().filter_map(|i| self.watched[*i].behind(unix_ns, every)).max().unwrap_or(0);
        let span_ns = span_ns(self.cut_ns, last_ns, unix_ns, behind, every);
        self.cut_ns = span_ns.1;
        let mut vms = vec![None; self.names.len()];
        for (k, i) in there.iter().enumerate() {
            let dead = of_weights.iter().find(|(j, _)| *j == k).map(|(_, why)| why.clone());
            vms[*i] = Some(self.vm(*i, (last_ns, unix_ns), span_ns, (of_host.vms[k], dead), notes));
        }
        notes.extend(self.last_set.no_longer_holds(&config));
        let period = Period { span_ns, vms, pcpus: of_host.pcpus };
        Ok(Some(Seen { config, model, there, period, unix_ns }))
    }

    /// Indexes into the service levels: those whose VM runs and whose number of requests is known. Notes say what the others
    /// lack.
    ///
    /// # Errors
    /// If the next scrape must come before this period is known.
    fn there(&mut self, config: &HostConfig, notes: &mut Vec<String>) -> Result<Vec<usize>, Fault> {
        let every = self.asked.sla.period;
        Watched::look(&mut self.watched, true, every);
        let now_ns = unix_ns();
        let is_there = |name: &str| config.vms.iter().any(|vm| vm.name == name);
        let sight = |(name, watched): (&&str, &mut Watched)| {
            is_there(name).then(|| watched.sight(self.cut_ns, now_ns, every))
        };
        let sights: Vec<Option<Sight>> = self.names.iter().zip(&mut self.watched).map(sight).collect();
        let mut there = Vec::new();
        for (i, (name, sight)) in self.names.iter().zip(sights).enumerate() {
            match sight {
                Some(Sight::Whole) => there.push(i),
                None => notes.push(format!("VM {name} does not run here")),
                Some(Sight::Lost(why)) => notes.push(format!(
                    "cannot see the requests of VM {name}: {why}; vsteer keeps its weight and counts the CPU it uses as needed"
                )),
                Some(Sight::Later(why)) => {
                    return Err(Fault { what: format!("cannot see the requests of VM {name:?}: {}", why.what), ..why });
                }
            }
        }
        for (name, watched) in self.names.iter().zip(&mut self.watched) {
            notes.extend(watched.notes().into_iter().map(|note| format!("{name}: {note}")));
        }
        Ok(there)
    }

    /// One VM in the period whose requests ended in `span_ns`, between samples at `last_ns` and `now_ns`.
    fn vm(
        &mut self,
        i: usize,
        (last_ns, now_ns): (u64, u64),
        span_ns: (u64, u64),
        (vm, dead): (Vm, Option<Dead>),
        notes: &mut Vec<String>,
    ) -> VmPeriod {
        let (name, watched) = (self.names[i], &mut self.watched[i]);
        let (requests, lots) = watched.take(span_ns);
        if let Some(note) = ahead(name, watched.waiting(), now_ns) {
            notes.push(note);
            watched.waiting().clear();
        }
        let (requests, note) = without_old(name, requests, last_ns, now_ns);
        notes.extend(note);
        let used = vm.cpu_ns as f64 / now_ns.saturating_sub(last_ns).max(1) as f64;
        notes.extend(unseen(name, &requests, used, watched.missing()));
        VmPeriod { requests, lots, vm, dead }
    }

    /// What to do after the period, and the pCPUs that the driver domain used.
    fn decide(
        &mut self,
        config: &HostConfig,
        model: &HostModel,
        there: &[usize],
        period: Period,
        resting: &Resting,
        notes: &mut Vec<String>,
    ) -> (Outcome, f64) {
        let names = &self.names;
        let present: Vec<&str> = there.iter().map(|i| names[*i]).collect();
        let requests: usize = period.vms.iter().flatten().map(|v| v.requests.len()).sum();
        let (from_ns, to_ns) = period.span_ns;
        let requests_hz = requests as f64 / (to_ns.saturating_sub(from_ns).max(1) as f64 / 1e9);
        let lots: Vec<Option<Lots>> =
            period.vms.iter().map(|v| v.as_ref().and_then(|v| v.lots.clone())).collect();
        let not_simulated = RefCell::new(None);
        let host = |turned: &[usize]| {
            driven::driver(config)?;
            let turned: Vec<&str> = turned.iter().map(|i| names[*i]).collect();
            let host = driven::simulated(config, model, &turned, requests_hz);
            host.map_err(|why| not_simulated.replace(Some(why))).ok()
        };
        let driver = driven::passing(config, model, &present, requests_hz);
        let outcome = self.holder.step(period, Around { between: &|| resting.rest(), host: &host, driver });
        if let Some(why) = not_simulated.into_inner() {
            notes.push(format!(
                "the times leave out Domain-0's part in requests: cannot simulate the host: {why}"
            ));
        }
        resting.rest();
        for ((promise, seen), lots) in self.asked.sla.promises.iter().zip(&outcome.seen).zip(&lots) {
            let known = seen.as_ref().zip(lots.as_ref());
            notes.extend(known.and_then(|(seen, lots)| unsure(promise, seen.response.p95_s, lots)));
        }
        (outcome, driver.run_pcpus)
    }

    /// Makes these steps if weights are to be set. Returns whether they were made.
    fn set(&mut self, config: &HostConfig, unix_ns: u64, steps: &[Step], why: &str) -> Result<bool, Fault> {
        if !self.asked.set || steps.is_empty() {
            return Ok(false);
        }
        let setting = Setting { folder: &journal_folder(), connect: self.asked.connect, unix_ns };
        self.steering.set(config, self.host.actuator()?, setting, steps, why)?;
        self.last_set.remember(steps);
        Ok(true)
    }

    /// Writes a plan that moves a VM, if one must move and another host has room. Returns the file.
    fn moved(&mut self, config: &HostConfig, outcome: &Outcome, notes: &mut Vec<String>) -> Option<PathBuf> {
        let Decision::Move { candidates, .. } = &outcome.decision else { return None };
        if self.hosts.is_empty() {
            if let Some(first) = candidates.first() {
                let name = self.names[first.vm];
                let vm = config.vms.iter().find(|vm| vm.name == name);
                let command = vm.and_then(|vm| move_command(&vm.manager, name, Some(&vm.id.0)));
                notes.push(command.map_or_else(
                    || format!("{name} must move to another host"),
                    |command| {
                        format!("to move the VM: {command} (untried); for a plan of libvirt's VMs, name hosts in [[host]]")
                    },
                ));
            }
            return None;
        }
        match self.hosts.plan(config, &self.asked.sla.promises, outcome, candidates) {
            Ok(file) => {
                let to = self.asked.connect.map_or(String::new(), |uri| format!(" --connect '{uri}'"));
                notes.push(format!("to move the VM: vsteer apply {} --yes{to}", file.display()));
                Some(file)
            }
            Err(fault) => {
                notes.push(fault.to_string());
                None
            }
        }
    }
}

/// Is a scrape due when this many reads of a period are left?
fn scrapes(left: u32, period: Duration) -> bool {
    left > 0 && left.is_multiple_of(POLLS_A_SCRAPE) && period >= SCRAPED_LEAST
}

/// Does a fault in one period end the loop? What cannot be read now may be readable in the next period; weights stay
/// as they are. If weights cannot be set, or the former ones cannot be written down, the loop ends.
fn ends_all(kind: FaultKind) -> bool {
    matches!(kind, FaultKind::NotApplied | FaultKind::NoPrivilege | FaultKind::NoSpace)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn histograms_are_scraped_some_times_a_period_but_not_at_its_end() {
        let times =
            |period_s| (0..POLLS).filter(|left| scrapes(*left, Duration::from_secs(period_s))).count();
        assert_eq!((times(60), times(10), times(9)), (9, 9, 0));
        assert!(!scrapes(0, Duration::from_secs(60)), "the end has a look of its own");
    }

    #[test]
    fn what_cannot_be_seen_ends_nothing() {
        for kind in [FaultKind::Failed, FaultKind::NothingThere, FaultKind::BadInput, FaultKind::Unsupported]
        {
            assert!(!ends_all(kind), "{kind:?}");
        }
        for kind in [FaultKind::NotApplied, FaultKind::NoPrivilege, FaultKind::NoSpace] {
            assert!(ends_all(kind), "{kind:?}");
        }
    }
}
