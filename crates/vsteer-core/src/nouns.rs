//! Which data about a host does every stage pass to the next? Configuration and samples.
//!
//! [`HostConfig`] is how the host is set up (what a plan changes); a [`Batch`] of samples is what counters read at
//! one moment (what a recording stores; nouns/samples.rs). Both are plain values: serialisable, comparable, free of
//! behaviour. What follows from them is derived in [`crate::model`], so a corrected formula also applies to old
//! recordings.
//!
//! Idea: facebookincubator/below stores the raw sample and derives the model; esxtop's groups gave the fields.
//! Left out: load (that is the samples' part), and anything that a backend cannot see, which is `None`.

use crate::CpuSet;
use crate::topology::Topology;
pub use contenders::Contender;
pub(crate) use counters::rise;
pub use counters::{COUNTERS, Counter, DISTRIBUTIONS, Distribution, Kind, Shares, ThreadCounters};
pub use differences::Difference;
pub use guest_memory::{Fixed, GuestNode};
pub use histogram::{HISTOGRAM_BUCKETS, Histogram};
pub use pools::{MADE, pinned_alike};
pub use pressure::{Pressure, PressureShares, STALLS, Stall, Stalls};
pub use samples::{
    Batch, BlameSample, Collector, Culprit, GroupSample, PcpuSample, ThreadSample, TimerCounts, VmSample,
};
pub use scheduling::{GroupScheduling, UCLAMP_MOST};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
pub use vsphere::{LatencySensitivity, VsphereVm};

pub mod contenders;
mod counters;
mod differences;
mod guest_memory;
mod histogram;
mod pools;
mod pressure;
mod samples;
mod scheduling;
mod vsphere;
mod words;

/// What identifies a VM for as long as it is defined: libvirt's UUID, else `qemu:PID:START` for a bare process.
///
/// Shared, because every sample repeats it for each thread and each culprit.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct VmId(pub Arc<str>);

impl fmt::Display for VmId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A Linux thread id (`gettid`), host's view.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Tid(pub u32);

/// What a host thread does for its VM.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Runs the guest's vCPU of this index.
    Vcpu(u32),
    /// QEMU's main loop: device emulation and, under TCG, the guest's timers.
    Emulator,
    /// An `<iothread>` of this id.
    IoThread(u32),
    /// A kernel vhost worker that moves packets for the VM.
    Vhost,
    /// Any other thread of the VM's process (disk workers, VNC, migration).
    Worker,
}

impl Role {
    /// The index of the vCPU, if this is one.
    pub fn vcpu(self) -> Option<u32> {
        match self {
            Role::Vcpu(i) => Some(i),
            _ => None,
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Role::Vcpu(i) => write!(f, "vcpu{i}"),
            Role::Emulator => f.write_str("emulator"),
            Role::IoThread(i) => write!(f, "iothread{i}"),
            Role::Vhost => f.write_str("vhost"),
            Role::Worker => f.write_str("worker"),
        }
    }
}

/// A Linux scheduling class with its priority.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SchedClass {
    /// `SCHED_OTHER` at this nice level (-20..=19).
    Other(i8),
    /// `SCHED_BATCH` at this nice level.
    Batch(i8),
    /// `SCHED_IDLE`.
    Idle,
    /// `SCHED_FIFO` at this priority (1..=99).
    Fifo(u8),
    /// `SCHED_RR` at this priority (1..=99).
    RoundRobin(u8),
    /// `SCHED_DEADLINE`.
    Deadline,
    /// `SCHED_EXT`.
    Ext,
}

impl SchedClass {
    /// Is it a real-time class, which every fair task waits for?
    pub fn is_realtime(self) -> bool {
        matches!(self, SchedClass::Fifo(_) | SchedClass::RoundRobin(_) | SchedClass::Deadline)
    }
}

impl fmt::Display for SchedClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SchedClass::Other(0) => f.write_str("other"),
            SchedClass::Other(n) => write!(f, "other(nice {n})"),
            SchedClass::Batch(n) => write!(f, "batch(nice {n})"),
            SchedClass::Idle => f.write_str("idle"),
            SchedClass::Fifo(p) => write!(f, "fifo({p})"),
            SchedClass::RoundRobin(p) => write!(f, "rr({p})"),
            SchedClass::Deadline => f.write_str("deadline"),
            SchedClass::Ext => f.write_str("ext"),
        }
    }
}

