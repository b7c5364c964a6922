//! Does a published study's text agree with its own tables, once they are read with the right statistics?
//!
//! From a table's n, mean and deviation follow its margins (by 1.96, as printed, and by Student's t), every
//! comparison's verdict by Welch, and its effect per cent of what is faster, as the text counts. A printed figure
//! agrees if some values that round to the printed ones give it. What the text only says without a table (a profile
//! brings 45 %) is ranked too, but marked.
//!
//! Left out: charts, whose values cannot be read.

use super::analyse::difference::{Difference, welch};
use super::analyse::front::{Point, pareto};
use super::analyse::many::holm;
use super::analyse::mean::Summary;
use super::analyse::{ALPHA, POWER, power};
use super::answers::Outcome;
use serde::{Deserialize, Serialize};
use vsteer_core::Interval;
use vsteer_core::{Fault, FaultKind};

/// A study, as its file has it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Study {
    /// Where it was published.
    pub citation: String,
    /// What was run, on what.
    pub testbed: Vec<String>,
    /// Rows of its tables.
    #[serde(rename = "cell")]
    pub cells: Vec<Cell>,
    /// What it compares.
    #[serde(rename = "comparison")]
    pub comparisons: Vec<Compared>,
    /// Means without deviations that it compares.
    #[serde(rename = "pair")]
    pub pairs: Vec<Pair>,
    /// What it says that no table of it bears out.
    #[serde(rename = "said")]
    pub said: Vec<Said>,
    /// Time and idle watts per host profile.
    #[serde(rename = "profile")]
    pub profiles: Vec<Profile>,
    /// How much idle watts swing by themselves.
    pub idle_watts_noise: f64,
}

/// A row of a table.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cell {
    /// Name of the row.
    pub name: String,
    /// Runs.
    pub n: usize,
    /// The mean in seconds; `None` if the study does not print it.
    pub mean_s: Option<f64>,
    /// Deviation, s.
    pub sd_s: f64,
    /// The printed margin at 95 %, s.
    pub margin_s: f64,
    /// To how many decimals deviation and margin are printed.
    pub decimals: u32,
    /// What must be known to read it.
    pub note: Option<String>,
}

/// A comparison of the text.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Compared {
    /// What is changed, and where it shows.
    pub what: String,
    /// The cell before.
    pub before: String,
    /// The cell after.
    pub after: String,
    /// The printed difference, s.
    pub printed_s: f64,
    /// The printed per cent.
    pub printed_percent: f64,
    /// What the text concludes.
    pub printed: String,
    /// What its own table bears out.
    pub verdict: Outcome,
}

/// Two means.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pair {
    /// Name of the comparison.
    pub what: String,
    /// The smaller, s.
    pub small_s: f64,
    /// The larger, s.
    pub large_s: f64,
    /// The printed difference, s.
    pub printed_s: f64,
    /// The printed per cent of the smaller.
    pub printed_percent: Option<f64>,
}

/// A setting of which the text tells an effect, or none.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Said {
    /// Name of the setting.
    pub setting: String,
    /// What it brings, %; 0: nothing that could be measured.
    pub gain_percent: f64,
    /// In the study's words.
    pub words: String,
}

/// A host profile.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// Name of the profile.
    pub name: String,
    /// How much longer the VM's build takes than under the quickest, %.
    pub slower_percent: f64,
    /// Idle power above the lowest one, W; `None`: unknown.
    pub idle_watts: Option<f64>,
}

/// A row, read again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CellTold {
    /// The row.
    pub cell: Cell,
    /// Its margin by 1.96, s.
    pub margin_normal_s: f64,
    /// By Student's t, s.
    pub margin_student_s: f64,
    /// Is the printed margin that by 1.96, as far as its digits tell?
    pub agrees: bool,
}

