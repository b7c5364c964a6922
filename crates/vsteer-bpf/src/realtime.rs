//! The real-time policy in the kernel: loading it, opting VMs in, reading what they asked for and got.
//!
//! `bpf/realtime.bpf.c` is the kernel side; its opening essay explains the ideas. While a [`Policy`] lives, it
//! schedules all ordinary tasks of the host; when it is dropped, or this process ends however, the kernel's own
//! scheduler takes over.

use crate::load::{last_words, quiet_libbpf};
use bytemuck::{Pod, Zeroable};
use libbpf_rs::btf::Btf;
use libbpf_rs::btf::types::Struct;
use libbpf_rs::{Link, MapCore, MapFlags, MapHandle, Object, ObjectBuilder, RingBuffer, RingBufferBuilder};
use serde::Serialize;
use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;
use vsteer_core::nouns::{HISTOGRAM_BUCKETS, Histogram};
use vsteer_core::{Fault, FaultKind};

static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/realtime.bpf.o"));

const CPUS_MAX: usize = 1024;
const GROUPS_MAX: u32 = 8192;
const VMS_MAX: u32 = 1024;
const VCPUS_MAX: u32 = 4096;
/// Values that the policy reads while it runs: indices of `told`.
const GENERATION: u32 = 0;
const PAUSED: u32 = 1;
/// KVM's function that handles the end of a local APIC timer (arch/x86/kvm/lapic.c, Linux 2.6.32 to 7.3).
const APIC_TIMER: &str = "apic_timer_fn";
/// Prefix of the names of the policy's programs.
const PREFIX: &str = "rt_";
const STATE: &str = "/sys/kernel/sched_ext/state";
/// Part of the code with which the kernel ends a policy (`SCX_ECODE_ACT_RESTART`, Linux 6.12 to 7.3): there is no
/// error, but the policy must start again, because a pCPU came or went.
const AGAIN: u64 = 1 << 48;
const POLICY_THERE: &str = "/sys/kernel/sched_ext/root/ops";

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct SettingsRaw {
    slice: u64,
    granularity: u64,
    warp: u64,
    limit: u64,
    pause: u64,
    apart: u64,
    apic_timer: u64,
    honour: u32,
    sources: u32,
    queues: u32,
    concurrency: u32,
    queue_of: [u32; CPUS_MAX],
}

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct StateRaw {
    asks: u64,
    raised: i32,
    exit_kind: i32,
    exit_code: u64,
    quotas: u64,
    exit_reason: [u8; 128],
    exit_message: [u8; 256],
}

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct GroupRaw {
    id: u64,
    parent: u32,
    weight: u32,
    domain: u32,
    generation: u32,
    active: u32,
    more: u32,
    threads: [u64; 2],
    adds: u64,
    active_weight: u64,
    beside: [u64; 2],
    weights: u64,
    uneven: u64,
    avt: u64,
    warps_again: u64,
    cpu_ns: u64,
    quota: u64,
    burst: u64,
    period: u64,
    period_began: u64,
    left: i64,
}

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct AskedRaw {
    expired: u64,
    running: u64,
    honoured: u64,
    in_debt: u64,
    too_soon: u64,
    over_quota: u64,
    calls: u64,
    malformed: u64,
    limited: u64,
    ahead_max: u64,
    sum_ns: u64,
    max_ns: u64,
    late: [u32; HISTOGRAM_BUCKETS],
}

/// Source of the ends of guests' timers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Sources {
    /// Writes of the guest to its local APIC timer: the guest needs no change.
    Timer,
    /// Hypercalls of the guest.
    Call,
    /// The APIC timer until a vCPU's guest makes hypercalls.
    #[default]
    Both,
}

impl Sources {
    fn bits(self) -> u32 {
        match self {
            Sources::Timer => 1,
            Sources::Call => 2,
            Sources::Both => 3,
        }
    }
}

