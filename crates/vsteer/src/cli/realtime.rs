//! Options of `vsteer realtime`.

use super::words::duration;
use clap::{Args, Subcommand, ValueEnum};

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  vsteer realtime enable --vm audio         Show what would change
  vsteer realtime enable --vm audio --yes   Start the service
  vsteer realtime report                    Show how late the VM's vCPUs ran
  vsteer realtime disable                   Stop the service, and restore all settings

By policy: a sched_ext policy schedules all ordinary tasks of the host by weight, as the kernel does. But a vCPU runs first
when its timer ends, and the VM pays for that time later. When the policy ends, the kernel's own scheduler takes over.
By priority: the VM's threads have a real-time class while the VM uses less CPU time than its share. Whatever ends the
service, even SIGKILL, a watchdog restores classes and budgets. If the watchdog is killed too, use `vsteer rollback`.")]
pub struct Realtime {
    #[command(subcommand)]
    pub what: RealtimeWhat,
}

#[derive(Debug, Subcommand)]
pub enum RealtimeWhat {
    /// Give VMs priority when their timers expire. Stop and report when interrupted
    #[command(after_help = "\
Examples:
  vsteer realtime run --vm audio --yes --for 1m
  vsteer realtime run --vm audio --measure-only --yes --for 1m")]
    Run(RealtimeRun),
    /// Run VMs first in the background, until `disable`
    #[command(after_help = "\
Examples:
  vsteer realtime enable --vm audio         Show what would change
  vsteer realtime enable --vm audio --yes   Start the service")]
    Enable(RealtimeRun),
    /// Show which VMs run first, and how often they did
    #[command(after_help = "Example:\n  vsteer realtime status")]
    Status,
    /// Show status, and how late each VM ran as histograms
    #[command(after_help = "Example:\n  vsteer realtime report --json")]
    Report,
    /// Stop the service, and restore all settings
    #[command(after_help = "Example:\n  vsteer realtime disable")]
    Disable,
    /// Print a systemd unit that runs VMs first from boot on
    ///
    /// On Debian 12 and 13 the unit started, and started again after a power cut.
    #[command(after_help = "Example:\n  vsteer realtime unit --vm audio")]
    Unit(RealtimeRun),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum RealtimeBy {
    /// Choose `policy` if the kernel has sched_ext, otherwise `priority`, and print the reason
    Auto,
    /// Use a sched_ext policy: when a timer of a VM expires, the VM runs first, and gets less later
    Policy,
    /// Use the kernel's SCHED_RR: the VM runs first when it wakes, while it uses less than its share
    Priority,
}

/// How the policy learns that a guest's timer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum RealtimeSource {
    /// Watch what a guest writes to its timer. Needs no change of the guest
    Timer,
    /// Let a program in the guest announce its timers by a hypercall (docs/realtime.md)
    Call,
    /// Watch the timer until the guest says which timers matter
    Both,
}

/// Options of `run`, `enable` and `unit`.
#[derive(Debug, Args)]
pub struct RealtimeRun {
    /// Run the VM called NAME first (repeatable)
    #[arg(long = "vm", value_name = "NAME", required = true)]
    pub vms: Vec<String>,
    /// Let NAME also stand for a VM that runs as USER (repeatable)
    ///
    /// Anyone can start a process with any VM's name. So NAME stands for VMs that a libvirt lists, and for processes of root, of
    /// services, and of the user who calls vsteer. A unit made by `realtime unit` also trusts the user who made it.
    #[arg(long = "user", value_name = "USER")]
    pub users: Vec<String>,
    /// Change settings [default: dry run]
    #[arg(long)]
    pub yes: bool,
    /// Choose how VMs run first
    #[arg(long, value_enum, default_value = "auto")]
    pub by: RealtimeBy,
    /// Measure how late VMs run, and change nothing
    #[arg(long)]
    pub measure_only: bool,
    /// Let a VM use TIME more than its share at once (by priority), or run TIME at a stretch after its timer ended (by policy)
    #[arg(long, value_name = "TIME", default_value = "20ms", value_parser = duration)]
    pub limit: std::time::Duration,
    /// Limit the CPU time that a VM may owe at any moment to TIME
    #[arg(long, value_name = "TIME", default_value = "100ms", value_parser = duration, help_heading = "Policy")]
    pub warp: std::time::Duration,
    /// Choose how vsteer detects that a guest's timer has expired
    #[arg(long, value_enum, default_value = "both", help_heading = "Policy")]
    pub source: RealtimeSource,
    /// Report what the policy's callbacks cost; counting costs a little too
    #[arg(long, help_heading = "Policy")]
    pub costs: bool,
    /// Leave the first TIME out of the report
    #[arg(long, value_name = "TIME", value_parser = duration, help_heading = "Window")]
    pub warm_up: Option<std::time::Duration>,
    /// Stop after TIME [default: run until interrupted]
    #[arg(long = "for", value_name = "TIME", value_parser = duration, help_heading = "Window")]
    pub length: Option<std::time::Duration>,
    /// Use the libvirt at URI [default: every VM of this host, with or without libvirt]
    #[arg(long, value_name = "URI", help_heading = "Source")]
    pub connect: Option<String>,
}
