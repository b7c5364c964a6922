//! Options of `vsteer numa`.

use super::window::Window;
use super::words::bytes;
use clap::Args;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  vsteer numa esxtop.csv.gz                 Recommend home nodes for the VMs of a recording
  vsteer numa --host 2x18 --vcpus 12        Recommend sockets and cores per socket for one VM

Nodes: vsteer adds up what VMs want of each node (run, ready, co-stop, with bursts), and prints the published flowchart's
answer beside its own. Sockets: the algorithm of doi:10.6109/jkiice.2022.26.10.1432 as printed, beside vsteer's own.
Effects on ESXi come from VMware's documents; nobody has tried them on a real ESXi.")]
pub struct Numa {
    /// Describe a host instead: SOCKETSxCORES, for example 2x18
    #[arg(long, value_name = "SxC", value_parser = sockets_by_cores, conflicts_with = "recording", requires = "vcpus",
        help_heading = "Described host")]
    pub host: Option<(u32, u32)>,
    /// Memory of the host, for example 384G
    #[arg(long, value_name = "BYTES", value_parser = bytes, requires = "host", help_heading = "Described host")]
    pub host_memory: Option<u64>,
    /// NUMA nodes per socket of the host that --host describes
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=16),
        help_heading = "Described host")]
    pub nodes_per_socket: u32,
    /// Hyper-threads per core
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=8),
        help_heading = "Described host")]
    pub threads: u32,
    /// vCPUs of the VM
    #[arg(long, value_name = "N", requires = "host", value_parser = clap::value_parser!(u32).range(1..=4096),
        help_heading = "Described host")]
    pub vcpus: Option<u32>,
    /// Memory of the VM
    #[arg(long, value_name = "BYTES", value_parser = bytes, requires = "host", help_heading = "Described host")]
    pub memory: Option<u64>,
    /// Assume this version of ESXi [default: as recorded]
    #[arg(long, value_name = "VERSION")]
    pub esxi: Option<String>,
    /// Assume N cores per socket now [default: as recorded]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub cores_per_socket: Option<u32>,
    /// Assume that CPU hot add is on
    #[arg(long)]
    pub hot_add: bool,
    /// Assume numa.vcpu.preferHT: a node holds as many vCPUs as it has hyper-threads
    #[arg(long)]
    pub prefer_ht: bool,
    /// Assume numa.vcpu.min=N [default: 9]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub vcpu_min: Option<u32>,
    /// Assume numa.vcpu.followcorespersocket
    #[arg(long)]
    pub follow_cores_per_socket: bool,
    #[command(flatten)]
    pub window: Window,
}

/// `2x18`.
fn sockets_by_cores(text: &str) -> Result<(u32, u32), String> {
    let parts = text.split_once(['x', 'X']).and_then(|(s, c)| Some((s.parse().ok()?, c.parse().ok()?)));
    match parts {
        Some((s @ 1..=64, c @ 1..=1024)) => Ok((s, c)),
        _ => Err(format!("{text:?} is not SOCKETSxCORES, such as 2x18")),
    }
}
