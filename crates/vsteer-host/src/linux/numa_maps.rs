//! Reads how much of a process's memory is on each memory node, from `/proc/PID/numa_maps`.
//!
//! Source: `fs/proc/task_mmu.c` (`show_numa_map`), Linux 6.12: `N1=512 kernelpagesize_kB=2048`. The kernel
//! walks all page tables for this file. That takes a second or so per 100 GB of small pages and delays the
//! process's own memory calls. So vsteer reads it rarely. On a machine with one node vsteer does not read it,
//! because `statm` and `HugetlbPages` give the same answer.
//!
//! Left out: separating guest memory from QEMU's own (some 100 MB).

use super::task::text;
use crate::root::Root;
use std::collections::BTreeMap;

/// Bytes per node from a text of `numa_maps`, ascending by node.
pub fn parse(text: &str) -> Vec<(u32, u64)> {
    let mut bytes: BTreeMap<u32, u64> = BTreeMap::new();
    for line in text.lines() {
        let page_kb: u64 = line
            .split_ascii_whitespace()
            .find_map(|w| w.strip_prefix("kernelpagesize_kB="))
            .and_then(|n| n.parse().ok())
            .unwrap_or(4);
        for word in line.split_ascii_whitespace() {
            let pages = word.strip_prefix('N').and_then(|w| w.split_once('='));
            if let Some((Ok(node), Ok(pages))) = pages.map(|(n, p)| (n.parse::<u32>(), p.parse::<u64>())) {
                let sum = bytes.entry(node).or_default();
                *sum = sum.saturating_add(pages.saturating_mul(page_kb.saturating_mul(1024)));
            }
        }
    }
    bytes.into_iter().collect()
}

/// Bytes per node of a process; `only_node` is the machine's node if it has only one.
pub fn read(root: &Root, pid: u32, only_node: Option<u32>) -> Option<Vec<(u32, u64)>> {
    if let Some(node) = only_node {
        let pages: u64 =
            text(root, &format!("/proc/{pid}/statm"))?.split_ascii_whitespace().nth(1)?.parse().ok()?;
        let status = text(root, &format!("/proc/{pid}/status"))?;
        let huge_kb: u64 = status
            .lines()
            .find_map(|l| l.strip_prefix("HugetlbPages:"))
            .and_then(|l| l.split_ascii_whitespace().next()?.parse().ok())
            .unwrap_or(0);
        return Some(vec![(node, pages * rustix::param::page_size() as u64 + huge_kb * 1024)]);
    }
    let all = parse(&text(root, &format!("/proc/{pid}/numa_maps"))?);
    (!all.is_empty()).then_some(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn pages_of_all_sizes() {
        let text = "7f00 bind:0 anon=3 dirty=3 N0=1 N1=2 kernelpagesize_kB=4\n\
                    7f01 default file=/N9=1 huge N1=3 kernelpagesize_kB=2048\n";
        assert_eq!(parse(text), [(0, 4096), (1, 2 * 4096 + 3 * (2 << 20))]);
    }

    #[test]
    fn this_process_has_memory() {
        let root = Root::live().unwrap();
        let all = read(&root, std::process::id(), Some(3)).unwrap();
        assert!(all[0].0 == 3 && all[0].1 > 100_000, "{all:?}");
    }

    proptest! {
        #[test]
        fn any_text_is_read(s in "\\PC{0,60}") {
            let _ = (parse(&s), parse(&format!("N1={s} N0=18446744073709551615 kernelpagesize_kB=18446744073709551615")));
        }
    }
}
