//! What the solver promises: as good as an independent method's weights to 1e-9, and no condition broken.

use super::*;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

fn free(rate_hz: f64, service_ms: f64) -> Guest {
    Guest { rate_hz, service_s: service_ms / 1e3, level_s: None, bounds: (0.0, 1.0) }
}

fn problem(guests: Vec<Guest>) -> Problem {
    Problem { guests, driver: 0.0 }
}

/// Scenario 1's second interval: w_i ~ 1 / (λ_i sqrt(x_i)), and no other weights do better.
#[test]
fn without_bounds_it_is_the_closed_form() {
    let p = problem(vec![free(45.0, 6.6), free(45.0, 6.6), free(170.0, 1.7)]);
    let best = best(&p).unwrap();
    let form: Vec<f64> = p.guests.iter().map(|g| 1.0 / (g.rate_hz * libm::sqrt(g.service_s))).collect();
    let sum: f64 = form.iter().sum();
    for (w, f) in best.weights.iter().zip(&form) {
        assert!((w - f / sum).abs() < 1e-12, "{best:?}");
    }
    for (i, j) in [(0, 1), (0, 2), (1, 2), (2, 0)] {
        let mut other = best.weights.clone();
        (other[i], other[j]) = (other[i] + 1e-3, other[j] - 1e-3);
        assert!(told(&p, other, 0).total_s > best.total_s);
    }
}

/// With a driver domain: w_i ~ 1 / sqrt(λ_i (λ_i x_i + c)).
#[test]
fn the_driver_domain_counts() {
    let p = Problem { driver: 0.1, ..problem(vec![free(30.0, 6.6), free(120.0, 1.7), free(5.0, 20.0)]) };
    let best = best(&p).unwrap();
    let form = |g: &Guest| 1.0 / libm::sqrt(g.rate_hz * (g.rate_hz * g.service_s + 0.1));
    let sum: f64 = p.guests.iter().map(form).sum();
    for (w, g) in best.weights.iter().zip(&p.guests) {
        assert!((w - form(g) / sum).abs() < 1e-12);
    }
}

/// Levels that need exactly all there is, a little less and a little more.
#[test]
fn levels_hold_or_are_said_not_to() {
    let with = |level_ms: f64| {
        let mut guests = vec![free(45.0, 6.6), free(45.0, 6.6), free(170.0, 1.7)];
        for g in &mut guests {
            g.level_s = Some(level_ms / 1e3);
        }
        best(&problem(guests))
    };
    // Σ x / S = 1.
    let tight = 6.6 + 6.6 + 1.7;
    let held = with(tight * 1.001).unwrap();
    assert!(held.response_s.iter().all(|r| *r <= tight * 1.0011e-3), "{held:?}");
    let Err(Unsolved::Levels { need }) = with(tight * 0.9) else { panic!() };
    assert!((need - 1.0 / 0.9).abs() < 1e-9);
}

#[test]
fn nonsense_is_told() {
    let of = |g: Guest| best(&problem(vec![free(1.0, 1.0), g]));
    assert_eq!(of(free(0.0, 1.0)), Err(Unsolved::Figures { guest: 1 }));
    assert_eq!(of(free(f64::NAN, 1.0)), Err(Unsolved::Figures { guest: 1 }));
    assert_eq!(of(Guest { bounds: (0.6, 0.5), ..free(1.0, 1.0) }), Err(Unsolved::Bounds));
    assert_eq!(best(&problem(Vec::new())), Err(Unsolved::Bounds));
    assert_eq!(best(&problem(vec![free(3.0, 1.0)])).unwrap().weights, [1.0]);
}

/// A problem in `v`, the weights up to their scale: the least of Σ b / v where Σ a v is 1 and no slack is below 0.
struct Barrier {
    a: Vec<f64>,
    b: Vec<f64>,
    /// Slacks of v_i - low_i, v_i - φ_i s, κ_i s - v_i: (i, part of v_i, part of s, constant).
    rows: Vec<(usize, f64, f64, f64)>,
}

