//! How long do requests take on this very host? The simulator, with the requests for demand.
//!
//! The recorded host is simulated as [`vsteer_sim::forecast::replay`] has it (pCPUs, pins, groups, the kernel's scheduler with its
//! parameters), but what VMs want is not what was recorded: it is requests, each vCPU serving those dealt to it in turn, first come
//! first served. Slices, wake-ups and preemption are the scheduler's own.
//!
//! On Xen requests and answers pass Domain-0 ([`crate::driven`]).
//!
//! Left out: VMs that are in no service level still want what they wanted; several workers on one vCPU.

use super::traffic::Traffic;
use super::{Ran, Sharing, rounds_apart};
use crate::window::{PERCENTILE, Response};
use vsteer_core::stats::{mean, quantile};
use vsteer_sim::engine::Stop;
use vsteer_sim::forecast::replay::Replay;
use vsteer_sim::guest::driver::{Asked, ServedSpec};
use vsteer_sim::guest::{Demand, Release, Times};
use vsteer_sim::setup::Vcpu;

/// The recorded host, and where the VMs of the service levels are on it.
pub struct Simulated {
    /// The recorded host.
    pub host: Replay,
    /// Each VM's place in the host's setup, in the order of the levels.
    pub vms: Vec<usize>,
    /// What a weight of 1.0 on the caller's scale is on the scheduler's.
    pub weight_unit: f64,
    /// The way through a driver domain, if that is how requests come.
    pub passage: Option<Passage>,
}

/// A way through a driver domain.
#[derive(Debug, Clone, PartialEq)]
pub struct Passage {
    /// The domain's name.
    pub through: String,
    /// Its CPU time for each request, half of it before and half of it after the server, seconds.
    pub service_s: f64,
}

impl Passage {
    /// A server that is asked for these.
    fn served(&self, jobs: Vec<Release>) -> Demand {
        let half = Times::Fixed(ns(self.service_s / 2.0).max(1));
        let (before, after) = (half, half);
        let (asked, driver) = (Asked::Given(jobs), self.through.clone());
        Demand::Served(Box::new(ServedSpec { asked, driver, before, after, backlog: 1 }))
    }
}

impl Simulated {
    /// The simulated vCPUs of the VM at this place of the setup: their numbers, and their places in the VM.
    fn vcpus(&self, vm: usize) -> Vec<(u32, usize)> {
        let first: usize = self.host.setup.vms[..vm].iter().map(|vm| vm.vcpus.len()).sum();
        let all = self.host.setup.vms[vm].vcpus.iter().enumerate();
        all.filter(|(_, v)| !v.helper).map(|(k, _)| ((first + k) as u32, k)).collect()
    }

    /// Response times of every request that was answered, in the order of arrivals, by VM: when it came, and how long it took, seconds.
    /// `None` where the host cannot be run so.
    pub fn responses(&self, traffic: &[Traffic], weights: &[f64]) -> Option<Vec<Vec<(f64, f64)>>> {
        let mut setup = self.host.setup.clone();
        let (least, most) = self.host.policy.about.weights;
        let mut end_ns = 0;
        let places: Vec<Vec<(u32, usize)>> = self.vms.iter().map(|vm| self.vcpus(*vm)).collect();
        for ((vm, t), (w, vcpus)) in self.vms.iter().zip(traffic).zip(weights.iter().zip(&places)) {
            for (n, (_, k)) in vcpus.iter().enumerate() {
                let dealt = t.requests.iter().skip(n).step_by(vcpus.len());
                let jobs: Vec<Release> = dealt
                    .map(|(at_s, work_s)| Release { at_ns: ns(*at_s), compute_ns: ns(*work_s).max(1) })
                    .collect();
                end_ns = end_ns.max(jobs.last().map_or(0, |j| j.at_ns));
                setup.vms[*vm].vcpus[*k].demand = match &self.passage {
                    Some(passage) => passage.served(jobs),
                    None => Demand::Released { jobs, repeat_ns: None },
                };
            }
            setup.vms[*vm].weight =
                Some(libm::round(w * self.weight_unit).clamp(least.into(), most.into()) as u32);
        }
        let mut simulation = (self.host.policy.build)(&setup, &self.host.values).ok()?;
        if simulation.run(end_ns, u64::MAX) != Stop::Reached {
            return None;
        }
        let of = |(t, vcpus): (&Traffic, &Vec<(u32, usize)>)| {
            let mut all: Vec<(f64, f64)> = Vec::with_capacity(t.requests.len());
            for (n, (v, _)) in vcpus.iter().enumerate() {
                let dealt = t.requests.iter().skip(n).step_by(vcpus.len());
                let took = simulation.took_ns(Vcpu(*v)).iter().map(|ns| *ns as f64 / 1e9);
                all.extend(dealt.zip(took).map(|((at_s, _), took_s)| (*at_s, took_s)));
            }
            all.sort_by(|a, b| a.0.total_cmp(&b.0));
            all
        };
        Some(traffic.iter().zip(&places).map(of).collect())
    }
}

