//! Options of `vsteer plan`.

use super::window::Window;
use super::words::microseconds;
use clap::{Args, ValueEnum};
use std::path::PathBuf;

/// Where a plan's changes take effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ScopeChoice {
    /// Change running VMs
    Live,
    /// Change definitions, which take effect when a VM starts
    Persistent,
    /// Change both
    Both,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  vsteer plan -o plan.json                  Observe this host, and write a plan for `vsteer apply`
  vsteer plan before.vsteer                 Plan from a recording
  vsteer plan --set web:weight=512          Forecast a change that you specify")]
pub struct PlanArgs {
    /// Consider only this action, even if it exceeds --work-loss
    ///
    /// Actions: unpin, node, weights, realtime, separate. vsteer considers quota, topology, pool and pin only if you name them.
    #[arg(long, value_name = "ACTION")]
    pub only: Option<String>,
    /// Forecast a change you specify instead of one that vsteer proposes (repeatable)
    ///
    /// KVM and Xen: web:weight=512, web:limit=1.5|none (pCPUs), web:pin=0-3|any, web:pin.2=0 (vCPU 2 only),
    /// web:prefer=0-7|any (Xen's soft affinity), web:budget=4ms/10ms (Xen's RTDS; untried).
    /// vSphere: web:weight=2000 (shares), web:limit=2000MHz, web:reservation=500MHz, web:nodes=0|any,
    /// web:cores-per-socket=6, web:latency=high.
    #[arg(long = "set", value_name = "VM:WHAT=VALUE", conflicts_with = "only")]
    pub set: Vec<vsteer_core::plan::set::Setting>,
    /// Change running VMs, their definitions, or both [default: live; on vSphere: both]
    #[arg(long, value_enum)]
    pub scope: Option<ScopeChoice>,
    /// Reject plans that cost any VM more than PERCENT of its work
    #[arg(long, value_name = "PERCENT", default_value_t = 10.0)]
    pub work_loss: f64,
    /// With --only pin: a vCPU loses US microseconds when it moves to another core
    ///
    /// [default: the time to refill the caches that a core does not share]
    #[arg(long, value_name = "US", requires = "only", value_parser = microseconds)]
    pub move_cost_us: Option<f64>,
    /// Choose how to forecast
    #[arg(long, value_enum, default_value = "auto")]
    pub by: Method,
    /// Write the plan to FILE for `vsteer apply`
    #[arg(short, long, value_name = "FILE", help_heading = "Output")]
    pub output: Option<PathBuf>,
    /// Print the plan in this format
    #[arg(long, value_enum, default_value = "text", help_heading = "Output")]
    pub format: PlanFormat,
    #[command(flatten)]
    pub window: Window,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum PlanFormat {
    /// Text for people
    Text,
    /// PowerShell script for VMware PowerCLI, to review; only for VMs of a vSphere. Untried
    Powercli,
}

/// How a plan's forecasts are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Method {
    /// Replay if the recording has context switches and a replay reproduces what was measured. Else fluid
    Auto,
    /// Simulate the recorded demands under the new settings. Needs `record --events`
    Replay,
    /// Compute fair shares, as if time were infinitely divisible
    Fluid,
    /// Simulate ESXi's co-scheduling with demands fitted to the samples. The default for VMs of a vSphere
    Cosched,
}
