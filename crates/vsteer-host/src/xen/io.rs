//! Counts the I/O that domains cause: the counters of Domain-0's drivers for the disks and networks that they
//! serve.
//!
//! `vbd-3-51712` serves a disk to domain 3 and counts its requests. `vif3.0` is Domain-0's end of the
//! domain's network and counts packets. If a domain gets its devices elsewhere (QEMU, another driver domain),
//! it has no count here, which does not mean zero.
//!
//! XenMon counted pages passed between domains, but today's drivers no longer pass pages.
//!
//! Source: Linux, drivers/block/xen-blkback/xenbus.c (`VBD_SHOW`: `rd_req`, `wr_req`, `f_req`, `ds_req`);
//! Xen's `vif-common.sh` names the interfaces. `xentop` reads the same.
//!
//! Left out: bytes; hosts over SSH. Untried with real devices: the lab's domains have none.

use super::config::vm_id;
use super::listing::Domain;
use super::tools::Place;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use vsteer_core::nouns::VmSample;

const DISKS: &str = "sys/bus/xen-backend/devices";
const NETWORKS: &str = "sys/class/net";
/// Counters of reads, writes, flushes and discards.
const REQUESTS: [&str; 4] = ["rd_req", "wr_req", "f_req", "ds_req"];
const PACKETS: [&str; 2] = ["rx_packets", "tx_packets"];

/// Disk requests plus packets of each domain since its devices were made. `root` is `/`.
pub fn counts(root: &Path) -> BTreeMap<u16, u64> {
    let mut all = BTreeMap::new();
    let mut sum = |folder: &str, domain: fn(&str) -> Option<u16>, of: &[&str]| {
        for entry in fs::read_dir(root.join(folder)).into_iter().flatten().flatten() {
            let Some(domain) = entry.file_name().to_str().and_then(domain) else { continue };
            let number = |name: &&str| -> Option<u64> {
                let text = fs::read_to_string(entry.path().join("statistics").join(name)).ok()?;
                text.trim().parse().ok()
            };
            // A device that disappears at this moment is not counted.
            let counted: Vec<u64> = of.iter().filter_map(number).collect();
            if !counted.is_empty() {
                *all.entry(domain).or_insert(0) += counted.iter().sum::<u64>();
            }
        }
    };
    sum(DISKS, of_disk, &REQUESTS);
    sum(NETWORKS, of_network, &PACKETS);
    all
}

/// The same counts as samples. Over SSH there are none, because vsteer reads devices only on its own machine.
pub(super) fn samples(place: &Place, domains: &[Domain]) -> Vec<VmSample> {
    let counted = if *place == Place::Here { counts(Path::new("/")) } else { BTreeMap::new() };
    let sample = |d: &Domain| {
        let io = Some(*counted.get(&d.id)?);
        Some(VmSample { io, ..VmSample::new(vm_id(d)) })
    };
    domains.iter().filter_map(sample).collect()
}

fn of_disk(name: &str) -> Option<u16> {
    let (domain, device) = name.strip_prefix("vbd-")?.split_once('-')?;
    device.parse::<u32>().ok()?;
    domain.parse().ok()
}

/// Returns 3 for `vif3.0`. A name that ends in `-emu` is a second interface for the same network, so it does
/// not count.
fn of_network(name: &str) -> Option<u16> {
    let (domain, device) = name.strip_prefix("vif")?.split_once('.')?;
    device.parse::<u32>().ok()?;
    domain.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disks_and_networks_are_summed_by_domain() {
        let root = tempfile::tempdir().unwrap();
        let put = |folder: &str, device: &str, counts: &[(&str, &str)]| {
            let place = root.path().join(folder).join(device).join("statistics");
            fs::create_dir_all(&place).unwrap();
            counts.iter().for_each(|(name, text)| fs::write(place.join(name), text).unwrap());
        };
        put(
            DISKS,
            "vbd-3-51712",
            &[("rd_req", "100\n"), ("wr_req", "20\n"), ("f_req", "3\n"), ("oo_req", "9\n")],
        );
        put(DISKS, "vbd-3-51728", &[("rd_req", "7\n")]);
        put(DISKS, "vbd-4-51712", &[]);
        put(DISKS, "vif-3-0", &[("rd_req", "5\n")]);
        put(NETWORKS, "vif3.0", &[("rx_packets", "1000\n"), ("tx_packets", "500\n")]);
        put(NETWORKS, "vif3.0-emu", &[("rx_packets", "8\n")]);
        put(NETWORKS, "eth0", &[("rx_packets", "9\n")]);
        assert_eq!(counts(root.path()), BTreeMap::from([(3, 1630)]));
        assert_eq!(counts(Path::new("/nowhere")), BTreeMap::new());
    }
}
