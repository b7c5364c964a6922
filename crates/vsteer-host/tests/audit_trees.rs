//! Is a captured machine audited as a person would who looked at its files?
//!
//! `audit/cloud-guest`: the files that `vsteer audit --capture` wrote on a development machine of vsteer's, a
//! Firecracker guest of a cloud with two vCPUs (November 2026), unchanged but for the names of hosts and the words of
//! its boot that say where it runs. `audit/running-vm`: what `vsteer audit --capture` wrote of VMs in a PID namespace
//! of that machine (QEMU 7.2.22 by TCG, all of them paused with `-S`, libvirt 9.0), of its other files only which CPUs
//! are online. By libvirt: `web`, defined with both vCPUs on pCPU 0 and two queues, started, then `virsh vcpupin web 1
//! 1 --live` and the definition changed to one queue. By hand: `by hand` with networks on a tap of two queues and on
//! QEMU's user network, a disk and a SCSI controller of one queue, two of its four vCPUs pinned to pCPU 1 by
//! `taskset`; `unnamed` without `debug-threads=on`, as a machine of QEMU 5.1; `one-thread` with `thread=single`;
//! `{"no":1}`, a microvm with its disk said in JSON. Two had a secret among their words, the definition a password:
//! neither is in the tree. More machines, captured by others: the lab's case `audit`. GAP(audit-trees): no
//! Threadripper and no EPYC of Zen 4 with all files that the audit reads.

use std::path::Path;
use vsteer_core::tree::Tree;
use vsteer_experiment::audit::{Finding, State, WANTED, audit};
use vsteer_host::root::Root;

fn tree(name: &str) -> Tree {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/audit").join(name);
    vsteer_host::tree::read(&Root::open(folder).unwrap(), &WANTED)
}

#[test]
fn running_vms_by_libvirt_and_by_hand() {
    let tree = tree("running-vm");
    assert!(tree.files.values().all(|text| !text.contains("hunter2") && !text.contains("/master-key")));
    let found = audit(&tree);
    let ours = |f: &&Finding| ["pinning", "queues"].contains(&f.check.as_str());
    let mut said: Vec<String> =
        found.iter().filter(ours).map(|f| format!("{:?} {}: {}", f.state, f.setting, f.value)).collect();
    said.sort();
    assert_eq!(
        said,
        [
            r#"AsItShould pins of VM "web": 2 of 2 vCPUs, running"#,
            r#"AsItShould pins of VM "{\"no\":1}": none, running"#,
            r#"AsItShould queues of disk disk0 of VM "by hand": 4 for 4 vCPUs, running"#,
            r#"AsItShould queues of disk virtio-disk0 of VM "web": 2 for 2 vCPUs, running"#,
            r#"AsItShould queues of network net0 of VM "web": 2 for 2 vCPUs, running"#,
            r#"DoesNotApply pins of VM "one-thread": not there"#,
            r#"DoesNotApply pins of VM "unnamed": not there"#,
            r#"DoesNotApply queues of network nic1 of VM "by hand": 1"#,
            r#"DoesNotApply queues of network of VM "unnamed": 1"#,
            r#"Not pins of VM "by hand": 2 of 4 vCPUs, running"#,
            r#"Not pins of VM "web" compared with its definition: 1 of 2 vCPUs differ"#,
            r#"Not queues of SCSI controller scsi0 of VM "by hand": 1 for 4 vCPUs, running"#,
            // As QEMU's own `info qtree` shows of both machines.
            r#"Not queues of disk disk0 of VM "{\"no\":1}": 1 for 2 vCPUs, running"#,
            r#"Not queues of disk of VM "unnamed": 1 for 2 vCPUs, running"#,
            r#"Not queues of network net0 of VM "web" compared with its definition: 2 running, 1 defined"#,
            r#"Not queues of network nic0 of VM "by hand": 2 for 4 vCPUs, running"#,
        ]
    );
}

#[test]
fn a_cloud_guest() {
    let tree = tree("cloud-guest");
    assert!(tree.is_guest() && tree.cpus() == Some(2), "{:?}", tree.text("/proc/cpuinfo"));
    let found = audit(&tree);
    let state = |check: &str, setting: &str| {
        let one = found.iter().find(|f| f.check == check && f.setting.starts_with(setting));
        one.unwrap_or_else(|| panic!("{check} says nothing of {setting}: {found:#?}")).state
    };
    // A guest scales no frequencies and has no power limits; tuned was not set up.
    for (check, setting) in
        [("scaling", "scaling"), ("power_caps", "power"), ("tuned", "tuned"), ("boost", "boost")]
    {
        assert_eq!(state(check, setting), State::DoesNotApply, "{check}");
    }
    assert_eq!(state("clocksource", "clocksource"), State::AsItShould);
    assert_eq!(state("idle", "idle states"), State::AsItShould);
    // What its kernel says itself of a processor of which its host shows it no more.
    assert_eq!(state("mitigations", "spec_store_bypass"), State::Not);
    assert_eq!(state("mitigations", "spectre_v2"), State::AsItShould);
    assert_eq!(state("mitigations", "meltdown"), State::DoesNotApply);
    assert_eq!(state("queues", "queues of vda"), State::Not);
    assert!(found.iter().filter(|f| f.check == "mitigations").count() > 10);
}
