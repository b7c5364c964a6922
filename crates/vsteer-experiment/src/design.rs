//! Which settings does an experiment run, in which order, and which questions can it answer?
//!
//! A setting is one level of every factor. A design is a list of settings and [`Contrast`]s. A contrast gives each
//! setting a weight, which says which settings are compared. Runs are made in blocks. Each block has every setting
//! once, in random order from one seed, so a host that warms up affects all settings of a block alike. If a factor
//! needs a reboot, the settings of one boot are next to each other in the block, also in random order (split plot).
//!
//! Sources: R. Fisher, "The Design of Experiments", 1935 (blocks, factorials); G. Box, W. Hunter, J. Hunter,
//! "Statistics for Experimenters", 2nd ed. 2005, table 6.22 (generators of fractions). Left out: fractions of
//! factors with more than two levels; Latin squares; more than eight factors in a fraction.

use serde::{Deserialize, Serialize};
use vsteer_core::random::Random;
use vsteer_core::{Fault, FaultKind};

/// A factor: something that the experiment varies.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Varied {
    /// Name of the factor.
    pub name: String,
    /// Names of the levels. The others are compared with the first.
    pub levels: Vec<String>,
    /// Whether another level needs a reboot.
    pub boots: bool,
}

/// Which combinations of levels an experiment runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Design {
    /// One factor of two levels.
    Pair,
    /// Each level of each factor alone, compared with the first levels of all factors.
    OneAtATime,
    /// Every combination of all levels.
    Full,
    /// A fraction of all combinations of factors with two levels. Shows main effects, but cannot separate some
    /// interactions.
    Fractional,
}

/// A setting: the index of the level of each factor.
pub type Levels = Vec<usize>;

/// A question that a design answers: the sum of weight times value over a block's settings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Contrast {
    /// Name of the question: `profile: virtual-host`, `profile x mitigations`.
    pub name: String,
    /// Whether the question is about two factors together (an interaction).
    pub interaction: bool,
    /// Other questions with the same weights, which the design cannot separate from this one.
    pub also: Vec<String>,
    /// Index of a setting and its weight. The weights of an effect add up to 1 on one side and -1 on the other.
    pub weights: Vec<(usize, f64)>,
}

impl Contrast {
    /// Value of the contrast in one block; `None` if a setting that it needs has no value.
    pub fn of_block(&self, values: &[Option<f64>]) -> Option<f64> {
        self.weights.iter().map(|(setting, w)| values[*setting].map(|v| w * v)).sum()
    }
}

/// The settings and questions of a design.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Laid {
    /// The settings. The first has the first level of every factor, except in a fraction.
    pub settings: Vec<Levels>,
    /// The questions.
    pub contrasts: Vec<Contrast>,
}

/// Most settings of a design; no host has time for more.
const SETTINGS_MAX: usize = 256;

/// Fractions: factors, basic ones, and the others as products of basic ones (bits), from the table.
const FRACTIONS: &[(usize, usize, &[usize])] = &[
    (3, 2, &[0b11]),
    (4, 3, &[0b111]),
    (5, 4, &[0b1111]),
    (6, 4, &[0b0111, 0b1110]),
    (7, 4, &[0b0111, 0b1110, 0b1101]),
    (8, 4, &[0b1110, 0b1101, 0b0111, 0b1011]),
];

fn wrong(why: impl std::fmt::Display) -> Fault {
    Fault::new(FaultKind::BadInput, "the design is not valid").because(why)
}

/// Computes the settings and questions of a design.
///
/// # Errors
/// `BadInput`: a factor with fewer than two levels, a design that these factors do not allow, or more than 256
/// settings.
pub fn lay_out(design: Design, factors: &[Varied]) -> Result<Laid, Fault> {
    if factors.is_empty() {
        return Err(wrong("the experiment has no factor"));
    }
    if let Some(f) = factors.iter().find(|f| f.levels.len() < 2) {
        return Err(wrong(format!("factor {:?} has fewer than two levels", f.name)));
    }
    let laid = match design {
        Design::Pair if factors.len() == 1 && factors[0].levels.len() == 2 => one_at_a_time(factors),
        Design::Pair => {
            return Err(wrong("a pair needs exactly one factor with two levels")
                .help("use design = \"one-at-a-time\""));
        }
        Design::OneAtATime => one_at_a_time(factors),
        Design::Full => full(factors)?,
        Design::Fractional => fractional(factors)?,
    };
    if laid.settings.len() > SETTINGS_MAX {
        return Err(wrong(format!(
            "it has {} settings, more than the maximum of {SETTINGS_MAX}",
            laid.settings.len()
        ))
        .help("use design = \"one-at-a-time\" or \"fractional\", or fewer levels"));
    }
    Ok(laid)
}

