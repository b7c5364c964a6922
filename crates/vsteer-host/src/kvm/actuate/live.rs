//! Changes a running VM through libvirt's calls, system calls or cgroup files.
//!
//! A pitfall: under libvirt, two things limit the pCPUs of a vCPU, its affinity and its cgroup's
//! `cpuset.cpus`. libvirt sets both; vsteer reads and restores them separately. vsteer writes a cgroup's file
//! only if the VM is alone in the cgroup.
//!
//! Source: `src/qemu/qemu_driver.c` (libvirt 9.0), `kernel/sched/rt.c` and `core.c` (Linux 6.12) for the
//! errors.

use super::{Subject, changed, fault};
use crate::actuate::Former;
use crate::kvm::config::is_libvirts;
use crate::kvm::inventory::Inventory;
use crate::linux::cgroups::lineage;
use crate::linux::{sched, task};
use crate::privilege::{CapabilitySet, lacking};
use crate::root::Root;
use rustix::io::Errno;
use serde_json::{Value, json};
use std::path::Path;
use vsteer_core::nouns::{Manager, Role, Tid, VmConfig};
use vsteer_core::setting;
use vsteer_core::setting::{Change, QuotaScope, Step};
use vsteer_core::{CpuSet, Fault, FaultKind};

pub(super) fn ask(
    inventory: &mut Inventory,
    subject: &Subject,
    step: &Step,
    request: Value,
) -> Result<(), Fault> {
    let Manager::Libvirt(uri) = &subject.vm.manager else {
        return Err(super::help::no_definition(&subject.vm, step));
    };
    let client = inventory.client_for_writing(uri).ok_or_else(|| super::help::not_connected(step))?;
    client.ask(request).map(|_| ()).map_err(|f| refused_by_libvirt(f, step))
}

/// The fault for a step that libvirt refuses.
pub(super) fn refused_by_libvirt(f: Fault, step: &Step) -> Fault {
    let cause = f.cause.as_deref().unwrap_or_default();
    let help = if cause.contains("cpu.cfs_quota_us") || cause.contains("cpu.max") {
        Some("set a quota of at least 1 ms, and a VM limit not below the limit of each of its vCPUs".into())
    } else if cause.contains("cpuset.cpus") {
        Some("choose pCPUs that are online and in the cpuset.cpus of the VM's parent cgroup".into())
    } else {
        f.help.clone()
    };
    let kind = if f.kind == FaultKind::Failed { FaultKind::NotApplied } else { f.kind };
    Fault {
        kind,
        what: format!("cannot change VM {:?} ({}): {}", step.vm_name, step.change, f.what),
        help,
        ..f
    }
}

pub(super) fn set_sched(
    inventory: &mut Inventory,
    subject: &Subject,
    step: &Step,
    params: &Value,
) -> Result<(), Fault> {
    let request = json!({ "op": "set_sched", "uuid": subject.vm.id.0, "params": params, "live": true, "persistent": false });
    ask(inventory, subject, step, request)
}

/// libvirt's name for the scope of a limit.
pub(super) fn name_of(scope: QuotaScope) -> &'static str {
    match scope {
        QuotaScope::PerVcpu => "vcpu",
        QuotaScope::Emulator => "emulator",
        QuotaScope::WholeVm => "global",
    }
}

/// libvirt's scheduler parameters of the running VM; `None` if libvirt does not manage the VM or has no
/// parameters.
pub(super) fn schedinfo(inventory: &mut Inventory, vm: &VmConfig) -> Option<serde_json::Map<String, Value>> {
    let Manager::Libvirt(uri) = &vm.manager else { return None };
    let request = json!({ "op": "schedinfo", "uuid": vm.id.0, "persistent": false });
    inventory.client(uri)?.ask(request).ok()?.as_object().cloned()
}

/// The period of a limit, even without a quota.
pub(super) fn period_us(inventory: &mut Inventory, subject: &Subject, scope: QuotaScope) -> Option<u64> {
    if let Some(sched) = schedinfo(inventory, &subject.vm) {
        return sched.get(&format!("{}_period", name_of(scope)))?.as_u64();
    }
    inventory.cgroups.period_us(&inventory.root, subject.vm.cgroup.as_deref()?)
}

