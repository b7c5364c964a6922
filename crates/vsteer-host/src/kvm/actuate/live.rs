//! How is a running VM changed: by which call of libvirt, which system call, which cgroup file?
//!
//! A pitfall: under libvirt a vCPU's place is bounded twice, by its affinity and by its cgroup's `cpuset.cpus`. libvirt
//! sets both; they are read, and put back, apart. A cgroup's file is written only where the VM alone is in it.
//!
//! Source: `src/qemu/qemu_driver.c` (libvirt 9.0), `kernel/sched/rt.c` and `core.c` (Linux 6.12) for the errors.

use super::{Subject, changed, fault, needs_budget};
use crate::actuate::Former;
use crate::kvm::config::is_libvirts;
use crate::kvm::inventory::Inventory;
use crate::linux::cgroups::lineage;
use crate::linux::cpuset::{Process, bounds};
use crate::linux::{sched, task};
use rustix::io::Errno;
use serde_json::{Value, json};
use vsteer_core::nouns::{Manager, Quota, Role, SchedClass, Tid, VmConfig};
use vsteer_core::setting;
use vsteer_core::setting::{Change, QuotaScope, Step};
use vsteer_core::{CpuSet, Fault, FaultKind};

/// How often the list of threads is walked again while new ones appear.
const WALKS_MAX: u32 = 5;

/// Makes the change in the running VM.
pub(super) fn make(inventory: &mut Inventory, subject: &Subject, step: &Step) -> Result<(), Fault> {
    match &step.change {
        Change::Affinity(setting::Affinity { role, tid, to, .. }) => {
            affinity(inventory, subject, step, *role, *tid, to)
        }
        Change::Class(setting::Class { role, tid, to, .. }) => {
            subject.pid_of(step, *role, *tid)?;
            class(subject, step, *tid, *to)
        }
        Change::RtBudget(setting::RtBudget { cgroup, to_us, .. }) => {
            if !subject.vm.rt_budgets.iter().any(|b| b.cgroup == *cgroup) {
                return Err(changed(
                    step,
                    "that cgroup holds none of its threads, or has no real-time budget",
                ));
            }
            budget(inventory, step, cgroup, *to_us)
        }
        Change::Weight(setting::Weight { to, .. }) => {
            let number = to.number();
            if let Manager::Libvirt(_) = subject.vm.manager {
                return set_sched(inventory, subject, step, &json!({ "cpu_shares": number }));
            }
            let file = if inventory.cgroups.is_unified() { "cpu.weight" } else { "cpu.shares" };
            write(inventory, step, subject.own_cgroup(step)?, file, &number.to_string())
        }
        Change::Quota(setting::Quota { scope, to, .. }) => quota(inventory, subject, step, *scope, *to),
        Change::MemoryNodes(setting::MemoryNodes { to, .. }) => {
            let nodes = to.as_ref().ok_or_else(|| {
                fault(FaultKind::Unsupported, step)
                    .because("the binding of a running VM can be changed, not taken away")
                    .way_out("name all nodes, or change the definition")
            })?;
            let request = json!({ "op": "set_nodes", "uuid": subject.vm.id.0, "nodes": nodes.to_string(),
                                  "live": true, "persistent": false });
            ask(inventory, subject, step, request)
        }
        Change::Topology(_) => Err(fault(FaultKind::Unsupported, step).because("fixed while the guest runs")),
        Change::Host(_) => Err(fault(FaultKind::Unsupported, step).because("it is moved as a whole")),
        Change::Pool(_) => Err(fault(FaultKind::Unsupported, step).because(super::able::NO_POOLS)),
        Change::Knob(_) => Err(fault(FaultKind::Unsupported, step).because(super::able::HOSTS)),
        Change::NodeAffinity(_)
        | Change::VmAffinity(_)
        | Change::ReservationMhz(_)
        | Change::LimitMhz(_)
        | Change::Latency(_) => Err(fault(FaultKind::Unsupported, step).because(super::able::VSPHERES)),
        Change::Preference(_) | Change::Reservation(_) => {
            Err(fault(FaultKind::Unsupported, step).because(super::able::XENS))
        }
    }
}

