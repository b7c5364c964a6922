//! Reads the settings of the kernel's fair class: its tick and slice, which every simulation of a scheduler
//! needs. Also reads the CPUs that the scheduler does not balance and that are therefore idle on purpose, those without a
//! tick, whether the kernel is a PREEMPT_RT one, and whether it moves pages between NUMA nodes.
//!
//! No file contains the tick. It is the resolution of the coarse clocks (`man 2 clock_getres`: "the
//! resolution of such clocks is the tick", kernel/time/posix-timers.c, `KTIME_LOW_RES`).
//!
//! Source: kernel/sched/debug.c (6.12): `base_slice_ns`; drivers/base/cpu.c: `isolated`, `nohz_full`; kernel/ksysfs.c (6.18):
//! `realtime`; scripts/mkcompile_h, init/Makefile: the word PREEMPT_RT in the version.
//!
//! Left out: the start of quota periods, which the observer reads (`vsteer-bpf`); `sched_features`,
//! `tunable_scaling` (the values are already scaled).

use super::files::cpu_list;
use super::task;
use crate::root::Root;
use rustix::time::{ClockId, clock_getres};
use vsteer_core::CpuSet;
use vsteer_core::nouns::FairTuning;

const CGROUP_MODE: &str = "/sys/kernel/debug/sched/cgroup_mode";
const BASE_SLICE: &str = "/sys/kernel/debug/sched/base_slice_ns";
const ISOLATED: &str = "/sys/devices/system/cpu/isolated";
const NOHZ_FULL: &str = "/sys/devices/system/cpu/nohz_full";
const REALTIME: &str = "/sys/kernel/realtime";
const NUMA_BALANCING: &str = "/proc/sys/kernel/numa_balancing";
const VERSION: &str = "/proc/sys/kernel/version";

/// Reads what it can. A captured tree has no tick.
pub fn read(root: &Root) -> FairTuning {
    let hz = root.is_live().then(|| {
        let tick = clock_getres(ClockId::MonotonicCoarse);
        hz_of(tick.tv_sec.cast_unsigned() * 1_000_000_000 + tick.tv_nsec.cast_unsigned())
    });
    let slice = task::text(root, BASE_SLICE).and_then(|text| text.trim().parse().ok());
    let isolated = task::text(root, ISOLATED).and_then(|text| cpu_list(&text).ok()).unwrap_or_default();
    let nohz_full = task::text(root, NOHZ_FULL).and_then(|text| nohz_list(&text));
    let preempt_rt = preempt_rt(root);
    let numa_balancing = task::text(root, NUMA_BALANCING).and_then(|text| balances(&text));
    FairTuning {
        hz: hz.flatten(),
        base_slice_ns: slice,
        isolated,
        nohz_full,
        preempt_rt,
        numa_balancing,
        ..FairTuning::default()
    }
}

/// A kernel that was started without `nohz_full=` may write `(null)`.
fn nohz_list(text: &str) -> Option<CpuSet> {
    if text.trim() == "(null)" { Some(CpuSet::new()) } else { cpu_list(text).ok() }
}

/// A sum of modes; 1 moves pages to the threads that use them, 2 moves them between tiers of memory.
fn balances(text: &str) -> Option<bool> {
    text.trim().parse::<u32>().ok().map(|modes| modes & 1 == 1)
}

/// Patched kernels have the file before 6.18, and other kernels have none.
fn preempt_rt(root: &Root) -> Option<bool> {
    if task::text(root, REALTIME).is_some_and(|text| text.trim() == "1") {
        return Some(true);
    }
    let version = task::text(root, VERSION)?;
    Some(version.split_ascii_whitespace().any(|word| word == "PREEMPT_RT"))
}

/// Does the kernel multiply a cgroup's `cpu.weight` by the number of its runnable threads, up to the number
/// of pCPUs (`concur`)? Linux 7.3 does so unless configured otherwise (kernel/sched/debug.c: `cgroup_mode`).
/// Earlier kernels use the weights directly.
pub fn weighs_by_threads(root: &Root) -> bool {
    match task::text(root, CGROUP_MODE) {
        Some(modes) => modes.split_ascii_whitespace().any(|mode| mode == "[concur]" || mode == "(concur)"),
        // Without debugfs the mode is the default, on kernels that have this feature.
        None => task::text(root, "/proc/kallsyms").is_some_and(|names| names.contains(" calc_concur_shares")),
    }
}

fn hz_of(tick_ns: u64) -> Option<u32> {
    // Rounds, because a tick of 300 Hz is not a whole number of ns. A tick of 1 ns means a fine clock.
    let hz = (1_000_000_000 + tick_ns / 2).checked_div(tick_ns)?;
    u32::try_from(hz).ok().filter(|hz| (24..=10_000).contains(hz))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_told_by_the_coarse_clock() {
        let told = [4_000_000, 1_000_000, 3_333_333, 10_000_000].map(hz_of);
        assert_eq!(told, [Some(250), Some(1000), Some(300), Some(100)]);
        assert_eq!((hz_of(1), hz_of(0)), (None, None));
        let here = read(&Root::live().unwrap());
        assert!(here.hz.is_some_and(|hz| [100, 250, 300, 1000].contains(&hz)), "{here:?}");
    }

    #[test]
    fn isolated_cpus_are_told_and_none_are_none() {
        let tree = tempfile::tempdir().unwrap();
        let root = Root::open(tree.path()).unwrap();
        assert!(read(&root).isolated.is_empty(), "no such file");
        let file = tree.path().join(ISOLATED.trim_start_matches('/'));
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        for (text, want) in [("2-3,6\n", vec![2, 3, 6]), ("\n", Vec::new())] {
            std::fs::write(&file, text).unwrap();
            assert_eq!(read(&root).isolated.iter().collect::<Vec<u32>>(), want);
        }
    }

    #[test]
    fn tickless_cpus_and_real_time_kernels() {
        let tree = tempfile::tempdir().unwrap();
        let root = Root::open(tree.path()).unwrap();
        let write = |path: &str, text: &str| {
            let file = tree.path().join(path.trim_start_matches('/'));
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, text).unwrap();
        };
        let found = || {
            let tuning = read(&root);
            (tuning.nohz_full.map(|cpus| cpus.to_string()), tuning.preempt_rt)
        };
        assert_eq!(found(), (None, None), "no such files");
        write(NOHZ_FULL, "(null)\n");
        write(VERSION, "#1 SMP PREEMPT_DYNAMIC Debian 6.12.9-1 (2025-01-10)\n");
        assert_eq!(found(), (Some(String::new()), Some(false)));
        write(NOHZ_FULL, "2-3,6\n");
        write(VERSION, "#1 SMP PREEMPT_RT Debian 6.12.9-1 (2025-01-10)\n");
        assert_eq!(found(), (Some("2-3,6".into()), Some(true)));
        write(VERSION, "#1 SMP PREEMPT\n");
        write(REALTIME, "1\n");
        assert_eq!(found().1, Some(true));
        for (text, balances) in [("1\n", true), ("0\n", false), ("2\n", false), ("3\n", true)] {
            write(NUMA_BALANCING, text);
            assert_eq!(read(&root).numa_balancing, Some(balances), "{text}");
        }
    }
}
