//! Each check in each of its states. Trees here are made up after the kernel's documents, a few files each, and say so; one captured on a real machine
//! is in vsteer-host's tests.

use super::*;

fn tree(files: &[(&str, &str)]) -> Tree {
    Tree {
        files: files.iter().map(|(p, t)| ((*p).to_owned(), (*t).to_owned())).collect(),
        unread: BTreeMap::new(),
    }
}

/// What a check says of a setting.
fn said(t: &Tree, check: &str, setting: &str) -> (State, String) {
    let all = audit(t);
    let found = all.iter().find(|f| f.check == check && f.setting.starts_with(setting));
    let found = found.unwrap_or_else(|| panic!("{check} says nothing of {setting}: {all:#?}"));
    if found.state == State::Not {
        assert!(found.risk.is_some() && found.change.is_some() && found.undo.is_some(), "{found:?}");
    }
    (found.state, found.reason.clone())
}

use State::{AsItShould as Good, DoesNotApply as None_, Not};

#[test]
fn nothing_is_told_of_an_empty_tree() {
    for f in audit(&Tree::default()) {
        assert_eq!(f.state, None_, "{f:?}");
    }
    assert_eq!(CHECKS.len(), 19);
}

/// Files, check, setting, what it says.
type Case = (&'static [(&'static str, &'static str)], &'static str, &'static str, State);

#[test]
fn each_setting_has_its_states() {
    const AMD: (&str, &str) = ("/proc/cpuinfo", "vendor_id : AuthenticAMD\nflags : svm\n");
    const GUEST: (&str, &str) = ("/proc/cpuinfo", "flags : hypervisor sse2\n");
    let cases: &[Case] = &[
        (
            &[AMD, ("/sys/devices/system/cpu/cpu0/cpufreq/scaling_driver", "acpi-cpufreq")],
            "scaling",
            "scaling driver",
            Not,
        ),
        (
            &[AMD, ("/sys/devices/system/cpu/cpu0/cpufreq/scaling_driver", "amd-pstate-epp")],
            "scaling",
            "scaling driver",
            Good,
        ),
        (
            &[
                ("/sys/devices/system/cpu/cpu0/cpufreq/scaling_driver", "amd-pstate-epp"),
                ("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "powersave"),
            ],
            "scaling",
            "governor",
            Good,
        ),
        (
            &[
                ("/sys/devices/system/cpu/cpu0/cpufreq/scaling_driver", "acpi-cpufreq"),
                ("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "powersave"),
            ],
            "scaling",
            "governor",
            Not,
        ),
        (
            &[
                ("/sys/devices/system/cpu/cpu0/cpufreq/scaling_driver", "acpi-cpufreq"),
                ("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "ondemand"),
                ("/sys/devices/system/cpu/cpu1/cpufreq/scaling_governor", "performance"),
            ],
            "scaling",
            "governor",
            Not,
        ),
        (&[("/sys/devices/system/cpu/amd_pstate/status", "passive\n")], "pstate", "amd_pstate", Not),
        (&[("/sys/devices/system/cpu/amd_pstate/status", "guided\n")], "pstate", "amd_pstate", Good),
        (&[("/sys/devices/system/cpu/intel_pstate/status", "off\n")], "pstate", "intel_pstate", None_),
        (
            &[("/sys/devices/system/cpu/cpu0/cpufreq/energy_performance_preference", "power")],
            "energy",
            "energy",
            Not,
        ),
        (
            &[("/sys/devices/system/cpu/cpu0/cpufreq/energy_performance_preference", "performance")],
            "energy",
            "energy",
            Good,
        ),
        (
            &[
                ("/sys/devices/system/cpu/cpu0/cpuidle/state2/name", "C2"),
                ("/sys/devices/system/cpu/cpu0/cpuidle/state2/disable", "1"),
            ],
            "idle",
            "idle states",
            Not,
        ),
        (
            &[
                ("/sys/devices/system/cpu/cpu0/cpuidle/state0/name", "POLL"),
                ("/sys/devices/system/cpu/cpu0/cpuidle/state0/disable", "0"),
            ],
            "idle",
            "idle states",
            Good,
        ),
        (&[("/sys/devices/system/cpu/cpufreq/boost", "0")], "boost", "boost", Not),
        (&[("/sys/devices/system/cpu/intel_pstate/no_turbo", "0")], "boost", "boost", Good),
        (
            &[
                ("/sys/devices/system/cpu/smt/control", "on"),
                (
                    "/sys/devices/system/cpu/vulnerabilities/mds",
                    "Mitigation: Clear CPU buffers; SMT vulnerable",
                ),
            ],
            "smt",
            "SMT",
            Not,
        ),
        (&[("/sys/devices/system/cpu/smt/control", "off")], "smt", "SMT", Good),
        (&[("/sys/devices/system/cpu/vulnerabilities/mds", "Not affected")], "mitigations", "mds", None_),
        (&[("/sys/devices/system/cpu/vulnerabilities/mds", "Vulnerable")], "mitigations", "mds", Not),
        (
            &[GUEST, ("/sys/devices/system/cpu/vulnerabilities/mds", "Mitigation: x")],
            "mitigations",
            "mds (in this guest)",
            Good,
        ),
        (&[("/sys/module/kvm/parameters/halt_poll_ns", "400000")], "halt_polling", "halt", Not),
        (&[("/sys/module/kvm/parameters/halt_poll_ns", "200000")], "halt_polling", "halt", Good),
        (
            &[("/proc/sys/kernel/numa_balancing", "0"), ("/sys/devices/system/node/online", "0-1")],
            "numa_balancing",
            "NUMA",
            Not,
        ),
        (
            &[("/proc/sys/kernel/numa_balancing", "0"), ("/sys/devices/system/node/online", "0")],
            "numa_balancing",
            "NUMA",
            None_,
        ),
        (
            &[("/sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]")],
            "huge_pages",
            "transparent",
            Not,
        ),
        (
            &[
                ("/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "512"),
                ("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "512"),
            ],
            "huge_pages",
            "static",
            Not,
        ),
        (&[("/sys/class/iommu/dmar0/uevent", "")], "iommu", "IOMMU", Good),
        (
            &[
                GUEST,
                ("/sys/devices/system/cpu/online", "0-7"),
                ("/sys/class/net/eth0/queues/tx-0/xps_cpus", "00"),
            ],
            "queues",
            "queues of eth0",
            Not,
        ),
        (
            &[
                ("/sys/class/powercap/intel-rapl:0/constraint_0_power_limit_uw", "100000000"),
                ("/sys/class/powercap/intel-rapl:0/constraint_0_max_power_uw", "280000000"),
                ("/sys/class/powercap/intel-rapl:0/name", "package-0"),
            ],
            "power_caps",
            "power limit of package-0",
            Not,
        ),
        (
            &[
                ("/sys/devices/system/clocksource/clocksource0/current_clocksource", "hpet"),
                ("/sys/devices/system/clocksource/clocksource0/available_clocksource", "tsc hpet"),
            ],
            "clocksource",
            "clocksource",
            Not,
        ),
        (&[("/proc/cmdline", "ro idle=poll quiet")], "command_line", "kernel word idle", Not),
        (&[("/proc/cmdline", "ro isolcpus=2-3")], "command_line", "kernel word isolcpus", Good),
        (&[("/proc/cmdline", "ro quiet")], "command_line", "kernel command line", Good),
        (&[("/sys/module/kvm_amd/parameters/nested", "1")], "nested", "nested", Good),
    ];
    for (files, check, setting, state) in cases {
        assert_eq!(said(&tree(files), check, setting).0, *state, "{check} of {files:?}");
    }
}

/// What captured machines showed that made-up ones had not: `lab run audit` holds these on the machines themselves.
#[test]
fn what_a_tree_lacks_is_not_as_it_should_be() {
    const ACPI: (&str, &str) = ("/sys/devices/system/cpu/cpu0/cpufreq/scaling_driver", "acpi-cpufreq");
    const GOVERNOR: &str = "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor";
    let amd = |family: u32, model: u32| {
        let text = format!(
            "vendor_id\t: AuthenticAMD\ncpu family\t: {family}\nmodel\t\t: {model}\nmodel name\t: x\n"
        );
        said(&tree(&[ACPI, ("/proc/cpuinfo", &text)]), "scaling", "scaling driver").0
    };
    // An Opteron, an EPYC 7451 (Zen 1), one of Zen 2, one of Zen 4.
    assert_eq!([amd(21, 2), amd(23, 1), amd(23, 49), amd(25, 17)], [Good, Good, Not, Not]);
    let governor = |g: &str| said(&tree(&[ACPI, (GOVERNOR, g)]), "scaling", "governor");
    assert!(governor("performance").1.contains("highest") && governor("ondemand").1.contains("follows"));
    assert_eq!((governor("userspace").0, said(&tree(&[ACPI]), "scaling", "governor").0), (Not, None_));
    const ON: (&str, &str) = ("/sys/devices/system/cpu/smt/control", "on");
    const HUGE: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages";
    for (files, check, setting) in [
        (&[ON][..], "smt", "SMT"),
        (&[("/sys/devices/system/cpu/cpu0/cpuidle/state0/name", "POLL")], "idle", "idle states"),
        (&[("/proc/sys/kernel/numa_balancing", "0")], "numa_balancing", "NUMA"),
        (&[(HUGE, "512")], "huge_pages", "static"),
    ] {
        assert_eq!(said(&tree(files), check, setting).0, None_, "{check}");
    }
    let safe = [ON, ("/sys/devices/system/cpu/vulnerabilities/mds", "Not affected")];
    assert_eq!(said(&tree(&safe), "smt", "SMT").0, Good);
}

#[test]
fn guests_are_told_from_hosts() {
    let guest = |files: &[(&str, &str)]| tree(files).is_guest();
    assert!(guest(&[("/proc/sysinfo", "LPAR Name: A\nVM00 Control Program: KVM/Linux\n")]));
    assert!(!guest(&[("/proc/sysinfo", "LPAR Name: A\n")]));
    assert!(guest(&[("/proc/device-tree/hypervisor/compatible", "linux,kvm")]));
    assert!(guest(&[("/sys/hypervisor/type", "xen")]));
    assert!(!guest(&[("/sys/hypervisor/type", "xen"), ("/proc/xen/capabilities", "control_d\n")]));
    // Arm has no flag: the firmware's names, as clouds give them.
    const ARM: (&str, &str) =
        ("/proc/cpuinfo", "processor\t: 0\nFeatures\t: fp asimd evtstrm aes\nCPU implementer\t: 0x41\n");
    let arm = |vendor: &str, product: &str| {
        guest(&[ARM, ("/sys/class/dmi/id/sys_vendor", vendor), ("/sys/class/dmi/id/product_name", product)])
    };
    for (vendor, product) in [
        ("Amazon EC2", "m7g.large"),
        ("QEMU", "KVM Virtual Machine"),
        ("QEMU", "QEMU Virtual Machine"),
        ("Google", "Google Compute Engine"),
        ("Microsoft Corporation", "Virtual Machine"),
        ("OpenStack Foundation", "OpenStack Nova"),
    ] {
        assert!(arm(vendor, product), "{vendor} {product}");
    }
    for (vendor, product) in [
        ("Amazon EC2", "c6g.metal\n"),
        ("Amazon EC2", "m8g.metal-24xl"),
        ("Ampere(R)", "Mt. Jade"),
        ("HPE", "ProLiant RL300 Gen11"),
        ("Microsoft Corporation", "Surface Pro X"),
    ] {
        assert!(!arm(vendor, product), "{vendor} {product}");
    }
    assert!(guest(&[ARM, ("/proc/device-tree/compatible", "linux,dummy-virt\0")]));
    assert!(
        !guest(&[ARM, ("/proc/device-tree/compatible", "raspberrypi,5-model-b\0brcm,bcm2712\0")])
            && !guest(&[ARM])
    );
    // x86 says it itself, whatever its firmware's name is.
    assert!(!guest(&[("/proc/cpuinfo", "flags\t: vmx\n"), ("/sys/class/dmi/id/sys_vendor", "Amazon EC2")]));
}

const VM: &str = "<domain type='kvm'>
  <name>web</name>
  <memory unit='KiB'>4194304</memory>
  <currentMemory unit='KiB'>2097152</currentMemory>
  <vcpu placement='static'>4</vcpu>
  <cputune>
    <vcpupin vcpu='0' cpuset='1'/>
    <vcpupin vcpu='1' cpuset='1'/>
  </cputune>
  <devices>
    <interface type='bridge'>
      <model type='virtio'/>
      <driver name='vhost' queues='2'/>
    </interface>
  </devices>
</domain>";

#[test]
fn definitions_of_vms_are_read() {
    let of = |xml: &str| tree(&[("/etc/libvirt/qemu/web.xml", xml)]);
    let t = of(VM);
    assert!(said(&t, "pinning", "pins of VM \"web\"").1.contains("2 vCPUs on pCPU 1:"));
    assert_eq!(said(&t, "balloon", "memory of VM \"web\"").0, Not);
    assert_eq!(said(&t, "queues", "queues of network of VM \"web\"").0, Not);
    let half = VM.replace("cpuset='1'/>\n  </cputune>", "cpuset='2'/>\n  </cputune>");
    assert!(said(&of(&half), "pinning", "pins").1.contains("roam"));
    let none =
        VM.replace("<vcpupin", "<other").replace("2097152", "4194304").replace("queues='2'", "queues='4'");
    let t = of(&none);
    assert_eq!(
        [said(&t, "pinning", "pins").0, said(&t, "balloon", "memory").0, said(&t, "queues", "queues").0],
        [Good; 3]
    );
    // Cut anywhere it is no fault.
    for n in 0..VM.len() {
        drop((audit(&of(&VM[..n])), audit(&of(&reduced_definition(&VM[..n])))));
    }
    let secret = VM.replace("<devices>", "<metadata>hunter2</metadata><devices><graphics passwd='hunter2'/>");
    let kept = reduced_definition(&secret);
    assert!(!kept.contains("hunter2") && reduced_definition(&kept) == kept, "{kept}");
    assert_eq!(audit(&of(&kept)), audit(&of(VM)));
}

#[test]
fn a_profile_that_is_not_in_force_is_told() {
    let profile = "[main]\ninclude=base\n[cpu]\ngovernor=performance\n[sysctl]\nvm.swappiness = 10\n";
    let base = "[sysctl]\nvm.swappiness=30\nkernel.x=${f:v}\nvm.dirty_ratio=40|20\n";
    let with = |more: &[(&str, &str)]| {
        let mut t = tree(&[
            ("/etc/tuned/active_profile", "fast\n"),
            ("/usr/lib/tuned/fast/tuned.conf", profile),
            ("/usr/lib/tuned/base/tuned.conf", base),
        ]);
        t.files.extend(tree(more).files);
        t
    };
    // verify says OK here: there is no cpufreq.
    let t = with(&[("/proc/sys/vm/swappiness", "10"), ("/proc/sys/vm/dirty_ratio", "20")]);
    let (state, why) = said(&t, "tuned", "tuned profile");
    assert!(state == Not && why.contains("governor=performance: nothing here can be set so"), "{why}");
    let t = with(&[
        ("/proc/sys/vm/swappiness", "10"),
        ("/proc/sys/vm/dirty_ratio", "20"),
        ("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "performance"),
    ]);
    assert_eq!(said(&t, "tuned", "tuned profile").0, Good);
    let t = with(&[
        ("/proc/sys/vm/swappiness", "60"),
        ("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "performance"),
    ]);
    let (state, why) = said(&t, "tuned", "tuned profile");
    assert!(state == Not && why.contains("vm.swappiness=10: in force is 60"), "{why}");
    let mut t = with(&[]);
    t.files.remove("/usr/lib/tuned/fast/tuned.conf");
    assert_eq!(said(&t, "tuned", "tuned profile").0, Not);
}

#[test]
fn switching_mitigations_off_is_never_proposed() {
    let t = tree(&[
        ("/sys/devices/system/cpu/vulnerabilities/spectre_v2", "Mitigation: Retpolines"),
        ("/sys/devices/system/cpu/vulnerabilities/mds", "Vulnerable"),
        ("/proc/cmdline", "ro mitigations=off"),
    ]);
    for f in audit(&t) {
        let change = f.change.unwrap_or_default();
        assert!(!change.contains("mitigations=off") || change.starts_with("remove"), "{change}");
        if f.check == "mitigations" && f.state == State::Not {
            assert!(
                f.reason.contains("SECURITY") && f.reason.contains("mitigations=off is on"),
                "{}",
                f.reason
            );
        }
    }
}

#[test]
fn virtio_devices_alone_have_queues_to_give() {
    const GUEST: [(&str, &str); 2] =
        [("/proc/cpuinfo", "flags : hypervisor\n"), ("/sys/devices/system/cpu/online", "0-7")];
    let names = [
        "lo", "eth0", "enp1s0", "ens5", "eth0.5", "docker0", "veth1a2b", "br-1f2e", "virbr0", "wg0", "tun0",
        "bond0",
    ];
    let queues: Vec<String> =
        names.iter().map(|n| format!("/sys/class/net/{n}/queues/tx-0/xps_cpus")).collect();
    let told = |more: &[(&str, &str)]| -> Vec<String> {
        let files = queues.iter().map(|q| (q.as_str(), "00")).chain(GUEST).chain(more.iter().copied());
        let all = audit(&tree(&files.collect::<Vec<_>>()));
        all.into_iter().filter(|f| f.check == "queues").map(|f| f.setting).collect()
    };
    let buses = [
        ("/sys/class/net/eth0/device/modalias", "virtio:d00000001v00001AF4\n"),
        ("/sys/class/net/ens5/device/modalias", "pci:v00001D0Fd0000EC20sv00001D0Fsd0000EC20bc02sc00i00\n"),
    ];
    assert_eq!(told(&buses), ["queues of eth0"]);
    assert_eq!(told(&buses[1..]), ["virtio queues"]);
    // A tree of before buses were captured.
    assert_eq!(told(&[]), ["queues of enp1s0", "queues of ens5", "queues of eth0"]);
}

#[test]
fn every_processor_must_be_quick() {
    let of = |preferences: &[&str]| {
        let files = preferences.iter().enumerate().map(|(n, p)| {
            (format!("/sys/devices/system/cpu/cpu{n}/cpufreq/energy_performance_preference"), (*p).to_owned())
        });
        said(&with(files.collect()), "energy", "energy preference")
    };
    let (state, why) = of(&["performance", "performance", "power", "balance_power", "performance"]);
    assert!(state == Not && why.contains("2 of 5 CPUs are told to save"), "{why}");
    assert_eq!(of(&["performance", "balance_performance", "default"]).0, Good);
    assert_eq!(of(&["balance_power", "balance_power"]), (Not, "the processor is told to save".into()));
}

#[test]
fn a_bound_of_a_profile_is_a_bound() {
    let of = |wanted: &str, in_force: &str| {
        let profile = format!("[sysctl]\nnet.core.rmem_max={wanted}\n");
        let t = tree(&[
            ("/etc/tuned/active_profile", "fast\n"),
            ("/usr/lib/tuned/fast/tuned.conf", &profile),
            ("/proc/sys/net/core/rmem_max", in_force),
        ]);
        said(&t, "tuned", "tuned profile").0
    };
    for (wanted, in_force) in [
        (">1048576", "1048576"),
        (">1048576", "4194304"),
        ("\">16384\"", "16385"),
        ("<10", "9"),
        ("10", "10"),
    ] {
        assert_eq!(of(wanted, in_force), Good, "{wanted}: {in_force}");
    }
    for (wanted, in_force) in [(">1048576", "212992"), ("<10", "11"), ("10", "11"), (">10", "x")] {
        assert_eq!(of(wanted, in_force), Not, "{wanted}: {in_force}");
    }
}

/// Lines as arch/x86/kernel/cpu/bugs.c and arch/arm64/kernel/proton-pack.c print them.
#[test]
fn a_line_is_read_to_its_end() {
    let of = |name: &str, line: &str| {
        let path = format!("/sys/devices/system/cpu/vulnerabilities/{name}");
        said(&tree(&[(&path, line)]), "mitigations", name)
    };
    let open = [
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
    for (name, line) in open {
        let (state, why) = of(name, line);
        assert!(state == Not && why.contains("SECURITY"), "{name}: {line}: {state:?}, {why}");
    }
    let closed = [
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
    for (name, line) in closed {
        assert_eq!(of(name, line).0, Good, "{name}: {line}");
    }
    // What the kernel does not know is neither.
    for line in ["Unknown: Dependent on hypervisor status", "Unknown: No mitigations"] {
        assert_eq!(of("mmio_stale_data", line).0, None_, "{line}");
    }
    assert_eq!(of("l1tf", "Not affected").0, None_);
    // The word that opened it is named.
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

/// A QEMU's process as the host crate hands it over: its reduced command line, and its vCPUs' threads with where they may run.
fn process(pid: u32, words: &[&str], threads: &[(&str, &str)]) -> Vec<(String, String)> {
    let line: String = words.iter().map(|w| format!("{w}\0")).collect();
    let at = format!("/proc/{pid}");
    let mut files = vec![
        (format!("{at}/cmdline"), line),
        (format!("{at}/status"), "Cpus_allowed_list:\t0-7\n".to_owned()),
        ("/sys/devices/system/cpu/online".to_owned(), "0-7\n".to_owned()),
    ];
    for (tid, (comm, cpus)) in (pid + 1..).zip(threads) {
        files.push((format!("{at}/task/{tid}/comm"), format!("{comm}\n")));
        files.push((format!("{at}/task/{tid}/status"), format!("Cpus_allowed_list:\t{cpus}\n")));
    }
    files
}

fn with(files: Vec<(String, String)>) -> Tree {
    Tree { files: files.into_iter().collect(), unread: BTreeMap::new() }
}

#[test]
fn a_running_vm_is_told_by_its_threads_and_command_line() {
    const NAME: [&str; 3] = ["kvm", "-name", "guest=web,debug-threads=on"];
    let pins =
        |threads: &[(&str, &str)]| said(&with(process(70, &NAME, threads)), "pinning", "pins of VM \"web\"");
    assert_eq!(pins(&[("CPU 0/KVM", "0-7"), ("CPU 1/KVM", "0-7")]).0, Good);
    assert_eq!(pins(&[("CPU 0/KVM", "1"), ("CPU 1/TCG", "2")]).0, Good);
    // Of CPUs that are offline no thread has any use.
    assert_eq!(pins(&[("CPU 0/KVM", "0-127"), ("CPU 1/KVM", "0-127")]).0, Good);
    let (state, why) = pins(&[("CPU 0/KVM", "1"), ("CPU 1/KVM", "1")]);
    assert!(state == Not && why.contains("2 vCPUs on pCPU 1:"), "{why}");
    let three = [("CPU 0/KVM", "0-1"), ("CPU 1/KVM", "0-1"), ("CPU 2/KVM", "0-1")];
    assert!(pins(&three).1.contains("3 vCPUs on pCPU 0-1:"));
    assert_eq!(pins(&three[..2]).0, Good, "two vCPUs have two pCPUs");
    let (state, why) = pins(&[("CPU 0/KVM", "1"), ("CPU 1/KVM", "0-7")]);
    assert!(state == Not && why.contains("roam"), "{why}");
    let (state, why) = pins(&[("ALL CPUs/TCG", "0-7")]);
    assert!(state == None_ && why.contains("one thread"), "{why}");
    assert!(pins(&[]).1.contains("no thread of a vCPU"));
    let unnamed = with(process(70, &["kvm", "-name", "guest=web"], &[("kvm", "0-7")]));
    let (state, why) = said(&unnamed, "pinning", "pins of VM \"web\"");
    assert!(state == None_ && why.contains("debug-threads=on"), "{why}");
    // A QEMU without a name, and without what tells which CPUs are online.
    let mut files = process(70, &["qemu-system-x86_64"], &[("CPU 0/KVM", "1")]);
    files.retain(|(path, _)| !path.ends_with("/online"));
    assert!(said(&with(files), "pinning", "pins of VM \"process 70\"").1.contains("online"));
    let by_hand = with(process(70, &NAME, &[("CPU 0/KVM", "1"), ("CPU 1/KVM", "1")]));
    let all = audit(&by_hand);
    let found = all.iter().find(|f| f.check == "pinning").unwrap();
    assert_eq!(found.change.as_deref(), Some("taskset -pc 0-7 71; taskset -pc 0-7 72"));
    assert_eq!(found.undo.as_deref(), Some("taskset -pc 1 71; taskset -pc 1 72"));
}

#[test]
fn queues_of_a_running_vm_are_its_command_lines() {
    /// Words behind the name, device, its state, and what its value begins with.
    type Line = (&'static [&'static str], &'static str, State, &'static str);
    const TAP2: &str = "type=tap,id=n0,fds=23:24";
    const NET: &str = "driver=virtio-net-pci,id=net0,netdev=n0,mq=on";
    let cases: &[Line] = &[
        (
            &["-smp", "cpus=4", "-netdev", "type=tap,id=n0,queues=4", "-device", NET],
            "network net0",
            Good,
            "4 for 4",
        ),
        (&["-smp", "cpus=4", "-netdev", TAP2, "-device", NET], "network net0", Not, "2 for 4"),
        // A device stands before its netdev as well as behind it.
        (&["-device", NET, "-netdev", TAP2, "-smp", "sockets=1,cores=2"], "network net0", Good, "2 for 2"),
        (
            &["-smp", "cpus=2", "-netdev", TAP2, "-device", "driver=virtio-net-pci,id=net0,netdev=n0"],
            "network net0",
            Not,
            "1 for 2",
        ),
        (&["-smp", "cpus=2", "-netdev", "type=user,id=n0", "-device", NET], "network net0", None_, "1"),
        (&["-smp", "cpus=2", "-nic", "type=tap,model=virtio-net-pci"], "network of", Not, "1 for 2"),
        (&["-smp", "cpus=2", "-net", "type=nic,model=virtio,name=x"], "network x of", Not, "1 for 2"),
        (&["-smp", "cpus=4", "-device", "driver=virtio-blk-pci,id=d"], "disk d of", Good, "4 for 4"),
        (
            &["-smp", "cpus=4", "-device", "driver=virtio-blk-pci,id=d,num-queues=1"],
            "disk d of",
            Not,
            "1 for 4",
        ),
        (
            &["-smp", "cpus=4", "-device", "driver=virtio-scsi-pci,id=s,num_queues=2"],
            "SCSI controller s",
            Not,
            "2 for 4",
        ),
        (&["-smp", "cpus=4", "-device", "driver=virtio-blk-ccw,id=d"], "disk d of", Not, "1 for 4"),
        (
            &["-smp", "cpus=4", "-machine", "type=pc-q35-5.1", "-device", "driver=virtio-blk-pci,id=d"],
            "disk d of",
            Not,
            "1 for 4",
        ),
        (
            &["-smp", "cpus=4", "-machine", "type=pc-q35-9.2+pve1", "-device", "driver=virtio-blk-pci,id=d"],
            "disk d of",
            Good,
            "4 for 4",
        ),
        (
            &["-smp", "cpus=4", "-machine", "type=pc-q35-jammy", "-device", "driver=virtio-blk-pci,id=d"],
            "disk d of",
            None_,
            "not there",
        ),
        (&["-smp", "cpus=4", "-drive", "if=virtio,id=d"], "disk d of", Good, "4 for 4"),
        (
            &["-smp", "maxcpus=8", "-device", "driver=virtio-blk-pci,id=d,num-queues=8"],
            "disk d of",
            Good,
            "8 for 8",
        ),
        (
            &["-machine", "type=q35,smp.cpus=8", "-device", "driver=virtio-blk-pci,id=d"],
            "disk d of",
            Good,
            "8 for 8",
        ),
        (
            &["-smp", "cpus=2,maxcpus=8", "-smp", "cpus=4", "-device", "driver=virtio-blk-pci,id=d"],
            "disk d of",
            Good,
            "4 for 4",
        ),
        (&["-device", "driver=virtio-blk-pci,id=d"], "disk d of", Good, "1 for 1"),
        // More than enough need not have as many.
        (
            &["-smp", "cpus=64", "-device", "driver=virtio-blk-pci,id=d,num-queues=16"],
            "disk d of",
            Good,
            "16 for 64",
        ),
    ];
    for (words, device, state, value) in cases {
        let words = [&["qemu-system-x86_64", "-name", "guest=web"][..], words].concat();
        let t = with(process(70, &words, &[]));
        let all = audit(&t);
        let setting = format!("queues of {device}");
        let found = all
            .iter()
            .find(|f| f.setting.starts_with(&setting))
            .unwrap_or_else(|| panic!("{words:?}: {all:#?}"));
        assert_eq!((found.state, found.value.starts_with(value)), (*state, true), "{words:?}: {found:?}");
    }
    // A vCPU that was plugged in later has a thread.
    let words =
        ["kvm", "-name", "guest=web", "-smp", "cpus=1,maxcpus=2", "-device", "driver=virtio-blk-pci,id=d"];
    let t = with(process(70, &words, &[("CPU 0/KVM", "0-7"), ("CPU 1/KVM", "0-7")]));
    assert_eq!(said(&t, "queues", "queues of disk d").0, Not);
    // Cut anywhere, with any number instead of a real one: no fault.
    let odd = ["kvm", "-smp", "cpus=18446744073709551615,sockets=99999999999,cores=99999999", "-device"];
    for cut in 0..odd.len() {
        drop(audit(&with(process(70, &odd[..cut], &[("CPU 99999999999/KVM", "8191"), ("CPU /", "x")]))));
    }
}

#[test]
fn what_runs_is_held_against_its_definition() {
    let uuid = "63715d0b-76a4-4a2a-8db6-9bda3af71014";
    let xml = VM
        .replace("<name>web</name>", &format!("<name>web</name><uuid>{uuid}</uuid>"))
        .replace("<model type='virtio'/>", "<mac address='52:54:00:0a:00:01'/><model type='virtio'/>");
    let words = |uuid: &str, queues: u32| -> Vec<String> {
        let net = "driver=virtio-net-pci,id=net0,netdev=n0,mac=52:54:00:0A:00:01,mq=on";
        let netdev = format!("type=tap,id=n0,queues={queues}");
        [
            "kvm",
            "-name",
            "guest=web,debug-threads=on",
            "-object",
            "qom-type=secret,id=masterKey0",
            "-uuid",
            uuid,
        ]
        .into_iter()
        .chain(["-netdev", netdev.as_str(), "-device", net])
        .map(str::to_owned)
        .collect()
    };
    let of = |uuid: &str, queues: u32, threads: &[(&str, &str)]| {
        let words = words(uuid, queues);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let mut files = process(70, &words, threads);
        files.push(("/etc/libvirt/qemu/web.xml".to_owned(), xml.clone()));
        audit(&with(files))
    };
    let settings = |found: &[Finding]| -> Vec<String> {
        let ours = found.iter().filter(|f| ["pinning", "queues"].contains(&f.check.as_str()));
        let mut all: Vec<String> = ours.map(|f| format!("{:?} {}", f.state, f.setting)).collect();
        all.sort();
        all
    };
    const AS_DEFINED: [(&str, &str); 4] =
        [("CPU 0/KVM", "1"), ("CPU 1/KVM", "1"), ("CPU 2/KVM", "0-7"), ("CPU 3/KVM", "0-7")];
    let found = of(uuid, 2, &AS_DEFINED);
    assert_eq!(settings(&found), ["Not pins of VM \"web\"", "Not queues of network net0 of VM \"web\""]);
    let live = [("CPU 0/KVM", "1"), ("CPU 1/KVM", "2"), ("CPU 2/KVM", "3"), ("CPU 3/KVM", "4")];
    let found = of(uuid, 4, &live);
    assert_eq!(
        settings(&found),
        [
            "AsItShould pins of VM \"web\"",
            "AsItShould queues of network net0 of VM \"web\"",
            "Not pins of VM \"web\" against its definition",
            "Not queues of network net0 of VM \"web\" against its definition",
        ]
    );
    let pins = found.iter().find(|f| f.setting.contains("pins of VM \"web\" against")).unwrap();
    assert_eq!(pins.value, "3 of 4 vCPUs differ");
    assert!(pins.reason.starts_with("vCPU 1 may run on 2 now and on 1 after"), "{}", pins.reason);
    assert_eq!(
        (pins.change.as_deref(), pins.undo.as_deref()),
        (
            Some(
                "virsh vcpupin web 1 2 --config; virsh vcpupin web 2 3 --config; virsh vcpupin web 3 4 --config"
            ),
            Some(
                "virsh vcpupin web 1 1 --config; virsh vcpupin web 2 0-7 --config; virsh vcpupin web 3 0-7 --config"
            ),
        )
    );
    // A cgroup's set holds for the whole process: no pin of a vCPU's.
    let mut files = process(70, &["kvm", "-name", "guest=web,debug-threads=on"], &[("CPU 0/KVM", "0-3")]);
    files
        .iter_mut()
        .filter(|f| f.0 == "/proc/70/status")
        .for_each(|f| f.1 = "Cpus_allowed_list:\t0-3".into());
    files.push(("/etc/libvirt/qemu/web.xml".to_owned(), xml.replace("<vcpupin", "<other")));
    assert_eq!(
        settings(&audit(&with(files))),
        ["AsItShould pins of VM \"web\"", "DoesNotApply virtio queues"]
    );
    // Another VM of that name.
    let found = of("00000000-0000-0000-0000-000000000001", 4, &live);
    assert!(settings(&found).iter().all(|s| !s.contains("against")), "{found:#?}");
    assert_eq!(found.iter().filter(|f| f.setting == "pins of VM \"web\"").count(), 2);
}