fn one_at_a_time(factors: &[Varied]) -> Laid {
    let mut laid = Laid { settings: vec![vec![0; factors.len()]], contrasts: Vec::new() };
    for (f, factor) in factors.iter().enumerate() {
        for level in 1..factor.levels.len() {
            let mut setting = vec![0; factors.len()];
            setting[f] = level;
            laid.contrasts.push(Contrast {
                name: format!("{}: {}", factor.name, factor.levels[level]),
                interaction: false,
                also: Vec::new(),
                weights: vec![(laid.settings.len(), 1.0), (0, -1.0)],
            });
            laid.settings.push(setting);
        }
    }
    laid
}

fn full(factors: &[Varied]) -> Result<Laid, Fault> {
    let many = factors.iter().try_fold(1usize, |n, f| n.checked_mul(f.levels.len()));
    let many = many.filter(|n| *n <= SETTINGS_MAX).ok_or_else(|| {
        wrong(format!("all combinations of levels are more than the maximum of {SETTINGS_MAX} settings"))
            .help("use design = \"one-at-a-time\" or \"fractional\", or fewer levels")
    })?;
    let setting = |mut i: usize| -> Levels {
        let levels = factors.iter().map(|f| {
            let level = i % f.levels.len();
            i /= f.levels.len();
            level
        });
        levels.collect()
    };
    let settings: Vec<Levels> = (0..many).map(setting).collect();
    let mut contrasts = Vec::new();
    for (f, factor) in factors.iter().enumerate() {
        let each = (many / factor.levels.len()) as f64;
        for level in 1..factor.levels.len() {
            let sign = |s: &Levels| f64::from(i8::from(s[f] == level) - i8::from(s[f] == 0)) / each;
            contrasts.push(contrast(
                format!("{}: {}", factor.name, factor.levels[level]),
                false,
                &settings,
                sign,
            ));
        }
    }
    for (f, a) in factors.iter().enumerate() {
        for (g, b) in factors.iter().enumerate().skip(f + 1) {
            let each = (many / (a.levels.len() * b.levels.len())) as f64;
            for (i, j) in (1..a.levels.len()).flat_map(|i| (1..b.levels.len()).map(move |j| (i, j))) {
                let side = |at: usize, level: usize| i8::from(at == level) - i8::from(at == 0);
                let sign = |s: &Levels| f64::from(side(s[f], i) * side(s[g], j)) / each;
                let name = format!("{}: {} x {}: {}", a.name, a.levels[i], b.name, b.levels[j]);
                contrasts.push(contrast(name, true, &settings, sign));
            }
        }
    }
    Ok(Laid { settings, contrasts })
}

fn contrast(
    name: String,
    interaction: bool,
    settings: &[Levels],
    weight: impl Fn(&Levels) -> f64,
) -> Contrast {
    let weights = settings.iter().map(weight).enumerate().filter(|(_, w)| *w != 0.0).collect();
    Contrast { name, interaction, also: Vec::new(), weights }
}