/// Parameters of the policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// How long a thread runs before another one may, unless a timer ends; checked at the kernel's ticks.
    pub slice: Duration,
    /// Minimum time before a preemption, unless a timer ends.
    pub granularity: Duration,
    /// How far a VM's virtual time may be ahead of the others' when it goes first: its credit.
    pub warp: Duration,
    /// How long a vCPU may run at a stretch after it went first.
    pub limit: Duration,
    /// Pause after a run that reached that limit, during which the vCPU does not go first.
    pub pause: Duration,
    /// Minimum time between two occasions on which a VM goes first.
    pub apart: Duration,
    /// Put vCPUs first when their timers end; otherwise only measure their delay.
    pub honour: bool,
    /// Source of the ends of timers.
    pub sources: Sources,
    /// How many runnable threads of a cgroup count for its weight; 1: weights apply as set.
    pub concurrency: u32,
    /// Queue of each pCPU: pCPUs that share a last-level cache share a queue.
    pub queue_of: Vec<u32>,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            slice: Duration::from_millis(3),
            granularity: Duration::from_millis(1),
            warp: Duration::from_millis(100),
            limit: Duration::from_millis(20),
            pause: Duration::from_millis(20),
            apart: Duration::from_micros(250),
            honour: true,
            sources: Sources::Both,
            concurrency: 1,
            queue_of: vec![0],
        }
    }
}

/// How often the policy granted or refused what one VM asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Timers of the VM that ended.
    pub expired: u64,
    /// Of these, while the vCPU ran anyway, or had no credit but an otherwise idle pCPU.
    pub running: u64,
    /// Granted: the vCPU was blocked or waiting, and went first.
    pub honoured: u64,
    /// Refused: the VM had used up its credit.
    pub in_debt: u64,
    /// Refused: too soon after the last time, or in the pause after a run that reached its limit.
    pub too_soon: u64,
    /// Refused: its quota was used up.
    pub over_quota: u64,
    /// Hypercalls that named the timers that matter.
    pub calls: u64,
    /// Hypercalls with invalid arguments.
    pub malformed: u64,
    /// Runs that reached their limit.
    pub limited: u64,
}

/// What one VM asked for and got during the count.
#[derive(Debug, Clone, PartialEq)]
pub struct Asked {
    /// Number of grants and refusals.
    pub counts: Counts,
    /// Largest lead of its virtual time over the others' at the end of a timer, ns.
    pub ahead_max_ns: u64,
    /// Delay from expiry to running, whether it went first or not, ns.
    pub late: Histogram,
    /// Longest delay, ns.
    pub late_max_ns: u64,
    /// Sum of the delays, ns.
    pub late_sum_ns: u64,
    /// CPU time of all its threads, ns.
    pub cpu_ns: u64,
}

/// The cost of one program of the policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProgramCost {
    /// Name of the program; the kernel keeps 15 characters.
    pub name: String,
    /// Number of instructions that the verifier checked.
    pub verified: u32,
    /// Number of runs during the count.
    pub runs: u64,
    /// Total run time, ns.
    pub ns: u64,
}

/// Why the kernel ended the policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    /// The kernel's message.
    pub why: String,
    /// Not an error: a pCPU came or went.
    pub may_begin_again: bool,
}

/// Facts about the running kernel that the policy needs. Read once, because the kernel's types and symbols are
/// megabytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kernel {
    /// Address of KVM's function that handles the end of a local APIC timer.
    apic_timer: u64,
    /// Does it tell a policy which quotas there are (`cpu.max`), so that it can enforce them? Linux 6.17 and later do;
    /// it does not enforce them itself for tasks of a policy.
    pub tells_quotas: bool,
}

