//! Does a claim about time hold, by rounds on a machine that others use too?
//!
//! Each round gives one value, and says what disturbed it, if something did. Undisturbed rounds make a 95 % interval
//! (Student's). The claim holds if the interval lies on the right side of the bound, or includes the bound and is as
//! narrow as the stated band. It fails only if the whole interval lies on the wrong side. Otherwise there is another
//! round, up to a stated number. Then the claim is not judged, and the reason says what disturbed it.
//!
//! The bound itself never moves. `lab all` judges the promise at its own size.

use super::findings::Findings;
use std::collections::BTreeMap;
use vsteer_core::stats::{half_width, mean};

/// The side of a bound on which a value must lie.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Bound {
    /// Values must not be above this.
    AtMost(f64),
    /// Values must not be below this.
    AtLeast(f64),
}

/// The rule by which a claim is judged.
#[derive(Debug, Clone, Copy)]
pub struct Rule {
    pub bound: Bound,
    /// An interval that includes the bound is narrow enough if its half-width is at most this. For a single
    /// round: the known difference between repeated rounds.
    pub band: f64,
    /// The least number of rounds for a verdict.
    pub least: usize,
    /// After this many rounds the claim is not judged.
    pub most: usize,
    /// Other work can only push values to the wrong side, so disturbed rounds on the right side count.
    pub load_only_hurts: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Round {
    /// The measured value; NaN if nothing was measured.
    pub value: f64,
    /// What disturbed the round.
    pub disturbed: Option<String>,
}

/// The verdict of the rounds.
#[derive(Debug, Clone, PartialEq)]
pub enum Verdict {
    /// The claim holds.
    Held,
    /// The claim fails.
    Failed,
    /// There must be another round.
    Again,
    /// The claim cannot be judged, with the reason.
    NotJudged(String),
}

/// A mean and half the width of its interval; `None` for a single value.
fn interval(values: &[f64]) -> Option<(f64, Option<f64>)> {
    Some((mean(values)?, half_width(values)))
}

impl Rule {
    /// How far a value is on the right side; negative on the wrong side.
    fn inside(&self, value: f64) -> f64 {
        match self.bound {
            Bound::AtMost(most) => most - value,
            Bound::AtLeast(least) => value - least,
        }
    }

    /// The verdict of undisturbed values.
    fn of(&self, values: &[f64]) -> Verdict {
        match interval(values) {
            Some((value, None)) if self.inside(value) >= self.band => Verdict::Held,
            Some((value, Some(half))) if self.inside(value) >= half => Verdict::Held,
            Some((value, Some(half))) if self.inside(value) < -half => Verdict::Failed,
            Some((_, Some(half))) if half <= self.band => Verdict::Held,
            _ => Verdict::Again,
        }
    }

    /// The verdict so far.
    pub fn judge(&self, rounds: &[Round]) -> Verdict {
        let measured = |r: &&Round| r.value.is_finite();
        let values = |all: &[&Round]| all.iter().map(|r| r.value).collect::<Vec<_>>();
        let all: Vec<&Round> = rounds.iter().filter(measured).collect();
        let calm: Vec<&Round> = all.iter().copied().filter(|r| r.disturbed.is_none()).collect();
        if calm.len() >= self.least {
            let verdict = self.of(&values(&calm));
            if verdict != Verdict::Again {
                return verdict;
            }
        }
        if self.load_only_hurts && all.len() >= self.least {
            let right = match interval(&values(&all)) {
                Some((value, half)) => self.inside(value) >= half.unwrap_or(self.band),
                None => false,
            };
            if right {
                return Verdict::Held;
            }
        }
        if rounds.len() < self.most {
            return Verdict::Again;
        }
        // If undisturbed rounds measured nothing, the measured thing is at fault.
        if rounds.iter().all(|r| r.disturbed.is_none() && !r.value.is_finite()) {
            return Verdict::Failed;
        }
        Verdict::NotJudged(self.why(rounds, &values(&calm)))
    }

    fn why(&self, rounds: &[Round], calm: &[f64]) -> String {
        let mut reasons: BTreeMap<&str, usize> = BTreeMap::new();
        for reason in rounds.iter().filter_map(|r| r.disturbed.as_deref()) {
            *reasons.entry(reason).or_default() += 1;
        }
        let often = reasons.into_iter().max_by_key(|(_, n)| *n).map(|(why, _)| why);
        let half = half_width(calm).map_or("-".to_owned(), |h| format!("{h:.3}"));
        match often {
            Some(why) => format!("{why}, in {} of {} rounds", rounds.len() - calm.len(), rounds.len()),
            None => format!("{} rounds vary by ±{half}, more than the band of {}", rounds.len(), self.band),
        }
    }

