//! Moves a running VM to another host and back. libvirt, which manages both hosts, migrates it.
//!
//! The VM keeps its description, except its pins if the step names pCPUs of the other host, because pins of
//! this host mean nothing there. vsteer stores the old pins, so that the VM comes back unchanged.
//!
//! If the URI is a socket of this machine (`qemu+unix`, as in the lab, whose hosts share a file system but no
//! network), the memory also goes over a socket. Otherwise libvirt chooses the transport.
//!
//! Left out: disks that are not shared, and VMs that libvirt does not manage.

use super::{changed, fault};
use crate::actuate::{Former, Restored};
use crate::kvm::client::Client;
use crate::kvm::definition;
use crate::kvm::host::KvmHost;
use serde_json::{Value, json};
use std::time::Duration;
use vsteer_core::CpuSet;
use vsteer_core::nouns::{Manager, VmId};
use vsteer_core::setting;
use vsteer_core::setting::{Change, Step};
use vsteer_core::{Fault, FaultKind};

/// Time limit. If a guest writes memory faster than libvirt can send it, the migration never ends. Then the
/// VM stays where it is.
const LIMIT: Duration = Duration::from_secs(600);

/// The parts of such a step.
struct Move<'a> {
    vm: &'a VmId,
    from: &'a str,
    to: &'a str,
    cpus: Option<&'a CpuSet>,
}

fn parts(step: &Step) -> Option<Move<'_>> {
    match &step.change {
        Change::Host(setting::Host { from, to, cpus }) => {
            Some(Move { vm: &step.vm, from, to, cpus: cpus.as_ref() })
        }
        _ => None,
    }
}

fn runs_at(uri: &str, vm: &VmId) -> Result<bool, Fault> {
    let mut client = Client::new(uri, false);
    let listed = client.list()?;
    // A VM that libvirt cannot describe now still runs.
    let others = client.undescribed().iter().filter_map(|vm| vm.uuid.as_ref());
    Ok(listed.iter().map(|vm| &vm.uuid).chain(others).any(|uuid| uuid.eq_ignore_ascii_case(&vm.0)))
}

/// The same change, with the host where the VM is now as `from`; `None` if the step moves no VM.
pub(super) fn current(host: &KvmHost, step: &Step) -> Option<Result<Change, Fault>> {
    let of = parts(step)?;
    let said = |from: &str| {
        Change::Host(setting::Host { from: from.into(), to: of.to.into(), cpus: of.cpus.cloned() })
    };
    // If this host's own libvirt is connected by that URI, the inventory already has its answer.
    let here = || {
        let mine = host.inventory.vms.iter().find(|vm| vm.id == *of.vm);
        Ok::<bool, Fault>(
            mine.is_some_and(|vm| vm.manager == Manager::Libvirt(of.from.to_owned()))
                && runs_at(of.from, of.vm)?,
        )
    };
    let found = || {
        if here()? {
            return Ok(said(of.from));
        }
        if runs_at(of.to, of.vm)? {
            return Ok(said(of.to));
        }
        Err(Fault::new(FaultKind::NothingThere, format!("VM {:?} runs on neither host", step.vm_name))
            .because(format!("neither {} nor {} lists the VM", of.from, of.to))
            .help("find where the VM runs: virsh -c URI list"))
    };
    Some(found())
}

/// What the step overwrites: where the VM runs and may run. `None` for a step of another kind.
pub(super) fn former(host: &mut KvmHost, step: &Step) -> Option<Result<Former, Fault>> {
    let of = parts(step)?;
    let read = || {
        let text = described(&mut Client::new(of.from, true), of.vm)?;
        let (definition, cpus) = definition::places(&text).map_err(|why| unreadable(step, &why))?;
        Ok(Former {
            live: Some(Change::Host(setting::Host { from: of.from.into(), to: of.to.into(), cpus })),
            definition,
            ..Former::default()
        })
    };
    Some(match current(host, step)? {
        Ok(Change::Host(setting::Host { from, .. })) if from == of.from => read(),
        Ok(_) => Err(changed(step, "the VM already runs on the destination host")),
        Err(fault) => Err(fault),
    })
}

/// Moves the VM; `None` for a step of another kind.
pub(super) fn make(host: &mut KvmHost, step: &Step) -> Option<Result<(), Fault>> {
    let of = parts(step)?;
    let placed = |text: &str| match of.cpus {
        Some(cpus) => definition::placed(text, &[], Some(cpus)).map_err(|why| unreadable(step, &why)),
        None => Ok(text.to_owned()),
    };
    let moved = send(step, of.vm, of.from, of.to, placed);
    host.inventory.refresh();
    Some(moved)
}

/// Moves the VM back, with its former pins; `None` for a step of another kind.
pub(super) fn restore(host: &mut KvmHost, step: &Step, former: &Former) -> Option<Result<Restored, Fault>> {
    let of = parts(step)?;
    let cpus = match &former.live {
        Some(Change::Host(setting::Host { cpus, .. })) => cpus.as_ref(),
        _ => None,
    };
    let placed =
        |text: &str| definition::placed(text, &former.definition, cpus).map_err(|why| unreadable(step, &why));
    let back = || {
        if runs_at(of.from, of.vm)? {
            return Ok(Restored::Back);
        }
        if !runs_at(of.to, of.vm)? {
            return Ok(Restored::Gone("the VM runs on neither host".to_owned()));
        }
        send(step, of.vm, of.to, of.from, placed).map(|()| Restored::Back)
    };
    let done = back();
    host.inventory.refresh();
    Some(done)
}

fn unreadable(step: &Step, why: &str) -> Fault {
    fault(FaultKind::Unsupported, step).because(why)
}

/// The running VM's description, for libvirt's own use.
fn described(client: &mut Client, vm: &VmId) -> Result<String, Fault> {
    let answer = client.ask(json!({ "op": "migratable", "uuid": vm.0 }))?;
    answer.get("xml").and_then(Value::as_str).map(str::to_owned).ok_or_else(|| {
        Fault::new(FaultKind::BadInput, "libvirt returned an empty description of a VM")
            .help("install vsteer and vsteer-libvirt of the same release")
    })
}

/// Moves the VM. `placed` converts its description and definition for the other host.
fn send(
    step: &Step,
    vm: &VmId,
    from: &str,
    to: &str,
    placed: impl Fn(&str) -> Result<String, Fault>,
) -> Result<(), Fault> {
    let mut client = Client::new(from, true).with_limit(LIMIT);
    let xml = placed(&described(&mut client, vm)?)?;
    // A transient VM has no definition, and needs none.
    let defined = client.definition(&vm.0).ok().map(|text| placed(&text)).transpose()?;
    let uri = to.contains("+unix").then(|| {
        let socket = std::env::temp_dir().join(format!("vsteer-move-{}.sock", std::process::id()));
        format!("unix://{}", socket.display())
    });
    let request =
        json!({ "op": "migrate", "uuid": vm.0, "to": to, "xml": xml, "persist_xml": defined, "uri": uri });
    client.ask(request).map(|_| ()).map_err(|f| {
        let help =
            "the VM still runs on its former host; run virsh migrate --live to see libvirt's own message"
                .to_owned();
        let help = f.help.unwrap_or(help);
        fault(FaultKind::NotApplied, step).because(f.cause.unwrap_or(f.what)).help(help)
    })
}
