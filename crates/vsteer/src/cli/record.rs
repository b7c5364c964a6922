//! Options of `vsteer record`.

use super::host::Source;
use super::words::{bytes, duration};
use clap::Args;
use std::path::{Path, PathBuf};
use vsteer_core::trigger::quantity::QUANTITIES;
#[cfg(feature = "host")]
use vsteer_host::recorder::Asked;
use vsteer_record::config::default_of;

#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  vsteer record -o before.vsteer --for 60s
  vsteer record -o flight.vsteer --ring 2G --trigger 'ready_p99>20ms'
  vsteer record -o events.vsteer --for 30s --events")]
pub struct Record {
    /// Create FOLDER for the recording; its name usually ends in .vsteer
    ///
    /// Without this option, the recording gets a folder of its own in the folder `paths.recordings` of the configuration. Its
    /// name is the time in UTC.
    #[arg(short, long, value_name = "FOLDER", help_heading = "Output")]
    pub output: Option<PathBuf>,
    /// Stop after TIME [default: run until interrupted]
    #[arg(long = "for", value_name = "TIME", value_parser = duration, help_heading = "Window")]
    pub length: Option<std::time::Duration>,
    /// Take a sample every TIME, at most 60s
    ///
    /// A crash loses the last sample.
    #[arg(short, long, value_name = "TIME", default_value = default_of("record.interval"), value_parser = duration, help_heading = "Window")]
    pub interval: std::time::Duration,
    /// Record every context switch too: 12 bytes each; needs eBPF
    ///
    /// `report` and `export` then show which thread ran where, and `plan` and `headroom` can replay the host.
    #[arg(long)]
    pub events: bool,
    /// Reserve BYTES in the kernel for context switches that were not read yet (a power of two)
    #[arg(long, value_name = "BYTES", value_parser = bytes, default_value = default_of("record.event_buffer"), requires = "events")]
    pub event_buffer: u64,
    /// Also record by polling into FOLDER, with the same sampling times, to compare both recordings
    #[arg(long, value_name = "FOLDER", help_heading = "Output")]
    pub second: Option<PathBuf>,
    /// If the output folder exists, move it to FOLDER once the new recording has its first sample
    ///
    /// A recording that is at FOLDER already is removed then. If the new recording cannot start, both stay.
    #[arg(long, value_name = "FOLDER", help_heading = "Flight recorder")]
    pub keep_former: Option<PathBuf>,
    /// Keep about the newest BYTES, for example 2G
    #[arg(long, value_name = "BYTES", value_parser = bytes, help_heading = "Flight recorder")]
    pub ring: Option<u64>,
    /// Mark when a VM meets this condition, and keep the samples around it (repeatable)
    #[arg(long, value_name = "CONDITION", long_help = conditions(), help_heading = "Flight recorder")]
    pub trigger: Vec<vsteer_core::trigger::Trigger>,
    /// Judge conditions over the last TIME
    #[arg(long, value_name = "TIME", default_value = default_of("record.trigger_window"), value_parser = duration, requires = "trigger",
        help_heading = "Flight recorder")]
    pub trigger_window: std::time::Duration,
    /// After marking a time, ignore the same condition of the same VM for TIME
    #[arg(long, value_name = "TIME", default_value = default_of("record.trigger_quiet"), value_parser = duration, requires = "trigger",
        help_heading = "Flight recorder")]
    pub trigger_quiet: std::time::Duration,
    #[command(flatten)]
    pub source: Source,
}

fn conditions() -> String {
    let names: Vec<&str> = QUANTITIES.iter().map(|q| q.name).collect();
    format!(
        "Mark when a VM meets this condition, and keep the samples around it (repeatable)\n\n\
        Examples: ready_p99>20ms, or limited>5% and ready>1%. Quantities: {}.",
        names.join(", ")
    )
}

impl Record {
    /// What the recorder is asked for, to record into the folder `output`.
    #[cfg(feature = "host")]
    pub fn asked<'a>(&'a self, output: &'a Path) -> Asked<'a> {
        Asked {
            output,
            former: self.keep_former.as_deref(),
            second: self.second.as_deref(),
            interval: self.interval,
            length: self.length,
            ring: self.ring,
            events: self.events,
            triggers: &self.trigger,
            trigger_window: self.trigger_window,
            trigger_quiet: self.trigger_quiet,
        }
    }
}
