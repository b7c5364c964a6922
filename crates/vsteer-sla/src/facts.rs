//! What does a host's model say of VMs whose requests are looked at? CPU time, weight, vCPUs; and the pCPUs that they share.
//!
//! The pCPUs are those that any of these VMs may use, less what everything else on them used: other VMs, the host itself. So somebody
//! who is in no service level takes what he took; that he would take more or less under other weights is left out.
//!
//! Weights work only where VMs meet: [`dead`] says for which they do not, and why.
//!
//! Left out: pCPUs that only some of the VMs may use (all of them are taken to share all).

use super::estimate::simulated::Simulated;
use super::window::Vm;
use serde::Serialize;
use vsteer_core::CpuSet;
use vsteer_core::model::HostModel;
use vsteer_core::nouns::{CpuWeight, HostConfig, VmConfig};
use vsteer_core::{Fault, FaultKind};
use vsteer_sim::forecast::demand::Demands;
use vsteer_sim::forecast::replay::replay;

/// Where everybody else used more than this part of the pCPUs, a simulated host without them is no longer that host.
const OTHERS_MOST: f64 = 0.03;

/// VMs and what they share.
#[derive(Debug, Clone, PartialEq)]
pub struct Facts {
    /// The VMs, in the order that was asked for.
    pub vms: Vec<Vm>,
    /// pCPUs that they may use together.
    pub pcpus: f64,
    /// pCPUs that others used of them.
    pub others: f64,
}

/// The VM of this name.
///
/// # Errors
/// `NothingThere`, naming those there are.
pub fn find<'a>(config: &'a HostConfig, name: &str) -> Result<&'a VmConfig, Fault> {
    config.vms.iter().find(|vm| vm.name == name).ok_or_else(|| {
        let known: Vec<&str> = config.vms.iter().map(|vm| vm.name.as_str()).collect();
        let there = if known.is_empty() {
            "no VM runs there".to_owned()
        } else {
            format!("there are: {}", known.join(", "))
        };
        Fault::new(FaultKind::NothingThere, format!("there is no VM {name:?}")).help(there)
    })
}

/// Where any vCPU of these VMs may run.
fn pcpus_of(vms: &[&VmConfig]) -> CpuSet {
    let mut all = CpuSet::default();
    let vcpus = vms.iter().flat_map(|vm| &vm.threads).filter(|t| t.role.vcpu().is_some());
    vcpus.flat_map(|t| t.affinity.iter()).for_each(|cpu| all.insert(cpu));
    all
}

/// What `model`, made under `config`, says of the VMs of these names.
///
/// # Errors
/// As [`find`]; `NothingThere` for a VM of which nothing was measured.
pub fn facts(config: &HostConfig, model: &HostModel, names: &[&str]) -> Result<Facts, Fault> {
    let configs = names.iter().map(|name| find(config, name)).collect::<Result<Vec<_>, _>>()?;
    let mut used = 0.0;
    let mut vms = Vec::new();
    for vm in &configs {
        let run = model.vm(&vm.id).and_then(|m| m.group.run);
        let run = run.ok_or_else(|| {
            Fault::new(FaultKind::NothingThere, format!("VM {:?}: its CPU time was not measured", vm.name))
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

/// The recorded host, to be simulated with these VMs' requests; `None` with the reason where it cannot be, or would be another one.
pub fn simulated(
    config: &HostConfig,
    wanted: &Demands,
    facts: &Facts,
    names: &[&str],
) -> Result<Simulated, String> {
    if facts.others > OTHERS_MOST * (facts.pcpus + facts.others) {
        return Err(format!(
            "others used {:.2} of the pCPUs, and would be missing in the simulation",
            facts.others
        ));
    }
    let host = replay(config, wanted, 1).map_err(|fault| fault.to_string())?;
    let known: Vec<&VmConfig> = config.vms.iter().filter(|vm| !vm.threads.is_empty()).collect();
    let place = |name: &&str| known.iter().position(|vm| vm.name == *name);
    let vms = names.iter().map(place).collect::<Option<Vec<_>>>().ok_or("a VM without threads")?;
    let weight_unit = f64::from(host.policy.about.default_weight);
    Ok(Simulated { host, vms, weight_unit, passage: None })
}

/// Why a VM's weight does nothing, or not what it should.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "why")]
pub enum Dead {
    /// It has none: no cgroup of its own.
    NoWeight,
    /// Its group is beside none of the others': weights count among siblings alone.
    OtherParent {
        /// Where it is.
        parent: String,
    },
    /// A quota holds it below what a weight could give.
    Quota,
    /// None of the others may run where it runs.
    Alone,
    /// A real-time class comes before every weight.
    RealTime,
    /// Its vCPUs are pinned to part of a Xen pool, where credits are dealt out over the whole pool.
    Pinned,
}

impl std::fmt::Display for Dead {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Dead::NoWeight => f.write_str("it has no weight of its own: it is in no cgroup with the cpu controller"),
            Dead::OtherParent { parent } => {
                write!(f, "its cgroup lies in {parent}, where the others' do not: weights count among siblings alone")
            }
            Dead::Quota => f.write_str("a quota holds it: raise or take away the limit before weights can do anything"),
            Dead::Alone => f.write_str("none of the others may run on its pCPUs"),
            Dead::RealTime => f.write_str("it runs in a real-time class, before every weight"),
            Dead::Pinned => {
                f.write_str("it is pinned to part of a Xen pool, whose credits are dealt out over the whole pool: give it a pool of its own")
            }
        }
    }
}

/// Of VMs whose limits hold them: this part of their quota is as good as all.
const QUOTA_FULL: f64 = 0.95;

/// The VMs of these names whose weights do not work, with the reason.
///
/// # Errors
/// As [`find`].
pub fn dead(config: &HostConfig, model: &HostModel, names: &[&str]) -> Result<Vec<(usize, Dead)>, Fault> {
    let vms = names.iter().map(|name| find(config, name)).collect::<Result<Vec<_>, _>>()?;
    let parent = |vm: &VmConfig| {
        let own = vm.cgroup.as_deref()?.trim_end_matches('/');
        own.rsplit_once('/').map(|(parent, _)| if parent.is_empty() { "/" } else { parent }.to_owned())
    };
    // Among siblings: where most of them are.
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
