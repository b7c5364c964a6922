//! What do all estimators forecast for the interval after a recorded one?
//!
//! A [`Part`] is one interval of a recording: the host's configuration, its model, and the requests of each VM.
//! Every estimator forecasts the next interval from its rates and weights alone. The measured values are kept for
//! comparison ([`super::score`]).
//!
//! VMs without requests in both intervals are left out. The CPU time per request of a VM with requests only in the
//! next interval is unknown, which is an error.
//!
//! Left out: cutting a recording into intervals.

use super::driven;
use super::estimate::simulated::Simulated;
use super::estimate::{ALL, Case, EFFORT, Sharing};
use super::facts::{Facts, find, simulated};
use super::score::{Foretold, Told};
use super::spread;
use super::window::{Interval, Next, Response, Seen, Vm};
use vsteer_core::model::HostModel;
use vsteer_core::nouns::HostConfig;
use vsteer_core::{Fault, FaultKind};
use vsteer_sim::forecast::demand::{Demands, Round};

/// One interval of a recording.
pub struct Part {
    /// Configuration of the host at the interval's end.
    pub config: HostConfig,
    /// What its model says.
    pub model: HostModel,
    /// Facts about the VMs from the model.
    pub facts: Facts,
    /// Requests by VM; `None`: too few.
    pub intervals: Vec<Option<Interval>>,
    /// Begin, ns since 1970 UTC.
    pub from_unix_ns: u64,
    /// When it ended.
    pub to_unix_ns: u64,
}

impl Part {
    /// Demand of the requests, as a part of the pCPUs.
    pub fn load(&self) -> f64 {
        let asked: f64 = self.intervals.iter().flatten().map(|i| i.seen.load_at(i.seen.rate_hz)).sum();
        asked / self.facts.pcpus
    }

    /// Requests of all VMs, per second.
    fn requests_hz(&self) -> f64 {
        self.intervals.iter().flatten().map(|i| i.seen.rate_hz).sum()
    }

    /// Rates and weights of this interval, by VM: the input of a forecast.
    pub fn next(&self) -> Vec<Next> {
        let of = |(interval, vm): (&Option<Interval>, &Vm)| Next {
            rate_hz: interval.as_ref().map_or(0.0, |i| i.seen.rate_hz),
            weight: vm.weight,
        };
        self.intervals.iter().zip(&self.facts.vms).map(of).collect()
    }

    /// The rates and weights with changes for the VMs of these names. Weights are on the hypervisor's scale.
    ///
    /// # Errors
    /// `Usage` if a VM is not in `names`.
    pub fn asked(
        &self,
        names: &[&str],
        rates: &[(String, f64)],
        weights: &[(String, f64)],
    ) -> Result<Vec<Next>, Fault> {
        let mut next = self.next();
        let place = |vm: &str, what: &str| {
            names.iter().position(|n| *n == vm).ok_or_else(|| {
                Fault::new(FaultKind::Usage, format!("{what} {vm}=…: no log was given for VM {vm:?}"))
                    .help(format!("use one of these VMs: {}", names.join(", ")))
            })
        };
        for (vm, rate_hz) in rates {
            next[place(vm, "--rate")?].rate_hz = *rate_hz;
        }
        for (vm, weight) in weights {
            let i = place(vm, "--weight")?;
            let now = find(&self.config, vm)?.weight;
            next[i].weight = now.map_or(*weight / 100.0, |now| now.on_same_scale(*weight).relative());
        }
        Ok(next)
    }

    /// Estimates the spread of the VMs' CPU times.
    pub fn read_off(&mut self) {
        let mut known: Vec<Interval> = self.intervals.iter().flatten().cloned().collect();
        spread::read_off(&mut known, self.facts.pcpus, spread::EFFORT, &|| {});
        self.intervals.iter_mut().flatten().zip(known).for_each(|(i, k)| *i = k);
    }

