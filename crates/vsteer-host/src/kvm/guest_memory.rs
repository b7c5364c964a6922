//! Which NUMA nodes does QEMU's command line show the guest, and what keeps the VM's memory and devices where they are?
//!
//! `-numa node` names the vCPUs of a guest node and its memory backend (`memdev=`), which may come later on the line. A
//! backend is bound to nodes of the host by `host-nodes=`. Every `policy=` but `default` counts, because the kernel does not
//! move pages of memory that has a policy.
//!
//! Source: `qemu-options.hx` and `hw/core/numa.c` (QEMU 7.2); `hw/vfio/pci.c`.
//!
//! Left out: `-numa cpu`, so the vCPUs of such guest nodes stay unknown (Incus writes it). vCPUs that QEMU itself spreads over
//! nodes where no `cpus=` stands. Huge pages are known by the folder's name (`/dev/hugepages`, `/mnt/huge`, `/hugetlbfs`).

use super::memory;
use std::collections::{BTreeMap, BTreeSet};
use vsteer_core::CpuSet;
use vsteer_core::nouns::{Fixed, GuestNode};

type Pairs = [(String, String)];

/// `MAX_NODES` of QEMU.
const NODES_MAX: usize = 128;

/// What a command line says of guest nodes and fixed memory.
#[derive(Debug, Default)]
pub struct Given {
    nodes: Vec<Node>,
    backends: BTreeMap<String, Backend>,
    fixed: BTreeSet<Fixed>,
}

#[derive(Debug)]
struct Node {
    id: u32,
    vcpus: CpuSet,
    memory_bytes: Option<u64>,
    backend: Option<String>,
}

#[derive(Debug)]
struct Backend {
    bytes: Option<u64>,
    nodes: Option<CpuSet>,
}

impl Given {
    /// `-numa`.
    pub fn numa(&mut self, pairs: &Pairs) {
        if get(pairs, "type") != Some("node") || self.nodes.len() == NODES_MAX {
            return;
        }
        let id = get(pairs, "nodeid").map_or(Some(self.nodes.len() as u32), |id| id.parse().ok());
        let Some(id) = id.filter(|id| (*id as usize) < NODES_MAX) else { return };
        self.nodes.push(Node {
            id,
            vcpus: numbers(pairs, "cpus").unwrap_or_default(),
            memory_bytes: get(pairs, "mem").and_then(|text| memory::size(text, memory::MEBIBYTES)),
            backend: get(pairs, "memdev").map(str::to_owned),
        });
    }

    /// `-object memory-backend-…`.
    pub fn backend(&mut self, pairs: &Pairs) {
        let is_huge = get(pairs, "hugetlb").is_some_and(is_on) || get(pairs, "mem-path").is_some_and(is_huge);
        self.fixed.extend(is_huge.then_some(Fixed::HugePages));
        let Some(id) = get(pairs, "id") else { return };
        let has_policy = get(pairs, "policy").is_some_and(|policy| policy != "default");
        let backend = Backend {
            bytes: get(pairs, "size").and_then(|text| memory::size(text, memory::BYTES)),
            nodes: host_nodes(pairs).filter(|_| has_policy),
        };
        self.backends.insert(id.to_owned(), backend);
    }

    /// `-mem-path`.
    pub fn path(&mut self, path: &str) {
        self.fixed.extend(is_huge(path).then_some(Fixed::HugePages));
    }

    /// `-overcommit`, and `-realtime` before QEMU 7, which locks unless told not to.
    pub fn locks(&mut self, option: &str, pairs: &Pairs) {
        let is_locked = match option {
            "overcommit" => get(pairs, "mem-lock").is_some_and(|v| is_on(v) || v == "on-fault"),
            _ => get(pairs, "mlock").is_none_or(is_on),
        };
        self.fixed.extend(is_locked.then_some(Fixed::Locked));
    }

    /// `-device`.
    pub fn device(&mut self, pairs: &Pairs) {
        if !get(pairs, "driver").is_some_and(|driver| ["vfio-pci", "vfio-pci-nohotplug"].contains(&driver)) {
            return;
        }
        let of_path = || get(pairs, "sysfsdev")?.rsplit('/').next();
        let address = get(pairs, "host").or_else(of_path).and_then(pci_address);
        self.fixed.extend(address.map(|address| Fixed::Device { address, node: None }));
    }

