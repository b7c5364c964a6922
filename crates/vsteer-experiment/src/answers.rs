//! What do an experiment's runs show: which setting helps, by how much, with which certainty?
//!
//! Each question and measure has one number per block. If all values are greater than 0, the numbers are
//! logarithms, so an effect is a ratio in per cent. The p values of Welch and of Mann and Whitney, which ignore
//! blocks, are printed too. The p value of the blocks decides, corrected by Holm for all questions of the measure.
//! Without a difference, the smallest visible one is reported.
//!
//! Left out: effects that differ systematically between blocks; blocks are assumed random.

use super::analyse::blocks::TwoStage;
use super::analyse::difference::welch;
use super::analyse::front::{Point, pareto};
use super::analyse::many::holm;
use super::analyse::mean::{Summary, outliers};
use super::analyse::ranks::mann_whitney;
use super::analyse::{ALPHA, POWER};
use super::description::{Better, Experiment, Measure};
use super::design::{Contrast, Laid};
use super::progress::{Event, Progress};
use super::values::{Values, values_of_block};
use crate::run::{Bad, Run};
use serde::{Deserialize, Serialize};
use vsteer_core::Interval;

/// Smaller differences of logarithms are rounding errors: 1e-10 %.
const ROUNDING: f64 = 1e-12;

/// Conclusion of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The level is better.
    Better,
    /// The level is worse.
    Worse,
    /// No difference was found.
    NotSeen,
    /// There are too few blocks to decide.
    TooFew,
}

/// Values of one setting for one measure.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SettingTold {
    /// Name of the setting.
    pub words: String,
    /// Statistics of the counted runs; `None` with fewer than two.
    pub summary: Option<Summary>,
    /// Interval of the mean.
    pub interval: Option<Interval>,
    /// Its values, block by block.
    pub values: Vec<f64>,
    /// Indexes of outliers, which still count in all figures.
    pub outliers: Vec<usize>,
    /// Whether no other setting is better in all measures (Pareto front).
    pub on_front: bool,
}

/// One question's answer under one measure.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// The question.
    pub name: String,
    /// Whether the question is about an interaction of two factors.
    pub interaction: bool,
    /// Questions that this design cannot separate from this one.
    pub also: Vec<String>,
    /// The effect in per cent of the first level, or in the measure's unit if not all values are greater than 0.
    pub effect: Option<Interval>,
    /// Whether the effect is in per cent.
    pub percent: bool,
    /// Blocks, and those of the first stage.
    pub blocks: usize,
    /// Those of the first stage.
    pub first: usize,
    /// p value of the blocks.
    pub p: Option<f64>,
    /// p value of the blocks, corrected for all questions of this measure.
    pub p_holm: Option<f64>,
    /// p value of Welch's test on the runs, without blocks.
    pub p_welch: Option<f64>,
    /// p value of the rank test on the runs, without blocks.
    pub p_ranks: Option<f64>,
    /// Difference in pooled standard deviations, with its interval.
    pub hedges_g: Option<Interval>,
    /// Conclusion.
    pub outcome: Outcome,
    /// Smallest effect that would be found with a probability of 80 %, in the effect's unit.
    pub smallest_visible: Option<f64>,
}

/// All answers of one measure.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MeasureTold {
    /// The measure.
    pub measure: Measure,
    /// Its settings.
    pub settings: Vec<SettingTold>,
    /// Answers, largest improvement first, then those without difference.
    pub answers: Vec<Answer>,
}

/// All of an experiment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Answers {
    /// Answers per measure.
    pub measures: Vec<MeasureTold>,
    /// Number of runs, warm-up included.
    pub runs: usize,
    /// Number of runs that count.
    pub counted: usize,
    /// Runs that do not count, with the reason.
    pub bad: Vec<(Run, String)>,
    /// Values missing in counted runs, with reasons.
    pub missing: Vec<String>,
    /// Names of settings that were given up.
    pub given_up: Vec<String>,
    /// Number of reboots.
    pub boots: usize,
    /// Number of blocks needed, if more than the maximum.
    pub wanted: Option<usize>,
    /// Whether the experiment has ended.
    pub ended: bool,
}

