//! tuned's profiles on the machines of the published study, and on machines that lack some of their settings.
//!
//! The profiles' settings are those of tuned 2.20 (Debian 12) that the check looks at.

use super::*;

const PROFILES: [(&str, &str); 4] = [
    (
        "balanced",
        "[cpu]\npriority=10\ngovernor=schedutil|ondemand|powersave\nenergy_perf_bias=normal\n\
         energy_performance_preference=balance_performance\n",
    ),
    (
        "throughput-performance",
        "[cpu]\ngovernor=performance\nenergy_perf_bias=performance\nmin_perf_pct=100\n\
         energy_performance_preference=performance\n[sysctl]\nvm.dirty_ratio=40\n",
    ),
    (
        "virtual-host",
        "[main]\ninclude=throughput-performance\n[sysctl]\nvm.dirty_background_ratio=5\n[cpu]\n\
         force_latency=cstate.id_no_zero:3|70\n",
    ),
    (
        "powersave",
        "[cpu]\ngovernor=schedutil|ondemand|powersave\nenergy_perf_bias=powersave|power\nenergy_performance_preference=power\n",
    ),
];

/// A host with two CPUs of an EPYC 9354P, with this profile. An empty driver: a guest without cpufreq.
fn host(driver: &str, governor: &str, preference: &str, profile: &str) -> Tree {
    let vendor = if driver.is_empty() { "flags : hypervisor svm\n" } else { "flags : svm cppc\n" };
    let cpus = format!("vendor_id : AuthenticAMD\ncpu family : 25\nmodel : 17\n{vendor}");
    let mut files = vec![
        ("/proc/cpuinfo".to_owned(), cpus),
        ("/etc/tuned/active_profile".to_owned(), format!("{profile}\n")),
        ("/proc/sys/vm/dirty_ratio".to_owned(), "40".to_owned()),
        ("/proc/sys/vm/dirty_background_ratio".to_owned(), "5".to_owned()),
    ];
    for (name, text) in PROFILES {
        files.push((format!("/usr/lib/tuned/profiles/{name}/tuned.conf"), text.to_owned()));
    }
    for cpu in 0..2 {
        let place = format!("/sys/devices/system/cpu/cpu{cpu}/cpufreq");
        let settings = [
            ("scaling_driver", driver),
            ("scaling_governor", governor),
            ("energy_performance_preference", preference),
        ];
        let there = settings.iter().filter(|(_, value)| !value.is_empty());
        files.extend(there.map(|(name, value)| (format!("{place}/{name}"), (*value).to_owned())));
    }
    with(files)
}

/// Check and setting of each finding that needs a change.
fn wrong(t: &Tree) -> Vec<String> {
    let found = audit(t).into_iter().filter(|f| f.state == Not);
    found.map(|f| format!("{}: {}", f.check, f.setting)).collect()
}

#[test]
fn the_hosts_of_the_study() {
    const DRIVER: &str = "scaling: scaling driver";
    const FAST: &str = "tuned: speed of the profile";
    const IDLE: &str = "tuned: idle power of the profile";
    const PREFERENCE: &str = "energy: energy preference";
    // acpi-cpufreq has no energy preference, so the profile cannot set it.
    assert_eq!(wrong(&host("acpi-cpufreq", "schedutil", "", "balanced")), [FAST, DRIVER]);
    assert_eq!(wrong(&host("acpi-cpufreq", "ondemand", "", "powersave")), [DRIVER]);
    assert_eq!(wrong(&host("acpi-cpufreq", "performance", "", "virtual-host")), [IDLE, DRIVER]);
    assert_eq!(wrong(&host("amd-pstate-epp", "performance", "performance", "virtual-host")), [IDLE]);
    assert_eq!(
        wrong(&host("amd-pstate-epp", "performance", "performance", "throughput-performance")),
        [""; 0]
    );
    assert_eq!(wrong(&host("amd-pstate-epp", "powersave", "balance_performance", "balanced")), [PREFERENCE]);
    // In guided mode balanced was as fast as the others.
    assert_eq!(wrong(&host("amd-pstate", "schedutil", "", "balanced")), [""; 0]);
}