/// Is this cgroup gone, and its budget with it? Not where cgroups cannot be seen.
pub(super) fn budget_is_gone(inventory: &Inventory, cgroup: &str) -> bool {
    let file = inventory.cgroups.file(cgroup, "cpu.rt_runtime_us").filter(|_| inventory.root.is_live());
    file.is_some_and(|file| matches!(std::path::Path::new(&file).try_exists(), Ok(false)))
}

/// Sets a cgroup's real-time budget.
pub(super) fn budget(inventory: &Inventory, step: &Step, cgroup: &str, to_us: i64) -> Result<(), Fault> {
    write(inventory, step, cgroup, "cpu.rt_runtime_us", &to_us.to_string())
}

fn ask(inventory: &mut Inventory, subject: &Subject, step: &Step, request: Value) -> Result<(), Fault> {
    let Manager::Libvirt(uri) = &subject.vm.manager else {
        return Err(super::able::no_definition(&subject.vm, step));
    };
    let client = inventory.client_for_writing(uri).ok_or_else(|| super::able::not_connected(step))?;
    client.ask(request).map(|_| ()).map_err(|f| refused_by_libvirt(f, step))
}

/// libvirt's refusal, in the words of the step.
pub(super) fn refused_by_libvirt(f: Fault, step: &Step) -> Fault {
    let cause = f.cause.as_deref().unwrap_or_default();
    let way_out = if cause.contains("cpu.cfs_quota_us") || cause.contains("cpu.max") {
        Some("at least 1 ms, and a limit of the whole VM not below that of each of its vCPUs".into())
    } else if cause.contains("cpuset.cpus") {
        Some("choose pCPUs that are online and in the cpuset.cpus of the VM's parent cgroup".into())
    } else {
        f.way_out.clone()
    };
    let kind = if f.kind == FaultKind::Failed { FaultKind::NotApplied } else { f.kind };
    Fault { kind, what: format!("VM {:?}: {}: {}", step.vm_name, step.change, f.what), way_out, ..f }
}

fn set_sched(inventory: &mut Inventory, subject: &Subject, step: &Step, params: &Value) -> Result<(), Fault> {
    let request = json!({ "op": "set_sched", "uuid": subject.vm.id.0, "params": params, "live": true, "persistent": false });
    ask(inventory, subject, step, request)
}

/// libvirt's word for whom a limit holds.
fn name_of(scope: QuotaScope) -> &'static str {
    match scope {
        QuotaScope::PerVcpu => "vcpu",
        QuotaScope::Emulator => "emulator",
        QuotaScope::WholeVm => "global",
    }
}

/// libvirt's scheduler parameters of the running VM; `None` where libvirt is not the one to ask, or has none.
pub(super) fn schedinfo(inventory: &mut Inventory, vm: &VmConfig) -> Option<serde_json::Map<String, Value>> {
    let Manager::Libvirt(uri) = &vm.manager else { return None };
    let request = json!({ "op": "schedinfo", "uuid": vm.id.0, "persistent": false });
    inventory.client(uri)?.ask(request).ok()?.as_object().cloned()
}

/// The period that a limit has, also while there is no quota.
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

