//! Options of `vsteer steer`.

use super::words::duration;
use clap::{Args, ValueEnum};
use std::path::PathBuf;
use vsteer_sla::rule::Published;

/// Who decides about weights.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum Rule {
    /// vsteer's own rule
    #[default]
    Own,
    /// Rules (5) to (7) of Yang et al., 2010
    Paper,
    /// Sandpiper (Wood et al., 2007)
    Sandpiper,
}

impl Rule {
    /// The published rule; `None`: vsteer's own.
    pub fn published(self) -> Option<Published> {
        match self {
            Rule::Own => None,
            Rule::Paper => Some(Published::Paper),
            Rule::Sandpiper => Some(Published::Sandpiper),
        }
    }
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  vsteer steer --sla sla.toml               Show the weights that vsteer would set
  vsteer steer --sla sla.toml --yes         Set weights until interrupted

A file of service levels:
  period = \"60s\"
  [[vm]]
  name = \"web\"
  log = \"/var/log/nginx/access.log\"
  mean = \"9ms\"
  p95 = \"30ms\"
  rate = 45
  [[host]]   # where a VM may move if no weights hold all levels
  connect = \"qemu+ssh://root@other/system\"

vsteer moves no VM: it writes a plan for `vsteer apply`. When vsteer ends, even by SIGKILL, the former weights return.
On Xen, vsteer held levels on a pCPU with 86 % load (docs/accuracy.md).")]
pub struct Steer {
    /// File of service levels (docs/service-levels.md)
    #[arg(long, value_name = "FILE")]
    pub sla: PathBuf,
    /// Set weights [default: dry run]
    #[arg(long)]
    pub yes: bool,
    /// Stop after TIME [default: run until interrupted]
    #[arg(long = "for", value_name = "TIME", value_parser = duration)]
    pub length: Option<std::time::Duration>,
    /// Estimate response times with this estimator (see `vsteer estimate`) [default: own]
    #[arg(long, value_name = "ESTIMATOR")]
    pub by: Option<String>,
    /// Decide by this rule: vsteer's own, or a published one to compare with it
    #[arg(long, value_name = "RULE", value_enum, default_value_t)]
    pub rule: Rule,
    /// Use the libvirt at URI [default: every VM of this host, with or without libvirt]
    #[arg(long, value_name = "URI", help_heading = "Source")]
    pub connect: Option<String>,
    /// Open URI, parameters included, if the file of service levels names it (repeatable)
    #[arg(long, value_name = "URI", help_heading = "Source")]
    pub trust_uri: Vec<String>,
}
