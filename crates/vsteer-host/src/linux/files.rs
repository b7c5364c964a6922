//! Parses sysfs and procfs files, with a reader that never fails.
//!
//! Each parser is a total function from a text to a value or to a sentence about what is wrong. The reader
//! ([`Files`]) turns a missing file into `None`, and a bad one into `None` and an [`Oddity`]. So one broken
//! attribute costs only that attribute and not the whole machine.
//!
//! Source: `lib/bitmap-str.c` (masks are groups of 32 bits in hexadecimal, most significant first),
//! `Documentation/admin-guide/cputopology.rst`, Linux 6.12.

use crate::root::Root;
use std::io::ErrorKind;
use vsteer_core::CpuSet;
use vsteer_core::cpuset::MAX_CPU;
use vsteer_core::topology::Oddity;

/// Raises this process's limit of open files as far as allowed, and returns it. Counters of many threads and VMs are read
/// through files that stay open.
pub fn allow_most_open() -> u64 {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Reads files of one machine and collects unexpected contents.
#[derive(Debug)]
pub struct Files<'a> {
    root: &'a Root,
    /// What could not be read or understood so far.
    pub oddities: Vec<Oddity>,
}

impl<'a> Files<'a> {
    /// A reader of the files under `root`.
    pub fn new(root: &'a Root) -> Self {
        Files { root, oddities: Vec::new() }
    }

    /// Notes an oddity.
    pub fn odd(&mut self, place: &str, what: impl Into<String>) {
        self.oddities.push(Oddity { place: place.into(), what: what.into() });
    }

    /// A file's bytes; `None` if it is missing, or unreadable (which adds an oddity).
    pub fn bytes(&mut self, path: &str) -> Option<Vec<u8>> {
        match self.root.bytes(path) {
            Ok(bytes) => Some(bytes),
            Err(e) => {
                // A CPU that goes offline between two reads answers ENODEV or ENXIO, which counts as missing.
                if !matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) {
                    self.odd(path, format!("cannot be read: {e}"));
                }
                None
            }
        }
    }

    /// A file's text; bytes that are not UTF-8 are replaced.
    pub fn text(&mut self, path: &str) -> Option<String> {
        self.bytes(path).map(|b| String::from_utf8_lossy(&b).into_owned())
    }

    /// The names in a folder, sorted; empty if the folder is missing.
    pub fn names(&mut self, path: &str) -> Vec<String> {
        match self.root.names(path) {
            Ok(names) => names,
            Err(e) => {
                if !matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) {
                    self.odd(path, format!("cannot be listed: {e}"));
                }
                Vec::new()
            }
        }
    }

    /// Does this folder exist?
    pub fn has_folder(&self, path: &str) -> bool {
        self.root.has_folder(path)
    }

    /// The value that `parse` makes from a file. In a captured tree, an empty file means that the original
    /// was unreadable, so it counts as missing.
    pub fn parsed<T>(&mut self, path: &str, parse: impl Fn(&str) -> Result<T, String>) -> Option<T> {
        let text = self.text(path).filter(|t| !t.is_empty())?;
        parse(&text).map_err(|what| self.odd(path, format!("{what}: vsteer ignores the file"))).ok()
    }

    /// The CPUs of a mask file (`core_cpus`), otherwise of the matching list file (`core_cpus_list`).
    pub fn mask_or_list(&mut self, mask_path: &str, list_path: &str) -> Option<CpuSet> {
        self.parsed(mask_path, cpu_mask).or_else(|| self.parsed(list_path, cpu_list))
    }

    /// A number, for which the kernel writes -1 if it has none.
    pub fn id(&mut self, path: &str) -> Option<u32> {
        self.parsed(path, number).and_then(|n| u32::try_from(n).ok())
    }

    /// A count or size.
    pub fn count(&mut self, path: &str) -> Option<u64> {
        self.parsed(path, number).and_then(|n| u64::try_from(n).ok())
    }
}

/// A text for a message: short, on one line, without control characters.
fn shown(text: &str) -> String {
    let short: String = text.trim().chars().take(40).map(|c| if c.is_control() { '.' } else { c }).collect();
    format!("`{short}`")
}

/// A CPU mask: `ff`, or `0000000f,00000000`.
///
/// # Errors
/// What is wrong with the text.
pub fn cpu_mask(text: &str) -> Result<CpuSet, String> {
    let text = text.trim_matches(|c: char| c.is_ascii_whitespace() || c == '\0');
    let mut cpus = CpuSet::new();
    for (group, base) in text.rsplit(',').zip((0u32..).step_by(32)) {
        if group.is_empty() || group.len() > 8 || !group.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(format!("{} is not a CPU mask (groups of eight hexadecimal digits)", shown(text)));
        }
        let bits = u32::from_str_radix(group, 16).map_err(|e| e.to_string())?;
        for cpu in (0..32).filter(|b| bits & (1 << b) != 0).map(|b| base + b) {
            if cpu > MAX_CPU {
                return Err(format!("CPU {cpu} exceeds the largest number that vsteer accepts, {MAX_CPU}"));
            }
            cpus.insert(cpu);
        }
    }
    Ok(cpus)
}

