//! Which settings does a person want to change? Turns the words of `--set` into steps, so that vsteer can forecast,
//! apply and roll them back.
//!
//! ```text
//! web:weight=512 the weight, on the scale of the VM's hypervisor web:limit=1.5 at most 1.5 pCPUs for the whole VM;
//! none: no limit web:pin=0-3 pCPUs where the vCPUs may run; pin.1=3: only vCPU 1; any: all pCPUs except isolated
//! ones web:prefer=0-7 pCPUs that the vCPUs prefer (Xen's soft affinity); prefer.1=...; any web:budget=4ms/10ms
//! time that Xen's RTDS reserves for each vCPU; budget.1=...; 4ms/10ms+: plus spare time (untried) web:weight=4000
//! for a VM on vSphere: its CPU shares; the default is 1000 per vCPU web:limit=2000MHz limits and reservations on
//! vSphere are in MHz; web:limit=none, web:reservation=500MHz web:nodes=0 NUMA nodes where vSphere keeps the VM
//! (numa.nodeAffinity); any: vSphere's choice web:cores-per-socket=6, web:latency=high
//! ```
//!
//! The last colon ends the VM's name, so a name may contain colons. A value that is in force already makes no step.
//! If several settings change the same thing, the last one wins. Each step starts from the value now in force,
//! because `apply` checks that value first.
//!
//! Left out: pools, scheduling classes and memory, which actions propose ([`super::advise`]).

use crate::forecast::fluid;
use crate::nouns::{
    GroupScheduling, GuestTopology, HostConfig, LatencySensitivity, Quota, Reserved, VmConfig, VmThread,
    VsphereVm,
};
use crate::numa::ties;
use crate::setting;
use crate::setting::{Change, QuotaScope, Step};
use crate::span::Span;
use crate::{CpuSet, Fault, FaultKind};
use std::str::FromStr;

/// Period of a limit for a VM that had none, us: the default of cgroups.
const PERIOD_US: u64 = 100_000;
/// Largest accepted value, MHz: more than thousands of cores have.
const MHZ_MOST: u64 = 100_000_000;
const REASON: &str = "requested with --set";
/// Examples of all forms, for help.
pub const EXAMPLES: &str = "KVM and Xen: web:weight=512, web:limit=1.5|none (pCPUs), web:pin=0-3|any, web:pin.2=0 (vCPU 2 only), \
    web:prefer=0-7|any (Xen's soft affinity), web:budget=4ms/10ms (Xen's RTDS; untried). vSphere: web:weight=2000 (shares), \
    web:limit=2000MHz, web:reservation=500MHz, web:nodes=0|any, web:cores-per-socket=6, web:latency=high.";
const FORMS: &str = "VM:weight=N, VM:limit=PCPUS|none, VM:pin=PCPUS|any, VM:prefer=PCPUS|any, \
    VM:budget=TIME/PERIOD; pin.2= is vCPU 2 alone; on vSphere VM:limit=MHz, VM:reservation=MHz, \
    VM:nodes=NODES|any, VM:cores-per-socket=N, VM:latency=LEVEL";

/// A setting of one VM as `--set` names it.
#[derive(Debug, Clone, PartialEq)]
pub struct Setting {
    vm: String,
    what: What,
}

#[derive(Debug, Clone, PartialEq)]
enum What {
    Weight(f64),
    /// Limit in pCPUs.
    Limit(Option<f64>),
    /// pCPUs of one vCPU, or of all vCPUs.
    Pin(Option<u32>, Option<CpuSet>),
    Prefer(Option<u32>, Option<CpuSet>),
    Budget(Option<u32>, Reserved),
    LimitMhz(u64),
    ReservationMhz(u64),
    Nodes(Option<CpuSet>),
    CoresPerSocket(u32),
    Latency(LatencySensitivity),
}

impl FromStr for Setting {
    type Err = String;

