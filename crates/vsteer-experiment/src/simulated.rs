//! How often is the analysis wrong? Analyses thousands of simulated experiments whose truth is known.
//!
//! Times are normal around their settings' means, with the published study's deviations; block and drift effects
//! are added where a design is meant to cancel them. It counts false alarms (a difference reported without a true
//! one), finds (a true difference reported) with the computed power, and intervals that hold the truth. A deviation
//! of 20,000 counts at 5 % is 0.15 points, so figures are good to 0.3.
//!
//! Two ways that are not used are counted too, so that the figures are seen to be able to fail: a plain interval
//! that is stopped at a margin, and settings run one after the other on a host that drifts.
//!
//! Left out: values that are not normal: rank tests do not need it, t tests of 5 and more runs bear moderate skew.

use super::analyse::blocks::{TwoStage, needed};
use super::analyse::difference::welch;
use super::analyse::many::holm;
use super::analyse::mean::Summary;
use super::analyse::power;
use super::analyse::ranks::Dealt;
use super::analyse::{ALPHA, distribution};
use super::design::{Design, Varied, lay_out};
use serde::{Deserialize, Serialize};
use vsteer_core::random::Random;
use vsteer_core::stats;

/// The study's mean time of its host, s, and its deviations: host and VM, mitigations on and off.
const MEAN_S: f64 = 78.6;
const HOST_SD_S: [f64; 2] = [0.183, 0.342];
const VM_SD_S: [f64; 2] = [1.966, 3.066];
/// The true difference that is looked for.
const TRUE_PERCENT: f64 = 3.0;

/// What was counted in the experiments of one design.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Counted {
    /// The design, in words.
    pub design: String,
    /// How many experiments.
    pub experiments: usize,
    /// What was counted: `false alarms`, `covered`, `found`.
    pub what: String,
    /// By which method.
    pub by: String,
    /// How many of the experiments, %.
    pub percent: f64,
    /// Allowed range, %; `None`: only for comparison.
    pub accepted: Option<(f64, f64)>,
    /// What was computed, %, where it was.
    pub computed: Option<f64>,
}

impl Counted {
    /// Is it where it must be?
    pub fn held(&self) -> bool {
        self.accepted.is_none_or(|(low, high)| (low..=high).contains(&self.percent))
    }
}

/// Draws normal values.
struct Draw(Random);

impl Draw {
    fn new(seed: u64, stream: u64) -> Draw {
        Draw(Random::new(seed, stream))
    }

    fn normal(&mut self) -> f64 {
        // (0, 1]: 1 itself would be infinite.
        stats::normal_quantile(self.0.unit().min(1.0 - 1e-16))
    }

    fn runs(&mut self, n: usize, mean: f64, sd: f64) -> Vec<f64> {
        (0..n).map(|_| mean + sd * self.normal()).collect()
    }
}

/// A tally of experiments.
struct Tally {
    design: String,
    experiments: usize,
    rows: Vec<Counted>,
}

impl Tally {
    fn new(design: impl Into<String>, experiments: usize) -> Tally {
        Tally { design: design.into(), experiments, rows: Vec::new() }
    }

    fn row(
        &mut self,
        what: &str,
        by: &str,
        count: usize,
        accepted: Option<(f64, f64)>,
        computed: Option<f64>,
    ) {
        self.rows.push(Counted {
            design: self.design.clone(),
            experiments: self.experiments,
            what: what.to_owned(),
            by: by.to_owned(),
            percent: 100.0 * count as f64 / self.experiments as f64,
            accepted,
            computed,
        });
    }
}

/// False alarms of a test at 5 %, in %.
const LEVEL: Option<(f64, f64)> = Some((4.5, 5.5));
/// Of one that may be more careful.
const LEVEL_AT_MOST: Option<(f64, f64)> = Some((0.0, 5.0 + NOISE));
/// What intervals of 95 % must cover, in %.
const COVERAGE: Option<(f64, f64)> = Some((94.0, 96.0));
/// Two deviations of a count of 20,000 at 5 %, in points.
const NOISE: f64 = 0.3;

