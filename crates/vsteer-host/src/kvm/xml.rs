//! Parses libvirt's description of a VM: the parts that matter for scheduling.
//!
//! Source: `docs/formatdomain.rst` (libvirt 9.0). A value that is missing or not understood is `None`. vsteer
//! refuses only a text that is not a description at all.
//!
//! Metadata is OpenStack's (`nova/virt/libvirt/config.py`, 2024.1).
//!
//! The memory of a guest's NUMA node counts as bound whatever the `mode` of its `<memnode>`, because no mode lets a binding of
//! the whole VM move it.
//!
//! Left out: devices, except those of the host that the guest has by VFIO.

use super::guest_memory::pci_address;
use roxmltree::{Document, Node};
use std::collections::BTreeMap;
use vsteer_core::CpuSet;
use vsteer_core::nouns::{Fixed, GuestNode, GuestTopology};

/// The description of a domain (VM).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Domain {
    /// Its UUID.
    pub uuid: String,
    /// Its name.
    pub name: String,
    /// `kvm` or `qemu`.
    pub kind: String,
    /// `<memory>`.
    pub memory_bytes: Option<u64>,
    /// The most vCPUs it can have (`<vcpu>`).
    pub vcpus_max: Option<u32>,
    /// `<cpu><topology>`.
    pub topology: Option<GuestTopology>,
    /// `<numatune><memory mode=…>`.
    pub memory_mode: Option<String>,
    /// `<numatune><memory nodeset=…>`.
    pub memory_nodes: Option<CpuSet>,
    /// `<cpu><numa><cell>`, with `<numatune><memnode nodeset=…>`.
    pub guest_nodes: Vec<GuestNode>,
    /// `<memoryBacking>` and `<hostdev>`: what keeps memory and devices where they are.
    pub fixed: Vec<Fixed>,
    /// The user of the VM's QEMU, a number or a name: `<seclabel model='dac'><label>+USER:+GROUP`.
    pub user: Option<String>,
    /// OpenStack's name, project and flavour, by label.
    pub labels: BTreeMap<String, String>,
}

impl Domain {
    /// The topology that the guest sees: the described one, otherwise one socket per vCPU, libvirt's default.
    pub fn topology_shown(&self) -> Option<GuestTopology> {
        let default = |n| GuestTopology { sockets: n, cores: 1, threads: 1 };
        self.topology.or_else(|| self.vcpus_max.map(default))
    }
}

/// Parses a description.
///
/// # Errors
/// What is wrong with the text.
pub fn parse(xml: &str) -> Result<Domain, String> {
    let document = Document::parse(xml).map_err(|e| format!("not valid XML: {e}"))?;
    let root = document.root_element();
    if root.tag_name().name() != "domain" {
        return Err(format!("found <{}>, expected <domain>", root.tag_name().name()));
    }
    let text = |name: &str| child(root, name).and_then(|n| n.text()).unwrap_or_default().to_owned();
    let memory = child(root, "memory");
    let topology = child(root, "cpu").and_then(|cpu| child(cpu, "topology")).and_then(topology);
    let tune = child(root, "numatune").and_then(|n| child(n, "memory"));
    Ok(Domain {
        uuid: text("uuid").to_ascii_lowercase(),
        name: text("name"),
        kind: root.attribute("type").unwrap_or_default().to_owned(),
        memory_bytes: memory.and_then(|m| scaled(m.text()?, m.attribute("unit"))),
        vcpus_max: text("vcpu").trim().parse().ok(),
        topology,
        memory_mode: tune.and_then(|t| t.attribute("mode")).map(str::to_owned),
        memory_nodes: tune.and_then(|t| t.attribute("nodeset")?.parse().ok()),
        guest_nodes: guest_nodes(root),
        fixed: fixed(root),
        user: root.children().filter(|c| c.has_tag_name("seclabel")).find_map(user),
        labels: child(root, "metadata").map(labels).unwrap_or_default(),
    })
}

fn elements<'a, 'i>(node: Node<'a, 'i>, name: &'static str) -> impl Iterator<Item = Node<'a, 'i>> {
    node.children().filter(move |c| c.is_element() && c.tag_name().name() == name)
}

fn guest_nodes(root: Node<'_, '_>) -> Vec<GuestNode> {
    let Some(numa) = child(root, "cpu").and_then(|cpu| child(cpu, "numa")) else { return Vec::new() };
    let tune = child(root, "numatune");
    let memnode = |id: u32| -> Option<CpuSet> {
        let is_of = |n: &Node<'_, '_>| n.attribute("cellid").is_some_and(|cell| cell.parse() == Ok(id));
        let nodes = elements(tune?, "memnode").find(is_of)?.attribute("nodeset")?.parse::<CpuSet>().ok();
        nodes.filter(|nodes| !nodes.is_empty())
    };
    let of = |(i, cell): (usize, Node<'_, '_>)| {
        let id = cell.attribute("id").map_or(Some(i as u32), |id| id.parse().ok())?;
        Some(GuestNode {
            id,
            vcpus: cell.attribute("cpus").and_then(|cpus| cpus.parse().ok()).unwrap_or_default(),
            memory_bytes: cell.attribute("memory").and_then(|text| scaled(text, cell.attribute("unit"))),
            host_nodes: memnode(id),
        })
    };
    elements(numa, "cell").enumerate().filter_map(of).collect()
}

