//! Makes the plan that moves a VM to another host, if no weights hold all levels.
//!
//! [`super::fit`] chooses the VM and the host. The plan gives the reasons, so that a person can judge it. No VM
//! moves before a person applies the plan.
//!
//! Left out: reading the free capacity of other hosts, and writing the plan.

use super::control::Candidate;
use super::facts::find;
use super::fit::{Fit, Guest, Room, choose};
use super::hold::{Outcome, Promise};
use vsteer_core::CpuSet;
use vsteer_core::forecast::Forecast;
use vsteer_core::nouns::HostConfig;
use vsteer_core::plan::{Alternative, Plan};
use vsteer_core::setting;
use vsteer_core::setting::{Change, Scope, Step};
use vsteer_core::{Fault, FaultKind};

/// Method of the plan's forecasts.
const METHOD: &str = "response times: VMs that stay by the estimator of `vsteer steer`, the moved VM by \
    processor sharing of the other host's idle pCPUs";

/// A host that a VM may be moved to.
#[derive(Debug, Clone, PartialEq)]
pub struct There {
    /// Free capacity; the name is the connection URI.
    pub room: Room,
    /// pCPUs that VMs may use on that host; `None`: all.
    pub cpus: Option<CpuSet>,
}

/// The plan that moves the first candidate that fits on any host.
///
/// # Errors
/// `Unsupported`, with reasons, if no candidate fits or if the VM's manager cannot move it.
pub fn plan(
    config: &HostConfig,
    promises: &[Promise],
    outcome: &Outcome,
    candidates: &[Candidate],
    hosts: &[There],
) -> Result<Plan, Fault> {
    let guest = |(promise, seen): (&Promise, &Option<_>)| Guest {
        name: promise.vm.clone(),
        seen: *seen,
        level: promise.level,
        memory_bytes: find(config, &promise.vm).ok().and_then(|vm| vm.memory_bytes),
    };
    let guests: Vec<Guest> = promises.iter().zip(&outcome.seen).map(guest).collect();
    let rooms: Vec<Room> = hosts.iter().map(|h| h.room.clone()).collect();
    let fit = choose(candidates, &guests, &rooms).map_err(|why| {
        let why = if why.is_empty() { "no other host has answered yet".to_owned() } else { why.join("; ") };
        Fault::new(FaultKind::Unsupported, "no other host has room for any of these VMs").because(why)
    })?;
    of(config, &guests[fit.vm].name, &hosts[fit.room], &fit, outcome)
}

fn of(config: &HostConfig, name: &str, there: &There, fit: &Fit, outcome: &Outcome) -> Result<Plan, Fault> {
    let vm = find(config, name)?;
    let Some(from) = vm.manager.moves_from() else {
        return Err(Fault::new(FaultKind::Unsupported, format!("cannot move VM {:?}", vm.name))
            .because("vsteer only moves VMs of libvirt"));
    };
    let uri = &there.room.host;
    let change =
        Change::Host(setting::Host { from: from.to_owned(), to: uri.clone(), cpus: there.cpus.clone() });
    let reason = format!(
        "{}. Without {} the worst other VM takes {:.2} times its level. The new host has {:.2} idle pCPUs. \
            There the VM would answer in {:.1} ms on average and 95 % within {:.1} ms, {:.2} times its level",
        outcome.why,
        vm.name,
        fit.rest,
        there.room.idle_pcpus,
        1e3 * fit.response.mean_s,
        1e3 * fit.response.p95_s,
        fit.part
    );
    let step = Step { vm: vm.id.clone(), vm_name: vm.name.clone(), change, reason };
    let nothing = || Forecast { method: METHOD.to_owned(), vms: Vec::new() };
    let title = format!("move VM {:?} to {uri}", vm.name);
    let mut plan = Plan::new(config.clone(), title, vec![step], Scope::Both, nothing());
    plan.alternatives.push(Alternative {
        title: "other weights".to_owned(),
        why_not: outcome.why.clone(),
        forecast: nothing(),
    });
    Ok(plan)
}

#[cfg(test)]
mod tests {
    use super::super::control::{Decision, Level};
    use super::super::window::{Response, Seen};
    use super::*;
    use vsteer_core::nouns::{Manager, VmConfig, VmId};
    use vsteer_core::topology::machine;

    fn host(manager: Manager) -> HostConfig {
        let vm = VmConfig {
            manager,
            memory_bytes: Some(512 << 20),
            ..VmConfig::new(VmId("web".into()), "web", 1)
        };
        HostConfig { vms: vec![vm], ..HostConfig::new("h", "6.12", machine(1, 1, 2, 1).unwrap()) }
    }

    fn planned(manager: Manager, hosts: &[There]) -> Result<Plan, Fault> {
        let seen = Seen {
            rate_hz: 45.0,
            gap_cv2: 1.0,
            service_s: 0.0066,
            beside: 0.0,
            service_cv2: 0.0,
            response: Response { mean_s: 0.05, p95_s: 0.2 },
            weight: 1.0,
            vcpus: 1,
        };
        let level = Level { mean_s: Some(0.012), p95_s: None, rate_hz: None };
        let promises = [Promise { vm: "web".into(), level }];
        let candidates = vec![Candidate { vm: 0, rest: Some(0.8) }];
        let outcome = Outcome {
            seen: vec![Some(seen)],
            violations: vec![None],
            pooled: 1,
            shifted: false,
            decision: Decision::Move { worst: Some(1.3), candidates: candidates.clone() },
            why: "no weights hold all levels".into(),
        };
        plan(&host(manager), &promises, &outcome, &candidates, hosts)
    }

    fn there(idle_pcpus: f64) -> There {
        let room = Room { host: "qemu+ssh://b/system".into(), idle_pcpus, free_bytes: Some(1 << 30) };
        There { room, cpus: Some(CpuSet::first(2)) }
    }

    #[test]
    fn the_plan_says_what_it_rests_on() {
        let from = "qemu:///system";
        let plan = planned(Manager::Libvirt(from.into()), &[there(0.1), there(1.0)]).unwrap();
        assert_eq!(plan.title, "move VM \"web\" to qemu+ssh://b/system");
        let [step] = &plan.steps[..] else { panic!("{plan:?}") };
        let to = setting::Host { from: from.into(), to: "qemu+ssh://b/system".into(), cpus: there(1.0).cpus };
        assert_eq!(step.change, Change::Host(to));
        assert!(
            step.reason.contains("takes 0.80 times its level. The new host has 1.00 idle pCPUs"),
            "{}",
            step.reason
        );
        assert_eq!(plan.alternatives[0].why_not, "no weights hold all levels");
    }

    #[test]
    fn why_there_is_no_plan_is_told() {
        let libvirt = || Manager::Libvirt("qemu:///system".into());
        let cause = |f: Fault| f.cause.unwrap_or_default();
        assert_eq!(cause(planned(libvirt(), &[]).unwrap_err()), "no other host has answered yet");
        assert!(cause(planned(libvirt(), &[there(0.2)]).unwrap_err()).contains("needs 0.30"));
        assert!(cause(planned(Manager::Xen, &[there(1.0)]).unwrap_err()).contains("libvirt"));
    }
}