/// Sets the period of a limit without a quota.
fn set_period(
    inventory: &mut Inventory,
    subject: &Subject,
    step: &Step,
    scope: QuotaScope,
    period_us: u64,
) -> Result<(), Fault> {
    if let Manager::Libvirt(_) = subject.vm.manager {
        let name = format!("{}_period", name_of(scope));
        return set_sched(inventory, subject, step, &json!({ name: period_us }));
    }
    let own = subject.own_cgroup(step)?;
    if inventory.cgroups.is_unified() {
        write(inventory, step, own, "cpu.max", &format!("max {period_us}"))
    } else {
        write(inventory, step, own, "cpu.cfs_period_us", &period_us.to_string())
    }
}

/// Writes a file of a cgroup of the cpu controller.
pub(super) fn write(
    inventory: &Inventory,
    step: &Step,
    cgroup: &str,
    name: &str,
    text: &str,
) -> Result<(), Fault> {
    let path = inventory.cgroups.file(cgroup, name).filter(|_| inventory.root.is_live());
    let path =
        path.ok_or_else(|| fault(FaultKind::Unsupported, step).because("this host has no cpu controller"))?;
    write_file(step, &path, text)
}

fn write_file(step: &Step, path: &str, text: &str) -> Result<(), Fault> {
    // Does not create the file: a cgroup that is gone must not come back as a plain file.
    let written = std::fs::OpenOptions::new()
        .write(true)
        .open(path)
        .and_then(|mut file| std::io::Write::write_all(&mut file, text.as_bytes()));
    written.map_err(|e| {
        let refused = |kind, cause: String, help: &str| {
            let what = match text.trim() {
                "" => format!("cannot empty {path}"),
                text => format!("cannot write {text} to {path}"),
            };
            fault(kind, step).because(format!("{what}: {cause}")).help(help)
        };
        let budget = path.ends_with("cpu.rt_runtime_us");
        match e.raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::NOENT | Errno::NODEV) => {
                refused(FaultKind::Changed, "the cgroup is gone".into(), "observe again: the VM has stopped")
            }
            Some(Errno::ACCESS) => {
                refused(FaultKind::NoPrivilege, e.to_string(), &lacking(CapabilitySet::DAC_OVERRIDE))
            }
            Some(Errno::ROFS | Errno::PERM) => {
                refused(FaultKind::NoPrivilege, e.to_string(), "run as root on the host itself, where cgroups are writable")
            }
            Some(Errno::INVAL) if budget => refused(
                FaultKind::NotApplied,
                "the budget exceeds what the parent has left, or is less than what the children hold".into(),
                "raise parents before children, and lower children before parents; the root's cpu.rt_runtime_us is 950000",
            ),
            Some(Errno::BUSY) if budget => refused(
                FaultKind::NotApplied,
                "the cgroup holds real-time threads, or a child of it holds a budget".into(),
                "set the threads to the normal class first, then remove the budgets from the children upwards",
            ),
            Some(Errno::INVAL | Errno::RANGE) => refused(
                FaultKind::NotApplied,
                "the kernel rejects the value".into(),
                "use a weight of 2-262144 shares or 1-10000, a quota of at least 1 ms within the parent's, a period of 1 ms to 1 s",
            ),
            _ => refused(FaultKind::NotApplied, e.to_string(), "read the kernel log: dmesg"),
        }
    })
}

pub(super) fn not_moved(step: &Step, tid: Tid, errno: Errno) -> Fault {
    match errno {
        Errno::SRCH => changed(step, "the thread has ended"),
        Errno::PERM => {
            fault(FaultKind::NoPrivilege, step).because(errno).help("run as root, or with CAP_SYS_NICE")
        }
        _ => fault(FaultKind::NotApplied, step).because(format!("thread {}: {errno}", tid.0)).help(
            "choose pCPUs that are online, below number 1024, and in the cpuset of the thread's cgroup",
        ),
    }
}

