//! Which requests came in an interval, according to scrapes of a Prometheus histogram?
//!
//! **A folder** ([`folder`]) holds one file per scrape, as `curl -o $(date +%s).prom URL` saves it. The name gives its time
//! in seconds since 1970. If it does not, the file's modification time counts, which a copy may have lost.
//!
//! **A Prometheus server** ([`server`]) stored the scrapes of one target, or of several.
//!
//! The requests of an interval are the difference of the two scrapes nearest to its ends, and its CPU time is scaled to the
//! time between them. A scrape further away than [`NEAR`] of the interval does not count. Requests between two scrapes are
//! spread apart ([`vsteer_sla::histogram`]), so each stays in its part of the interval.
//!
//! vsteer reads one scrape after the other and keeps only their differences. A scrape that is empty, cut or unreadable is
//! passed over with a note: the next one counts since the last that was read.

use crate::logs::Log;
use crate::text::note;
use std::str::FromStr;
use vsteer_core::requests::Answered;
use vsteer_core::{Fault, FaultKind};
use vsteer_record::prometheus::{Between, Histogram};
use vsteer_record::unit::Unit;
use vsteer_sla::histogram::{self, Lots};
use vsteer_sla::window::{Interval, Vm, interval};

mod folder;
mod reading;
#[cfg(feature = "host")]
mod server;

#[cfg(feature = "host")]
pub use server::Asked;

/// A scrape this part of an interval away from its end is at its end.
const NEAR: u64 = 10;
const SECOND_NS: f64 = 1e9;

/// Which histogram, and whose if it is not all VMs': `[VM=]HISTOGRAM`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Named {
    pub vm: Option<String>,
    pub of: Histogram,
}

impl FromStr for Named {
    type Err = String;

    fn from_str(text: &str) -> Result<Named, String> {
        // What stands in braces has such signs of its own.
        let braces = text.find('{').unwrap_or(text.len());
        match text[..braces].find('=') {
            Some(at) => Ok(Named { vm: Some(text[..at].to_owned()), of: text[at + 1..].parse()? }),
            None => Ok(Named { vm: None, of: text.parse()? }),
        }
    }
}

/// The histogram of a VM whose scrapes were saved.
///
/// # Errors
/// `Usage` where none is named.
pub fn of_vm<'a>(all: &'a [Named], vm: &str) -> Result<&'a Histogram, Fault> {
    let of = |whose: Option<&str>| all.iter().find(|n| n.vm.as_deref() == whose).map(|n| &n.of);
    of(Some(vm)).or_else(|| of(None)).ok_or_else(|| {
        Fault::new(
            FaultKind::Usage,
            format!("VM {vm:?}: vsteer does not know which histogram of the scrapes holds its requests"),
        )
        .help("name it: --histogram http_request_duration_seconds")
    })
}

/// That every histogram is somebody's whose scrapes were saved.
///
/// # Errors
/// `Usage`, naming it.
pub fn all_used(all: &[Named], logs: &[Log]) -> Result<(), Fault> {
    let saved = |l: &&Log| l.file.is_dir() || l.is_server();
    let used = |n: &Named| logs.iter().filter(saved).any(|l| n.vm.as_ref().is_none_or(|vm| *vm == l.vm));
    match all.iter().find(|n| !used(n)) {
        None => Ok(()),
        Some(odd) => {
            let whose = odd.vm.as_deref().map_or(String::new(), |vm| format!("{vm}="));
            let there: Vec<&str> = logs.iter().filter(saved).map(|l| l.vm.as_str()).collect();
            Err(Fault::new(
                FaultKind::Usage,
                format!("--histogram {whose}{}: no VM has scrapes with this histogram", odd.of),
            )
            .help(match there.as_slice() {
                [] => {
                    "give VM=FOLDER, a folder of saved scrapes, or VM=URL of a Prometheus server".to_owned()
                }
                there => format!("VMs with scrapes: {}", there.join(", ")),
            }))
        }
    }
}

/// A VM's scrapes.
#[derive(Debug)]
pub struct Saved {
    /// The VM, and where its scrapes are from.
    whose: String,
    /// What to do where no scrape is near an interval's end.
    help: &'static str,
    /// At least one. A folder is one target.
    targets: Vec<Target>,
}

/// The scrapes of one target, in the order of their times. At least two.
#[derive(Debug)]
struct Target {
    all: Vec<Kept>,
}

/// A scrape. Of its page, only the difference from the scrape before is kept.
#[derive(Debug)]
struct Kept {
    /// ns since 1970.
    at_ns: u64,
    /// The file, or the server's target and the time.
    place: String,
    /// What the histogram counted since the scrape before; `None` in the first scrape, and before the histogram is there.
    since: Option<Result<Between, Fault>>,
}

impl Target {
    /// The scrape nearest to a moment. If it is not within `within_ns`: how far away it is.
    fn nearest(&self, at_ns: u64, within_ns: u64) -> Result<u64, u64> {
        let apart_ns = |at: &u64| at.abs_diff(at_ns);
        let next = self.all.partition_point(|kept| kept.at_ns < at_ns);
        let beside = next.saturating_sub(1)..(next + 1).min(self.all.len());
        let nearest = self.all[beside].iter().map(|kept| kept.at_ns).min_by_key(apart_ns).unwrap_or(0);
        if apart_ns(&nearest) <= within_ns { Ok(nearest) } else { Err(apart_ns(&nearest)) }
    }

