//! Options of `vsteer headroom`.

use clap::Args;
use std::path::PathBuf;

/// `vsteer headroom`.
#[derive(Debug, Args)]
#[command(after_help = "Example: vsteer headroom scenarios/web-servers.toml --kind web --level ready=10% \
--level response_p99=100ms --seeds 10")]
pub struct Headroom {
    /// The scenario file: the host with the VMs that are there. With `--from`: where the VM that more are wanted of
    /// stands.
    #[arg(required_unless_present = "from")]
    pub scenario: Option<PathBuf>,
    /// A recording taken with `--events`: the host, its VMs and what they wanted.
    #[arg(long, value_name = "RECORDING")]
    pub from: Option<PathBuf>,
    /// Of which VM more are wanted: a `name` in the file, or a VM of the recording.
    #[arg(long, value_name = "NAME")]
    pub kind: String,
    /// What no VM may exceed: `ready=10%`, `wake_p99=20ms`, `response_p99=100ms`, `late=1%` (may be given again).
    #[arg(long, value_name = "NAME=VALUE", required = true)]
    pub level: Vec<vsteer_sim::scenario::headroom::Level>,
    /// How many seeds, from the scenario's own upwards.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub seeds: u16,
    /// The most VMs more that are tried.
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub most: u32,
    /// Change the scenario first, as for `simulate`.
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<crate::cli::Setting>,
}
