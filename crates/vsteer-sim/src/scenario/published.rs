//! How much do the simulator's figures differ from published ones? Compares them figure by figure.
//!
//! A [`Paper`] is a file of the folder `scenarios/published/`: the runs that it needs (scenario files, each with
//! changes) and a [`Row`] per published figure: how it is worked out from the runs ([`Expression`]), what was
//! published, and the band in which the simulated figure is accepted, with the reason for its width.
//!
//! Rules: a band comes from what the paper leaves open, and stands in the file before the first run; a row marked `fit`
//! served to choose the paper's parameters and is never counted as a prediction; a row outside its band stays so, and a
//! reason that is known stands beside it (`explained`), which changes nothing in the count.
//!
//! Left out: intervals of the published figures; hardly any paper gives them.

use super::outcome::{Figure, figure};
use expression::Expression;
use serde::{Deserialize, Serialize};
use vsteer_core::{Fault, FaultKind};

pub mod expression;

/// A paper and its figures.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Paper {
    /// Its short name.
    pub paper: String,
    /// Authors, title, where and when.
    pub citation: String,
    /// What the runs assume, and from where.
    pub parameters: Vec<String>,
    /// Figures of the paper that are not simulated, each with the reason.
    #[serde(default)]
    pub not_simulated: Vec<String>,
    /// What is run.
    #[serde(rename = "run")]
    pub runs: Vec<RunForm>,
    /// Its figures.
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

/// A published figure.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Row {
    /// Name of the figure.
    pub what: String,
    /// How the simulated figure is worked out.
    pub value: Expression,
    /// What was published; a bound, where `says` says so.
    pub published: f64,
    /// The published figure as text, if it is not a number.
    #[serde(default)]
    pub says: Option<String>,
    /// Unit of the figure.
    pub unit: String,
    /// Did it serve to choose the parameters?
    #[serde(default)]
    pub fit: bool,
    /// The simulated figure is accepted between these two, both included; none for a row that served to fit.
    #[serde(default)]
    pub band: Option<(f64, f64)>,
    /// Why the band is as wide as it is; what was fitted, where it served to fit.
    pub why: String,
    /// Why it is outside, where that is known.
    #[serde(default)]
    pub explained: Option<String>,
}

/// How a row came out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It served to choose the parameters: no prediction.
    Fitted,
    /// Predicted, and within its band.
    Within,
    /// Predicted, outside its band, and the reason is known.
    Explained,
    /// Predicted, and outside its band.
    Outside,
}

/// A row with what the simulator says.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Told {
    /// The simulated figure over the seeds; `None` where a seed has none (nothing of the kind ever happened).
    pub simulated: Option<Figure>,
    /// How it came out.
    pub verdict: Verdict,
}

impl Paper {
    /// Is it whole: does every expression name a run that is there, does every prediction have a band?
    ///
    /// # Errors
    /// `BadInput` naming the row.
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
    /// The row over the seeds. `values` are the expression's, one per seed.
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

/// How many rows came out how.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Summary {
    /// Rows.
    pub rows: usize,
    /// Those that served to fit.
    pub fitted: usize,
    /// The others.
    pub predicted: usize,
    /// Of these, within their bands.
    pub within: usize,
    /// Outside, with a known reason.
    pub explained: usize,
    /// Outside, without.
    pub outside: usize,
    /// Of the predicted ones, the part within; 0 where nothing is predicted.
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
