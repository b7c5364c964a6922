//! Where the values of the live table come from: a host, several hosts, or a recording.

use super::{Shown, View};
use crate::source::Several;
use std::time::Duration;
use vsteer_core::model;
use vsteer_core::nouns::{Batch, Collector, HostConfig};
use vsteer_core::{Fault, FaultKind};
use vsteer_host::observe::Observe;
use vsteer_host::pace::Described;
use vsteer_record::Recording;

/// Where the view's values come from.
pub(super) trait Feed {
    /// Brings what is new into the view. `due`: an interval has passed since the last time. Whether more comes.
    fn feed(&mut self, view: &mut View, due: bool) -> Result<bool, Fault>;
}

/// One host, asked each interval.
pub(super) struct One<'a> {
    pub(super) host: &'a mut dyn Observe,
    pub(super) described: Described,
    pub(super) before: Batch,
    pub(super) left: u64,
    /// While the view is paused, nothing is asked: a recording goes on where it stopped, a host cannot.
    pub(super) waits: bool,
}

impl Feed for One<'_> {
    fn feed(&mut self, view: &mut View, due: bool) -> Result<bool, Fault> {
        if !due || self.waits && view.paused {
            return Ok(true);
        }
        let now = self.host.sample()?;
        let before = std::mem::replace(&mut self.before, now.clone());
        // Nothing is new at the end of what is played.
        let is_new = now.mono_ns > before.mono_ns;
        view.hosts[0].past.missed |= is_new && view.paused;
        if !view.paused && is_new {
            let collector = self.host.collector();
            let config = self.described.of(self.host)?;
            let model = model::derive(config, &collector, &[&before, &now])?;
            view.see(0, config, [&before, &now], model);
            self.left -= 1;
        }
        Ok(self.left > 0)
    }
}

impl Feed for Several {
    fn feed(&mut self, view: &mut View, _: bool) -> Result<bool, Fault> {
        self.set_interval(view.interval);
        while let Some((place, u)) = self.next(Duration::ZERO) {
            if view.paused {
                view.hosts[place].past.missed = true;
                continue;
            }
            let samples = [&u.before, &u.now];
            match model::derive(&u.config, &u.collector, &samples) {
                Ok(model) => view.see(place, &u.config, samples, model),
                Err(fault) => view.hosts[place].fault = Some(fault),
            }
        }
        while let Some((place, fault)) = self.next_fault() {
            // Its last values are old.
            view.hosts[place] =
                Shown { name: view.hosts[place].name.clone(), fault: Some(fault), ..Shown::default() };
        }
        Ok(!self.is_over())
    }
}

/// A recording in place of a host. Each sample is the next one that is an interval later; at the end, the last one repeats.
pub(super) struct Played {
    pub(super) recording: Recording,
    pub(super) at: usize,
    /// The last sample that was given.
    pub(super) shown: Option<usize>,
    pub(super) every_ns: u64,
}

impl Observe for Played {
    fn config(&mut self) -> Result<HostConfig, Fault> {
        let at = self.recording.batches.get(self.at).map_or(0, |b| b.mono_ns);
        Ok(self.recording.config_at(at).clone())
    }

    fn collector(&self) -> Collector {
        self.recording.manifest.collector.clone()
    }

    fn sample(&mut self) -> Result<Batch, Fault> {
        let batches = &self.recording.batches;
        let Some(now) = batches.get(self.at) else {
            return Err(Fault::new(FaultKind::BadInput, "the recording has no complete sample"));
        };
        let later = |b: &Batch| b.mono_ns >= now.mono_ns.saturating_add(self.every_ns);
        let next = batches.iter().skip(self.at).position(later).map(|i| self.at + i);
        let mut sample = now.clone();
        // Blame is since the sample before, all else since counting began: what is skipped is this one's.
        sample.blame = batches[self.shown.map_or(self.at, |shown| shown + 1)..=self.at]
            .iter()
            .flat_map(|b| b.blame.clone())
            .collect();
        self.shown = Some(self.at);
        self.at = next.unwrap_or(batches.len() - 1);
        Ok(sample)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use vsteer_core::CpuSet;
    use vsteer_core::nouns::{BlameSample, CgroupLayout, Culprit, Role, VmId};
    use vsteer_core::topology::{Parts, Topology};

    /// Recorded each second and played at two: blame is since the sample before, also since one that is not shown.
    #[test]
    fn what_is_not_shown_of_a_recording_is_blamed_all_the_same() {
        let all = CpuSet::first(1);
        let parts = Parts { online: all.clone(), present: all.clone(), allowed: all, ..Parts::default() };
        let config = HostConfig {
            cgroups: CgroupLayout::V2,
            ..HostConfig::new("h", "6.18", Topology::new(parts).unwrap())
        };
        let batch = |s: u64| Batch {
            mono_ns: s * 1_000_000_000,
            blame: vec![BlameSample {
                victim: VmId("web".into()),
                role: Role::Vcpu(0),
                culprit: Culprit::Placement,
                ns: 10_i64.pow(s as u32),
            }],
            ..Batch::default()
        };
        let collector = Collector { name: "ebpf".into(), missing: BTreeMap::new() };
        let batches = (0..7).map(batch).collect();
        let recording = Recording::foreign("a".as_ref(), config, collector, batches, Vec::new());
        let mut played = Played { recording, at: 0, shown: None, every_ns: 2_000_000_000 };
        let mut blamed = || played.sample().unwrap().blame.iter().map(|b| b.ns).sum::<i64>();
        assert_eq!([blamed(), blamed(), blamed(), blamed()], [1, 110, 11_000, 1_100_000]);
        // At the end the last one again, of which nothing is new.
        assert_eq!(blamed(), 0);
    }
}
