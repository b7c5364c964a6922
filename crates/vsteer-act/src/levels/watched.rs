//! Which requests of a VM have ended, according to its log or its histogram?
//!
//! **A log** is read as it grows. **A histogram** is scraped several times per period: vsteer draws requests for the
//! time between two scrapes from their difference ([`vsteer_sla::histogram`]), and more scrapes show better how
//! requests cluster.
//!
//! A failed scrape loses nothing while the server lives, because its counters keep counting and the next scrape has
//! them. So vsteer judges an incompletely known period together with the next one, and keeps the weights. If a server
//! is silent for [`WAITS`] periods, steering continues without it, as with a VM that is off. When the server returns,
//! its counters count from then on.

use super::file::Source;
use std::path::{Path, PathBuf};
use std::time::Duration;
use vsteer_core::limits;
use vsteer_core::requests::Answered;
use vsteer_core::{Fault, FaultKind};
use vsteer_host::follow::Follower;
use vsteer_host::scrape::Place;
use vsteer_record::access_log::{Line, Reader, Said};
use vsteer_record::prometheus::{Histogram, Scrape};
use vsteer_record::unit::Unit;
use vsteer_sla::histogram::{self, Lots};

/// With at least this many requests in a period, the end of a log shows how late its lines are written.
const REQUESTS_TO_TELL: usize = 50;
/// How many periods to wait for a silent server.
const WAITS: u32 = 3;
/// A request to a server takes at most this part of a period, and at most [`limits::SCRAPE_TIME`].
const OF_A_PERIOD: u32 = 4;

/// The source of a VM's requests, and what was read from it.
#[derive(Debug)]
pub(super) struct Watched {
    by: By,
    /// Requests that have ended and belong to no period yet.
    ended: Vec<Answered>,
    /// What went wrong at the last read.
    fault: Option<Fault>,
}

#[derive(Debug)]
enum By {
    Log(Box<Followed>),
    Histogram(Box<Scraped>),
}

/// A log that is followed.
#[derive(Debug)]
struct Followed {
    follower: Follower,
    reader: Option<Reader>,
    said: Said,
    file: PathBuf,
    odd: usize,
}

/// A histogram that is scraped.
#[derive(Debug)]
struct Scraped {
    place: Place,
    histogram: Histogram,
    /// As the person said it.
    unit: Option<Unit>,
    /// The last scrape and its time; `None` if the next one must not be compared with it.
    last: Option<(u64, Scrape)>,
    /// All requests that ended since then are known, ns since 1970.
    from_ns: u64,
    /// The difference of two scrapes, and the time of the second.
    lots: Vec<(u64, Lots)>,
    resets: usize,
    /// Notes about the first scrape that nobody was told yet.
    notes: Vec<String>,
}

/// Is a period known?
#[derive(Debug, PartialEq)]
pub(super) enum Sight {
    /// Enough of it to judge.
    Whole,
    /// Not yet: the next scrape covers it too.
    Later(Fault),
    /// Not enough, and no later read will add to it.
    Lost(Fault),
}

impl Watched {
    /// Starts to read. A log need not exist yet; a server must answer.
    ///
    /// # Errors
    /// As for reading a log or asking a server; `NothingThere` for a histogram that is not there.
    pub fn new(source: &Source) -> Result<Watched, Fault> {
        let by = match source {
            Source::Log { file, said } => By::Log(Box::new(Followed::new(file, said)?)),
            Source::Metrics { place, histogram, unit } => {
                let page = place.fetch(limits::SCRAPE_TIME)?;
                let scrape = Scrape::read(&page.bytes, histogram, *unit).map_err(|f| of_place(place, f))?;
                scrape.checked().map_err(|f| of_place(place, f))?;
                let mut notes: Vec<String> = scrape.passed_over().into_iter().collect();
                if scrape.assumes_seconds() {
                    notes.push(format!(
                        "{histogram}: vsteer assumes that its times are seconds; neither its name nor the scrape tells the unit"
                    ));
                }
                By::Histogram(Box::new(Scraped {
                    place: place.clone(),
                    histogram: histogram.clone(),
                    unit: *unit,
                    last: Some((page.unix_ns, scrape)),
                    from_ns: page.unix_ns,
                    lots: Vec::new(),
                    resets: 0,
                    notes,
                }))
            }
        };
        Ok(Watched { by, ended: Vec::new(), fault: None })
    }

