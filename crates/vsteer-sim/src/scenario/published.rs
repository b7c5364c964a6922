//! Compares the simulator's numbers with published ones.
//!
//! A [`Paper`] is a file of the folder `scenarios/published/`. It has the runs that it needs (scenario files,
//! each with changes) and a [`Row`] per published number: how to compute it from the runs ([`Expression`]),
//! the published value, and the band in which the simulated value is accepted, with the reason for its width.
//!
//! Rules: a band comes from what the paper leaves open, and is in the file before the first run. A row marked
//! `fit` was used to choose the paper's parameters, so it never counts as a prediction. A row outside its
//! band stays outside. If the reason is known, the row gives it (`explained`), which does not change the
//! count.
//!
//! Left out: intervals of the published numbers, because hardly any paper gives them.

use super::outcome::{Figure, figure};
use expression::Expression;
use serde::{Deserialize, Serialize};
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
}

/// The result of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Used to choose the parameters, so not a prediction.
    Fitted,
    /// Predicted, and within its band.
    Within,
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
        }
        Ok(())
    }
}

impl Row {
    /// The result over the seeds. `values` are the expression's, one per seed.
    pub fn told(&self, values: &[Option<f64>]) -> Told {
        let whole: Option<Vec<f64>> = values.iter().copied().collect();
        let simulated = whole.and_then(|v| figure(&v));
        let accepted = |(low, high): (f64, f64)| simulated.is_some_and(|f| (low..=high).contains(&f.mean));
        let verdict = match self.band {
            None => Verdict::Fitted,
            Some(band) if accepted(band) => Verdict::Within,
            Some(_) if self.explained.is_some() => Verdict::Explained,
            Some(_) => Verdict::Outside,
        };
        Told { simulated, verdict }
    }
}

/// The number of rows by result.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Summary {
    /// All rows.
    pub rows: usize,
    /// Rows that were used to fit.
    pub fitted: usize,
    /// All other rows.
    pub predicted: usize,
    /// Predicted rows within their bands.
    pub within: usize,
    /// Predicted rows outside, with a known reason.
    pub explained: usize,
    /// Predicted rows outside, without a known reason.
    pub outside: usize,
    /// The share of predicted rows within their bands; 0 without predictions.
    pub within_share: f64,
}

/// The summary of these verdicts.
pub fn summary(verdicts: impl IntoIterator<Item = Verdict>) -> Summary {
    let mut s = Summary::default();
    for verdict in verdicts {
        s.rows += 1;
        match verdict {
            Verdict::Fitted => s.fitted += 1,
            Verdict::Within => s.within += 1,
            Verdict::Explained => s.explained += 1,
            Verdict::Outside => s.outside += 1,
        }
    }
    s.predicted = s.rows - s.fitted;
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
        let s = summary([Verdict::Fitted, Verdict::Within, Verdict::Explained, Verdict::Outside]);
        assert_eq!((s.predicted, s.within), (3, 1));
        assert!((s.within_share - 1.0 / 3.0).abs() < 1e-12);
    }

    #[test]
    fn what_is_not_whole_is_refused() {
        let paper = |row: Row| Paper {
            paper: "p".into(),
            citation: String::new(),
            parameters: Vec::new(),
            not_simulated: Vec::new(),
            runs: vec![RunForm { name: "a".into(), scenario: "a.toml".into(), set: Vec::new() }],
            rows: vec![row],
        };
        assert!(paper(row(true, None, false)).check().is_ok());
        assert!(paper(row(false, None, false)).check().is_err());
        assert!(paper(row(true, Some((0.0, 1.0)), false)).check().is_err());
        assert!(paper(row(false, Some((2.0, 1.0)), false)).check().is_err());
        let other = Row { value: "b.busy".parse().unwrap(), ..row(true, None, false) };
        assert!(paper(other).check().unwrap_err().what.contains("no run \"b\""));
    }
}
