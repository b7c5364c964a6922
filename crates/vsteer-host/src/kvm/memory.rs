//! How much memory does QEMU's command line give a VM?
//!
//! `-m` says it. Without it, the machine's `memory.size`, the memory backend that the machine names, or the machine type
//! decides. Sizes are rounded up to 8 KiB, as QEMU does.
//!
//! Source: `system/vl.c`, `qemu_resolve_machine_memdev` and `machine_set_mem`; `util/cutils.c`, `do_strtosz` (QEMU 7.2).
//!
//! Left out: defaults of other machine types than the versioned PCs. Memory that was plugged in later.

use std::collections::BTreeMap;
use vsteer_core::machine_type;

/// More than any machine has, bytes.
const MEMORY_MAX: u64 = 1 << 48;
/// QEMU rounds up to this, bytes.
const UNIT: u64 = 8192;
/// What a PC of QEMU's own types has by default, bytes.
const OF_A_PC: u64 = 128 << 20;
/// Bits that a unit of bytes shifts a size.
pub const BYTES: u32 = 0;
/// Bits that a unit of mebibytes shifts a size.
pub const MEBIBYTES: u32 = 20;

/// What a command line says of memory.
#[derive(Debug, Default)]
pub struct Given {
    /// The pairs of all `-m`.
    pub options: Vec<(String, String)>,
    /// `-machine memory.size`.
    pub of_machine: Option<String>,
    /// `-machine memory-backend`.
    pub backend: Option<String>,
    /// The sizes of memory backends, by id.
    pub backends: BTreeMap<String, String>,
}

impl Given {
    /// The VM's memory, bytes.
    ///
    /// # Errors
    /// Why it cannot be told.
    pub fn bytes(&self, machine: &str) -> Result<u64, String> {
        if let Some((key, _)) =
            self.options.iter().find(|(k, _)| !["size", "slots", "maxmem"].contains(&k.as_str()))
        {
            return Err(format!("`-m` has {:?}, which vsteer does not know", shortened(key)));
        }
        let read = |what: &str, text: &str, unit: u32| {
            let odd = || format!("{what} is {:?}, which is not a size of memory", shortened(text));
            size(text, unit).and_then(|bytes| bytes.checked_next_multiple_of(UNIT)).ok_or_else(odd)
        };
        let given = match get(&self.options, "size").filter(|text| !text.is_empty()) {
            Some(text) => Some(read("`-m`", text, MEBIBYTES)?),
            None => self
                .of_machine
                .as_deref()
                .map(|text| read("`-machine memory.size`", text, BYTES))
                .transpose()?,
        };
        let of_backend = match &self.backend {
            Some(id) => {
                let size = self.backends.get(id);
                let size = size.ok_or_else(|| {
                    format!("memory backend {:?} is not on the command line", shortened(id))
                })?;
                Some(read("the memory backend's size", size, BYTES)?)
            }
            None => None,
        };
        let bytes = match (given.filter(|bytes| *bytes > 0), of_backend) {
            (Some(given), Some(backend)) if given != backend => {
                return Err("`-m` is not the size of the memory backend".to_owned());
            }
            (Some(bytes), _) | (None, Some(bytes)) => bytes,
            (None, None) => default(machine)?,
        };
        if bytes > MEMORY_MAX {
            return Err("`-m` is larger than any machine's memory".to_owned());
        }
        match get(&self.options, "maxmem").map(|text| read("`maxmem`", text, BYTES)).transpose()? {
            Some(most) if most < bytes => Err("`-m` is larger than its `maxmem`".to_owned()),
            None if get(&self.options, "slots").is_some() => {
                Err("`-m` has slots without `maxmem`".to_owned())
            }
            _ => Ok(bytes),
        }
    }
}

/// The last value of that key, because it overrides earlier ones.
fn get<'a>(options: &'a [(String, String)], key: &str) -> Option<&'a str> {
    options.iter().rev().find(|(k, _)| k == key).map(|(_, value)| value.as_str())
}

fn default(machine: &str) -> Result<u64, String> {
    let known = machine_type::is_pc(machine) && machine_type::version(machine).is_some();
    let unknown = || {
        format!(
            "no option says it, and vsteer does not know the default of machine type {:?}",
            shortened(machine)
        )
    };
    known.then_some(OF_A_PC).ok_or_else(unknown)
}

/// The beginning of a text of a command line, which may be a mebibyte.
fn shortened(text: &str) -> String {
    text.chars().take(60).collect()
}

/// Reads `4G`, `1.5G`, `512`, `0x10` or `2097152k`; a number alone is in units of 2^`unit` bytes.
pub fn size(text: &str, unit: u32) -> Option<u64> {
    let text = text.trim_start_matches(|c: char| c.is_ascii_whitespace());
    let text = text.strip_prefix('+').unwrap_or(text);
    let (digits, radix) = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hex) => (hex, 16),
        None => (text, 10),
    };
    let (whole, rest) = digits.split_at(digits.find(|c: char| !c.is_digit(radix)).unwrap_or(digits.len()));
    let (fraction, suffix) = match rest.strip_prefix('.').filter(|_| radix == 10) {
        Some(rest) => rest.split_at(rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len())),
        None => ("", rest),
    };
    let shift = match suffix.to_ascii_lowercase().as_str() {
        // A fraction is of a byte then, which QEMU does not have.
        "" if rest.is_empty() => unit,
        "b" => BYTES,
        "k" => 10,
        "m" => MEBIBYTES,
        "g" => 30,
        "t" => 40,
        "p" => 50,
        "e" => 60,
        _ => return None,
    };
    let whole = u64::from_str_radix(whole, radix).ok()?.checked_mul(1 << shift)?;
    let part = if fraction.is_empty() { 0.0 } else { format!("0.{fraction}").parse::<f64>().ok()? };
    let bytes = whole.checked_add((part * (1_u64 << shift) as f64) as u64)?;
    (part == 0.0 || shift > 0).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        for (text, bytes) in [
            ("0.5k", Some(512)),
            ("64T", Some(1 << 46)),
            ("512", Some(512 << 20)),
            (" +0x10", Some(16 << 20)),
            ("010", Some(10 << 20)),
            ("1.G", Some(1 << 30)),
            ("2E", Some(1 << 61)),
            ("16E", None),
            ("1.5b", None),
            ("1.5", None),
            (".5G", None),
            ("1.xG", None),
            ("1e1", None),
            ("1 G", None),
            ("64MiB", None),
            ("-1", None),
            ("", None),
        ] {
            assert_eq!(size(text, MEBIBYTES), bytes, "{text}");
        }
    }
}
