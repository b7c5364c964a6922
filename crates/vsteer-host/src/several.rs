//! How are several hosts observed at once? Each in a thread of its own, so a slow host does not delay the others.
//!
//! A host has a name: what the user typed of it. The host's own name for itself may be another's too.
//!
//! Left out: opening and printing, which the caller does.

use crate::backend::Host;
use crate::pace::{Described, Pace};
use crate::remote;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::SyncSender;
use std::thread;
use std::time::{Duration, Instant};
use vsteer_core::nouns::{Batch, Collector, HostConfig};
use vsteer_core::{Fault, FaultKind};

/// How often to look whether all are done.
const LOOK: Duration = Duration::from_millis(100);
/// After the user asked to stop, a host that does not answer has this long.
const GRACE: Duration = Duration::from_millis(1000);

/// Names for the hosts behind these URIs, which differ and are names of files: the host alone, or with the user and
/// the port where the host alone is not enough.
///
/// # Errors
/// `Usage` when a URI is there twice.
pub fn names(uris: &[String]) -> Result<Vec<String>, Fault> {
    if let Some(twice) = uris.iter().enumerate().find(|(i, uri)| uris[..*i].contains(uri)) {
        return Err(Fault::new(FaultKind::Usage, format!("--connect {:?} is there twice", twice.1))
            .help("name each host once"));
    }
    let by = |name: fn(&str) -> String| {
        let names: Vec<String> = uris.iter().map(|uri| file_name(&name(uri))).collect();
        let mut counts = BTreeMap::new();
        names.iter().for_each(|name| *counts.entry(name.clone()).or_insert(0) += 1);
        (names, counts)
    };
    let (short, counts) = by(|uri| host_of(uri).to_owned());
    let (long, all) = by(place_of);
    let name = |i: usize| {
        if counts[&short[i]] == 1 {
            short[i].clone()
        } else if all[&long[i]] == 1 {
            long[i].clone()
        } else {
            format!("{}-{}", long[i], i + 1)
        }
    };
    Ok((0..uris.len()).map(name).collect())
}

/// `user@host:port/path` of a URI; of another text all of it.
fn after_scheme(uri: &str) -> &str {
    uri.split_once("://").map_or(uri, |(_, rest)| rest)
}

fn place_of(uri: &str) -> String {
    let rest = after_scheme(uri).split('?').next().unwrap_or_default();
    if rest.starts_with('/') || rest == uri { uri.to_owned() } else { rest.trim_end_matches('/').to_owned() }
}

fn host_of(uri: &str) -> &str {
    let rest = after_scheme(uri);
    if rest == uri || rest.starts_with('/') {
        // A file, or a service of this machine.
        return uri.rsplit(['/', ':']).find(|part| !part.is_empty()).unwrap_or(uri);
    }
    let place = rest.split(['/', '?']).next().unwrap_or_default();
    let host = place.rsplit_once('@').map_or(place, |(_, host)| host);
    match host.strip_prefix('[') {
        Some(address) => address.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    }
}

fn file_name(text: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "._-@:%+".contains(c) { c } else { '-' };
    let name: String = text.chars().map(plain).take(100).collect();
    let name = name.trim_start_matches(['.', '-']);
    if name.is_empty() { "host".to_owned() } else { name.to_owned() }
}

/// Does the work for each of `count` hosts at the same time. After the user asked to stop, connections to hosts that
/// do not answer are ended.
pub fn side_by_side<T: Send>(
    count: usize,
    pace: &dyn Pace,
    work: &(dyn Fn(usize) -> Result<T, Fault> + Sync),
) -> Vec<Result<T, Fault>> {
    thread::scope(|scope| {
        let all: Vec<_> = (0..count).map(|i| scope.spawn(move || work(i))).collect();
        let mut stopped: Option<Instant> = None;
        while !all.iter().all(thread::ScopedJoinHandle::is_finished) {
            match stopped {
                None => stopped = pace.sleep_until(Instant::now() + LOOK).then(Instant::now),
                Some(since) => {
                    thread::sleep(LOOK);
                    if since.elapsed() > GRACE {
                        remote::end_all();
                    }
                }
            }
        }
        let result = |done: thread::ScopedJoinHandle<'_, Result<T, Fault>>| {
            done.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        all.into_iter().map(result).collect()
    })
}

/// What is seen of a host.
pub enum Seen {
    /// It counts; these notes are new.
    Open(Vec<String>),
    /// Two samples with what they mean.
    Update(Box<Update>),
    /// Nothing more comes, for this reason if there is one.
    End(Option<Fault>),
}

/// Two samples that follow each other.
pub struct Update {
    /// The configuration at the second.
    pub config: HostConfig,
    /// How they were taken.
    pub collector: Collector,
    /// The earlier sample.
    pub before: Batch,
    /// The later one.
    pub now: Batch,
}

