//! Which VMs does this machine have, and how many vCPUs, pins and queues does each have?
//!
//! A running VM is read from its QEMU process, whether libvirt, Proxmox or a person started it. With `-name
//! ...,debug-threads=on` each vCPU has a named thread whose `Cpus_allowed_list` is its pin. A stopped VM is read
//! from libvirt's definition. A running VM and a definition are the same VM if their names match, and their UUIDs
//! if both have one. Then the running values count, and the checks report differences.
//!
//! The command line was reduced to the options and keys that matter, with JSON rewritten as `key=value` (the host
//! crate's `audit/running.rs`). Unknown words are skipped.
//!
//! Source: QEMU 7.2: `qemu-options.hx`; `hw/core/machine-smp.c` (what `-smp` leaves out); `hw/virtio/virtio-pci.c`,
//! `virtio_pci_optimal_num_queues`, and `hw/core/machine.c`, `hw_compat_5_1` (queues of disks; so `info qtree`
//! shows them); `hw/net/virtio-net.c` (queues of networks). libvirt's formatdomain (vcpu, cputune, driver).
//!
//! Left
//! out: configuration files (`-readconfig`); disks whose definition has no number of queues. GAP(audit-live):
//! devices that a monitor added later, and VMs of VMMs other than QEMU.

use super::Tree;
use super::definition::{attribute, content, elements, name_of, vcpus_of};
use std::collections::BTreeMap;
use vsteer_core::{CpuSet, machine_type, smp};

/// Most queues of a disk in QEMU (VIRTIO_QUEUE_MAX). The two extra queues of a SCSI controller do not matter here.
const QUEUES_MAX: usize = 1024;
/// First QEMU version whose machines have as many queues per disk as vCPUs.
const QUEUES_SINCE: (u32, u32) = (5, 2);
/// Machine types without a version, which are the newest of their QEMU.
const UNVERSIONED: [&str; 10] =
    ["", "pc", "q35", "virt", "microvm", "pseries", "s390-ccw-virtio", "s390-ccw", "s390", "isapc"];

/// Where the facts about a VM come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// A running QEMU process with this id.
    Running(u32),
    /// A definition of libvirt.
    Defined,
}

/// Program that can change a VM.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Manager {
    /// The VM belongs to libvirt.
    Libvirt,
    /// Proxmox VE, with its VM id. Untried.
    Proxmox(u32),
    /// No manager: a person started the QEMU process.
    Nobody,
}

/// Pin of a vCPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pin {
    /// Thread id; `None` if the VM does not run.
    pub tid: Option<u32>,
    /// pCPUs where the vCPU may run; `None`: all.
    pub cpus: Option<CpuSet>,
}

/// Kind of a virtio device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Network that can have several queues on the host.
    Network,
    /// Network that has only one queue (QEMU's user network).
    SingleQueue,
    /// Disk on virtio-blk.
    Disk,
    /// SCSI controller on virtio-scsi.
    Scsi,
}

/// A virtio device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    /// Kind of the device.
    pub kind: Kind,
    /// QEMU's name of the device; empty if it has none.
    pub id: String,
    /// MAC address of a network.
    pub mac: Option<String>,
    /// Number of queues (of a network: pairs), or why it is unknown.
    pub queues: Result<usize, String>,
    /// Queues of a network on the host, if it has more than the device uses.
    pub unused: Option<usize>,
}

/// A VM as the audit sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Vm {
    /// Name of the VM.
    pub name: String,
    /// UUID of the VM, if known.
    pub uuid: Option<String>,
    /// Where the facts come from.
    pub source: Source,
    /// Program that can change the VM.
    pub manager: Manager,
    /// Number of vCPUs.
    pub vcpus: usize,
    /// Number of vCPUs per core that the guest is shown; `None` if the VM does not run.
    pub threads: Option<usize>,
    /// Pin of each vCPU, or why the pins are unknown.
    pub pins: Result<BTreeMap<u32, Pin>, String>,
    /// pCPUs where the process's first thread may run, and so its unpinned vCPUs; `None`: all, or the VM does not run.
    pub confined: Option<CpuSet>,
    /// Virtio devices of the VM.
    pub devices: Vec<Device>,
}

/// All VMs of a tree.
#[derive(Debug, Clone, Default)]
pub struct Vms {
    running: Vec<Vm>,
    defined: Vec<Vm>,
}

impl Vms {
    /// Reads all VMs of a tree.
    pub fn of(t: &Tree) -> Vms {
        let pid = |(pid, text): (&str, &str)| running(t, pid.parse().ok()?, text);
        let running = t.matching("/proc/", "/cmdline").filter_map(pid).collect();
        let defined = t.matching("/etc/libvirt/qemu/", ".xml").map(|(file, xml)| defined(t, file, xml));
        Vms { running, defined: defined.collect() }
    }