    /// Forecasts of all estimators for the next interval, which has the rates and weights `next` and was measured
    /// as `then`. `not_simulated` gets the reason if the host cannot be simulated.
    ///
    /// # Errors
    /// `NothingThere` if a VM has requests in the next interval but none in this one.
    pub fn foretell(
        &self,
        next: &[Next],
        then: Option<&Part>,
        names: &[&str],
        not_simulated: &mut dyn FnMut(&str),
    ) -> Result<Foretold, Fault> {
        let here: Vec<usize> = (0..names.len()).filter(|i| self.intervals[*i].is_some()).collect();
        if let Some(i) = (0..names.len()).find(|i| !here.contains(i) && next[*i].rate_hz > 0.0) {
            let what = format!("cannot estimate response times of VM {:?}", names[i]);
            return Err(Fault::new(FaultKind::NothingThere, what)
                .because("the interval before has no requests for it, so its CPU time per request is unknown")
                .help("begin with an interval in which every VM has requests"));
        }
        let intervals: Vec<&Interval> = here.iter().filter_map(|i| self.intervals[*i].as_ref()).collect();
        let seen: Vec<Seen> = intervals.iter().map(|i| i.seen).collect();
        let gaps: Vec<Vec<f64>> = intervals.iter().map(|i| i.gaps_s.clone()).collect();
        let next: Vec<Next> = here.iter().map(|i| next[*i]).collect();
        let asked: Vec<&str> = here.iter().map(|i| names[*i]).collect();
        let host = self.host(&asked).map_err(|why| not_simulated(&why)).ok();
        let case = Case {
            seen: &seen,
            next: &next,
            driver: driven::passing(&self.config, &self.model, &asked, self.requests_hz()),
            pcpus: self.facts.pcpus,
            gaps_s: &gaps,
            host: host.as_ref().map(|h| h as &dyn Sharing),
            effort: EFFORT,
            to_the_letter: false,
            between: &|| {},
        };
        let spread_out = |told: Vec<Option<Response>>| {
            let mut all = vec![None; names.len()];
            here.iter().zip(told).for_each(|(i, t)| all[*i] = t);
            all
        };
        let told =
            ALL.iter().map(|e| Told { estimator: e.name, told: spread_out((e.tell)(&case)) }).collect();
        let load = next.iter().zip(&seen).map(|(n, s)| s.load_at(n.rate_hz)).sum::<f64>() / self.facts.pcpus;
        let seen = match then {
            Some(then) => then.intervals.iter().map(|i| i.as_ref().map(|i| i.seen.response)).collect(),
            None => vec![None; names.len()],
        };
        Ok(Foretold { load, seen, told })
    }

    /// The host as a simulation.
    fn host(&self, names: &[&str]) -> Result<Simulated, String> {
        if driven::driver(&self.config).is_some() {
            return driven::simulated(&self.config, &self.model, names, self.requests_hz());
        }
        let none = Demands {
            by_thread: std::collections::BTreeMap::new(),
            round: Round { begins_ns: 0, length_ns: 1 },
            hand_over_ns: 0,
        };
        simulated(&self.config, &none, &self.facts, names)
    }
}

