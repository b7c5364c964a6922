//! Does the controller rest? The real loop drives the simulator for a day: loads that shift, a VM that comes and goes, a log that is lost for
//! some periods, a weight that somebody else sets.
//!
//! What is checked: weights change only after something has changed, and no more often than promised; none is ever 0 or out of bounds;
//! levels that can be held are held most of the time; nothing is remembered beyond an hour.

use vsteer_core::nouns::{Role, Tid, VmId};
use vsteer_core::random::Random;
use vsteer_core::requests::Answered;
use vsteer_core::topology::machine;
use vsteer_sim::forecast::replay::{Replay, Thread};
use vsteer_sim::guest::Demand;
use vsteer_sim::policy::Values;
use vsteer_sim::sched;
use vsteer_sim::setup::{Setup, VcpuSetup, VmSetup};
use vsteer_sla::control::{Decision, Level};
use vsteer_sla::estimate::find;
use vsteer_sla::estimate::simulated::Simulated;
use vsteer_sla::estimate::traffic::Traffic;
use vsteer_sla::hold::{Around, Holder, Period, Promise, SETS_MOST, VmPeriod};
use vsteer_sla::window::Vm;

const PERIOD_S: f64 = 60.0;
const DAY: usize = 24 * 60;
const SERVICE_S: [f64; 3] = [0.0066, 0.0066, 0.0017];

fn host() -> Simulated {
    let policy = sched::find("eevdf").unwrap();
    let names = ["vm1", "vm2", "vm3"];
    let vms = names.iter().map(|n| VmSetup::new(*n, vec![VcpuSetup::new(Demand::Idle)])).collect();
    let setup = Setup::new(machine(1, 1, 1, 1).unwrap(), vms, 1);
    let thread =
        |(i, n): (usize, &&str)| Thread { vm: VmId((*n).into()), role: Role::Vcpu(0), tid: Tid(i as u32) };
    let threads = names.iter().enumerate().map(thread).collect();
    let values = Values::defaults(policy.about.parameters);
    let weight_unit = f64::from(policy.about.default_weight);
    Simulated {
        host: Replay { setup, policy, values, threads, hand_over_ns: 0 },
        vms: vec![0, 1, 2],
        weight_unit,
        passage: None,
    }
}

/// What is asked per second, two hours each.
const LOADS: [[f64; 3]; 4] =
    [[15.0, 15.0, 50.0], [30.0, 30.0, 120.0], [43.0, 43.0, 160.0], [30.0, 30.0, 120.0]];
/// The promised mean response times.
const LEVELS_S: [f64; 3] = [0.022, 0.060, 0.020];
/// When somebody sets a weight.
const SET_BY_HAND: usize = 1000;

/// What happens in a minute of the day.
struct Minute(usize);

impl Minute {
    /// Is this VM away for an hour?
    fn is_away(&self, vm: usize) -> bool {
        vm == 1 && (600..660).contains(&self.0)
    }

    /// Is the log lost for ten minutes?
    fn is_lost(&self) -> bool {
        (900..910).contains(&self.0)
    }

    /// Does the load, the set of VMs, the log or a weight change in this minute?
    fn changes(&self) -> bool {
        [600, 660, 900, 910, SET_BY_HAND].contains(&self.0) || self.0.is_multiple_of(120)
    }

    fn traffic(&self, vm: usize, random: &mut Random) -> Traffic {
        let rate_hz = LOADS[(self.0 / 120) % LOADS.len()][vm];
        let mut t = Traffic::default();
        let mut at_s = random.exponential(1.0 / rate_hz);
        while at_s < PERIOD_S && !self.is_away(vm) {
            t.requests.push((at_s, SERVICE_S[vm]));
            at_s += random.exponential(1.0 / rate_hz);
        }
        t
    }

    /// The period that the loop sees. `took`: when requests came and how long they took, s.
    fn period(&self, took: &[Vec<(f64, f64)>], weights: &[f64]) -> Period {
        let from_ns = self.0 as u64 * 60_000_000_000;
        let vm = |i: usize| {
            let request = |(at_s, took_s): &(f64, f64)| Answered {
                began_ns: from_ns + (at_s * 1e9) as u64,
                took_ns: (took_s * 1e9) as u64,
            };
            let requests: Vec<Answered> =
                if self.is_lost() { Vec::new() } else { took[i].iter().map(request).collect() };
            let cpu_ns = (took[i].len() as f64 * SERVICE_S[i] * 1e9) as u64;
            let vm = Vm { cpu_ns, weight: weights[i], vcpus: 1 };
            (!self.is_away(i)).then_some(VmPeriod { requests, lots: None, vm, dead: None })
        };
        Period { span_ns: (from_ns, from_ns + 60_000_000_000), vms: (0..3).map(vm).collect(), pcpus: 1.0 }
    }
}

fn holder() -> Holder {
    let promise = |(i, s): (usize, f64)| Promise {
        vm: format!("vm{}", i + 1),
        level: Level { mean_s: Some(s), p95_s: None, rate_hz: None },
    };
    let promises = LEVELS_S.into_iter().enumerate().map(promise).collect();
    Holder::new(promises, find("own").unwrap(), 20_000)
}

#[test]
#[ignore = "takes 20 s: `make test` runs it, `make check` does not"]
fn a_day_without_oscillation() {
    let (host, mut holder) = (host(), holder());
    let mut random = Random::new(7, 0);
    let mut weights = vec![1.0; 3];
    let (mut sets, mut since_change, mut late, mut periods) = (0, 0, 0, 0);
    let mut sets_for_this = 0;
    for minute in (0..DAY).map(Minute) {
        if minute.0 == SET_BY_HAND {
            weights[2] *= 2.0;
        }
        if minute.changes() {
            (since_change, sets_for_this) = (0, 0);
        }
        since_change += 1;
        let traffic: Vec<Traffic> = (0..3).map(|i| minute.traffic(i, &mut random)).collect();
        let took = host.responses(&traffic, &weights).unwrap();
        let outcome = holder.step(minute.period(&took, &weights), Around::default());
        if let Decision::Set { weights: new, worst } = &outcome.decision {
            let mut each = new.iter().zip(&weights);
            let allowed = each.all(|(n, w)| *n > 0.0 || (minute.is_away(1) && *w > 0.0));
            assert!(worst.is_finite() && allowed, "{new:?}");
            for (w, n) in weights.iter_mut().zip(new).filter(|(_, n)| **n > 0.0) {
                *w = *n;
            }
            sets += 1;
            sets_for_this += 1;
        }
        assert!(
            sets_for_this <= 2 * SETS_MOST,
            "minute {}: {sets_for_this} changes since something changed: {}",
            minute.0,
            outcome.why
        );
        if since_change > 20 && !minute.is_lost() {
            periods += 1;
            let means =
                outcome.seen.iter().zip(LEVELS_S).filter_map(|(s, l)| s.map(|s| s.response.mean_s > l));
            late += usize::from(means.into_iter().any(|late| late));
        }
    }
    println!("{sets} changes in a day; some level was exceeded in {late} of {periods} quiet minutes");
    assert!((1..=30).contains(&sets), "{sets} changes");
    assert!(late * 10 <= periods, "some level was exceeded in {late} of {periods} minutes");
}