    /// The guest's nodes, and what is fixed.
    pub fn read(self) -> (Vec<GuestNode>, Vec<Fixed>) {
        let of = |node: Node| {
            let backend = node.backend.and_then(|id| self.backends.get(&id));
            GuestNode {
                id: node.id,
                vcpus: node.vcpus,
                memory_bytes: node.memory_bytes.or(backend.and_then(|b| b.bytes)),
                host_nodes: backend.and_then(|b| b.nodes.clone()),
            }
        };
        (self.nodes.into_iter().map(of).collect(), self.fixed.into_iter().collect())
    }
}

/// The last value of that key, because it overrides earlier ones.
fn get<'a>(pairs: &'a Pairs, key: &str) -> Option<&'a str> {
    pairs.iter().rev().find(|(k, _)| k == key).map(|(_, value)| value.as_str())
}

/// The nodes of a memory backend. Incus writes a list as `host-nodes.0`.
pub fn host_nodes(pairs: &Pairs) -> Option<CpuSet> {
    numbers(pairs, "host-nodes").filter(|nodes| !nodes.is_empty())
}

/// All values of a key that may stand several times. `None` if the key is missing or one value is not a list.
fn numbers(pairs: &Pairs, key: &str) -> Option<CpuSet> {
    let is_of = |k: &str| k.strip_prefix(key).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
    let mut values = pairs.iter().filter(|(k, _)| is_of(k)).map(|(_, value)| value.parse::<CpuSet>().ok());
    let first = values.next()??;
    values.try_fold(first, |all, more| Some(all.union(&more?)))
}

fn is_on(value: &str) -> bool {
    matches!(value, "on" | "yes" | "true" | "y")
}

/// Is a file in this folder in huge pages? hugetlbfs can be mounted anywhere, and people name its folder so.
fn is_huge(path: &str) -> bool {
    path.split('/').any(|part| part.starts_with("huge"))
}

