//! Does the kernel mitigate the processor's known vulnerabilities?
//!
//! Reads the kernel's whole line for each vulnerability. A line that begins with a mitigation can still report an
//! open part (`VMX: vulnerable`, `BHI: Vulnerable`). [`super::smt`] judges `SMT vulnerable`. Disabled mitigations
//! are a finding. The audit never proposes to disable them, although that gained 15.6 % on the published study's
//! host and 12 to 14 % in its VM. This file also knows the words that disable mitigations, because experiments must
//! never use them.
//!
//! Source: Documentation/admin-guide/hw-vuln, /sys/devices/system/cpu/vulnerabilities; full list of texts:
//! arch/x86/kernel/cpu/bugs.c, arch/arm64/kernel/proton-pack.c. Left out: which word opens which vulnerability.

use super::{Check, Finding, State, Tree};
use vsteer_core::setting::words::word_name;

pub const CHECK: Check = Check {
    name: "mitigations",
    doc: "mitigations, per vulnerability",
    rests_on: &["cpu/vulnerabilities/"],
    look,
};

/// Words that disable mitigations, fully or partly: the name and the values that do; no values: the name alone.
/// Dashes are written as underscores. Source: Documentation/admin-guide/kernel-parameters.txt of Linux 6.12, and
/// hw-vuln/{indirect-target-selection,vmscape,attack_vector_controls}.rst of 6.17.
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

/// Does this word of the kernel's command line disable a mitigation?
pub fn switches_off(word: &str) -> bool {
    let name = word_name(word).replace('-', "_");
    let value = word.split_once('=').map(|(_, value)| value);
    OFF.iter().filter(|(off, _)| *off == name).any(|(_, values)| match value {
        None => values.is_empty(),
        Some(value) => value.split([',', ';']).any(|part| values.contains(&part)),
    })
}

/// The words of a text (a command, a level) that may be kernel words or parts of a path.
fn words_of_text(text: &str) -> impl Iterator<Item = &str> {
    let of_word = |c: char| c.is_ascii_alphanumeric() || "_.=,;-".contains(c);
    text.split(move |c| !of_word(c)).filter(|word| !word.is_empty())
}

/// The word in a text (a command, a level) that disables a mitigation. Also finds `--args=mitigations=off` and
/// `nopti;`.
pub fn switched_off_in(text: &str) -> Option<&str> {
    words_of_text(text).find_map(|word| {
        // The text after an equals sign may be a word itself: --args=nopti.
        let ends = word.match_indices('=').map(|(at, _)| at + 1).chain([0]);
        ends.map(|at| word[at..].trim_start_matches('-').trim_end_matches([',', ';', '.']))
            .find(|word| switches_off(word) || word.split([',', ';']).any(switches_off))
    })
}

/// The word in a text (a name, a path, a command, a level) that concerns mitigations.
pub fn about_mitigations(text: &str) -> Option<&str> {
    // Includes RHEL's switches in /sys/kernel/debug/x86.
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

/// The parts of a vulnerability's line that report something open, except those about SMT.
pub(super) fn open(said: &str) -> Vec<&str> {
    let is_open = |part: &&str| {
        let lower = part.to_ascii_lowercase();
        // "SMT vulnerable"; kernels of 2018: "VMX: SMT vulnerable, L1D conditional cache flushes".
        let of_smt = lower.rsplit(": ").next().is_some_and(|end| end.starts_with("smt "));
        let says = lower.split([' ', ':']).any(|word| word == "vulnerable");
        // The Arm kernel has another wording for branch history, the x86 kernel for predictions between processes.
        says && !of_smt || lower == "but not bhb" || lower == "ibpb: disabled"
    };
    said.split([';', ',']).map(str::trim).filter(is_open).collect()
}

fn look(t: &Tree) -> Vec<Finding> {
    let place = if t.is_guest() { " (in this guest)" } else { "" };
    let one =
        |(name, said): (&str, &str)| {
            let setting = format!("{name}{place}");
            let open = open(said);
            if said.starts_with("Not affected") {
                Finding::none(setting, "this processor does not have the vulnerability")
            } else if !open.is_empty() {
                let by_word = t.words().find(|w| switches_off(w));
                let (why, change) = match by_word {
                Some(w) => (format!("{w} is on the kernel's command line"), format!("remove {w} from the \
                    kernel's command line and reboot")),
                None if t.is_guest() => (
                    "the host does not show the guest the protection, or the guest's kernel is too \
                        old".to_owned(),
                    "on the host: update microcode and kernel, and give the VM a CPU model that shows the \
                        protection".to_owned(),
                ),
                None => (
                    "the kernel or the microcode has no mitigation for it".to_owned(),
                    "update microcode and kernel and reboot".to_owned(),
                ),
            };
                // A line that begins with `Mitigation:` can still name vulnerable parts.
                let what = if said.starts_with("Vulnerable") {
                    String::new()
                } else {
                    format!(" ({})", open.join(", "))
                };
                Finding::bad(
                    setting,
                    said,
                    format!("SECURITY: programs and VMs can read data of others{what}; {why}"),
                    (
                        "mitigations cost CPU time (12 to 16 % in the study); measure how much",
                        change,
                        "do not undo this change",
                    ),
                )
            } else if said.starts_with("Unknown") {
                Finding::new(
                    setting,
                    State::DoesNotApply,
                    said,
                    "the kernel does not know whether the machine is protected: a guest's kernel cannot see \
                    the host, and some processors are no longer maintained",
                )
            } else {
                Finding::good(
                    setting,
                    said,
                    "protected; an experiment can measure the cost, but not whether the machine is safe \
                    without it",
                )
            }
        };
    let found: Vec<Finding> = t.matching("/sys/devices/system/cpu/vulnerabilities/", "").map(one).collect();
    if found.is_empty() {
        vec![Finding::none("mitigations", "this kernel does not report vulnerabilities")]
    } else {
        found
    }
}