    fn from_str(text: &str) -> Result<Setting, String> {
        let form = || format!("{text:?} is not a setting; forms: {FORMS}");
        let (vm, setting) = text
            .split_once('=')
            .and_then(|(left, _)| left.rsplit_once(':'))
            .map(|(vm, _)| {
                let setting = &text[vm.len() + 1..];
                (vm, setting)
            })
            .ok_or_else(form)?;
        let (key, value) = setting.split_once('=').ok_or_else(form)?;
        let (key, vcpu) = match key.split_once('.') {
            Some((key, n)) => {
                (key, Some(n.parse::<u32>().map_err(|_| format!("{text:?}: {n:?} is not a vCPU number"))?))
            }
            None => (key, None),
        };
        let cpus = || match value {
            "any" => Ok(None),
            list => list.parse::<CpuSet>().map(Some).map_err(|e| format!("{text:?}: {e}")),
        };
        let positive = || {
            let number = value.parse::<f64>().ok().filter(|n| n.is_finite() && *n > 0.0);
            number.ok_or_else(|| format!("{text:?}: {value:?} is not a number greater than 0"))
        };
        let mhz = || {
            let number = value.strip_suffix("MHz").unwrap_or(value).trim().parse::<u64>().ok();
            number
                .filter(|n| *n <= MHZ_MOST)
                .ok_or_else(|| format!("{text:?}: {value:?} is not a whole number of MHz up to {MHZ_MOST}"))
        };
        let what = match (key, vcpu) {
            ("weight", None) => What::Weight(positive()?),
            ("limit", None) if value.ends_with("MHz") => What::LimitMhz(mhz()?.max(1)),
            ("reservation", None) => What::ReservationMhz(mhz()?),
            ("nodes", None) => What::Nodes(cpus()?),
            ("cores-per-socket", None) => What::CoresPerSocket(
                value
                    .parse()
                    .ok()
                    .filter(|n| *n > 0)
                    .ok_or_else(|| format!("{text:?}: {value:?} is not a number greater than 0"))?,
            ),
            ("latency", None) => What::Latency(LatencySensitivity::of(value).ok_or_else(|| {
                let levels: Vec<&str> = LatencySensitivity::ALL.iter().map(|(_, word)| *word).collect();
                format!("{text:?}: {value:?} is not a latency sensitivity: use one of {}", levels.join(", "))
            })?),
            ("limit", None) => What::Limit(if value == "none" { None } else { Some(positive()?) }),
            ("pin", _) => What::Pin(vcpu, cpus()?),
            ("prefer", _) => What::Prefer(vcpu, cpus()?),
            ("budget", _) => What::Budget(vcpu, reserved(value).map_err(|e| format!("{text:?}: {e}"))?),
            _ => return Err(form()),
        };
        if vm.is_empty() {
            return Err(form());
        }
        Ok(Setting { vm: vm.to_owned(), what })
    }
}

/// Parses `4ms/10ms` and `4ms/10ms+`.
fn reserved(text: &str) -> Result<Reserved, String> {
    let (text, extra_time) = text.strip_suffix('+').map_or((text, false), |text| (text, true));
    let (budget, period) =
        text.split_once('/').ok_or("a budget has the form TIME/PERIOD, such as 4ms/10ms")?;
    let us = |text: &str| text.parse::<Span>().map(|span| span.ns() / 1_000).map_err(|e| e.to_string());
    let (budget_us, period_us) = (us(budget)?, us(period)?);
    if budget_us == 0 || budget_us > period_us {
        let limit = if budget_us == 0 { "less than 1 µs" } else { "more than its period" };
        return Err(format!("a budget of {budget_us} µs in every {period_us} µs is {limit}"));
    }
    Ok(Reserved { budget_us, period_us, extra_time })
}

/// The steps that make the settings, in their order. A value already in force makes no step.
///
/// # Errors
/// `NothingThere` for a VM or vCPU that does not exist; `BadInput` for an invalid weight, limit or pCPU;
/// `Unsupported` if the host has no such setting.
pub fn steps(config: &HostConfig, settings: &[Setting]) -> Result<Vec<Step>, Fault> {
    let mut all: Vec<Step> = Vec::new();
    for setting in settings {
        let anew = of_setting(&fluid::after(config, &all), setting)?;
        all.retain(|earlier| !anew.iter().any(|step| step.sets_what(earlier)));
        // Computed again, because the removed steps no longer change the former value.
        let steps = of_setting(&fluid::after(config, &all), setting)?;
        all.extend(steps);
    }
    Ok(all)
}

fn of_setting(config: &HostConfig, setting: &Setting) -> Result<Vec<Step>, Fault> {
    // An id first: anyone can start a process with a VM's id as its name.
    let by_id = config.vms.iter().find(|vm| *vm.id.0 == *setting.vm);
    let mut called = config.vms.iter().filter(|vm| by_id.is_none() && vm.name == setting.vm);
    if let (Some(one), Some(other)) = (called.next(), called.next()) {
        return Err(Fault::new(FaultKind::Usage, format!("--set: several VMs are called {:?}", setting.vm))
            .because(format!("their ids are {} and {}", one.id.0, other.id.0))
            .help("give the id in place of the name"));
    }
    let called = config.vms.iter().find(|vm| vm.name == setting.vm);
    let vm = by_id.or(called).ok_or_else(|| {
        let known: Vec<_> = config.vms.iter().map(|vm| crate::visible::line(&vm.name)).collect();
        Fault::new(FaultKind::NothingThere, format!("--set: there is no VM {:?}", setting.vm))
            .help(format!("use one of these VMs: {}", known.join(", ")))
    })?;
    let step =
        |change| Step { vm: vm.id.clone(), vm_name: vm.name.clone(), change, reason: REASON.to_owned() };
    Ok(changes(config, vm, &setting.what)?.into_iter().map(step).collect())
}

