//! Which requests came in an interval, according to saved scrapes of a Prometheus histogram?
//!
//! A folder holds one file per scrape, as `curl -o $(date +%s).prom URL` saves it. The name gives its time in seconds since
//! 1970. If it does not, the file's modification time counts, which a copy may have lost.
//!
//! The requests of an interval are the difference of the two scrapes nearest to its ends, and its CPU time is scaled to the
//! time between them. A scrape further away than [`NEAR`] of the interval does not count. Requests between two scrapes are
//! spread apart ([`vsteer_sla::histogram`]), so each stays in its part of the interval.
//!
//! vsteer reads one scrape after the other and keeps only their differences. A scrape that is empty, cut or unreadable is
//! passed over with a note: the next one counts since the last that was read.

use crate::logs::Log;
use crate::text::note;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::UNIX_EPOCH;
use vsteer_core::plural::counted;
use vsteer_core::requests::Answered;
use vsteer_core::{Fault, FaultKind, limits};
use vsteer_record::prometheus::{Between, Histogram, Scrape};
use vsteer_record::scraped::Page;
use vsteer_record::unit::Unit;
use vsteer_sla::histogram::{self, Lots};
use vsteer_sla::window::{Interval, Vm, interval};

/// A scrape this part of an interval away from its end is at its end.
const NEAR: u64 = 10;
/// Numbers that are seconds since 1970 and no date: from 2001 to 2286.
const OUR_TIME_S: std::ops::Range<f64> = 1e9..1e10;
const SECOND_NS: f64 = 1e9;
/// How many scrapes that were passed over are named.
const TOLD: usize = 5;

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
    all: Vec<Kept>,
}