impl Barrier {
    fn of(p: &Problem) -> Barrier {
        let mut rows: Vec<(usize, f64, f64, f64)> = Vec::new();
        for (i, g) in p.guests.iter().enumerate() {
            let low = g.level_s.map_or(0.0, |s| 1.0 / (g.rate_hz * s));
            if low > 0.0 {
                rows.push((i, 1.0, 0.0, -low));
            }
            if g.bounds.0 > 0.0 {
                rows.push((i, 1.0, -g.bounds.0, 0.0));
            }
            if g.bounds.1 < 1.0 {
                rows.push((i, -1.0, g.bounds.1, 0.0));
            }
        }
        Barrier {
            a: p.guests.iter().map(|g| g.rate_hz * g.service_s + p.driver).collect(),
            b: p.guests.iter().map(|g| 1.0 / g.rate_hz).collect(),
            rows,
        }
    }

    fn slack(&self, v: &[f64]) -> Vec<f64> {
        let s: f64 = v.iter().sum();
        self.rows.iter().map(|(i, own, all, c)| own * v[*i] + all * s + c).collect()
    }

    fn sum(&self, v: &[f64]) -> f64 {
        self.b.iter().zip(v).map(|(b, v)| b / v).sum()
    }

    /// Newton's step at the barrier's parameter `t`.
    fn newton(&self, v: &[f64], t: f64) -> Vec<f64> {
        let (a, b, n, s) = (&self.a, &self.b, v.len(), self.slack(v));
        let mut m = vec![vec![0.0; n + 2]; n + 1];
        // Of the barrier's gradient and Hessian, what each VM's row and column, and all of them, have.
        let (mut row, mut every, mut all_grad) = (vec![0.0; n], 0.0, 0.0);
        for i in 0..n {
            m[i][i] += t * 2.0 * b[i] / (v[i] * v[i] * v[i]) + 1.0 / (v[i] * v[i]);
            m[i][n + 1] += t * b[i] / (v[i] * v[i]) + 1.0 / v[i];
            (m[i][n], m[n][i]) = (a[i], a[i]);
        }
        for ((i, own, all, _), s) in self.rows.iter().zip(&s) {
            m[*i][*i] += own * own / (s * s);
            m[*i][n + 1] += own / s;
            row[*i] += own * all / (s * s);
            every += all * all / (s * s);
            all_grad += all / s;
        }
        for i in 0..n {
            m[i][n + 1] += all_grad;
            for k in 0..n {
                m[i][k] += row[i] + row[k] + every;
            }
        }
        let step = dense(m);
        assert!(step.iter().all(|d| d.is_finite()), "Newton's rows cannot be solved at t = {t:e}");
        step
    }

    /// Moves along `step`, at most so far that every value and slack stays above 0.
    fn moved(&self, v: &[f64], step: &[f64]) -> Vec<f64> {
        let mut part = 1.0;
        let moved = |part: f64| -> Vec<f64> { v.iter().zip(step).map(|(v, d)| v + part * d).collect() };
        while moved(part).iter().any(|v| *v <= 0.0) || self.slack(&moved(part)).iter().any(|s| *s <= 0.0) {
            part *= 0.5;
        }
        moved(if part < 1.0 { 0.99 * part } else { 1.0 })
    }
}

/// A log barrier with dense Newton steps: nothing in common with what it checks but the problem.
///
/// From weights `inside`, which hold every bound with room. Gives the weights.
fn by_barrier(p: &Problem, inside: &[f64]) -> Vec<f64> {
    let barrier = Barrier::of(p);
    let total: f64 = barrier.a.iter().zip(inside).map(|(a, w)| a * w).sum();
    let mut v: Vec<f64> = inside.iter().map(|w| w / total).collect();
    assert!(barrier.slack(&v).iter().all(|s| *s > 0.0), "no room");
    // The sum falls short of the least by at most `conditions / t`. A larger t than this needs makes Newton's rows too
    // unequal to solve.
    let conditions = (barrier.rows.len() + p.guests.len()) as f64;
    let mut t = 1.0;
    while conditions / t > 1e-11 * barrier.sum(&v) {
        for _ in 0..60 {
            let next = barrier.moved(&v, &barrier.newton(&v, t));
            let far = v.iter().zip(&next).map(|(a, b)| ((a - b) / a).abs()).fold(0.0, f64::max);
            v = next;
            if far < 1e-9 {
                break;
            }
        }
        t *= 8.0;
    }
    let s: f64 = v.iter().sum();
    v.iter().map(|v| v / s).collect()
}

