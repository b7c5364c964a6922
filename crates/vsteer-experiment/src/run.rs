//! What came of one run of the workload, and why might it not count?
//!
//! What is bad about a run is a value, too: it is kept, and never averaged in.

use serde::{Deserialize, Serialize};

/// Why a run does not count.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "what")]
pub enum Bad {
    /// The workload ended with this code (128 and a signal's number).
    Failed {
        /// The code.
        code: i32,
    },
    /// `prepare` did.
    NotPrepared {
        /// Why.
        why: String,
    },
    /// It was ended at the time limit.
    TimedOut,
    /// It did not print the number of this measure.
    NoNumber {
        /// The measure.
        measure: String,
    },
    /// A setting did not take: it was set and is not in force.
    NotTaken {
        /// The factor.
        factor: String,
        /// What was set.
        wanted: String,
        /// What was read back, or why nothing was.
        found: String,
    },
    /// It took ten times as long as its setting's other runs, or a tenth.
    Tenfold {
        /// Of the median of those.
        times: f64,
    },
    /// The wall clock was changed meanwhile by so many seconds.
    ClockChanged {
        /// Seconds.
        by_s: f64,
    },
    /// The machine slept meanwhile.
    Suspended {
        /// Seconds.
        for_s: f64,
    },
    /// It was cut off: Ctrl-C, a crash, a kill, a boot.
    CutOff,
}

impl Bad {
    /// Is there any sense in making the run again at once?
    pub(crate) fn may_pass(&self) -> bool {
        !matches!(self, Bad::NotTaken { .. })
    }
}

impl std::fmt::Display for Bad {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Bad::Failed { code } => write!(f, "it failed ({code})"),
            Bad::NotPrepared { why } => write!(f, "it could not be prepared: {why}"),
            Bad::TimedOut => write!(f, "it was ended at the time limit"),
            Bad::NoNumber { measure } => write!(f, "it did not print {measure}"),
            Bad::NotTaken { factor, wanted, found } => {
                write!(f, "{factor} did not take: {wanted:?} was set, in force is {found}")
            }
            Bad::Tenfold { times } => write!(f, "it took {times:.3} times as long as others of its setting"),
            Bad::ClockChanged { by_s } => write!(f, "the clock was changed by {by_s:.1} s meanwhile"),
            Bad::Suspended { for_s } => write!(f, "the machine slept for {for_s:.1} s meanwhile"),
            Bad::CutOff => write!(f, "it was cut off"),
        }
    }
}

/// Where in the experiment a run is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Place {
    /// The block.
    pub block: usize,
    /// The setting.
    pub setting: usize,
    /// Which of the visit's runs, warm-up first.
    pub repeat: usize,
    /// How often it was tried before.
    pub attempt: usize,
}

/// One run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Its number in the log: the names of its output files.
    pub number: usize,
    /// Where it belongs.
    pub place: Place,
    /// Does it only warm up?
    pub warm_up: bool,
    /// When it began, ns since 1970 UTC.
    pub unix_ns: u64,
    /// How long it took, s; `None` where it did not end by itself.
    pub took_s: Option<f64>,
    /// What was measured, in the measures' order; `None`: not in this run.
    pub values: Vec<Option<f64>>,
    /// What was not measured in it, and why: a power meter that is gone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
    /// Why it does not count.
    pub bad: Option<Bad>,
}
