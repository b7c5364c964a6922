//! Changes a setting in a VM's persistent definition, and restores it exactly.
//!
//! A setting is one or a few elements under one parent (`<cputune>`, `<numatune>`, `<cpu>`). A change
//! replaces the text of exactly those elements and leaves every other byte unchanged. The former text, even
//! if empty, is kept as [`Part`]s. Undo is the same replacement in the other direction. All functions are
//! pure, from text to text.
//!
//! Source: `docs/formatdomain.rst` (libvirt 9.0).
//!
//! Left out: pins of a `<vcpu cpuset=…>`. They apply to vCPUs without an own pin and stay unchanged.

use super::xml::child;
use crate::actuate::Part;
use roxmltree::{Document, Node};
use vsteer_core::CpuSet;
use vsteer_core::nouns::Role;

impl Part {
    pub(super) fn new(parent: &str, tag: &str, elements: Vec<String>) -> Part {
        Part { parent: parent.into(), tag: tag.into(), key: None, elements }
    }

    fn matches(&self, node: Node<'_, '_>) -> bool {
        node.is_element()
            && node.tag_name().name() == self.tag
            && self.key.as_ref().is_none_or(|(k, v)| node.attribute(k.as_str()) == Some(v))
    }
}

pub(super) fn document(xml: &str) -> Result<Document<'_>, String> {
    let document = Document::parse(xml).map_err(|e| format!("the definition is not valid XML: {e}"))?;
    if document.root_element().tag_name().name() != "domain" {
        return Err("the definition does not describe a domain".into());
    }
    Ok(document)
}

/// The present elements of the definition in the place of `part`.
///
/// # Errors
/// What is wrong with the text.
pub fn read(xml: &str, part: &Part) -> Result<Part, String> {
    let document = document(xml)?;
    let parent = child(document.root_element(), &part.parent);
    let nodes = parent.iter().flat_map(Node::children).filter(|n| part.matches(*n));
    Ok(Part { elements: nodes.map(|n| xml[n.range()].to_owned()).collect(), ..part.clone() })
}

/// The definition with `part` in its place.
///
/// # Errors
/// What is wrong with the text.
pub fn put(xml: &str, part: &Part) -> Result<String, String> {
    let document = document(xml)?;
    let new = part.elements.concat();
    let Some(parent) = child(document.root_element(), &part.parent) else {
        if new.is_empty() {
            return Ok(xml.to_owned());
        }
        let end = xml.rfind("</").ok_or("the definition has no end tag")?;
        return Ok(format!("{}<{1}>{new}</{1}>{2}", &xml[..end], part.parent, &xml[end..]));
    };
    let mut text = xml[parent.range()].to_owned();
    let start = parent.range().start;
    let old: Vec<_> = parent.children().filter(|n| part.matches(*n)).map(|n| n.range()).collect();
    let place = old.first().map(|r| r.start - start);
    for range in old.iter().rev() {
        text.replace_range(range.start - start..range.end - start, "");
    }
    if !new.is_empty() {
        match (place, text.rfind("</")) {
            (Some(at), _) => text.insert_str(at, &new),
            (None, Some(end)) if parent.has_children() || text.ends_with(&format!("</{}>", part.parent)) => {
                text.insert_str(end, &new);
            }
            _ => {
                // `<cputune/>`
                let open = text.strip_suffix("/>").ok_or("an element has no end tag")?.trim_end().to_owned();
                text = format!("{open}>{new}</{}>", part.parent);
            }
        }
    }
    Ok(format!("{}{text}{}", &xml[..start], &xml[parent.range().end..]))
}

/// An element of `<cputune>`; `None` removes it.
pub(super) fn tune(tag: &str, value: Option<String>) -> Part {
    Part::new("cputune", tag, value.map(|v| format!("<{tag}>{v}</{tag}>")).into_iter().collect())
}

/// The pin of a thread.
///
/// # Errors
/// Why the definition cannot have a pin for this thread.
pub fn pin(role: Role, to: &CpuSet) -> Result<Part, String> {
    let keyed = |tag: &str, key: &str, value: u32| Part {
        key: Some((key.into(), value.to_string())),
        ..Part::new("cputune", tag, vec![format!("<{tag} {key}='{value}' cpuset='{to}'/>")])
    };
    match role {
        Role::Vcpu(n) => Ok(keyed("vcpupin", "vcpu", n)),
        Role::IoThread(n) => Ok(keyed("iothreadpin", "iothread", n)),
        Role::Emulator => {
            Ok(Part::new("cputune", "emulatorpin", vec![format!("<emulatorpin cpuset='{to}'/>")]))
        }
        Role::Vhost | Role::Worker => {
            Err(format!("libvirt keeps no pin of a {role} thread: the thread follows the emulator"))
        }
    }
}

pub(super) fn is_word(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric())
}

