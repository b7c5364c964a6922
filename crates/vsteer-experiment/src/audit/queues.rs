//! Have virtio devices as many queues as there are vCPUs?
//!
//! With fewer, vCPUs share queues and their interrupts: iperf3 gained much by more queues in the study, a build nothing. Read in the guest from its
//! virtio devices; on the host from VMs as they run, else from libvirt's definitions ([`super::vms`]); where a definition was changed and its VM not started anew,
//! that is told. Source: QEMU's `-device virtio-net-pci,help`; libvirt's formatdomain (driver queues); the study. Left out: queues that a guest leaves unused
//! though it has them (`ethtool -L`), which only the guest tells.

use super::vms::{Device, Kind, Manager, Vm, Vms};
use super::{Check, Finding, State, Tree};
use std::collections::BTreeMap;

/// See the file's head.
pub const CHECK: Check = Check { name: "queues", doc: "virtio queues against vCPUs", look };

/// More bring little (the study: 16 of 32).
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
        let why = why.unwrap_or_else(|| "no virtio device, and no VM with one, is here".to_owned());
        vec![Finding::none("virtio queues", why)]
    } else {
        found
    }
}

/// Is the network of this path a virtio device? Bridges, tunnels and VLANs of the guest's own have one queue each and are nobody's to give more.
fn is_virtio(t: &Tree, path: &str) -> bool {
    let device = path.split('/').next().unwrap_or(path);
    let mut buses = t.matching("/sys/class/net/", "/device/modalias").peekable();
    if buses.peek().is_some() {
        // What stands for no device has no bus.
        return buses.any(|(of, alias)| of == device && alias.starts_with("virtio:"));
    }
    // Trees that were captured before buses were: by names that devices have, and VLANs (eth0.5) and others have not.
    ["eth", "en"].iter().any(|begin| device.starts_with(begin))
        && device.chars().all(|c| c.is_ascii_alphanumeric())
}

fn element(driver: &str, queues: usize) -> String {
    format!("<driver name='{driver}' queues='{queues}'/> in the VM's definition, and start it anew")
}

fn of_vm(vm: &Vm, device: &Device) -> Finding {
    let name = format!("{} of VM {:?}", device.label(), vm.name);
    let queues = match &device.queues {
        Ok(queues) => *queues,
        Err(why) => return Finding::none(format!("queues of {name}"), why.as_str()),
    };
    if device.kind == Kind::SingleQueue {
        let why = "the host's side of it has one queue and no more: a tap device, vhost-user and vhost-vdpa can have several";
        return Finding::new(format!("queues of {name}"), State::DoesNotApply, "1", why);
    }
    let id = if device.id.is_empty() { "it" } else { &device.id };
    let change = |n: usize| match (vm.manager, device.kind) {
        (Manager::Libvirt, Kind::Disk) => element("qemu", n),
        (Manager::Libvirt, Kind::Scsi) => {
            format!("<driver queues='{n}'/> of the controller, and start it anew")
        }
        (Manager::Libvirt, _) => element("vhost", n),
        (Manager::Proxmox(vm), Kind::Network | Kind::SingleQueue) => {
            format!("`qm set {vm} --{id} ...,queues={n}` with the rest of it as it is, and start it anew")
        }
        (Manager::Nobody, Kind::Network | Kind::SingleQueue) => {
            format!("queues={n} of its -netdev and mq=on,vectors={} of {id}, and start it anew", 2 * n + 2)
        }
        (_, _) => format!("num-queues={n} of {id}, and start it anew"),
    };
    let mut finding = told(&name, queues, vm.vcpus, &format!(", {}", vm.told_by()), &change);
    if let (State::Not, Some(unused)) = (finding.state, device.unused) {
        finding.reason = format!(
            "its -netdev has {unused} queues, and the device without mq=on uses one: {}",
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
        return Finding::good(setting, value, "each vCPU has its own, or there are enough");
    }
    Finding::bad(
        setting,
        value,
        "vCPUs share queues: traffic from many vCPUs waits; a VM that only computes gains nothing",
        (
            "a vhost thread's memory per queue; with 32 queues the study's VM hung at boot unless its vCPUs were pinned",
            change(vcpus.min(ENOUGH)),
            change(queues),
        ),
    )
}

/// Networks of which the definition says another number of queues than they run with: the same network by its address.
fn differ<'a>(running: &'a Vm, defined: &'a Vm) -> impl Iterator<Item = Finding> + 'a {
    let said = |d: &Device| {
        let mac = d.mac.as_ref()?;
        defined.devices.iter().find(|s| s.mac.as_ref() == Some(mac))?.queues.clone().ok()
    };
    running.devices.iter().filter_map(move |device| {
        let (runs, said) = (device.queues.clone().ok()?, said(device)?);
        (runs != said).then(|| {
            let name = &running.name;
            Finding::bad(
                format!("queues of {} of VM {name:?} against its definition", device.label()),
                format!("{runs} running, {said} defined"),
                "the definition was changed and the VM not started anew",
                (
                    "the VM is down while it is started anew",
                    format!("`virsh shutdown {name}`, and `virsh start {name}` when it is down"),
                    format!("<driver name='vhost' queues='{runs}'/> in the VM's definition"),
                ),
            )
        })
    })
}
