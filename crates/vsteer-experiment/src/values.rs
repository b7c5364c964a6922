//! What was one measure in each block at each setting?

use super::design::Laid;
use crate::run::Run;
use vsteer_core::stats;

/// Values of one measure: block by block, setting by setting.
pub struct Values {
    /// Block, then setting; logarithms if so.
    pub values: Vec<Vec<Option<f64>>>,
    /// Are they logarithms?
    pub logarithms: bool,
}

impl Values {
    /// The mean of all.
    pub fn mean(&self) -> f64 {
        let all: Vec<f64> = self.values.iter().flatten().flatten().copied().collect();
        stats::mean(&all).unwrap_or(0.0)
    }
}

/// A setting's value in each block: the mean of its visit's runs that count.
pub fn values_of_block(laid: &Laid, runs: &[&Run], measure: usize) -> Values {
    let blocks = runs.iter().map(|r| r.place.block + 1).max().unwrap_or(0);
    let mut found = vec![vec![Vec::new(); laid.settings.len()]; blocks];
    for run in runs.iter().filter(|r| r.bad.is_none() && !r.warm_up) {
        if let Some(value) = run.values.get(measure).copied().flatten() {
            found[run.place.block][run.place.setting].push(value);
        }
    }
    let logarithms = found.iter().flatten().flatten().all(|v| *v > 0.0);
    let one = |v: &Vec<f64>| stats::mean(v).map(|m| if logarithms { libm::log(m) } else { m });
    Values { values: found.iter().map(|b| b.iter().map(one).collect()).collect(), logarithms }
}