/// How all hosts are watched. Any thread may change it.
pub struct Watch {
    /// Between two samples, ns.
    pub interval_ns: AtomicU64,
    /// No more samples are wanted.
    pub over: AtomicBool,
}

impl Watch {
    /// Samples at this interval.
    pub fn every(interval: Duration) -> Watch {
        let watch = Watch { interval_ns: AtomicU64::new(0), over: AtomicBool::new(false) };
        watch.set(interval);
        watch
    }

    /// Samples at another interval from now on.
    pub fn set(&self, interval: Duration) {
        let ns = u64::try_from(interval.as_nanos()).unwrap_or(u64::MAX);
        self.interval_ns.store(ns, Ordering::Relaxed);
    }

    fn interval(&self) -> Duration {
        Duration::from_nanos(self.interval_ns.load(Ordering::Relaxed))
    }

    /// Sleeps; `true` if it is over. The interval may become shorter meanwhile.
    fn sleep(&self, since: Instant, pace: &dyn Pace) -> bool {
        loop {
            let (now, end) = (Instant::now(), since + self.interval());
            if self.over.load(Ordering::Relaxed) {
                return true;
            }
            if now >= end {
                return false;
            }
            if pace.sleep_until(end.min(now + 2 * LOOK)) {
                return true;
            }
        }
    }

    /// Samples a host until it is over, or `updates` times, and sends what is seen with the host's place in the list.
    pub fn host(
        &self,
        place: usize,
        open: impl FnOnce() -> Result<Box<dyn Host>, Fault>,
        updates: u64,
        pace: &dyn Pace,
        to: &SyncSender<(usize, Seen)>,
    ) {
        let end = self.samples(place, open, updates, pace, to).err();
        let _ = to.send((place, Seen::End(end)));
    }

    fn samples(
        &self,
        place: usize,
        open: impl FnOnce() -> Result<Box<dyn Host>, Fault>,
        updates: u64,
        pace: &dyn Pace,
        to: &SyncSender<(usize, Seen)>,
    ) -> Result<(), Fault> {
        let mut host = open()?;
        let (mut before, mut described) = (host.sample()?, Described::default());
        // If nobody listens, nothing more is wanted.
        let mut gone = to.send((place, Seen::Open(host.take_notes()))).is_err();
        let (mut left, mut last) = (updates, Instant::now());
        while left > 0 && !gone {
            if self.sleep(last, pace) {
                return Ok(());
            }
            last = Instant::now();
            let now = host.sample()?;
            // A host that counts at its own intervals (vSphere) does not have a new sample each time.
            if now.mono_ns <= before.mono_ns {
                continue;
            }
            let (config, collector) = (described.of(host.as_mut())?.clone(), host.collector());
            let before = std::mem::replace(&mut before, now.clone());
            let update = Box::new(Update { config, collector, before, now });
            gone = to.send((place, Seen::Update(update))).is_err();
            left -= 1;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(uris: &[&str]) -> Vec<String> {
        names(&uris.iter().map(|uri| (*uri).to_owned()).collect::<Vec<_>>()).unwrap()
    }

    #[test]
    fn names_are_short_and_differ() {
        assert_eq!(named(&["ssh://root@a", "qemu+ssh://b/system", "vsphere://x@c"]), ["a", "b", "c"]);
        assert_eq!(named(&["ssh://root@a", "ssh://b", "ssh://me@a:22"]), ["root@a", "b", "me@a:22"]);
        assert_eq!(named(&["ssh://a", "qemu+ssh://a"]), ["a-1", "a-2"]);
        assert_eq!(named(&["ssh://[::1]:22", "tree:/x/y/", "qemu:///system"]), ["::1", "y", "system"]);
        assert_eq!(named(&["tree:a", "xen:"]), ["a", "xen"]);
        for odd in ["tree:..", "ssh://../../etc", "ssh://-x", "x", "", "/"] {
            let name = &named(&[odd])[0];
            assert!(
                !name.is_empty() && !name.contains('/') && !name.starts_with(['.', '-']),
                "{odd}: {name}"
            );
        }
        assert_eq!(names(&["a".to_owned(), "a".to_owned()]).unwrap_err().kind, FaultKind::Usage);
    }

    struct Patient;

    impl Pace for Patient {
        fn sleep_until(&self, then: Instant) -> bool {
            thread::sleep(then.saturating_duration_since(Instant::now()));
            false
        }
    }

    #[test]
    fn hosts_work_at_the_same_time_and_fail_alone() {
        let begun = Instant::now();
        let results = side_by_side(4, &Patient, &|i| {
            thread::sleep(Duration::from_millis(500));
            if i == 2 { Err(Fault::new(FaultKind::Failed, "two")) } else { Ok(i) }
        });
        assert!(begun.elapsed() < Duration::from_millis(1500));
        assert_eq!(results[3], Ok(3));
        assert_eq!(results.iter().filter(|r| r.is_err()).count(), 1);
    }
}