fn fault(vm: &VmConfig, kind: FaultKind, what: &str) -> Fault {
    Fault::new(kind, format!("--set {:?}: {what}", vm.name))
}

fn bad(vm: &VmConfig, what: &str) -> Fault {
    fault(vm, FaultKind::BadInput, what)
}

fn unsupported(vm: &VmConfig, what: &str) -> Fault {
    fault(vm, FaultKind::Unsupported, what)
}

fn changes(config: &HostConfig, vm: &VmConfig, what: &What) -> Result<Vec<Change>, Fault> {
    if vm.manager.keeps_settings() {
        return on_vsphere(config, vm, what);
    }
    match what {
        What::Nodes(_) if vm.bound_guest_nodes().is_some() || !vm.fixed.is_empty() => Err(tied(config, vm)),
        What::LimitMhz(_)
        | What::ReservationMhz(_)
        | What::Nodes(_)
        | What::CoresPerSocket(_)
        | What::Latency(_) => Err(unsupported(vm, "only vSphere has this setting")
            .help("give a limit in pCPUs, or use vsteer plan --only topology or --only node")),
        What::Weight(number) => weight(vm, *number),
        What::Limit(pcpus) => limit(vm, *pcpus),
        What::Pin(vcpu, cpus) => pins(vm, *vcpu, named(config, vm, cpus)?),
        What::Prefer(..) if vm.pool.is_none() => {
            Err(unsupported(vm, "only Xen has preferred pCPUs").help("pin the vCPUs instead: VM:pin=PCPUS"))
        }
        What::Prefer(vcpu, cpus) => {
            preferences(vm, *vcpu, cpus.as_ref().map(|_| named(config, vm, cpus)).transpose()?)
        }
        What::Budget(vcpu, to) => budgets(vm, *vcpu, *to),
    }
}

/// The refusal to move a VM whose memory or devices would stay behind.
fn tied(config: &HostConfig, vm: &VmConfig) -> Fault {
    let whys: Vec<String> = ties::of(&config.topology, vm, None).into_iter().map(|tie| tie.why).collect();
    let refused = unsupported(vm, "the VM cannot move to other NUMA nodes").because(whys.join("; "));
    match vm.bound_guest_nodes() {
        Some(_) => refused.help(
            "guest NUMA nodes are bound one by one: change each of them in the definition (libvirt: <memnode>, QEMU: \
                host-nodes=) and the pins of its vCPUs with it; that takes effect at the next start",
        ),
        None => refused.help("change the definition and the pins of the vCPUs: that takes effect at the next start"),
    }
}

/// The pCPUs that a setting names. `any` stands for all pCPUs on which the VM may run.
fn named(config: &HostConfig, vm: &VmConfig, cpus: &Option<CpuSet>) -> Result<CpuSet, Fault> {
    let anywhere = vm.pool.as_ref().map_or_else(|| config.topology.usable(), |pool| pool.cpus.clone());
    match cpus {
        Some(cpus) if cpus.is_empty() || !cpus.difference(&anywhere).is_empty() => {
            let wrong = bad(vm, &format!("the VM cannot use all of the pCPUs {cpus}"));
            Err(wrong.help(format!("use pCPUs from {anywhere}")))
        }
        Some(cpus) => Ok(cpus.clone()),
        None if vm.pool.is_none() => Ok(config.housekeeping()),
        None => Ok(anywhere),
    }
}

fn weight(vm: &VmConfig, number: f64) -> Result<Vec<Change>, Fault> {
    let from = vm.weight.ok_or_else(|| unsupported(vm, "the VM has no weight of its own"))?;
    let own = |g: &&GroupScheduling| g.idle && Some(&g.cgroup) == vm.cgroup.as_ref();
    if let Some(group) = vm.scheduling.iter().find(own) {
        let refused = unsupported(vm, "the kernel refuses to change the weight of an idle cgroup");
        return Err(refused.help(format!(
            "make the cgroup {} an ordinary one first: write 0 to its cpu.idle",
            group.cgroup
        )));
    }
    let to = from.on_same_scale(number.round());
    if (to.number() as f64 - number).abs() > 1e-9 {
        let wrong = bad(vm, &format!("{number} is not a valid weight"));
        return Err(wrong.help(format!("use the nearest value: {to} (now {from})")));
    }
    Ok(Vec::from_iter((from != to).then_some(Change::Weight(setting::Weight { from, to }))))
}

