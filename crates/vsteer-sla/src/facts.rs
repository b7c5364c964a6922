//! How much CPU time, weight and vCPUs does each VM with a service level have, and which pCPUs do these VMs share?
//!
//! The shared pCPUs are those that any of these VMs may use, less the time that other VMs and the host used on
//! them. So the model assumes that the others use the same time under new weights. [`dead`] lists the VMs whose
//! weight has no effect, with reasons.
//!
//! Left out: pCPUs that only some of the VMs may use; all VMs are assumed to share all pCPUs.

use super::estimate::simulated::Simulated;
use super::window::Vm;
use serde::Serialize;
use vsteer_core::CpuSet;
use vsteer_core::model::HostModel;
use vsteer_core::nouns::{CpuWeight, HostConfig, VmConfig};
use vsteer_core::{Fault, FaultKind};
use vsteer_sim::forecast::demand::Demands;
use vsteer_sim::forecast::replay::replay;

/// If others used more than this part of the pCPUs, a simulation without them is not valid.
const OTHERS_MOST: f64 = 0.03;

/// VMs with service levels and the pCPUs that they share.
#[derive(Debug, Clone, PartialEq)]
pub struct Facts {
    /// The VMs, in the requested order.
    pub vms: Vec<Vm>,
    /// pCPUs that the VMs may use together.
    pub pcpus: f64,
    /// pCPUs of these that others used.
    pub others: f64,
}

/// Finds the VM of this name.
///
/// # Errors
/// `NothingThere`, with the names of the existing VMs.
pub fn find<'a>(config: &'a HostConfig, name: &str) -> Result<&'a VmConfig, Fault> {
    config.vms.iter().find(|vm| vm.name == name).ok_or_else(|| {
        let known: Vec<&str> = config.vms.iter().map(|vm| vm.name.as_str()).collect();
        let there = if known.is_empty() {
            "the host runs no VM".to_owned()
        } else {
            format!("use one of these VMs: {}", known.join(", "))
        };
        Fault::new(FaultKind::NothingThere, format!("there is no VM {name:?}")).help(there)
    })
}

/// pCPUs where any vCPU of these VMs may run.
fn pcpus_of(vms: &[&VmConfig]) -> CpuSet {
    let mut all = CpuSet::default();
    let vcpus = vms.iter().flat_map(|vm| &vm.threads).filter(|t| t.role.vcpu().is_some());
    vcpus.flat_map(|t| t.affinity.iter()).for_each(|cpu| all.insert(cpu));
    all
}

/// Facts about the VMs of these names, from `model` of the host with settings `config`.
///
/// # Errors
/// As [`find`]; `NothingThere` if the CPU time of a VM was not measured.
pub fn facts(config: &HostConfig, model: &HostModel, names: &[&str]) -> Result<Facts, Fault> {
    let configs = names.iter().map(|name| find(config, name)).collect::<Result<Vec<_>, _>>()?;
    let mut used = 0.0;
    let mut vms = Vec::new();
    for vm in &configs {
        let run = model.vm(&vm.id).and_then(|m| m.group.run);
        let run = run.ok_or_else(|| {
            Fault::new(FaultKind::NothingThere, format!("no CPU time was measured for VM {:?}", vm.name))
        })?;
        used += run;
        let vcpus = vm.threads.iter().filter(|t| t.role.vcpu().is_some()).count().max(1) as u32;
        let weight = vm.weight.map_or(1.0, |w| w.relative());
        vms.push(Vm { cpu_ns: (run * model.window_ns as f64) as u64, weight, vcpus });
    }
    let usable = pcpus_of(&configs).intersection(&config.topology.usable());
    let busy: f64 = model.pcpus.iter().filter(|p| usable.contains(p.cpu)).map(|p| p.busy).sum();
    let others = (busy - used).max(0.0);
    let pcpus = usable.iter().count() as f64;
    Ok(Facts { vms, pcpus: (pcpus - others).max(0.01 * pcpus), others })
}

/// The recorded host as a simulation with these VMs' requests.
pub fn simulated(
    config: &HostConfig,
    wanted: &Demands,
    facts: &Facts,
    names: &[&str],
) -> Result<Simulated, String> {
    if facts.others > OTHERS_MOST * (facts.pcpus + facts.others) {
        return Err(format!(
            "work outside these VMs used {:.2} of the pCPUs, which the simulation would miss",
            facts.others
        ));
    }
    let host = replay(config, wanted, 1).map_err(|fault| fault.to_string())?;
    let known: Vec<&VmConfig> = config.vms.iter().filter(|vm| !vm.threads.is_empty()).collect();
    let place = |name: &&str| known.iter().position(|vm| vm.name == *name);
    let vms = names.iter().map(place).collect::<Option<Vec<_>>>().ok_or("a VM has no threads")?;
    let weight_unit = f64::from(host.policy.about.default_weight);
    Ok(Simulated { host, vms, weight_unit, passage: None })
}

