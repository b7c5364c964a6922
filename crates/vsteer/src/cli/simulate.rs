//! Options of `vsteer simulate`.

use clap::Args;
use std::path::PathBuf;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  vsteer simulate scenarios/noisy-neighbour.toml
  vsteer simulate scenarios/two-hogs.toml --seeds 5 --sweep vm.large.weight=128,256,512
  vsteer simulate workload.json             Simulate a workload of rt-app
  vsteer simulate --from events.vsteer      Simulate a recorded host, beside what was measured
  vsteer simulate --published=vit           Simulate a paper's experiments, beside its figures")]
pub struct Simulate {
    /// Scenario file, or a workload of rt-app (JSON)
    ///
    /// A small one, with a quota and a timer (docs/scenarios.md has all keys):
    ///
    ///     title = "A quota and a timer"
    ///     for = "30s"
    ///     scheduler = { policy = "eevdf" }
    ///     machine = { cores_per_node = 2 }
    ///
    ///     [[vm]]
    ///     name = "db"
    ///     vcpus = 2
    ///     quota = { quota = "60ms", period = "100ms" }
    ///     demand = "hog"
    ///
    ///     [[vm]]
    ///     name = "web"
    ///     demand = { periodic = { period = "10ms", work = "1ms" } }
    #[arg(verbatim_doc_comment)]
    #[arg(required_unless_present_any = ["list", "from", "published"])]
    pub scenario: Option<PathBuf>,
    /// Change the scenario, for example vm.web.weight=512, scheduler.policy=eevdf or for=60s (repeatable)
    ///
    /// With --from: simulate the recorded host with this parameter of its scheduler too, for example base_slice_us=3000.
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<crate::cli::Setting>,
    /// Simulate once for each value (repeatable: every combination)
    #[arg(long, value_name = "KEY=V1,V2,...")]
    pub sweep: Vec<crate::cli::Sweep>,
    /// Simulate with N seeds, counted up from the scenario's seed
    ///
    /// Two or more seeds give each figure a 95 % confidence interval.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub seeds: u16,
    /// List the schedulers and their parameters
    #[arg(long, conflicts_with_all = ["scenario", "output"])]
    pub list: bool,
    /// Simulate published experiments, and print each figure beside the published one
    ///
    /// PAPER is the short name of one paper [default: all papers]. docs/published.md lists them. Uses 30 seeds unless you ask
    /// for more.
    #[arg(long, value_name = "PAPER", num_args = 0..=1, require_equals = true, default_missing_value = "",
        conflicts_with_all = ["scenario", "list", "from", "set", "sweep", "each", "wide", "output"])]
    pub published: Option<String>,
    /// Simulate the demands of a recording made with `record --events`, and show the result beside the measured values
    #[arg(long, value_name = "RECORDING", conflicts_with_all = ["scenario", "list", "seeds", "sweep", "each"],
        help_heading = "Recorded host")]
    pub from: Option<PathBuf>,
    /// State a parameter of the recorded scheduler that was not at its default, for example hz=1000 (repeatable)
    #[arg(long, value_name = "KEY=VALUE", requires = "from", help_heading = "Recorded host")]
    pub was: Vec<crate::cli::Setting>,
    /// Simulate the recorded host also with the changes of this plan
    #[arg(
        long,
        value_name = "FILE",
        requires = "from",
        conflicts_with = "under",
        help_heading = "Recorded host"
    )]
    pub plan: Option<PathBuf>,
    /// Simulate the recorded host also with the settings of a later recording, and compare with what was measured there
    #[arg(long, value_name = "RECORDING", requires = "from", help_heading = "Recorded host")]
    pub under: Option<PathBuf>,
    /// Show each VM on a line of its own [default: one line, with their mean, for VMs that one `count` of the scenario creates]
    #[arg(long, help_heading = "Output")]
    pub each: bool,
    /// Show every figure: also median wake-up, lag, switches, preemptions and migrations
    #[arg(long, help_heading = "Output")]
    pub wide: bool,
    /// With --published: print Markdown, as in docs/published.md
    #[arg(long, requires = "published", help_heading = "Output")]
    pub markdown: bool,
    /// Record the run of the first seed, with every context switch
    ///
    /// Commands that read recordings take it. With --from: records the host under the change, if there is one.
    #[arg(short, long, value_name = "FOLDER", conflicts_with = "sweep", help_heading = "Output")]
    pub output: Option<PathBuf>,
}
