//! Reads the caches, their sizes, and the CPUs that share them.
//!
//! Source: `Documentation/ABI/testing/sysfs-devices-system-cpu` (`cache/index*/`), Linux 6.12. Itanium
//! kernels write an empty shared set for a core's own cache. Then vsteer takes the core's CPUs, as hwloc
//! does.
//!
//! Left out: line sizes, associativity, memory-side caches.

use super::CPU;
use crate::linux::files::{Files, number, numbered, size_bytes};
use vsteer_core::CpuSet;
use vsteer_core::topology::{Cache, CacheKind};

/// The caches of the `online` CPUs; `threads` is what each CPU reports about its core.
pub(super) fn read(files: &mut Files, online: &CpuSet, threads: &[(u32, CpuSet)]) -> Vec<Cache> {
    let (mut caches, mut listed) = (Vec::<Cache>::new(), Vec::new());
    for cpu in online.iter() {
        let names = files.names(&format!("{CPU}/cpu{cpu}/cache"));
        let indexes: Vec<u32> = names.iter().filter_map(|n| numbered(n, "index")).collect();
        for index in &indexes {
            let folder = format!("{CPU}/cpu{cpu}/cache/index{index}");
            caches.extend(one(files, &folder, cpu, online, threads));
        }
        listed.push((cpu, indexes.len()));
    }
    for (cpu, listed) in listed {
        let coherent = caches.iter().filter(|c| c.cpus.contains(cpu)).count();
        if coherent < listed {
            let what = format!(
                "lists {listed} caches, but the lowest CPU that shares each confirms only {coherent}"
            );
            files.odd(&format!("{CPU}/cpu{cpu}/cache"), what);
        }
    }
    caches
}

/// The cache of that folder, if `cpu` is the lowest CPU that shares it. This is the rule of
/// [`super::led_sets`], but without an oddity, because CPUs of different kinds may number their caches
/// differently.
fn one(
    files: &mut Files,
    folder: &str,
    cpu: u32,
    online: &CpuSet,
    threads: &[(u32, CpuSet)],
) -> Option<Cache> {
    let mut shared =
        files.mask_or_list(&format!("{folder}/shared_cpu_map"), &format!("{folder}/shared_cpu_list"))?;
    if shared.is_empty() {
        let core = threads.binary_search_by_key(&cpu, |(c, _)| *c).ok();
        shared = core.map(|i| threads[i].1.clone()).unwrap_or_default();
    }
    let cpus = shared.intersection(online);
    if !cpus.contains(cpu) {
        files.odd(folder, format!("lists CPUs {shared}, but not its own CPU: vsteer ignores the cache"));
        return None;
    }
    if cpus.iter().next() != Some(cpu) {
        return None;
    }
    let level = files.parsed(&format!("{folder}/level"), level)?;
    let kind = files.parsed(&format!("{folder}/type"), kind).unwrap_or(CacheKind::Unified);
    let size_bytes = files.parsed(&format!("{folder}/size"), size_bytes).filter(|s| *s > 0);
    Some(Cache { level, kind, size_bytes, cpus })
}

fn level(text: &str) -> Result<u8, String> {
    let n = number(text)?;
    u8::try_from(n).ok().filter(|l| (1..=8).contains(l)).ok_or_else(|| format!("{n} is not a cache level"))
}

fn kind(text: &str) -> Result<CacheKind, String> {
    match text.trim() {
        "Data" => Ok(CacheKind::Data),
        "Instruction" => Ok(CacheKind::Instruction),
        "Unified" => Ok(CacheKind::Unified),
        _ => Err("not one of Data, Instruction, Unified".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(s in "\\PC{0,20}") {
            let _ = (level(&s), kind(&s));
        }
    }
}
