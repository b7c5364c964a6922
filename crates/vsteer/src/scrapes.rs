//! Which requests came in an interval, according to saved scrapes of a Prometheus histogram?
//!
//! A folder holds one file per scrape, as `curl -o $(date +%s).prom URL` saves it. The name gives its time in seconds since
//! 1970. If it does not, the file's modification time counts, which a copy may have lost.
//!
//! The requests of an interval are the difference of the two scrapes nearest to its ends, and its CPU time is scaled to the
//! time between them. A scrape further away than [`NEAR`] of the interval does not count. Requests between two scrapes are
//! spread apart ([`vsteer_sla::histogram`]), so each stays in its part of the interval.

use crate::logs::Log;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use vsteer_core::requests::Answered;
use vsteer_core::{Fault, FaultKind};
use vsteer_record::prometheus::{Histogram, Scrape};
use vsteer_record::scraped::Page;
use vsteer_sla::histogram::{self, Lots};
use vsteer_sla::window::{Interval, Vm, interval};

/// A scrape this part of an interval away from its end is at its end.
const NEAR: u64 = 10;
/// Numbers that are seconds since 1970 and no date: from 2001 to 2286.
const OUR_TIME_S: std::ops::Range<f64> = 1e9..1e10;
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
    let saved = |l: &&Log| l.file.is_dir();
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
                [] => "give VM=FOLDER, a folder of saved scrapes".to_owned(),
                there => format!("VMs with a folder: {}", there.join(", ")),
            }))
        }
    }
}

/// A VM's scrapes, in the order of their times.
#[derive(Debug)]
pub struct Saved {
    whose: String,
    folder: PathBuf,
    /// ns since 1970, and the file.
    all: Vec<(u64, PathBuf, Scrape)>,
}

impl Saved {
    /// Reads a folder. Files whose names begin with a dot are passed over.
    ///
    /// # Errors
    /// As for reading files; `BadInput` for a file that is no scrape; `NothingThere` for fewer than two, or where none has the histogram.
    pub fn read(log: &Log, of: &Histogram) -> Result<Saved, Fault> {
        let folder = &log.file;
        let whose = format!("VM {:?}", log.vm);
        let failed = |e: std::io::Error| Fault::io(format!("reading {}", folder.display()), &e);
        let mut all = Vec::new();
        for entry in std::fs::read_dir(folder).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            let hidden = path.file_name().is_none_or(|n| n.as_encoded_bytes().starts_with(b"."));
            if hidden || path.is_dir() {
                continue;
            }
            let text = Page::read(&path)?;
            let scrape = Scrape::read(&text.text, of).map_err(|f| {
                let what = format!("{}: {}", path.display(), f.what);
                Fault { what, ..f }.help("keep only saved scrapes in that folder")
            })?;
            all.push((named_ns(&path).unwrap_or(text.unix_ns), path, scrape));
        }
        all.sort_by(|a, b| (a.0, &a.1).cmp(&(b.0, &b.1)));
        if all.len() < 2 {
            let what = format!("{whose}: {} holds {} scrapes", folder.display(), all.len());
            return Err(Fault::new(FaultKind::NothingThere, what)
                .because("requests of an interval are the difference of two scrapes")
                .help("save a scrape at least at each end of an interval"));
        }
        // Before a server is asked for the first time it may have none.
        let lacks = all.iter().map(|(_, _, scrape)| scrape.checked()).reduce(Result::or).unwrap_or(Ok(()));
        lacks.map_err(|f| Fault { what: format!("{}: {}", folder.display(), f.what), ..f })?;
        Ok(Saved { whose, folder: folder.clone(), all })
    }

    /// The scrape nearest to a moment, by its place.
    fn nearest(&self, at_ns: u64, within_ns: u64) -> Result<usize, Fault> {
        let apart = |i: &usize| self.all[*i].0.abs_diff(at_ns);
        let nearest = (0..self.all.len()).min_by_key(apart).filter(|i| apart(i) <= within_ns);
        nearest.ok_or_else(|| {
            let s = |ns: u64| ns as f64 / SECOND_NS;
            let apart_s = s((0..self.all.len()).map(|i| apart(&i)).min().unwrap_or(0));
            let what = format!("{}: {} has no scrape near time {:.0}", self.whose, self.folder.display(), s(at_ns));
            Fault::new(FaultKind::NothingThere, what)
                .because(format!(
                    "an interval begins or ends there (seconds since 1970); the nearest scrape is {apart_s:.1} s away, the limit is {:.1} s",
                    s(within_ns)
                ))
                .help("use a longer --interval, or name each file by its time in seconds since 1970")
        })
    }

    /// What came in an interval, ns since 1970; `None` as [`interval`].
    ///
    /// # Errors
    /// `NothingThere` where no scrape is near one of its ends or the histogram is missing; as [`Scrape::since`], with the file.
    pub fn interval(&self, (from_ns, to_ns): (u64, u64), vm: Vm) -> Result<Option<Interval>, Fault> {
        let within_ns = to_ns.saturating_sub(from_ns) / NEAR;
        let (first, last) = (self.nearest(from_ns, within_ns)?, self.nearest(to_ns, within_ns)?);
        let (mut requests, mut lots) = (Vec::new(), None);
        for two in self.all[first..=last].windows(2) {
            let [(before_ns, _, before), (at_ns, file, now)] = two else { continue };
            let of_file = |f: Fault| Fault { what: format!("{}: {}", file.display(), f.what), ..f };
            let between = now.since(before).map_err(of_file)?;
            if between.resets > 0 {
                eprintln!(
                    "vsteer: {}: the counters were reset; vsteer misses the requests just before",
                    file.display()
                );
            }
            requests.extend(histogram::requests(&between.counted, (*before_ns, *at_ns)).map_err(of_file)?);
            lots = Lots::both(lots, &Some(Lots::of(&between.counted)));
        }
        let span = (self.all[first].0, self.all[last].0);
        // One that took longer than what lies between two scrapes was counted there all the same.
        let came = |r: Answered| Answered { began_ns: r.began_ns.max(span.0), ..r };
        let requests: Vec<Answered> = requests.into_iter().map(came).collect();
        let part = span.1.saturating_sub(span.0) as f64 / to_ns.saturating_sub(from_ns).max(1) as f64;
        let vm = Vm { cpu_ns: (vm.cpu_ns as f64 * part) as u64, ..vm };
        Ok(interval(&requests, span, vm).map(|i| Interval { lots, ..i }))
    }
}

/// When a scrape was taken, as its name has it, ns since 1970.
fn named_ns(path: &Path) -> Option<u64> {
    let s: f64 = path.file_stem()?.to_str()?.parse().ok()?;
    OUR_TIME_S.contains(&s).then_some((s * SECOND_NS) as u64)
}

#[cfg(test)]
mod tests;
