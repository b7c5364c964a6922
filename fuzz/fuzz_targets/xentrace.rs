//! Any bytes are a trace of Xen's scheduler, or refused; of what is one, no vCPU has more time than there was.
#![no_main]

use libfuzzer_sys::fuzz_target;
use vsteer_record::xentrace::{read, seen};

fuzz_target!(|bytes: &[u8]| {
    let Ok(trace) = read(bytes) else { return };
    assert!(trace.changes.is_sorted_by_key(|c| c.ticks));
    let all = trace.changes.last().map_or(0, |c| c.ticks) - trace.changes.first().map_or(0, |c| c.ticks);
    for vcpu in seen(&trace, 1_000_000).values() {
        assert!(vcpu.ns.iter().map(|ns| u128::from(*ns)).sum::<u128>() <= u128::from(all));
    }
});