/// A comparison, made again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ComparedTold {
    /// The comparison.
    pub compared: Compared,
    /// The difference before less after, s: what is saved.
    pub saved_s: Interval,
    /// The same in per cent of the time after, as the study counts.
    pub percent: Option<Interval>,
    /// Welch's p, corrected for all comparisons.
    pub p_holm: f64,
    /// Welch's p alone.
    pub p: f64,
    /// Hedges' g.
    pub hedges_g: Interval,
    /// What it comes to.
    pub outcome: Outcome,
    /// The smallest difference that 80 % of such experiments find, s.
    pub smallest_visible_s: f64,
    /// Can the printed difference and per cent come of means that round to the printed ones?
    pub agrees: bool,
    /// Is the verdict the one that is expected of these tables?
    pub right: bool,
}

/// A pair, checked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PairTold {
    /// The pair.
    pub pair: Pair,
    /// The difference, s.
    pub difference_s: f64,
    /// Of the smaller, %.
    pub percent: f64,
    /// Do the printed figures agree, to their digits?
    pub agrees: bool,
}

/// A setting's rank.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Ranked {
    /// Name of the setting.
    pub setting: String,
    /// What it brings, %.
    pub gain_percent: f64,
    /// Its interval, where a table bears it out.
    pub interval: Option<Interval>,
    /// Better, worse, none.
    pub outcome: Outcome,
}

/// All of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StudyTold {
    /// Where it was published.
    pub citation: String,
    /// What was run, on what.
    pub testbed: Vec<String>,
    /// Its rows.
    pub cells: Vec<CellTold>,
    /// Its comparisons.
    pub comparisons: Vec<ComparedTold>,
    /// Its pairs.
    pub pairs: Vec<PairTold>,
    /// Its settings, what brings most first, what brings nothing last.
    pub ranking: Vec<Ranked>,
    /// Profiles, and whether no other beats each in time and idle watts.
    pub profiles: Vec<(Profile, Option<bool>)>,
}

impl StudyTold {
    /// Are all its verdicts right and all its figures reproduced?
    pub fn is_reproduced(&self) -> bool {
        self.cells.iter().all(|c| c.agrees)
            && self.comparisons.iter().all(|c| c.agrees && c.right)
            && self.pairs.iter().all(|p| p.agrees)
    }
}

/// Half of the last digit of a figure with this many decimals.
fn half_digit(decimals: u32) -> f64 {
    0.5 / libm::pow(10.0, f64::from(decimals))
}

/// Means are printed to a tenth of a second.
const MEAN_DIGIT: f64 = 0.05;
/// The study prints percentages with one decimal or none, cut or rounded: so they are exact to 0.1 or to 1.
fn percent_agrees(printed: f64, low: f64, high: f64) -> bool {
    let digit = if printed.fract() == 0.0 {
        1.0
    } else if (10.0 * printed).fract().abs() < 1e-9 {
        0.1
    } else {
        0.01
    };
    printed >= low - digit && printed <= high + digit
}

/// Reads a study again.
///
/// # Errors
/// `BadInput` where it names a cell that it does not have.
pub fn read_again(study: &Study) -> Result<StudyTold, Fault> {
    let differences = differences(study)?;
    let p: Vec<f64> = differences.iter().map(|(_, d)| d.p()).collect();
    let comparisons: Vec<ComparedTold> =
        differences.iter().zip(holm(&p)).map(|((c, d), p_holm)| compared(c, d, p_holm)).collect();
    Ok(StudyTold {
        citation: study.citation.clone(),
        testbed: study.testbed.clone(),
        cells: study.cells.iter().map(cell).collect(),
        pairs: study.pairs.iter().map(pair).collect(),
        ranking: ranking(study, &comparisons),
        profiles: profiles(study),
        comparisons,
    })
}

fn cell(cell: &Cell) -> CellTold {
    let s = Summary { n: cell.n, mean: cell.mean_s.unwrap_or(0.0), sd: cell.sd_s };
    let by_normal = s.half_width_normal(ALPHA);
    let per_sd = by_normal / cell.sd_s;
    CellTold {
        cell: cell.clone(),
        margin_normal_s: by_normal,
        margin_student_s: s.half_width(ALPHA),
        agrees: (by_normal - cell.margin_s).abs() <= (1.0 + per_sd) * half_digit(cell.decimals) + 1e-9,
    }
}