/// A PCI address as sysfs writes it. Another text may not become part of a path.
pub fn pci_address(text: &str) -> Option<String> {
    let (bus, rest) = match text.split(':').collect::<Vec<_>>().as_slice() {
        [bus, rest] => (format!("0000:{bus}"), *rest),
        [domain, bus, rest] => (format!("{domain:0>4}:{bus}"), *rest),
        _ => return None,
    };
    let (slot, function) = rest.split_once('.')?;
    let is_hex = |text: &str, len: usize| text.len() == len && text.bytes().all(|b| b.is_ascii_hexdigit());
    let (domain, bus) = bus.split_once(':')?;
    let valid =
        is_hex(domain, domain.len().clamp(4, 8)) && is_hex(bus, 2) && is_hex(slot, 2) && is_hex(function, 1);
    valid.then(|| format!("{domain}:{bus}:{slot}.{function}").to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::super::command_line::{CommandLine, parse};
    use super::*;

    fn line(words: &str) -> CommandLine {
        let words = format!("qemu-system-x86_64 {words}");
        parse(&words.split(' ').map(str::to_owned).collect::<Vec<_>>()).unwrap()
    }

    fn shown(nodes: &[GuestNode]) -> Vec<String> {
        nodes.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn guest_nodes_with_their_memory() {
        let l = line(
            "-numa node,nodeid=0,cpus=0-1,cpus=4,memdev=m0 -object memory-backend-memfd,id=m0,size=1G,host-nodes=0,policy=bind \
             -object memory-backend-ram,id=m1,size=512M,host-nodes=1-2,policy=preferred -numa node,cpus=2-3,memdev=m1 \
             -numa dist,src=0,dst=1,val=20 -numa cpu,node-id=0,socket-id=0 -numa node,nodeid=2,mem=256",
        );
        assert_eq!(
            shown(&l.guest_nodes),
            [
                "0 (vCPUs 0-1,4, 1024 MiB) on nodes 0",
                "1 (vCPUs 2-3, 512 MiB) on nodes 1-2",
                "2 (vCPUs , 256 MiB) not bound"
            ]
        );
        assert_eq!(l.memory_nodes, Some(CpuSet::single(0)), "only what is bound");
        assert!(l.fixed.is_empty());
        let l = line(
            r#"-object {"qom-type":"memory-backend-ram","id":"ram-node0","size":219136,"host-nodes":[0,2],"policy":"bind"} -numa node,nodeid=0,cpus=0,memdev=ram-node0"#,
        );
        assert_eq!(l.guest_nodes[0].host_nodes, Some("0,2".parse().unwrap()));
        assert_eq!(l.guest_nodes[0].memory_bytes, Some(219_136));
        // A backend without a policy is allocated anywhere.
        let l = line("-object memory-backend-ram,id=m,size=1G,host-nodes=0 -numa node,memdev=m");
        assert_eq!(l.guest_nodes[0].host_nodes, None);
        assert!(line("-m 64").guest_nodes.is_empty());
    }

    #[test]
    fn memory_and_devices_that_cannot_move() {
        let of =
            |words: &str| line(words).fixed.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        for (words, expected) in [
            ("-mem-path /dev/hugepages/libvirt/qemu/1-a", "huge pages"),
            ("-mem-path /dev/shm", ""),
            ("-object memory-backend-file,id=m,size=1G,mem-path=/mnt/huge-1G", "huge pages"),
            ("-object memory-backend-file,id=m,size=1G,mem-path=/srv/a", ""),
            ("-object memory-backend-memfd,id=m,size=1G,hugetlb=on", "huge pages"),
            ("-object memory-backend-memfd,id=m,size=1G,hugetlb=off", ""),
            (r#"-object {"qom-type":"memory-backend-memfd","id":"m","hugetlb":true}"#, "huge pages"),
            ("-overcommit mem-lock=on", "locked memory"),
            ("-overcommit cpu-pm=on", ""),
            ("-realtime mlock=off", ""),
            ("-realtime mlock=on", "locked memory"),
            ("-device vfio-pci,host=3b:00.0,id=h", "VFIO device 0000:3b:00.0"),
            (r#"-device {"driver":"vfio-pci","host":"0000:06:12.5","id":"h"}"#, "VFIO device 0000:06:12.5"),
            ("-device vfio-pci,sysfsdev=/sys/bus/pci/devices/0001:3B:00.1", "VFIO device 0001:3b:00.1"),
            ("-device vfio-pci,sysfsdev=/sys/bus/mdev/devices/c9abdcb5-5279-413a-9057-c81d2605ce9c", ""),
            ("-device virtio-net-pci,host=3b:00.0", ""),
            ("-device vfio-pci,host=../../../etc:00.0", ""),
        ] {
            assert_eq!(of(words), expected, "{words}");
        }
    }

    /// As Incus writes them.
    #[test]
    fn guest_nodes_in_a_file() {
        let file = "[object \"mem0\"]\nqom-type = \"memory-backend-memfd\"\nsize = \"1024M\"\nhost-nodes.0 = \"1\"\npolicy = \"bind\"\n\
                    [numa]\ntype = \"node\"\nnodeid = \"0\"\nmemdev = \"mem0\"\n";
        let words = "qemu-system-x86_64 -readconfig /run/incus/v1/qemu.conf".split(' ').map(str::to_owned);
        let all = super::super::readconfig::expanded(&words.collect::<Vec<_>>(), |_| Some(file.to_owned()));
        let l = parse(&all).unwrap();
        assert_eq!(shown(&l.guest_nodes), ["0 (vCPUs , 1024 MiB) on nodes 1"]);
        assert_eq!(l.memory_nodes, Some(CpuSet::single(1)));
    }

    #[test]
    fn addresses() {
        let of = |text: &str| pci_address(text);
        assert_eq!(of("10000:e1:00.0").as_deref(), Some("10000:e1:00.0"));
        for odd in [
            "",
            ":",
            "..:00.0",
            "0000:3b:00",
            "0000:3b:00.00",
            "0000:3b:0/.0",
            "000000000:3b:00.0",
            "a:b:c:d",
        ] {
            assert_eq!(of(odd), None, "{odd}");
        }
    }
}