fn fractional(factors: &[Varied]) -> Result<Laid, Fault> {
    if let Some(f) = factors.iter().find(|f| f.levels.len() != 2) {
        return Err(wrong(format!(
            "a fractional design needs two levels of each factor, but factor {:?} has {}",
            f.name,
            f.levels.len()
        )));
    }
    let Some((_, basic, generators)) = FRACTIONS.iter().find(|(k, ..)| *k == factors.len()) else {
        return Err(wrong(format!(
            "a fractional design needs three to eight factors, but the experiment has {}",
            factors.len()
        ))
        .help("use design = \"full\""));
    };
    // A factor's column is a product of basic columns, as bits. The product of two columns is their exclusive or.
    let columns: Vec<usize> = (0..*basic).map(|i| 1 << i).chain(generators.iter().copied()).collect();
    let runs = 1usize << basic;
    // High if an odd number of its basic factors is high. Reversed for even products, so that all factors are high
    // together.
    let sign =
        |run: usize, column: usize| if (column & !run).count_ones().is_multiple_of(2) { 1.0 } else { -1.0 };
    let settings: Vec<Levels> =
        (0..runs).map(|run| columns.iter().map(|c| usize::from(sign(run, *c) > 0.0)).collect()).collect();
    let mut contrasts: Vec<(usize, Contrast)> = Vec::new();
    let mut ask = |column: usize, name: String, interaction: bool| {
        if let Some((_, same)) = contrasts.iter_mut().find(|(c, _)| *c == column) {
            same.also.push(name);
            return;
        }
        let each = runs as f64 / if interaction { 4.0 } else { 2.0 };
        let weights = (0..runs).map(|run| (run, sign(run, column) / each)).collect();
        contrasts.push((column, Contrast { name, interaction, also: Vec::new(), weights }));
    };
    for (f, factor) in factors.iter().enumerate() {
        ask(columns[f], format!("{}: {}", factor.name, factor.levels[1]), false);
    }
    for f in 0..factors.len() {
        for g in f + 1..factors.len() {
            ask(columns[f] ^ columns[g], format!("{} x {}", factors[f].name, factors[g].name), true);
        }
    }
    Ok(Laid { settings, contrasts: contrasts.into_iter().map(|(_, c)| c).collect() })
}

/// Order of the settings in a block. The same seed gives the same order in every block, whatever the number of blocks.
pub fn order(factors: &[Varied], settings: &[Levels], seed: u64, block: u64) -> Vec<usize> {
    let mut random = Random::new(seed, block);
    let boot =
        |s: &Levels| -> Levels { factors.iter().zip(s).filter(|(f, _)| f.boots).map(|(_, l)| *l).collect() };
    let mut boots: Vec<Levels> = settings.iter().map(boot).collect();
    boots.sort();
    boots.dedup();
    shuffle(&mut boots, &mut random);
    let mut order = Vec::new();
    for one in boots {
        let mut of_it: Vec<usize> = (0..settings.len()).filter(|i| boot(&settings[*i]) == one).collect();
        shuffle(&mut of_it, &mut random);
        order.extend(of_it);
    }
    order
}

