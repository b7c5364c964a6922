//! Parses libvirt's description of a VM: the parts that matter for scheduling.
//!
//! Source: `docs/formatdomain.rst` (libvirt 9.0). A value that is missing or not understood is `None`. vsteer
//! refuses only a text that is not a description at all.
//!
//! Metadata is OpenStack's (`nova/virt/libvirt/config.py`, 2024.1).
//!
//! Left out: devices.

use roxmltree::{Document, Node};
use std::collections::BTreeMap;
use vsteer_core::CpuSet;
use vsteer_core::nouns::GuestTopology;

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
        memory_bytes: memory.and_then(size_bytes),
        vcpus_max: text("vcpu").trim().parse().ok(),
        topology,
        memory_mode: tune.and_then(|t| t.attribute("mode")).map(str::to_owned),
        memory_nodes: tune.and_then(|t| t.attribute("nodeset")?.parse().ok()),
        user: root.children().filter(|c| c.has_tag_name("seclabel")).find_map(user),
        labels: child(root, "metadata").map(labels).unwrap_or_default(),
    })
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
fn size_bytes(node: Node<'_, '_>) -> Option<u64> {
    let unit = node.attribute("unit").unwrap_or("KiB").to_ascii_lowercase();
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
    node.text()?.trim().parse::<u64>().ok()?.checked_mul(factor)
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
