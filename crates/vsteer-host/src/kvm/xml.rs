//! Parses libvirt's description of a VM: the parts that matter for scheduling.
//!
//! Source: `docs/formatdomain.rst` (libvirt 9.0). A value that is missing or not understood is `None`. vsteer
//! refuses only a text that is not a description at all.
//!
//! Left out: devices.

use roxmltree::{Document, Node};
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
    })
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

/// A size with libvirt's units; KiB if no unit is given.
fn size_bytes(node: Node<'_, '_>) -> Option<u64> {
    let factor = match node.attribute("unit").unwrap_or("KiB") {
        "b" | "bytes" => 1,
        "KB" => 1000,
        "k" | "KiB" => 1 << 10,
        "MB" => 1_000_000,
        "M" | "MiB" => 1 << 20,
        "GB" => 1_000_000_000,
        "G" | "GiB" => 1 << 30,
        "TB" => 1_000_000_000_000,
        "T" | "TiB" => 1 << 40,
        _ => return None,
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

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(s in "\\PC{0,40}") {
            let _ = parse(&s);
            let _ = parse(&format!("<domain><vcpu>{s}</vcpu><memory unit='{s}'>{s}</memory></domain>"));
            let _ = parse(&format!("<domain><cpu><topology sockets='{s}' cores='4294967295' dies='9'/></cpu></domain>"));
        }
    }
}
