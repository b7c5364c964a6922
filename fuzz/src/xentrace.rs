//! Any bytes are a trace of Xen's scheduler, or are refused. No vCPU of a trace has more time than there was.

use vsteer_record::xentrace::{read, seen};

pub fn run(bytes: &[u8]) -> bool {
    let Ok(trace) = read(bytes) else { return false };
    assert!(trace.changes.is_sorted_by_key(|c| c.ticks));
    let all = trace.changes.last().map_or(0, |c| c.ticks) - trace.changes.first().map_or(0, |c| c.ticks);
    for vcpu in seen(&trace, 1_000_000).values() {
        assert!(vcpu.ns.iter().map(|ns| u128::from(*ns)).sum::<u128>() <= u128::from(all));
    }
    !trace.changes.is_empty()
}

/// Two changes of one vCPU in one window.
pub fn seeds() -> Vec<Vec<u8>> {
    let change = |ticks: u32, from: u32, to: u32| [0x9002_1001 | from << 8 | to << 4, ticks, 0, 1 << 16];
    let records = [change(1_000, 2, 1), change(2_000, 1, 0)].concat();
    let window = [0x2001_f003, 0, 4 * records.len() as u32];
    vec![window.into_iter().chain(records).flat_map(u32::to_le_bytes).collect()]
}
