//! Numbers with their noun: "1 VM", "2 VMs", "pCPU 3", "pCPUs 0-3".

use crate::CpuSet;
use std::fmt::Display;

/// A number and its noun, which gets an `s` (or `es`) unless the number is 1. `noun` is singular: `"vCPU"`.
pub fn counted(n: impl TryInto<u64> + Display + Copy, noun: &str) -> String {
    let one = n.try_into().is_ok_and(|n| n == 1);
    let ending = if noun.ends_with("ch") { "es" } else { "s" };
    format!("{n} {noun}{}", if one { "" } else { ending })
}

/// A set of pCPUs by their numbers.
pub fn pcpus(set: &CpuSet) -> String {
    format!("pCPU{} {set}", if set.len() == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_has_no_s() {
        assert_eq!([0, 1, 2].map(|n| counted(n, "VM")), ["0 VMs", "1 VM", "2 VMs"]);
        assert_eq!([1, 2].map(|n| counted(n, "batch")), ["1 batch", "2 batches"]);
        assert_eq!(pcpus(&CpuSet::single(3)), "pCPU 3");
        assert_eq!(pcpus(&CpuSet::first(4)), "pCPUs 0-3");
    }
}