    /// What was counted in a time, in so far as scrapes tell, and in which lots. `shift_ns`: tells draws of targets with
    /// equal times apart.
    fn counted(
        &self,
        (from_ns, to_ns): (u64, u64),
        shift_ns: u64,
    ) -> Result<(Vec<Answered>, Option<Lots>), Fault> {
        let (mut requests, mut lots) = (Vec::new(), None);
        for two in self.all.windows(2) {
            let [Kept { at_ns: before_ns, .. }, Kept { at_ns, place, since: Some(since) }] = two else {
                continue;
            };
            if *at_ns <= from_ns || *before_ns >= to_ns {
                continue;
            }
            let of_place = |f: Fault| Fault { what: format!("{place}: {}", f.what), ..f };
            let between = since.clone().map_err(of_place)?;
            if between.resets > 0 {
                note(format!("{place}: the counters were reset; vsteer misses the requests just before"));
            }
            let span = (*before_ns + shift_ns, *at_ns);
            requests.extend(histogram::requests(&between.counted, span).map_err(of_place)?);
            lots = Lots::both(lots, &Some(Lots::of(&between.counted)));
        }
        // Scrapes of another target may lie beyond the time.
        requests.retain(|r| (from_ns..=to_ns).contains(&(r.began_ns + r.took_ns)));
        Ok((requests, lots))
    }
}

impl Saved {
    /// Reads a folder. Files whose names begin with a dot are passed over, and so are scrapes that cannot be read, each
    /// with a note. `unit`: the unit of the histogram's times; without it, the one that its name or the scrapes tell, else
    /// seconds, with a note.
    ///
    /// # Errors
    /// As for reading the folder; `NothingThere` for fewer than two scrapes, or where none has the histogram; `BadInput` for
    /// too many files.
    pub fn read(
        log: &Log,
        of: &Histogram,
        unit: Option<Unit>,
        note: &mut dyn FnMut(&str),
    ) -> Result<Saved, Fault> {
        folder::read(log, of, unit, note)
    }

    /// Between which scrapes an interval lies. At both ends all targets count that have a scrape there: one may begin or end
    /// in between.
    fn span(&self, (from_ns, to_ns): (u64, u64)) -> Result<(u64, u64), Fault> {
        let within_ns = to_ns.saturating_sub(from_ns) / NEAR;
        let first = self.near(from_ns, within_ns)?.into_iter().max().unwrap_or(from_ns);
        let last = self.near(to_ns, within_ns)?.into_iter().min().unwrap_or(to_ns);
        Ok((first, last))
    }

    /// The nearest scrapes of all targets that have one near to this moment. At least one.
    fn near(&self, at_ns: u64, within_ns: u64) -> Result<Vec<u64>, Fault> {
        let nearest = || self.targets.iter().map(|target| target.nearest(at_ns, within_ns));
        let near: Vec<u64> = nearest().filter_map(Result::ok).collect();
        if !near.is_empty() {
            return Ok(near);
        }
        let s = |ns: u64| ns as f64 / SECOND_NS;
        let apart_ns = nearest().filter_map(Result::err).min().unwrap_or(0);
        let what = format!("{} has no scrape near time {:.0}", self.whose, s(at_ns));
        Err(Fault::new(FaultKind::NothingThere, what)
            .because(format!(
                "an interval begins or ends there (seconds since 1970); the nearest scrape is {:.1} s away, the limit is {:.1} s",
                s(apart_ns),
                s(within_ns)
            ))
            .help(self.help))
    }

    /// What came in an interval, ns since 1970; `None` as [`interval`].
    ///
    /// # Errors
    /// `NothingThere` where no scrape is near one of its ends; as [`vsteer_record::prometheus::Scrape::since`], with the
    /// file.
    pub fn interval(&self, window: (u64, u64), vm: Vm) -> Result<Option<Interval>, Fault> {
        let span = self.span(window)?;
        let (mut requests, mut lots): (Vec<Answered>, Option<Lots>) = (Vec::new(), None);
        for (target, shift_ns) in self.targets.iter().zip(0..) {
            let (counted, of) = target.counted(span, shift_ns)?;
            requests.extend(counted);
            lots = match (lots, of) {
                (Some(lots), Some(of)) => Some(lots.beside(&of)),
                (lots, of) => lots.or(of),
            };
        }
        // One that took longer than what lies between two scrapes was counted there all the same.
        let came = |r: Answered| Answered { began_ns: r.began_ns.max(span.0), ..r };
        let requests: Vec<Answered> = requests.into_iter().map(came).collect();
        let part = span.1.saturating_sub(span.0) as f64 / window.1.saturating_sub(window.0).max(1) as f64;
        let vm = Vm { cpu_ns: (vm.cpu_ns as f64 * part) as u64, ..vm };
        Ok(interval(&requests, span, vm).map(|i| Interval { lots, ..i }))
    }
}

#[cfg(test)]
mod tests;
