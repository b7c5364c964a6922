//! Is the processor protected against what is known of it?
//!
//! Per vulnerability, as the kernel says. On is as it should be: switching mitigations off is never proposed here, though it brought the published study's host
//! 15.6 % and its VM 12 to 14 %; where they are off, that is what should be otherwise. Source:
//! Documentation/admin-guide/hw-vuln, /sys/devices/system/cpu/vulnerabilities.

use super::{Check, Finding, Tree};

/// See the file's head.
pub const CHECK: Check = Check { name: "mitigations", doc: "mitigations, per vulnerability", look };

fn look(t: &Tree) -> Vec<Finding> {
    let place = if t.is_guest() { " (in this guest)" } else { "" };
    let one = |(name, said): (&str, &str)| {
        let setting = format!("{name}{place}");
        if said.starts_with("Not affected") {
            Finding::none(setting, "this processor does not have it")
        } else if said.starts_with("Vulnerable") || said.starts_with("KVM: Vulnerable") {
            let by_word = t.words().find(|w| {
                w.starts_with("mitigations=off") || w.starts_with("nospectre") || w.contains("=off")
            });
            let why = by_word.map_or(
                "the kernel or the microcode is too old for a mitigation, or a guest is not told of it"
                    .to_owned(),
                |w| format!("{w} is on the kernel's command line"),
            );
            Finding::bad(
                setting,
                said,
                format!("SECURITY: programs and VMs can read what is not theirs; {why}"),
                (
                    "mitigations cost time: measure how much (the study: 12 to 16 %)",
                    "remove the word, or update microcode and kernel, and boot",
                    "nothing to take back",
                ),
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
