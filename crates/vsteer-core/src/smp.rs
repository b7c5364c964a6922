//! Which topology of vCPUs does QEMU show the guest?
//!
//! `-smp` and the `smp.` properties of `-machine` are one set of counts. The last value of a count wins. QEMU computes a
//! count that is missing from the others. Only if sockets and cores are both missing, the machine type decides: types before
//! 6.2 make sockets, later ones make cores. Then a type whose version the name does not tell gives no topology.
//!
//! Source: `hw/core/machine-smp.c`, `machine_parse_smp_config` (QEMU 9.2); `qapi/machine.json`, `SMPConfiguration`.
//!
//! A count of 0 counts as missing: QEMU took it so until 8.2, and later ones do not start with it.
//!
//! `tests/qemu_lines.txt` of `vsteer-host` holds the answers of a real QEMU.
//!
//! Left out: counts that do not make `maxcpus`, which QEMU took until 5.1. They give no topology.

use crate::machine_type;
use crate::nouns::GuestTopology;

/// The counts that QEMU knows. The first ones, together, are sockets here, as a guest sees them; those between sockets
/// and cores are parts of a socket.
const SOCKETS: [&str; 3] = ["drawers", "books", "sockets"];
const PARTS: [&str; 3] = ["dies", "clusters", "modules"];
/// PCs have none of these levels; QEMU takes only 1.
const NOT_OF_PCS: [&str; 3] = ["drawers", "books", "clusters"];
/// Machine types of this version and later make cores where both sockets and cores are missing.
const CORES_SINCE: (u32, u32) = (6, 2);
/// Machine types before this version also took counts that do not make `maxcpus`.
const WHOLE_SINCE: (u32, u32) = (5, 2);
/// More than QEMU allows on any machine.
const VCPUS_MAX: u32 = 8_192;

/// The counts of a command line; `None` is missing.
struct Counts {
    started: Option<u32>,
    most: Option<u32>,
    sockets: Option<u32>,
    cores: Option<u32>,
    threads: Option<u32>,
    /// Drawers x books.
    above: u32,
    /// Dies x clusters x modules.
    parts: u32,
}

/// The topology of a VM with these counts and this machine type.
///
/// # Errors
/// Why it cannot be told.
pub fn topology(counts: &[(String, String)], machine: &str) -> Result<GuestTopology, String> {
    let counts = read(counts, machine)?;
    let topology = complete(&counts, machine)?;
    let all = topology.sockets * topology.cores * topology.threads; // `guest` has bounded it.
    match machine_type::vcpus_most(machine) {
        Some(most) if all > most => Err(format!("{machine} has at most {most} vCPUs, and `-smp` has {all}")),
        _ => Ok(topology),
    }
}

/// The number of vCPUs that the VM starts with; `None` if the counts are not valid.
pub fn started(counts: &[(String, String)]) -> Option<u32> {
    let counts = read(counts, "").ok()?;
    let levels = [counts.sockets, counts.cores, counts.threads].map(|n| n.unwrap_or(1));
    let all = || levels.into_iter().chain([counts.above, counts.parts]).try_fold(1_u32, u32::checked_mul);
    counts.started.or(counts.most).or_else(all)
}

fn read(counts: &[(String, String)], machine: &str) -> Result<Counts, String> {
    let known = |key: &str| {
        ["cpus", "maxcpus", "cores", "threads"].contains(&key)
            || SOCKETS.contains(&key)
            || PARTS.contains(&key)
    };
    if let Some((key, _)) = counts.iter().find(|(key, _)| !known(key)) {
        return Err(format!("`-smp` has {:?}, which vsteer does not know", shortened(key)));
    }
    let given = |key: &str| -> Result<Option<u32>, String> {
        let Some((_, text)) = counts.iter().rev().find(|(k, _)| k == key) else { return Ok(None) };
        Ok(Some(number(text).ok_or_else(|| not_a_number(key, text))?).filter(|n| *n > 0))
    };
    let product = |keys: &[&str]| -> Result<u32, String> {
        keys.iter().try_fold(1_u32, |all, key| all.checked_mul(given(key)?.unwrap_or(1)).ok_or_else(too_many))
    };
    for level in NOT_OF_PCS {
        if machine_type::is_pc(machine) && given(level)?.is_some_and(|n| n > 1) {
            return Err(format!("`-smp` has several {level}, which a PC does not have"));
        }
    }
    let started = given("cpus")?;
    Ok(Counts {
        started,
        most: given("maxcpus")?.or(started),
        sockets: given("sockets")?,
        cores: given("cores")?,
        threads: given("threads")?,
        above: product(&SOCKETS[..2])?,
        parts: product(&PARTS)?,
    })
}

/// Computes the counts that are missing.
fn complete(counts: &Counts, machine: &str) -> Result<GuestTopology, String> {
    let Counts { started, most, sockets, cores, threads, above, parts } = *counts;
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

/// A number as C's `strtoll` reads it: decimal, `0x10` or octal `020`, after blanks and a sign. QEMU keeps the lower 32
/// bits. A number below 0 is larger there than any machine allows.
fn number(text: &str) -> Option<u32> {
    let text = text.trim_start_matches(|c: char| c.is_ascii_whitespace());
    let (negative, text) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let (digits, radix) = match (text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")), text) {
        (Some(hex), _) => (hex, 16),
        (None, octal) if octal.len() > 1 && octal.starts_with('0') => (octal, 8),
        (None, decimal) => (decimal, 10),
    };
    // A second sign is not a number; `from_str_radix` takes one.
    let number =
        digits.chars().all(|c| c.is_digit(radix)).then(|| i64::from_str_radix(digits, radix).ok())??;
    Some(if negative { number.wrapping_neg() } else { number } as u32)
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
            (" +8,sockets=1,cores=0,threads=4294967298", [1, 4, 2]),
            ("0,sockets=0", [1, 1, 1]),
        ] {
            assert_eq!(of(smp, "q35"), Some(expected), "{smp}");
        }
        assert_eq!(of("8,drawers=2,books=2,sockets=1,cores=2", "s390-ccw-virtio"), Some([4, 2, 1]));
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
    fn vcpus_at_the_start() {
        for (smp, expected) in [
            ("4,maxcpus=8", Some(4)),
            ("0x4", Some(4)),
            ("0,maxcpus=8", Some(8)),
            ("sockets=2,dies=3", Some(6)),
            ("x", None),
        ] {
            assert_eq!(started(&pairs(smp, "cpus")), expected, "{smp}");
        }
        assert_eq!(started(&[]), Some(1));
    }

    #[test]
    fn what_qemu_refuses_gives_no_topology() {
        let many = "sockets=1,cores=65536,threads=65536";
        for smp in [
            "x",
            "4,",
            "4,threads=",
            "++4",
            "4k",
            "-4",
            "8,sockets=1,cpu=8",
            "8,clusters=2,sockets=1",
            "289,sockets=1",
            many,
            "8,maxcpus=4,sockets=1,cores=4",
            "8,sockets=3",
            "4294967295,sockets=65536,cores=65536,dies=4",
        ] {
            assert_eq!(of(smp, "pc-q35-7.2"), None, "{smp}");
        }
    }
}
