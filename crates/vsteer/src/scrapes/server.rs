//! Scrapes that a Prometheus server stored, asked for over its HTTP API.

use super::reading::Reading;
use super::{NEAR, SECOND_NS, Saved};
use crate::logs::Log;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;
use vsteer_core::plural::counted;
use vsteer_core::{Fault, FaultKind, limits};
use vsteer_host::prometheus::Server;
use vsteer_record::prometheus::Histogram;
use vsteer_record::prometheus::stored::Target;
use vsteer_record::unit::Unit;

/// How many targets a note lists.
const LISTED: usize = 4;

/// What to ask for.
#[derive(Debug, Clone, Copy)]
pub struct Asked<'a> {
    pub of: &'a Histogram,
    pub unit: Option<Unit>,
    /// The file with the server's token.
    pub token: Option<&'a Path>,
    /// The times of recordings, ns since 1970.
    pub times: &'a [(u64, u64)],
    /// The length of an interval; `None`: a recording is one.
    pub interval: Option<Duration>,
}

impl Asked<'_> {
    /// The times to ask for. A scrape that is a little outside of a recording may be at an interval's end.
    fn times(&self) -> Vec<(u64, u64)> {
        let wider = |(from, to): &(u64, u64)| {
            let step = self.interval.map_or(to - from, |i| i.as_nanos() as u64);
            let near = step / NEAR;
            (from.saturating_sub(near), to.saturating_add(near))
        };
        let mut all: Vec<(u64, u64)> = self.times.iter().map(wider).collect();
        all.sort_unstable();
        let mut joined: Vec<(u64, u64)> = Vec::new();
        for (from, to) in all {
            match joined.last_mut() {
                Some(last) if from <= last.1 => last.1 = last.1.max(to),
                _ => joined.push((from, to)),
            }
        }
        joined
    }
}

impl Saved {
    /// Asks the server that `log` names. Notes what it warned of, and what was passed over.
    ///
    /// # Errors
    /// As [`Server::samples`]; `NothingThere` for fewer than two scrapes; `BadInput` for too many.
    pub fn ask(log: &Log, asked: &Asked<'_>, note: &mut dyn FnMut(&str)) -> Result<Saved, Fault> {
        let url = log.file.to_string_lossy();
        let server = Server::new(&url, asked.token)?;
        if asked.token.is_some() && server.is_overheard() {
            note(&format!("{url}: the token goes over the network without encryption; use https"));
        }
        let whose = format!("VM {:?}", log.vm);
        let mut targets: BTreeMap<Target, Reading<'_>> = BTreeMap::new();
        let mut scrapes = 0;
        let warnings = server.samples(asked.of, asked.unit, &asked.times(), &mut |stored| {
            scrapes += 1;
            if scrapes > limits::METRICS_FOLDER {
                return;
            }
            let from = match stored.target.to_string().as_str() {
                "" => url.to_string(),
                target => format!("{url}: {target}"),
            };
            let place = format!("{from} at {:.3}", stored.unix_ns as f64 / SECOND_NS);
            let scrape = stored.scrape.map_err(|f| f.cause.unwrap_or(f.what));
            let reading = targets.entry(stored.target).or_insert_with(|| Reading::new(from, asked.of));
            reading.scrape(stored.unix_ns, place, scrape);
        })?;
        if scrapes > limits::METRICS_FOLDER {
            let what =
                format!("{url}: the histogram {} has more than {} scrapes", asked.of, limits::METRICS_FOLDER);
            return Err(Fault::new(FaultKind::BadInput, what).help("use a shorter recording"));
        }
        warnings.iter().for_each(|warning| note(&format!("{url}: the server warns: {warning}")));
        if targets.len() > 1 {
            note(&several(&url, asked.of, &targets));
        }
        let all = targets.into_values().map(|reading| reading.done(&whose, note));
        let (good, bad): (Vec<_>, Vec<_>) = all.partition(Result::is_ok);
        let targets: Vec<_> = good.into_iter().flatten().collect();
        match bad.into_iter().find_map(Result::err) {
            // A target that was scraped once tells nothing. Beside others, vsteer passes over it.
            Some(fault) if targets.is_empty() => Err(fault),
            fault => {
                fault.iter().for_each(|f| note(&format!("{f}")));
                Ok(Saved {
                    whose: format!("{whose}: {url}"),
                    help: "use a longer --interval, or check that Prometheus scraped the VM at that time",
                    targets,
                })
            }
        }
    }
}

/// That a histogram has several targets, of which some may not be the VM's.
fn several(url: &str, of: &Histogram, targets: &BTreeMap<Target, Reading<'_>>) -> String {
    let mut names: Vec<String> = targets.keys().map(Target::to_string).take(LISTED).collect();
    if targets.len() > LISTED {
        names.push("...".to_owned());
    }
    format!(
        "{url}: the histogram {of} has {}, which vsteer adds up: {}; choose those of the VM by labels",
        counted(targets.len(), "target"),
        names.join(", ")
    )
}

#[cfg(test)]
mod tests;