/// The values that [`placed`] replaces: pins, and the cpuset of `<vcpu>`.
///
/// # Errors
/// What is wrong with the text.
pub fn places(xml: &str) -> Result<(Vec<Part>, Option<CpuSet>), String> {
    let pins = ["vcpupin", "emulatorpin", "iothreadpin"].map(|tag| Part::new("cputune", tag, Vec::new()));
    let pins = pins.iter().map(|part| read(xml, part)).collect::<Result<_, _>>()?;
    let document = document(xml)?;
    let vcpu = child(document.root_element(), "vcpu");
    let cpus = vcpu.and_then(|v| v.attribute("cpuset")).map(str::parse).transpose();
    Ok((pins, cpus.map_err(|e| format!("<vcpu>: {e}"))?))
}

/// The description with these pins, and all other threads on `cpus`; `None` means any pCPU.
///
/// # Errors
/// What is wrong with the text.
pub fn placed(xml: &str, pins: &[Part], cpus: Option<&CpuSet>) -> Result<String, String> {
    let mut text = xml.to_owned();
    for part in places(xml)?.0 {
        text = put(&text, &Part { elements: Vec::new(), ..part })?;
    }
    for part in pins {
        text = put(&text, part)?;
    }
    let document = document(&text)?;
    let vcpu = child(document.root_element(), "vcpu").ok_or("the definition has no <vcpu>")?;
    let (start, whole) = (vcpu.range().start, &text[vcpu.range()]);
    let end = start + whole.find('>').ok_or("the tag <vcpu> has no end")?;
    let (from, to) = match vcpu.attribute_node("cpuset") {
        Some(attribute) => (attribute.range().start, attribute.range().end),
        None => (end, end),
    };
    let (before, after) = (text[..from].trim_end(), &text[to..]);
    Ok(match cpus {
        Some(cpus) => format!("{before} cpuset='{cpus}'{after}"),
        None => format!("{before}{after}"),
    })
}

/// The definition with these parts in their places, and the former parts.
///
/// # Errors
/// What is wrong with the text.
pub fn changed(xml: &str, parts: &[Part]) -> Result<(String, Vec<Part>), String> {
    let mut text = xml.to_owned();
    let mut before = Vec::new();
    for part in parts {
        before.push(read(&text, part)?);
        text = put(&text, part)?;
    }
    Ok((text, before))
}

/// The pCPUs of a vCPU's own pin; empty without a pin.
///
/// # Errors
/// What is wrong with the text.
pub fn pins_vcpu(xml: &str, vcpu: u32) -> Result<String, String> {
    let document = document(xml)?;
    let part = pin(Role::Vcpu(vcpu), &CpuSet::default())?;
    let tune = child(document.root_element(), "cputune");
    let found = tune.iter().flat_map(Node::children).find(|n| part.matches(*n));
    Ok(found.and_then(|n| n.attribute("cpuset")).unwrap_or_default().to_owned())
}

/// The definition with this vCPU pinned to `cpus` (empty: without a pin), and the former part.
///
/// # Errors
/// What is wrong with the text or the CPU list.
pub fn with_pin(xml: &str, vcpu: u32, cpus: &str) -> Result<(String, Part), String> {
    let mut part = if cpus.is_empty() {
        Part { elements: Vec::new(), ..pin(Role::Vcpu(vcpu), &CpuSet::default())? }
    } else {
        pin(Role::Vcpu(vcpu), &cpus.parse().map_err(|e| format!("{cpus:?}: {e}"))?)?
    };
    let before = read(xml, &part)?;
    // Keeps the person's spelling, because vsteer later compares the definition with it.
    part.elements.iter_mut().for_each(|e| {
        *e = format!("<vcpupin vcpu='{vcpu}' cpuset='{}'/>", cpus.replace(['\'', '<', '&'], ""))
    });
    Ok((put(xml, &part)?, before))
}

fn interfaces(xml: &str) -> Result<Part, String> {
    read(xml, &Part::new("devices", "interface", Vec::new()))
}

/// The number of queues of a network interface; empty if the definition leaves it to libvirt.
///
/// # Errors
/// If there is no such interface.
pub fn queues_of(xml: &str, interface: usize) -> Result<String, String> {
    let all = interfaces(xml)?.elements;
    let text = all
        .get(interface)
        .ok_or_else(|| format!("the VM has {} interfaces, but none with number {interface}", all.len()))?;
    let of = Document::parse(text).map_err(|e| format!("interface {interface}: {e}"))?;
    Ok(child(of.root_element(), "driver").and_then(|d| d.attribute("queues")).unwrap_or_default().to_owned())
}