    /// Running VMs, and definitions of the VMs that do not run.
    pub fn in_force(&self) -> impl Iterator<Item = &Vm> {
        let idle = |d: &&Vm| !self.running.iter().any(|r| r.is(d));
        self.running.iter().chain(self.defined.iter().filter(idle))
    }

    /// Running VMs that have a definition, each with its definition.
    pub fn running_and_defined(&self) -> impl Iterator<Item = (&Vm, &Vm)> {
        self.running.iter().filter_map(|r| Some((r, self.defined.iter().find(|d| r.is(d))?)))
    }
}

impl Vm {
    /// Are both the same VM?
    fn is(&self, other: &Vm) -> bool {
        let apart = matches!((&self.uuid, &other.uuid), (Some(a), Some(b)) if a != b);
        self.name == other.name && !apart
    }

    /// Where the facts come from, as one word.
    pub fn told_by(&self) -> &'static str {
        match self.source {
            Source::Running(_) => "running",
            Source::Defined => "defined",
        }
    }
}

impl Device {
    /// Printable name of the device.
    pub fn label(&self) -> String {
        let kind = match self.kind {
            Kind::Network | Kind::SingleQueue => "network",
            Kind::Disk => "disk",
            Kind::Scsi => "SCSI controller",
        };
        if self.id.is_empty() { kind.to_owned() } else { format!("{kind} {}", self.id) }
    }
}

/// The online CPUs, if known.
pub fn online(t: &Tree) -> Option<CpuSet> {
    t.text("/sys/devices/system/cpu/online")?.parse().ok().filter(|c: &CpuSet| !c.is_empty())
}

/// Key and value, between commas; `,,` is a comma.
type Pairs = BTreeMap<String, String>;

fn pairs(text: &str) -> Pairs {
    // A word of a command line never contains NUL.
    let text = text.replace(",,", "\0");
    let pair =
        |word: &str| word.replace('\0', ",").split_once('=').map(|(k, v)| (k.to_owned(), v.to_owned()));
    text.split(',').filter_map(pair).collect()
}

fn number(pairs: &Pairs, key: &str) -> Option<usize> {
    pairs.get(key)?.parse().ok().filter(|n| *n > 0)
}

/// The VM of a QEMU process, by its reduced command line and its threads.
fn running(t: &Tree, pid: u32, text: &str) -> Option<Vm> {
    let words: Vec<&str> = text.split('\0').collect();
    let (program, rest) = words.split_first()?;
    let options: Vec<(&str, Pairs)> =
        rest.chunks_exact(2).filter_map(|w| Some((w[0].strip_prefix('-')?, pairs(w[1])))).collect();
    let plain = |name: &str| {
        let at = rest.chunks_exact(2).rposition(|w| w[0].strip_prefix('-') == Some(name))?;
        Some(rest[2 * at + 1])
    };
    // A later option of the same name adds to or overrides an earlier one.
    let all = |name: &str| -> Pairs {
        options.iter().filter(|(o, _)| *o == name).flat_map(|(_, p)| p.clone()).collect()
    };
    let (name, machine) = (all("name"), all("machine"));
    let counts: Vec<(String, String)> = options
        .iter()
        .flat_map(|(option, pairs)| {
            pairs.iter().filter_map(move |(k, v)| {
                let key = if *option == "smp" { Some(k.as_str()) } else { k.strip_prefix("smp.") };
                key.filter(|_| ["smp", "machine"].contains(option)).map(|key| (key.to_owned(), v.clone()))
            })
        })
        .collect();
    let started = smp::started(&counts).map_or(1, |n| n as usize);
    let (pins, confined) = pins(t, pid, name.get("debug-threads").is_some_and(|v| v == "on"));
    // The threads also include vCPUs that were plugged in later.
    let vcpus = pins.as_ref().map_or(started, BTreeMap::len);
    let disks = disk_queues(machine.get("type").map_or("", String::as_str), started);
    let libvirt =
        options.iter().any(|(o, p)| *o == "object" && p.get("id").is_some_and(|i| i == "masterKey0"));
    let manager = match plain("id").and_then(|id| id.parse().ok()) {
        _ if libvirt => Manager::Libvirt,
        Some(id) => Manager::Proxmox(id),
        None => Manager::Nobody,
    };
    let backends: BTreeMap<&str, &Pairs> = options
        .iter()
        .filter(|(o, _)| *o == "netdev")
        .filter_map(|(_, p)| Some((p.get("id")?.as_str(), p)))
        .collect();
    let device = |(option, p): &(&str, Pairs)| match *option {
        "device" => device(p, &backends, &disks, program.ends_with("-s390x")),
        "nic" | "net" => nic(p),
        "drive" if p.get("if").is_some_and(|i| i == "virtio") => Some(Device {
            kind: Kind::Disk,
            id: p.get("id").cloned().unwrap_or_default(),
            mac: None,
            queues: disks.clone(),
            unused: None,
        }),
        _ => None,
    };
    Some(Vm {
        name: name
            .get("guest")
            .filter(|n| !n.is_empty())
            .cloned()
            .unwrap_or_else(|| format!("process {pid}")),
        uuid: plain("uuid").map(str::to_ascii_lowercase),
        source: Source::Running(pid),
        manager,
        vcpus,
        threads: smp::topology(&counts, machine.get("type").map_or("", String::as_str))
            .ok()
            .map(|t| t.threads as usize),
        pins,
        confined,
        devices: options.iter().filter_map(device).collect(),
    })
}

