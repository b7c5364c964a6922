//! Do virtio devices have as many queues as the VM has vCPUs?
//!
//! With fewer queues, vCPUs share queues and their interrupts. More queues made iperf3 much faster in the study,
//! but not a build. In a guest the check reads the virtio devices. On a host it reads running VMs, otherwise
//! libvirt's definitions ([`super::vms`]). It also reports a definition that changed after the VM started. Source:
//! QEMU's `-device virtio-net-pci,help`; libvirt's formatdomain (driver queues); the study. Left out: queues that a
//! guest does not use (`ethtool -L`), because the host cannot see them.

use super::vms::{Device, Kind, Manager, Vm, Vms};
use super::{Check, Finding, State, Tree};
use std::collections::BTreeMap;
use vsteer_core::setting::argv::virsh_word;

pub const CHECK: Check = Check {
    name: "queues",
    doc: "number of virtio queues compared with vCPUs",
    rests_on: &["/queues/tx-", "/mq/", "etc/libvirt/qemu/", "/task/"],
    look,
};

/// More queues bring little (the study: 16 queues for 32 vCPUs).
const ENOUGH: usize = 16;

fn look(t: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    if let (true, Some(cpus)) = (t.is_guest(), t.cpus()) {
        let mut devices: BTreeMap<&str, usize> = BTreeMap::new();
        for (path, _) in t.matching("/sys/class/net/", "/xps_cpus").filter(|(path, _)| is_virtio(t, path)) {
            *devices.entry(path.split('/').next().unwrap_or(path)).or_default() += 1;
        }
        for (path, _) in t.matching("/sys/block/", "/cpu_list") {
            *devices.entry(path.split('/').next().unwrap_or(path)).or_default() += 1;
        }
        found.extend(devices.into_iter().map(|(device, queues)| {
            let driver = if device.starts_with("vd") { "qemu" } else { "vhost" };
            told(device, queues, cpus, "", &|n| element(driver, n))
        }));
    }
    let vms = Vms::of(t);
    for vm in vms.in_force() {
        found.extend(vm.devices.iter().map(|d| of_vm(vm, d)));
    }
    found.extend(vms.running_and_defined().flat_map(|(r, d)| differ(r, d)));
    if found.is_empty() {
        let why = t.definitions_unread();
        let why = why.unwrap_or_else(|| "no virtio device and no VM with one found".to_owned());
        vec![Finding::none("virtio queues", why)]
    } else {
        found
    }
}

/// Is the network of this path a virtio device? A guest's own bridges, tunnels and VLANs have one queue each.
fn is_virtio(t: &Tree, path: &str) -> bool {
    let device = path.split('/').next().unwrap_or(path);
    let mut buses = t.matching("/sys/class/net/", "/device/modalias").peekable();
    if buses.peek().is_some() {
        // A network without a device has no bus.
        return buses.any(|(of, alias)| of == device && alias.starts_with("virtio:"));
    }
    // Older captures have no buses: decide by the name, which excludes VLANs (eth0.5) and others.
    ["eth", "en"].iter().any(|begin| device.starts_with(begin))
        && device.chars().all(|c| c.is_ascii_alphanumeric())
}

fn element(driver: &str, queues: usize) -> String {
    format!(
        "set <driver name='{driver}' queues='{queues}'/> in the VM's definition, then stop and start the VM"
    )
}

fn of_vm(vm: &Vm, device: &Device) -> Finding {
    let name = format!("{} of VM {:?}", device.label(), vm.name);
    let queues = match &device.queues {
        Ok(queues) => *queues,
        Err(why) => return Finding::none(format!("queues of {name}"), why.as_str()),
    };
    if device.kind == Kind::SingleQueue {
        let why = "this network type has only one queue on the host; a tap device, vhost-user or \
            vhost-vdpa can have several";
        return Finding::new(format!("queues of {name}"), State::DoesNotApply, "1", why);
    }
    let id = if device.id.is_empty() { "the device" } else { &device.id };
    let change = |n: usize| match (vm.manager, device.kind) {
        (Manager::Libvirt, Kind::Disk) => element("qemu", n),
        (Manager::Libvirt, Kind::Scsi) => {
            format!("set <driver queues='{n}'/> of the controller, then stop and start the VM")
        }
        (Manager::Libvirt, _) => element("vhost", n),
        (Manager::Proxmox(vm), Kind::Network | Kind::SingleQueue) => {
            format!(
                "run `qm set {vm} --{id} ...,queues={n}` with the other values unchanged, then stop \
                and start the VM"
            )
        }
        (Manager::Nobody, Kind::Network | Kind::SingleQueue) => {
            format!(
                "set queues={n} of its -netdev and mq=on,vectors={} of {id}, then stop and start the VM",
                2 * n + 2
            )
        }
        (_, _) => format!("set num-queues={n} of {id}, then stop and start the VM"),
    };
    let mut finding = told(&name, queues, vm.vcpus, &format!(", {}", vm.told_by()), &change);
    if let (State::Not, Some(unused)) = (finding.state, device.unused) {
        finding.reason = format!(
            "the -netdev has {unused} queues, but the device uses only one without mq=on: {}",
            finding.reason
        );
    }
    finding
}

fn told(
    device: &str,
    queues: usize,
    vcpus: usize,
    told_by: &str,
    change: &dyn Fn(usize) -> String,
) -> Finding {
    let (setting, value) = (format!("queues of {device}"), format!("{queues} for {vcpus} vCPUs{told_by}"));
    if queues >= vcpus.min(ENOUGH) {
        return Finding::good(setting, value, "each vCPU has its own queue, or there are at least 16");
    }
    Finding::bad(
        setting,
        value,
        "vCPUs share queues, so I/O from many vCPUs waits; a VM that only computes does not suffer",
        (
            "each queue needs memory for a vhost thread; with 32 queues the study's VM hung at boot unless \
                its vCPUs were pinned",
            change(vcpus.min(ENOUGH)),
            change(queues),
        ),
    )
}

/// Findings for networks whose number of queues differs between the running VM and its definition. MAC addresses
/// match them.
fn differ<'a>(running: &'a Vm, defined: &'a Vm) -> impl Iterator<Item = Finding> + 'a {
    let said = |d: &Device| {
        let mac = d.mac.as_ref()?;
        defined.devices.iter().find(|s| s.mac.as_ref() == Some(mac))?.queues.clone().ok()
    };
    running.devices.iter().filter_map(move |device| {
        let (runs, said) = (device.queues.clone().ok()?, said(device)?);
        (runs != said).then(|| {
            let name = &running.name;
            let word = virsh_word(name, running.uuid.as_deref());
            Finding::bad(
                format!("queues of {} of VM {name:?} compared with its definition", device.label()),
                format!("{runs} running, {said} defined"),
                "the definition changed after the VM started",
                (
                    "the VM is down during the restart",
                    format!("run `virsh shutdown {word}`, then `virsh start {word}` when the VM is down"),
                    format!("set <driver name='vhost' queues='{runs}'/> in the VM's definition"),
                ),
            )
        })
    })
}