/// The definition with this number of queues on a network interface (`None`: libvirt's choice), and its former
/// interfaces.
///
/// # Errors
/// If the interface does not exist or is not a virtio one, or `queues` is not a number.
pub fn with_queues(xml: &str, interface: usize, queues: &str) -> Result<(String, Part), String> {
    let number = queues.is_empty() || queues.parse::<u16>().is_ok_and(|n| n > 0);
    if !number {
        return Err(format!("{queues:?} is not a number of queues"));
    }
    queues_of(xml, interface)?;
    let before = interfaces(xml)?;
    let mut part = before.clone();
    let text = &before.elements[interface];
    let of = Document::parse(text).map_err(|e| format!("an interface: {e}"))?;
    if child(of.root_element(), "model").and_then(|m| m.attribute("type")) != Some("virtio") {
        return Err("only a virtio interface has queues".to_owned());
    }
    let attribute = if queues.is_empty() { String::new() } else { format!(" queues='{queues}'") };
    part.elements[interface] = match child(of.root_element(), "driver") {
        Some(driver) => {
            let (start, whole) = (driver.range().start, &text[driver.range()]);
            let (from, to) = match driver.attribute_node("queues") {
                Some(a) => (a.range().start, a.range().end),
                None => {
                    let end = start + "<driver".len();
                    debug_assert!(whole.starts_with("<driver"));
                    (end, end)
                }
            };
            format!("{}{attribute}{}", text[..from].trim_end(), &text[to..])
        }
        None if queues.is_empty() => text.clone(),
        None => {
            let end = text.rfind("</").ok_or("an interface has no end tag")?;
            format!("{}<driver name='vhost'{attribute}/>{}", &text[..end], &text[end..])
        }
    };
    Ok((put(xml, &part)?, before))
}

#[cfg(test)]
mod tests {
    use super::*;

    const XML: &str = "<domain type='kvm'>\n  <name>a&lt;b</name>\n  <vcpu>4</vcpu>\n  <cputune>\n    \
        <shares>512</shares>\n    <vcpupin vcpu='0' cpuset='1'/>\n    <vcpupin vcpu='1' cpuset='1'/>\n    \
        <vcpusched vcpus='0-2' scheduler='fifo' priority='3'/>\n  </cputune>\n  <numatune/>\n</domain>\n";

    #[test]
    fn queues_and_pins_are_kept() {
        let xml = "<domain><vcpu>2</vcpu><devices><disk/><interface type='user'><model type='virtio'/></interface>\
                   <interface type='network'><driver name='vhost' queues='2' rx_queue_size='256'><host csum='off'/></driver><model type='virtio'/></interface>\
                   <interface type='user'><model type='e1000'/></interface></devices></domain>";
        for (nth, from, to) in [(0, "", "4"), (1, "2", "8"), (1, "2", "")] {
            assert_eq!(queues_of(xml, nth).as_deref(), Ok(from));
            let (new, before) = with_queues(xml, nth, to).unwrap();
            assert_eq!(queues_of(&new, nth).as_deref(), Ok(to), "{new}");
            assert_eq!(queues_of(&new, 1 - nth), queues_of(xml, 1 - nth));
            assert!(new.contains("<host csum='off'/>") && new.contains("rx_queue_size='256'"));
            assert_eq!(put(&new, &before).unwrap(), xml);
        }
        assert!(with_queues(xml, 2, "4").is_err() && with_queues(xml, 3, "4").is_err());
        assert!(with_queues(xml, 0, "0").is_err() && with_queues(xml, 0, "4' x='").is_err());
        let (new, before) = with_pin(XML, 1, "0,3").unwrap();
        assert_eq!(pins_vcpu(&new, 1).as_deref(), Ok("0,3"));
        assert_eq!(put(&new, &before).unwrap(), XML);
        assert_eq!(pins_vcpu(&with_pin(XML, 1, "").unwrap().0, 1).as_deref(), Ok(""));
        assert_eq!(pins_vcpu(XML, 3).as_deref(), Ok(""));
        assert!(with_pin(XML, 1, "x").is_err());
    }

    #[test]
    fn on_another_host_no_pin_is_left() {
        let cpus = "2-3".parse().unwrap();
        let (pins, before) = places(XML).unwrap();
        let text = placed(XML, &[], Some(&cpus)).unwrap();
        assert!(text.contains("<vcpu cpuset='2-3'>4</vcpu>") && !text.contains("vcpupin"), "{text}");
        assert!(text.contains("<shares>512</shares>") && text.contains("<vcpusched vcpus='0-2'"), "{text}");
        let other: CpuSet = "0".parse().unwrap();
        let again = placed(&text.replace("<vcpu ", "<vcpu placement='static' "), &[], Some(&other)).unwrap();
        assert!(again.contains("<vcpu placement='static' cpuset='0'>4</vcpu>"), "{again}");
        assert!(placed("<domain/>", &[], Some(&cpus)).is_err());
        // The way back gives the same elements, though in another position.
        let back = placed(&text, &pins, before.as_ref()).unwrap();
        assert_eq!(places(&back).unwrap(), (pins, None));
        assert!(back.contains("<vcpu>4</vcpu>"), "{back}");
    }
}
