//! Reads, sets and restores a VM's pins and network queues in libvirt's definition.
//!
//! It uses the same editor as plans for VMs ([`crate::kvm::definition`]): it replaces the elements concerned, and the
//! journal keeps the former ones. libvirt redefines the VM only if the definition has not changed since vsteer read
//! it. New queues take effect when the VM restarts.
//!
//! Left out: VMs that do not run, which the helper does not list.

use crate::actuate::Part;
use crate::kvm::client::Client;
use crate::kvm::definition::{pins_vcpu, put, queues_of, with_pin, with_queues};
use serde_json::json;
use vsteer_core::setting::lasting::Element;
use vsteer_core::{Fault, FaultKind};

fn failed(element: &Element, why: impl std::fmt::Display) -> Fault {
    Fault::new(FaultKind::Unsupported, format!("cannot change the definition of VM {:?}", element.vm()))
        .because(why)
}

/// The VM's UUID and definition.
fn defined(client: &mut Client, element: &Element) -> Result<(String, String), Fault> {
    let found = client.list()?.into_iter().find(|vm| vm.name == element.vm());
    let vm = found.ok_or_else(|| {
        Fault::new(FaultKind::NothingThere, format!("no VM {:?} runs on {}", element.vm(), client.uri()))
    })?;
    let xml = client.definition(&vm.uuid)?;
    Ok((vm.uuid, xml))
}

/// What the definition says; nothing where it says nothing.
///
/// # Errors
/// Where libvirt, the VM or the element is not there.
pub fn read(connect: &str, element: &Element) -> Result<String, Fault> {
    let (_, xml) = defined(&mut Client::new(connect, true), element)?;
    match element {
        Element::Queues { interface, .. } => queues_of(&xml, *interface),
        Element::Pin { vcpu, .. } => pins_vcpu(&xml, *vcpu),
    }
    .map_err(|why| failed(element, why))
}

fn edited(xml: &str, element: &Element, value: &str) -> Result<(String, Part), String> {
    match element {
        Element::Queues { interface, .. } => with_queues(xml, *interface, value),
        Element::Pin { vcpu, .. } => with_pin(xml, *vcpu, value),
    }
}

/// What [`set`] overwrites.
///
/// # Errors
/// As [`read`].
pub fn former(connect: &str, element: &Element, value: &str) -> Result<Vec<Part>, Fault> {
    let (_, xml) = defined(&mut Client::new(connect, true), element)?;
    edited(&xml, element, value).map(|(_, part)| vec![part]).map_err(|why| failed(element, why))
}

/// Sets it in the definition.
///
/// # Errors
/// As [`read`]; where libvirt refuses.
pub fn set(connect: &str, element: &Element, value: &str) -> Result<(), Fault> {
    redefine(connect, element, |xml| edited(xml, element, value).map(|(new, _)| new))
}

/// Puts the former elements back.
///
/// # Errors
/// As [`set`].
pub fn restore(connect: &str, element: &Element, former: &[Part]) -> Result<(), Fault> {
    redefine(connect, element, |xml| former.iter().try_fold(xml.to_owned(), |xml, part| put(&xml, part)))
}

fn redefine(
    connect: &str,
    element: &Element,
    edit: impl FnOnce(&str) -> Result<String, String>,
) -> Result<(), Fault> {
    let mut client = Client::new(connect, true);
    let (uuid, old) = defined(&mut client, element)?;
    let new = edit(&old).map_err(|why| failed(element, why))?;
    if new == old {
        return Ok(());
    }
    client.ask(json!({ "op": "redefine", "uuid": uuid, "expect": old, "xml": new })).map(drop)
}