/// One host thread of a VM and how it may be scheduled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VmThread {
    /// Its host thread id.
    pub tid: Tid,
    /// Role of the thread in its VM.
    pub role: Role,
    /// Where it may run (`sched_getaffinity`, so pins and cgroup cpusets together).
    pub affinity: CpuSet,
    /// Its scheduling class; `None` where it could not be read.
    pub class: Option<SchedClass>,
    /// Its cgroup of the cpu controller, as `/proc/PID/task/TID/cgroup` names it (`/machine/…/vcpu0`); `None` where
    /// there is no cpu controller.
    pub cgroup: Option<String>,
    /// Where it had better run, of where it may (Xen's soft affinity); `None`: it is all the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefers: Option<CpuSet>,
    /// What is reserved for it (Xen's RTDS); `None` where the scheduler reserves nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reserved: Option<Reserved>,
}

/// A CPU bandwidth limit: `quota_us` of CPU time in every `period_us`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Quota {
    /// CPU time granted per period, µs.
    pub quota_us: u64,
    /// Length of the period, µs.
    pub period_us: u64,
}

impl Quota {
    /// The limit in CPUs (1.5 is one and a half).
    pub fn cpus(self) -> f64 {
        self.quota_us as f64 / self.period_us as f64
    }
}

/// A CPU weight in the unit of its cgroup version or scheduler. The scales differ: never compare across them
/// unconverted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CpuWeight {
    /// cgroup v1 `cpu.shares`, 2..=262144, default 1024.
    Shares(u64),
    /// cgroup v2 `cpu.weight`, 1..=10000, default 100.
    Weight(u64),
    /// Xen's Credit and Credit2, 1..=65535, default 256.
    Credit(u64),
    /// ESXi's CPU shares, 1..=1000000; "normal" is 1000 for each vCPU, which the number itself holds.
    Esxi(u64),
}

impl CpuWeight {
    /// The number on its own scale.
    pub fn number(self) -> u64 {
        match self {
            CpuWeight::Shares(n) | CpuWeight::Weight(n) | CpuWeight::Credit(n) | CpuWeight::Esxi(n) => n,
        }
    }

    /// The default of its scale.
    fn default_number(self) -> f64 {
        match self {
            CpuWeight::Shares(_) => 1024.0,
            CpuWeight::Weight(_) => 100.0,
            CpuWeight::Credit(_) => 256.0,
            CpuWeight::Esxi(_) => 1000.0,
        }
    }

    /// The weight relative to the default of its scale (1.0 is the default of each).
    pub fn relative(self) -> f64 {
        self.number() as f64 / self.default_number()
    }

    /// A weight on the same scale, held inside the kernel's range.
    pub fn on_same_scale(self, weight: f64) -> CpuWeight {
        self.with_relative(weight / self.default_number())
    }

    /// The same kind of weight at `relative` times the default, held inside the kernel's range.
    pub fn with_relative(self, relative: f64) -> CpuWeight {
        match self {
            CpuWeight::Shares(_) => {
                CpuWeight::Shares(libm::round(relative * 1024.0).clamp(2.0, 262_144.0) as u64)
            }
            CpuWeight::Weight(_) => {
                CpuWeight::Weight(libm::round(relative * 100.0).clamp(1.0, 10_000.0) as u64)
            }
            CpuWeight::Credit(_) => {
                CpuWeight::Credit(libm::round(relative * 256.0).clamp(1.0, 65_535.0) as u64)
            }
            CpuWeight::Esxi(_) => {
                CpuWeight::Esxi(libm::round(relative * 1000.0).clamp(1.0, 1_000_000.0) as u64)
            }
        }
    }
}

impl fmt::Display for CpuWeight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CpuWeight::Shares(s) | CpuWeight::Esxi(s) => write!(f, "{s} shares"),
            CpuWeight::Weight(w) | CpuWeight::Credit(w) => write!(f, "weight {w}"),
        }
    }
}