fn allowed(t: &Tree, path: &str) -> Option<CpuSet> {
    t.text(path)?.lines().find_map(|l| l.strip_prefix("Cpus_allowed_list:"))?.parse().ok()
}

/// Pins of a process's vCPUs, or why they are unknown; and where its first thread may run.
fn pins(t: &Tree, pid: u32, named: bool) -> (Result<BTreeMap<u32, Pin>, String>, Option<CpuSet>) {
    let Some(online) = online(t) else {
        return (Err("the kernel does not report which pCPUs are online".into()), None);
    };
    let on = |path: &str| allowed(t, path).map(|c| c.intersection(&online));
    let confined = on(&format!("/proc/{pid}/status")).filter(|c| *c != online);
    let tasks = format!("/proc/{pid}/task/");
    let mut pins = BTreeMap::new();
    for (tid, comm) in t.matching(&tasks, "/comm") {
        if comm.starts_with("ALL CPUs") {
            let why = "one thread runs all vCPUs of this VM (TCG without a thread per vCPU)";
            return (Err(why.into()), confined);
        }
        let vcpu = || comm.strip_prefix("CPU ")?.split_once('/')?.0.parse().ok();
        let (Some(vcpu), Ok(tid)) = (vcpu(), tid.parse()) else { continue };
        let Some(cpus) = on(&format!("{tasks}{tid}/status")) else { continue };
        pins.insert(vcpu, Pin { tid: Some(tid), cpus: Some(cpus).filter(|c| *c != online) });
    }
    let pins = match (pins.is_empty(), named) {
        (false, _) => Ok(pins),
        (true, true) => Err("the QEMU process had no vCPU thread at that moment".into()),
        (true, false) => Err("QEMU's threads have no names: start it with -name ...,debug-threads=on".into()),
    };
    (pins, confined)
}

/// Default number of queues of a disk or SCSI controller on PCI, by the machine type.
fn disk_queues(machine: &str, vcpus: usize) -> Result<usize, String> {
    match machine_type::version(machine) {
        Some(version) if version < QUEUES_SINCE => Ok(1),
        Some(_) => Ok(vcpus.min(QUEUES_MAX)),
        _ if UNVERSIONED.contains(&machine) => Ok(vcpus.min(QUEUES_MAX)),
        _ => Err(format!("vsteer does not know the default number of queues of machine type {machine:?}")),
    }
}

/// The device of a `-device` option, if its queues matter.
fn device(
    p: &Pairs,
    backends: &BTreeMap<&str, &Pairs>,
    disks: &Result<usize, String>,
    s390: bool,
) -> Option<Device> {
    let driver = p.get("driver")?;
    let (base, pci) = bus(driver, s390);
    let id = p.get("id").cloned().unwrap_or_default();
    if base == "virtio-net" {
        let backend = p.get("netdev").and_then(|n| backends.get(n.as_str()));
        let kind = backend.and_then(|b| b.get("type")).map_or(Kind::Network, |t| network(t));
        let has = backend.map_or(1, |b| match b.get("fds") {
            Some(fds) => fds.split(':').count(),
            None => number(b, "queues").unwrap_or(1),
        });
        // Without mq a guest uses one queue pair, however many the host has.
        let mq = p.get("mq").is_some_and(|v| ["on", "yes", "true"].contains(&v.as_str()));
        let (queues, unused) = if mq || has == 1 { (has, None) } else { (1, Some(has)) };
        let mac = p.get("mac").map(|m| m.to_ascii_lowercase());
        return Some(Device { kind, id, mac, queues: Ok(queues), unused });
    }
    let kind = match base {
        "virtio-blk" | "vhost-user-blk" => Kind::Disk,
        "virtio-scsi" | "vhost-scsi" | "vhost-user-scsi" => Kind::Scsi,
        _ => return None,
    };
    let said = number(p, "num-queues").or_else(|| number(p, "num_queues"));
    let queues = match said {
        Some(n) => Ok(n),
        None if pci => disks.clone(),
        None => Ok(1),
    };
    Some(Device { kind, id, mac: None, queues, unused: None })
}

