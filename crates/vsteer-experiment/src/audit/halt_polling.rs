//! Does KVM poll before it gives up the pCPU of a halted vCPU?
//!
//! Polling makes quick wake-ups faster but keeps the pCPU busy, so on a full host other vCPUs wait for it. Source:
//! Documentation/virt/kvm/halt-polling.rst (default 200,000 ns).

use super::{Check, Finding, Tree};

pub const CHECK: Check = Check {
    name: "halt_polling",
    doc: "KVM's halt polling",
    rests_on: &["kvm/parameters/halt_poll_ns"],
    look,
};

fn look(t: &Tree) -> Vec<Finding> {
    let Some(value) = t.text("/sys/module/kvm/parameters/halt_poll_ns") else {
        return vec![Finding::none("halt polling", "KVM is not loaded")];
    };
    let shown = format!("{value} ns");
    match value.parse::<u64>() {
        Ok(0) => vec![Finding::good(
            "halt polling",
            "off",
            "idle vCPUs never keep the host busy; wake-ups take a little longer",
        )],
        Ok(ns) if ns <= 200_000 => vec![Finding::good(
            "halt polling",
            shown,
            "at most the kernel's default of 200000 ns; `vsteer top` shows its cost on this host",
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