/// Why a VM's weight has no effect, or a wrong one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "why")]
pub enum Dead {
    /// The VM has no weight, because it has no cgroup of its own.
    NoWeight,
    /// The VM's cgroup has another parent than the others'. Weights count only among siblings.
    OtherParent {
        /// Where it is.
        parent: String,
    },
    /// A quota throttles the VM below what a weight could give.
    Quota,
    /// No other of these VMs may run on the VM's pCPUs.
    Alone,
    /// The VM runs in a real-time class, which precedes every weight.
    RealTime,
    /// The vCPUs are pinned to a part of a Xen pool, but Xen grants credits over the whole pool.
    Pinned,
}

impl std::fmt::Display for Dead {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Dead::NoWeight => {
                f.write_str("the VM has no cgroup with the cpu controller, so it has no weight")
            }
            Dead::OtherParent { parent } => {
                write!(
                    f,
                    "its cgroup is in {parent}, apart from the other VMs' cgroups, and weights count \
                    only among siblings"
                )
            }
            Dead::Quota => f.write_str("its quota throttles the VM; raise or remove the quota first"),
            Dead::Alone => f.write_str("no other VM with a level may run on its pCPUs"),
            Dead::RealTime => f.write_str("the VM runs in a real-time class, which precedes every weight"),
            Dead::Pinned => f.write_str(
                "the VM is pinned to a part of a Xen pool, but Xen grants credits over the \
                    whole pool; give the VM a pool of its own",
            ),
        }
    }
}

/// A VM that uses at least this part of its quota counts as throttled.
const QUOTA_FULL: f64 = 0.95;

/// The VMs of these names whose weights have no effect, with the reason.
///
/// # Errors
/// As [`find`].
pub fn dead(config: &HostConfig, model: &HostModel, names: &[&str]) -> Result<Vec<(usize, Dead)>, Fault> {
    let vms = names.iter().map(|name| find(config, name)).collect::<Result<Vec<_>, _>>()?;
    let parent = |vm: &VmConfig| {
        let own = vm.cgroup.as_deref()?.trim_end_matches('/');
        own.rsplit_once('/').map(|(parent, _)| if parent.is_empty() { "/" } else { parent }.to_owned())
    };
    // The parent of most of the VMs.
    let parents: Vec<Option<String>> = vms.iter().map(|vm| parent(vm)).collect();
    let votes = |p: &Option<String>| parents.iter().filter(|q| *q == p).count();
    let common = parents.iter().filter(|p| p.is_some()).max_by_key(|p| votes(p)).cloned().flatten();
    let of = |i: usize| -> Option<Dead> {
        let vm = vms[i];
        let vcpus = || vm.threads.iter().filter(|t| t.role.vcpu().is_some());
        if vm.weight.is_none() {
            return Some(Dead::NoWeight);
        }
        if vcpus().any(|t| t.class.is_some_and(|c| c.is_realtime())) {
            return Some(Dead::RealTime);
        }
        let limited = model.vm(&vm.id).and_then(|m| m.group.limited).unwrap_or(0.0);
        let run = model.vm(&vm.id).and_then(|m| m.group.run).unwrap_or(0.0);
        let full = vm.limits.whole_vm.is_some_and(|q| run >= QUOTA_FULL * q.cpus());
        let each = vm.limits.per_vcpu.is_some_and(|q| run >= QUOTA_FULL * q.cpus() * vcpus().count() as f64);
        if limited > 0.05 && (full || each) {
            return Some(Dead::Quota);
        }
        let own = pcpus_of(&[vm]);
        let meets = |j: usize| j != i && pcpus_of(&[vms[j]]).iter().any(|cpu| own.contains(cpu));
        if vms.len() > 1 && !(0..vms.len()).any(meets) {
            return Some(Dead::Alone);
        }
        if matches!(vm.weight, Some(CpuWeight::Credit(_))) {
            return vm.pinned_within().map(|_| Dead::Pinned);
        }
        (parents[i] != common).then(|| Dead::OtherParent { parent: parents[i].clone().unwrap_or_default() })
    };
    Ok((0..vms.len()).filter_map(|i| of(i).map(|why| (i, why))).collect())
}
