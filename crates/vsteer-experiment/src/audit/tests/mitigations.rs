//! What is open, and which words open it.

use super::*;

/// Lines of open vulnerabilities, as arch/x86/kernel/cpu/bugs.c and arch/arm64/kernel/proton-pack.c print them.
const OPEN: &[(&str, &str)] = &[
    ("l1tf", "Mitigation: PTE Inversion; VMX: vulnerable"),
    ("l1tf", "Mitigation: PTE Inversion; VMX: vulnerable, SMT disabled"),
    (
        "spectre_v2",
        "Mitigation: Enhanced / Automatic IBRS; IBPB: conditional; PBRSB-eIBRS: SW sequence; BHI: Vulnerable",
    ),
    (
        "spectre_v2",
        "Mitigation: Retpolines; IBPB: conditional; IBRS_FW; RSB filling; PBRSB-eIBRS: Not affected; BHI: Vulnerable, KVM: SW loop",
    ),
    (
        "spectre_v2",
        "Mitigation: Enhanced / Automatic IBRS; IBPB: conditional; RSB filling; PBRSB-eIBRS: Vulnerable; BHI: BHI_DIS_S",
    ),
    ("spectre_v2", "Mitigation: Retpolines; IBPB: disabled; STIBP: disabled; RSB filling"),
    (
        "spectre_v2",
        "Mitigation: Full generic retpoline, IBPB: conditional, RSB filling - vulnerable module loaded",
    ),
    ("spectre_v2", "Mitigation: CSV2, but not BHB"),
    ("spectre_v2", "Vulnerable: eIBRS with unprivileged eBPF"),
    ("indirect_target_selection", "Mitigation: Vulnerable, KVM: Not affected"),
    ("itlb_multihit", "KVM: Vulnerable"),
    ("itlb_multihit", "Processor vulnerable"),
    ("mds", "Vulnerable: Clear CPU buffers attempted, no microcode; SMT vulnerable"),
    ("mds", "Vulnerable; SMT Host state unknown"),
    ("spec_rstack_overflow", "Vulnerable: Safe RET, no microcode"),
];

/// Lines of closed vulnerabilities, from the same files.
const CLOSED: &[(&str, &str)] = &[
    ("mds", "Mitigation: Clear CPU buffers; SMT Host state unknown"),
    // Whether threads of a core are safe is SMT's own finding.
    ("mds", "Mitigation: Clear CPU buffers; SMT vulnerable"),
    ("l1tf", "Mitigation: PTE Inversion; VMX: conditional cache flushes, SMT vulnerable"),
    ("l1tf", "Mitigation: PTE Inversion; VMX: SMT vulnerable, L1D conditional cache flushes"),
    ("l1tf", "Mitigation: PTE Inversion; VMX: EPT disabled"),
    ("retbleed", "Mitigation: untrained return thunk; SMT vulnerable"),
    ("itlb_multihit", "KVM: Mitigation: VMX disabled"),
    (
        "spectre_v2",
        "Mitigation: Retpolines; IBPB: conditional; STIBP: disabled; RSB filling; PBRSB-eIBRS: Not affected; BHI: Retpoline",
    ),
    ("spectre_v2", "Mitigation: CSV2, BHB"),
];

fn of(name: &str, line: &str) -> (State, String) {
    let path = format!("/sys/devices/system/cpu/vulnerabilities/{name}");
    said(&tree(&[(&path, line)]), "mitigations", name)
}

#[test]
fn a_line_is_read_to_its_end() {
    for (name, line) in OPEN {
        let (state, why) = of(name, line);
        assert!(state == Not && why.contains("SECURITY"), "{name}: {line}: {state:?}, {why}");
    }
    for (name, line) in CLOSED {
        assert_eq!(of(name, line).0, Good, "{name}: {line}");
    }
    // What the kernel does not know is neither.
    for line in ["Unknown: Dependent on hypervisor status", "Unknown: No mitigations"] {
        assert_eq!(of("mmio_stale_data", line).0, None_, "{line}");
    }
    assert_eq!(of("l1tf", "Not affected").0, None_);
}

