//! Commands that ask the simulator, or foretell by it.

use super::words::{duration, named_number};
use clap::Args;
use std::path::PathBuf;

/// `vsteer simulate`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  vsteer simulate scenarios/two-hogs.toml\n  vsteer simulate s.toml --seeds 20 \
--sweep vm.web.weight=128,256,512\n  vsteer simulate s.toml -o s.vsteer && vsteer report s.vsteer"
)]
pub struct Simulate {
    /// The scenario file.
    #[arg(required_unless_present_any = ["list", "from", "published"])]
    pub scenario: Option<PathBuf>,
    /// Instead of a scenario: a recording with --events. Its threads' demands are simulated under its own configuration,
    /// beside what was measured.
    #[arg(long, value_name = "RECORDING", conflicts_with_all = ["scenario", "list", "seeds", "sweep", "each"])]
    pub from: Option<PathBuf>,
    /// With --from: a parameter of the recorded host's scheduler that was not at its default, such as `hz=1000`
    /// (--list has them; may be given again).
    #[arg(long, value_name = "KEY=VALUE", requires = "from")]
    pub was: Vec<crate::cli::Setting>,
    /// With --from: simulate it under this plan's changes too.
    #[arg(long, value_name = "FILE", requires = "from", conflicts_with = "under")]
    pub plan: Option<PathBuf>,
    /// With --from: simulate it under the configuration of this later recording of the same VMs too, beside what was
    /// measured there: how far off would the prediction have been?
    #[arg(long, value_name = "RECORDING", requires = "from")]
    pub under: Option<PathBuf>,
    /// List the schedulers with their parameters instead.
    #[arg(long, conflicts_with_all = ["scenario", "output"])]
    pub list: bool,
    /// Simulate the published experiments instead (or one paper's, by its short name) and print each published figure
    /// beside the simulated one: docs/published.md. Ten seeds unless more are asked for.
    #[arg(long, value_name = "PAPER", num_args = 0..=1, require_equals = true, default_missing_value = "",
        conflicts_with_all = ["scenario", "list", "from", "set", "sweep", "each", "wide", "output"])]
    pub published: Option<String>,
    /// With --published: as the page docs/published.md has it.
    #[arg(long, requires = "published")]
    pub markdown: bool,
    /// How many seeds, from the scenario's own upwards: two or more give each figure a 95 % interval.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub seeds: u16,
    /// Change the scenario: `vm.web.weight=512`, `scheduler.policy=eevdf`, `for=60s` (may be given again). With --from:
    /// simulate it with this parameter of its scheduler too, such as `base_slice_us=3000`.
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<crate::cli::Setting>,
    /// Run it once for each of these values (may be given again: every combination).
    #[arg(long, value_name = "KEY=V1,V2,...")]
    pub sweep: Vec<crate::cli::Sweep>,
    /// Show every VM; without it, VMs made by one `count` are shown as one line with their mean.
    #[arg(long)]
    pub each: bool,
    /// Show every figure: median wake-up, lag, switches, preemptions and migrations too.
    #[arg(long)]
    pub wide: bool,
    /// Record the first seed's run: samples and every switch, for `top`'s replay, `diagnose`, `report` and `export`. With
    /// --from: the host under the change, or as it was if there is none.
    #[arg(short, long, value_name = "FOLDER", conflicts_with = "sweep")]
    pub output: Option<PathBuf>,
}

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

/// `vsteer estimate`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  vsteer estimate web=/var/log/nginx/access.log db=db.jsonl --from day.vsteer --interval 5m\n  \
vsteer estimate web=access.log db=db.jsonl --from now.vsteer --rate web=80 --weight web=200\n  \
vsteer estimate web=web-scrapes/ db=db.jsonl --from day.vsteer --histogram 'http_request_duration_seconds{job=\"web\"}'"
)]
pub struct Estimate {
    /// Whose requests are in which access log (may be given again): Apache's (%D), nginx's ($request_time) or JSON lines. Or
    /// in which folder scrapes of a Prometheus histogram (--histogram) were saved, each as a file that is named by its time
    /// (seconds since 1970, such as 1767225600.prom; another name: when it was written).
    #[arg(required = true, value_name = "VM=FILE|FOLDER")]
    pub logs: Vec<crate::logs::Log>,
    /// A recording of the host at that time; several: one interval after the other.
    #[arg(long, required = true, num_args = 1.., value_name = "RECORDING")]
    pub from: Vec<PathBuf>,
    /// Cut each recording into intervals of this length: each is foretold from the one before.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub interval: Option<std::time::Duration>,
    /// The logs' format, as the server's configuration has it, or one of apache, apache-combined, nginx, json; without it
    /// the one of these that fits.
    #[arg(long, value_name = "FORMAT")]
    pub format: Option<String>,
    /// Which histogram of saved scrapes holds the requests, as a query has it: NAME or 'NAME{label="value"}', in seconds unless
    /// the name ends in another unit. With a VM before it: that VM's (may be given again).
    #[arg(long = "histogram", value_name = "[VM=]HISTOGRAM")]
    pub histograms: Vec<crate::scrapes::Named>,
    /// What will be asked of a VM after the last interval, requests per second (may be given again).
    #[arg(long = "rate", value_name = "VM=RATE", value_parser = named_number)]
    pub rates: Vec<(String, f64)>,
    /// What weight a VM will have after the last interval, on its hypervisor's scale (may be given again).
    #[arg(long = "weight", value_name = "VM=WEIGHT", value_parser = named_number)]
    pub weights: Vec<(String, f64)>,
}
