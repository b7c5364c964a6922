//! Options of `vsteer numa`.

use super::window::Window;
use super::words::bytes;
use clap::Args;

/// `vsteer numa`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  vsteer numa esxtop.csv.gz\n  vsteer numa --connect vsphere://root@esx1 --password-file F\n  vsteer numa --host 2x18 --host-memory 384G --vcpus 12 --memory 16G \
--esxi 7.0.2\n\nNodes: what VMs want of each (run, ready, co-stop), bursts included, beside the published flowchart by the letter. \
Sockets: by the paper's algorithm as printed (doi:10.6109/jkiice.2022.26.10.1432) and by vsteer's own. What ESXi makes of it \
is from VMware's documents: untried on a real one."
)]
pub struct Numa {
    /// What to look at.
    #[command(flatten)]
    pub window: Window,
    /// A host that is only described: sockets x cores of each, such as 2x18.
    #[arg(long, value_name = "SxC", value_parser = sockets_by_cores, conflicts_with = "recording", requires = "vcpus")]
    pub host: Option<(u32, u32)>,
    /// With --host: its memory.
    #[arg(long, value_name = "BYTES", value_parser = bytes, requires = "host")]
    pub host_memory: Option<u64>,
    /// With --host: NUMA nodes of each socket.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=16))]
    pub nodes_per_socket: u32,
    /// With --host: hyper-threads of each core.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=8))]
    pub threads: u32,
    /// With --host: the VM's vCPUs.
    #[arg(long, value_name = "N", requires = "host", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub vcpus: Option<u32>,
    /// With --host: the VM's memory.
    #[arg(long, value_name = "BYTES", value_parser = bytes, requires = "host")]
    pub memory: Option<u64>,
    /// ESXi's version, where it is not told.
    #[arg(long, value_name = "VERSION")]
    pub esxi: Option<String>,
    /// Cores per socket now, where they are not told.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub cores_per_socket: Option<u32>,
    /// CPU hot add is on.
    #[arg(long)]
    pub hot_add: bool,
    /// numa.vcpu.preferHT is set: a node holds as many vCPUs as it has hyper-threads.
    #[arg(long)]
    pub prefer_ht: bool,
    /// numa.vcpu.min, where it is not 9.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub vcpu_min: Option<u32>,
    /// numa.vcpu.followcorespersocket is set.
    #[arg(long)]
    pub follow_cores_per_socket: bool,
}

/// `2x18`.
fn sockets_by_cores(text: &str) -> Result<(u32, u32), String> {
    let parts = text.split_once(['x', 'X']).and_then(|(s, c)| Some((s.parse().ok()?, c.parse().ok()?)));
    match parts {
        Some((s @ 1..=64, c @ 1..=1024)) => Ok((s, c)),
        _ => Err(format!("{text:?} is not SOCKETSxCORES, such as 2x18")),
    }
}