/// A scrape. Of its page, only the difference from the scrape before is kept.
#[derive(Debug)]
struct Kept {
    /// ns since 1970.
    at_ns: u64,
    file: PathBuf,
    /// What the histogram counted since the scrape before; `None` in the first scrape, and before the histogram is there.
    since: Option<Result<Between, Fault>>,
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
        let folder = &log.file;
        let mut reading = Reading::new(of, unit);
        for (at_ns, file) in listed(folder)? {
            reading.file(at_ns, file);
        }
        let whose = format!("VM {:?}", log.vm);
        if reading.all.len() < 2 {
            return Err(reading.too_few(&whose, folder));
        }
        reading.tell(folder, note);
        // Before a server is asked for the first time it may have none.
        match reading.lacks.filter(|_| !reading.is_there) {
            Some(f) => Err(Fault { what: format!("{}: {}", folder.display(), f.what), ..f }),
            None => Ok(Saved { whose, folder: folder.clone(), all: reading.all }),
        }
    }

    /// The scrape nearest to a moment, by its place.
    fn nearest(&self, at_ns: u64, within_ns: u64) -> Result<usize, Fault> {
        let apart_ns = |i: &usize| self.all[*i].at_ns.abs_diff(at_ns);
        let next = self.all.partition_point(|kept| kept.at_ns < at_ns);
        let beside = next.saturating_sub(1)..(next + 1).min(self.all.len());
        let nearest = beside.min_by_key(apart_ns);
        nearest.filter(|i| apart_ns(i) <= within_ns).ok_or_else(|| {
            let s = |ns: u64| ns as f64 / SECOND_NS;
            let apart_s = s(nearest.map_or(0, |i| apart_ns(&i)));
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
    /// `NothingThere` where no scrape is near one of its ends; as [`Scrape::since`], with the file.
    pub fn interval(&self, (from_ns, to_ns): (u64, u64), vm: Vm) -> Result<Option<Interval>, Fault> {
        let within_ns = to_ns.saturating_sub(from_ns) / NEAR;
        let (first, last) = (self.nearest(from_ns, within_ns)?, self.nearest(to_ns, within_ns)?);
        let (mut requests, mut lots) = (Vec::new(), None);
        for two in self.all[first..=last].windows(2) {
            let [Kept { at_ns: before_ns, .. }, Kept { at_ns, file, since: Some(since) }] = two else {
                continue;
            };
            let of_file = |f: Fault| Fault { what: format!("{}: {}", file.display(), f.what), ..f };
            let between = since.clone().map_err(of_file)?;
            if between.resets > 0 {
                let file = file.display();
                note(format!("{file}: the counters were reset; vsteer misses the requests just before"));
            }
            requests.extend(histogram::requests(&between.counted, (*before_ns, *at_ns)).map_err(of_file)?);
            lots = Lots::both(lots, &Some(Lots::of(&between.counted)));
        }
        let span = (self.all[first].at_ns, self.all[last].at_ns);
        // One that took longer than what lies between two scrapes was counted there all the same.
        let came = |r: Answered| Answered { began_ns: r.began_ns.max(span.0), ..r };
        let requests: Vec<Answered> = requests.into_iter().map(came).collect();
        let part = span.1.saturating_sub(span.0) as f64 / to_ns.saturating_sub(from_ns).max(1) as f64;
        let vm = Vm { cpu_ns: (vm.cpu_ns as f64 * part) as u64, ..vm };
        Ok(interval(&requests, span, vm).map(|i| Interval { lots, ..i }))
    }
}

/// The files of a folder with their times, in the order of these.
fn listed(folder: &Path) -> Result<Vec<(u64, PathBuf)>, Fault> {
    let failed = |e: std::io::Error| Fault::io(format!("reading {}", folder.display()), &e);
    let mut all = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let file = entry.map_err(failed)?.path();
        let hidden = file.file_name().is_none_or(|n| n.as_encoded_bytes().starts_with(b"."));
        // A link may lead to a file, and a pipe would not end.
        let Ok(metadata) = file.metadata() else { continue };
        if hidden || !metadata.is_file() {
            continue;
        }
        if all.len() == limits::METRICS_FOLDER {
            let what = format!("{} holds more than {} files", folder.display(), limits::METRICS_FOLDER);
            return Err(
                Fault::new(FaultKind::BadInput, what).help("move the scrapes of other days elsewhere")
            );
        }
        let changed = metadata.modified().ok().and_then(|at| at.duration_since(UNIX_EPOCH).ok());
        let at_ns = named_ns(&file).or(changed.map(|at| at.as_nanos() as u64)).unwrap_or(0);
        all.push((at_ns, file));
    }
    all.sort();
    Ok(all)
}

/// A folder that is being read, one scrape after the other.
struct Reading<'a> {
    of: &'a Histogram,
    unit: Option<Unit>,
    all: Vec<Kept>,
    /// The last scrape that was kept.
    last: Option<Scrape>,
    /// Has a scrape had the histogram?
    is_there: bool,
    /// Why the last scrape without it has it not.
    lacks: Option<Fault>,
    /// The first scrapes that were passed over, with the reasons, and how many there were.
    passed: (usize, Vec<(PathBuf, String)>),
    /// The first file with lines that were passed over, and what they are.
    odd: Option<(PathBuf, String)>,
    assumes_seconds: bool,
    /// Most bounds of buckets that were left out.
    left_out: usize,
}

