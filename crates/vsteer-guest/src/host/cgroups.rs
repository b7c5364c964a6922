//! How are weights and quotas given to VMs and competitors? By version 2 cgroups, as `machine/NAME`.
//!
//! Where each vCPU has a quota of its own, the groups are shaped as libvirt shapes them: `NAME/vcpuN` and
//! `NAME/emulator`, threaded.
//!
//! Source: `Documentation/admin-guide/cgroup-v2.rst` (Linux 6.18). Left out: cpusets (pins are affinities) and version 1.

use super::job::{Change, Start};
use crate::clock::{now_ns, sleep_until};
use std::io::ErrorKind;
use std::path::Path;

const ROOT: &str = "/sys/fs/cgroup";
const MACHINE: &str = "/sys/fs/cgroup/machine";

fn write(file: &str, value: &str) -> Result<(), String> {
    std::fs::write(file, value).map_err(|e| format!("setting {file} to {value}: {e}"))
}

fn folder(path: &str) -> Result<(), String> {
    std::fs::create_dir_all(path).map_err(|e| format!("making the cgroup {path}: {e}"))
}

/// Makes the parent of all other groups.
///
/// # Errors
/// When the kernel has no CPU controller.
pub fn prepare() -> Result<(), String> {
    write(&format!("{ROOT}/cgroup.subtree_control"), "+cpu")?;
    folder(MACHINE)?;
    write(&format!("{MACHINE}/cgroup.subtree_control"), "+cpu")
}

/// Makes the group of one VM or process; its folder.
///
/// # Errors
/// What the kernel refuses: a weight or quota out of range.
pub fn make(start: &Start) -> Result<String, String> {
    let group = format!("{MACHINE}/{}", start.name);
    folder(&group)?;
    let max = |(quota, period): (u64, u64)| format!("{quota} {period}");
    if let Some(weight) = start.weight {
        write(&format!("{group}/cpu.weight"), &weight.to_string())?;
    }
    if let Some(quota) = start.quota_us {
        write(&format!("{group}/cpu.max"), &max(quota))?;
    }
    if let (Some(quota), Some(vcpus)) = (start.vcpu_quota_us, start.vcpus) {
        let below = (0..vcpus).map(|n| format!("{group}/vcpu{n}")).chain([format!("{group}/emulator")]);
        for one in below {
            folder(&one)?;
            write(&format!("{one}/cgroup.type"), "threaded")?;
        }
        write(&format!("{group}/cgroup.subtree_control"), "+cpu")?;
        for n in 0..vcpus {
            write(&format!("{group}/vcpu{n}/cpu.max"), &max(quota))?;
        }
    }
    Ok(group)
}

/// Gives a group that runs new limits.
///
/// # Errors
/// There is none of this name, or the kernel refuses.
pub fn change(change: &Change) -> Result<(), String> {
    let group = format!("{MACHINE}/{}", change.name);
    if let Some(weight) = change.weight {
        write(&format!("{group}/cpu.weight"), &weight.to_string())?;
    }
    if let Some((quota, period)) = change.quota_us {
        let quota = quota.map_or_else(|| "max".to_owned(), |q| q.to_string());
        write(&format!("{group}/cpu.max"), &format!("{quota} {period}"))?;
    }
    Ok(())
}

/// Removes a group, and ends what somebody who has ended had started in it.
fn remove(group: &Path) -> Result<(), String> {
    const TRIES: u32 = 100;
    let mut tries = 0;
    loop {
        match std::fs::remove_dir(group) {
            Err(e) if e.kind() == ErrorKind::ResourceBusy && tries < TRIES => {
                tries += 1;
                let _ = std::fs::write(group.join("cgroup.kill"), "1");
                sleep_until(now_ns() + 10_000_000);
            }
            Err(e) if e.kind() != ErrorKind::NotFound => {
                return Err(format!("removing the cgroup {}: {e}", group.display()));
            }
            _ => return Ok(()),
        }
    }
}

/// Removes the groups; their first processes have ended.
///
/// # Errors
/// One that stays busy.
pub fn remove_all(starts: &[Start]) -> Result<(), String> {
    for start in starts {
        let group = format!("{MACHINE}/{}", start.name);
        let below = std::fs::read_dir(&group).into_iter().flatten().flatten();
        let below = below.filter(|e| e.file_type().is_ok_and(|t| t.is_dir())).map(|e| e.path());
        for path in below.chain([group.clone().into()]) {
            remove(&path)?;
        }
    }
    Ok(())
}
