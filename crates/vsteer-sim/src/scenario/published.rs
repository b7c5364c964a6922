//! Compares the simulator's numbers with published ones.
//!
//! A [`Paper`] is a file of the folder `scenarios/published/`. It has the runs that it needs (scenario files,
//! each with changes) and a [`Row`] per published number: how to compute it from the runs ([`Expression`]),
//! the published value, and the band in which the simulated value is accepted, with the reason for its width.
//!
//! Rules: a band comes from what the paper leaves open, and is in the file before the first run. A row marked
//! `fit` was used to choose the paper's parameters, so it never counts as a prediction. A row outside its
//! band stays outside. If the reason is known, the row gives it (`explained`), which does not change the
//! count. Whether a row is within or outside is said only if more seeds would hardly change it: if its
//! 99.9 % interval lies on one side of each end of the band. Until then it is undecided, and does not count as
//! within. A simulated number counts once: a row that compares it a second time names the first (`same_as`). A row
//! under another assumption than the paper's other rows (`instead`) shows what would then come out, and does
//! not count.
//!
//! Left out: intervals of the published numbers, because hardly any paper gives them.

use super::outcome::{Figure, figure};
use expression::Expression;
use serde::{Deserialize, Serialize};
use vsteer_core::stats::{mean, student_quantile, variance};
use vsteer_core::{Fault, FaultKind};

pub mod expression;

/// A paper and its numbers.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Paper {
    /// Its short name.
    pub paper: String,
    /// Authors, title, where and when.
    pub citation: String,
    /// The assumptions of the runs, and their sources.
    pub parameters: Vec<String>,
    /// Numbers of the paper that are not simulated, each with the reason.
    #[serde(default)]
    pub not_simulated: Vec<String>,
    /// The simulated runs.
    #[serde(rename = "run")]
    pub runs: Vec<RunForm>,
    /// The published numbers.
    #[serde(rename = "row")]
    pub rows: Vec<Row>,
}

/// A run: a scenario file with changes.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunForm {
    /// Its name in expressions.
    pub name: String,
    /// A scenario file beside the paper's.
    pub scenario: String,
    /// Changes, `KEY=VALUE` each.
    #[serde(default)]
    pub set: Vec<String>,
}

/// A published number.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Row {
    /// Name of the number.
    pub what: String,
    /// How to compute the simulated value.
    pub value: Expression,
    /// The published value; a bound, if `says` describes it as one.
    pub published: f64,
    /// The published value as text, if it is not a number.
    #[serde(default)]
    pub says: Option<String>,
    /// Unit of the value.
    pub unit: String,
    /// Was it used to choose the parameters?
    #[serde(default)]
    pub fit: bool,
    /// The accepted range of the simulated value, both ends included; none for a row that was used to fit.
    #[serde(default)]
    pub band: Option<(f64, f64)>,
    /// The reason for the width of the band. For a row that was used to fit: what was fitted.
    pub why: String,
    /// Why it is outside the band, if this is known.
    #[serde(default)]
    pub explained: Option<String>,
    /// The row that compares the same simulated number, and counts.
    #[serde(default)]
    pub same_as: Option<String>,
    /// The assumption that takes the place of one of the paper's parameters in this row.
    #[serde(default)]
    pub instead: Option<String>,
}

/// The result of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Used to choose the parameters, so not a prediction.
    Fitted,
    /// Predicted, and within its band.
    Within,
    /// Predicted, and too close to an end of its band for this number of seeds.
    Undecided,
    /// Predicted, outside its band, and the reason is known.
    Explained,
    /// Predicted, and outside its band.
    Outside,
}

/// The simulated value and verdict of a row.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Told {
    /// The simulated value over the seeds; `None` if a seed has none (nothing of the kind ever happened).
    pub simulated: Option<Figure>,
    /// The verdict.
    pub verdict: Verdict,
    /// Is it one of the predictions that are counted?
    pub counts: bool,
}

