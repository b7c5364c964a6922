//! Which words on the kernel's command line change how VMs run? Source: Documentation/admin-guide/kernel-parameters.txt.

use super::{Check, Finding, Tree};
use vsteer_core::setting::words::word_name;

/// See the file's head.
pub const CHECK: Check = Check { name: "command_line", doc: "words of the kernel's command line", look };

/// Word, what it does, what it costs; those that should be removed unless somebody needs them.
const COSTLY: &[(&str, &str, &str)] = &[
    ("idle=poll", "idle processors never sleep", "full power all the time, no boost for busy ones"),
    ("processor.max_cstate", "deep idle states are forbidden", "more watts, less boost"),
    ("intel_idle.max_cstate", "deep idle states are forbidden", "more watts, less boost"),
    ("maxcpus", "CPUs are left out", "they run nothing"),
    ("noapic", "interrupts are not spread", "one pCPU has them all"),
    ("nohz=off", "idle processors tick", "guests and hosts are woken for nothing"),
    ("debug_pagealloc", "a debug kernel's check", "allocations are several times as slow"),
    ("slub_debug", "a debug kernel's check", "allocations are slower"),
];
/// Words that set pCPUs apart.
const APART: &[&str] = &["isolcpus", "nohz_full", "rcu_nocbs"];
/// Closes what is open between threads of a core. Whether this processor needs that `smt` says; it is never proposed to take it away.
const ONE_THREAD: &str = "nosmt";

fn look(t: &Tree) -> Vec<Finding> {
    if t.text("/proc/cmdline").is_none() {
        return vec![Finding::none("kernel command line", "it is not in this tree")];
    }
    let mut found = Vec::new();
    for word in t.words() {
        let known = COSTLY.iter().find(|(k, ..)| *k == word || (!k.contains('=') && *k == word_name(word)));
        if let Some((name, does, costs)) = known {
            found.push(Finding::bad(
                format!("kernel word {}", word_name(name)),
                word,
                format!("{does}: {costs}"),
                (
                    "needs a boot; somebody may have wanted it",
                    format!("grubby --update-kernel=ALL --remove-args={}", word_name(name)),
                    format!("grubby --update-kernel=ALL --args={word}"),
                ),
            ));
        } else if APART.contains(&word_name(word)) {
            found.push(Finding::good(
                format!("kernel word {}", word_name(word)),
                word,
                "pCPUs set apart: VMs get them only by pins",
            ));
        } else if word_name(word) == ONE_THREAD {
            found.push(Finding::good(
                "kernel word nosmt",
                word,
                "one thread per core, half of the logical CPUs: it closes what VMs can learn from a sibling thread (see smt)",
            ));
        }
    }
    if found.is_empty() {
        vec![Finding::good("kernel command line", "no such word", "nothing on it slows VMs down")]
    } else {
        found
    }
}
