//! What is left in the kernel of a command that was begun and ended again and again?
//!
//! Programs and tables of eBPF are counted by their numbers, as the kernel gives them to who asks for the next one. A program goes some
//! time after the last that held it: so it is waited for.
#![allow(unsafe_code)]

use super::command::Command;
use super::job::Case;
use super::{SECOND_NS, sleep_s};
use crate::clock::now_ns;
use std::fmt::Write;

/// `enum bpf_cmd` (include/uapi/linux/bpf.h).
const NEXT_PROGRAM: libc::c_int = 11;
const NEXT_TABLE: libc::c_int = 12;
/// Until the kernel has let go of all.
const GONE_WITHIN_NS: u64 = 20 * SECOND_NS;
const SCHED_EXT: &str = "/sys/kernel/sched_ext";

/// What the kernel has.
#[derive(Clone, Copy, PartialEq, Eq)]
struct There {
    programs: u32,
    tables: u32,
}

impl There {
    fn now() -> Result<There, String> {
        Ok(There { programs: count(NEXT_PROGRAM)?, tables: count(NEXT_TABLE)? })
    }
}

/// How many things of a kind there are.
fn count(next: libc::c_int) -> Result<u32, String> {
    // `start_id`, `next_id`, `open_flags`.
    let mut attributes = [0u32; 3];
    let mut found = 0;
    loop {
        // SAFETY: the call reads and writes the bytes that it is told of.
        let done =
            unsafe { libc::syscall(libc::SYS_bpf, next, attributes.as_mut_ptr(), size_of_val(&attributes)) };
        if done == 0 {
            found += 1;
            attributes[0] = attributes[1];
            continue;
        }
        let e = std::io::Error::last_os_error();
        return if e.raw_os_error() == Some(libc::ENOENT) {
            Ok(found)
        } else {
            Err(format!("counting what there is of eBPF: {e}"))
        };
    }
}

/// Of `/proc/meminfo`: what is available, and what might hold the rest.
const MEMORY: [&str; 8] =
    ["MemAvailable", "MemFree", "Slab", "SReclaimable", "Percpu", "VmallocUsed", "AnonPages", "Shmem"];

/// KiB of each.
fn memory_kib() -> [u64; MEMORY.len()] {
    let all = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    MEMORY.map(|what| {
        let line = all.lines().find_map(|line| line.strip_prefix(what)?.strip_prefix(':'));
        line.and_then(|rest| rest.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(0)
    })
}

/// Begins the case's command and ends it, as often as the case says, and notes what was there before and is afterwards.
///
/// # Errors
/// It does not begin or end.
pub fn run(case: &Case, folder: &str) -> Result<(), String> {
    if case.cycles == 0 {
        return Ok(());
    }
    let once = || -> Result<(), String> {
        Command::start(&case.command, folder)?.ok_or("cycles of no command")?.ready()?.end()
    };
    let before = There::now()?;
    // What of memory is there from the first time on, such as caches, is no leak.
    once()?;
    let (there, begun) = (memory_kib(), now_ns());
    for _ in 1..case.cycles {
        once()?;
    }
    let lasted_s = (now_ns() - begun) as f64 / 1e9;
    let until = now_ns() + GONE_WITHIN_NS;
    let mut after = There::now()?;
    while after != before && now_ns() < until {
        sleep_s(1);
        after = There::now()?;
    }
    let mut text = format!("cycles {}\nlasted_s {lasted_s:.1}\n", case.cycles);
    for (when, ebpf, kib) in [("before", before, there), ("after", after, memory_kib())] {
        let _ = write!(text, "{when} programs {} tables {} KiB", ebpf.programs, ebpf.tables);
        MEMORY.iter().zip(kib).for_each(|(what, kib)| {
            let _ = write!(text, " {what} {kib}");
        });
        text.push('\n');
    }
    let state = std::fs::read_to_string(format!("{SCHED_EXT}/state")).unwrap_or_default();
    let _ = writeln!(text, "sched_ext {}", state.trim());
    let file = format!("{folder}/cycles.txt");
    std::fs::write(&file, text).map_err(|e| format!("writing {file}: {e}"))
}