fn fixed(root: Node<'_, '_>) -> Vec<Fixed> {
    let backing = child(root, "memoryBacking");
    let has = |name: &str| backing.is_some_and(|b| child(b, name).is_some());
    let address = |device: Node<'_, '_>| {
        let at = child(child(device, "source")?, "address")?;
        let part = |key: &str| {
            let text = at.attribute(key)?;
            u32::from_str_radix(text.strip_prefix("0x").unwrap_or(text), 16).ok()
        };
        let domain = part("domain").unwrap_or(0);
        let (bus, slot, function) = (part("bus")?, part("slot")?, part("function").unwrap_or(0));
        pci_address(&format!("{domain:04x}:{bus:02x}:{slot:02x}.{function:x}"))
    };
    let devices = child(root, "devices");
    let of_host = devices.into_iter().flat_map(|d| {
        let pci = elements(d, "hostdev").filter(|h| h.attribute("type") == Some("pci"));
        pci.chain(elements(d, "interface").filter(|i| i.attribute("type") == Some("hostdev")))
    });
    let memory = [("hugepages", Fixed::HugePages), ("locked", Fixed::Locked)];
    let memory = memory.into_iter().filter(|(name, _)| has(name)).map(|(_, fixed)| fixed);
    memory.chain(of_host.filter_map(address).map(|address| Fixed::Device { address, node: None })).collect()
}

/// Beginning of the namespace of OpenStack's metadata; its version follows.
const NOVA: &str = "http://openstack.org/xmlns/libvirt/nova/";
/// A longer value of metadata is not a name.
const LABEL_MAX: usize = 255;

fn labels(metadata: Node<'_, '_>) -> BTreeMap<String, String> {
    let is_nova = |node: &Node<'_, '_>| node.tag_name().namespace().is_some_and(|n| n.starts_with(NOVA));
    let Some(instance) = child(metadata, "instance").filter(is_nova) else { return BTreeMap::new() };
    let text = |node: Option<Node<'_, '_>>| Some(node?.text()?.trim().to_owned());
    let flavour = child(instance, "flavor").and_then(|f| f.attribute("name"));
    let project = child(instance, "owner").and_then(|owner| child(owner, "project"));
    let all = [
        ("instance", text(child(instance, "name"))),
        ("project", text(project)),
        ("flavour", flavour.map(str::to_owned)),
    ];
    let some = all.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?)));
    some.filter(|(_, value)| !value.is_empty() && value.len() <= LABEL_MAX).collect()
}

/// The user of a label for file permissions. libvirt writes a number with a `+` before it; a label in a definition may
/// have a name.
fn user(seclabel: Node<'_, '_>) -> Option<String> {
    if seclabel.attribute("model") != Some("dac") {
        return None;
    }
    let label = child(seclabel, "label")?.text()?.trim();
    label.split(':').next().map(|user| user.trim_start_matches('+').to_owned())
}

pub(super) fn child<'a, 'i>(node: Node<'a, 'i>, name: &str) -> Option<Node<'a, 'i>> {
    node.children().find(|c| c.is_element() && c.tag_name().name() == name)
}

fn topology(node: Node<'_, '_>) -> Option<GuestTopology> {
    let number =
        |key: &str| node.attribute(key).map_or(Some(1), |v| v.parse::<u32>().ok().filter(|n| *n > 0));
    let inner = number("dies")?.checked_mul(number("clusters")?)?;
    Some(GuestTopology {
        sockets: number("sockets")?,
        cores: number("cores")?.checked_mul(inner)?,
        threads: number("threads")?,
    })
}

