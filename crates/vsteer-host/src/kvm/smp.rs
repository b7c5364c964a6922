//! Which topology of vCPUs does QEMU show the guest?
//!
//! `-smp` and the `smp.` properties of `-machine` are one set of counts; what stands last counts. QEMU computes a count
//! that is missing from the others. Only if sockets and cores are both missing, the machine type decides: types before
//! 6.2 make sockets, later ones make cores. Then a type whose version the name does not tell gives no topology.
//!
//! Source: `hw/core/machine-smp.c`, `machine_parse_smp_config` (QEMU 9.2); `qapi/machine.json`, `SMPConfiguration`.
//!
//! Left out: how QEMU before 6.2 computed cores and threads from the number of vCPUs that the VM starts with, instead
//! of the largest number.

use vsteer_core::machine_type;
use vsteer_core::nouns::GuestTopology;

/// The counts that QEMU knows. The first ones, together, are sockets here, as a guest sees them; those between sockets
/// and cores are parts of a socket.
const SOCKETS: [&str; 3] = ["drawers", "books", "sockets"];
const PARTS: [&str; 3] = ["dies", "clusters", "modules"];
/// Machine types of this version and later make cores where both sockets and cores are missing.
const CORES_SINCE: (u32, u32) = (6, 2);

/// The topology of a VM with these counts and this machine type.
///
/// # Errors
/// Why it cannot be told.
pub fn topology(counts: &[(String, String)], machine: &str) -> Result<GuestTopology, String> {
    let last = |key: &str| counts.iter().rev().find(|(k, _)| k == key).map(|(_, n)| n.as_str());
    let given = |key: &str| last(key).map(number).transpose().map_err(|e| format!("{key}={e}"));
    let product = |keys: &[&str]| -> Result<u32, String> {
        keys.iter().try_fold(1_u32, |all, key| all.checked_mul(given(key)?.unwrap_or(1)).ok_or_else(too_many))
    };
    let most = given("maxcpus")?.or(given("cpus")?);
    let (sockets, cores, threads) = (given("sockets")?, given("cores")?, given("threads")?);
    let (above, parts) = (product(&SOCKETS[..2])?, product(&PARTS)?);
    let Some(most) = most else {
        return shown([sockets, cores, threads].map(|n| n.unwrap_or(1)), above, parts);
    };
    let rest = |known: [u32; 2]| -> Result<u32, String> {
        let known =
            known.into_iter().chain([above, parts]).try_fold(1_u32, u32::checked_mul).ok_or_else(too_many)?;
        Ok(most / known)
    };
    let one = threads.unwrap_or(1);
    let (sockets, cores, threads) = match (sockets, cores) {
        (Some(sockets), Some(cores)) => (sockets, cores, threads.map_or_else(|| rest([sockets, cores]), Ok)?),
        (Some(sockets), None) => (sockets, rest([sockets, one])?, one),
        (None, Some(cores)) => (rest([cores, one])?, cores, one),
        // However QEMU splits one, it is one.
        (None, None) if rest([one, 1])? <= 1 => (1, 1, one),
        (None, None) => match machine_type::version(machine) {
            Some(version) if version < CORES_SINCE => (rest([one, 1])?, 1, one),
            Some(_) => (1, rest([one, 1])?, one),
            None => {
                return Err(format!(
                    "`-smp` has neither sockets nor cores, and machine type {machine:?} does not tell which of them \
                     QEMU makes"
                ));
            }
        },
    };
    let all = [sockets, cores, threads, above, parts].into_iter().try_fold(1_u32, u32::checked_mul);
    if all != Some(most) {
        return Err(format!("the counts of `-smp` do not make {most} vCPUs"));
    }
    shown([sockets, cores, threads], above, parts)
}

fn shown([sockets, cores, threads]: [u32; 3], above: u32, parts: u32) -> Result<GuestTopology, String> {
    let sockets = sockets.checked_mul(above).ok_or_else(too_many)?;
    let cores = cores.checked_mul(parts).ok_or_else(too_many)?;
    Ok(GuestTopology { sockets, cores, threads })
}

fn too_many() -> String {
    "the counts of `-smp` are too large".to_owned()
}

/// A number as QEMU reads it: decimal, `0x10` or octal `020`; at least 1.
fn number(text: &str) -> Result<u32, String> {
    let number = match (text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")), text.strip_prefix('0')) {
        (Some(hex), _) => u32::from_str_radix(hex, 16),
        (None, Some(octal)) if !octal.is_empty() => u32::from_str_radix(octal, 8),
        _ => text.parse(),
    };
    number.ok().filter(|n| *n > 0).ok_or_else(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of `8,sockets=2`: the first word is `cpus`.
    fn pairs(smp: &str, first: &str) -> Vec<(String, String)> {
        let pairs = smp.split(',').map(|word| word.split_once('=').unwrap_or((first, word)));
        pairs.map(|(key, n)| (key.to_owned(), n.to_owned())).collect()
    }

    fn of(smp: &str, machine: &str) -> Option<[u32; 3]> {
        let counts = if smp.is_empty() { Vec::new() } else { pairs(smp, "cpus") };
        topology(&counts, machine).ok().map(|t| [t.sockets, t.cores, t.threads])
    }

    #[test]
    fn what_is_missing_follows_from_the_rest() {
        for (smp, expected) in [
            ("", [1, 1, 1]),
            ("1", [1, 1, 1]),
            ("sockets=2", [2, 1, 1]),
            ("cores=3,threads=2", [1, 3, 2]),
            ("8,sockets=2,cores=4,maxcpus=8", [2, 4, 1]),
            ("1,sockets=1,cores=4,maxcpus=4", [1, 4, 1]),
            ("cpus=4,maxcpus=8,cores=4,threads=1", [2, 4, 1]),
            ("8,sockets=2", [2, 4, 1]),
            ("8,threads=2,sockets=1", [1, 4, 2]),
            ("2,maxcpus=8,sockets=4,dies=1,clusters=1,cores=1,threads=2", [4, 1, 2]),
            ("8,sockets=2,dies=2,cores=1,threads=2", [2, 2, 2]),
            ("0x8,sockets=1,cores=010", [1, 8, 1]),
            ("8,drawers=2,books=2,sockets=1,cores=2", [4, 2, 1]),
        ] {
            assert_eq!(of(smp, "q35"), Some(expected), "{smp}");
        }
    }

    #[test]
    fn the_machine_type_decides_where_sockets_and_cores_are_missing() {
        assert_eq!(of("8", "pc-q35-6.1"), Some([8, 1, 1]));
        assert_eq!(of("8", "pc-q35-6.2"), Some([1, 8, 1]));
        assert_eq!(of("8,threads=2", "pc-i440fx-9.0+pve0"), Some([1, 4, 2]));
        assert_eq!(of("8,threads=2", "pc-i440fx-5.2"), Some([4, 1, 2]));
        for unknown in ["q35", "pc-q35-rhel8.6.0"] {
            let why = topology(&pairs("8", "cpus"), unknown).unwrap_err();
            assert!(why.contains(unknown), "{why}");
        }
    }

    #[test]
    fn what_qemu_refuses_gives_no_topology() {
        for smp in ["0", "x", "8,sockets=3", "8,cores=0", "4294967295,sockets=65536,cores=65536,dies=4"] {
            assert_eq!(of(smp, "pc-q35-7.2"), None, "{smp}");
        }
    }
}
