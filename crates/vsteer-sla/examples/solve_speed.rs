//! How long do the best weights take, measured against plain passes over the same VMs in the same run?
//!
//! A plain pass computes Σ a_i w_i and Σ b_i / w_i, which is what the sum of delays is made of: nobody who looks at all VMs does with
//! less. Every third VM has a floor, every fourth a cap; the random problems are the same in every run.
//!
//! One JSON line per size: medians of alternating repetitions, their ratio to 50 plain passes, and whether the promise (at most
//! 1 at 5,000 VMs) is kept. Exits with 1 where it is not. `solve_speed [REPETITIONS]`

use std::hint::black_box;
use std::time::Instant;
use vsteer_core::random::Random;
use vsteer_sla::solve::{Guest, Problem, best};

/// VMs, and the most that the solver may take, in 50 plain passes.
const SIZES: [(usize, Option<f64>); 3] = [(32, None), (256, None), (5000, Some(1.0))];
const PASSES: usize = 50;

fn problem(n: usize) -> Problem {
    let mut random = Random::new(n as u64, 1);
    let guests = (0..n).map(|i| Guest {
        // At a load of 0.8 together.
        rate_hz: 1.0 + random.exponential(40.0),
        service_s: 0.0002 + random.exponential(0.8 / (41.0 * n as f64)),
        level_s: None,
        bounds: (
            if i % 3 == 0 { 0.9 / n as f64 } else { 0.0 },
            if i % 4 == 1 { (1.5 / n as f64).min(1.0) } else { 1.0 },
        ),
    });
    Problem { guests: guests.collect(), driver: 0.02 }
}

fn plain(loads: &[f64], gaps: &[f64], weights: &[f64]) -> f64 {
    let (mut served, mut waited) = (0.0, 0.0);
    for ((a, b), w) in loads.iter().zip(gaps).zip(weights) {
        served += a * w;
        waited += b / w;
    }
    served * waited
}

fn median(mut of: Vec<f64>) -> f64 {
    of.sort_by(f64::total_cmp);
    of[of.len() / 2]
}

fn main() {
    let repetitions: usize = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(5);
    let mut kept = true;
    for (n, at_most) in SIZES {
        let p = problem(n);
        let loads: Vec<f64> = p.guests.iter().map(|g| g.rate_hz * g.service_s + p.driver).collect();
        let gaps: Vec<f64> = p.guests.iter().map(|g| 1.0 / g.rate_hz).collect();
        let found = best(&p).expect("bounds that leave room");
        let (mut plains, mut solves) = (Vec::new(), Vec::new());
        // Short ones: many of them, so that what else the machine does falls into few.
        for _ in 0..repetitions * 40 {
            let start = Instant::now();
            for _ in 0..PASSES {
                black_box(plain(black_box(&loads), black_box(&gaps), black_box(&found.weights)));
            }
            plains.push(start.elapsed().as_secs_f64());
            let start = Instant::now();
            let _ = black_box(best(black_box(&p)));
            solves.push(start.elapsed().as_secs_f64());
        }
        let (plain_us, solve_us) = (median(plains) * 1e6, median(solves) * 1e6);
        let ratio = solve_us / plain_us;
        let good = at_most.is_none_or(|most| ratio <= most);
        kept &= good;
        let most = at_most.map_or("null".to_owned(), |most| most.to_string());
        println!(
            "{{\"vms\":{n},\"solve_us\":{solve_us:.1},\"plain_50_us\":{plain_us:.1},\"ratio\":{ratio:.3},\"at_most\":{most},\
             \"kept\":{good},\"passes\":{},\"repetitions\":{}}}",
            found.passes,
            repetitions * 40,
        );
    }
    std::process::exit(i32::from(!kept));
}
