//! Of which version is a QEMU machine type? Versions decide defaults: queues of disks, and what `-smp` leaves out.

/// The version at the end of a machine type: 9.0 of `pc-i440fx-9.0+pve0` (Proxmox adds its own after a plus sign).
/// `None` for a type without a version and for those of distributions (`pc-q35-rhel9.4.0`, `pc-q35-noble`).
pub fn version(machine: &str) -> Option<(u32, u32)> {
    let end = machine.rsplit('-').next()?;
    let mut numbers = end.split('+').next()?.split('.').map(str::parse::<u32>);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

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
