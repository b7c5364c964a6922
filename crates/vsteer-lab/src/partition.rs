//! Makes and removes the cgroup partition of the lab's VMs.
//!
//! libvirt puts a VM below its partition (`/name` becomes the folder `name.partition`), and itself makes only
//! its default partition. The lab's own partition separates its VMs from others and makes removal exact:
//! everything below it belongs to the lab. It works with cgroup v1, hybrid and v2. The kernel's
//! `Documentation/admin-guide/cgroup-v1/cpusets.rst` says why cpuset folders must be filled first. Left out:
//! delegation below systemd's slices; the folder is at the root of the hierarchy.

use crate::files::write_file;
use crate::process::{Mount, mounts_of, subfolders};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use vsteer_core::{Fault, FaultKind};

/// The controllers that limit VMs of the lab.
pub const CONTROLLERS: &[&str] = &["cpu", "cpuset", "cpuacct"];

/// The mounted hierarchies in which libvirt looks for a partition: those of version 1 with one of
/// [`CONTROLLERS`], and always version 2 (also in the hybrid layout, where it has none of them).
fn hierarchies(mounts: &[Mount]) -> Vec<PathBuf> {
    let is_looked_at = |m: &&Mount| match m.kind.as_str() {
        "cgroup" => m.options.split(',').any(|o| CONTROLLERS.contains(&o)),
        kind => kind == "cgroup2",
    };
    mounts.iter().filter(is_looked_at).map(|m| PathBuf::from(&m.target)).collect()
}

/// Does one of them have the controller that shares the CPU?
fn can_share_cpu(mounts: &[Mount]) -> bool {
    mounts.iter().any(|m| match m.kind.as_str() {
        "cgroup" => m.options.split(',').any(|o| o == "cpu"),
        "cgroup2" => std::fs::read_to_string(Path::new(&m.target).join("cgroup.controllers"))
            .is_ok_and(|t| t.split_whitespace().any(|c| c == "cpu")),
        _ => false,
    })
}

/// The existing folders of partition `name` in every mounted hierarchy (libvirt may have made more than the
/// lab did).
pub fn folders(name: &str) -> Vec<PathBuf> {
    let mounts = mounts_of(std::process::id() as i32);
    let of_cgroup = mounts.iter().filter(|m| m.kind.starts_with("cgroup"));
    of_cgroup.map(|m| Path::new(&m.target).join(format!("{name}.partition"))).filter(|f| f.is_dir()).collect()
}

/// Limits all that is in the partition to so many pCPUs.
///
/// # Errors
/// If no hierarchy has a file for it.
pub fn limit(name: &str, pcpus: f64) -> Result<(), Fault> {
    const PERIOD_US: f64 = 100_000.0;
    let quota = (pcpus * PERIOD_US).round();
    let texts = [("cpu.cfs_quota_us", format!("{quota}")), ("cpu.max", format!("{quota} {PERIOD_US}"))];
    let mut files = folders(name)
        .into_iter()
        .flat_map(|folder| texts.clone().map(|(file, text)| (folder.join(file), text)));
    let (file, text) = files.find(|(file, _)| file.is_file()).ok_or_else(|| {
        Fault::new(FaultKind::Unsupported, format!("partition {name} has no file for a quota"))
    })?;
    write_file(&file, &text)
}

/// Makes the partition in every hierarchy with one of the lab's controllers.
///
/// # Errors
/// No such hierarchy is mounted, or it is not writable.
pub fn make(name: &str) -> Result<(), Fault> {
    let mounts = mounts_of(std::process::id() as i32);
    if !can_share_cpu(&mounts) {
        return Err(Fault::new(
            FaultKind::Unsupported,
            "no cgroup hierarchy with a CPU controller is mounted",
        )
        .help("mount the cgroups (they are on every systemd host), or run the lab on the host itself"));
    }
    for root in hierarchies(&mounts) {
        let folder = root.join(format!("{name}.partition"));
        match std::fs::create_dir(&folder) {
            Err(e) if e.kind() != std::io::ErrorKind::AlreadyExists => {
                return Err(Fault::io(format!("making the cgroup {}", folder.display()), &e)
                    .help("run as root on a host whose cgroups are writable"));
            }
            _ => {}
        }
        // In v1 an empty cpuset admits no process; v2 inherits and has no value at the root to copy.
        for knob in ["cpuset.cpus", "cpuset.mems"] {
            if let Ok(value) = std::fs::read(root.join(knob)) {
                write_file(&folder.join(knob), value)?;
            }
        }
    }
    Ok(())
}

/// Removes the partition, after its processes have ended.
///
/// # Errors
/// A folder stays busy for 5 s; the fault names it.
pub fn remove(name: &str) -> Result<(), Fault> {
    folders(name).iter().try_for_each(|folder| remove_tree(folder))
}

fn remove_tree(folder: &Path) -> Result<(), Fault> {
    for below in subfolders(folder) {
        remove_tree(&below)?;
    }
    let begun = Instant::now();
    loop {
        match std::fs::remove_dir(folder) {
            Ok(()) => return Ok(()),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            // A process that has just ended leaves its cgroup a moment later.
            Err(e)
                if e.kind() == std::io::ErrorKind::ResourceBusy
                    && begun.elapsed() < Duration::from_secs(5) =>
            {
                std::thread::sleep(Duration::from_millis(20));
            }
            Err(e) => return Err(Fault::io(format!("removing the cgroup {}", folder.display()), &e)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::parse_mounts;

    #[test]
    fn hierarchies_by_their_controllers() {
        let text = "1 0 0:1 / /c/cpu rw - cgroup cgroup rw,cpu,cpuacct\n\
                    2 0 0:2 / /c/memory rw - cgroup cgroup rw,memory\n\
                    3 0 0:3 / /c/cpuset rw - cgroup cgroup rw,cpuset\n\
                    4 0 0:4 / /c/systemd rw - cgroup cgroup rw,name=systemd\n\
                    5 0 0:5 / /c/unified rw - cgroup2 cgroup2 rw\n\
                    6 0 0:6 / /tmp rw - tmpfs cpu rw,cpu\n";
        let mounts = parse_mounts(text);
        assert_eq!(hierarchies(&mounts), ["/c/cpu", "/c/cpuset", "/c/unified"].map(PathBuf::from));
        assert!(can_share_cpu(&mounts));
        assert!(!can_share_cpu(&mounts[1..]), "neither memory nor an empty version 2 shares the CPU");
    }

    #[test]
    fn version_2_by_its_list_of_controllers() {
        let root = tempfile::tempdir().unwrap();
        let text = format!("1 0 0:1 / {} rw - cgroup2 cgroup2 rw\n", root.path().display());
        std::fs::write(root.path().join("cgroup.controllers"), "memory cpuset\n").unwrap();
        assert!(!can_share_cpu(&parse_mounts(&text)));
        std::fs::write(root.path().join("cgroup.controllers"), "memory cpu\n").unwrap();
        assert!(can_share_cpu(&parse_mounts(&text)));
    }
}
