//! Options of `vsteer simulate`.

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
