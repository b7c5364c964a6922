//! A value with the range it is expected in: of a forecast, a verdict or an answer of an experiment.

use serde::{Deserialize, Serialize};

/// A value with the range it is expected in.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// Lower end.
    pub low: f64,
    /// Most likely.
    pub likely: f64,
    /// Upper end.
    pub high: f64,
}