/// A CPU list: `0-3,8`, or empty.
///
/// # Errors
/// What is wrong with the text.
pub fn cpu_list(text: &str) -> Result<CpuSet, String> {
    // The kernel never writes exclusions. libvirt does, but they are not allowed here.
    if text.contains('^') {
        return Err(format!("{} is not a CPU list", shown(text)));
    }
    text.trim_end_matches('\0').parse().map_err(|e: vsteer_core::cpuset::CpuListError| e.to_string())
}

/// A list of node numbers, in the same format as CPUs.
///
/// # Errors
/// What is wrong with the text.
pub fn node_list(text: &str) -> Result<Vec<u32>, String> {
    Ok(cpu_list(text)?.iter().collect())
}

/// A decimal number, possibly negative.
///
/// # Errors
/// What is wrong with the text.
pub fn number(text: &str) -> Result<i64, String> {
    text.trim().parse().map_err(|_| format!("{} is not a number", shown(text)))
}

/// A cache's size: `32K`, `8M`, or plain bytes.
///
/// # Errors
/// What is wrong with the text.
pub fn size_bytes(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let (digits, shift) = match text.char_indices().last() {
        Some((at, 'K' | 'k')) => (&text[..at], 10),
        Some((at, 'M' | 'm')) => (&text[..at], 20),
        Some((at, 'G' | 'g')) => (&text[..at], 30),
        _ => (text, 0),
    };
    let n: Option<u64> = digits.parse().ok();
    n.and_then(|n| n.checked_mul(1 << shift)).ok_or_else(|| format!("{} is not a size", shown(text)))
}

/// `MemTotal` of a `meminfo` file (`MemTotal: 16 kB`, or `Node 0 MemTotal: 16 kB`), in bytes.
///
/// # Errors
/// If the line is missing or its value is not a number.
pub fn memory_total_bytes(text: &str) -> Result<u64, String> {
    let line = text.lines().find_map(|l| l.split_once("MemTotal:")).ok_or("has no MemTotal line")?.1;
    let mut words = line.split_ascii_whitespace();
    let n: Option<u64> = words.next().and_then(|n| n.parse().ok());
    n.filter(|_| words.next() == Some("kB"))
        .and_then(|n| n.checked_mul(1024))
        .ok_or_else(|| format!("{} is not a size in kB", shown(line)))
}

/// The number at the end of a name such as `cpu12`; `None` for `cpufreq` or `cpu012x`.
pub fn numbered(name: &str, prefix: &str) -> Option<u32> {
    let digits = name.strip_prefix(prefix)?;
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    digits.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn masks() {
        assert_eq!(cpu_mask("ff\n").unwrap().to_string(), "0-7");
        assert_eq!(cpu_mask("0000,00000011,11111111\n").unwrap().to_string(), "0,4,8,12,16,20,24,28,32,36");
        assert_eq!(cpu_mask("0").unwrap(), CpuSet::new());
        for bad in ["", ",", "ff,", "g", "123456789", "-1", "0x3", &"ffffffff,".repeat(400)] {
            assert!(cpu_mask(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn numbers_sizes_memory() {
        assert_eq!(
            (size_bytes("32K\n"), size_bytes("8M"), size_bytes("64")),
            (Ok(32768), Ok(8 << 20), Ok(64))
        );
        assert!(
            size_bytes("K").is_err() && size_bytes("99999999999999999G").is_err() && size_bytes("").is_err()
        );
        assert_eq!(
            memory_total_bytes("Node 0 MemTotal:   2095800 kB\nNode 0 MemFree: 1 kB\n"),
            Ok(2095800 * 1024)
        );
        assert!(memory_total_bytes("MemTotal: 12 MB").is_err() && memory_total_bytes("").is_err());
        assert_eq!(
            (numbered("cpu12", "cpu"), numbered("cpufreq", "cpu"), numbered("cpu", "cpu")),
            (Some(12), None, None)
        );
        assert!(number(" -1\n") == Ok(-1) && number("1 2").is_err());
        assert!(cpu_list("0-3,^2").is_err());
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(s in "\\PC{0,40}") {
            let _ = (cpu_mask(&s), cpu_list(&s), number(&s), size_bytes(&s), memory_total_bytes(&s), node_list(&s));
            let _ = (numbered(&s, "cpu"), memory_total_bytes(&format!("MemTotal:{s}")));
        }

        #[test]
        fn masks_round_trip(cpus in proptest::collection::btree_set(0u32..=MAX_CPU, 0..40)) {
            let set: CpuSet = cpus.iter().copied().collect();
            let words = cpus.last().map_or(1, |c| c / 32 + 1);
            let word = |w: u32| cpus.iter().filter(|c| **c / 32 == w).fold(0u32, |m, c| m | 1 << (c % 32));
            let text: Vec<String> = (0..words).rev().map(|w| format!("{:08x}", word(w))).collect();
            prop_assert_eq!(cpu_mask(&text.join(",")).unwrap(), set);
        }
    }
}