/// A size with libvirt's units, in any case; KiB if no unit is given. Source: `src/util/virutil.c`, `virScaleInteger`
/// (libvirt 11.3).
fn scaled(number: &str, unit: Option<&str>) -> Option<u64> {
    let unit = unit.unwrap_or("KiB").to_ascii_lowercase();
    let factor = match unit.as_str() {
        "b" | "byte" | "bytes" => 1,
        unit => {
            let (letter, base) = match (unit.strip_suffix("ib"), unit.strip_suffix('b')) {
                (Some(letter), _) => (letter, 1024_u64),
                (None, Some(letter)) => (letter, 1000),
                (None, None) => (unit, 1024),
            };
            let power = ["k", "m", "g", "t", "p", "e"].iter().zip(1..).find(|(l, _)| **l == letter)?.1;
            base.pow(power)
        }
    };
    number.trim().parse::<u64>().ok()?.checked_mul(factor)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_description() {
        let d = parse(
            "<domain type='kvm' id='3'><name>a &lt;b&gt; \u{fc} '\"</name><uuid>AB</uuid>\
             <memory unit='MiB'>96</memory><currentMemory unit='KiB'>1</currentMemory>\
             <vcpu placement='static' current='1'>4</vcpu><numatune><memory mode='strict' nodeset='0-1'/></numatune>\
             <cpu mode='custom'><topology sockets='1' dies='2' cores='1' threads='2'/></cpu></domain>",
        )
        .unwrap();
        assert_eq!((d.name.as_str(), d.uuid.as_str(), d.kind.as_str()), ("a <b> \u{fc} '\"", "ab", "kvm"));
        assert_eq!((d.memory_bytes, d.vcpus_max), (Some(96 << 20), Some(4)));
        assert_eq!(d.topology, Some(GuestTopology { sockets: 1, cores: 2, threads: 2 }));
        assert_eq!(
            (d.memory_mode.as_deref(), d.memory_nodes),
            (Some("strict"), Some("0-1".parse().unwrap()))
        );
        let plain = parse("<domain><vcpu>3</vcpu></domain>").unwrap();
        assert_eq!(plain.topology_shown(), Some(GuestTopology { sockets: 3, cores: 1, threads: 1 }));
        assert!(parse("<network/>").is_err() && parse("").is_err());
    }

    #[test]
    fn guest_nodes_and_what_cannot_move() {
        let text = "<domain><memoryBacking><hugepages><page size='1' unit='GiB'/></hugepages><locked/></memoryBacking>\
             <numatune><memory mode='strict' nodeset='0-1'/><memnode cellid='1' mode='preferred' nodeset='1'/></numatune>\
             <cpu><numa><cell id='0' cpus='0-1,4' memory='1' unit='GiB' memAccess='shared'/>\
             <cell id='1' cpus='2-3' memory='524288'/></numa></cpu>\
             <devices><hostdev mode='subsystem' type='pci' managed='yes'><source>\
             <address domain='0x0000' bus='0x3b' slot='0x10' function='0x1'/></source>\
             <address type='pci' domain='0x0000' bus='0x05' slot='0x00' function='0x0'/></hostdev>\
             <hostdev mode='subsystem' type='usb'><source><address bus='1' device='2'/></source></hostdev>\
             <interface type='hostdev'><source><address type='pci' domain='0' bus='6' slot='2' function='0'/></source></interface>\
             <interface type='network'><source network='default'/></interface></devices></domain>";
        let d = parse(text).unwrap();
        let nodes: Vec<String> = d.guest_nodes.iter().map(ToString::to_string).collect();
        assert_eq!(nodes, ["0 (vCPUs 0-1,4, 1024 MiB) not bound", "1 (vCPUs 2-3, 512 MiB) on nodes 1"]);
        let fixed: Vec<String> = d.fixed.iter().map(ToString::to_string).collect();
        assert_eq!(
            fixed,
            ["huge pages", "locked memory", "VFIO device 0000:3b:10.1", "VFIO device 0000:06:02.0"]
        );
        let plain =
            parse("<domain><cpu/><devices/><memoryBacking><nosharepages/></memoryBacking></domain>").unwrap();
        assert!(plain.guest_nodes.is_empty() && plain.fixed.is_empty());
    }

    #[test]
    fn openstacks_names() {
        let nova = "<nova:instance xmlns:nova='http://openstack.org/xmlns/libvirt/nova/1.1'><nova:name>web 1</nova:name>\
            <nova:flavor name='m1.small'/><nova:owner><nova:user uuid='a'>eve</nova:user>\
            <nova:project uuid='b'>shop</nova:project></nova:owner></nova:instance>";
        let of = |metadata: &str| {
            let domain =
                parse(&format!("<domain><name>instance-1</name><metadata>{metadata}</metadata></domain>"));
            domain.unwrap().labels.into_iter().map(|(k, v)| format!("{k}={v}")).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(of(nova), "flavour=m1.small instance=web 1 project=shop");
        assert_eq!(of(&nova.replace("openstack", "elsewhere")), "");
    }

    #[test]
    fn sizes() {
        for (unit, bytes) in [
            ("KiB", Some(3 << 10)),
            ("k", Some(3 << 10)),
            ("mib", Some(3 << 20)),
            ("MB", Some(3_000_000)),
            ("Bytes", Some(3)),
            ("e", Some(3 << 60)),
            ("EB", Some(3_000_000_000_000_000_000)),
            ("ib", None),
            ("x", None),
        ] {
            let text = format!("<domain><memory unit='{unit}'>3</memory></domain>");
            assert_eq!(parse(&text).unwrap().memory_bytes, bytes, "{unit}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(s in "\\PC{0,40}") {
            let _ = parse(&s);
            let _ = parse(&format!("<domain><vcpu>{s}</vcpu><memory unit='{s}'>{s}</memory></domain>"));
            let _ = parse(&format!("<domain><cpu><topology sockets='{s}' cores='4294967295' dies='9'/></cpu></domain>"));
        }
    }
}