impl Paper {
    /// Checks that every expression names an existing run, and that every prediction has a band.
    ///
    /// # Errors
    /// `BadInput` with the name of the row.
    pub fn check(&self) -> Result<(), Fault> {
        let wrong = |row: &Row, what: &str| {
            Err(Fault::new(FaultKind::BadInput, format!("{}, row {:?}: {what}", self.paper, row.what)))
        };
        for row in &self.rows {
            if let Some(run) = row.value.runs().find(|r| !self.runs.iter().any(|known| known.name == *r)) {
                return wrong(row, &format!("the paper's file has no run {run:?}"));
            }
            match row.band {
                None if !row.fit => return wrong(row, "a predicted row has no band"),
                Some(_) if row.fit => return wrong(row, "a row marked `fit` has a band"),
                Some((low, high)) if low.is_nan() || high.is_nan() || low > high => {
                    return wrong(row, "the band is empty");
                }
                _ => {}
            }
            if let Some(first) = &row.same_as
                && !self.rows.iter().any(|r| r.what == *first && r.counts())
            {
                return wrong(row, &format!("`same_as` names {first:?}, which is not a row that counts"));
            }
        }
        let counted: Vec<&Row> = self.rows.iter().filter(|r| r.counts()).collect();
        for (i, row) in counted.iter().enumerate() {
            if counted[..i].iter().any(|r| r.value == row.value) {
                return wrong(row, "an earlier row compares the same simulated number: name it in `same_as`");
            }
        }
        Ok(())
    }
}

impl Row {
    /// Is it a prediction that counts?
    pub fn counts(&self) -> bool {
        !self.fit && self.same_as.is_none() && self.instead.is_none()
    }

    /// The result over the seeds. `values` are the expression's, one per seed.
    pub fn told(&self, values: &[Option<f64>]) -> Told {
        let whole: Option<Vec<f64>> = values.iter().copied().collect();
        let verdict = match (self.band, whole.as_deref().and_then(mean_within)) {
            (None, _) => Verdict::Fitted,
            (Some((low, high)), Some((least, most))) if low <= least && most <= high => Verdict::Within,
            (Some((low, high)), Some((least, most))) if low <= most && least <= high => Verdict::Undecided,
            _ if self.explained.is_some() => Verdict::Explained,
            _ => Verdict::Outside,
        };
        Told { simulated: whole.and_then(|v| figure(&v)), verdict, counts: self.counts() }
    }
}

/// Between these values is the mean over all seeds, but for one time in a thousand. A single seed says nothing of the others: its
/// value alone.
fn mean_within(values: &[f64]) -> Option<(f64, f64)> {
    const ALPHA: f64 = 0.001;
    let mean = mean(values)?;
    let n = values.len() as f64;
    let half = variance(values).map_or(0.0, |v| student_quantile(ALPHA, n - 1.0) * libm::sqrt(v / n));
    Some((mean - half, mean + half))
}

/// The number of rows by result.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Summary {
    /// All rows.
    pub rows: usize,
    /// Rows that were used to fit.
    pub fitted: usize,
    /// Rows that show a number again, or under another assumption.
    pub beside: usize,
    /// All other rows: predictions, each of a simulated number of its own.
    pub predicted: usize,
    /// Predicted rows within their bands.
    pub within: usize,
    /// Predicted rows too close to an end of their bands for this number of seeds.
    pub undecided: usize,
    /// Predicted rows outside, with a known reason.
    pub explained: usize,
    /// Predicted rows outside, without a known reason.
    pub outside: usize,
    /// The share of predicted rows within their bands; 0 without predictions.
    pub within_share: f64,
}

