//! Which words on the kernel's command line change how VMs run?
//!
//! Source: Documentation/admin-guide/kernel-parameters.txt.

use super::{Check, Finding, Tree};
use vsteer_core::setting::words::word_name;

pub const CHECK: Check = Check {
    name: "command_line",
    doc: "words of the kernel's command line",
    rests_on: &["proc/cmdline"],
    look,
};

/// Words to remove unless a person needs them: the word, its effect, its cost.
const COSTLY: &[(&str, &str, &str)] = &[
    ("idle=poll", "idle processors never sleep", "they use full power, and busy processors cannot boost"),
    ("processor.max_cstate", "the kernel does not use deep idle states", "more power, less boost"),
    ("intel_idle.max_cstate", "the kernel does not use deep idle states", "more power, less boost"),
    ("maxcpus", "the kernel does not use all CPUs", "the other CPUs run nothing"),
    ("noapic", "the kernel does not spread interrupts", "one pCPU serves all of them"),
    ("nohz=off", "idle processors keep their timer tick", "ticks wake hosts and guests for nothing"),
    ("debug_pagealloc", "a debugging check", "allocations are several times slower"),
    ("slub_debug", "a debugging check", "allocations are slower"),
];
/// Words that isolate pCPUs.
const APART: &[&str] = &["isolcpus", "nohz_full", "rcu_nocbs"];
/// Word that protects VMs from sibling threads. The check `smt` says whether the processor needs it. The audit never
/// proposes to remove it.
const ONE_THREAD: &str = "nosmt";

fn look(t: &Tree) -> Vec<Finding> {
    if t.text("/proc/cmdline").is_none() {
        return vec![Finding::none("kernel command line", "the captured files do not contain it")];
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
                    "needs a reboot; the word may be there on purpose",
                    format!("grubby --update-kernel=ALL --remove-args={}", word_name(name)),
                    format!("grubby --update-kernel=ALL --args={word}"),
                ),
            ));
        } else if APART.contains(&word_name(word)) {
            found.push(Finding::good(
                format!("kernel word {}", word_name(word)),
                word,
                "VMs run on these isolated pCPUs only if they are pinned to them",
            ));
        } else if word_name(word) == ONE_THREAD {
            found.push(Finding::good(
                "kernel word nosmt",
                word,
                "one thread per core, so half of the logical CPUs; VMs cannot learn data from a sibling \
                    thread (see smt)",
            ));
        }
    }
    if found.is_empty() {
        vec![Finding::good("kernel command line", "no costly word", "no word on it slows VMs down")]
    } else {
        found
    }
}