#[test]
fn what_tuned_passes_over_is_no_fault() {
    for (profile, _) in PROFILES {
        let guest = host("", "", "", profile);
        let (state, why) = said(&guest, "tuned", "tuned profile");
        assert_eq!(state, Good, "{profile}: {why}");
        assert!(why.contains("which tuned passes over"), "{profile}: {why}");
    }
    // tuned does not pass over a setting that exists.
    let (state, why) = said(&host("acpi-cpufreq", "powersave", "", "virtual-host"), "tuned", "tuned profile");
    assert!(state == Not && why.contains("governor=performance: the value in force is powersave"), "{why}");
}

#[test]
fn the_45_percent_were_the_profiles() {
    let t = host("acpi-cpufreq", "schedutil", "", "balanced");
    assert!(!said(&t, "scaling", "scaling driver").1.contains('%'));
    assert!(said(&t, "tuned", "speed of the profile").1.contains("45 % faster with another profile"));
    let idle = said(&host("acpi-cpufreq", "performance", "", "virtual-host"), "tuned", "idle power").1;
    assert!(idle.contains("89 W") && idle.contains("75 W"), "{idle}");
}

#[test]
fn a_profile_for_real_time_guests_keeps_its_latency() {
    let mut t = host("intel_pstate", "performance", "performance", "realtime-virtual-host");
    let profile = "[main]\ninclude=network-latency\n[cpu]\nforce_latency=cstate.id:1|3\n";
    t.files.insert("/usr/lib/tuned/profiles/realtime-virtual-host/tuned.conf".to_owned(), profile.to_owned());
    assert_eq!(wrong(&t), [""; 0]);
}

#[test]
fn profiles_that_include_each_other_end() {
    let mut t = host("acpi-cpufreq", "performance", "", "a");
    for name in ["a", "b"] {
        let text = format!(
            "[main]\ninclude={}\n[sysctl]\nnet.ipv4.tcp_fastopen_key=1\nvm.swappiness=1\n",
            "a b ".repeat(40)
        );
        t.files.insert(format!("/etc/tuned/profiles/{name}/tuned.conf"), text);
    }
    assert_eq!(said(&t, "tuned", "tuned profile").0, Good);
    let files = (WANTED.besides)(&t);
    assert!(files.iter().any(|f| f == "/proc/sys/vm/swappiness"), "{files:?}");
    assert!(!files.iter().any(|f| f.contains("key")), "a capture holds no secret: {files:?}");
}

#[test]
fn what_another_profile_would_change() {
    let t = host("acpi-cpufreq", "schedutil", "", "balanced");
    let told = instead(&t, "virtual-host").unwrap();
    let rows: Vec<(&str, &str, &str, bool)> =
        told.settings.iter().map(|s| (s.key.as_str(), s.now.as_str(), s.then.as_str(), s.changes)).collect();
    assert_eq!(
        rows,
        [
            ("cpu.governor", "schedutil", "performance", true),
            ("sysctl.vm.dirty_background_ratio", "5", "5", false),
            ("sysctl.vm.dirty_ratio", "40", "40", false),
        ]
    );
    assert_eq!(told.passed_over, ["cpu.energy_performance_preference=performance"]);
    let others = [
        "cpu.energy_perf_bias=performance",
        "cpu.force_latency=cstate.id_no_zero:3|70",
        "cpu.min_perf_pct=100",
    ];
    assert_eq!(told.not_compared, others);
    assert!(told.notes[0].contains("89 W"), "{:?}", told.notes);
    // The first of two that is in force stays.
    let told = instead(&host("acpi-cpufreq", "ondemand", "", "virtual-host"), "balanced").unwrap();
    let governor = told.settings.iter().find(|s| s.key == "cpu.governor").unwrap();
    assert!(!governor.changes && told.notes.is_empty(), "{told:?}");
    let fault = instead(&t, "fast").unwrap_err();
    assert_eq!(
        fault.help.as_deref(),
        Some("profiles: balanced, powersave, throughput-performance, virtual-host")
    );
    assert!(
        instead(&Tree::default(), "fast")
            .unwrap_err()
            .help
            .unwrap()
            .contains("no profile of tuned was found")
    );
}
