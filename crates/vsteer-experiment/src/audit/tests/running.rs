//! VMs that run, beside what defines them.

use super::*;

/// A QEMU's process as the host crate hands it over: its reduced command line, and its vCPUs' threads with where
/// they may run.
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
    assert!(pins(&three).1.contains("3 vCPUs on pCPUs 0-1:"));
    assert_eq!(pins(&three[..2]).0, Good, "two vCPUs have two pCPUs");
    let (state, why) = pins(&[("CPU 0/KVM", "1"), ("CPU 1/KVM", "0-7")]);
    assert!(state == Not && why.contains("only some"), "{why}");
    let (state, why) = pins(&[("ALL CPUs/TCG", "0-7")]);
    assert!(state == None_ && why.contains("one thread"), "{why}");
    assert!(pins(&[]).1.contains("no vCPU thread"));
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

/// Words behind the name, device, its state, and what its value begins with.
type Line = (&'static [&'static str], &'static str, State, &'static str);
const TAP2: &str = "type=tap,id=n0,fds=23:24";
const NET: &str = "driver=virtio-net-pci,id=net0,netdev=n0,mq=on";

/// Command lines, and what is said of the queues that they give a device.
const LINES: &[Line] = &[
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
    (&["-smp", "cpus=4", "-device", "driver=virtio-blk-pci,id=d,num-queues=1"], "disk d of", Not, "1 for 4"),
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

#[test]
fn queues_of_a_running_vm_are_its_command_lines() {
    for (words, device, state, value) in LINES {
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
}

#[test]
fn queues_are_held_against_the_vcpus_that_have_threads() {
    // A vCPU that was plugged in later has a thread.
    let words =
        ["kvm", "-name", "guest=web", "-smp", "cpus=1,maxcpus=2", "-device", "driver=virtio-blk-pci,id=d"];
    let t = with(process(70, &words, &[("CPU 0/KVM", "0-7"), ("CPU 1/KVM", "0-7")]));
    assert_eq!(said(&t, "queues", "queues of disk d").0, Not);
}

#[test]
fn a_command_line_that_is_cut_anywhere_brings_no_fault() {
    // With any number instead of a real one.
    let odd = ["kvm", "-smp", "cpus=18446744073709551615,sockets=99999999999,cores=99999999", "-device"];
    for cut in 0..odd.len() {
        drop(audit(&with(process(70, &odd[..cut], &[("CPU 99999999999/KVM", "8191"), ("CPU /", "x")]))));
    }
}

const UUID: &str = "63715d0b-76a4-4a2a-8db6-9bda3af71014";
/// Where the vCPUs of a VM may run that libvirt started by [`defined`].
const AS_DEFINED: [(&str, &str); 4] =
    [("CPU 0/KVM", "1"), ("CPU 1/KVM", "1"), ("CPU 2/KVM", "0-7"), ("CPU 3/KVM", "0-7")];
/// Where they may run after somebody has pinned them by hand.
const BY_HAND: [(&str, &str); 4] =
    [("CPU 0/KVM", "1"), ("CPU 1/KVM", "2"), ("CPU 2/KVM", "3"), ("CPU 3/KVM", "4")];

/// [`VM`] with what a process is recognised by.
fn defined() -> String {
    VM.replace("<name>web</name>", &format!("<name>web</name><uuid>{UUID}</uuid>"))
        .replace("<model type='virtio'/>", "<mac address='52:54:00:0a:00:01'/><model type='virtio'/>")
}

/// What is found of a VM that runs beside the definition.
fn beside_definition(uuid: &str, queues: u32, threads: &[(&str, &str)]) -> Vec<Finding> {
    let net = "driver=virtio-net-pci,id=net0,netdev=n0,mac=52:54:00:0A:00:01,mq=on";
    let netdev = format!("type=tap,id=n0,queues={queues}");
    let name = "guest=web,debug-threads=on";
    let secret = ["-object", "qom-type=secret,id=masterKey0"];
    let devices = ["-netdev", netdev.as_str(), "-device", net];
    let words = [&["kvm", "-name", name][..], &secret, &["-uuid", uuid], &devices].concat();
    let mut files = process(70, &words, threads);
    files.push(("/etc/libvirt/qemu/web.xml".to_owned(), defined()));
    audit(&with(files))
}

/// States of the settings that both a process and a definition tell.
fn settings(found: &[Finding]) -> Vec<String> {
    let ours = found.iter().filter(|f| ["pinning", "queues"].contains(&f.check.as_str()));
    let mut all: Vec<String> = ours.map(|f| format!("{:?} {}", f.state, f.setting)).collect();
    all.sort();
    all
}

#[test]
fn what_runs_is_held_against_its_definition() {
    let found = beside_definition(UUID, 2, &AS_DEFINED);
    assert_eq!(settings(&found), ["Not pins of VM \"web\"", "Not queues of network net0 of VM \"web\""]);
    let found = beside_definition(UUID, 4, &BY_HAND);
    assert_eq!(
        settings(&found),
        [
            "AsItShould pins of VM \"web\"",
            "AsItShould queues of network net0 of VM \"web\"",
            "Not pins of VM \"web\" compared with its definition",
            "Not queues of network net0 of VM \"web\" compared with its definition",
        ]
    );
    let pins = found.iter().find(|f| f.setting.contains("pins of VM \"web\" compared")).unwrap();
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
}

#[test]
fn a_cgroups_set_of_cpus_is_no_pin_of_a_vcpus() {
    // It holds for the whole process.
    let mut files = process(70, &["kvm", "-name", "guest=web,debug-threads=on"], &[("CPU 0/KVM", "0-3")]);
    files
        .iter_mut()
        .filter(|f| f.0 == "/proc/70/status")
        .for_each(|f| f.1 = "Cpus_allowed_list:\t0-3".into());
    files.push(("/etc/libvirt/qemu/web.xml".to_owned(), defined().replace("<vcpupin", "<other")));
    assert_eq!(
        settings(&audit(&with(files))),
        ["AsItShould pins of VM \"web\"", "DoesNotApply virtio queues"]
    );
}

#[test]
fn another_vm_of_that_name_is_not_held_against_the_definition() {
    let found = beside_definition("00000000-0000-0000-0000-000000000001", 4, &BY_HAND);
    assert!(settings(&found).iter().all(|s| !s.contains("compared with")), "{found:#?}");
    assert_eq!(found.iter().filter(|f| f.setting == "pins of VM \"web\"").count(), 2);
}