/// Each comparison with its difference by Welch.
fn differences(study: &Study) -> Result<Vec<(&Compared, Difference)>, Fault> {
    let find = |name: &str| -> Result<Summary, Fault> {
        let cell = study.cells.iter().find(|c| c.name == name);
        let summary = cell.and_then(|c| Some(Summary { n: c.n, mean: c.mean_s?, sd: c.sd_s }));
        summary.ok_or_else(|| {
            Fault::new(FaultKind::BadInput, format!("the study has no table row {name:?} with a mean"))
        })
    };
    let mut differences: Vec<(&Compared, Difference)> = Vec::new();
    for c in &study.comparisons {
        let d = welch(find(&c.after)?, find(&c.before)?);
        let d = d.ok_or_else(|| {
            Fault::new(FaultKind::BadInput, format!("comparison {:?}: both rows have no deviation", c.what))
        })?;
        differences.push((c, d));
    }
    Ok(differences)
}

fn pair(pair: &Pair) -> PairTold {
    let difference_s = pair.large_s - pair.small_s;
    let percent = 100.0 * difference_s / pair.small_s;
    let agrees = (difference_s - pair.printed_s).abs() <= 0.3 + 1e-9
        && pair.printed_percent.is_none_or(|p| percent_agrees(p, percent - 0.2, percent + 0.2));
    PairTold { pair: pair.clone(), difference_s, percent, agrees }
}

/// The comparisons and the statements without figures, the largest gain first.
fn ranking(study: &Study, comparisons: &[ComparedTold]) -> Vec<Ranked> {
    let mut ranking: Vec<Ranked> = comparisons
        .iter()
        .map(|c| Ranked {
            setting: c.compared.what.clone(),
            gain_percent: c.percent.map_or(0.0, |p| p.likely),
            interval: c.percent,
            outcome: c.outcome,
        })
        .chain(study.said.iter().map(|s| Ranked {
            setting: s.setting.clone(),
            gain_percent: s.gain_percent,
            interval: None,
            outcome: if s.gain_percent > 0.0 { Outcome::Better } else { Outcome::NotSeen },
        }))
        .collect();
    ranking.sort_by(|a, b| {
        let none = |r: &Ranked| r.outcome == Outcome::NotSeen;
        none(a).cmp(&none(b)).then(b.gain_percent.total_cmp(&a.gain_percent))
    });
    ranking
}

/// Each profile, and whether it is on the front of time and idle watts; `None` where its watts were not measured.
fn profiles(study: &Study) -> Vec<(Profile, Option<bool>)> {
    // Two readings that swing by so much each.
    let swing = study.idle_watts_noise / std::f64::consts::SQRT_2;
    let told: Vec<&Profile> = study.profiles.iter().filter(|p| p.idle_watts.is_some()).collect();
    let points: Vec<Point> = told
        .iter()
        .map(|p| Point {
            costs: vec![p.slower_percent, p.idle_watts.unwrap_or(0.0)],
            margins: vec![1.0, swing],
        })
        .collect();
    let front = pareto(&points);
    let on_front = |p: &Profile| told.iter().position(|t| t.name == p.name).map(|i| front[i]);
    study.profiles.iter().map(|p| (p.clone(), on_front(p))).collect()
}

