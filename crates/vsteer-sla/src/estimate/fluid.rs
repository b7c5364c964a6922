//! How long do requests take if VMs share pCPUs by weight? Generalised processor sharing; each VM serves requests
//! in order.
//!
//! At any instant each busy VM gets a share of the pCPUs by weight, but at most one pCPU per vCPU with a
//! request. The rest goes to the others. No formula is known for one queue per VM, but a simulation costs only some
//! tens of operations per request.
//!
//! Source: A. Parekh, R. Gallager, "A generalized processor sharing approach to flow control in integrated services
//! networks: the single-node case", IEEE/ACM Transactions on Networking 1(3), 1993.
//!
//! Left out: time slices, switches
//! and wake-ups. VMs share every instant.

use super::traffic::Traffic;
use super::{Ran, Sharing, rounds_apart};
use crate::window::{PERCENTILE, Response};
use std::collections::VecDeque;
use vsteer_core::stats::{mean, quantile};

/// pCPUs that every VM may use.
#[derive(Debug, Clone, PartialEq)]
pub struct Fluid {
    /// Number of pCPUs.
    pub pcpus: f64,
    /// vCPUs by VM.
    pub vcpus: Vec<u32>,
}

/// One VM's requests.
struct Queue<'a> {
    coming: std::slice::Iter<'a, (f64, f64)>,
    next_s: f64,
    next_work_s: f64,
    /// Work that is left of those being served, and when they came.
    served: Vec<(f64, f64)>,
    /// Those behind: when they came, and their work.
    line: VecDeque<(f64, f64)>,
    /// pCPUs that it gets now.
    speed: f64,
}

impl Queue<'_> {
    fn step(&mut self) {
        (self.next_s, self.next_work_s) = self.coming.next().copied().unwrap_or((f64::INFINITY, 0.0));
    }

    /// What each that is served gets.
    fn each(&self) -> f64 {
        self.speed / self.served.len() as f64
    }
}

impl Fluid {
    /// Response times of every request that counts, by VM.
    pub fn responses(&self, traffic: &[Traffic], weights: &[f64]) -> Vec<Vec<f64>> {
        let mut took: Vec<Vec<f64>> = vec![Vec::new(); traffic.len()];
        fn queue(t: &Traffic) -> Queue<'_> {
            let mut q = Queue {
                coming: t.requests.iter(),
                next_s: 0.0,
                next_work_s: 0.0,
                served: Vec::new(),
                line: VecDeque::new(),
                speed: 0.0,
            };
            q.step();
            q
        }
        let mut queues: Vec<Queue<'_>> = traffic.iter().map(queue).collect();
        let mut now_s = 0.0;
        loop {
            // The next event: an arrival, or the end of a request at its present speed.
            let mut best: (f64, usize, Option<usize>) = (f64::INFINITY, 0, None);
            for (i, q) in queues.iter().enumerate() {
                if q.next_s < best.0 {
                    best = (q.next_s, i, None);
                }
                if q.served.is_empty() {
                    continue;
                }
                let each = q.each();
                for (k, (left_s, _)) in q.served.iter().enumerate() {
                    let end_s = now_s + left_s / each;
                    if end_s < best.0 {
                        best = (end_s, i, Some(k));
                    }
                }
            }
            let (at_s, i, ended) = best;
            if at_s.is_infinite() {
                return took;
            }
            for q in queues.iter_mut().filter(|q| !q.served.is_empty()) {
                let done_s = (at_s - now_s) * q.each();
                q.served.iter_mut().for_each(|(left_s, _)| *left_s = (*left_s - done_s).max(0.0));
            }
            now_s = at_s;
            let q = &mut queues[i];
            let before = q.served.len();
            if let Some(k) = ended {
                let (_, came_s) = q.served.swap_remove(k);
                if came_s >= traffic[i].count_from_s {
                    took[i].push(now_s - came_s);
                }
                q.served.extend(q.line.pop_front().map(|(came_s, work_s)| (work_s, came_s)));
            } else {
                let (came_s, work_s) = (q.next_s, q.next_work_s);
                if q.served.len() < self.vcpus[i] as usize {
                    q.served.push((work_s, came_s));
                } else {
                    q.line.push_back((came_s, work_s));
                }
                q.step();
            }
            if q.served.len() != before {
                self.share(&mut queues, weights);
            }
        }
    }

    /// Sets every VM's speed.
    fn share(&self, queues: &mut [Queue<'_>], weights: &[f64]) {
        let mut left = self.pcpus;
        let mut sum = 0.0;
        for (q, w) in queues.iter_mut().zip(weights) {
            q.speed = if q.served.is_empty() { 0.0 } else { f64::NAN };
            sum += if q.served.is_empty() { 0.0 } else { *w };
        }
        // Who can use less than its part gets that; the rest is shared again.
        loop {
            let (level, mut full) = (left / sum, false);
            for (q, w) in queues.iter_mut().zip(weights).filter(|(q, _)| q.speed.is_nan()) {
                let most = q.served.len() as f64;
                if w * level >= most {
                    q.speed = most;
                    (left, sum, full) = (left - most, sum - w, true);
                }
            }
            if !full {
                queues
                    .iter_mut()
                    .zip(weights)
                    .filter(|(q, _)| q.speed.is_nan())
                    .for_each(|(q, w)| q.speed = w * level);
                return;
            }
        }
    }
}

