//! How is a host configured, and what are its counters right now? Every backend that can sample a host implements this
//! trait.
//!
//! Left out: storing samples (the recording does that).

use vsteer_core::Fault;
use vsteer_core::nouns::{Batch, Collector, HostConfig};

/// A host that can be looked at.
pub trait Observe {
    /// How the host is set up now.
    ///
    /// # Errors
    /// When the host or its manager cannot be asked.
    fn config(&mut self) -> Result<HostConfig, Fault>;

    /// How samples are taken, and what that cannot see.
    fn collector(&self) -> Collector;

    /// Everything counted up to now. A VM or thread that vanished is left out.
    ///
    /// # Errors
    /// When the counters cannot be read at all.
    fn sample(&mut self) -> Result<Batch, Fault>;
}

/// Which way of counting is wanted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CollectorChoice {
    /// eBPF, else schedstat with a note that says why.
    #[default]
    Auto,
    /// eBPF or a fault.
    Ebpf,
    /// schedstat.
    Schedstat,
    /// Ask the hypervisor again and again, without a trace.
    Sampled,
}

/// Which of the counters that a host keeps are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Statistics {
    /// The last hour, every 20 s.
    #[default]
    RealTime,
    /// Averages over this number of seconds: kept for a day at 300, a week at 1800, a month at 7200, a year at 86400.
    Every(u64),
}

impl Statistics {
    /// Those that there are, with what they are called on a command line.
    pub const ALL: [(Statistics, &'static str); 5] = [
        (Statistics::RealTime, "20s"),
        (Statistics::Every(300), "5m"),
        (Statistics::Every(1_800), "30m"),
        (Statistics::Every(7_200), "2h"),
        (Statistics::Every(86_400), "24h"),
    ];
}