#[test]
fn the_word_that_opened_it_is_named() {
    for (word, name, line) in [
        ("l1tf=off", "l1tf", "Mitigation: PTE Inversion; VMX: vulnerable"),
        ("spectre_bhi=off", "spectre_v2", "Mitigation: Retpolines; BHI: Vulnerable"),
        ("nospectre_bhb", "spectre_v2", "Mitigation: CSV2, but not BHB"),
        ("spectre_v2_user=off", "spectre_v2", "Mitigation: Retpolines; IBPB: disabled; STIBP: disabled"),
    ] {
        let path = format!("/sys/devices/system/cpu/vulnerabilities/{name}");
        let cmdline = format!("ro {word} quiet");
        let (_, why) = said(&tree(&[(&path, line), ("/proc/cmdline", &cmdline)]), "mitigations", name);
        assert!(why.contains(&format!("{word} is on the kernel's command line")), "{word}: {why}");
    }
}

#[test]
fn smt_is_open_where_l1tf_is_open_altogether() {
    const ON: (&str, &str) = ("/sys/devices/system/cpu/smt/control", "on");
    const L1TF: &str = "/sys/devices/system/cpu/vulnerabilities/l1tf";
    let smt = |line: &str| said(&tree(&[ON, (L1TF, line)]), "smt", "SMT").0;
    assert_eq!(smt("Mitigation: PTE Inversion; VMX: vulnerable"), Not);
    assert_eq!(smt("Mitigation: PTE Inversion; VMX: conditional cache flushes, SMT vulnerable"), Not);
    assert_eq!(smt("Mitigation: PTE Inversion; VMX: EPT disabled"), Good);
    assert_eq!(smt("Mitigation: PTE Inversion"), Good);
}

#[test]
fn one_thread_per_core_is_never_proposed_to_be_taken_away() {
    for word in ["nosmt", "nosmt=force"] {
        let t = tree(&[
            ("/proc/cmdline", &format!("ro {word}")),
            ("/sys/devices/system/cpu/smt/control", "forceoff"),
            ("/sys/devices/system/cpu/vulnerabilities/mds", "Mitigation: Clear CPU buffers; SMT disabled"),
        ]);
        assert_eq!(said(&t, "command_line", "kernel word nosmt").0, Good, "{word}");
        assert_eq!(said(&t, "smt", "SMT").0, Good);
        let proposed = audit(&t).into_iter().filter_map(|f| f.change).find(|c| c.contains("nosmt"));
        assert_eq!(proposed, None, "{word}");
    }
}

#[test]
fn words_that_switch_mitigations_off_are_known_wherever_they_stand() {
    for word in [
        "mitigations=off",
        "mitigations=auto;no_user_kernel",
        "nopti",
        "retbleed=off",
        "spectre_v2=off",
        "spec-store-bypass-disable=off",
        "kvm-intel.vmentry_l1d_flush=never",
        "kvm.nx_huge_pages=N",
    ] {
        assert!(switches_off(word), "{word}");
    }
    for word in
        ["mitigations=auto,nosmt", "spectre_v2=on", "nosmt", "quiet", "mds=full", "off", "idle=nomwait"]
    {
        assert!(!switches_off(word), "{word}");
    }
    let found = |text: &'static str| switched_off_in(text);
    assert_eq!(found("grubby --update-kernel=ALL --args=mitigations=off"), Some("mitigations=off"));
    assert_eq!(found("kernelstub -a 'quiet nopti'; reboot"), Some("nopti"));
    assert_eq!(found("echo retbleed=off; true"), Some("retbleed=off"));
    assert_eq!(found("grubby --args=\"mitigations=auto,nosmt quiet\""), None);
    for text in [
        "mitigations",
        "host-mitigations",
        "grubby --args=retbleed={level}",
        "/sys/module/kvm/parameters/nx_huge_pages",
    ] {
        assert!(about_mitigations(text).is_some(), "{text}");
    }
    for text in ["profile", "grubby --args=idle={level}", "/sys/kernel/mm/transparent_hugepage/enabled", ""] {
        assert_eq!(about_mitigations(text), None, "{text}");
    }
}