/// The manager that owns the VM, through which vsteer changes it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Manager {
    /// libvirt at this connection URI: changes go through it. Empty: a libvirt that is not connected (observed only).
    Libvirt(String),
    /// Proxmox VE, with its numeric VM id: persistent changes are `qm set`, live ones the cgroup.
    Proxmox(u32),
    /// KubeVirt: observed and advised only, its controller would undo a change.
    KubeVirt,
    /// Kata Containers: a pod in a VM, observed and advised only, because the pod's resources decide.
    Kata,
    /// A QEMU process that nobody manages: changed by cgroups and thread affinity.
    Bare,
    /// Xen's own toolstack (xl).
    Xen,
    /// vSphere, by this managed object id; empty where only a file tells of the VM.
    Vsphere(String),
}

/// What core and the commands ask about a manager. Only here does the core distinguish managers.
impl Manager {
    /// Do its settings live on until somebody changes them? Such a manager has no setting that ends with the VM's
    /// run, some settings need the VM off, and its hypervisor places VMs on nodes by itself. True of vSphere.
    pub fn keeps_settings(&self) -> bool {
        matches!(self, Manager::Vsphere(_))
    }

    /// Does its hypervisor schedule the vCPUs of a VM together? True of vSphere.
    pub fn co_schedules(&self) -> bool {
        matches!(self, Manager::Vsphere(_))
    }

    /// Does PowerCLI change its VMs? True of vSphere.
    pub fn has_powercli(&self) -> bool {
        matches!(self, Manager::Vsphere(_))
    }

    /// Are VMs known here only by name, so that a plan must find them on the host? True of a file of vSphere's.
    pub fn knows_names_only(&self) -> bool {
        matches!(self, Manager::Vsphere(id) if id.is_empty())
    }

    /// Can a thread that the kernel made for the VM be placed by itself? libvirt places it with the emulator.
    pub fn places_kernel_threads(&self) -> bool {
        !matches!(self, Manager::Libvirt(_))
    }

    /// Does Xen schedule its VMs, with pools, preferred pCPUs and a Domain-0?
    pub fn is_xen(&self) -> bool {
        *self == Manager::Xen
    }

    /// The host that a running VM can be moved from, as a connection URI; `None` where the manager cannot move it.
    pub fn moves_from(&self) -> Option<&str> {
        match self {
            Manager::Libvirt(uri) => Some(uri),
            _ => None,
        }
    }
}

/// How guest instructions run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Accel {
    /// Hardware virtualisation.
    Kvm,
    /// QEMU's translator.
    Tcg,
}

/// The vCPU topology that the guest is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestTopology {
    /// Sockets shown.
    pub sockets: u32,
    /// Cores per socket (all dies together).
    pub cores: u32,
    /// Threads per core.
    pub threads: u32,
}

/// CPU limits of a VM, each where the manager can set it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Per vCPU thread (libvirt `vcpu_quota`).
    pub per_vcpu: Option<Quota>,
    /// For the emulator threads together (libvirt `emulator_quota`).
    pub emulator: Option<Quota>,
    /// For the whole VM (libvirt `global_quota`, Proxmox `cpulimit`).
    pub whole_vm: Option<Quota>,
}

/// Real-time run time granted to a cgroup (v1 with `RT_GROUP_SCHED`): 0 forbids real-time classes to its threads.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RtBudget {
    /// The cgroup, as in [`VmThread::cgroup`]; `/` is the root.
    pub cgroup: String,
    /// `cpu.rt_runtime_us`; -1 is no limit.
    pub runtime_us: i64,
    /// `cpu.rt_period_us`.
    pub period_us: u64,
}

/// What Xen's RTDS gives a vCPU: CPU time in every period.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reserved {
    /// CPU time, us.
    pub budget_us: u64,
    /// Period, us.
    pub period_us: u64,
    /// May it use time that nobody reserved, once its own is used?
    pub extra_time: bool,
}

impl fmt::Display for Reserved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let more = if self.extra_time { " and what is left over" } else { "" };
        write!(f, "{} µs in every {} µs{more}", self.budget_us, self.period_us)
    }
}

/// The CPU quota of a cgroup that threads of a VM are in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupQuota {
    /// Path of the cgroup.
    pub cgroup: String,
    /// Its quota.
    pub quota: Quota,
    /// May others than this VM be in the cgroup (a slice, a pod)? Then vsteer does not change its quota.
    pub shared: bool,
}