    /// Reads all sources. With `scrape`, asks all servers at once, each for a part of the period at most.
    pub fn look(all: &mut [Watched], scrape: bool, period: Duration) {
        let limit = limits::SCRAPE_TIME.min(period / OF_A_PERIOD);
        std::thread::scope(|scope| {
            for Watched { by, ended, fault } in all {
                match by {
                    By::Log(log) => *fault = log.poll(ended).err(),
                    By::Histogram(histogram) if scrape => {
                        scope.spawn(move || *fault = histogram.scrape(ended, limit).err());
                    }
                    By::Histogram(_) => {}
                }
            }
        });
    }

    /// Drops the requests that have ended until now: they belong to no period.
    pub fn forget(&mut self) {
        self.ended.clear();
        if let By::Histogram(of) = &mut self.by {
            of.lots.clear();
        }
    }

    /// Is the period known that began at `from_ns` (since 1970) and ends now? A log always is.
    pub fn sight(&mut self, from_ns: u64, now_ns: u64, period: Duration) -> Sight {
        let By::Histogram(of) = &mut self.by else { return Sight::Whole };
        let sight = of.sight(from_ns, now_ns, period, self.fault.clone());
        if matches!(sight, Sight::Lost(_)) && of.last.is_none() {
            self.ended.clear();
        }
        sight
    }

    /// Why nothing is known: the log does not exist.
    pub fn missing(&self) -> Option<String> {
        match &self.by {
            By::Log(log) if !log.file.exists() => Some(format!("{} does not exist", log.file.display())),
            By::Log(_) | By::Histogram(_) => None,
        }
    }

    /// Notes for the user about the last period.
    pub fn notes(&mut self) -> Vec<String> {
        let mut notes = Vec::new();
        match &mut self.by {
            By::Log(log) => {
                notes.extend(self.fault.take().map(|f| f.to_string()));
                if std::mem::take(&mut log.odd) > 0 {
                    notes.push("some lines of its log do not match the log's format".to_owned());
                }
            }
            By::Histogram(of) => {
                notes.append(&mut of.notes);
                if std::mem::take(&mut of.resets) > 0 {
                    notes.push(
                        "its counters restarted; vsteer missed the last requests before that".to_owned(),
                    );
                }
            }
        }
        notes
    }

    /// How late this source is, ns: servers write their logs in pieces, and a scrape covers the time before it. `None`
    /// for a log with too few requests, or one that is late by more than half a period: buffering does not explain
    /// that.
    pub fn behind(&self, now_ns: u64, period: Duration) -> Option<u64> {
        if let By::Histogram(of) = &self.by {
            return of.last.as_ref().map(|(at, _)| now_ns.saturating_sub(*at));
        }
        let ended = || self.ended.iter().map(|r| r.began_ns + r.took_ns).filter(|at| *at <= now_ns);
        (ended().count() >= REQUESTS_TO_TELL)
            .then(|| now_ns - ended().max().unwrap_or(now_ns))
            .filter(|behind| u128::from(*behind) <= period.as_nanos() / 2)
    }

    /// Takes the requests of a period: those that ended until its end and belong to no earlier one. With the
    /// histogram's buckets, if they come from one.
    pub fn take(&mut self, (from_ns, to_ns): (u64, u64)) -> (Vec<Answered>, Option<Lots>) {
        let (mut now, later) = self.ended.drain(..).partition(|r: &Answered| r.began_ns + r.took_ns <= to_ns);
        self.ended = later;
        let By::Histogram(of) = &mut self.by else { return (now, None) };
        // These are from a time when the VM did not run.
        now.retain(|r| r.began_ns + r.took_ns > from_ns);
        let lots = of.lots.iter().fold(None, |all, (_, lots)| Lots::both(all, &Some(lots.clone())));
        of.lots.retain(|(ended, _)| *ended > to_ns);
        (now, lots)
    }