fn quota(
    inventory: &mut Inventory,
    subject: &Subject,
    step: &Step,
    scope: QuotaScope,
    to: Option<Quota>,
) -> Result<(), Fault> {
    if let Manager::Libvirt(_) = subject.vm.manager {
        let name = name_of(scope);
        let mut params = serde_json::Map::new();
        let quota_us = to.map_or(-1, |q| i64::try_from(q.quota_us).unwrap_or(i64::MAX));
        params.insert(format!("{name}_quota"), json!(quota_us));
        if let Some(q) = to {
            params.insert(format!("{name}_period"), json!(q.period_us));
        }
        return set_sched(inventory, subject, step, &Value::Object(params));
    }
    if scope != QuotaScope::WholeVm {
        return Err(fault(FaultKind::Unsupported, step).because("it has no cgroups of its own per vCPU"));
    }
    let own = subject.own_cgroup(step)?;
    if inventory.cgroups.is_unified() {
        let text = to.map_or("max".to_owned(), |q| format!("{} {}", q.quota_us, q.period_us));
        return write(inventory, step, own, "cpu.max", &text);
    }
    let Some(q) = to else { return write(inventory, step, own, "cpu.cfs_quota_us", "-1") };
    // The kernel checks quota against period at each write: one order or the other is accepted.
    let period = || write(inventory, step, own, "cpu.cfs_period_us", &q.period_us.to_string());
    let quota = || write(inventory, step, own, "cpu.cfs_quota_us", &q.quota_us.to_string());
    period().and_then(|()| quota()).or_else(|_| quota().and_then(|()| period()))
}

/// Writes a file of a cgroup of the cpu controller.
fn write(inventory: &Inventory, step: &Step, cgroup: &str, name: &str, text: &str) -> Result<(), Fault> {
    let path = inventory.cgroups.file(cgroup, name).filter(|_| inventory.root.is_live());
    let path =
        path.ok_or_else(|| fault(FaultKind::Unsupported, step).because("there is no cpu controller"))?;
    write_file(step, &path, text)
}

fn write_file(step: &Step, path: &str, text: &str) -> Result<(), Fault> {
    // No creation: a cgroup that has gone must not come back as a plain file.
    let written = std::fs::OpenOptions::new()
        .write(true)
        .open(path)
        .and_then(|mut file| std::io::Write::write_all(&mut file, text.as_bytes()));
    written.map_err(|e| {
        let refused = |kind, cause: String, way_out: &str| {
            fault(kind, step).because(format!("writing {text} to {path}: {cause}")).way_out(way_out)
        };
        let budget = path.ends_with("cpu.rt_runtime_us");
        match e.raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::NOENT | Errno::NODEV) => {
                refused(FaultKind::Changed, "the cgroup is gone".into(), "the VM has stopped: observe again")
            }
            Some(Errno::ROFS | Errno::ACCESS | Errno::PERM) => {
                refused(FaultKind::NoPrivilege, e.to_string(), "run as root on the host itself, where cgroups are writable")
            }
            Some(Errno::INVAL) if budget => refused(
                FaultKind::NotApplied,
                "the kernel refuses: more than the parent has left, or less than its children hold".into(),
                "raise the parents first and lower the children first; the root has cpu.rt_runtime_us of 950000",
            ),
            Some(Errno::BUSY) if budget => refused(
                FaultKind::NotApplied,
                "real-time threads run in it, or its children still hold a budget".into(),
                "put the threads back into the normal class first, then take budgets back from the children up",
            ),
            Some(Errno::INVAL | Errno::RANGE) => refused(
                FaultKind::NotApplied,
                "the kernel takes no such value".into(),
                "weights: 2-262144 shares or 1-10000; quotas: at least 1 ms, periods 1 ms to 1 s, within the parent's",
            ),
            _ => refused(FaultKind::NotApplied, e.to_string(), "see the kernel log (dmesg)"),
        }
    })
}

fn class(subject: &Subject, step: &Step, tid: Tid, to: SchedClass) -> Result<(), Fault> {
    let errno = match sched::set_class(tid, to) {
        Ok(()) => return Ok(()),
        Err(errno) => errno,
    };
    let group = subject.vm.threads.iter().find(|t| t.tid == tid).and_then(|t| t.cgroup.clone());
    let empty = subject.vm.rt_budgets.iter().find(|b| Some(&b.cgroup) == group.as_ref() && b.runtime_us == 0);
    Err(match (errno, empty) {
        (Errno::SRCH, _) => changed(step, "its thread has ended"),
        (Errno::PERM, Some(budget)) if needs_budget(to) => fault(FaultKind::NotApplied, step)
            .because(format!("its cgroup {} has a real-time budget of 0 (cpu.rt_runtime_us)", budget.cgroup))
            .way_out("raise the budgets first, from the top down: a step of their own in the plan"),
        (Errno::PERM, _) => {
            fault(FaultKind::NoPrivilege, step).because(errno).way_out("run as root, or with CAP_SYS_NICE")
        }
        _ => fault(FaultKind::NotApplied, step)
            .because(errno)
            .way_out("this kernel has no such class or priority (real-time: 1-99)"),
    })
}