impl Kernel {
    /// Checks whether this kernel can run the policy, as far as possible without loading it.
    ///
    /// # Errors
    /// `Unsupported` on a kernel without sched_ext or types (BTF), or where another policy is loaded; `NoPrivilege`
    /// where it hides its symbols; `NothingThere` without KVM.
    pub fn look() -> Result<Kernel, Fault> {
        let kernel = Btf::from_vmlinux()
            .map_err(|e| refused("the kernel has no type information (CONFIG_DEBUG_INFO_BTF)", &e))?;
        let Some(callbacks) = kernel.type_by_name::<Struct<'_>>("sched_ext_ops") else {
            return Err(Fault::new(FaultKind::Unsupported, "this kernel has no sched_ext")
                .because("it lacks CONFIG_SCHED_CLASS_EXT (Linux 6.12 or later can have it)")
                .help(
                    "boot a kernel that has it, or ask `vsteer plan` for a real-time class with a budget",
                ));
        };
        nobody_elses()?;
        let tells_quotas =
            callbacks.iter().any(|member| member.name.is_some_and(|n| n == "cgroup_set_bandwidth"));
        Ok(Kernel { apic_timer: address_of(APIC_TIMER)?, tells_quotas })
    }
}

/// The loaded and attached policy.
pub struct Policy {
    object: Object,
    links: Vec<Link>,
    /// cgroup id -> 1-based index.
    vms: BTreeMap<u64, u32>,
    generation: u32,
    /// Readable after a change.
    changes: MapHandle,
    reads_changes: RingBuffer<'static>,
    /// CPU time of each cgroup when the count began and ended.
    counted: BTreeMap<u64, Counted>,
}

#[derive(Clone, Copy, Default)]
struct Counted {
    from: u64,
    to: Option<u64>,
}

impl Policy {
    /// Loads the policy, which takes over all ordinary tasks of the host. No VM is opted in yet.
    ///
    /// # Errors
    /// `NoPrivilege`; `Unsupported` if the kernel rejects the policy or runs another one.
    pub fn start(kernel: &Kernel, settings: &Settings) -> Result<Policy, Fault> {
        quiet_libbpf();
        nobody_elses()?;
        let mut builder = ObjectBuilder::default();
        let mut open = builder
            .name("vsteer_realtime")
            .and_then(|b| b.open_memory(OBJECT))
            .map_err(|e| refused("cannot open the program", &e))?;
        for mut map in open.maps_mut() {
            if map.name().to_string_lossy().ends_with(".rodata") {
                let raw = raw(kernel, settings)?;
                let bytes = map.initial_value_mut().expect("settings have a place");
                assert!(bytes.len() == size_of::<SettingsRaw>(), "settings: {} bytes there", bytes.len());
                bytes.copy_from_slice(bytemuck::bytes_of(&raw));
            }
        }
        let mut object = open.load().map_err(|e| refused("the kernel rejects the program", &e))?;
        check_layout(&object);
        for (name, all) in [("free_groups", 1..GROUPS_MAX), ("free_calls", 0..VCPUS_MAX)] {
            let free = object.maps().find(|m| m.name() == name).expect("the policy has it");
            for index in all {
                free.update(&[], &index.to_ne_bytes(), MapFlags::ANY)
                    .map_err(|e| refused("cannot prepare its tables", &e))?;
            }
        }
        let told = |e: libbpf_rs::Error| refused("cannot listen to its messages", &e);
        let changes = object.maps().find(|m| m.name() == "changes").expect("the policy has it");
        let mut builder = RingBufferBuilder::new();
        builder.add(&changes, |_| 0).map_err(told)?;
        let reads_changes = builder.build().map_err(told)?;
        let changes = MapHandle::try_from(&changes).map_err(told)?;
        let mut links = Vec::new();
        for program in object.progs_mut().filter(|p| p.section().to_string_lossy().starts_with("tp_btf/")) {
            let name = program.name().to_string_lossy().into_owned();
            links.push(program.attach().map_err(|e| refused(&format!("cannot attach {name}"), &e))?);
        }
        let mut policy = object.maps_mut().find(|m| m.name() == "realtime").expect("the policy has it");
        // Last: the policy schedules from here on.
        links.push(
            policy.attach_struct_ops().map_err(|e| refused("the kernel does not start the policy", &e))?,
        );
        Ok(Policy {
            object,
            links,
            vms: BTreeMap::new(),
            generation: 0,
            changes,
            reads_changes,
            counted: BTreeMap::new(),
        })
    }