/// Fisher-Yates shuffle.
fn shuffle<T>(all: &mut [T], random: &mut Random) {
    for i in (1..all.len()).rev() {
        all.swap(i, random.within(0, i as u64) as usize);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn factors(levels: &[usize]) -> Vec<Varied> {
        let of = |(i, n): (usize, &usize)| Varied {
            name: format!("f{i}"),
            levels: (0..*n).map(|l| l.to_string()).collect(),
            boots: i == 0,
        };
        levels.iter().enumerate().map(of).collect()
    }

    /// A value that is known to hold an effect for each factor's second level and an interaction of the first two.
    fn value(s: &Levels) -> f64 {
        let effect: f64 = s.iter().enumerate().map(|(f, l)| (f + 1) as f64 * *l as f64).sum();
        effect + 10.0 * (s[0].min(1) * s[1].min(1)) as f64
    }

    fn answer(laid: &Laid, name: &str) -> f64 {
        let values: Vec<Option<f64>> = laid.settings.iter().map(|s| Some(value(s))).collect();
        let c = laid.contrasts.iter().find(|c| c.name == name).unwrap_or_else(|| panic!("{name}: {laid:?}"));
        c.of_block(&values).unwrap()
    }

    #[test]
    fn a_full_design_answers_everything() {
        let laid = lay_out(Design::Full, &factors(&[2, 3, 2])).unwrap();
        assert_eq!(laid.settings.len(), 12);
        assert_eq!(laid.settings[0], [0, 0, 0]);
        // f0 at its second level: 1, and 10 wherever f1 is not at its first (two of three).
        assert!((answer(&laid, "f0: 1") - (1.0 + 20.0 / 3.0)).abs() < 1e-9);
        assert!((answer(&laid, "f2: 1") - 3.0).abs() < 1e-9);
        assert!((answer(&laid, "f0: 1 x f1: 2") - 10.0).abs() < 1e-9);
        assert!(answer(&laid, "f0: 1 x f2: 1").abs() < 1e-9);
    }

    #[test]
    fn one_at_a_time_is_against_the_first() {
        let laid = lay_out(Design::OneAtATime, &factors(&[2, 3])).unwrap();
        assert_eq!(laid.settings, [[0, 0], [1, 0], [0, 1], [0, 2]]);
        assert_eq!((answer(&laid, "f0: 1"), answer(&laid, "f1: 2")), (1.0, 4.0));
    }

    #[test]
    fn a_fraction_says_what_it_cannot_tell() {
        for k in 3..=8 {
            let laid = lay_out(Design::Fractional, &factors(&vec![2; k])).unwrap();
            let columns: Vec<Vec<i8>> =
                laid.contrasts.iter().map(|c| signs(c, laid.settings.len())).collect();
            for (i, a) in columns.iter().enumerate() {
                for b in &columns[i + 1..] {
                    let product: i32 = a.iter().zip(b).map(|(x, y)| i32::from(x * y)).sum();
                    assert_eq!(product, 0, "{k} factors: two questions are not orthogonal");
                }
            }
            // From four factors on no main effect is mixed with an interaction of two.
            let mixed = laid.contrasts.iter().any(|c| !c.interaction && !c.also.is_empty());
            assert_eq!(mixed, k == 3, "{k} factors");
        }
        let laid = lay_out(Design::Fractional, &factors(&[2; 4])).unwrap();
        assert_eq!(laid.settings.len(), 8);
        // The column of f0 x f1 is that of f2 x f3.
        assert_eq!(laid.contrasts.iter().find(|c| c.name == "f0 x f1").unwrap().also, ["f2 x f3"]);
        // By the confounded interaction alone half of its 10 are an effect.
        assert!((answer(&laid, "f0 x f1") - 10.0).abs() < 1e-9);
        assert!((answer(&laid, "f3: 1") - 4.0).abs() < 1e-9);
    }

    fn signs(c: &Contrast, n: usize) -> Vec<i8> {
        let mut out = vec![0; n];
        c.weights.iter().for_each(|(i, w)| out[*i] = if *w > 0.0 { 1 } else { -1 });
        out
    }

    #[test]
    fn orders_are_drawn_and_boots_stand_together() {
        let f = factors(&[2, 3]);
        let laid = lay_out(Design::Full, &f).unwrap();
        let orders: Vec<Vec<usize>> = (0..40).map(|b| order(&f, &laid.settings, 7, b)).collect();
        assert_eq!(orders[3], order(&f, &laid.settings, 7, 3));
        for o in &orders {
            let mut sorted = o.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, [0, 1, 2, 3, 4, 5]);
            let boots: Vec<usize> = o.iter().map(|i| laid.settings[*i][0]).collect();
            assert_eq!(boots.windows(2).filter(|w| w[0] != w[1]).count(), 1, "{o:?}");
        }
        let firsts: std::collections::BTreeSet<usize> = orders.iter().map(|o| o[0]).collect();
        assert_eq!(firsts.len(), 6, "every setting is first now and then");
    }

    #[test]
    fn what_cannot_be_laid_out_is_told() {
        for (design, levels) in [
            (Design::Pair, vec![2, 2]),
            (Design::Full, vec![1, 2]),
            (Design::Full, vec![2; 9]),
            (Design::Fractional, vec![2, 3, 2]),
            (Design::Fractional, vec![2, 2]),
            (Design::OneAtATime, vec![]),
        ] {
            assert_eq!(
                lay_out(design, &factors(&levels)).unwrap_err().kind,
                FaultKind::BadInput,
                "{design:?}"
            );
        }
    }

    #[test]
    fn a_block_that_lacks_a_setting_answers_nothing() {
        let laid = lay_out(Design::Pair, &factors(&[2])).unwrap();
        assert_eq!(laid.contrasts[0].of_block(&[Some(1.0), None]), None);
        assert_eq!(laid.contrasts[0].of_block(&[Some(1.0), Some(3.0)]), Some(2.0));
    }
}
