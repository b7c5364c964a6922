//! Does KVM poll before it lets a halted vCPU's pCPU go?
//!
//! Polling answers quick wake-ups sooner and uses the pCPU meanwhile: on a full host others wait for it. Source: Documentation/virt/kvm/halt-polling.rst
//! (default 200,000 ns).

use super::{Check, Finding, Tree};

/// See the file's head.
pub const CHECK: Check = Check { name: "halt_polling", doc: "KVM's halt polling", look };

fn look(t: &Tree) -> Vec<Finding> {
    let Some(value) = t.text("/sys/module/kvm/parameters/halt_poll_ns") else {
        return vec![Finding::none("halt polling", "KVM is not loaded")];
    };
    let shown = format!("{value} ns");
    match value.parse::<u64>() {
        Ok(0) => vec![Finding::good(
            "halt polling",
            "off",
            "the host is never kept busy by idle vCPUs; wake-ups take a little longer",
        )],
        Ok(ns) if ns <= 200_000 => vec![Finding::good(
            "halt polling",
            shown,
            "the kernel's default at most; `vsteer top` shows what it costs here",
        )],
        _ => vec![Finding::bad(
            "halt polling",
            shown,
            "idle vCPUs keep pCPUs busy for longer than the kernel's default",
            (
                "wake-ups take longer",
                "echo 200000 > /sys/module/kvm/parameters/halt_poll_ns",
                format!("echo {value} > /sys/module/kvm/parameters/halt_poll_ns"),
            ),
        )],
    }
}
