//! Reads cores and caches from the firmware's device tree, if sysfs does not describe them.
//!
//! On POWER each `cpus/*` node is a core. `ibm,ppc-interrupt-server#s` lists its hardware threads, and
//! `cpuN/physical_id` links those to the kernel's numbers. `d-cache-size` and `i-cache-size` describe the
//! first level. `l2-cache` or `next-level-cache` point (by phandle) to the next level.
//!
//! Source: Devicetree Specification 0.4, sections 3.8 and 3.9; Power Architecture Platform Reference (LoPAPR
//! 1.1), section B.6. Left out: `cpu-map` of Arm and RISC-V, which the kernel itself turns into sysfs
//! topology.

use super::CPU;
use crate::linux::files::Files;
use std::collections::BTreeMap;
use vsteer_core::CpuSet;
use vsteer_core::topology::{Cache, CacheKind};

const CPUS: &str = "/proc/device-tree/cpus";
/// The most cache levels to follow, so that a cycle of phandles ends.
const LEVELS_MAX: u8 = 4;

/// The cores and caches of the device tree.
#[derive(Debug, Default)]
pub(super) struct DeviceTree {
    /// The CPUs of each core.
    pub cores: Vec<CpuSet>,
    pub caches: Vec<Cache>,
}

/// Sizes of a cache node.
#[derive(Debug, Clone, Copy, Default)]
struct Sizes {
    data: Option<u32>,
    instruction: Option<u32>,
    unified: bool,
    next: Option<u32>,
}

/// Reads the device tree for the `online` CPUs; empty if there is none.
pub(super) fn read(files: &mut Files, online: &CpuSet) -> DeviceTree {
    let mut tree = DeviceTree::default();
    let names = files.names(CPUS);
    if names.is_empty() {
        return tree;
    }
    // The firmware numbers threads in its own way. The kernel uses other numbers, and this file links the
    // two.
    let mut numbers: BTreeMap<u32, u32> = BTreeMap::new();
    for cpu in online.iter() {
        numbers.insert(files.id(&format!("{CPU}/cpu{cpu}/physical_id")).unwrap_or(cpu), cpu);
    }
    let (mut cores, mut by_phandle) = (Vec::new(), BTreeMap::new());
    for name in names {
        let folder = format!("{CPUS}/{name}");
        if !files.has_folder(&folder) {
            continue;
        }
        let sizes = sizes(files, &folder);
        if text(files, &folder, "device_type").as_deref() == Some("cpu") {
            let threads = files
                .bytes(&format!("{folder}/ibm,ppc-interrupt-server#s"))
                .or_else(|| files.bytes(&format!("{folder}/reg")));
            let threads = threads.map(|b| words(&b)).unwrap_or_default();
            let cpus: CpuSet = threads.iter().filter_map(|t| numbers.get(t).copied()).collect();
            if !cpus.is_empty() {
                cores.push((cpus, sizes));
            }
        }
        for name in ["phandle", "linux,phandle", "ibm,phandle"] {
            by_phandle.extend(word(files, &folder, name).map(|p| (p, sizes)));
        }
    }
    // One cache per phandle, shared by every core that points to it.
    let mut shared: BTreeMap<(u32, u8), (CpuSet, Sizes)> = BTreeMap::new();
    for (cpus, sizes) in &cores {
        tree.caches.extend(level(1, *sizes, cpus));
        let mut next = sizes.next;
        for depth in 2..=LEVELS_MAX {
            let Some((phandle, sizes)) = next.and_then(|p| Some((p, *by_phandle.get(&p)?))) else { break };
            let (all, _) = shared.entry((phandle, depth)).or_insert((CpuSet::new(), sizes));
            *all = all.union(cpus);
            next = sizes.next;
        }
    }
    for ((_, depth), (cpus, sizes)) in &shared {
        tree.caches.extend(level(*depth, *sizes, cpus));
    }
    tree.cores = cores.into_iter().map(|(cpus, _)| cpus).collect();
    tree
}

fn level(level: u8, sizes: Sizes, cpus: &CpuSet) -> Vec<Cache> {
    let cache = |kind, size: u32| Cache { level, kind, size_bytes: Some(size.into()), cpus: cpus.clone() };
    let (data, instruction) = (sizes.data.filter(|s| *s > 0), sizes.instruction.filter(|s| *s > 0));
    if sizes.unified {
        return data.or(instruction).map(|s| cache(CacheKind::Unified, s)).into_iter().collect();
    }
    let both =
        [data.map(|s| cache(CacheKind::Data, s)), instruction.map(|s| cache(CacheKind::Instruction, s))];
    both.into_iter().flatten().collect()
}

fn sizes(files: &mut Files, folder: &str) -> Sizes {
    Sizes {
        data: word(files, folder, "d-cache-size"),
        instruction: word(files, folder, "i-cache-size"),
        unified: files.bytes(&format!("{folder}/cache-unified")).is_some(),
        next: word(files, folder, "l2-cache").or_else(|| word(files, folder, "next-level-cache")),
    }
}

fn word(files: &mut Files, folder: &str, name: &str) -> Option<u32> {
    words(&files.bytes(&format!("{folder}/{name}"))?).first().copied()
}

fn text(files: &mut Files, folder: &str, name: &str) -> Option<String> {
    Some(files.text(&format!("{folder}/{name}"))?.trim_end_matches('\0').to_owned())
}

/// Device-tree numbers are big-endian 32-bit cells. Bytes that do not fill a cell are ignored.
fn words(bytes: &[u8]) -> Vec<u32> {
    bytes.chunks_exact(4).map(|c| u32::from_be_bytes([c[0], c[1], c[2], c[3]])).collect()
}