/// Solves the augmented rows.
fn dense(mut m: Vec<Vec<f64>>) -> Vec<f64> {
    let n = m.len();
    for i in 0..n {
        let best = (i..n).max_by(|x, y| m[*x][i].abs().total_cmp(&m[*y][i].abs())).unwrap();
        m.swap(i, best);
        let pivot = m[i].clone();
        for row in m.iter_mut().skip(i + 1) {
            let f = row[i] / pivot[i];
            if f != 0.0 {
                row.iter_mut().zip(&pivot).skip(i).for_each(|(x, p)| *x -= f * p);
            }
        }
    }
    let mut x = vec![0.0; n];
    for i in (0..n).rev() {
        let known: f64 = (i + 1..n).map(|k| m[i][k] * x[k]).sum();
        x[i] = (m[i][n] - known) / m[i][i];
    }
    x
}

/// A problem made around weights that hold all it demands, so that it has a solution; those weights.
type Made = (Problem, Vec<f64>);

/// Levels leave `room` at the weights that the problem is made around, as a part of each.
fn problems(n: std::ops::Range<usize>, room: std::ops::Range<f64>) -> impl Strategy<Value = Made> {
    let figures = (0.0..5.0f64, 0.2..20.0f64, 0.2..5.0f64);
    let bounds = (prop::option::of(0.05..0.95f64), prop::option::of(1.05..4.0f64), prop::option::of(room));
    let driver = prop_oneof![Just(0.0), 0.01..0.5f64];
    (prop::collection::vec((figures, bounds), n), driver).prop_map(|(all, driver)| {
        let sum: f64 = all.iter().map(|((_, _, w), _)| w).sum();
        let weights: Vec<f64> = all.iter().map(|((_, _, w), _)| w / sum).collect();
        let guests = all.iter().zip(&weights).map(|(((rate, service_ms, _), (floor, cap, _)), w)| Guest {
            bounds: (floor.map_or(0.0, |f| f * w), cap.map_or(1.0, |c| (c * w).min(1.0))),
            // 1 to 150 requests a second.
            ..free(libm::exp(*rate), *service_ms)
        });
        let mut p = Problem { guests: guests.collect(), driver };
        let now = told(&p, weights.clone(), 0).response_s;
        for ((g, r), (_, (_, _, room))) in p.guests.iter_mut().zip(now).zip(&all) {
            g.level_s = room.map(|room| r * (1.0 + room));
        }
        (p, weights)
    })
}

/// Equations (1) to (3) as they are printed, and what of the conditions is broken most, as a part.
fn by_the_book(p: &Problem, w: &[f64]) -> (f64, f64) {
    let (mut total, mut broken) = (0.0, (w.iter().sum::<f64>() - 1.0).abs());
    for (i, g) in p.guests.iter().enumerate() {
        let others = p.guests.iter().enumerate().filter(|(k, _)| *k != i);
        let wait: f64 = others.map(|(k, o)| w[k] / w[i] * (o.rate_hz / g.rate_hz) * o.service_s).sum();
        let r = g.service_s + wait + p.driver / (w[i] * g.rate_hz);
        total += r;
        broken = broken.max(g.level_s.map_or(0.0, |s| r / s - 1.0));
        broken = broken.max((g.bounds.0 - w[i]) / w[i]).max((w[i] - g.bounds.1) / g.bounds.1);
    }
    (total, broken)
}