fn affinity(
    inventory: &mut Inventory,
    subject: &Subject,
    step: &Step,
    role: Role,
    tid: Tid,
    to: &CpuSet,
) -> Result<(), Fault> {
    let pid = subject.pid_of(step, role, tid)?;
    if to.is_empty() {
        return Err(fault(FaultKind::BadInput, step).because("it names no pCPU"));
    }
    if let Manager::Libvirt(_) = subject.vm.manager {
        let cpus: Vec<u32> = to.iter().collect();
        let mut request = json!({ "uuid": subject.vm.id.0, "cpus": cpus, "live": true, "persistent": false });
        match role {
            Role::Vcpu(n) => (request["op"], request["vcpu"]) = (json!("pin_vcpu"), json!(n)),
            Role::IoThread(n) => (request["op"], request["iothread"]) = (json!("pin_iothread"), json!(n)),
            _ => request["op"] = json!("pin_emulator"),
        }
        return ask(inventory, subject, step, request);
    }
    if let Some(bound) = bounds(&inventory.root, Process::Pid(pid)).cpus
        && !to.is_subset(&bound)
    {
        return Err(fault(FaultKind::NotApplied, step)
            .because(format!("its cgroup's cpuset allows pCPUs {bound} only"))
            .way_out("choose among those, or widen cpuset.cpus of its cgroup"));
    }
    // A worker may be created by one that is not moved yet: walk until nothing is left to move.
    for _ in 0..WALKS_MAX {
        let threads = Subject::find(inventory, &step.vm, &step.vm_name)?;
        let mut moved = false;
        for t in threads.moved(role, tid) {
            if task::affinity(&inventory.root, t.pid, t.tid).is_none_or(|now| now == *to) {
                continue;
            }
            match sched::set_affinity(t.tid, to) {
                Ok(()) => moved = true,
                Err(Errno::SRCH) if t.tid != tid => {}
                Err(errno) => return Err(not_moved(step, t.tid, errno)),
            }
        }
        if !moved {
            break;
        }
    }
    Ok(())
}

fn not_moved(step: &Step, tid: Tid, errno: Errno) -> Fault {
    match errno {
        Errno::SRCH => changed(step, "its thread has ended"),
        Errno::PERM => {
            fault(FaultKind::NoPrivilege, step).because(errno).way_out("run as root, or with CAP_SYS_NICE")
        }
        _ => fault(FaultKind::NotApplied, step)
            .because(format!("thread {}: {errno}", tid.0))
            .way_out("see that the pCPUs are online, below number 1024, and in the cpuset of its cgroup"),
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

/// The undo as libvirt had been told it: the pCPUs of the cgroup, where the thread itself was held narrower.
pub(super) fn as_it_was_told(undo: Change, cpusets: &[(String, String)]) -> Change {
    match (undo, cpusets) {
        (Change::Affinity(setting::Affinity { role, tid, from, to }), [(_, text)]) => {
            let told = text.parse::<CpuSet>().ok().filter(|cpus| !cpus.is_empty() && to.is_subset(cpus));
            Change::Affinity(setting::Affinity { role, tid, from, to: told.unwrap_or(to) })
        }
        (undo, _) => undo,
    }
}

/// Puts back what the change itself has no words for, where it differs still: the period of no quota, cpusets, and
/// the places of single threads.
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
            write_file(step, file, if text.is_empty() { "\n" } else { text })?;
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