fn percent_of(log: f64) -> f64 {
    100.0 * libm::expm1(log)
}

/// One measure's values in each block, under a design.
struct Measured<'a> {
    laid: &'a Laid,
    values: Values,
    /// The number of blocks of the first stage.
    first: usize,
}

impl Measured<'_> {
    /// A setting's values as they were measured, block by block.
    fn plain(&self, setting: usize) -> Vec<f64> {
        let of = self.values.values.iter().filter_map(|b| b[setting]);
        of.map(|v| if self.values.logarithms { libm::exp(v) } else { v }).collect()
    }

    fn settings(&self, experiment: &Experiment) -> Vec<SettingTold> {
        let settings = self.laid.settings.iter().enumerate().map(|(s, levels)| {
            let x = self.plain(s);
            let stage = TwoStage::of(&x, self.first);
            SettingTold {
                words: experiment.words(levels),
                summary: Summary::of(&x),
                interval: stage.map(|s| s.interval(ALPHA)),
                outliers: outliers(&x),
                values: x,
                on_front: false,
            }
        });
        settings.collect()
    }

    /// The values of all settings on one side of a contrast.
    fn side(&self, c: &Contrast, positive: bool) -> Vec<f64> {
        let on_it = c.weights.iter().filter(|(_, w)| (*w > 0.0) == positive);
        on_it.flat_map(|(s, _)| self.plain(*s)).collect()
    }

    /// An effect in the unit in which it is reported: per cent where values are logarithms.
    fn scale(&self, i: Interval) -> Interval {
        if !self.values.logarithms {
            return i;
        }
        Interval { low: percent_of(i.low), likely: percent_of(i.likely), high: percent_of(i.high) }
    }

    /// The answer to one question, before it is corrected for the others ([`decide`]).
    fn answer(&self, c: &Contrast) -> Answer {
        // Equal values leave rounding errors in their logarithms, which would look like a certain difference.
        let exact = |v: f64| if v.abs() < ROUNDING { 0.0 } else { v };
        let x: Vec<f64> = self.values.values.iter().filter_map(|b| c.of_block(b)).map(exact).collect();
        let stage = TwoStage::of(&x, self.first);
        // The two sides of an interaction are not settings.
        let (a, b) =
            if c.interaction { (Vec::new(), Vec::new()) } else { (self.side(c, false), self.side(c, true)) };
        let apart = Summary::of(&a).zip(Summary::of(&b)).and_then(|(a, b)| welch(a, b));
        // Values that differ only by rounding have no usable deviation.
        let apart = apart.filter(|d| d.standard_error > ROUNDING * d.a.mean.abs().max(d.b.mean.abs()));
        Answer {
            name: c.name.clone(),
            interaction: c.interaction,
            also: c.also.clone(),
            effect: stage.map(|s| self.scale(s.interval(ALPHA))),
            percent: self.values.logarithms,
            blocks: x.len(),
            first: self.first.min(x.len()),
            p: stage.map(|s| s.p()),
            p_holm: None,
            p_welch: apart.map(|d| d.p()),
            p_ranks: mann_whitney(&a, &b),
            hedges_g: apart.map(|d| d.hedges_g(ALPHA)),
            outcome: Outcome::TooFew,
            smallest_visible: stage.map(|s| {
                let v = s.smallest_visible(ALPHA, POWER);
                if self.values.logarithms { percent_of(v) } else { v }
            }),
        }
    }
}

