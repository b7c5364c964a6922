//! Options of `vsteer headroom`.

use clap::Args;
use std::path::PathBuf;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  vsteer headroom scenarios/web-servers.toml --kind web --level response_p99=100ms
  vsteer headroom scenarios/vdi-pool.toml --kind desktop --level ready=10% --level frames=25/s
  vsteer headroom --from events.vsteer --kind web --level ready=10%")]
pub struct Headroom {
    /// Scenario of the host and its VMs
    #[arg(required_unless_present = "from")]
    pub scenario: Option<PathBuf>,
    /// Use a recording made with `record --events` instead of a scenario
    ///
    /// If you also give a scenario, vsteer takes from it the VM that --kind names.
    #[arg(long, value_name = "RECORDING", help_heading = "Source")]
    pub from: Option<PathBuf>,
    /// Add VMs like NAME: a VM of the scenario or of the recording
    #[arg(long, value_name = "NAME")]
    pub kind: String,
    /// Stop where any VM exceeds this level (repeatable)
    ///
    /// Levels: ready=10%, wake_p99=20ms, response_p99=100ms, late=1%. Minimum rates: frames=25/s, jobs=100/s.
    #[arg(long, value_name = "NAME=VALUE", required = true)]
    pub level: Vec<vsteer_sim::scenario::headroom::Level>,
    /// Simulate with N seeds, counted up from the scenario's seed
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub seeds: u16,
    /// Add at most N VMs
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub most: u32,
    /// Change the scenario first, for example vm.web.weight=512 (repeatable)
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<crate::cli::Setting>,
}
