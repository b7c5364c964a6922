//! Options of `vsteer realtime`.

use super::words::duration;
use clap::{Args, Subcommand, ValueEnum};

/// `vsteer realtime`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  vsteer realtime enable --vm audio --yes\n  vsteer realtime report\n  vsteer realtime disable\n  \
vsteer realtime run --vm audio --measure-only --yes --for 1m\n\n\
By policy: one of sched_ext schedules all ordinary tasks of the host while it runs, by weight, as the kernel does, except that a vCPU \
whose timer ends goes first, on credit. When it ends, however that is, the kernel's own scheduler takes over.\n\
By priority: the VM's threads are in a real-time class while the VM asks for less than it is due, else in their own. Whatever \
ends the service, even SIGKILL, a watchdog puts classes and budgets back (vsteer rollback, should that be killed too)."
)]
pub struct Realtime {
    /// What to do.
    #[command(subcommand)]
    pub what: RealtimeWhat,
}

/// The parts of `vsteer realtime`.
#[derive(Debug, Subcommand)]
pub enum RealtimeWhat {
    /// Keep VMs first until interrupted; then report.
    Run(RealtimeRun),
    /// The same in the background, until `disable`.
    Enable(RealtimeRun),
    /// Who is kept first, and how often that was so.
    Status,
    /// The same, and how late each VM was, as histograms.
    Report,
    /// End it: everything is as it was before.
    Disable,
    /// Print a unit for systemd that keeps VMs first from boot on (tried by `systemd-analyze verify` alone).
    Unit(RealtimeRun),
}

/// How VMs are put first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum RealtimeBy {
    /// By a policy where the kernel has sched_ext, else by priority, saying why.
    Auto,
    /// A policy of sched_ext: when a timer of the VM ends, and charged for it.
    Policy,
    /// A real-time class of the kernel's (SCHED_RR): when the VM wakes, for as long as it asks for less than it is due.
    Priority,
}

/// Where the ends of guests' timers are learnt from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum RealtimeSource {
    /// What a guest writes to its own timer: needs nothing of the guest.
    Timer,
    /// What a guest says by a hypercall (docs/realtime.md).
    Call,
    /// Its own timer, until it says which timers matter.
    Both,
}

/// `vsteer realtime run`, and with the same options `enable` and `unit`.
#[derive(Debug, Args)]
pub struct RealtimeRun {
    /// Whose timers are honoured (may be given again).
    #[arg(long = "vm", value_name = "NAME", required = true)]
    pub vms: Vec<String>,
    /// Do it. Without it: says what would be done, and changes nothing.
    #[arg(long)]
    pub yes: bool,
    /// How they are put first.
    #[arg(long, value_enum, default_value = "auto")]
    pub by: RealtimeBy,
    /// Where the ends of guests' timers are learnt from (by policy).
    #[arg(long, value_enum, default_value = "both")]
    pub source: RealtimeSource,
    /// Measure how late they are, and put nobody first.
    #[arg(long)]
    pub measure_only: bool,
    /// How far ahead of its share a VM may run: what it may borrow of CPU time (by policy).
    #[arg(long, value_name = "TIME", default_value = "100ms", value_parser = duration)]
    pub warp: std::time::Duration,
    /// By policy: how long a vCPU may run in one go once its timer has ended. By priority: how much CPU time beyond its due a VM may
    /// have at once.
    #[arg(long, value_name = "TIME", default_value = "20ms", value_parser = duration)]
    pub limit: std::time::Duration,
    /// Report what the policy's callbacks cost, too: the kernel counts that, at a small cost of its own.
    #[arg(long)]
    pub costs: bool,
    /// Leave out of the report what happens in the first so long.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub warm_up: Option<std::time::Duration>,
    /// End after so long; without it: when interrupted.
    #[arg(long = "for", value_name = "TIME", value_parser = duration)]
    pub length: Option<std::time::Duration>,
    /// libvirt connection URI; without it every VM of this host, libvirt's or not.
    #[arg(long, value_name = "URI")]
    pub connect: Option<String>,
}
