//! What is the result of one run of the workload, and why may it not count?
//!
//! A bad run stays in the log with its reason but never enters a mean.

use serde::{Deserialize, Serialize};

/// Why a run does not count.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "what")]
pub enum Bad {
    /// The workload failed with this exit code (128 plus the signal's number after a signal).
    Failed {
        /// Exit code.
        code: i32,
    },
    /// The command `prepare` failed.
    NotPrepared {
        /// Reason of the failure.
        why: String,
    },
    /// vsteer ended the run at the time limit.
    TimedOut,
    /// The workload did not print the number of this measure.
    NoNumber {
        /// Name of the measure.
        measure: String,
    },
    /// A factor was set, but another value is in force.
    NotTaken {
        /// Name of the factor.
        factor: String,
        /// Level that was set.
        wanted: String,
        /// Value that was read back, or why none could be read.
        found: String,
    },
    /// The run took at least ten times as long as the setting's other runs, or at most a tenth.
    Tenfold {
        /// Duration as a multiple of the nearest middle value of the others.
        times: f64,
    },
    /// The wall clock changed during the run.
    ClockChanged {
        /// Change, s.
        by_s: f64,
    },
    /// The machine slept during the run.
    Suspended {
        /// Length of the sleep, s.
        for_s: f64,
    },
    /// The run was cut off: Ctrl-C, a crash, a kill or a reboot.
    CutOff,
}

impl Bad {
    /// Can a repeat right away succeed?
    pub(crate) fn may_pass(&self) -> bool {
        !matches!(self, Bad::NotTaken { .. })
    }
}

impl std::fmt::Display for Bad {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Bad::Failed { code } => write!(f, "the workload failed with exit code {code}"),
            Bad::NotPrepared { why } => write!(f, "the command `prepare` failed: {why}"),
            Bad::TimedOut => write!(f, "the run exceeded the time limit"),
            Bad::NoNumber { measure } => write!(f, "the workload did not print {measure}"),
            Bad::NotTaken { factor, wanted, found } => {
                write!(f, "{factor} was set to {wanted:?}, but the value in force is {found}")
            }
            Bad::Tenfold { times } => {
                write!(f, "the run took {times:.3} times as long as other runs of its setting")
            }
            Bad::ClockChanged { by_s } => write!(f, "the clock changed by {by_s:.1} s during the run"),
            Bad::Suspended { for_s } => write!(f, "the machine slept for {for_s:.1} s during the run"),
            Bad::CutOff => write!(f, "the run was cut off"),
        }
    }
}

/// Place of a run in the experiment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Place {
    /// Index of the block.
    pub block: usize,
    /// Index of the setting.
    pub setting: usize,
    /// Index of the run within the visit, warm-up runs first.
    pub repeat: usize,
    /// Number of earlier attempts.
    pub attempt: usize,
}

/// Result of one run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Number in the log, which names its output files.
    pub number: usize,
    /// Block, setting and repeat of the run.
    pub place: Place,
    /// Whether the run is a warm-up that does not count.
    pub warm_up: bool,
    /// Start time, ns since 1970 UTC.
    pub unix_ns: u64,
    /// Duration, s; `None` if the run did not end by itself.
    pub took_s: Option<f64>,
    /// Values in the order of the measures; `None`: not measured in this run.
    pub values: Vec<Option<f64>>,
    /// Measures without a value, with the reason (such as a power meter that is gone).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
    /// Why the run does not count; `None` if it counts.
    pub bad: Option<Bad>,
}