/// Corrects a measure's answers for multiple questions, and sets their conclusions.
fn decide(answers: &mut [Answer], better: Better) {
    let asked: Vec<usize> = (0..answers.len()).filter(|i| answers[*i].p.is_some()).collect();
    let p: Vec<f64> = asked.iter().filter_map(|i| answers[*i].p).collect();
    for (i, p) in asked.into_iter().zip(holm(&p)) {
        let likely = answers[i].effect.map_or(0.0, |e| e.likely);
        answers[i].p_holm = Some(p);
        answers[i].outcome = match (p < ALPHA, (likely < 0.0) == (better == Better::Less)) {
            (false, _) => Outcome::NotSeen,
            (true, true) => Outcome::Better,
            (true, false) => Outcome::Worse,
        };
    }
}

/// Sorts answers: largest improvement first, then those without difference.
fn sort(answers: &mut [Answer], better: Better) {
    let gain =
        |a: &Answer| a.effect.map_or(0.0, |e| if better == Better::Less { -e.likely } else { e.likely });
    let class = |a: &Answer| match a.outcome {
        Outcome::Better => 0,
        Outcome::Worse => 1,
        Outcome::NotSeen => 2,
        Outcome::TooFew => 3,
    };
    answers.sort_by(|a, b| class(a).cmp(&class(b)).then(gain(b).total_cmp(&gain(a))));
}

/// Answers the questions of the measure with this index.
fn of_measure(
    experiment: &Experiment,
    laid: &Laid,
    runs: &[&Run],
    (index, measure): (usize, &Measure),
) -> MeasureTold {
    let values = values_of_block(laid, runs, index);
    let measured = Measured { laid, values, first: experiment.runs_least };
    let settings = measured.settings(experiment);
    let mut answers: Vec<Answer> = laid.contrasts.iter().map(|c| measured.answer(c)).collect();
    decide(&mut answers, measure.better);
    sort(&mut answers, measure.better);
    MeasureTold { measure: measure.clone(), settings, answers }
}

/// All answers from the runs of a log.
pub fn answer(experiment: &Experiment, laid: &Laid, events: &[Event]) -> Answers {
    let progress = Progress::new(experiment, laid, events);
    let runs: Vec<&Run> = progress.runs().collect();
    let mut measures: Vec<MeasureTold> = experiment
        .measured()
        .iter()
        .enumerate()
        .map(|one| of_measure(experiment, laid, &runs, one))
        .collect();
    let points: Option<Vec<Point>> = (0..laid.settings.len())
        .map(|s| {
            let each = measures.iter().map(|m| {
                let (told, sign) =
                    (&m.settings[s], if m.measure.better == Better::Less { 1.0 } else { -1.0 });
                let i = told.interval?;
                Some((sign * i.likely, i.high - i.likely))
            });
            let (costs, margins) = each.collect::<Option<Vec<_>>>()?.into_iter().unzip();
            Some(Point { costs, margins })
        })
        .collect();
    for (s, on) in points.map_or_else(Vec::new, |p| pareto(&p)).into_iter().enumerate() {
        measures.iter_mut().for_each(|m| m.settings[s].on_front = on);
    }
    let decided = events.iter().find_map(|e| match e {
        Event::Decided { blocks, wanted } if wanted > blocks => Some(*wanted),
        _ => None,
    });
    Answers {
        measures,
        runs: runs.len(),
        counted: runs.iter().filter(|r| r.bad.is_none() && !r.warm_up).count(),
        bad: runs.iter().filter_map(|r| Some(((*r).clone(), r.bad.as_ref().map(Bad::to_string)?))).collect(),
        missing: runs.iter().filter(|r| r.bad.is_none()).flat_map(|r| r.missing.clone()).collect(),
        given_up: (0..laid.settings.len())
            .filter(|s| progress.given_up(*s))
            .map(|s| experiment.words(&laid.settings[s]))
            .collect(),
        boots: events.iter().filter(|e| matches!(e, Event::Booting { .. })).count(),
        wanted: decided,
        ended: events.iter().any(|e| matches!(e, Event::Ended)),
    }
}
