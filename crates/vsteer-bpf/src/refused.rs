//! The fault for something that the kernel refuses, and the number of switches that the kernel did not report.

use crate::layout::Pcpu;
use libbpf_rs::{MapCore, MapFlags};
use vsteer_core::{Fault, FaultKind};

pub(crate) fn refused(what: &str, e: &libbpf_rs::Error) -> Fault {
    use libbpf_rs::ErrorKind as K;
    let kind = if e.kind() == K::PermissionDenied { FaultKind::NoPrivilege } else { FaultKind::Unsupported };
    Fault::new(kind, format!("eBPF: {what}")).because(format!("{e:#}")).help(
        "run as root (or with CAP_BPF, CAP_PERFMON), or use the polling collector: --collector schedstat",
    )
}

/// The sum of `pcpu.unseen`.
pub(crate) fn unseen(pcpus: &impl MapCore, count: u32) -> Result<u64, Fault> {
    let mut sum = 0;
    for cpu in 0..count {
        let bytes = pcpus.lookup(&cpu.to_ne_bytes(), MapFlags::ANY);
        if let Some(bytes) = bytes.map_err(|e| refused("cannot read the unreported records", &e))? {
            let at = std::mem::offset_of!(Pcpu, unseen);
            sum += u64::from(bytemuck::pod_read_unaligned::<u32>(&bytes[at..at + size_of::<u32>()]));
        }
    }
    Ok(sum)
}