/// A found share must be what was computed, to a point.
fn as_computed(computed: f64) -> Option<(f64, f64)> {
    Some((100.0 * computed - 1.0, 100.0 * computed + 1.0))
}

/// Every design, `experiments` each; one seed decides all.
pub fn all(experiments: usize, seed: u64) -> Vec<Counted> {
    let mut rows = Vec::new();
    for (name, sd) in [("host", HOST_SD_S), ("VM", VM_SD_S)] {
        for n in [16, 5] {
            rows.extend(apart(name, sd, n, experiments, seed));
        }
    }
    for first in [5, 8] {
        rows.extend(in_blocks(first, experiments, seed));
    }
    rows.extend(stopped_plainly(experiments, seed));
    rows.extend(one_at_a_time(experiments, seed));
    rows.extend(factorial(Design::Full, 3, experiments, seed));
    rows.extend(factorial(Design::Fractional, 4, experiments, seed));
    rows.extend(drifting(experiments, seed));
    rows
}

/// Two settings, `n` runs of each, by themselves.
fn apart(name: &str, sd: [f64; 2], n: usize, experiments: usize, seed: u64) -> Vec<Counted> {
    let deviations = format!("deviations of the study's {name}, {} and {} s", sd[0], sd[1]);
    let mut tally = Tally::new(format!("two settings, {n} runs each; {deviations}"), experiments);
    let mut draw = Draw::new(seed, 1);
    let dealt = Dealt::untied(n, n);
    let moved = MEAN_S * (1.0 + TRUE_PERCENT / 100.0);
    let (mut alarms, mut unequal, mut ranks, mut covered, mut found) = (0, 0, 0, 0, 0);
    for i in 0..experiments {
        // No true difference: runs of one setting under two names.
        let same = sd[i % 2];
        let (a, b) = (draw.runs(n, MEAN_S, same), draw.runs(n, MEAN_S, same));
        let p = |a: &[f64], b: &[f64]| {
            welch(Summary::of(a).expect("n is at least 2"), Summary::of(b).expect("n is at least 2"))
                .expect("values vary")
        };
        let d = p(&a, &b);
        alarms += usize::from(d.p() < ALPHA);
        ranks += usize::from(dealt.p_of(&a, &b) < ALPHA);
        let half = Summary::of(&a).expect("n is at least 2").half_width(ALPHA);
        covered += usize::from((d.a.mean - MEAN_S).abs() <= half);
        // The means are equal, the deviations are not.
        let (a, b) = (draw.runs(n, MEAN_S, sd[0]), draw.runs(n, MEAN_S, sd[1]));
        unequal += usize::from(p(&a, &b).p() < ALPHA);
        let b: Vec<f64> = b.iter().map(|v| v + moved - MEAN_S).collect();
        found += usize::from(p(&a, &b).p() < ALPHA);
    }
    let truth = welch(Summary { n, mean: MEAN_S, sd: sd[0] }, Summary { n, mean: moved, sd: sd[1] })
        .expect("values vary");
    let computed = power::of_t(truth.value(), truth.standard_error, truth.df, ALPHA);
    tally.row("false alarms, no true difference", "Welch", alarms, LEVEL, None);
    tally.row("false alarms, deviations differ", "Welch", unequal, LEVEL, None);
    tally.row("false alarms, no true difference", "Mann-Whitney", ranks, LEVEL_AT_MOST, None);
    tally.row("covered", "a mean with Student's t interval", covered, COVERAGE, None);
    tally.row(
        &format!("found, {TRUE_PERCENT} % true"),
        "Welch",
        found,
        as_computed(computed),
        Some(100.0 * computed),
    );
    tally.rows
}

/// Half the width that is asked for, and the most blocks, where a stopping rule is in use.
const MARGIN_PERCENT: f64 = 1.5;
const BLOCKS_MOST: usize = 200;