fn ns(s: f64) -> u64 {
    (s * 1e9) as u64
}

impl Sharing for Simulated {
    fn run(&self, rounds: &[Vec<Traffic>], weights: &[f64], between: &dyn Fn()) -> Vec<Option<Ran>> {
        let mut took: Vec<Vec<f64>> = vec![Vec::new(); weights.len()];
        let mut means: Vec<Vec<f64>> = vec![Vec::new(); weights.len()];
        for traffic in rounds {
            let Some(of) = self.responses(traffic, weights) else { return vec![None; weights.len()] };
            between();
            for (i, of) in of.iter().enumerate() {
                let counted =
                    of.iter().filter(|(at_s, _)| *at_s >= traffic[i].count_from_s).map(|(_, took_s)| *took_s);
                let counted: Vec<f64> = counted.collect();
                means[i].extend(mean(&counted));
                took[i].extend(counted);
            }
        }
        let later_s = self.host.hand_over_ns as f64 / 1e9;
        let of = |(took, means): (&Vec<f64>, &Vec<f64>)| {
            let response =
                Response { mean_s: mean(took)? + later_s, p95_s: quantile(took, PERCENTILE)? + later_s };
            Some(Ran { response, rounds_apart_s: rounds_apart(means) })
        };
        took.iter().zip(&means).map(of).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::fluid::Fluid;
    use super::super::traffic::rounds;
    use super::*;
    use crate::window::Seen;
    use vsteer_core::nouns::{Role, Tid, VmId};
    use vsteer_core::topology::machine;
    use vsteer_sim::forecast::replay::Thread;
    use vsteer_sim::policy::Values;
    use vsteer_sim::sched;
    use vsteer_sim::setup::{Setup, VcpuSetup, VmSetup};

    fn host(names: &[&str]) -> Simulated {
        let policy = sched::find("eevdf").unwrap();
        let vm = |name: &&str| VmSetup::new(*name, vec![VcpuSetup::new(Demand::Idle)]);
        let setup = Setup::new(machine(1, 1, 1, 1).unwrap(), names.iter().map(vm).collect(), 1);
        let thread = |(i, name): (usize, &&str)| Thread {
            vm: VmId((*name).into()),
            role: Role::Vcpu(0),
            tid: Tid(i as u32),
        };
        let threads = names.iter().enumerate().map(thread).collect();
        let values = Values::defaults(policy.about.parameters);
        let replay = Replay { setup, policy, values, threads, hand_over_ns: 0 };
        Simulated {
            host: replay,
            vms: (0..names.len()).collect(),
            weight_unit: f64::from(policy.about.default_weight),
            passage: None,
        }
    }

    /// EEVDF shares much as the fluid does where requests are longer than its slices.
    #[test]
    fn it_is_near_the_fluid() {
        let one = |rate_hz, service_s| Seen {
            rate_hz,
            gap_cv2: 1.0,
            service_s,
            beside: 0.0,
            service_cv2: 1.0,
            response: Response { mean_s: 1.0, p95_s: 1.0 },
            weight: 1.0,
            vcpus: 1,
        };
        let all = [one(20.0, 0.02), one(20.0, 0.02)];
        let traffic = rounds(&all, &[], &[20.0, 20.0], 60_000);
        let fluid = Fluid { pcpus: 1.0, vcpus: vec![1, 1] };
        let simulated = host(&["a", "b"]);
        for weights in [[1.0, 1.0], [4.0, 1.0]] {
            let (told, near) =
                (simulated.run(&traffic, &weights, &|| {}), fluid.run(&traffic, &weights, &|| {}));
            for (told, near) in told.iter().zip(near) {
                let (told, near) = (told.unwrap().response, near.unwrap().response);
                assert!((told.mean_s / near.mean_s - 1.0).abs() < 0.1, "{weights:?}: {told:?} {near:?}");
                assert!((told.p95_s / near.p95_s - 1.0).abs() < 0.15, "{weights:?}: {told:?} {near:?}");
            }
        }
    }
}