    /// Opts in the VM with this cgroup id: its timers count from now on.
    ///
    /// # Errors
    /// If there are too many VMs, or the kernel refuses.
    pub fn opt_in(&mut self, cgroup: u64) -> Result<(), Fault> {
        if self.vms.contains_key(&cgroup) {
            return Ok(());
        }
        let used = |i: &u32| self.vms.values().any(|v| v == i);
        let index = (1..=VMS_MAX).find(|i| !used(i)).ok_or_else(|| {
            Fault::new(
                FaultKind::Unsupported,
                format!("cannot serve real-time timers of more than {VMS_MAX} VMs"),
            )
            .help("disable vsteer's timer hypercall for VMs that do not need it")
        })?;
        let told = |e: libbpf_rs::Error| refused("cannot add a VM", &e);
        let none = AskedRaw::zeroed();
        self.map("asked")
            .update(&index.to_ne_bytes(), bytemuck::bytes_of(&none), MapFlags::ANY)
            .map_err(told)?;
        self.map("vms").update(&cgroup.to_ne_bytes(), &index.to_ne_bytes(), MapFlags::ANY).map_err(told)?;
        self.vms.insert(cgroup, index);
        self.changed()
    }

    /// Opts the VM out.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn opt_out(&mut self, cgroup: u64) -> Result<(), Fault> {
        if self.vms.remove(&cgroup).is_none() {
            return Ok(());
        }
        self.map("vms").delete(&cgroup.to_ne_bytes()).map_err(|e| refused("cannot remove a VM", &e))?;
        self.changed()
    }

    /// Starts or stops counting what VMs ask for and get, and their CPU time. A start resets the counts.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn count(&mut self, on: bool) -> Result<(), Fault> {
        self.tell(PAUSED, u32::from(!on))?;
        for cgroup in self.vms.keys().copied().collect::<Vec<_>>() {
            let used = self.cpu_ns(cgroup)?;
            let counted = self.counted.entry(cgroup).or_default();
            if on { counted.from = used } else { counted.to = Some(used) }
        }
        Ok(())
    }

    /// CPU time of a VM's threads since the policy started, ns.
    fn cpu_ns(&self, cgroup: u64) -> Result<u64, Fault> {
        let told = |e: libbpf_rs::Error| refused("cannot read what a VM used", &e);
        let group = self.map("group_of").lookup(&cgroup.to_ne_bytes(), MapFlags::ANY).map_err(told)?;
        let Some(group) = group else { return Ok(0) };
        let bytes = self.map("groups").lookup(&group, MapFlags::ANY).map_err(told)?;
        Ok(bytes.map_or(0, |b| bytemuck::pod_read_unaligned::<GroupRaw>(&b).cpu_ns))
    }

    fn changed(&mut self) -> Result<(), Fault> {
        self.generation += 1;
        self.tell(GENERATION, self.generation)
    }

    fn tell(&self, which: u32, value: u32) -> Result<(), Fault> {
        self.map("told")
            .update(&which.to_ne_bytes(), &value.to_ne_bytes(), MapFlags::ANY)
            .map_err(|e| refused("cannot set its values", &e))
    }

    /// What the VM with this cgroup id asked for and got. `None`: it is not opted in.
    ///
    /// # Errors
    /// The table cannot be read.
    pub fn asked(&self, cgroup: u64) -> Result<Option<Asked>, Fault> {
        let Some(index) = self.vms.get(&cgroup) else { return Ok(None) };
        let bytes = self.map("asked").lookup(&index.to_ne_bytes(), MapFlags::ANY);
        let bytes = bytes.map_err(|e| refused("cannot read what a VM asked for", &e))?;
        let Some(bytes) = bytes else { return Ok(None) };
        let raw: AskedRaw = bytemuck::pod_read_unaligned(&bytes);
        let counted = self.counted.get(&cgroup).copied().unwrap_or_default();
        let used = counted.to.map_or_else(|| self.cpu_ns(cgroup), Ok)?;
        Ok(Some(Asked {
            counts: Counts {
                expired: raw.expired,
                running: raw.running,
                honoured: raw.honoured,
                in_debt: raw.in_debt,
                too_soon: raw.too_soon,
                over_quota: raw.over_quota,
                calls: raw.calls,
                malformed: raw.malformed,
                limited: raw.limited,
            },
            ahead_max_ns: raw.ahead_max,
            late: Histogram::from_row(&raw.late.map(u64::from)),
            late_max_ns: raw.max_ns,
            late_sum_ns: raw.sum_ns,
            cpu_ns: used.saturating_sub(counted.from),
        }))
    }

    /// Why the kernel ended the policy; `None` while it schedules.
    ///
    /// # Errors
    /// The table cannot be read.
    pub fn ended(&self) -> Result<Option<Ended>, Fault> {
        let raw = self.state()?;
        let text = |bytes: &[u8]| {
            let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
            String::from_utf8_lossy(&bytes[..end]).into_owned()
        };
        let why = || match text(&raw.exit_message) {
            message if message.is_empty() => text(&raw.exit_reason),
            message => format!("{}: {message}", text(&raw.exit_reason)),
        };
        Ok((raw.exit_kind != 0).then(|| Ended { why: why(), may_begin_again: raw.exit_code & AGAIN != 0 }))
    }

    /// Readable once a cgroup came or went, or the policy ended, until [`Policy::changes_seen`].
    pub fn changes(&self) -> BorrowedFd<'_> {
        self.changes.as_fd()
    }

    /// Marks all changes so far as seen.
    pub fn changes_seen(&self) {
        // Negative where there is nothing.
        let _ = self.reads_changes.consume_raw();
    }

    /// The cost of each program of the policy. Counted while `kernel.bpf_stats_enabled` is 1.
    pub fn costs() -> Vec<ProgramCost> {
        let ours = libbpf_rs::query::ProgInfoIter::default().filter_map(|program| {
            let name = program.name.to_string_lossy().into_owned();
            name.starts_with(PREFIX).then_some(ProgramCost {
                name,
                verified: program.verified_insns,
                runs: program.run_cnt,
                ns: program.run_time_ns,
            })
        });
        let mut all: Vec<ProgramCost> = ours.collect();
        all.sort_by(|a, b| a.name.cmp(&b.name));
        all
    }

    fn state(&self) -> Result<StateRaw, Fault> {
        let bss = self.object.maps().find(|m| m.name().to_string_lossy().ends_with(".bss"));
        let bytes = bss.expect("the policy has it").lookup(&0u32.to_ne_bytes(), MapFlags::ANY);
        let bytes = bytes.map_err(|e| refused("cannot read its state", &e))?.unwrap_or_default();
        assert!(bytes.len() >= size_of::<StateRaw>(), "the policy's state has {} bytes", bytes.len());
        Ok(bytemuck::pod_read_unaligned(&bytes[..size_of::<StateRaw>()]))
    }

    /// Returns all tasks to the kernel's own scheduler. Dropping does the same.
    pub fn stop(mut self) {
        self.detach();
    }

    /// As [`Policy::stop`]; the counts remain readable.
    pub fn detach(&mut self) {
        // In reverse order: first it stops scheduling.
        while self.links.pop().is_some() {}
    }

    fn map(&self, name: &str) -> impl MapCore + '_ {
        self.object.maps().find(|m| m.name() == name).expect("the policy has it")
    }
}