/// Logarithms of values with unequal deviations differ by half the difference of their squares, though their means
/// are equal.
fn log_bias() -> f64 {
    0.5 * (VM_SD_S[0] * VM_SD_S[0] - VM_SD_S[1] * VM_SD_S[1]) / (MEAN_S * MEAN_S)
}

/// A pair in blocks, whose number Stein's rule sets: on a host whose load differs from block to block and drifts.
fn in_blocks(first: usize, experiments: usize, seed: u64) -> Vec<Counted> {
    let mut tally = Tally::new(
        format!(
            "a pair in blocks, {first} first, as many as +-{MARGIN_PERCENT} % asks for; the host drifts by \
                10 %"
        ),
        experiments,
    );
    let mut draw = Draw::new(seed, 2);
    let (mut alarms, mut covered, mut of_mean, mut found, mut blocks) = (0, 0, 0, 0, 0);
    for _ in 0..experiments {
        let truth = libm::log1p(TRUE_PERCENT / 100.0);
        let block = |draw: &mut Draw, b: usize| {
            // What the block is like: by chance, and ever slower.
            let common = 0.02 * draw.normal() + 0.10 * b as f64 / BLOCKS_MOST as f64;
            let run = |draw: &mut Draw, sd: f64| libm::log(MEAN_S + sd * draw.normal()) + common;
            (run(draw, VM_SD_S[0]), run(draw, VM_SD_S[1]))
        };
        let mut settings: Vec<(f64, f64)> = (0..first).map(|b| block(&mut draw, b)).collect();
        let differences = |s: &[(f64, f64)]| -> Vec<f64> { s.iter().map(|(a, b)| b - a).collect() };
        let margin = libm::log1p(MARGIN_PERCENT / 100.0);
        let n = needed(&differences(&settings), margin, ALPHA).expect("there are five").min(BLOCKS_MOST);
        settings.extend((first..n).map(|b| block(&mut draw, b)));
        let answer = TwoStage::of(&differences(&settings), first).expect("there are five");
        blocks += n;
        alarms += usize::from(answer.p() < ALPHA);
        let i = answer.interval(ALPHA);
        covered += usize::from((i.low..=i.high).contains(&log_bias()));
        let moved = TwoStage { mean: answer.mean + truth, ..answer };
        found += usize::from(moved.p() < ALPHA);
        // A setting's own mean, without what blocks have in common.
        let plain = draw.runs(n, MEAN_S, VM_SD_S[0]);
        let mean = TwoStage::of(&plain, first).expect("there are five").interval(ALPHA);
        of_mean += usize::from((mean.low..=mean.high).contains(&MEAN_S));
    }
    // In logarithms, as it is analysed.
    let truth = libm::log1p(TRUE_PERCENT / 100.0) + log_bias();
    let margin = libm::log1p(MARGIN_PERCENT / 100.0);
    let computed = power::of_two_stages(truth, margin, first as f64 - 1.0, ALPHA);
    let by = format!("Stein's two stages ({:.1} blocks on average)", blocks as f64 / experiments as f64);
    tally.row("false alarms, no true difference", &by, alarms, LEVEL, None);
    tally.row("covered, the difference", &by, covered, COVERAGE, None);
    tally.row(
        "covered, a setting's mean",
        "Stein's, number of blocks set by something else",
        of_mean,
        COVERAGE,
        None,
    );
    // At least what was computed: blocks are whole, and never fewer than the first.
    tally.row(
        &format!("found, {TRUE_PERCENT} % true"),
        &by,
        found,
        Some((100.0 * computed - NOISE, 100.0)),
        Some(100.0 * computed),
    );
    tally.rows
}

