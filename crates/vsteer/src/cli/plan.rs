//! Options of `vsteer plan`.

use super::window::Window;
use super::words::{microseconds, percent};
use clap::{Args, ValueEnum};
use std::path::PathBuf;
use vsteer_core::plan::action::ACTIONS;
use vsteer_core::plan::set::EXAMPLES;
use vsteer_record::config::default_of;

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
    #[arg(long, value_name = "ACTION", long_help = actions())]
    pub only: Option<String>,
    /// Forecast a change you specify instead of one that vsteer proposes (repeatable)
    #[arg(long = "set", value_name = "VM:WHAT=VALUE", conflicts_with = "only", long_help = settings())]
    pub set: Vec<vsteer_core::plan::set::Setting>,
    /// Change running VMs, their definitions, or both [default: live; on vSphere: both]
    #[arg(long, value_enum)]
    pub scope: Option<ScopeChoice>,
    /// Reject plans that cost any VM more than PERCENT of its work
    #[arg(long, value_name = "PERCENT", value_parser = percent, default_value = default_of("plan.work_loss"))]
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

fn actions() -> String {
    let named = |asked_only: bool| -> Vec<&str> {
        ACTIONS.iter().filter(|a| a.asked_only == asked_only).map(|a| a.name).collect()
    };
    let asked = named(true);
    let (last, others) = asked.split_last().expect("some actions are proposed only on request");
    format!(
        "Consider only this action, even if it exceeds --work-loss\n\n\
        Actions: {}. vsteer considers {} and {last} only if you name them.",
        named(false).join(", "),
        others.join(", ")
    )
}

fn settings() -> String {
    format!("Forecast a change you specify instead of one that vsteer proposes (repeatable)\n\n{EXAMPLES}")
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
    /// Replay if the recording has context switches and a replay reproduces what was measured. Else counted, else fluid
    Auto,
    /// Simulate the recorded demands under the new settings. Needs `record --events`
    Replay,
    /// Simulate threads that sleep and compute at random, as often and as long as was counted. Linux only
    Counted,
    /// Compute fair shares, as if time were infinitely divisible
    Fluid,
    /// Simulate ESXi's co-scheduling. vsteer estimates each VM's demand from the samples. The default for VMs of a vSphere
    Cosched,
}
