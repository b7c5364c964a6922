//! The columns of exported configurations: of VMs, of their threads, and of cgroups.
//!
//! To add a column, add a row here. Settings that only one hypervisor has name it in their meaning.

use std::collections::BTreeSet;
use vsteer_core::CpuSet;
use vsteer_core::nouns::{
    CpuWeight, GroupQuota, GroupScheduling, Manager, Quota, RtBudget, SchedClass, VmConfig, VmThread,
    VsphereVm,
};

/// Type and value of a column; `None` becomes null.
pub(super) enum Value<R> {
    Text(fn(&R) -> Option<String>),
    Number(fn(&R) -> Option<u64>),
    Small(fn(&R) -> Option<u32>),
    Signed(fn(&R) -> Option<i64>),
    Flag(fn(&R) -> Option<bool>),
    Cpus(fn(&R) -> Option<CpuSet>),
}

/// A column of a table whose rows are `R`.
pub(super) struct Column<R> {
    pub(super) name: &'static str,
    pub(super) unit: &'static str,
    pub(super) meaning: &'static str,
    pub(super) value: Value<R>,
}

const fn column<R>(
    name: &'static str,
    unit: &'static str,
    meaning: &'static str,
    value: Value<R>,
) -> Column<R> {
    Column { name, unit, meaning, value }
}

/// `None` for an empty list.
fn listed(all: &[impl ToString]) -> Option<String> {
    let all: Vec<String> = all.iter().map(ToString::to_string).collect();
    (!all.is_empty()).then(|| all.join(", "))
}

fn label(vm: &VmConfig, key: &str) -> Option<String> {
    vm.labels.get(key).cloned()
}

fn manager(vm: &VmConfig) -> &'static str {
    match vm.manager {
        Manager::Libvirt(_) => "libvirt",
        Manager::Proxmox(_) => "proxmox",
        Manager::KubeVirt => "kubevirt",
        Manager::Kata => "kata",
        Manager::Bare => "bare",
        Manager::Xen => "xen",
        Manager::Vsphere(_) => "vsphere",
    }
}

fn manager_id(vm: &VmConfig) -> Option<String> {
    match &vm.manager {
        Manager::Libvirt(id) | Manager::Vsphere(id) if !id.is_empty() => Some(id.clone()),
        _ => None,
    }
}

fn scale(weight: CpuWeight) -> &'static str {
    match weight {
        CpuWeight::Shares(_) => "shares",
        CpuWeight::Weight(_) => "weight",
        CpuWeight::Credit(_) => "credit",
        CpuWeight::Esxi(_) => "esxi",
    }
}

fn vsphere<T>(vm: &VmConfig, get: impl Fn(&VsphereVm) -> Option<T>) -> Option<T> {
    vm.vsphere.as_ref().and_then(get)
}

fn quota_us(quota: Option<Quota>) -> Option<u64> {
    quota.map(|q| q.quota_us)
}

fn period_us(quota: Option<Quota>) -> Option<u64> {
    quota.map(|q| q.period_us)
}