/// The summary of these results.
pub fn summary<'a>(told: impl IntoIterator<Item = &'a Told>) -> Summary {
    let mut s = Summary::default();
    for of in told {
        s.rows += 1;
        match of.verdict {
            Verdict::Fitted => s.fitted += 1,
            _ if !of.counts => s.beside += 1,
            Verdict::Within => s.within += 1,
            Verdict::Undecided => s.undecided += 1,
            Verdict::Explained => s.explained += 1,
            Verdict::Outside => s.outside += 1,
        }
    }
    s.predicted = s.rows - s.fitted - s.beside;
    s.within_share = if s.predicted == 0 { 0.0 } else { s.within as f64 / s.predicted as f64 };
    s
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(fit: bool, band: Option<(f64, f64)>, explained: bool) -> Row {
        Row {
            what: "x".into(),
            value: "a.busy".parse().unwrap(),
            published: 1.0,
            says: None,
            unit: "%".into(),
            fit,
            band,
            why: "because".into(),
            explained: explained.then(|| "so".into()),
            same_as: None,
            instead: None,
        }
    }

    #[test]
    fn a_reason_makes_no_row_within() {
        let verdict = |r: Row, x: f64| r.told(&[Some(x)]).verdict;
        assert_eq!(verdict(row(true, None, false), 9.0), Verdict::Fitted);
        assert_eq!(verdict(row(false, Some((1.0, 2.0)), true), 2.0), Verdict::Within);
        assert_eq!(verdict(row(false, Some((1.0, 2.0)), true), 2.1), Verdict::Explained);
        assert_eq!(verdict(row(false, Some((1.0, 2.0)), false), 2.1), Verdict::Outside);
        let none = row(false, Some((1.0, 2.0)), false).told(&[Some(1.5), None]);
        assert_eq!((none.simulated, none.verdict), (None, Verdict::Outside));
        let told = |verdict, counts| Told { simulated: None, verdict, counts };
        let s = summary(&[
            told(Verdict::Fitted, false),
            told(Verdict::Within, true),
            told(Verdict::Within, false),
            told(Verdict::Undecided, true),
            told(Verdict::Explained, true),
            told(Verdict::Outside, true),
        ]);
        assert_eq!((s.predicted, s.within, s.beside, s.undecided), (4, 1, 1, 1));
        assert!((s.within_share - 1.0 / 4.0).abs() < 1e-12);
    }

    #[test]
    fn a_row_is_decided_when_more_seeds_would_hardly_change_it() {
        let verdict = |values: &[f64], explained| {
            let values: Vec<Option<f64>> = values.iter().copied().map(Some).collect();
            row(false, Some((1.0, 2.0)), explained).told(&values).verdict
        };
        let around = |mean: f64, n: usize| -> Vec<f64> {
            (0..n).map(|i| mean + if i % 2 == 0 { 0.1 } else { -0.1 }).collect()
        };
        // Student's t for 99.9 %: 5.96 with 7 degrees of freedom, 3.39 with 99; standard errors 0.0378 and 0.0101.
        assert_eq!(verdict(&around(1.2, 8), false), Verdict::Undecided);
        assert_eq!(verdict(&around(1.2, 100), false), Verdict::Within);
        assert_eq!(verdict(&around(1.03, 100), true), Verdict::Undecided, "a reason decides nothing");
        assert_eq!(verdict(&around(0.9, 8), false), Verdict::Undecided);
        assert_eq!(verdict(&around(0.9, 100), false), Verdict::Outside);
        assert_eq!(verdict(&[2.0, 2.0, 2.0], false), Verdict::Within, "no spread, at the very end");
    }

    #[test]
    fn a_simulated_number_counts_once() {
        let first = Row { what: "first".into(), ..row(false, Some((0.0, 1.0)), false) };
        let again = Row { what: "again".into(), ..first.clone() };
        let same = Row { same_as: Some("first".into()), ..again.clone() };
        let other = Row { instead: Some("another length".into()), ..again.clone() };
        let nobody = Row { same_as: Some("nobody".into()), ..again.clone() };
        let refused = |second: &Row| paper(vec![first.clone(), second.clone()]).check().err().map(|f| f.what);
        assert!(refused(&again).unwrap().contains("compares the same simulated number"));
        assert!(refused(&nobody).unwrap().contains("not a row that counts"));
        assert_eq!((refused(&same), refused(&other)), (None, None));
        assert_eq!([&first, &same, &other].map(Row::counts), [true, false, false]);
    }

    fn paper(rows: Vec<Row>) -> Paper {
        Paper {
            paper: "p".into(),
            citation: String::new(),
            parameters: Vec::new(),
            not_simulated: Vec::new(),
            runs: vec![RunForm { name: "a".into(), scenario: "a.toml".into(), set: Vec::new() }],
            rows,
        }
    }

    #[test]
    fn what_is_not_whole_is_refused() {
        let paper = |row: Row| paper(vec![row]);
        assert!(paper(row(true, None, false)).check().is_ok());
        assert!(paper(row(false, None, false)).check().is_err());
        assert!(paper(row(true, Some((0.0, 1.0)), false)).check().is_err());
        assert!(paper(row(false, Some((2.0, 1.0)), false)).check().is_err());
        let other = Row { value: "b.busy".parse().unwrap(), ..row(true, None, false) };
        assert!(paper(other).check().unwrap_err().what.contains("no run \"b\""));
    }
}
