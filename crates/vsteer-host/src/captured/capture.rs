//! How does vsteer capture a host? It reads the host with the code that reads a captured host, and stores what it read.
//!
//! Each sample reads the machine's files through a root that notes them. [`super::kept`] decides what is kept, in
//! addition to the files of the audit. vsteer writes nothing before all samples are done and their size is known.
//!
//! Left out: packing the folder into one file.

use super::kept::{self, Whose, kept};
use super::look;
use super::manifest::{FORMAT, MANIFEST, Manifest, Taken};
use super::redact::Names;
use crate::kvm::inventory::Inventory;
use crate::kvm::pressure;
use crate::linux::cgroups::{self, Cgroups};
use crate::root::{Entry, Root, Seen};
use crate::tree;
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;
use vsteer_core::nouns::HostConfig;
use vsteer_core::tree::Wanted;
use vsteer_core::{Fault, FaultKind};
use vsteer_record::own_folder::OwnFolder;
use vsteer_record::shown_as;

/// The most that a capture holds.
pub const BYTES_MAX: u64 = 20 << 20;
/// Users of people have numbers from here on.
const FIRST_USER: u32 = 1000;
/// `nobody`, and numbers that containers use.
const LAST_USER: u32 = 60_000;

/// What is asked for.
pub struct Asked<'a> {
    /// The machine's root.
    pub root: &'a Path,
    /// The folder to make.
    pub folder: &'a Path,
    /// Replace names.
    pub redact: bool,
    /// Time between two looks.
    pub apart: Duration,
    /// Only VMs of these names, ids, or patterns with `*`; empty: all.
    pub vms: &'a [String],
    /// What the audit reads.
    pub wanted: &'a Wanted,
}

/// What was captured.
pub struct Captured {
    /// How many files there are.
    pub files: usize,
    /// Their size.
    pub bytes: u64,
    /// How many VMs the last look saw.
    pub vms: usize,
    /// What could not be read.
    pub unread: Vec<String>,
}

/// One look with its files.
struct Taking {
    seen: Seen,
    taken: Taken,
    config: HostConfig,
    unread: Vec<String>,
}

/// Captures the machine. `pause` waits between two looks and says whether it was interrupted.
///
/// # Errors
/// `Usage` when the folder has files in it already; `BadInput` when the capture would be too large; as reading and
/// writing.
pub fn capture(asked: &Asked<'_>, pause: &mut dyn FnMut(Duration) -> bool) -> Result<Captured, Fault> {
    need_empty(asked.folder)?;
    let mut takings = vec![take(asked, 1)?];
    if pause(asked.apart) {
        return Err(Fault::new(
            FaultKind::Interrupted,
            "the capture was interrupted before its second sample",
        ));
    }
    takings.push(take(asked, 2)?);
    if asked.redact {
        let mut names = names(asked.root, &takings)?;
        for taking in &mut takings {
            taking.seen = names.redact(std::mem::take(&mut taking.seen));
        }
    }
    let size = |seen: &Seen| -> u64 {
        let of = |e: &Entry| if let Entry::File(bytes) = e { bytes.len() as u64 } else { 0 };
        seen.values().map(of).sum()
    };
    let bytes: u64 = takings.iter().map(|t| size(&t.seen)).sum();
    if bytes > BYTES_MAX {
        let what = format!("the capture has {} MB, the limit is {} MB", bytes >> 20, BYTES_MAX >> 20);
        return Err(Fault::new(FaultKind::BadInput, what).help("capture fewer VMs: --vm NAME"));
    }
    let held = OwnFolder::make_private(asked.folder)?;
    write(&held.path(), asked.redact, &takings).map_err(|fault| shown_as(fault, asked.folder))?;
    let last = takings.pop().expect("two samples were taken");
    let files = takings.iter().chain([&last]).map(|t| t.seen.len()).sum();
    Ok(Captured { files, bytes, vms: last.config.vms.len(), unread: last.unread })
}

/// Refuses a folder that has something in it.
fn need_empty(folder: &Path) -> Result<(), Fault> {
    match std::fs::read_dir(folder) {
        Ok(mut entries) => match entries.next() {
            None => Ok(()),
            Some(_) => {
                Err(Fault::new(FaultKind::Usage, format!("the folder {} is not empty", folder.display()))
                    .help("name a folder that does not exist yet"))
            }
        },
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(e) => Err(Fault::io(format!("cannot list {}", folder.display()), &e)),
    }
}

