//! Is the processor protected against what is known of it?
//!
//! Per vulnerability, as the kernel says, to the end of its line: one that begins with a mitigation may go on with what is open in spite of it (`VMX: vulnerable`,
//! `BHI: Vulnerable`). What is open between threads of a core (`SMT vulnerable`) is [`super::smt`]'s to judge. On is as it should be: switching mitigations
//! off is never proposed here, though it brought the published study's host 15.6 % and its VM 12 to 14 %; where they are off, that is what should be otherwise. Which
//! words of a command line, and of commands, switch them off is told here for plans of experiments too: these never do.
//!
//! Source: Documentation/admin-guide/hw-vuln, /sys/devices/system/cpu/vulnerabilities; what the files say in full: arch/x86/kernel/cpu/bugs.c,
//! arch/arm64/kernel/proton-pack.c. Left out: which word opens which vulnerability.

use super::{Check, Finding, State, Tree};
use vsteer_core::setting::words::word_name;

/// See the file's head.
pub const CHECK: Check = Check { name: "mitigations", doc: "mitigations, per vulnerability", look };

/// Words that switch mitigations off, in whole or in part: the name, and with which values; without any the name alone. Dashes are underscores. Source:
/// Documentation/admin-guide/kernel-parameters.txt of Linux 6.12, and hw-vuln/{indirect-target-selection,vmscape,attack_vector_controls}.rst of 6.17.
const OFF: &[(&str, &[&str])] = &[
    (
        "mitigations",
        &["off", "no_user_kernel", "no_user_user", "no_guest_host", "no_guest_guest", "no_cross_thread"],
    ),
    ("nospectre_v1", &[]),
    ("nospectre_v2", &[]),
    ("nospectre_bhb", &[]),
    ("spectre_v2", &["off"]),
    ("spectre_v2_user", &["off"]),
    ("spectre_bhi", &["off", "vmexit"]),
    ("spec_store_bypass_disable", &["off"]),
    ("nospec_store_bypass_disable", &[]),
    ("ssbd", &["force-off"]),
    ("nopti", &[]),
    ("pti", &["off"]),
    ("kpti", &["0", "off", "n", "no"]),
    ("mds", &["off"]),
    ("l1tf", &["off"]),
    ("kvm_intel.vmentry_l1d_flush", &["never"]),
    ("tsx_async_abort", &["off"]),
    ("retbleed", &["off"]),
    ("srbds", &["off"]),
    ("mmio_stale_data", &["off"]),
    ("gather_data_sampling", &["off"]),
    ("reg_file_data_sampling", &["off"]),
    ("spec_rstack_overflow", &["off"]),
    ("indirect_target_selection", &["off", "vmexit"]),
    ("tsa", &["off"]),
    ("vmscape", &["off"]),
    ("kvm.nx_huge_pages", &["off", "0", "n", "N", "never"]),
    ("no_rfi_flush", &[]),
    ("no_entry_flush", &[]),
    ("no_uaccess_flush", &[]),
    ("no_stf_barrier", &[]),
];

/// Does this word of the kernel's command line switch a mitigation off?
pub fn switches_off(word: &str) -> bool {
    let name = word_name(word).replace('-', "_");
    let value = word.split_once('=').map(|(_, value)| value);
    OFF.iter().filter(|(off, _)| *off == name).any(|(_, values)| match value {
        None => values.is_empty(),
        Some(value) => value.split([',', ';']).any(|part| values.contains(&part)),
    })
}

/// The words of a text (a command, a level) that may be a kernel's, or a path's parts.
fn words_of_text(text: &str) -> impl Iterator<Item = &str> {
    let of_word = |c: char| c.is_ascii_alphanumeric() || "_.=,;-".contains(c);
    text.split(move |c| !of_word(c)).filter(|word| !word.is_empty())
}