fn as_good_as_the_barrier((p, inside): &Made) -> Result<(), TestCaseError> {
    let ours = best(p).unwrap();
    let (is, broken) = by_the_book(p, &ours.weights);
    let (other, other_broken) = by_the_book(p, &by_barrier(p, inside));
    prop_assert!((is / other - 1.0).abs() < 1e-9, "{is} against {other}, {} passes", ours.passes);
    prop_assert!((is / ours.total_s - 1.0).abs() < 1e-12);
    prop_assert!(broken < 1e-9 && other_broken < 1e-9, "{broken} {other_broken}");
    Ok(())
}

/// Both ways, and that neither breaks a condition.
fn both_ways(p: &Problem) -> Result<(), TestCaseError> {
    let ours = best(p).unwrap();
    let slow = weights(nested::v(&checked(p).unwrap(), &mut 0));
    let ((is, broken), (other, other_broken)) = (by_the_book(p, &ours.weights), by_the_book(p, &slow));
    prop_assert!((is / other - 1.0).abs() < 1e-9, "{is} against {other}, {} passes", ours.passes);
    prop_assert!(broken < 1e-9 && other_broken < 1e-9, "{broken} {other_broken}");
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn it_is_what_a_barrier_method_finds(made in problems(3..20, 1e-2..2.0)) {
        as_good_as_the_barrier(&made)?;
    }

    /// Levels that hardly leave room: 1e-5 of each.
    #[test]
    fn with_hardly_any_room_too(made in problems(3..12, 1e-5..1e-3)) {
        as_good_as_the_barrier(&made)?;
    }

    #[test]
    fn the_slow_way_is_as_good(made in problems(1..12, 1e-6..2.0)) {
        both_ways(&made.0)?;
    }

    /// Without Newton's method for the last digits.
    #[test]
    fn the_searches_alone_are_as_good(made in problems(1..8, 1e-6..2.0)) {
        let p = &made.0;
        let (_, v) = nested::search(&checked(p).unwrap(), 4.0 * f64::EPSILON, &mut 0);
        let ((is, broken), (other, _)) = (by_the_book(p, &weights(v)), by_the_book(p, &best(p).unwrap().weights));
        prop_assert!((is / other - 1.0).abs() < 1e-9 && broken < 1e-9, "{is} against {other}, {broken}");
    }
}