/// How one VM is set up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VmConfig {
    /// Its identity.
    pub id: VmId,
    /// Its name, for people. May hold any character that the manager allows.
    pub name: String,
    /// What its users call it elsewhere: `project` and `instance` (OpenStack, Incus), `flavour` (OpenStack), `namespace`
    /// and `instance` (KubeVirt), `pod` and `sandbox` (Kata).
    #[serde(default, skip_serializing_if = "std::collections::BTreeMap::is_empty")]
    pub labels: std::collections::BTreeMap<String, String>,
    /// Who owns it.
    pub manager: Manager,
    /// How its instructions run; `None` where unknown.
    pub accel: Option<Accel>,
    /// The QEMU process.
    pub pid: u32,
    /// Its threads, vCPUs first in index order, then the rest by tid.
    pub threads: Vec<VmThread>,
    /// Its weight against other VMs; `None` where there is no cpu controller.
    pub weight: Option<CpuWeight>,
    /// Its limits.
    pub limits: Limits,
    /// The quotas of every cgroup from the root's child down to those of its threads, parents first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub quotas: Vec<GroupQuota>,
    /// Other settings of these cgroups, as far as they differ from the kernel's defaults; parents first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scheduling: Vec<GroupScheduling>,
    /// Cookies of core scheduling by thread, for threads that have one; `None` where the kernel does not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub core_cookies: Option<BTreeMap<Tid, u64>>,
    /// The cgroup of the cpu controller that holds all of it and nothing else; `None` where it has none of its own.
    pub cgroup: Option<String>,
    /// Real-time budgets of every cgroup from the root's child down to those of its threads, parents first; empty
    /// where the kernel does not budget real time per cgroup (then real-time classes are simply allowed).
    pub rt_budgets: Vec<RtBudget>,
    /// The topology its guest sees; `None` where not said.
    pub guest_topology: Option<GuestTopology>,
    /// Memory given to the guest, bytes.
    pub memory_bytes: Option<u64>,
    /// Nodes its memory is bound to (`numatune`); `None`: no binding.
    pub memory_nodes: Option<CpuSet>,
    /// NUMA nodes that the guest is shown, in their order; empty where it is shown none, or that is not known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub guest_nodes: Vec<GuestNode>,
    /// What keeps its memory and devices where they are.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fixed: Vec<Fixed>,
    /// The pool of pCPUs that it is in; `None` where the hypervisor has no such thing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<CpuPool>,
    /// What vSphere alone has; `None` on other hypervisors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vsphere: Option<VsphereVm>,
}

/// pCPUs with a scheduler of their own: Xen's cpupool. A pCPU is in one pool at most.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuPool {
    /// Name of the pool.
    pub name: String,
    /// Its scheduler, as the hypervisor names it: `credit`, `credit2`, `rtds`, `null`.
    pub scheduler: String,
    /// pCPUs of the pool.
    pub cpus: CpuSet,
    /// Its scheduler's parameters as the hypervisor tells them, such as `tslice` = `30ms`; empty where it does not.
    #[serde(default, skip_serializing_if = "std::collections::BTreeMap::is_empty")]
    pub parameters: std::collections::BTreeMap<String, String>,
}

impl fmt::Display for CpuPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} (pCPUs {}, {})", self.name, self.cpus, self.scheduler)
    }
}

impl VmConfig {
    /// A VM of which only id, name and process are known: no manager, no threads, no settings.
    pub fn new(id: VmId, name: impl Into<String>, pid: u32) -> VmConfig {
        VmConfig {
            id,
            name: name.into(),
            labels: Default::default(),
            manager: Manager::Bare,
            accel: None,
            pid,
            threads: Vec::new(),
            weight: None,
            limits: Limits::default(),
            quotas: Vec::new(),
            scheduling: Vec::new(),
            core_cookies: None,
            cgroup: None,
            rt_budgets: Vec::new(),
            guest_topology: None,
            memory_bytes: None,
            memory_nodes: None,
            guest_nodes: Vec::new(),
            fixed: Vec::new(),
            pool: None,
            vsphere: None,
        }
    }

    /// The smallest quota that the VM shares with others.
    pub fn quota_above(&self) -> Option<&GroupQuota> {
        let shared = self.quotas.iter().filter(|q| q.shared);
        shared.min_by(|a, b| a.quota.cpus().total_cmp(&b.quota.cpus()))
    }

