//! Options of `vsteer steer`.

use super::words::duration;
use clap::Args;
use std::path::PathBuf;

/// `vsteer steer`.
#[derive(Debug, Args)]
#[command(
    after_help = "Example of levels (sla.toml):\n  period = \"60s\"\n  [[vm]]\n  name = \"web\"\n  log = \
\"/var/log/nginx/access.log\"\n  mean = \"9ms\"\n  p95 = \"30ms\"\n  rate = 45\n  [[host]]   # where a VM may go if no weights hold all levels\n  \
connect = \"qemu+ssh://root@other/system\"\n\nNothing is moved: a plan is written, for `vsteer apply`. When it ends, also when it is killed, the former weights \
return. Steering Xen domains is new: on a full pCPU levels were not held yet."
)]
pub struct Steer {
    /// The service levels.
    #[arg(long, value_name = "FILE")]
    pub sla: PathBuf,
    /// Set weights. Without it nothing is changed.
    #[arg(long)]
    pub yes: bool,
    /// End after so long; without it: when interrupted.
    #[arg(long = "for", value_name = "TIME", value_parser = duration)]
    pub length: Option<std::time::Duration>,
    /// By which estimator (see `vsteer estimate`).
    #[arg(long, value_name = "ESTIMATOR", default_value = "own")]
    pub by: String,
    /// libvirt connection URI; without it every VM of this host, libvirt's or not.
    #[arg(long, value_name = "URI")]
    pub connect: Option<String>,
}