fn compared(c: &Compared, d: &Difference, p_holm: f64) -> ComparedTold {
    // d is before less after: what is saved is above 0.
    let saved = d.interval(ALPHA);
    let outcome = match (p_holm < ALPHA, saved.likely > 0.0) {
        (false, _) => Outcome::NotSeen,
        (true, true) => Outcome::Better,
        (true, false) => Outcome::Worse,
    };
    let (low, high) = (saved.likely.abs() - 2.0 * MEAN_DIGIT, saved.likely.abs() + 2.0 * MEAN_DIGIT);
    let percent = |s: f64| 100.0 * s / d.a.mean;
    // The text's difference is of unrounded means; printed it is rounded once more.
    let agrees = (low - MEAN_DIGIT..=high + MEAN_DIGIT).contains(&c.printed_s)
        && percent_agrees(c.printed_percent, percent(low), percent(high));
    ComparedTold {
        compared: c.clone(),
        saved_s: saved,
        percent: d.percent(ALPHA),
        p_holm,
        p: d.p(),
        hedges_g: d.hedges_g(ALPHA),
        outcome,
        smallest_visible_s: power::smallest_visible(d.standard_error, d.df, ALPHA, POWER),
        agrees,
        right: outcome == c.verdict,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told() -> StudyTold {
        let text = include_str!("../../../experiments/published/host-tuning.toml");
        read_again(&toml::from_str(text).unwrap()).unwrap()
    }

    #[test]
    fn the_study_is_reproduced_from_its_own_tables() {
        let t = told();
        assert!(t.is_reproduced(), "{t:#?}");
        let of = |what: &str| t.comparisons.iter().find(|c| c.compared.what.starts_with(what)).unwrap();
        let host = of("host mitigations off, on the host itself");
        // Printed 15.5: its own means give 15.6.
        assert!((host.percent.unwrap().likely - 15.588).abs() < 1e-3 && host.outcome == Outcome::Better);
        let percents = [of("VM mitigations off (host's off)"), of("VM mitigations off (host's on)")]
            .map(|c| c.percent.unwrap().likely);
        assert!((percents[0] - 12.41).abs() < 0.01 && (percents[1] - 14.20).abs() < 0.01, "{percents:?}");
        // "Slightly outside the margins" by the eye; p = 0.075 before any correction, and less than 1.9 s could not
        // be seen.
        let in_vm = of("host mitigations off, in the VM (VM's on)");
        assert!((in_vm.p - 0.075).abs() < 2e-3 && in_vm.outcome == Outcome::NotSeen, "{in_vm:?}");
        assert!((1.8..2.0).contains(&in_vm.smallest_visible_s), "{in_vm:?}");
    }

    #[test]
    fn margins_are_by_1_96_and_too_narrow() {
        for c in told().cells {
            assert!(c.agrees && c.margin_student_s > 1.08 * c.margin_normal_s, "{c:?}");
        }
        let mut wrong: Study =
            toml::from_str(include_str!("../../../experiments/published/host-tuning.toml")).unwrap();
        wrong.cells[1].margin_s = 0.182;
        wrong.comparisons[0].printed_percent = 13.5;
        wrong.pairs[1].printed_percent = Some(13.0);
        let told = read_again(&wrong).unwrap();
        assert!(!told.cells[1].agrees && !told.comparisons[0].agrees && !told.pairs[1].agrees, "{told:#?}");
        wrong.comparisons[0].before = "nobody".into();
        assert!(read_again(&wrong).is_err());
    }

    #[test]
    fn its_ranking_and_choice_are_the_texts() {
        let t = told();
        let order: Vec<&str> = t.ranking.iter().map(|r| r.setting.as_str()).collect();
        assert!(order[0].starts_with("tuned profile: balanced"), "{order:?}");
        assert!(
            order[1].starts_with("host mitigations off, on the host")
                && order[2].starts_with("VM mitigations off (host's on)")
        );
        assert_eq!(t.ranking.iter().filter(|r| r.outcome == Outcome::NotSeen).count(), 8);
        // Chosen was throughput-performance over virtual-host, for its idle watts.
        let front: Vec<(&str, Option<bool>)> =
            t.profiles.iter().map(|(p, f)| (p.name.as_str(), *f)).collect();
        assert_eq!(
            front,
            [
                ("balanced", Some(false)),
                ("throughput-performance", Some(true)),
                ("virtual-host", Some(false)),
                ("powersave", None)
            ]
        );
    }
}