fn limit(vm: &VmConfig, pcpus: Option<f64>) -> Result<Vec<Change>, Fault> {
    let (scope, from) = (QuotaScope::WholeVm, vm.limits.whole_vm);
    let period_us = from.map_or(PERIOD_US, |q| q.period_us);
    let to = pcpus.map(|pcpus| Quota { quota_us: (pcpus * period_us as f64).round() as u64, period_us });
    if to.is_some_and(|q| q.quota_us < 1_000) {
        return Err(bad(vm, "the limit is less than 1 ms per period").help("give more pCPUs, such as 0.1"));
    }
    Ok(Vec::from_iter((from != to).then_some(Change::Quota(setting::Quota { scope, from, to }))))
}

fn pins(vm: &VmConfig, vcpu: Option<u32>, to: CpuSet) -> Result<Vec<Change>, Fault> {
    let pin = |t: &VmThread| {
        Change::Affinity(setting::Affinity {
            role: t.role,
            tid: t.tid,
            from: t.affinity.clone(),
            to: to.clone(),
        })
    };
    Ok(vcpus(vm, vcpu)?.into_iter().filter(|t| t.affinity != to).map(pin).collect())
}

fn preferences(vm: &VmConfig, vcpu: Option<u32>, to: Option<CpuSet>) -> Result<Vec<Change>, Fault> {
    let of = |t: &VmThread| {
        Change::Preference(setting::Preference {
            role: t.role,
            tid: t.tid,
            from: t.prefers.clone(),
            to: to.clone(),
        })
    };
    Ok(vcpus(vm, vcpu)?.into_iter().filter(|t| t.prefers != to).map(of).collect())
}

fn budgets(vm: &VmConfig, vcpu: Option<u32>, to: Reserved) -> Result<Vec<Change>, Fault> {
    let mut all = Vec::new();
    for t in vcpus(vm, vcpu)? {
        let from = t.reserved.ok_or_else(|| {
            unsupported(vm, "the VM's scheduler has no budgets; only Xen's RTDS does")
                .help("set a weight or a limit instead")
        })?;
        let change = setting::Reservation { role: t.role, tid: t.tid, from, to };
        all.extend((from != to).then_some(Change::Reservation(change)));
    }
    Ok(all)
}

/// vsteer refuses to change a value that it does not know, because it could not restore it.
fn untold(vm: &VmConfig, what: &str) -> Fault {
    unsupported(vm, &format!("vsteer does not know the present {what}, so it could not restore it")).help(
        "connect to the host (--connect vsphere://USER@HOST), or write the value into host.toml beside \
            esxtop's file",
    )
}

/// The change of a VM on vSphere, where each setting is for the whole VM.
fn on_vsphere(config: &HostConfig, vm: &VmConfig, what: &What) -> Result<Vec<Change>, Fault> {
    let of = vm.vsphere.clone().unwrap_or_default();
    let known = |set: &Option<CpuSet>, there: &CpuSet, of: &str| match set {
        Some(set) if set.is_empty() || !set.difference(there).is_empty() => {
            let wrong = bad(vm, &format!("the host does not have all of the {of} {set}"));
            Err(wrong.help(format!("use {of} from {there}")))
        }
        _ => Ok(()),
    };
    let change = match what {
        What::Weight(number) => shares(vm, *number)?,
        What::LimitMhz(to) => Change::LimitMhz(setting::LimitMhz {
            from: of.limit_mhz.ok_or_else(|| untold(vm, "limit"))?,
            to: Some(*to),
        }),
        What::Limit(None) => Change::LimitMhz(setting::LimitMhz {
            from: of.limit_mhz.ok_or_else(|| untold(vm, "limit"))?,
            to: None,
        }),
        What::Limit(Some(_)) => {
            let wrong = unsupported(vm, "vSphere limits are in MHz, not in pCPUs");
            return Err(wrong.help("write VM:limit=2000MHz or VM:limit=none"));
        }
        What::ReservationMhz(to) => Change::ReservationMhz(setting::ReservationMhz {
            from: of.reservation_mhz.ok_or_else(|| untold(vm, "reservation"))?,
            to: *to,
        }),
        What::Pin(None, to) => {
            known(to, &config.topology.usable(), "pCPUs")?;
            Change::VmAffinity(setting::VmAffinity { from: of.cpu_affinity, to: to.clone() })
        }
        What::Pin(Some(_), _) => {
            let wrong = unsupported(vm, "vSphere can only pin all vCPUs of a VM to the same pCPUs");
            return Err(wrong.help("write VM:pin=PCPUS or VM:pin=any"));
        }
        What::Nodes(to) => {
            let there = config.topology.nodes().iter().filter(|n| !n.cpus.is_empty()).map(|n| n.id.0);
            known(to, &there.collect(), "nodes")?;
            Change::NodeAffinity(setting::NodeAffinity { from: of.node_affinity, to: to.clone() })
        }
        What::CoresPerSocket(cores) => guest_topology(vm, *cores)?,
        What::Latency(to) => latency(vm, &of, *to)?,
        What::Prefer(..) | What::Budget(..) => return Err(unsupported(vm, "only Xen has this setting")),
    };
    let undone = change.undo();
    Ok(Vec::from_iter((undone.as_ref() != Some(&change)).then_some(change)))
}