/// `VSTEER_SOLVE_CASES=100000` for more than `make check` has time for: how often Newton's method does not arrive is printed.
#[test]
fn newton_arrives() {
    let cases = std::env::var("VSTEER_SOLVE_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(2000);
    let mut runner = TestRunner::deterministic();
    let (any, tight) = (problems(1..40, 1e-2..2.0), problems(1..40, 1e-9..1e-3));
    let (mut lost, mut passes, mut most) = ([0; 2], 0, 0);
    for case in 0..cases {
        let made = if case % 2 == 0 { any.new_tree(&mut runner) } else { tight.new_tree(&mut runner) };
        let (p, _) = made.unwrap().current();
        let ours = best(&p).unwrap();
        let (_, broken) = by_the_book(&p, &ours.weights);
        assert!(broken < 1e-9, "{broken}: {p:?}");
        let mut took = 0;
        if newton::from_the_free(&checked(&p).unwrap(), &mut took).is_none() {
            lost[case % 2] += 1;
        } else {
            (passes, most) = (passes + took, most.max(took));
        }
    }
    println!(
        "{lost:?} of {cases} not by Newton; {} passes in the mean, {most} at most",
        passes as usize / cases
    );
}

/// What once was found wrong: every s that was tried allowed no Σ A v = 1, or only with µ below 0.
#[test]
fn caps_that_leave_one_vm_little() {
    let of = |rate_hz, ms, bounds| Guest { bounds, ..free(rate_hz, ms) };
    let p = problem(vec![
        of(29.768679661281634, 2.572029405701866, (0.0, 0.7520898640816589)),
        of(72.6672760899125, 8.991835148771105, (0.10164126998059236, 0.3)),
        of(7.482371059018422, 0.2, (0.0, 0.513239061397298)),
        of(115.56003662165483, 5.6304096052213985, (0.08528896498691553, 0.3)),
    ]);
    both_ways(&p).unwrap();
}

/// Nothing is left to choose: floors or caps that are 1 together, weights that are fixed, levels that fill the plane.
#[test]
fn where_there_is_no_room() {
    let of = |bounds| Guest { bounds, ..free(40.0, 5.0) };
    let near = |p: &Problem, w: &[f64]| {
        let ours = best(p).unwrap();
        assert!(ours.weights.iter().zip(w).all(|(a, b)| (a - b).abs() < 1e-9), "{ours:?}");
        assert!(by_the_book(p, &ours.weights).1 < 1e-9, "{ours:?}");
    };
    near(&problem(vec![of((0.5, 1.0)), of((0.2, 1.0)), of((0.3, 0.9))]), &[0.5, 0.2, 0.3]);
    near(&problem(vec![of((0.0, 0.5)), of((0.1, 0.2)), of((0.0, 0.3))]), &[0.5, 0.2, 0.3]);
    near(&problem(vec![of((0.5, 0.5)), of((0.2, 0.2)), of((0.0, 1.0))]), &[0.5, 0.2, 0.3]);
    near(&problem(vec![of((0.1, 0.1)); 10]), &[0.1; 10]);
    near(&problem(vec![of((0.0, 1.0))]), &[1.0]);
    // Σ x / S = 1: only w ~ 1 / (λ S) holds.
    let mut tight = problem(vec![free(45.0, 6.6), free(45.0, 6.6), free(170.0, 1.7)]);
    tight.guests.iter_mut().for_each(|g| g.level_s = Some(14.9e-3));
    let parts = [1.0 / 45.0, 1.0 / 45.0, 1.0 / 170.0];
    let sum: f64 = parts.iter().sum();
    near(&tight, &parts.map(|p| p / sum));
    // The same of one VM, by a cap.
    tight.guests[0].bounds.1 = 0.2;
    assert!(matches!(best(&tight), Err(Unsolved::Levels { need }) if need > 1.0 + 1e-3));
}

/// What levels need with bounds is the least of a linear program: tried by many weights.
#[test]
fn levels_that_cannot_be_held_are_told() {
    let mut runner = TestRunner::deterministic();
    let made = problems(2..8, 1e-2..1e-1);
    let (mut none, mut some) = (0, 0);
    for _ in 0..300 {
        let (mut p, inside) = made.new_tree(&mut runner).unwrap().current();
        if p.guests.iter().all(|g| g.level_s.is_none()) {
            continue;
        }
        let need = nested::least_need(&checked(&p).unwrap());
        assert!(need < 1.0, "{need}");
        // R falls as 1 / need where all levels grow alike; at so much less they are held by nothing.
        let held = |p: &Problem, by: f64| {
            let guests =
                p.guests.iter().map(|g| Guest { level_s: g.level_s.map(|s| s * by), ..*g }).collect();
            best(&Problem { guests, driver: p.driver })
        };
        let at_inside = by_the_book(&p, &inside).1;
        assert!(at_inside <= 1e-12, "{at_inside}");
        match held(&p, need * (1.0 + 1e-6)) {
            Ok(found) => {
                p.guests.iter_mut().for_each(|g| g.level_s = g.level_s.map(|s| s * need * (1.0 + 1e-6)));
                assert!(by_the_book(&p, &found.weights).1 < 1e-9);
                p.guests.iter_mut().for_each(|g| g.level_s = g.level_s.map(|s| s / need / (1.0 + 1e-6)));
                some += 1;
            }
            Err(why) => panic!("{why:?}: {need}"),
        }
        let Err(Unsolved::Levels { need: told }) = held(&p, need * (1.0 - 1e-6)) else { panic!("{p:?}") };
        assert!((told * (1.0 - 1e-6) - 1.0).abs() < 1e-9);
        none += 1;
    }
    assert!(none > 200 && some > 200);
}

#[test]
fn large_ones_are_as_exact() {
    let mut runner = TestRunner::deterministic();
    for n in [32, 100, 256] {
        let made = problems(n..n + 1, 1e-2..2.0).new_tree(&mut runner).unwrap().current();
        as_good_as_the_barrier(&made).unwrap();
    }
}
