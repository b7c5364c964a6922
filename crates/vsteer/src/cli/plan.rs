//! Options of `vsteer plan`.

use super::window::Window;
use super::words::microseconds;
use clap::{Args, ValueEnum};
use std::path::PathBuf;

/// Where a plan's changes take effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ScopeChoice {
    /// In the running VMs only.
    Live,
    /// In the definitions only.
    Persistent,
    /// In both.
    Both,
}

/// `vsteer plan`.
#[derive(Debug, Args)]
pub struct PlanArgs {
    /// What to look at.
    #[command(flatten)]
    pub window: Window,
    /// Write the plan here, for `apply`.
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Consider this action only, even where it breaks the limits (`unpin`, `node`, `weights`, `realtime`, `separate`; only when named: `quota`, `topology`, `pool`, `pin`).
    #[arg(long, value_name = "ACTION")]
    pub only: Option<String>,
    /// A change of your own in place of vsteer's: what it would do is foretold, and `apply` makes it. `web:weight=512`,
    /// `web:limit=1.5|none` (pCPUs), `web:pin=0-3|any`, `web:prefer=0-7|any` (Xen's soft affinity), `web:budget=4ms/10ms` (Xen's RTDS;
    /// untried); `pin.2=` is vCPU 2 alone. On vSphere also `web:limit=2000MHz`, `web:reservation=500MHz`, `web:nodes=0|any`,
    /// `web:cores-per-socket=6`, `web:latency=high`, and `weight` is its shares. May be given again.
    #[arg(long = "set", value_name = "VM:WHAT=VALUE", conflicts_with = "only")]
    pub set: Vec<vsteer_core::plan::set::Setting>,
    /// Where the changes take effect; live, unless said otherwise, and on vSphere, which keeps every setting with the VM, both.
    #[arg(long, value_enum)]
    pub scope: Option<ScopeChoice>,
    /// Most work that any VM may lose, in percent.
    #[arg(long, value_name = "PERCENT", default_value_t = 10.0)]
    pub work_loss: f64,
    /// With --only pin: what it costs a vCPU to be moved to another core, in microseconds. Otherwise the caches that each core has to itself, filled again.
    #[arg(long, value_name = "US", requires = "only", value_parser = microseconds)]
    pub move_cost_us: Option<f64>,
    /// How forecasts are made.
    #[arg(long, value_enum, default_value = "auto")]
    pub by: Method,
    /// How the plan is printed.
    #[arg(long, value_enum, default_value = "text")]
    pub format: PlanFormat,
}

/// How a plan is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum PlanFormat {
    /// For people.
    Text,
    /// As a PowerShell script with VMware PowerCLI, for review; of vSphere's VMs alone. Untried.
    Powercli,
}

/// How a plan's forecasts are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Method {
    /// By replay where the recording has switches and the replay gives back what was measured, else fluid.
    Auto,
    /// By simulating the recorded demands under the changed settings (needs `record --events`).
    Replay,
    /// By fair shares as if time were infinitely divisible.
    Fluid,
    /// By simulating ESXi's co-scheduling with demands fitted to the samples; of vSphere's VMs, and for these what auto is.
    Cosched,
}