/// What is not done: run until the plain interval is as narrow as wanted.
fn stopped_plainly(experiments: usize, seed: u64) -> Vec<Counted> {
    let mut tally = Tally::new(
        "one setting, 5 runs, then one more until the plain interval is narrow enough (not used)",
        experiments,
    );
    let mut draw = Draw::new(seed, 3);
    let quantiles: Vec<f64> = (0..400)
        .map(|n| if n < 2 { 0.0 } else { distribution::student_quantile(ALPHA, n as f64 - 1.0) })
        .collect();
    let mut covered = 0;
    for _ in 0..experiments {
        let mut x = draw.runs(5, 0.0, 1.0);
        // Some twenty runs.
        let half = loop {
            let s = Summary::of(&x).expect("there are five");
            let half = quantiles[x.len()] * s.standard_error();
            if half <= 0.45 || x.len() + 1 == quantiles.len() {
                break half;
            }
            x.extend(draw.runs(1, 0.0, 1.0));
        };
        covered += usize::from(stats::mean(&x).expect("there are five").abs() <= half);
    }
    // This row shows that the interval covers too little.
    tally.row("covered", "Student's interval, stopped at a margin", covered, Some((0.0, 94.5)), None);
    tally.rows
}

fn varied(factors: usize, levels: usize) -> Vec<Varied> {
    let levels: Vec<String> = (0..levels).map(|l| l.to_string()).collect();
    (0..factors).map(|f| Varied { name: format!("f{f}"), levels: levels.clone(), boots: false }).collect()
}

/// Six levels compared with a first one: how often is a difference reported if there is none?
fn one_at_a_time(experiments: usize, seed: u64) -> Vec<Counted> {
    const BLOCKS: usize = 8;
    let mut tally = Tally::new(format!("one factor of seven levels, {BLOCKS} blocks"), experiments);
    let laid = lay_out(Design::OneAtATime, &varied(1, 7)).expect("one factor of seven levels is a design");
    let mut draw = Draw::new(seed, 4);
    let (mut plain, mut corrected) = (0, 0);
    for _ in 0..experiments {
        let blocks: Vec<Vec<Option<f64>>> = (0..BLOCKS)
            .map(|_| draw.runs(laid.settings.len(), MEAN_S, VM_SD_S[0]).into_iter().map(Some).collect())
            .collect();
        let p: Vec<f64> = laid
            .contrasts
            .iter()
            .map(|c| {
                let x: Vec<f64> = blocks.iter().filter_map(|b| c.of_block(b)).collect();
                TwoStage::of(&x, BLOCKS).expect("there are eight").p()
            })
            .collect();
        plain += usize::from(p.iter().any(|p| *p < ALPHA));
        corrected += usize::from(holm(&p).iter().any(|p| *p < ALPHA));
    }
    tally.row("any false alarm among six", "each by itself (not used)", plain, None, None);
    tally.row("any false alarm among six", "Holm", corrected, LEVEL_AT_MOST, None);
    tally.rows
}

