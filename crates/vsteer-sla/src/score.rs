//! How large are the errors of the estimators? Compares their forecasts with measured response times.
//!
//! An error is |forecast - measured| / measured, of means and of 95th percentiles. A summary is the mean over VMs
//! and intervals. It includes only intervals with a load above [`LOADED`], because at low load every estimator is
//! right.

use super::window::Response;
use serde::Serialize;

/// Load above which estimators differ.
pub const LOADED: f64 = 0.7;

/// Forecast of one estimator.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Told {
    /// Name of the estimator.
    pub estimator: &'static str,
    /// Forecast by VM; `None` if the estimator has none.
    pub told: Vec<Option<Response>>,
}

/// An interval with forecasts and measured values.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Foretold {
    /// Demand in the interval, as a part of the pCPUs.
    pub load: f64,
    /// Measured response times, one entry per VM; an entry is `None` if its VM served no request.
    pub seen: Vec<Option<Response>>,
    /// Forecasts of all estimators.
    pub told: Vec<Told>,
}

/// One estimator's errors.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Error {
    /// Mean relative error of means; `None` without comparisons.
    pub mean: Option<f64>,
    /// Mean relative error of 95th percentiles.
    pub p95: Option<f64>,
    /// Number of compared values (VMs times intervals).
    pub of: usize,
    /// Number of values without a forecast, which do not enter the errors.
    pub unanswered: usize,
}

/// Errors of the estimator of this name, over intervals with a load above `load_above`.
pub fn error(all: &[Foretold], estimator: &str, load_above: f64) -> Error {
    let (mut mean, mut p95) = (Vec::new(), Vec::new());
    let (mut of, mut unanswered) = (0, 0);
    for f in all.iter().filter(|f| f.load > load_above) {
        let Some(told) = f.told.iter().find(|t| t.estimator == estimator) else { continue };
        for (seen, told) in f.seen.iter().zip(&told.told) {
            let Some(seen) = seen else { continue };
            of += 1;
            match told {
                Some(told) => {
                    mean.push((told.mean_s - seen.mean_s).abs() / seen.mean_s);
                    p95.push((told.p95_s - seen.p95_s).abs() / seen.p95_s);
                }
                None => unanswered += 1,
            }
        }
    }
    Error { mean: vsteer_core::stats::mean(&mean), p95: vsteer_core::stats::mean(&p95), of, unanswered }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_parts_of_what_was_seen() {
        let r = |mean_s, p95_s| Some(Response { mean_s, p95_s });
        let one = |load, told| Foretold {
            load,
            seen: vec![r(0.01, 0.02), r(0.02, 0.04), None],
            told: vec![Told { estimator: "own", told }],
        };
        let all = [one(0.9, vec![r(0.011, 0.03), None, r(1.0, 1.0)]), one(0.2, vec![r(1.0, 1.0); 3])];
        let e = error(&all, "own", LOADED);
        assert!((e.mean.unwrap() - 0.1).abs() < 1e-9 && (e.p95.unwrap() - 0.5).abs() < 1e-9);
        assert_eq!((e.of, e.unanswered), (2, 1));
        assert_eq!(error(&all, "ps", 0.0).mean, None);
    }
}