/// The `cpuset.cpus` files, with their contents, of the VM's own cgroups that hold the threads of an affinity step.
pub(super) fn cpusets(
    inventory: &Inventory,
    subject: &Subject,
    role: Role,
    tid: Tid,
) -> Vec<(String, String)> {
    let mut files = Vec::new();
    for t in subject.moved(role, tid) {
        let group = inventory.cgroups.cpuset_of_thread(&inventory.root, t.pid, t.tid);
        let own = group.filter(|g| lineage(g).iter().any(|level| is_libvirts(level)));
        let file = own.and_then(|g| inventory.cgroups.cpuset_file(&g, "cpuset.cpus"));
        if let Some(file) = file
            && let Some(text) = task::text(&inventory.root, &file)
            && !files.iter().any(|(f, _)| *f == file)
        {
            files.push((file, text.trim().to_owned()));
        }
    }
    files
}

/// The undo as libvirt set it: all pCPUs of the cgroup's cpuset, if the thread's former pCPUs are among them.
pub(super) fn as_it_was_told(undo: Change, cpusets: &[(String, String)]) -> Change {
    match (undo, cpusets) {
        (Change::Affinity(setting::Affinity { role, tid, from, to }), [(_, text)]) => {
            let told = text.parse::<CpuSet>().ok().filter(|cpus| !cpus.is_empty() && to.is_subset(cpus));
            Change::Affinity(setting::Affinity { role, tid, from, to: told.unwrap_or(to) })
        }
        (undo, _) => undo,
    }
}

/// Restores a `cpuset.cpus` of cgroup v2 or v1. In cgroup v2 an empty one means all pCPUs of the parent, but the kernel
/// refuses to empty one while threads are in the cgroup (`validate_change`, kernel/cgroup/cpuset.c, Linux 6.12). Then
/// it gets the parent's pCPUs by number, which is the same until the parent gets more.
fn put_cpuset_back(root: &Root, step: &Step, file: &str, former: &str) -> Result<(), Fault> {
    if !former.is_empty() {
        return write_file(step, file, former);
    }
    let above = Path::new(file).parent().and_then(Path::parent).map(|p| p.join("cpuset.cpus.effective"));
    let all = above.and_then(|p| task::text(root, p.to_str()?)).map(|t| t.trim().to_owned());
    let all = all.filter(|cpus| !cpus.is_empty());
    if all.is_some() && task::text(root, file).map(|now| now.trim().to_owned()) == all {
        return Ok(());
    }
    write_file(step, file, "\n").or_else(|refused| match all {
        Some(cpus) => write_file(step, file, &cpus),
        None => Err(refused),
    })
}

/// Restores settings that the change itself does not contain, if they still differ: the period without a
/// quota, cpusets, and the affinity of single threads.
pub(super) fn put_back(
    inventory: &mut Inventory,
    subject: &Subject,
    step: &Step,
    former: &Former,
) -> Result<(), Fault> {
    if let (Some(Change::Quota(setting::Quota { scope, from: None, .. })), Some(period)) =
        (&former.live, former.period_us)
        && period_us(inventory, subject, *scope) != Some(period)
    {
        set_period(inventory, subject, step, *scope, period)?;
    }
    for (file, text) in &former.cpusets {
        if task::text(&inventory.root, file).is_some_and(|now| now.trim() != text) {
            put_cpuset_back(&inventory.root, step, file, text)?;
        }
    }
    for (tid, cpus) in &former.affinities {
        let Some(t) = subject.threads.iter().find(|t| t.tid == *tid) else { continue };
        if task::affinity(&inventory.root, t.pid, t.tid).is_none_or(|now| now == *cpus) {
            continue;
        }
        match sched::set_affinity(*tid, cpus) {
            Ok(()) | Err(Errno::SRCH) => {}
            Err(errno) => return Err(not_moved(step, *tid, errno)),
        }
    }
    Ok(())
}
