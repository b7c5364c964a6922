//! Have virtio devices as many queues as there are vCPUs?
//!
//! With fewer, vCPUs share queues and their interrupts: iperf3 gained much by more queues in the study, a build nothing. Read in the guest from its
//! devices, on the host from VMs' definitions. Source: libvirt's formatdomain (driver queues); the study.

use super::pinning::{attribute, elements, name_of, vcpus_of};
use super::{Check, Finding, Tree};
use std::collections::BTreeMap;

/// See the file's head.
pub const CHECK: Check = Check { name: "queues", doc: "virtio queues against vCPUs", look };

/// More bring little (the study: 16 of 32).
const ENOUGH: usize = 16;

fn look(t: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    if let (true, Some(cpus)) = (t.is_guest(), t.cpus()) {
        let mut devices: BTreeMap<&str, usize> = BTreeMap::new();
        for (path, _) in t.matching("/sys/class/net/", "/xps_cpus") {
            *devices.entry(path.split('/').next().unwrap_or(path)).or_default() += 1;
        }
        for (path, _) in t.matching("/sys/block/", "/cpu_list") {
            *devices.entry(path.split('/').next().unwrap_or(path)).or_default() += 1;
        }
        found.extend(
            devices
                .into_iter()
                .filter(|(d, _)| *d != "lo")
                .map(|(device, queues)| told(device, queues, cpus)),
        );
    }
    for (file, text) in t.matching("/etc/libvirt/qemu/", ".xml") {
        let (name, vcpus) = (name_of(text).unwrap_or(file), vcpus_of(text));
        for interface in elements(text, "interface") {
            if attribute(interface, "model", "type") != Some("virtio") {
                continue;
            }
            let queues = attribute(interface, "driver", "queues").and_then(|q| q.parse().ok()).unwrap_or(1);
            found.push(told(&format!("network of VM {name:?}"), queues, vcpus));
        }
    }
    if found.is_empty() {
        vec![Finding::none("virtio queues", "no virtio device, and no definition of a VM with one, is here")]
    } else {
        found
    }
}

fn told(device: &str, queues: usize, vcpus: usize) -> Finding {
    let (setting, value) = (format!("queues of {device}"), format!("{queues} for {vcpus} vCPUs"));
    if queues >= vcpus.min(ENOUGH) {
        return Finding::good(setting, value, "each vCPU has its own, or there are enough");
    }
    let wanted = vcpus.min(ENOUGH);
    let driver = if device.starts_with("vd") { "<driver name='qemu'" } else { "<driver name='vhost'" };
    Finding::bad(
        setting,
        value,
        "vCPUs share queues: traffic from many vCPUs waits; a VM that only computes gains nothing",
        (
            "a vhost thread's memory per queue; with 32 queues the study's VM hung at boot unless its vCPUs were pinned",
            format!("{driver} queues='{wanted}'/> in the VM's definition, and start it anew"),
            format!("{driver} queues='{queues}'/>"),
        ),
    )
}
