//! Which topology of vCPUs does QEMU show the guest?
//!
//! `-smp` and the `smp.` properties of `-machine` are one set of counts. The last value of a count wins. QEMU computes a
//! count that is missing from the others. Only if sockets and cores are both missing, the machine type decides: types before
//! 6.2 make sockets, later ones make cores. Then a type whose version the name does not tell gives no topology.
//!
//! Source: `hw/core/machine-smp.c`, `machine_parse_smp_config` (QEMU 9.2); `qapi/machine.json`, `SMPConfiguration`.
//!
//! Left out: counts that do not make `maxcpus`, which QEMU took until 5.1. They give no topology.

use crate::machine_type;
use crate::nouns::GuestTopology;

/// The counts that QEMU knows. The first ones, together, are sockets here, as a guest sees them; those between sockets
/// and cores are parts of a socket.
const SOCKETS: [&str; 3] = ["drawers", "books", "sockets"];
const PARTS: [&str; 3] = ["dies", "clusters", "modules"];
/// Machine types of this version and later make cores where both sockets and cores are missing.
const CORES_SINCE: (u32, u32) = (6, 2);
/// Machine types before this version also took counts that do not make `maxcpus`.
const WHOLE_SINCE: (u32, u32) = (5, 2);
/// More than QEMU allows on any machine.
const VCPUS_MAX: u32 = 8_192;

/// The topology of a VM with these counts and this machine type.
///
/// # Errors
/// Why it cannot be told.
pub fn topology(counts: &[(String, String)], machine: &str) -> Result<GuestTopology, String> {
    let last = |key: &str| counts.iter().rev().find(|(k, _)| k == key).map(|(_, n)| n.as_str());
    let given = |key: &str| last(key).map(|n| number(n).ok_or_else(|| not_a_number(key, n))).transpose();
    let product = |keys: &[&str]| -> Result<u32, String> {
        keys.iter().try_fold(1_u32, |all, key| all.checked_mul(given(key)?.unwrap_or(1)).ok_or_else(too_many))
    };
    let (started, most) = (given("cpus")?, given("maxcpus")?);
    let most = most.or(started);
    let (sockets, cores, threads) = (given("sockets")?, given("cores")?, given("threads")?);
    let (above, parts) = (product(&SOCKETS[..2])?, product(&PARTS)?);
    let older = machine_type::version(machine).is_some_and(|version| version < WHOLE_SINCE);
    if older && started != most && (cores.is_none() || threads.is_none()) {
        return Err("QEMU before 5.2 computed what `-smp` leaves out in other ways".to_owned());
    }
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
                    "`-smp` has neither sockets nor cores, and vsteer does not know which of them QEMU adds for machine \
                     type {:?}",
                    shortened(machine)
                ));
            }
        },
    };
    let all = [sockets, cores, threads, above, parts].into_iter().try_fold(1_u32, u32::checked_mul);
    if all != Some(most) || started.is_some_and(|started| started > most) {
        return Err(format!(
            "sockets x cores x threads of `-smp` is {}, not {most}",
            all.unwrap_or(u32::MAX)
        ));
    }
    shown([sockets, cores, threads], above, parts)
}

fn shown([sockets, cores, threads]: [u32; 3], above: u32, parts: u32) -> Result<GuestTopology, String> {
    let sockets = sockets.checked_mul(above).ok_or_else(too_many)?;
    let cores = cores.checked_mul(parts).ok_or_else(too_many)?;
    guest(sockets, cores, threads).ok_or_else(too_many)
}

/// A topology, if a VM can have it: each count is at least 1, and the product can be a number of vCPUs.
pub fn guest(sockets: u32, cores: u32, threads: u32) -> Option<GuestTopology> {
    let all = sockets.checked_mul(cores)?.checked_mul(threads)?;
    (1..=VCPUS_MAX).contains(&all).then_some(GuestTopology { sockets, cores, threads })
}

/// The beginning of a text of a command line, which may be a mebibyte.
fn shortened(text: &str) -> String {
    text.chars().take(60).collect()
}

fn not_a_number(key: &str, text: &str) -> String {
    format!("`-smp`: {key} is {:?}, which is not a number of vCPUs", shortened(text))
}

fn too_many() -> String {
    "the counts of `-smp` are too large".to_owned()
}

/// A number as QEMU reads it: decimal, `0x10` or octal `020`; at least 1.
fn number(text: &str) -> Option<u32> {
    let number = match (text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")), text.strip_prefix('0')) {
        (Some(hex), _) => u32::from_str_radix(hex, 16),
        (None, Some(octal)) if !octal.is_empty() => u32::from_str_radix(octal, 8),
        _ => text.parse(),
    };
    number.ok().filter(|n| *n > 0)
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
        assert_eq!(of("4,maxcpus=8,sockets=2", "pc-i440fx-5.2"), Some([2, 4, 1]));
        assert_eq!(of("4,maxcpus=8,sockets=2", "pc-i440fx-4.2"), None, "two cores until 5.1");
        for unknown in ["q35", "pc-q35-rhel8.6.0"] {
            let why = topology(&pairs("8", "cpus"), unknown).unwrap_err();
            assert!(why.contains(unknown), "{why}");
        }
    }

    #[test]
    fn what_qemu_refuses_gives_no_topology() {
        let many = "sockets=1,cores=65536,threads=65536";
        for smp in [
            "0",
            "x",
            many,
            "8,maxcpus=4,sockets=1,cores=4",
            "8,sockets=3",
            "8,cores=0",
            "4294967295,sockets=65536,cores=65536,dies=4",
        ] {
            assert_eq!(of(smp, "pc-q35-7.2"), None, "{smp}");
        }
    }
}
