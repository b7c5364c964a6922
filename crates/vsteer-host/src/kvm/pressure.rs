//! How long did each VM stall? Reads the pressure of the cgroup of version 2 that holds the VM and nothing else.
//!
//! Where the cpu controller is of version 2, that group is the VM's own cgroup. A hybrid host has a tree of version 2
//! beside the controllers, with a place for every thread. A group that holds other processes too has a figure of its own,
//! which is not the VM's: such a VM has none.
//!
//! The files stay open between readings. Reading three files of a VM takes some microseconds, so many VMs are read only
//! every two seconds.
//!
//! Left out: which thread stalled.

use super::config::own_cgroup;
use super::inventory::Inventory;
use crate::linux::psi::{self, FILES};
use rustix::fs::{Mode, OFlags};
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};
use vsteer_core::nouns::{Collector, Pressure, VmConfig, VmId};

/// So many VMs are read at every sample, more only each [`EVERY`].
const AT_ONCE: usize = 100;
const EVERY: Duration = Duration::from_secs(2);

/// Why the host's pressure is not measured.
pub const NOT_COUNTED: &str = "this kernel does not count pressure: boot it with psi=1 (it needs CONFIG_PSI)";
const NO_V2: &str = "no cgroups of version 2 are mounted: the kernel counts pressure only there";
const SHARED: &str = "other processes are in the VM's cgroup, whose pressure is not the VM's alone";
const NO_FILE: &str = "the VM's cgroup has no readable pressure files";

/// The cgroup of version 2 that holds this VM and nothing else.
///
/// # Errors
/// Why there is none.
pub fn group_of(inventory: &Inventory, vm: &VmConfig) -> Result<String, &'static str> {
    let (root, groups) = (&inventory.root, &inventory.cgroups);
    if groups.is_unified() {
        return vm.cgroup.clone().ok_or(SHARED);
    }
    let v2 = groups.v2().ok_or(NO_V2)?;
    // A kernel thread of the VM (vhost) is a process of its own.
    let place = |tid| v2.of_thread(root, vm.pid, tid).or_else(|| v2.of_thread(root, tid.0, tid));
    let places: Vec<Option<String>> = vm.threads.iter().map(|t| place(t.tid)).collect();
    let kin: Vec<u32> = vm.threads.iter().map(|t| t.tid.0).chain([vm.pid]).collect();
    own_cgroup(root, &v2, places.iter().map(Option::as_deref), &kin).ok_or(SHARED)
}

/// The pressure of a VM, read once, without open descriptors.
pub fn read_once(inventory: &Inventory, vm: &VmConfig) -> Result<Pressure, &'static str> {
    let group = group_of(inventory, vm)?;
    let v2 = inventory.cgroups.v2().ok_or(NO_V2)?;
    psi::of_group(&inventory.root, &v2, &group).ok_or(NO_FILE)
}

/// The collector, with why it does not measure the pressure of the host or of VMs.
pub fn described(collector: Collector, of_host: Result<(), &str>, of_vms: Option<&str>) -> Collector {
    match (of_host, of_vms) {
        (Err(why), _) => collector.without(&["psi", "psi.vms"], why),
        (Ok(()), Some(why)) => collector.without(&["psi.vms"], why),
        (Ok(()), None) => collector,
    }
}