/// The word in a text (a command, a level) that switches a mitigation off, `--args=mitigations=off` and `nopti;` too.
pub fn switched_off_in(text: &str) -> Option<&str> {
    words_of_text(text).find_map(|word| {
        // What stands behind an equals sign may be a word itself: --args=nopti.
        let ends = word.match_indices('=').map(|(at, _)| at + 1).chain([0]);
        ends.map(|at| word[at..].trim_start_matches('-').trim_end_matches([',', ';', '.']))
            .find(|word| switches_off(word) || word.split([',', ';']).any(switches_off))
    })
}

/// The word in a text (a name, a path, a command, a level) that says that it is about mitigations.
pub fn about_mitigations(text: &str) -> Option<&str> {
    // RHEL's switches below /sys/kernel/debug/x86 besides.
    let is_one = |name: &str| {
        let of_module = |off: &str| off.rsplit('.').next() == Some(name);
        ["pti_enabled", "ibrs_enabled", "retp_enabled"].contains(&name)
            || OFF.iter().any(|(off, _)| *off == name || of_module(off))
    };
    words_of_text(text).find(|word| {
        let lower = word.to_ascii_lowercase().replace('-', "_");
        lower.contains("mitigation")
            || lower.contains("vulnerabilit")
            || lower.split(['=', ',', ';']).any(|part| is_one(part.trim_matches('_')))
    })
}

/// What a vulnerability's line says is open. What it says of SMT is not among it.
pub(super) fn open(said: &str) -> Vec<&str> {
    let is_open = |part: &&str| {
        let lower = part.to_ascii_lowercase();
        // "SMT vulnerable"; kernels of 2018: "VMX: SMT vulnerable, L1D conditional cache flushes".
        let of_smt = lower.rsplit(": ").next().is_some_and(|end| end.starts_with("smt "));
        let says = lower.split([' ', ':']).any(|word| word == "vulnerable");
        // Arm's kernel has other words for branch histories, x86's for predictions between processes.
        says && !of_smt || lower == "but not bhb" || lower == "ibpb: disabled"
    };
    said.split([';', ',']).map(str::trim).filter(is_open).collect()
}

fn look(t: &Tree) -> Vec<Finding> {
    let place = if t.is_guest() { " (in this guest)" } else { "" };
    let one = |(name, said): (&str, &str)| {
        let setting = format!("{name}{place}");
        let open = open(said);
        if said.starts_with("Not affected") {
            Finding::none(setting, "this processor does not have it")
        } else if !open.is_empty() {
            let by_word = t.words().find(|w| switches_off(w));
            let (why, change) = match by_word {
                Some(w) => (format!("{w} is on the kernel's command line"), format!("remove {w} from the kernel's command line, and boot")),
                None if t.is_guest() => (
                    "its host does not tell it of what protects, or its kernel is too old".to_owned(),
                    "the host's: microcode and kernel, and a CPU model of the VM that shows the guest what there is".to_owned(),
                ),
                None => (
                    "the kernel or the microcode is too old for a mitigation, or there is none".to_owned(),
                    "update microcode and kernel, and boot".to_owned(),
                ),
            };
            // Of a line that begins with a mitigation the end is what matters.
            let what = if said.starts_with("Vulnerable") {
                String::new()
            } else {
                format!(" ({})", open.join(", "))
            };
            Finding::bad(
                setting,
                said,
                format!("SECURITY: programs and VMs can read what is not theirs{what}; {why}"),
                (
                    "mitigations cost time: measure how much (the study: 12 to 16 %)",
                    change,
                    "nothing that should be taken back",
                ),
            )
        } else if said.starts_with("Unknown") {
            Finding::new(
                setting,
                State::DoesNotApply,
                said,
                "the kernel cannot tell whether it is protected: in a guest its host knows; a processor that its maker no longer looks after nobody",
            )
        } else {
            Finding::good(
                setting,
                said,
                "protected; what that costs an experiment tells, and that it is safe without nobody can",
            )
        }
    };
    let found: Vec<Finding> = t.matching("/sys/devices/system/cpu/vulnerabilities/", "").map(one).collect();
    if found.is_empty() {
        vec![Finding::none("mitigations", "this kernel tells nothing of vulnerabilities")]
    } else {
        found
    }
}
