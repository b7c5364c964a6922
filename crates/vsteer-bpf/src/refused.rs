//! The fault for something that the kernel refuses.

use vsteer_core::{Fault, FaultKind};

pub(crate) fn refused(what: &str, e: &libbpf_rs::Error) -> Fault {
    use libbpf_rs::ErrorKind as K;
    let kind = if e.kind() == K::PermissionDenied { FaultKind::NoPrivilege } else { FaultKind::Unsupported };
    Fault::new(kind, format!("eBPF: {what}")).because(format!("{e:#}")).help(
        "run as root (or with CAP_BPF, CAP_PERFMON), or use the polling collector: --collector schedstat",
    )
}