fn shares(vm: &VmConfig, number: f64) -> Result<Change, Fault> {
    let from = vm.weight.ok_or_else(|| untold(vm, "number of shares"))?;
    let to = from.on_same_scale(number.round());
    if (to.number() as f64 - number).abs() > 1e-9 {
        let wrong = bad(vm, &format!("{number} is not a valid number of shares"));
        return Err(wrong.help(format!("use the nearest value: {to}")));
    }
    Ok(Change::Weight(setting::Weight { from, to }))
}

fn guest_topology(vm: &VmConfig, cores: u32) -> Result<Change, Fault> {
    let vcpus = vm.vcpu_count() as u32;
    if vcpus == 0 || !vcpus.is_multiple_of(cores) {
        let wrong = format!("{vcpus} vCPUs are not a multiple of {cores} cores per socket");
        return Err(bad(vm, &wrong).help("choose cores per socket that fit: vsteer numa lists them"));
    }
    let to = GuestTopology { sockets: vcpus / cores, cores, threads: 1 };
    Ok(Change::Topology(setting::Topology { from: vm.guest_topology, to }))
}

fn latency(vm: &VmConfig, of: &VsphereVm, to: LatencySensitivity) -> Result<Change, Fault> {
    let from = of.latency.ok_or_else(|| untold(vm, "latency sensitivity"))?;
    if to == LatencySensitivity::High && of.memory_reserved == Some(false) {
        let why = "a high latency sensitivity needs all memory of the VM reserved";
        return Err(unsupported(vm, why).help("reserve all of the VM's memory first"));
    }
    Ok(Change::Latency(setting::Latency { from, to }))
}