    /// Is it Xen's Domain-0, through which the others' I/O goes? A domain's number stands where a process's stands
    /// elsewhere.
    pub fn is_domain0(&self) -> bool {
        self.manager.is_xen() && self.pid == 0
    }

    /// Its vCPU threads, in index order.
    pub fn vcpus(&self) -> impl Iterator<Item = &VmThread> {
        self.threads.iter().filter(|t| t.role.vcpu().is_some())
    }

    /// The pool whose scheduler applies this VM's weight over more pCPUs than its vCPUs may use, so that the weight
    /// has no effect among VMs with the same pins. Xen's Credit grants credits over the whole pool, so each VM has
    /// more than it can use and they take turns. `None` if the weight has effect. Source: `csched_acct`,
    /// `xen/common/sched/credit.c`@4.17.
    pub fn pinned_within(&self) -> Option<&CpuPool> {
        let pool = self.pool.as_ref().filter(|pool| pool.scheduler == "credit")?;
        let own = self.vcpus().fold(CpuSet::new(), |all, t| all.union(&t.affinity));
        let within = self.vcpu_count() > 0 && pool.cpus.iter().any(|cpu| !own.contains(cpu));
        within.then_some(pool)
    }

    /// Number of vCPUs: those seen, otherwise the configured number; 0 if unknown.
    pub fn vcpu_count(&self) -> usize {
        let seen = self.vcpus().count();
        let said = || self.vsphere.as_ref().and_then(|v| v.vcpus).unwrap_or(0) as usize;
        if seen > 0 { seen } else { said() }
    }
}

/// How cgroups are mounted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CgroupLayout {
    /// One unified tree.
    V2,
    /// Separate trees per controller.
    V1,
    /// v1 controllers beside a unified tree that has none of cpu's.
    Hybrid,
    /// No cgroups.
    None,
}

/// How the host is set up: what a plan reads, changes and is fingerprinted against. Holds no load.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostConfig {
    /// The host's name, for people.
    pub hostname: String,
    /// What identifies the machine (`/etc/machine-id`), so that a plan for another host is refused.
    pub machine_id: Option<String>,
    /// `uname -r`.
    pub kernel: String,
    /// Sockets, nodes, caches, cores, threads.
    pub topology: Topology,
    /// How cgroups are mounted.
    pub cgroups: CgroupLayout,
    /// Programs that run here and change by themselves what a plan changes. Not a precondition of a plan.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub contenders: Vec<Contender>,
    /// How the kernel's fair class is set up; `None` where that was not looked at.
    #[serde(default)]
    pub scheduler: Option<FairTuning>,
    /// The VMs, by id.
    pub vms: Vec<VmConfig>,
}

/// How the kernel's fair class is set up, as far as it can be read.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FairTuning {
    /// Ticks per second (`CONFIG_HZ`).
    pub hz: Option<u32>,
    /// What a task asks for at a time, ns, as scaled by the number of CPUs; readable by root since 6.6.
    pub base_slice_ns: Option<u64>,
    /// Isolated pCPUs (`isolcpus=`, isolated partitions). The kernel does not balance onto them, so a thread runs
    /// there only by affinity and stays on its pCPU. Empty if there are none or they were not read.
    #[serde(default, skip_serializing_if = "CpuSet::is_empty")]
    pub isolated: CpuSet,
    /// pCPUs without a tick while one thread alone can run there (`nohz_full=`); `None` where the kernel does not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nohz_full: Option<CpuSet>,
    /// Is the kernel built with PREEMPT_RT? `None` where that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preempt_rt: Option<bool>,
    /// Does the kernel move pages to the node that uses them (`kernel.numa_balancing`)? `None` where that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub numa_balancing: Option<bool>,
    /// When periods of quotas begin, by thread; empty where that was not looked at.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub quota_clocks: BTreeMap<Tid, QuotaClocks>,
}

/// Moments at which periods of a quota begin, `CLOCK_MONOTONIC`, ns; the others lie whole periods before and after.
/// The kernel draws one for each cgroup when that is made, and keeps to it whatever quota is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuotaClocks {
    /// Of the thread's own group of the cpu controller.
    pub own_ns: u64,
    /// Of the group above that; 0 where there is none.
    pub above_ns: u64,
}