/// A note for each VM whose response times come from a histogram.
pub fn by_buckets(parts: &[Part], names: &[&str]) -> Vec<String> {
    let of = |(i, name): (usize, &&str)| {
        let last = parts.iter().rev().find_map(|p| p.intervals[i].as_ref())?;
        let (low_s, high_s) = last.lots.as_ref()?.bucket_at(last.seen.response.p95_s);
        let upto = if high_s.is_infinite() {
            "up to infinity".to_owned()
        } else {
            format!("to {:.1}", 1e3 * high_s)
        };
        Some(format!(
            "{name}: a histogram gives the 95th percentile only as a bucket (the last one is from {:.1} \
                {upto} ms), and no arrival times; vsteer assumes a Poisson process",
            1e3 * low_s
        ))
    };
    names.iter().enumerate().filter_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::super::histogram::Lots;
    use super::*;
    use std::collections::BTreeMap;
    use vsteer_core::nouns::{CgroupLayout, CpuWeight, PressureShares, VmConfig, VmId};
    use vsteer_core::topology::machine;

    fn part(rates: &[Option<f64>]) -> Part {
        let config = HostConfig {
            hostname: "h".into(),
            machine_id: None,
            kernel: "6.12".into(),
            topology: machine(1, 1, 1, 1).unwrap(),
            cgroups: CgroupLayout::None,
            contenders: Vec::new(),
            scheduler: None,
            vms: ["a", "b"]
                .map(|name| VmConfig {
                    weight: Some(CpuWeight::Weight(200)),
                    ..VmConfig::new(VmId(name.into()), name, 1)
                })
                .into(),
        };
        let model = HostModel {
            from_unix_ns: 0,
            window_ns: 1_000_000_000,
            vms: Vec::new(),
            pcpus: Vec::new(),
            pressure: PressureShares::default(),
            blame: None,
            collector: "ebpf".into(),
            missing: BTreeMap::new(),
        };
        let interval = |rate: &Option<f64>| {
            let response = Response { mean_s: 0.01, p95_s: 0.02 };
            let seen = Seen {
                rate_hz: (*rate)?,
                gap_cv2: 1.0,
                service_s: 0.005,
                beside: 0.0,
                service_cv2: 1.0,
                response,
                weight: 2.0,
                vcpus: 1,
            };
            Some(Interval { seen, gaps_s: Vec::new(), took_s: Vec::new(), lots: None })
        };
        let vm = Vm { cpu_ns: 100_000_000, weight: 2.0, vcpus: 1 };
        Part {
            config,
            model,
            facts: Facts { vms: vec![vm; 2], pcpus: 0.5, others: 0.5 },
            intervals: rates.iter().map(interval).collect(),
            from_unix_ns: 0,
            to_unix_ns: 1,
        }
    }

    const NAMES: [&str; 2] = ["a", "b"];

    #[test]
    fn load_is_of_the_pcpus_that_are_shared() {
        assert!((part(&[Some(20.0), Some(10.0)]).load() - 0.3).abs() < 1e-12);
        let next = part(&[Some(20.0), None]).next();
        assert_eq!(next, [Next { rate_hz: 20.0, weight: 2.0 }, Next { rate_hz: 0.0, weight: 2.0 }]);
    }

    #[test]
    fn rates_and_weights_are_asked_by_name() {
        let part = part(&[Some(20.0), Some(10.0)]);
        let next = part.asked(&NAMES, &[("b".into(), 30.0)], &[("a".into(), 400.0)]).unwrap();
        assert_eq!(next, [Next { rate_hz: 20.0, weight: 4.0 }, Next { rate_hz: 30.0, weight: 2.0 }]);
        let fault = part.asked(&NAMES, &[("c".into(), 1.0)], &[]).unwrap_err();
        assert!(
            fault.kind == FaultKind::Usage && fault.to_string().contains("use one of these VMs: a, b"),
            "{fault}"
        );
    }

    #[test]
    fn who_was_not_asked_before_cannot_be_foretold() {
        let (before, then) = (part(&[Some(20.0), None]), part(&[Some(20.0), Some(10.0)]));
        let told = |next: &[Next]| before.foretell(next, Some(&then), &NAMES, &mut |_| {});
        let fault = told(&then.next()).unwrap_err();
        assert!(fault.what.contains("response times of VM \"b\""), "{fault}");
        // Where nobody asks it then either it takes no part.
        let foretold = told(&before.next()).unwrap();
        assert!((foretold.load - 0.2).abs() < 1e-12 && foretold.seen.iter().all(Option::is_some));
        assert!(foretold.told.iter().all(|t| t.told.len() == 2 && t.told[1].is_none()));
        assert_eq!(before.foretell(&before.next(), None, &NAMES, &mut |_| {}).unwrap().seen, [None, None]);
    }

    #[test]
    fn who_is_known_by_buckets_is_told() {
        let mut last = part(&[Some(20.0), Some(10.0)]);
        let lots = Lots { most: 9, bounds_s: vec![0.015, 0.05, f64::INFINITY] };
        last.intervals[1].as_mut().unwrap().lots = Some(lots);
        let notes = by_buckets(&[last, part(&[Some(1.0), None])], &NAMES);
        assert_eq!(notes.len(), 1);
        assert!(notes[0].starts_with("b: ") && notes[0].contains("from 15.0 to 50.0 ms"), "{notes:?}");
    }
}
