//! What does the name of a QEMU machine type say? Versions decide defaults: queues of disks, and what `-smp` leaves out.
//!
//! Source: `hw/i386/pc_q35.c`, `pc_piix.c`, `microvm.c` (QEMU 9.2).

/// The version at the end of a machine type: 9.0 of `pc-i440fx-9.0+pve0` (Proxmox adds its own after a plus sign).
/// `None` for a type without a version and for those of distributions (`pc-q35-rhel9.4.0`, `pc-q35-noble`).
pub fn version(machine: &str) -> Option<(u32, u32)> {
    let end = machine.rsplit('-').next()?;
    let mut numbers = end.split('+').next()?.split('.').map(str::parse::<u32>);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

/// Is it one of the PCs of QEMU for x86? The names are those of QEMU and its distributions.
pub fn is_pc(machine: &str) -> bool {
    matches!(machine, "pc" | "q35" | "isapc" | "microvm")
        || ["pc-i440fx-", "pc-q35-"].iter().any(|p| machine.starts_with(p))
}

/// The most vCPUs that QEMU's own types allow; `None` if the name does not tell.
pub fn vcpus_most(machine: &str) -> Option<u32> {
    if machine.starts_with("pc-q35-") {
        let version = version(machine)?;
        let raised = [((2, 8), 255), ((8, 1), 288), ((9, 0), 1024)];
        return raised
            .into_iter()
            .find(|(since, _)| version < *since)
            .map_or(Some(4096), |(_, most)| Some(most));
    }
    match machine {
        "isapc" => Some(1),
        "microvm" => Some(288),
        _ if machine.starts_with("pc-i440fx-") && version(machine).is_some() => Some(255),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_of_machine_types() {
        let most =
            ["pc-q35-2.7", "pc-q35-8.0", "pc-q35-8.2", "pc-q35-9.0", "pc-i440fx-9.0+pve0", "q35", "virt-9.0"];
        let expected = [Some(255), Some(288), Some(1024), Some(4096), Some(255), None, None];
        assert_eq!(most.map(vcpus_most), expected);
        assert!(is_pc("pc-q35-rhel9.4.0") && is_pc("microvm") && !is_pc("virt") && !is_pc("pc-98"));
    }

    #[test]
    fn versions_of_machine_types() {
        assert_eq!(version("pc-q35-7.2"), Some((7, 2)));
        assert_eq!(version("pc-i440fx-9.0+pve0"), Some((9, 0)));
        assert_eq!(version("s390-ccw-virtio-6.1"), Some((6, 1)));
        for without in ["q35", "virt", "pc-q35-rhel9.4.0", "pc-q35-noble", "", "-", "pc-4"] {
            assert_eq!(version(without), None, "{without}");
        }
    }
}