/// Begins the kernel of a simulated host, in place of a kernel's version.
pub const SIMULATED: &str = "vsteer simulator, ";

impl HostConfig {
    /// A host without VMs, of which nothing else is known.
    pub fn new(hostname: impl Into<String>, kernel: impl Into<String>, topology: Topology) -> HostConfig {
        HostConfig {
            hostname: hostname.into(),
            machine_id: None,
            kernel: kernel.into(),
            topology,
            cgroups: CgroupLayout::None,
            contenders: Vec::new(),
            scheduler: None,
            vms: Vec::new(),
        }
    }

    /// Is it a host of `vsteer simulate`?
    pub fn is_simulated(&self) -> bool {
        self.kernel.starts_with(SIMULATED)
    }

    /// Does the manager of any VM schedule vCPUs together?
    pub fn co_schedules(&self) -> bool {
        self.vms.iter().any(|vm| vm.manager.co_schedules())
    }

    /// Do the settings of any VM live on until somebody changes them?
    pub fn keeps_settings(&self) -> bool {
        self.vms.iter().any(|vm| vm.manager.keeps_settings())
    }

    /// Does PowerCLI change any VM?
    pub fn has_powercli(&self) -> bool {
        self.vms.iter().any(|vm| vm.manager.has_powercli())
    }

    /// What to call each VM: its name, and what tells it apart if another VM of the host has the same one.
    pub fn called(&self) -> BTreeMap<&VmId, String> {
        // Anybody can start a VM of any name: those that nobody manages do not change what the others are called.
        let managed = |vm: &VmConfig| vm.manager != Manager::Bare;
        let mut of_name: BTreeMap<&str, [usize; 2]> = BTreeMap::new();
        self.vms.iter().for_each(|vm| of_name.entry(&vm.name).or_default()[usize::from(managed(vm))] += 1);
        let call = |vm: &VmConfig| match (of_name[vm.name.as_str()], &vm.manager) {
            ([_, 1], manager) if *manager != Manager::Bare => vm.name.clone(),
            ([1, 0], _) => vm.name.clone(),
            (_, Manager::Proxmox(number)) => format!("{} ({number})", vm.name),
            _ => format!("{} ({})", vm.name, vm.id),
        };
        let mut called: BTreeMap<&VmId, String> = self.vms.iter().map(|vm| (&vm.id, call(vm))).collect();
        // A name may look like another VM's with its number.
        let mut uses: BTreeMap<String, usize> = BTreeMap::new();
        called.values().for_each(|name| *uses.entry(name.clone()).or_default() += 1);
        for (id, name) in &mut called {
            if uses[name] > 1 {
                *name = format!("{name} ({id})");
            }
        }
        called
    }

    /// What to call the VM of this id: [`HostConfig::called`], or the id of a VM that the host does not have.
    pub fn name_of(&self, id: &VmId) -> String {
        self.called().remove(id).unwrap_or_else(|| id.to_string())
    }

    /// The VM of this id.
    pub fn vm(&self, id: &VmId) -> Option<&VmConfig> {
        self.vms.iter().find(|v| v.id == *id)
    }

    /// pCPUs that a plan may give to any VM: usable and not isolated.
    pub fn housekeeping(&self) -> CpuSet {
        let usable = self.topology.usable();
        self.scheduler.as_ref().map_or_else(|| usable.clone(), |s| usable.difference(&s.isolated))
    }

    /// A short name for this configuration: equal configurations have equal fingerprints (FNV-1a, 64 bits, of its
    /// canonical JSON). It is for people and file names; [`HostConfig::differences`] decides equality.
    pub fn fingerprint(&self) -> String {
        // The kernel's time slices and other programs are not a precondition of a plan.
        let mut lasting = HostConfig { scheduler: None, contenders: Vec::new(), ..self.clone() };
        for vm in &mut lasting.vms {
            vm.threads.retain(|t| t.role != Role::Worker);
            vm.vsphere = vm.vsphere.as_ref().map(VsphereVm::settings);
        }
        let hash = crate::canonical::json(&lasting)
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325_u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3));
        format!("{hash:016x}")
    }
}
