use super::*;
use crate::actuate::Actuate;
use crate::observe::Observe;
use std::cell::Cell;
use std::collections::VecDeque;
use vsteer_core::nouns::PcpuSample;
use vsteer_core::topology::machine;
use vsteer_record::Recording;

/// A host whose samples are made up: the time of each, s.
struct MadeUp {
    samples: VecDeque<u64>,
    second: bool,
    past: Option<Vec<u64>>,
    /// How its configuration is read, the next last.
    configs: Vec<bool>,
}

/// A batch with a row in it: the time of one without any is not written.
fn batch(at_s: u64) -> Batch {
    let ns = at_s * 1_000_000_000;
    Batch { mono_ns: ns, unix_ns: ns, pcpus: vec![PcpuSample::default()], ..Batch::default() }
}

fn config() -> HostConfig {
    HostConfig::new("made up", "6.12", machine(1, 1, 2, 1).unwrap())
}

fn collector(name: &str) -> Collector {
    Collector { name: name.into(), missing: BTreeMap::new() }
}

impl Observe for MadeUp {
    fn config(&mut self) -> Result<HostConfig, Fault> {
        match self.configs.pop() {
            Some(true) | None => Ok(HostConfig { kernel: "6.13".into(), ..config() }),
            Some(false) => Err(Fault::new(FaultKind::Failed, "asking libvirtd")),
        }
    }

    fn collector(&self) -> Collector {
        collector("first")
    }

    fn sample(&mut self) -> Result<Batch, Fault> {
        self.samples.pop_front().map(batch).ok_or_else(|| Fault::new(FaultKind::Failed, "the host is gone"))
    }
}

impl Host for MadeUp {
    fn has_second(&self) -> bool {
        self.second
    }

    fn sample_both(&mut self, both: bool) -> Result<(Batch, Option<Batch>), Fault> {
        self.sample().map(|b| (b.clone(), both.then_some(b)))
    }

    fn second_collector(&self) -> Option<Collector> {
        self.second.then(|| collector("second"))
    }

    fn past(&mut self, _length: Duration) -> Option<Result<Vec<Batch>, Fault>> {
        self.past.take().map(|all| Ok(all.into_iter().map(batch).collect()))
    }

    fn length_of_past(&self, length: Option<Duration>) -> Result<Option<Duration>, Fault> {
        Ok(self.past.as_ref().and(length))
    }

    fn actuator(&mut self) -> Result<&mut dyn Actuate, Fault> {
        Err(Fault::new(FaultKind::Unsupported, "changing a host that is made up"))
    }
}

fn made_up(samples: &[u64]) -> MadeUp {
    MadeUp { samples: samples.iter().copied().collect(), second: false, past: None, configs: Vec::new() }
}

/// Does not wait, and asks to stop after this number of waits.
struct Stop {
    after: Cell<u32>,
}

impl Pace for Stop {
    fn sleep_until(&self, _then: Instant) -> bool {
        let left = self.after.get();
        self.after.set(left.saturating_sub(1));
        left == 0
    }
}

fn asked<'a>(output: &'a Path, second: Option<&'a Path>) -> Asked<'a> {
    Asked {
        output,
        former: None,
        second,
        interval: Duration::from_millis(1),
        length: None,
        ring: None,
        events: false,
        triggers: &[],
        trigger_window: Duration::from_secs(10),
        trigger_quiet: Duration::from_secs(60),
    }
}

fn times_s(folder: &Path) -> Vec<u64> {
    Recording::open(folder).unwrap().batches.iter().map(|b| b.mono_ns / 1_000_000_000).collect()
}

#[test]
fn what_is_new_is_kept_until_asked_to_stop() {
    let folder = tempfile::tempdir().unwrap();
    let (output, second) = (folder.path().join("a"), folder.path().join("b"));
    // The first sample is not kept; one that is as old as the one before is none.
    let host = MadeUp { second: true, ..made_up(&[1, 2, 3, 3, 2, 4, 5]) };
    let mut progress = 0;
    let recorded = record(
        Box::new(host),
        config(),
        &asked(&output, Some(&second)),
        &Stop { after: Cell::new(4) },
        &mut |heard| progress += u32::from(matches!(heard, Heard::Progress(..))),
    );
    let Recorded::Live { batches, collector, events, marks, .. } = recorded.unwrap() else { panic!() };
    assert_eq!((batches, collector.name.as_str(), events, marks, progress), (3, "first", None, 0, 5));
    assert_eq!((times_s(&output), times_s(&second)), (vec![2, 3, 4], vec![2, 3, 4]));
    assert_eq!(Recording::open(&second).unwrap().manifest.collector.name, "second");
}

#[test]
fn what_was_recorded_before_a_fault_is_closed_and_the_fault_told() {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("a");
    let host = Box::new(made_up(&[1, 2, 3]));
    let stop = Stop { after: Cell::new(u32::MAX) };
    let fault = record(host, config(), &asked(&output, None), &stop, &mut |_| {}).unwrap_err();
    assert_eq!(fault.what, "the host is gone");
    assert_eq!(times_s(&output), [2, 3]);
}

#[test]
fn a_past_is_taken_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("a");
    let host = MadeUp { past: Some(vec![20, 40, 60]), ..made_up(&[1]) };
    let asked = Asked { length: Some(Duration::from_secs(60)), ..asked(&output, None) };
    let stop = Stop { after: Cell::new(0) };
    let recorded = record(Box::new(host), config(), &asked, &stop, &mut |_| {}).unwrap();
    let Recorded::Past { batches, seconds, .. } = recorded else { panic!("{recorded:?}") };
    assert_eq!((batches, seconds, times_s(&output)), (3, 40.0, vec![20, 40, 60]));
}

#[test]
fn a_configuration_that_cannot_be_read_is_told_once() {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("a");
    let asked = asked(&output, None);
    let host = MadeUp { configs: vec![false, true, false, false], ..made_up(&[1]) };
    let mut recorder = Recorder::begin(Box::new(host), config(), &asked).unwrap();
    let mut told = Vec::new();
    for _ in 0..4 {
        let mut now = false;
        recorder.refresh(&mut |heard| now |= matches!(heard, Heard::OldConfig(_)));
        told.push((now, recorder.config.kernel.clone()));
    }
    let kernels = ["6.12", "6.12", "6.13", "6.13"].map(str::to_owned);
    assert_eq!(told, [true, false, false, true].into_iter().zip(kernels).collect::<Vec<_>>());
}

#[test]
fn a_second_way_must_be_there() {
    let folder = tempfile::tempdir().unwrap();
    let asked = asked(folder.path(), Some(folder.path()));
    assert_eq!(check(&made_up(&[]), &asked).unwrap_err().kind, FaultKind::Usage);
    assert!(check(&MadeUp { second: true, ..made_up(&[]) }, &asked).is_ok());
}

#[test]
fn samples_leave_room_for_switches() {
    assert_eq!((samples_part(800, false), samples_part(800, true)), (800, 100));
}