fn take(asked: &Asked<'_>, number: usize) -> Result<Taking, Fault> {
    // What the audit reads changes little, so it is read before the clock is looked at.
    let audited = tree::read(&Root::open(asked.root)?, asked.wanted);
    let mut inventory = Inventory::new(Root::open(asked.root)?.noting(), None, asked.vms.to_vec());
    let look = look(&mut inventory)?;
    let mut seen = kept(inventory.root.take_seen(), &whose(&inventory, &look.config));
    for name in inventory.root.names("/sys/kernel/debug/kvm").unwrap_or_default() {
        seen.insert(format!("/sys/kernel/debug/kvm/{name}"), Entry::Folder);
    }
    for (path, text) in audited.files {
        // The processes of VMs that were not asked for stay out.
        let of_process =
            path.strip_prefix("/proc/").is_some_and(|p| p.starts_with(|c: char| c.is_ascii_digit()));
        if !of_process {
            let text = if path == "/proc/cmdline" { kept::parameters(&text) } else { text };
            seen.entry(path).or_insert(Entry::File(text.into_bytes()));
        }
    }
    let (mono_ns, unix_ns) = (look.batch.mono_ns, look.batch.unix_ns);
    let taken = Taken { folder: number.to_string(), mono_ns, unix_ns };
    let unread = audited.unread.iter().map(|(path, why)| format!("{path}: {why}")).collect();
    Ok(Taking { seen, taken, config: look.config, unread })
}

fn whose(inventory: &Inventory, config: &HostConfig) -> Whose {
    let threads = config.vms.iter().flat_map(|vm| &vm.threads);
    let mut pids: std::collections::BTreeSet<u32> = inventory.vms.iter().map(|vm| vm.process.pid).collect();
    pids.extend(inventory.vhosts.values().flatten().map(|tid| tid.0));
    let of_cpu = threads.filter_map(|t| t.cgroup.as_deref()).flat_map(cgroups::lineage).collect();
    let with_pressure = config.vms.iter().filter_map(|vm| pressure::group_of(inventory, vm).ok());
    let of_v2 = with_pressure.flat_map(|group| cgroups::lineage(&group)).collect();
    let v2 = if inventory.cgroups.is_unified() { None } else { inventory.cgroups.v2() };
    let top = |all: &Cgroups| all.file("/", "").map(|top| top.trim_end_matches('/').to_owned());
    let trees = [(top(&inventory.cgroups), of_cpu), (v2.as_ref().and_then(top), of_v2)];
    let cgroups = trees.into_iter().filter_map(|(top, groups)| Some((top?, groups))).collect();
    Whose { pids, contenders: inventory.contenders.keys().copied().collect(), cgroups }
}

/// The names of this host, its users and its VMs.
fn names(root: &Path, takings: &[Taking]) -> Result<Names, Fault> {
    let mut names = Names::default();
    let root = Root::open(root)?;
    for taking in takings {
        let host = &taking.config.hostname;
        names.add("host", host);
        names.add("host", host.split('.').next().unwrap_or_default());
        for vm in &taking.config.vms {
            // A VM without a name of its own is called after its process.
            if !vm.name.ends_with(&format!("-{}", vm.pid)) {
                names.add("vm", &vm.name);
            }
            // A flavour says what a VM is like, not whose it is.
            let whose = vm.labels.iter().filter(|(key, value)| *key != "flavour" && *value != "default");
            whose.for_each(|(_, value)| names.add("label", value));
        }
        for path in taking.seen.keys() {
            let defined = path.strip_prefix("/etc/libvirt/qemu/").and_then(|p| p.strip_suffix(".xml"));
            names.add("vm", defined.unwrap_or_default());
        }
    }
    let passwd = root.bytes("/etc/passwd").unwrap_or_default();
    for line in String::from_utf8_lossy(&passwd).lines() {
        let mut fields = line.split(':');
        let (name, uid) = (fields.next().unwrap_or_default(), fields.nth(1).and_then(|uid| uid.parse().ok()));
        if uid.is_some_and(|uid: u32| (FIRST_USER..LAST_USER).contains(&uid)) {
            names.add("user", name);
        }
    }
    Ok(names)
}

fn write(into: &Path, redact: bool, takings: &[Taking]) -> Result<(), Fault> {
    let failed = |path: &Path, e: &std::io::Error| Fault::io(format!("cannot write {}", path.display()), e);
    for Taking { seen, taken, .. } in takings {
        let look = into.join(&taken.folder);
        folder(&look)?;
        for (path, entry) in seen {
            let at: PathBuf = look.join(path.trim_start_matches('/'));
            match entry {
                Entry::Folder => folder(&at)?,
                Entry::Link(to) => {
                    folder(at.parent().unwrap_or(&look))?;
                    std::os::unix::fs::symlink(to, &at).map_err(|e| failed(&at, &e))?;
                }
                Entry::File(bytes) => {
                    folder(at.parent().unwrap_or(&look))?;
                    file(&at, bytes).map_err(|e| failed(&at, &e))?;
                }
            }
        }
    }
    let manifest = Manifest {
        format: FORMAT,
        vsteer: env!("CARGO_PKG_VERSION").to_owned(),
        redacted: redact,
        looks: takings.iter().map(|t| t.taken.clone()).collect(),
    };
    let text = serde_json::to_vec_pretty(&manifest).expect("a manifest is plain data");
    let at = into.join(MANIFEST);
    file(&at, &text).map_err(|e| failed(&at, &e))
}

fn folder(at: &Path) -> Result<(), Fault> {
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(at)
        .map_err(|e| Fault::io(format!("cannot create {}", at.display()), &e))
}

fn file(at: &Path, bytes: &[u8]) -> std::io::Result<()> {
    std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(at)?.write_all(bytes)
}
