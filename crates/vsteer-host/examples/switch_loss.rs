//! How many context switches are recorded, lost or missed at a high rate? `switch_loss [SECONDS [PAIRS [FOLDER]]]`.
//!
//! The load: pairs of threads, each pair pinned to one pCPU, that pass one byte back and forth through two pipes, so
//! that every pass is two switches of that pCPU. They are recorded to disk as `vsteer record --events` does it, and
//! held against the kernel's own count. Prints one line of JSON; exit code 1 when a promise is broken (SPEC.md). The
//! pairs run as fast as they can, which is faster than the 200,000 switches a second that are promised: where that many
//! are not reached, nothing is said about loss. Needs root.

use rustix::thread::{CpuSet as Mask, sched_setaffinity};
use std::io::{Read, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use vsteer_bpf::{Observer, Options};
use vsteer_core::topology::{Parts, Topology};
use vsteer_core::{CpuSet, nouns::*};
use vsteer_host::switches::{EVENT_BUFFER_BYTES, SwitchRecorder};
use vsteer_record::{EventSummary, FORMAT, Manifest, Writer};

fn ping_pong(cpu: usize, stop: &Arc<AtomicBool>) {
    let (mut a_in, mut a_out) = std::io::pipe().expect("a pipe");
    let (mut b_in, mut b_out) = std::io::pipe().expect("a pipe");
    let pin = move || {
        let mut mask = Mask::new();
        mask.set(cpu);
        sched_setaffinity(None, &mask).expect("pinning");
    };
    let flag = Arc::clone(stop);
    std::thread::spawn(move || {
        pin();
        let mut byte = [0];
        while !flag.load(Ordering::Relaxed) && a_out.write_all(&byte).and(b_in.read_exact(&mut byte)).is_ok()
        {
        }
    });
    std::thread::spawn(move || {
        pin();
        let mut byte = [0];
        while a_in.read_exact(&mut byte).and(b_out.write_all(&byte)).is_ok() {}
    });
}

fn config() -> HostConfig {
    HostConfig {
        hostname: "bench".into(),
        machine_id: None,
        kernel: String::new(),
        topology: Topology::new(Parts {
            online: CpuSet::first(1),
            present: CpuSet::first(1),
            allowed: CpuSet::first(1),
            ..Parts::default()
        })
        .expect("a plain topology"),
        cgroups: CgroupLayout::None,
        contenders: Vec::new(),
        scheduler: None,
        vms: Vec::new(),
    }
}

fn manifest(config: &HostConfig) -> Manifest {
    Manifest {
        format: FORMAT,
        vsteer: env!("CARGO_PKG_VERSION").into(),
        hostname: "bench".into(),
        fingerprint: config.fingerprint(),
        mono_ns: 0,
        unix_ns: 0,
        collector: Collector { name: "ebpf".into(), missing: Default::default() },
    }
}

/// What the recording's events take on the disk.
fn event_bytes(folder: &Path) -> u64 {
    std::fs::read_dir(folder)
        .expect("the folder was made")
        .filter_map(|e| e.ok().filter(|e| e.file_name().to_string_lossy().starts_with("event-")))
        .map(|e| e.metadata().map_or(0, |m| m.len()))
        .sum()
}

/// Prints the figures of `took` seconds. True if every promise holds.
fn judge(pairs: u64, took: f64, s: &EventSummary, bytes: u64) -> bool {
    let rate = s.recorded_meanwhile.unwrap_or(0) as f64 / took;
    let lost_share = s.lost as f64 / (s.recorded + s.lost).max(1) as f64;
    let bytes_per_switch = bytes as f64 / s.recorded.max(1) as f64;
    let kept_count = s.coverage().is_some_and(|c| (c - 1.0).abs() <= 0.001);
    let kept_loss = (rate >= 200_000.0).then_some(lost_share <= 0.01);
    let kept_size = bytes_per_switch <= 16.0;
    println!(
        "{}",
        serde_json::json!({
            "pairs": pairs, "seconds": took, "switches_per_s": rate,
            "recorded": s.recorded, "lost": s.lost, "unseen": s.unseen, "kernel_switches": s.kernel_switches,
            "recorded_or_lost_of_kernel": s.coverage(),
            "lost_share": lost_share, "bytes_per_switch": bytes_per_switch,
            "kept": { "count_within_0.1_percent": kept_count, "lost_at_most_1_percent": kept_loss,
                      "at_most_16_bytes": kept_size },
        })
    );
    kept_count && kept_size && kept_loss != Some(false)
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let number = |i: usize, or: u64| args.get(i).map_or(or, |a| a.parse().expect("a number"));
    let (seconds, pairs) = (number(1, 5), number(2, 4));
    let temporary = std::env::temp_dir().join(format!("vsteer-switch-loss-{}", std::process::id()));
    let folder = args.get(3).map_or(temporary.clone(), Into::into);

    let config = config();
    let mut writer =
        Writer::create(&folder, &manifest(&config), &config, None).unwrap_or_else(|e| panic!("{e}"));
    let options = Options { event_buffer_bytes: Some(EVENT_BUFFER_BYTES), ..Options::default() };
    let observer = Observer::start(options).unwrap_or_else(|e| panic!("{e}"));

    let stop = Arc::new(AtomicBool::new(false));
    let cpus = std::thread::available_parallelism().map_or(1, |n| n.get());
    (0..pairs as usize).for_each(|i| ping_pong(i % cpus, &stop));
    let recorder = SwitchRecorder::start(&observer, &folder, None, &config).unwrap_or_else(|e| panic!("{e}"));
    let begin = Instant::now();
    std::thread::sleep(Duration::from_secs(seconds));
    let took = begin.elapsed().as_secs_f64();
    // The load first: it would take the pCPUs from the kernel threads that bring the rest to the disk.
    stop.store(true, Ordering::Relaxed);
    let s = recorder.finish(observer).unwrap_or_else(|e| panic!("{e}"));
    writer.finish().unwrap_or_else(|e| panic!("{e}"));
    let kept = judge(pairs, took, &s, event_bytes(&folder));
    if args.get(3).is_none() {
        let _ = std::fs::remove_dir_all(&temporary);
    }
    if !kept {
        std::process::exit(1);
    }
}