    /// Requests that belong to no period yet.
    pub fn waiting(&mut self) -> &mut Vec<Answered> {
        &mut self.ended
    }
}

/// A fault in the text that a place holds.
fn of_place(place: &Place, fault: Fault) -> Fault {
    Fault { what: format!("{place}: {}", fault.what), ..fault }
}

impl Followed {
    fn new(file: &Path, said: &Said) -> Result<Followed, Fault> {
        // A log that does not exist yet has no format yet.
        let there = file.metadata().is_ok_and(|m| m.len() > 0);
        let reader = there.then(|| reader(said, file)).transpose()?;
        let (said, file) = (said.clone(), file.to_owned());
        Ok(Followed { follower: Follower::new(&file, true)?, reader, said, file, odd: 0 })
    }

    /// Reads the new lines.
    fn poll(&mut self, ended: &mut Vec<Answered>) -> Result<(), Fault> {
        if self.reader.is_none() && self.file.metadata().is_ok_and(|m| m.len() > 0) {
            self.reader = Some(reader(&self.said, &self.file)?);
        }
        let Some(reader) = &mut self.reader else { return Ok(()) };
        let odd = &mut self.odd;
        self.follower.poll(&mut |line| match reader.line(line) {
            Line::Request(r) => ended.push(r),
            Line::Other | Line::Nothing => {}
            Line::Odd => *odd += 1,
        })
    }
}

/// A reader of a log that decides about a VM's weight, so its unit must be certain.
fn reader(said: &Said, file: &Path) -> Result<Reader, Fault> {
    let reader = Reader::new(said, file)?;
    reader.refuse_assumed_unit(&file.display().to_string())?;
    Ok(reader)
}

impl Scraped {
    /// Scrapes, and adds the difference from the last scrape. If the scrape fails, the last one stays.
    fn scrape(&mut self, ended: &mut Vec<Answered>, limit: Duration) -> Result<(), Fault> {
        let page = self.place.fetch(limit)?;
        let at_ns = page.unix_ns;
        let of_place = |f| of_place(&self.place, f);
        let now = Scrape::read(&page.bytes, &self.histogram, self.unit).map_err(of_place)?;
        match &self.last {
            // Nobody has written the file since the last look.
            Some((before_ns, _)) if *before_ns >= at_ns => return Ok(()),
            Some((before_ns, before)) => {
                let between = now.since(before).map_err(of_place)?;
                ended.extend(histogram::requests(&between.counted, (*before_ns, at_ns)).map_err(of_place)?);
                self.lots.push((at_ns, Lots::of(&between.counted)));
                self.resets += between.resets;
            }
            None => self.from_ns = at_ns,
        }
        self.last = Some((at_ns, now));
        Ok(())
    }

    fn sight(&mut self, from_ns: u64, now_ns: u64, period: Duration, fault: Option<Fault>) -> Sight {
        let period_ns = period.as_nanos() as u64;
        // A failed scrape ends nothing.
        let told = |else_why: String| match &fault {
            Some(fault) => Fault { kind: FaultKind::Failed, ..fault.clone() },
            None => Fault::new(FaultKind::Failed, format!("cannot read {} in time", self.place))
                .because(else_why)
                .help("let the program write it more often, or use a longer period"),
        };
        let Some(at_ns) = self.last.as_ref().map(|(at, _)| *at) else {
            return Sight::Lost(told("no metrics were read yet".to_owned()));
        };
        let age_ns = now_ns.saturating_sub(at_ns);
        let old = told(format!("the last metrics are {:.0} s old", age_ns as f64 / 1e9));
        if age_ns > u64::from(WAITS) * period_ns {
            self.last = None;
            self.lots.clear();
            return Sight::Lost(old);
        }
        if self.from_ns > from_ns + period_ns / 10 {
            return Sight::Lost(told("the first metrics came after the period's start".to_owned()));
        }
        // Half of the time that has passed: a late server is asked again before the period ends.
        if at_ns < from_ns + now_ns.saturating_sub(from_ns) / 2 { Sight::Later(old) } else { Sight::Whole }
    }
}

#[cfg(test)]
mod tests;