/// Names the VMs without a figure; `None` if every VM has one.
pub fn lacking(vms: &[(&VmConfig, Option<&'static str>)]) -> Option<String> {
    let mut without = vms.iter().filter_map(|(vm, why)| Some((vm, (*why)?)));
    let (vm, why) = without.next()?;
    let more = match without.count() {
        0 => String::new(),
        n => format!(" (and {n} more)"),
    };
    Some(format!("VM {:?}{more}: {why}", vm.name))
}

struct Files {
    /// A group of the same path is another one after the VM started again.
    pid: u32,
    group: String,
    files: [Option<OwnedFd>; FILES.len()],
    read: Option<Pressure>,
}

/// The open files, and the last reading.
#[derive(Default)]
pub struct VmPressures {
    vms: BTreeMap<VmId, Files>,
    due: Option<Instant>,
    missing: Option<String>,
}

impl VmPressures {
    /// Takes the VMs from the configuration.
    pub fn see(&mut self, inventory: &Inventory, vms: &[VmConfig]) {
        self.vms.retain(|id, _| vms.iter().any(|vm| vm.id == *id));
        let seen: Vec<_> = vms.iter().map(|vm| (vm, self.see_vm(inventory, vm).err())).collect();
        self.missing = lacking(&seen);
    }

    fn see_vm(&mut self, inventory: &Inventory, vm: &VmConfig) -> Result<(), &'static str> {
        let group = group_of(inventory, vm).inspect_err(|_| {
            self.vms.remove(&vm.id);
        })?;
        if self.vms.get(&vm.id).is_some_and(|known| known.pid == vm.pid && known.group == group) {
            return Ok(());
        }
        let v2 = inventory.cgroups.v2().ok_or(NO_V2)?;
        let open = |file: &str| {
            let path = v2.file(&group, &psi::name(file))?;
            rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()
        };
        let files = FILES.map(open);
        if files.iter().all(Option::is_none) {
            self.vms.remove(&vm.id);
            return Err(NO_FILE);
        }
        self.vms.insert(vm.id.clone(), Files { pid: vm.pid, group, files, read: None });
        Ok(())
    }

    /// Why some VMs have no figure.
    pub fn missing(&self) -> Option<&str> {
        self.missing.as_deref()
    }

    /// Reads all VMs, if it is time to.
    pub fn begin_sample(&mut self) {
        let next = after(self.due, Instant::now());
        let is_due = next.is_some() || self.vms.len() <= AT_ONCE;
        self.due = next.or(self.due);
        for vm in self.vms.values_mut() {
            vm.read = if is_due { psi::parse(&vm.files.each_ref().map(|f| read(f.as_ref()?))) } else { None };
        }
        // Its cgroup is gone, or no longer counts: the next look opens the files again.
        if is_due {
            self.vms.retain(|_, vm| vm.read.is_some());
        }
    }

    /// The reading of the present sample.
    pub fn of(&self, vm: &VmId) -> Option<Pressure> {
        self.vms.get(vm)?.read
    }
}

/// When the reading after one at `now` is due; `None` if none is due now. A sample may be a little early or late, which
/// does not move the later ones.
fn after(due: Option<Instant>, now: Instant) -> Option<Instant> {
    let (due, slack) = (due.unwrap_or(now), EVERY / 10);
    (due <= now + slack).then(|| due.max(now.checked_sub(slack).unwrap_or(now)) + EVERY)
}

fn read(file: &OwnedFd) -> Option<String> {
    // Two lines of at most 80 characters.
    let mut buffer = [0u8; 512];
    let n = rustix::io::pread(file, &mut buffer, 0).ok()?;
    Some(String::from_utf8_lossy(&buffer[..n]).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The moments at which readings are due, of samples this far apart in turn, for a minute.
    fn readings(apart_ms: &[u64]) -> Vec<Duration> {
        let begun = Instant::now();
        let (mut due, mut at, mut all) = (None, Duration::ZERO, Vec::new());
        for ms in apart_ms.iter().cycle() {
            if at >= Duration::from_secs(60) {
                break;
            }
            if let Some(next) = after(due, begun + at) {
                due = Some(next);
                all.push(at);
            }
            at += Duration::from_millis(*ms);
        }
        all
    }

    #[test]
    fn many_vms_are_read_every_two_seconds() {
        for apart in [&[10][..], &[1000], &[990, 1010, 970, 1030], &[700]] {
            let all = readings(apart);
            assert!((29..=31).contains(&all.len()), "{apart:?}: {all:?}");
        }
        // Samples two seconds apart all have a figure, also where each is a little early or late.
        for apart in [&[2000][..], &[1990, 2010], &[2010, 1980, 2010]] {
            let all = readings(apart);
            assert!((30..=31).contains(&all.len()), "{apart:?}: {all:?}");
        }
        // After a break, readings do not come closer together.
        let all = readings(&[100, 100, 9000, 100, 100, 100]);
        let least = all.windows(2).map(|w| w[1] - w[0]).min();
        assert!(least >= Some(EVERY - EVERY / 5), "{all:?}");
    }

    #[test]
    fn vms_without_a_figure_are_named_once() {
        let vm = |name: &str| VmConfig::new(VmId(name.into()), name, 1);
        let (a, b, c) = (vm("a"), vm("b"), vm("c"));
        assert_eq!(lacking(&[(&a, None)]), None);
        assert_eq!(lacking(&[(&a, None), (&b, Some("why"))]).as_deref(), Some("VM \"b\": why"));
        let two = lacking(&[(&a, None), (&b, Some("why")), (&c, Some("why"))]);
        assert_eq!(two.as_deref(), Some("VM \"b\" (and 1 more): why"));
    }
}