/// The vCPU of this number, or all vCPUs of the VM.
fn vcpus(vm: &VmConfig, which: Option<u32>) -> Result<Vec<&VmThread>, Fault> {
    let all: Vec<&VmThread> = vm.vcpus().filter(|t| which.is_none_or(|n| t.role.vcpu() == Some(n))).collect();
    if all.is_empty() {
        let which = which.map_or(String::new(), |n| format!(" {n}"));
        return Err(Fault::new(
            FaultKind::NothingThere,
            format!("--set {:?}: the VM has no vCPU{which}", vm.name),
        )
        .help(format!("the VM has {} vCPUs, counted from 0", vm.vcpu_count())));
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nouns::Manager;
    use crate::nouns::{CpuPool, CpuWeight, Role, Tid, VmId};
    use crate::topology::machine;

    #[test]
    fn the_weight_of_an_idle_cgroup_is_refused() {
        let mut h = host();
        let vm = &mut h.vms[0];
        vm.cgroup = Some("/m/web".into());
        let group =
            |cgroup: &str| GroupScheduling { cgroup: cgroup.into(), idle: true, ..Default::default() };
        vm.scheduling = vec![group("/m")];
        assert!(
            told(&h, "my:web:weight=512").is_ok(),
            "the kernel refuses it for the idle cgroup itself alone"
        );
        h.vms[0].scheduling.push(group("/m/web"));
        let why = told(&h, "my:web:weight=512").unwrap_err();
        assert!(why.contains("the kernel refuses") && why.contains("/m/web"), "{why}");
    }

    fn host() -> HostConfig {
        let cpus = CpuSet::first(4);
        let vcpu = |n: u32| VmThread {
            tid: Tid(n),
            role: Role::Vcpu(n),
            affinity: cpus.clone(),
            class: None,
            cgroup: None,
            prefers: None,
            reserved: (n == 1).then_some(Reserved { budget_us: 4_000, period_us: 10_000, extra_time: true }),
        };
        let (name, scheduler, parameters) = ("Pool-0".into(), "credit".into(), [].into());
        let vm = VmConfig {
            threads: vec![vcpu(0), vcpu(1)],
            weight: Some(CpuWeight::Credit(256)),
            pool: Some(CpuPool { name, scheduler, cpus: cpus.clone(), parameters }),
            vsphere: None,
            ..VmConfig::new(VmId("1".into()), "my:web", 1)
        };
        HostConfig { vms: vec![vm], ..HostConfig::new("h", "Xen 4.17.7", machine(1, 4, 1, 1).unwrap()) }
    }

    fn told(config: &HostConfig, text: &str) -> Result<Vec<String>, String> {
        let setting = text.parse::<Setting>()?;
        let steps = steps(config, &[setting]).map_err(|f| f.to_string())?;
        Ok(steps.iter().map(|s| s.change.to_string()).collect())
    }

    #[test]
    fn words_become_steps() {
        let h = host();
        let of = |text: &str| told(&h, text).unwrap();
        assert_eq!(of("my:web:weight=512"), ["CPU weight: 256 -> 512"]);
        assert_eq!(of("my:web:weight=256"), Vec::<String>::new(), "it is so already");
        assert_eq!(of("my:web:limit=0.5"), ["limit of whole VM: none -> 0.50 CPUs (50000/100000 µs)"]);
        assert_eq!(of("my:web:pin=1-2"), ["vcpu0: pCPUs 0-3 -> 1-2", "vcpu1: pCPUs 0-3 -> 1-2"]);
        assert_eq!(of("my:web:pin.1=3"), ["vcpu1: pCPUs 0-3 -> 3"]);
        assert_eq!(of("my:web:pin=any"), Vec::<String>::new());
        assert_eq!(of("my:web:prefer.0=2,3"), ["vcpu0: prefers pCPUs any -> 2-3"]);
        let reserved =
            "vcpu1: reserved 4000 µs in every 10000 µs and what is left over -> 5000 µs in every 10000 µs";
        assert_eq!(of("my:web:budget.1=5ms/10ms"), [reserved]);
        assert_eq!(of("my:web:budget.1=4ms/10ms+"), Vec::<String>::new());
    }

    #[test]
    fn of_several_settings_of_one_thing_the_last_holds_and_begins_with_what_is_in_force() {
        let mut h = host();
        let of = |h: &HostConfig, texts: &[&str]| -> Vec<String> {
            let settings: Vec<Setting> = texts.iter().map(|t| t.parse().unwrap()).collect();
            steps(h, &settings).unwrap().iter().map(|s| s.change.to_string()).collect()
        };
        let pins = of(&h, &["my:web:pin=1-2", "my:web:pin.1=3"]);
        assert_eq!(pins, ["vcpu0: pCPUs 0-3 -> 1-2", "vcpu1: pCPUs 0-3 -> 3"]);
        let back = of(&h, &["my:web:pin=1-2", "my:web:pin.1=any"]);
        assert_eq!(back, ["vcpu0: pCPUs 0-3 -> 1-2"], "vCPU 1 is where it was");
        let weight = of(&h, &["my:web:weight=512", "my:web:pin.0=1", "my:web:weight=1024"]);
        assert_eq!(weight, ["vcpu0: pCPUs 0-3 -> 1", "CPU weight: 256 -> 1024"]);
        assert_eq!(of(&h, &["my:web:weight=512", "my:web:weight=512"]).len(), 1);
        h.vms[0].limits.whole_vm = Some(Quota { quota_us: 50_000, period_us: 50_000 });
        let limit = of(&h, &["my:web:limit=none", "my:web:limit=2"]);
        assert_eq!(limit, ["limit of whole VM: 1.00 CPUs (50000/50000 µs) -> 2.00 CPUs (100000/50000 µs)"]);
        let h = on_esxi();
        let limit = of(&h, &["my:web:limit=2400MHz", "my:web:limit=1200MHz"]);
        assert_eq!(limit, ["CPU limit: none -> 1200 MHz"]);
        assert_eq!(of(&h, &["my:web:limit=2400MHz", "my:web:limit=none"]), Vec::<String>::new());
    }

    #[test]
    fn invalid_settings_are_refused_with_help() {
        let mut h = host();
        for text in ["web", "web=1", "web:=1", "web:weight", "web:colour=1", "web:weight.1=3", ":weight=1"] {
            assert!(told(&h, text).unwrap_err().contains("VM:weight=N"), "{text}");
        }
        let refused = [
            ("my:web:weight=0", "not a number greater than 0"),
            ("my:web:weight=99999", "use the nearest value: weight 65535"),
            ("my:web:limit=0.001", "1 ms"),
            ("my:web:pin=9", "use pCPUs from 0-3"),
            ("my:web:pin=x", "pin=x"),
            ("my:web:pin.x=1", "not a vCPU number"),
            ("my:web:pin.7=1", "counted from 0"),
            ("my:web:budget=1ms/2ms", "has no budgets"),
            ("my:web:budget.1=3ms/2ms", "more than its period"),
            ("my:web:budget.1=3ms", "TIME/PERIOD"),
            ("db:weight=1", "use one of these VMs: my:web"),
        ];
        for (text, why) in refused {
            let got = told(&h, text).unwrap_err();
            assert!(got.contains(why), "{text}: {got}");
        }
        h.vms[0].pool = None;
        assert!(told(&h, "my:web:prefer=1").unwrap_err().contains("only Xen"));
    }

    fn on_esxi() -> HostConfig {
        let mut h = host();
        h.topology = machine(2, 1, 4, 1).unwrap();
        let vm = &mut h.vms[0];
        vm.manager = Manager::Vsphere("vm-1".into());
        (vm.pool, vm.weight) = (None, Some(CpuWeight::Esxi(2000)));
        vm.vsphere = Some(crate::nouns::VsphereVm {
            reservation_mhz: Some(0),
            limit_mhz: Some(None),
            latency: Some(LatencySensitivity::Normal),
            memory_reserved: Some(false),
            ..Default::default()
        });
        h
    }

    #[test]
    fn words_for_vsphere() {
        let h = on_esxi();
        let of = |text: &str| told(&h, text).unwrap();
        assert_eq!(of("my:web:weight=300000"), ["CPU weight: 2000 shares -> 300000 shares"]);
        assert_eq!(of("my:web:limit=2400MHz"), ["CPU limit: none -> 2400 MHz"]);
        assert_eq!(of("my:web:limit=none"), Vec::<String>::new(), "it is so already");
        assert_eq!(of("my:web:reservation=500MHz"), ["CPU reservation: 0 -> 500 MHz"]);
        assert_eq!(of("my:web:pin=0-3"), ["all vCPUs: pCPUs any -> 0-3"]);
        assert_eq!(of("my:web:nodes=1"), ["NUMA node affinity: any -> 1"]);
        assert_eq!(of("my:web:latency=low"), ["latency sensitivity: normal -> low"]);
        let cores = "guest topology (sockets x cores x threads): default -> 1x2x1, at its next start";
        assert_eq!(of("my:web:cores-per-socket=2"), [cores]);
        for (text, why) in [
            ("my:web:latency=high", "memory of the VM reserved"),
            ("my:web:latency=custom", "one of low"),
            ("my:web:limit=1.5", "in MHz"),
            ("my:web:pin.1=3", "the same pCPUs"),
            ("my:web:pin=99", "use pCPUs from 0-7"),
            ("my:web:nodes=2", "use nodes from 0-1"),
            ("my:web:cores-per-socket=3", "not a multiple of 3"),
            ("my:web:budget=4ms/10ms", "only Xen"),
            ("my:web:reservation=-1", "not a whole number of MHz"),
        ] {
            let got = told(&h, text).unwrap_err();
            assert!(got.contains(why), "{text}: {got}");
        }
        let linux = host();
        assert!(told(&linux, "my:web:reservation=5MHz").unwrap_err().contains("only vSphere"));
    }

    #[test]
    fn numbers_at_the_edge_of_what_can_be() {
        let xen = host();
        let esxi = on_esxi();
        let is =
            |h: &HostConfig, text: &str, step: &str| assert_eq!(told(h, text).unwrap(), [step], "{text}");
        let limit = "limit of whole VM: none -> 0.01 CPUs (1000/100000 µs)";
        is(&xen, "my:web:limit=0.01", limit);
        let reserved = "vcpu1: reserved 4000 µs in every 10000 µs and what is left over ->";
        is(&xen, "my:web:budget.1=10ms/10ms", &format!("{reserved} 10000 µs in every 10000 µs"));
        is(&xen, "my:web:budget.1=1500us/10ms", &format!("{reserved} 1500 µs in every 10000 µs"));
        is(&xen, "my:web:weight=1", "CPU weight: 256 -> 1");
        is(&esxi, "my:web:limit=0MHz", "CPU limit: none -> 1 MHz");
        is(&esxi, "my:web:limit=100000000MHz", "CPU limit: none -> 100000000 MHz");
        let cores = "guest topology (sockets x cores x threads): default -> 2x1x1, at its next start";
        is(&esxi, "my:web:cores-per-socket=1", cores);
        for (h, text, why) in [
            (&xen, "my:web:limit=0.00994", "1 ms"),
            (&xen, "my:web:limit=0", "not a number greater than 0"),
            (&xen, "my:web:budget.1=999ns/10ms", "less than 1 µs"),
            (&xen, "my:web:weight=511.6", "511.6 is not a valid weight"),
            (&xen, "my:web:weight=inf", "not a number greater than 0"),
            (&xen, "my:web:weight=-1", "not a number greater than 0"),
            (&xen, "my:web:pin=3-4", "use pCPUs from 0-3"),
            (&esxi, "my:web:weight=2000.5", "2000.5 is not a valid number of shares"),
            (&esxi, "my:web:limit=100000001MHz", "not a whole number of MHz"),
            (&esxi, "my:web:cores-per-socket=0", "not a number greater than 0"),
            (&esxi, "my:web:pin=7-8", "use pCPUs from 0-7"),
        ] {
            let got = told(h, text).unwrap_err();
            assert!(got.contains(why), "{text}: {got}");
        }
    }

    #[test]
    fn any_is_where_the_vm_may_run() {
        let mut h = host();
        h.vms[0].threads.iter_mut().for_each(|t| t.affinity = CpuSet::single(1));
        h.vms[0].pool.as_mut().unwrap().cpus = "1-2".parse().unwrap();
        let pins = |h: &HostConfig| told(h, "my:web:pin=any").unwrap();
        assert_eq!(pins(&h), ["vcpu0: pCPUs 1 -> 1-2", "vcpu1: pCPUs 1 -> 1-2"], "its pool");
        assert!(told(&h, "my:web:pin=3").unwrap_err().contains("use pCPUs from 1-2"));
        h.vms[0].pool = None;
        h.scheduler = Some(crate::nouns::FairTuning { isolated: CpuSet::single(3), ..Default::default() });
        assert_eq!(pins(&h), ["vcpu0: pCPUs 1 -> 0-2", "vcpu1: pCPUs 1 -> 0-2"], "no isolated pCPU");
        assert_eq!(told(&h, "my:web:pin.0=3").unwrap(), ["vcpu0: pCPUs 1 -> 3"], "unless it is named");
    }

    #[test]
    fn a_preference_that_is_there_is_no_step_and_any_takes_it_away() {
        let mut h = host();
        h.vms[0].threads[0].prefers = Some(CpuSet::single(2));
        assert_eq!(told(&h, "my:web:prefer=2").unwrap(), ["vcpu1: prefers pCPUs any -> 2"]);
        assert_eq!(told(&h, "my:web:prefer.1=2").unwrap(), ["vcpu1: prefers pCPUs any -> 2"]);
        assert!(told(&h, "my:web:prefer=any").unwrap()[0].starts_with("vcpu0: prefers pCPUs 2 -> "));
    }

    #[test]
    fn each_vm_is_found_by_its_name() {
        let mut h = host();
        let other = VmConfig { name: "db".into(), id: VmId("2".into()), weight: None, ..h.vms[0].clone() };
        h.vms.push(other);
        let setting = "my:web:weight=512".parse().unwrap();
        let all = steps(&h, &[setting, "db:limit=1".parse().unwrap()]).unwrap();
        let whose: Vec<&str> = all.iter().map(|s| s.vm_name.as_str()).collect();
        assert_eq!(whose, ["my:web", "db"]);
        assert!(told(&h, "db:weight=512").unwrap_err().contains("no weight of its own"));
        assert!(told(&h, "my:db:weight=512").unwrap_err().contains("use one of these VMs: my:web, db"));
    }

    #[test]
    fn a_vsphere_value_that_is_unknown_is_not_changed() {
        let mut h = on_esxi();
        h.vms[0].vsphere.as_mut().unwrap().memory_reserved = Some(true);
        assert_eq!(
            told(&h, "my:web:latency=high").unwrap(),
            ["latency sensitivity: normal -> high"],
            "its memory is reserved"
        );
        (h.vms[0].vsphere, h.vms[0].weight) = (None, None);
        h.vms[0].threads.clear();
        for (text, why) in [
            ("my:web:limit=5MHz", "does not know the present limit"),
            ("my:web:limit=none", "does not know the present limit"),
            ("my:web:reservation=5MHz", "does not know the present reservation"),
            ("my:web:latency=low", "does not know the present latency sensitivity"),
            ("my:web:weight=1", "does not know the present number of shares"),
            ("my:web:cores-per-socket=1", "0 vCPUs are not a multiple"),
        ] {
            let got = told(&h, text).unwrap_err();
            assert!(got.contains(why), "{text}: {got}");
        }
    }
}