pub(super) const VM: &[Column<VmConfig>] = &[
    column("name", "", "Name of the VM, as its manager has it", Value::Text(|v| Some(v.name.clone()))),
    column(
        "manager",
        "",
        "`libvirt`, `proxmox`, `kubevirt`, `kata`, `bare` (a process without a manager), `xen` or `vsphere`",
        Value::Text(|v| Some(manager(v).to_owned())),
    ),
    column(
        "manager_id",
        "",
        "libvirt: the connection URI. vSphere: the managed object id",
        Value::Text(manager_id),
    ),
    column(
        "number",
        "",
        "The VM's number in Proxmox VE",
        Value::Small(|v| match v.manager {
            Manager::Proxmox(number) => Some(number),
            _ => None,
        }),
    ),
    column("project", "", "Project (OpenStack, Incus)", Value::Text(|v| label(v, "project"))),
    column("namespace", "", "Namespace (KubeVirt)", Value::Text(|v| label(v, "namespace"))),
    column(
        "instance",
        "",
        "Name that its users gave it (OpenStack, Incus, KubeVirt)",
        Value::Text(|v| label(v, "instance")),
    ),
    column("flavour", "", "Flavour (OpenStack)", Value::Text(|v| label(v, "flavour"))),
    column("pod", "", "Uid of its pod (Kata)", Value::Text(|v| label(v, "pod"))),
    column("sandbox", "", "Id of its sandbox (Kata)", Value::Text(|v| label(v, "sandbox"))),
    column(
        "accel",
        "",
        "How its instructions run: `kvm` or `tcg`",
        Value::Text(|v| v.accel.map(|a| format!("{a:?}").to_lowercase())),
    ),
    column("pid", "", "Its process on the host. Xen: the domain's number", Value::Small(|v| Some(v.pid))),
    column("vcpus", "", "Number of vCPUs", Value::Small(|v| Some(v.vcpu_count() as u32).filter(|n| *n > 0))),
    column(
        "weight",
        "",
        "CPU weight against other VMs, on the scale of `weight_scale`",
        Value::Number(|v| v.weight.map(CpuWeight::number)),
    ),
    column(
        "weight_scale",
        "",
        "`shares` (cgroup v1, default 1024), `weight` (cgroup v2, 100), `credit` (Xen, 256), `esxi` (1000 per vCPU)",
        Value::Text(|v| v.weight.map(|w| scale(w).to_owned())),
    ),
    column(
        "vcpu_quota_us",
        "µs",
        "CPU time of each vCPU per period (libvirt's `vcpu_quota`)",
        Value::Number(|v| quota_us(v.limits.per_vcpu)),
    ),
    column("vcpu_period_us", "µs", "Length of that period", Value::Number(|v| period_us(v.limits.per_vcpu))),
    column(
        "emulator_quota_us",
        "µs",
        "CPU time of the emulator's threads together per period (libvirt's `emulator_quota`)",
        Value::Number(|v| quota_us(v.limits.emulator)),
    ),
    column(
        "emulator_period_us",
        "µs",
        "Length of that period",
        Value::Number(|v| period_us(v.limits.emulator)),
    ),
    column(
        "vm_quota_us",
        "µs",
        "CPU time of the whole VM per period (libvirt's `global_quota`, Proxmox VE's `cpulimit`)",
        Value::Number(|v| quota_us(v.limits.whole_vm)),
    ),
    column("vm_period_us", "µs", "Length of that period", Value::Number(|v| period_us(v.limits.whole_vm))),
    column("cgroup", "", "The cgroup that holds the VM and nothing else", Value::Text(|v| v.cgroup.clone())),
    column(
        "guest_sockets",
        "",
        "Sockets that the guest sees",
        Value::Small(|v| Some(v.guest_topology?.sockets)),
    ),
    column(
        "guest_cores",
        "",
        "Cores per socket that the guest sees",
        Value::Small(|v| Some(v.guest_topology?.cores)),
    ),
    column(
        "guest_threads",
        "",
        "Threads per core that the guest sees",
        Value::Small(|v| Some(v.guest_topology?.threads)),
    ),
    column("memory_bytes", "bytes", "Memory given to the guest", Value::Number(|v| v.memory_bytes)),
    column(
        "memory_nodes",
        "",
        "NUMA nodes that its memory is bound to; null: not bound",
        Value::Cpus(|v| v.memory_nodes.clone()),
    ),
    column(
        "guest_nodes",
        "",
        "NUMA nodes that the guest sees, each with its vCPUs, memory, and the nodes that this is bound to",
        Value::Text(|v| listed(&v.guest_nodes)),
    ),
    column(
        "fixed",
        "",
        "What keeps its memory and devices on their node: huge pages, locked memory, VFIO devices",
        Value::Text(|v| listed(&v.fixed)),
    ),
    column("pool", "", "Its pool of pCPUs (Xen)", Value::Text(|v| Some(v.pool.as_ref()?.name.clone()))),
    column(
        "pool_scheduler",
        "",
        "Scheduler of that pool: `credit`, `credit2`, `rtds` or `null`",
        Value::Text(|v| Some(v.pool.as_ref()?.scheduler.clone())),
    ),
    column(
        "pool_cpus",
        "",
        "pCPUs of that pool",
        Value::Cpus(|v| v.pool.as_ref().map(|pool| pool.cpus.clone())),
    ),
    column(
        "home_nodes",
        "",
        "vSphere: home nodes, as ESXi chose them",
        Value::Cpus(|v| vsphere(v, |s| s.home_nodes.clone())),
    ),
    column(
        "node_affinity",
        "",
        "vSphere: nodes that the VM is kept on (`numa.nodeAffinity`)",
        Value::Cpus(|v| vsphere(v, |s| s.node_affinity.clone())),
    ),
    column(
        "cpu_affinity",
        "",
        "vSphere: pCPUs that all its vCPUs are kept on",
        Value::Cpus(|v| vsphere(v, |s| s.cpu_affinity.clone())),
    ),
    column(
        "cpu_hot_add",
        "",
        "vSphere: may vCPUs be added while it runs?",
        Value::Flag(|v| vsphere(v, |s| s.cpu_hot_add)),
    ),
    column(
        "reservation_mhz",
        "MHz",
        "vSphere: CPU time kept for it",
        Value::Number(|v| vsphere(v, |s| s.reservation_mhz)),
    ),
    column(
        "limit_mhz",
        "MHz",
        "vSphere: CPU time that it gets at most; null: no limit, or not known",
        Value::Number(|v| vsphere(v, |s| s.limit_mhz.flatten())),
    ),
    column(
        "latency_sensitivity",
        "",
        "vSphere: `low`, `normal`, `medium` or `high`",
        Value::Text(|v| vsphere(v, |s| s.latency).map(|level| level.to_string())),
    ),
    column(
        "memory_reserved",
        "",
        "vSphere: is all its memory reserved?",
        Value::Flag(|v| vsphere(v, |s| s.memory_reserved)),
    ),
    column("powered_on", "", "vSphere: is it on?", Value::Flag(|v| vsphere(v, |s| s.powered_on))),
];