impl Sharing for Fluid {
    fn run(&self, rounds: &[Vec<Traffic>], weights: &[f64], _between: &dyn Fn()) -> Vec<Option<Ran>> {
        let mut took: Vec<Vec<f64>> = vec![Vec::new(); weights.len()];
        let mut means: Vec<Vec<f64>> = vec![Vec::new(); weights.len()];
        for traffic in rounds {
            let of = self.responses(traffic, weights);
            means.iter_mut().zip(&of).for_each(|(means, of)| means.extend(mean(of)));
            took.iter_mut().zip(of).for_each(|(all, of)| all.extend(of));
        }
        let of = |(took, means): (&Vec<f64>, &Vec<f64>)| {
            let response = Response { mean_s: mean(took)?, p95_s: quantile(took, PERCENTILE)? };
            Some(Ran { response, rounds_apart_s: rounds_apart(means) })
        };
        took.iter().zip(&means).map(of).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::traffic::rounds;
    use super::*;
    use crate::window::Seen;

    fn seen(rate_hz: f64, service_cv2: f64) -> Seen {
        let response = Response { mean_s: 1.0, p95_s: 1.0 };
        Seen {
            rate_hz,
            gap_cv2: 1.0,
            service_s: 0.01,
            beside: 0.0,
            service_cv2,
            response,
            weight: 1.0,
            vcpus: 1,
        }
    }

    fn run(fluid: &Fluid, all: &[Seen], weights: &[f64]) -> Vec<Response> {
        let rates: Vec<f64> = all.iter().map(|s| s.rate_hz).collect();
        fluid
            .run(&rounds(all, &[], &rates, 800_000), weights, &|| {})
            .into_iter()
            .map(|r| r.unwrap().response)
            .collect()
    }

    /// M/M/1 at 0.5 and 0.8, M/D/1 at 0.5: x / (1 - ρ), and x + ρ x / (2 (1 - ρ)).
    #[test]
    fn alone_it_is_the_textbooks_queue() {
        let fluid = Fluid { pcpus: 1.0, vcpus: vec![1] };
        let of = |rate, cv2| run(&fluid, &[seen(rate, cv2)], &[1.0])[0];
        for (rate, cv2, expected) in [(50.0, 1.0, 0.02), (80.0, 1.0, 0.05), (50.0, 0.0, 0.015)] {
            let got = of(rate, cv2);
            assert!((got.mean_s / expected - 1.0).abs() < 0.02, "{rate} {cv2}: {got:?}");
        }
        // Exponential with the mean: the 95th is ln 20 of it.
        assert!((of(50.0, 1.0).p95_s / (0.02 * 20.0_f64.ln()) - 1.0).abs() < 0.02);
    }

    /// M/M/2 at 0.8 of each: x / (1 - ρ²). Two vCPUs on one pCPU, though, are no faster than one.
    #[test]
    fn two_vcpus_serve_two_at_once() {
        let two = Fluid { pcpus: 2.0, vcpus: vec![2] };
        let got = run(&two, &[seen(160.0, 1.0)], &[1.0])[0];
        assert!((got.mean_s / (0.01 / 0.36) - 1.0).abs() < 0.02, "{got:?}");
        let one = Fluid { pcpus: 1.0, vcpus: vec![2] };
        let got = run(&one, &[seen(80.0, 1.0)], &[1.0])[0];
        assert!((got.mean_s / 0.05 - 1.0).abs() < 0.04, "{got:?}");
    }

    /// Work is conserved: with equal exponential services the mean over all is M/M/1's whatever the weights are.
    #[test]
    fn weights_move_waits_about() {
        let all = [seen(40.0, 1.0), seen(40.0, 1.0)];
        let fluid = Fluid { pcpus: 1.0, vcpus: vec![1, 1] };
        let of = |weight: f64| run(&fluid, &all, &[weight, 1.0]);
        for weight in [1.0, 4.0, 50.0] {
            let got = of(weight);
            let both = (got[0].mean_s + got[1].mean_s) / 2.0;
            assert!((both / 0.05 - 1.0).abs() < 0.03, "{weight}: {got:?}");
        }
        let got = of(50.0);
        assert!(got[0].mean_s < 0.55 * got[1].mean_s);
        // Nearly all of the pCPU whenever it wants: alone at a load of 0.4.
        let got = of(1e4);
        assert!((got[0].mean_s / (0.01 / 0.6) - 1.0).abs() < 0.03, "{got:?}");
    }
}
