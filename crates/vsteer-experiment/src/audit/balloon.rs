//! Does a memory balloon take memory from VMs? A ballooned guest swaps or drops caches, which its host does not see.
//!
//! Source: libvirt's formatdomain (memballoon, currentMemory).

use super::definition::{content, elements, name_of};
use super::{Check, Finding, Tree};
use vsteer_core::plural::counted;
use vsteer_core::setting::argv::virsh_word;

pub const CHECK: Check = Check {
    name: "balloon",
    doc: "memory ballooning",
    rests_on: &["etc/libvirt/qemu/", "virtio_balloon"],
    look,
};

fn kib(xml: &str, name: &str) -> Option<f64> {
    let element = elements(xml, name).into_iter().next()?;
    let (tag, rest) = element.split_once('>')?;
    let n: f64 = rest.split('<').next()?.trim().parse().ok()?;
    let unit = tag.split("unit=").nth(1).map_or("KiB", |u| u.trim_matches(['\'', '"']));
    let scale = match unit.trim_end_matches(['\'', '"']) {
        "b" | "bytes" => 1.0 / 1024.0,
        "MiB" | "M" => 1024.0,
        "GiB" | "G" => 1024.0 * 1024.0,
        _ => 1.0,
    };
    Some(n * scale)
}

fn look(t: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for (file, xml) in t.matching("/etc/libvirt/qemu/", ".xml") {
        let name = name_of(xml).unwrap_or(file);
        let setting = format!("memory of VM {name:?}");
        let word = virsh_word(name, content(xml, "uuid"));
        match (kib(xml, "memory"), kib(xml, "currentMemory")) {
            (Some(all), Some(now)) if now < 0.99 * all => found.push(Finding::bad(
                setting,
                format!("{:.0} of {:.0} MiB", now / 1024.0, all / 1024.0),
                "the balloon holds the rest, so the guest has less memory than its definition says",
                (
                    "the host then has less free memory",
                    format!("virsh setmem {word} {all:.0}k --config --live"),
                    format!("virsh setmem {word} {now:.0}k --config --live"),
                ),
            )),
            (Some(all), _) => found.push(Finding::good(
                setting,
                format!("{:.0} MiB", all / 1024.0),
                "the guest has all of its memory",
            )),
            _ => {}
        }
    }
    let devices = t.files.keys().filter(|p| p.starts_with("/sys/bus/virtio/drivers/virtio_balloon/")).count();
    if devices > 0 {
        found.push(Finding::good(
            "balloon of this guest",
            counted(devices, "device"),
            "the host can take memory from this guest; the balloon counters in /proc/vmstat show whether \
                it does",
        ));
    }
    if found.is_empty() {
        let none = || "no VM definition and no balloon device found".to_owned();
        vec![Finding::none("ballooning", t.definitions_unread().unwrap_or_else(none))]
    } else {
        found
    }
}
