//! Are vCPUs pinned sensibly, where they are pinned?
//!
//! Two vCPUs of one VM on one pCPU wait for each other; a VM of which some vCPUs are pinned and others roam has the worst of both. Unpinned is as it
//! should be unless somebody needs even times. Read from definitions as text: elements and attributes as libvirt writes them. Source: libvirt's
//! formatdomain (cputune); what pins cost in waiting `vsteer diagnose` measures. Left out: pins of VMs that are not libvirt's.

use super::{Check, Finding, Tree};
use std::collections::BTreeMap;

/// See the file's head.
pub const CHECK: Check = Check { name: "pinning", doc: "pins of vCPUs", look };

/// The texts of elements of this name, from tag to tag.
pub fn elements<'a>(xml: &'a str, name: &str) -> Vec<&'a str> {
    let (open, close) = (format!("<{name}"), format!("</{name}>"));
    let mut out = Vec::new();
    let mut rest = xml;
    while let Some(at) = rest.find(&open) {
        let body = &rest[at..];
        // <vcpu is not <vcpupin.
        let is_it = body[open.len()..].starts_with(|c: char| c.is_whitespace() || c == '>' || c == '/');
        let end = match body.find('>') {
            Some(e) if body[..e].ends_with('/') => e + 1,
            Some(_) => body.find(&close).map_or(body.len(), |e| e + close.len()),
            None => body.len(),
        };
        if is_it {
            out.push(&body[..end]);
        }
        rest = &body[if is_it { end } else { open.len() }..];
    }
    out
}

/// An attribute of the first element of this name.
pub fn attribute<'a>(xml: &'a str, element: &str, name: &str) -> Option<&'a str> {
    let tag = elements(xml, element).into_iter().next()?;
    let tag = &tag[..tag.find('>')?];
    let value = tag.split(&format!(" {name}=")).nth(1)?;
    let quote = value.chars().next().filter(|c| "'\"".contains(*c))?;
    value[1..].split(quote).next()
}

fn content<'a>(xml: &'a str, name: &str) -> Option<&'a str> {
    let element = elements(xml, name).into_iter().next()?;
    element.split_once('>')?.1.split('<').next().map(str::trim)
}

/// The VM's name.
pub fn name_of(xml: &str) -> Option<&str> {
    content(xml, "name")
}

/// Its vCPUs.
pub fn vcpus_of(xml: &str) -> usize {
    content(xml, "vcpu").and_then(|n| n.parse().ok()).unwrap_or(1)
}

fn look(t: &Tree) -> Vec<Finding> {
    let found: Vec<Finding> = t
        .matching("/etc/libvirt/qemu/", ".xml")
        .map(|(file, xml)| one(name_of(xml).unwrap_or(file), xml))
        .collect();
    if found.is_empty() {
        vec![Finding::none("pins of vCPUs", "no definition of a VM of libvirt's is here")]
    } else {
        found
    }
}

fn one(name: &str, xml: &str) -> Finding {
    let (setting, vcpus) = (format!("pins of VM {name:?}"), vcpus_of(xml));
    let mut single: BTreeMap<&str, usize> = BTreeMap::new();
    let pins = elements(xml, "vcpupin");
    for pin in &pins {
        if let Some(cpus) = attribute(pin, "vcpupin", "cpuset")
            && cpus.parse::<u32>().is_ok()
        {
            *single.entry(cpus).or_default() += 1;
        }
    }
    let shared: Vec<&str> = single.iter().filter(|(_, n)| **n > 1).map(|(c, _)| *c).collect();
    let value = format!("{} of {vcpus} vCPUs", pins.len());
    let unpin = (
        "a VM whose pins were meant so loses its even times",
        format!("remove <vcpupin> of {name:?}, or `vsteer plan` while it runs"),
        "the former <vcpupin>",
    );
    if !shared.is_empty() {
        Finding::bad(
            setting,
            value,
            format!("several vCPUs on pCPU {}: they wait for each other", shared.join(", ")),
            unpin,
        )
    } else if !pins.is_empty() && pins.len() < vcpus {
        Finding::bad(setting, value, "some are pinned and others roam", unpin)
    } else if pins.is_empty() {
        Finding::good(setting, "none", "the scheduler may use every idle pCPU")
    } else {
        Finding::good(setting, value, "one by one; `vsteer diagnose` tells whether that costs waiting")
    }
}
