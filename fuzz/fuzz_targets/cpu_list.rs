//! Any text is a list or mask of CPUs, or refused; what is a list is written as the same list again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use vsteer_core::CpuSet;
use vsteer_host::linux::files::{cpu_list, cpu_mask, memory_total_bytes, node_list, number, size_bytes};

fuzz_target!(|text: &str| {
    if let Ok(set) = text.parse::<CpuSet>() {
        assert_eq!(set.to_string().parse::<CpuSet>().unwrap(), set);
    }
    let _ = (cpu_list(text), cpu_mask(text), node_list(text), number(text));
    let _ = (size_bytes(text), memory_total_bytes(text));
});