impl<'a> Reading<'a> {
    fn new(of: &'a Histogram, unit: Option<Unit>) -> Reading<'a> {
        Reading {
            of,
            unit,
            all: Vec::new(),
            last: None,
            is_there: false,
            lacks: None,
            passed: (0, Vec::new()),
            odd: None,
            assumes_seconds: false,
            left_out: 0,
        }
    }

    fn file(&mut self, at_ns: u64, file: PathBuf) {
        let now = match self.scrape(&file) {
            Ok(now) => now,
            Err(why) => return self.pass_over(file, why),
        };
        // Nothing stands before the first scrape that would show that it was cut. The second one does.
        if let ([_], Some(why)) =
            (self.all.as_slice(), self.last.as_ref().and_then(|last| last.cut_beside(&now)))
            && let Some(first) = self.all.pop()
        {
            self.pass_over(first.file, why.to_owned());
            self.last = None;
        }
        let has = now.checked();
        self.is_there |= has.is_ok();
        let since = self.last.as_ref().filter(|_| has.is_ok()).map(|last| now.since(last));
        if let Some(Ok(since)) = &since {
            self.left_out = self.left_out.max(since.left_out);
        }
        self.lacks = has.err().or(self.lacks.take());
        self.assumes_seconds |= now.assumes_seconds();
        if let (None, Some(odd)) = (&self.odd, now.passed_over()) {
            self.odd = Some((file.clone(), odd));
        }
        self.all.push(Kept { at_ns, file, since });
        self.last = Some(now);
    }

    /// The scrape in a file, or why it is passed over.
    fn scrape(&self, file: &Path) -> Result<Scrape, String> {
        let page = Page::read(file).map_err(|f| f.cause.unwrap_or(f.what))?;
        if page.bytes.is_empty() {
            return Err("the file is empty".to_owned());
        }
        let now = Scrape::read(&page.bytes, self.of, self.unit).map_err(|f| match f.cause {
            Some(cause) => format!("{}: {cause}", f.what),
            None => f.what,
        })?;
        if !now.has_samples() {
            return Err("it holds no sample".to_owned());
        }
        if let Some(why) = self.last.as_ref().and_then(|last| now.cut_beside(last)) {
            return Err(why.to_owned());
        }
        if self.is_there && now.checked().is_err() {
            return Err(format!("it does not hold the histogram {}, as earlier scrapes do", self.of));
        }
        Ok(now)
    }

    fn pass_over(&mut self, file: PathBuf, why: String) {
        self.passed.0 += 1;
        if self.passed.1.len() < TOLD {
            self.passed.1.push((file, why));
        }
    }

    /// Notes what was passed over and what was assumed.
    fn tell(&self, folder: &Path, note: &mut dyn FnMut(&str)) {
        let (passed, first) = &self.passed;
        for (file, why) in first {
            note(&format!("{}: passed over this scrape: {why}", file.display()));
        }
        if *passed > first.len() {
            let more = counted(passed - first.len(), "more scrape");
            note(&format!("{}: passed over {more} for such reasons", folder.display()));
        }
        if let Some((file, odd)) = &self.odd {
            note(&format!("{}: {odd}", file.display()));
        }
        if self.left_out > 0 {
            let bounds = counted(self.left_out, "bound");
            note(&format!(
                "{}: the histogram {} has other buckets in some series or scrapes; vsteer leaves out up to {bounds} that not all have",
                folder.display(),
                self.of
            ));
        }
        if self.assumes_seconds {
            note(&format!(
                "{}: vsteer assumes that times of the histogram {} are seconds; neither its name nor the scrapes tell the unit",
                folder.display(),
                self.of
            ));
        }
    }

    /// The fault that fewer than two scrapes are left.
    fn too_few(&self, whose: &str, folder: &Path) -> Fault {
        let readable = if self.passed.0 > 0 { "readable " } else { "" };
        let scrapes = counted(self.all.len(), "scrape");
        let (n, noun) = scrapes.split_once(' ').unwrap_or((&scrapes, ""));
        let what = format!("{whose}: {} holds {n} {readable}{noun}", folder.display());
        Fault::new(FaultKind::NothingThere, what)
            .because(match self.passed.1.first() {
                Some((file, why)) => format!("{}: {why}", file.display()),
                None => "requests of an interval are the difference of two scrapes".to_owned(),
            })
            .help("save a scrape at least at each end of an interval")
    }
}

/// When a scrape was taken, as its name has it, ns since 1970.
fn named_ns(path: &Path) -> Option<u64> {
    let s: f64 = path.file_stem()?.to_str()?.parse().ok()?;
    OUR_TIME_S.contains(&s).then_some((s * SECOND_NS) as u64)
}

#[cfg(test)]
mod tests;
