//! Any bytes are a text trace of Linux' scheduler, or are refused. No thread of a trace has more time than there was.

use std::path::Path;
use vsteer_record::sched_trace::of_bytes;

pub fn run(bytes: &[u8]) -> bool {
    let Ok(recording) = of_bytes(Path::new("trace.txt"), bytes) else { return false };
    let (Some(first), Some(last)) = (recording.batches.first(), recording.batches.last()) else {
        return false;
    };
    for thread in &last.threads {
        let c = &thread.counters;
        let all = [c.run_ns, c.ready_ns, c.blocked_ns].into_iter().flatten().map(u128::from).sum::<u128>();
        assert!(all <= u128::from(last.mono_ns - first.mono_ns), "{thread:?}");
    }
    assert!(recording.batches.is_sorted_by_key(|b| b.mono_ns));
    true
}

/// Real traces, cut to a few lines.
pub fn seeds() -> Vec<Vec<u8>> {
    let of = |name: &str| {
        let whole = crate::project_file(&format!("crates/vsteer-record/tests/sched_trace/{name}"));
        String::from_utf8_lossy(&whole)
            .lines()
            .take(60)
            .flat_map(|l| [l.as_bytes(), b"\n"].concat())
            .collect()
    };
    ["perf-sched.txt", "trace-cmd.txt", "ftrace.txt"].map(of).into()
}