/// Main effects and interactions of factors with two levels.
fn factorial(design: Design, factors: usize, experiments: usize, seed: u64) -> Vec<Counted> {
    const BLOCKS: usize = 5;
    let laid = lay_out(design, &varied(factors, 2)).expect("factors of two levels make every design");
    let part = if design == Design::Full { "full" } else { "half" };
    let mut tally = Tally::new(
        format!(
            "{part} factorial of {factors} factors, {} settings, {BLOCKS} blocks; one has an effect",
            laid.settings.len()
        ),
        experiments,
    );
    let mut draw = Draw::new(seed, 5 + factors as u64);
    let truth = MEAN_S * TRUE_PERCENT / 100.0;
    let (mut found, mut main, mut together, mut covered) = (0, 0, 0, 0);
    for _ in 0..experiments {
        let block = |draw: &mut Draw| -> Vec<Option<f64>> {
            let common = 2.0 * draw.normal();
            laid.settings
                .iter()
                .map(|s| Some(MEAN_S + common + truth * s[0] as f64 + VM_SD_S[0] * draw.normal()))
                .collect()
        };
        let blocks: Vec<Vec<Option<f64>>> = (0..BLOCKS).map(|_| block(&mut draw)).collect();
        let answer = |i: usize| {
            let x: Vec<f64> = blocks.iter().filter_map(|b| laid.contrasts[i].of_block(b)).collect();
            TwoStage::of(&x, BLOCKS).expect("there are five")
        };
        let first = answer(0);
        found += usize::from(first.p() < ALPHA);
        let i = first.interval(ALPHA);
        covered += usize::from((i.low..=i.high).contains(&truth));
        main += usize::from(answer(1).p() < ALPHA);
        let interaction =
            laid.contrasts.iter().position(|c| c.interaction).expect("there are several factors");
        together += usize::from(answer(interaction).p() < ALPHA);
    }
    let error = VM_SD_S[0] * 2.0 / libm::sqrt((BLOCKS * laid.settings.len()) as f64);
    let computed = power::of_t(truth, error, BLOCKS as f64 - 1.0, ALPHA);
    tally.row("false alarms, a factor without effect", "contrast of blocks", main, LEVEL, None);
    tally.row("false alarms, an interaction that is none", "contrast of blocks", together, LEVEL, None);
    tally.row("covered, the factor with one", "contrast of blocks", covered, COVERAGE, None);
    tally.row(
        &format!("found, {TRUE_PERCENT} % true"),
        "contrast of blocks",
        found,
        as_computed(computed),
        Some(100.0 * computed),
    );
    tally.rows
}

/// A host that gets 3 % slower meanwhile: one setting after the other, and in blocks.
fn drifting(experiments: usize, seed: u64) -> Vec<Counted> {
    const RUNS: usize = 16;
    let mut tally = Tally::new(
        format!("two settings that do not differ, {RUNS} runs each, on a host that gets 3 % slower"),
        experiments,
    );
    let mut draw = Draw::new(seed, 20);
    let (mut apart, mut blocks) = (0, 0);
    for _ in 0..experiments {
        let mut at = |moment: usize| {
            MEAN_S * (1.0 + 0.03 * moment as f64 / (2 * RUNS) as f64) + VM_SD_S[0] * draw.normal()
        };
        let a: Vec<f64> = (0..RUNS).map(&mut at).collect();
        let b: Vec<f64> = (RUNS..2 * RUNS).map(&mut at).collect();
        let d = welch(Summary::of(&a).expect("there are many"), Summary::of(&b).expect("there are many"));
        apart += usize::from(d.expect("values vary").p() < ALPHA);
        // In turn within each block, as a coin says: here in alternation, which is as good against a steady drift.
        let x: Vec<f64> = (0..RUNS)
            .map(|i| {
                let (first, second) = (at(2 * i), at(2 * i + 1));
                if i % 2 == 0 { second - first } else { first - second }
            })
            .collect();
        blocks += usize::from(TwoStage::of(&x, RUNS).expect("there are many").p() < ALPHA);
    }
    tally.row("false alarms, no true difference", "one after the other, Welch (not used)", apart, None, None);
    tally.row("false alarms, no true difference", "in blocks", blocks, LEVEL_AT_MOST, None);
    tally.rows
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The promise itself, at its size.
    #[test]
    fn error_rates_are_what_they_are_said_to_be() {
        let rows = all(20_000, 1);
        for r in &rows {
            let computed = r.computed.map_or(String::new(), |c| format!(" (computed {c:.1})"));
            println!("{:6.2} % {}{computed}, by {}: {}", r.percent, r.what, r.by, r.design);
        }
        let missed: Vec<&Counted> = rows.iter().filter(|r| !r.held()).collect();
        assert!(missed.is_empty(), "{missed:#?}");
        let covered = rows.iter().find(|r| r.design.contains("plain")).unwrap();
        assert!(covered.percent < 94.5 && covered.percent > 90.0, "{covered:?}");
        assert_eq!(all(200, 7), all(200, 7));
    }
}