/// Checks that the kernel runs no other policy.
fn nobody_elses() -> Result<(), Fault> {
    let state = std::fs::read_to_string(STATE).unwrap_or_default();
    if !matches!(state.trim(), "" | "disabled") {
        let whose = std::fs::read_to_string(POLICY_THERE).unwrap_or_default();
        return Err(Fault::new(FaultKind::Unsupported, "another sched_ext policy is loaded")
            .because(format!("sched_ext is {}: {}", state.trim(), whose.trim()))
            .help("stop that policy first: the kernel runs one at a time"));
    }
    Ok(())
}

fn refused(what: &str, e: &libbpf_rs::Error) -> Fault {
    let denied = e.kind() == libbpf_rs::ErrorKind::PermissionDenied;
    let kind = if denied { FaultKind::NoPrivilege } else { FaultKind::Unsupported };
    let said = last_words();
    let because = if said.is_empty() { format!("{e:#}") } else { format!("{e:#}: {said}") };
    Fault::new(kind, format!("the real-time policy: {what}"))
        .because(because)
        .help("run as root, on Linux 6.16 to 7.3")
}

fn raw(kernel: &Kernel, settings: &Settings) -> Result<SettingsRaw, Fault> {
    let ns = |d: Duration| d.as_nanos() as u64;
    let mut raw = SettingsRaw {
        slice: ns(settings.slice),
        granularity: ns(settings.granularity),
        warp: ns(settings.warp),
        limit: ns(settings.limit),
        pause: ns(settings.pause),
        apart: ns(settings.apart),
        apic_timer: kernel.apic_timer,
        honour: u32::from(settings.honour),
        sources: settings.sources.bits(),
        concurrency: settings.concurrency.max(1),
        queues: settings.queue_of.iter().max().map_or(1, |q| q + 1),
        queue_of: [0; CPUS_MAX],
    };
    if settings.queue_of.len() > CPUS_MAX {
        let what =
            format!("cannot load the real-time policy on a host with {} pCPUs", settings.queue_of.len());
        return Err(
            Fault::new(FaultKind::Unsupported, what).because(format!("its limit is {CPUS_MAX} pCPUs"))
        );
    }
    raw.queue_of[..settings.queue_of.len()].copy_from_slice(&settings.queue_of);
    Ok(raw)
}