fn class(class: SchedClass) -> &'static str {
    match class {
        SchedClass::Other(_) => "other",
        SchedClass::Batch(_) => "batch",
        SchedClass::Idle => "idle",
        SchedClass::Fifo(_) => "fifo",
        SchedClass::RoundRobin(_) => "rr",
        SchedClass::Deadline => "deadline",
        SchedClass::Ext => "ext",
    }
}

pub(super) const THREAD: &[Column<VmThread>] = &[
    column(
        "role",
        "",
        "`vcpuN`, `emulator`, `iothreadN`, `vhost` or `worker`",
        Value::Text(|t| Some(t.role.to_string())),
    ),
    column("tid", "", "Thread id on the host", Value::Small(|t| Some(t.tid.0))),
    column(
        "affinity",
        "",
        "pCPUs that it may run on: pins and cpusets together",
        Value::Cpus(|t| Some(t.affinity.clone())),
    ),
    column(
        "prefers",
        "",
        "pCPUs that it had better run on (Xen's soft affinity); null: no preference",
        Value::Cpus(|t| t.prefers.clone()),
    ),
    column(
        "class",
        "",
        "Scheduling class: `other`, `batch`, `idle`, `fifo`, `rr`, `deadline` or `ext`; null: not read",
        Value::Text(|t| t.class.map(|c| class(c).to_owned())),
    ),
    column(
        "priority",
        "",
        "Real-time priority of `fifo` and `rr`, 1 to 99",
        Value::Small(|t| match t.class? {
            SchedClass::Fifo(p) | SchedClass::RoundRobin(p) => Some(u32::from(p)),
            _ => None,
        }),
    ),
    column(
        "nice",
        "",
        "Nice level of `other` and `batch`, -20 to 19",
        Value::Signed(|t| match t.class? {
            SchedClass::Other(n) | SchedClass::Batch(n) => Some(i64::from(n)),
            _ => None,
        }),
    ),
    column("cgroup", "", "Its cgroup of the cpu controller", Value::Text(|t| t.cgroup.clone())),
    column(
        "reserved_budget_us",
        "µs",
        "CPU time reserved for it per period (Xen's RTDS)",
        Value::Number(|t| Some(t.reserved?.budget_us)),
    ),
    column(
        "reserved_period_us",
        "µs",
        "Length of that period",
        Value::Number(|t| Some(t.reserved?.period_us)),
    ),
    column(
        "reserved_extra",
        "",
        "May it use time that nobody reserved?",
        Value::Flag(|t| Some(t.reserved?.extra_time)),
    ),
];