    /// Adds the claim with its verdict.
    pub fn claim(
        &self,
        findings: &mut Findings,
        claim: impl Into<String>,
        rounds: &[Round],
        found: impl Into<String>,
    ) {
        let calm: Vec<f64> = rounds.iter().filter(|r| r.disturbed.is_none()).map(|r| r.value).collect();
        let shown = interval(&calm).map_or("no undisturbed round".to_owned(), |(value, half)| {
            let half = half.map_or(String::new(), |h| format!(" ±{h:.4}"));
            format!("{value:.4}{half} in {} of {} rounds undisturbed", calm.len(), rounds.len())
        });
        let found = format!("{shown}; {}", found.into());
        match self.judge(rounds) {
            Verdict::NotJudged(why) => findings.not_judged(claim, why, found),
            verdict => findings.claim(claim, verdict == Verdict::Held, found),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vsteer_core::random::Random;

    const KEPT: Rule =
        Rule { bound: Bound::AtLeast(0.95), band: 0.03, least: 3, most: 6, load_only_hurts: false };
    const LATE: Rule =
        Rule { bound: Bound::AtMost(1.0), band: 0.2, least: 3, most: 6, load_only_hurts: true };

    fn calm(values: &[f64]) -> Vec<Round> {
        values.iter().map(|v| Round { value: *v, disturbed: None }).collect()
    }

    fn busy(values: &[f64]) -> Vec<Round> {
        values.iter().map(|v| Round { value: *v, disturbed: Some("cc1 used 0.8 pCPUs".into()) }).collect()
    }

    #[test]
    fn an_interval_on_one_side_decides() {
        assert_eq!(KEPT.judge(&calm(&[0.99, 0.98, 0.985])), Verdict::Held);
        assert_eq!(KEPT.judge(&calm(&[0.90, 0.91, 0.905])), Verdict::Failed);
        assert_eq!(LATE.judge(&calm(&[1.5, 1.4, 1.45])), Verdict::Failed);
    }

    #[test]
    fn an_interval_with_the_bound_holds_if_it_is_narrow() {
        assert_eq!(KEPT.judge(&calm(&[0.94, 0.95, 0.955])), Verdict::Held);
        assert_eq!(KEPT.judge(&calm(&[0.80, 0.95, 1.05])), Verdict::Again);
    }

    #[test]
    fn few_rounds_are_repeated_and_many_end() {
        assert_eq!(KEPT.judge(&calm(&[0.99, 0.98])), Verdict::Again);
        assert_eq!(KEPT.judge(&[]), Verdict::Again);
        let wild = calm(&[0.6, 1.2, 0.7, 1.3, 0.8, 1.1]);
        assert!(matches!(KEPT.judge(&wild), Verdict::NotJudged(why) if why.contains("vary by")));
        let all = busy(&[0.5, 0.9, 0.7, 1.0, 0.8, 0.6]);
        let why = "cc1 used 0.8 pCPUs, in 6 of 6 rounds";
        assert_eq!(KEPT.judge(&all), Verdict::NotJudged(why.into()));
    }

    #[test]
    fn disturbed_rounds_do_not_count_unless_load_only_hurts() {
        let mixed = [calm(&[0.99, 0.98, 0.985]), busy(&[0.4])].concat();
        assert_eq!(KEPT.judge(&mixed), Verdict::Held);
        assert_eq!(KEPT.judge(&busy(&[0.99, 0.98, 0.985])), Verdict::Again);
        assert_eq!(LATE.judge(&busy(&[0.3, 0.25, 0.28])), Verdict::Held);
        assert_eq!(LATE.judge(&busy(&[1.5, 1.6, 1.7])), Verdict::Again);
    }

    #[test]
    fn nothing_measured_fails() {
        assert_eq!(KEPT.judge(&calm(&[f64::NAN; 6])), Verdict::Failed);
        assert_eq!(KEPT.judge(&calm(&[f64::NAN; 5])), Verdict::Again);
    }

    #[test]
    fn a_single_round_counts_if_it_is_far_inside() {
        let rule =
            Rule { bound: Bound::AtMost(0.01), band: 0.002, least: 1, most: 4, load_only_hurts: false };
        assert_eq!(rule.judge(&calm(&[0.007])), Verdict::Held);
        assert_eq!(rule.judge(&calm(&[0.009])), Verdict::Again);
        assert_eq!(rule.judge(&calm(&[0.05])), Verdict::Again);
        assert_eq!(rule.judge(&calm(&[0.05, 0.051])), Verdict::Failed);
    }

    /// Draws rounds with a true value and a spread until there is a verdict.
    fn verdicts(rule: Rule, truth: f64, spread: f64) -> [usize; 3] {
        let mut counts = [0; 3];
        for seed in 0..400 {
            let mut random = Random::new(seed, 0);
            // A sum of twelve uniform numbers is close enough to a normal one.
            let mut normal = || (0..12).map(|_| random.within(0, 1_000_000) as f64 / 1e6).sum::<f64>() - 6.0;
            let mut rounds = Vec::new();
            let verdict = loop {
                rounds.extend(calm(&[truth + spread * normal()]));
                match rule.judge(&rounds) {
                    Verdict::Again => {}
                    verdict => break verdict,
                }
            };
            counts[match verdict {
                Verdict::Held => 0,
                Verdict::Failed => 1,
                _ => 2,
            }] += 1;
        }
        counts
    }

    #[test]
    fn by_simulated_rounds_a_kept_promise_seldom_fails_and_a_broken_one_seldom_holds() {
        // First 97 % kept, with rounds 1.5 points apart; then 88 % kept; then 97 % with rounds 6 points
        // apart.
        let [held, failed, _] = verdicts(KEPT, 0.97, 0.015);
        assert!(held >= 396 && failed == 0, "held {held}, failed {failed}");
        let [held, failed, _] = verdicts(KEPT, 0.88, 0.015);
        assert!(held <= 4 && failed >= 390, "held {held}, failed {failed}");
        let [_, failed, _] = verdicts(KEPT, 0.97, 0.06);
        assert!(failed <= 12, "failed {failed}");
    }
}