/// Address of a function of the kernel or of a module.
fn address_of(function: &str) -> Result<u64, Fault> {
    let symbols =
        std::fs::read_to_string("/proc/kallsyms").map_err(|e| Fault::io("cannot read /proc/kallsyms", &e))?;
    // Searches the whole text: it has some 200,000 lines, and few contain these letters.
    let address = symbols.match_indices(function).find_map(|(at, _)| {
        let line = &symbols[symbols[..at].rfind('\n').map_or(0, |end| end + 1)..];
        let mut words = line.lines().next()?.split_ascii_whitespace();
        let (address, _kind, name) = (words.next()?, words.next()?, words.next()?);
        (name == function).then(|| u64::from_str_radix(address, 16).ok()).flatten()
    });
    match address {
        Some(0) => {
            Err(Fault::new(FaultKind::NoPrivilege, "the kernel does not show the addresses of its functions")
                .because("kernel.kptr_restrict hides them")
                .help("run as root, with kernel.kptr_restrict below 2"))
        }
        Some(address) => Ok(address),
        None => Err(Fault::new(FaultKind::NothingThere, "KVM is not loaded")
            .because(format!("/proc/kallsyms has no {function}"))
            .help("load the module kvm (modprobe kvm-amd or kvm-intel) first")),
    }
}

fn check_layout(object: &Object) {
    for (map, size) in [("groups", size_of::<GroupRaw>()), ("asked", size_of::<AskedRaw>())] {
        let there = object.maps().find(|m| m.name() == map).map(|m| m.value_size() as usize);
        assert!(there == Some(size), "table {map}: the kernel side has {there:?} bytes, this side {size}");
    }
}