/// A driver's name without its bus, and whether the bus is PCI. A name without a bus means the machine's default:
/// channels on s390.
fn bus(driver: &str, s390: bool) -> (&str, bool) {
    for end in ["-pci-non-transitional", "-pci-transitional", "-pci"] {
        if let Some(base) = driver.strip_suffix(end) {
            return (base, true);
        }
    }
    match driver.strip_suffix("-ccw").or_else(|| driver.strip_suffix("-device")) {
        Some(base) => (base, false),
        None => (driver, !s390),
    }
}

/// Kind of a network by the type of its host side, in QEMU's or libvirt's words.
fn network(of: &str) -> Kind {
    match of {
        "user" | "socket" | "stream" | "dgram" | "l2tpv3" | "vde" | "hubport" | "passt" | "slirp" => {
            Kind::SingleQueue
        }
        _ => Kind::Network,
    }
}

/// The device of `-nic` or `-net nic`, which has one queue because these options do not support `mq=on`.
fn nic(p: &Pairs) -> Option<Device> {
    let model = p.get("model")?;
    let kind = p.get("type").map_or(Kind::Network, |t| network(t));
    let mac = p.get("mac").or_else(|| p.get("macaddr")).map(|m| m.to_ascii_lowercase());
    let id = p.get("id").or_else(|| p.get("name")).cloned().unwrap_or_default();
    let virtio = model == "virtio" || model.starts_with("virtio-net");
    virtio.then_some(Device { kind, id, mac, queues: Ok(1), unused: None })
}

/// The VM of a libvirt definition.
fn defined(t: &Tree, file: &str, xml: &str) -> Vm {
    let vcpus = vcpus_of(xml);
    let plain = |text: &str| {
        text.replace("&lt;", "<")
            .replace("&gt;", ">")
            .replace("&quot;", "\"")
            .replace("&apos;", "'")
            .replace("&amp;", "&")
    };
    let online = online(t);
    let here = |cpus: CpuSet| online.as_ref().map_or(cpus.clone(), |o| cpus.intersection(o));
    let all: Option<CpuSet> = attribute(xml, "vcpu", "cpuset").and_then(|c| c.parse().ok());
    let mut pins: BTreeMap<u32, Pin> =
        (0..u32::try_from(vcpus).unwrap_or(u32::MAX).min(vsteer_core::cpuset::MAX_CPU))
            .map(|n| (n, Pin { tid: None, cpus: all.clone().map(here) }))
            .collect();
    for pin in elements(xml, "vcpupin") {
        let vcpu = attribute(pin, "vcpupin", "vcpu").and_then(|v| v.parse::<u32>().ok());
        let cpus = attribute(pin, "vcpupin", "cpuset").and_then(|c| c.parse::<CpuSet>().ok());
        if let (Some(pin), Some(cpus)) = (vcpu.and_then(|v| pins.get_mut(&v)), cpus) {
            pin.cpus = Some(here(cpus));
        }
    }
    for pin in pins.values_mut() {
        pin.cpus = pin.cpus.take().filter(|c| Some(c) != online.as_ref());
    }
    let mut devices = Vec::new();
    for interface in elements(xml, "interface") {
        if attribute(interface, "model", "type") == Some("virtio") {
            let queues = attribute(interface, "driver", "queues").and_then(|q| q.parse().ok()).unwrap_or(1);
            let kind = attribute(interface, "interface", "type").map_or(Kind::Network, network);
            let mac = attribute(interface, "mac", "address").map(str::to_ascii_lowercase);
            devices.push(Device { kind, id: String::new(), mac, queues: Ok(queues), unused: None });
        }
    }
    for disk in elements(xml, "disk") {
        let queues = attribute(disk, "driver", "queues").and_then(|q| q.parse().ok());
        if let (Some("virtio"), Some(queues)) = (attribute(disk, "target", "bus"), queues) {
            let id = attribute(disk, "target", "dev").unwrap_or_default().to_owned();
            devices.push(Device { kind: Kind::Disk, id, mac: None, queues: Ok(queues), unused: None });
        }
    }
    Vm {
        name: name_of(xml).map_or_else(|| file.to_owned(), plain),
        uuid: content(xml, "uuid").map(str::to_ascii_lowercase),
        source: Source::Defined,
        manager: Manager::Libvirt,
        threads: None,
        vcpus,
        pins: Ok(pins),
        confined: None,
        devices,
    }
}
