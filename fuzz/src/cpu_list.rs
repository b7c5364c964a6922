//! Any text is a list or mask of CPUs, or is refused. A list is written as the same list again.

use vsteer_core::CpuSet;
use vsteer_host::linux::files::{cpu_list, cpu_mask, memory_total_bytes, node_list, number, size_bytes};

pub fn run(bytes: &[u8]) -> bool {
    let text = crate::text(bytes);
    let set = text.parse::<CpuSet>();
    if let Ok(set) = &set {
        assert_eq!(set.to_string().parse::<CpuSet>().as_ref(), Ok(set));
    }
    let _ = (node_list(text), number(text), size_bytes(text), memory_total_bytes(text));
    set.is_ok() | cpu_list(text).is_ok() | cpu_mask(text).is_ok()
}

pub fn seeds() -> Vec<Vec<u8>> {
    crate::seeds_of(&["0-3,8,16-31", "ff,00000f0f", "0"])
}
