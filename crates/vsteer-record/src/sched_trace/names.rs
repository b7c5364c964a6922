//! What threads of VMMs call themselves.

use vsteer_core::nouns::Accel;

/// The number of the vCPU, and how it runs, by the name of its thread.
pub(super) fn vcpu(comm: &str) -> Option<(u32, Accel)> {
    let number = |digits: &str| -> Option<u32> {
        (!digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit())).then(|| digits.parse().ok())?
    };
    if let Some((n, how)) = comm.strip_prefix("CPU ").and_then(|rest| rest.split_once('/')) {
        // The name of a thread has at most 15 bytes, so that long numbers cut the end off.
        let accel = match how {
            "TCG" => Accel::Tcg,
            _ if "KVM".starts_with(how) => Accel::Kvm,
            _ => return None,
        };
        return Some((number(n)?, accel));
    }
    let n = comm.strip_prefix("fc_vcpu ").or_else(|| comm.strip_prefix("vcpu"))?;
    Some((number(n)?, Accel::Kvm))
}

/// Is this the name of a VMM's main thread?
pub(super) fn is_vmm(comm: &str) -> bool {
    comm.starts_with("qemu-") || ["kvm", "qemu", "cloud-hyperviso", "firecracker"].contains(&comm)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_vcpu_threads() {
        for (comm, is) in [
            ("CPU 0/KVM", Some((0, Accel::Kvm))),
            ("CPU 127/KVM", Some((127, Accel::Kvm))),
            ("CPU 3/TCG", Some((3, Accel::Tcg))),
            ("vcpu12", Some((12, Accel::Kvm))),
            ("fc_vcpu 1", Some((1, Accel::Kvm))),
            ("CPU x/KVM", None),
            ("CPU 0/XEN", None),
            ("vcpu", None),
            ("vcpus", None),
            ("qemu-system-x86", None),
        ] {
            assert_eq!(vcpu(comm), is, "{comm}");
        }
    }
}