/// A cgroup with a quota or a real-time budget.
pub(super) struct OfCgroup {
    path: String,
    quota: Option<GroupQuota>,
    budget: Option<RtBudget>,
    scheduling: Option<GroupScheduling>,
}

impl OfCgroup {
    /// Those of a VM, parents first.
    pub(super) fn all(vm: &VmConfig) -> Vec<OfCgroup> {
        let quotas = vm.quotas.iter().map(|q| &q.cgroup);
        let budgets = vm.rt_budgets.iter().map(|b| &b.cgroup);
        let others = vm.scheduling.iter().map(|s| &s.cgroup);
        let paths: BTreeSet<&String> = quotas.chain(budgets).chain(others).collect();
        let of = |path: &String| OfCgroup {
            path: path.clone(),
            quota: vm.quotas.iter().find(|q| q.cgroup == *path).cloned(),
            budget: vm.rt_budgets.iter().find(|b| b.cgroup == *path).cloned(),
            scheduling: vm.scheduling.iter().find(|s| s.cgroup == *path).cloned(),
        };
        paths.into_iter().map(of).collect()
    }
}

pub(super) const CGROUP: &[Column<OfCgroup>] = &[
    column("cgroup", "", "Path of the cgroup", Value::Text(|c| Some(c.path.clone()))),
    column(
        "quota_us",
        "µs",
        "CPU time that its threads get per period; null: no quota",
        Value::Number(|c| c.quota.as_ref().map(|q| q.quota.quota_us)),
    ),
    column(
        "period_us",
        "µs",
        "Length of that period",
        Value::Number(|c| c.quota.as_ref().map(|q| q.quota.period_us)),
    ),
    column(
        "shared",
        "",
        "May the cgroup hold others than this VM (a slice, a pod)?",
        Value::Flag(|c| {
            c.quota.as_ref().map(|q| q.shared).or_else(|| c.scheduling.as_ref().map(|s| s.shared))
        }),
    ),
    column(
        "rt_runtime_us",
        "µs",
        "Real-time run time per period; -1: no limit; null: not budgeted",
        Value::Signed(|c| c.budget.as_ref().map(|b| b.runtime_us)),
    ),
    column(
        "rt_period_us",
        "µs",
        "Length of the real-time period",
        Value::Number(|c| c.budget.as_ref().map(|b| b.period_us)),
    ),
    column(
        "idle",
        "",
        "`cpu.idle`: every other cgroup of its level comes first",
        Value::Flag(|c| c.scheduling.as_ref().map(|s| s.idle)),
    ),
    column(
        "burst_us",
        "µs",
        "`cpu.max.burst`: unused quota that a later period may add; null: none",
        Value::Number(|c| c.scheduling.as_ref()?.burst_us),
    ),
    column(
        "uclamp_min",
        "1/10,000",
        "`cpu.uclamp.min`: least utilization that the kernel assumes of its threads; null: the default",
        Value::Number(|c| c.scheduling.as_ref()?.uclamp_min.map(u64::from)),
    ),
    column(
        "uclamp_max",
        "1/10,000",
        "`cpu.uclamp.max`: most utilization that the kernel assumes; null: the default",
        Value::Number(|c| c.scheduling.as_ref()?.uclamp_max.map(u64::from)),
    ),
    column(
        "partition",
        "",
        "`cpuset.cpus.partition`, as the kernel writes it; null: a member of its parent's",
        Value::Text(|c| c.scheduling.as_ref()?.partition.clone()),
    ),
    column(
        "cpuset",
        "",
        "`cpuset.cpus`, if narrower than what the group above has; null: no narrower",
        Value::Text(|c| Some(c.scheduling.as_ref()?.cpus.as_ref()?.to_string())),
    ),
];
