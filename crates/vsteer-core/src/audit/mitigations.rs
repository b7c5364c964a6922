//! Is the processor protected against what is known of it?
//!
//! Per vulnerability, as the kernel says. On is as it should be: switching mitigations off is never proposed here, though it brought the published study's host
//! 15.6 % and its VM 12 to 14 %; where they are off, that is what should be otherwise. Source:
//! Documentation/admin-guide/hw-vuln, /sys/devices/system/cpu/vulnerabilities.

use super::{Check, Finding, Tree};

/// See the file's head.
pub const CHECK: Check = Check { name: "mitigations", doc: "mitigations, per vulnerability", look };

/// Words that switch mitigations off. Source: Documentation/admin-guide/kernel-parameters.txt of Linux 6.12.
const OFF: &[&str] = &[
    "mitigations=off",
    "nospectre_v1",
    "nospectre_v2",
    "nospectre_bhb",
    "spectre_v2=off",
    "spectre_v2_user=off",
    "spectre_bhi=off",
    "spec_store_bypass_disable=off",
    "ssbd=force-off",
    "nopti",
    "pti=off",
    "kpti=0",
    "mds=off",
    "l1tf=off",
    "tsx_async_abort=off",
    "retbleed=off",
    "srbds=off",
    "mmio_stale_data=off",
    "gather_data_sampling=off",
    "reg_file_data_sampling=off",
    "spec_rstack_overflow=off",
    "kvm.nx_huge_pages=off",
];

fn look(t: &Tree) -> Vec<Finding> {
    let place = if t.is_guest() { " (in this guest)" } else { "" };
    let one = |(name, said): (&str, &str)| {
        let setting = format!("{name}{place}");
        if said.starts_with("Not affected") {
            Finding::none(setting, "this processor does not have it")
        } else if said.starts_with("Vulnerable") || said.starts_with("KVM: Vulnerable") {
            let by_word = t.words().find(|w| OFF.contains(w));
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
            Finding::bad(
                setting,
                said,
                format!("SECURITY: programs and VMs can read what is not theirs; {why}"),
                (
                    "mitigations cost time: measure how much (the study: 12 to 16 %)",
                    change,
                    "nothing that should be taken back",
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
