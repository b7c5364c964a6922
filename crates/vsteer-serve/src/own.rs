//! What does the service itself cost?

use std::fs;

/// A tick of the kernel's accounting of CPU time, ns: `USER_HZ` is 100 on every architecture that Linux has kept.
const TICK_NS: u64 = 10_000_000;

/// CPU time of this process, user and system, ns.
pub fn cpu_ns() -> u64 {
    fs::read_to_string("/proc/self/stat").ok().and_then(|text| ticks(&text)).unwrap_or(0) * TICK_NS
}

/// User and system ticks of a line of `/proc/PID/stat`. The name in brackets may hold anything.
fn ticks(stat: &str) -> Option<u64> {
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_ascii_whitespace().collect();
    Some(fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?)
}

/// Run time of the eBPF programs that this process loaded, ns; `None` unless `kernel.bpf_stats_enabled` is 1. Each program is a
/// descriptor of the process, and its `fdinfo` has the time.
pub fn bpf_ns() -> Option<u64> {
    let enabled = fs::read_to_string("/proc/sys/kernel/bpf_stats_enabled").ok()?;
    if enabled.trim() != "1" {
        return None;
    }
    let infos = fs::read_dir("/proc/self/fdinfo").ok()?.flatten();
    let texts = infos.filter_map(|entry| fs::read_to_string(entry.path()).ok());
    Some(texts.filter_map(|text| run_time(&text)).sum())
}

fn run_time(fdinfo: &str) -> Option<u64> {
    fdinfo.lines().find_map(|line| line.strip_prefix("run_time_ns:")?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_process_may_hold_brackets_and_spaces() {
        let fields = "S 1 1 1 0 -1 4194560 1 0 0 0 250 50 0 0 20 0 1 0 5 0 0";
        assert_eq!(ticks(&format!("7 (a) b (c) {fields}")), Some(300));
        assert_eq!(ticks("7 (a) S 1"), None);
        assert_eq!(run_time("prog_type:\ttracing\nrun_time_ns:\t4711\nrun_cnt:\t3\n"), Some(4711));
        assert_eq!(run_time("pos:\t0\n"), None);
    }
}
