//! Where no weights hold all levels: which VM goes to which of the other hosts that the levels name? A plan for that, as a file.
//!
//! Every period each of them is asked what it has left ([`vsteer_host::kvm::elsewhere`]); [`vsteer_sla::fit`] says who fits where. Nothing is moved
//! by this: a plan is for a person to read, and for `vsteer apply`.

use crate::sla::OtherHost;
use std::path::PathBuf;
use vsteer_act::journal_folder;
use vsteer_core::forecast::Forecast;
use vsteer_core::nouns::HostConfig;
use vsteer_core::plan::{Alternative, Plan};
use vsteer_core::setting;
use vsteer_core::setting::{Change, Scope, Step};
use vsteer_core::{Fault, FaultKind};
use vsteer_host::kvm::elsewhere::{Elsewhere, Left};
use vsteer_sla::control::Candidate;
use vsteer_sla::facts::find;
use vsteer_sla::fit::{Fit, Guest, Room, choose};
use vsteer_sla::hold::{Outcome, Promise};

/// The hosts that a VM may be moved to.
pub struct Hosts {
    all: Vec<(Elsewhere, Option<Left>)>,
    /// The last plan that was made, and its file: it is made again only when it would be another.
    planned: Option<(String, Vec<Change>, PathBuf)>,
}

impl Hosts {
    /// Nothing is asked yet.
    pub fn new(hosts: &[OtherHost]) -> Hosts {
        let all = hosts.iter().map(|h| (Elsewhere::new(&h.connect, h.cpus.clone()), None)).collect();
        Hosts { all, planned: None }
    }

    /// Are there none?
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Asks each what it has left since the last look; one that does not answer is noted and left out.
    pub fn look(&mut self, notes: &mut Vec<String>) {
        for (host, left) in &mut self.all {
            *left = host.look().unwrap_or_else(|fault| {
                notes.push(format!("the host at {} is left out: {fault}", host.uri()));
                None
            });
        }
    }

    /// The file of a plan that moves the first of these candidates that fits somewhere.
    ///
    /// # Errors
    /// `Unsupported` where none fits, with the reasons; as writing the file.
    pub fn plan(
        &mut self,
        config: &HostConfig,
        promises: &[Promise],
        outcome: &Outcome,
        candidates: &[Candidate],
    ) -> Result<PathBuf, Fault> {
        let guest = |(promise, seen): (&Promise, &Option<_>)| Guest {
            name: promise.vm.clone(),
            seen: *seen,
            level: promise.level,
            memory_bytes: find(config, &promise.vm).ok().and_then(|vm| vm.memory_bytes),
        };
        let guests: Vec<Guest> = promises.iter().zip(&outcome.seen).map(guest).collect();
        let known: Vec<(&Elsewhere, Left)> = self.all.iter().filter_map(|(h, l)| Some((h, (*l)?))).collect();
        let room = |(host, left): &(&Elsewhere, Left)| Room {
            host: host.uri().to_owned(),
            idle_pcpus: left.idle_pcpus,
            free_bytes: left.free_bytes,
        };
        let rooms: Vec<Room> = known.iter().map(room).collect();
        let fit = choose(candidates, &guests, &rooms).map_err(|why| {
            Fault::new(FaultKind::Unsupported, "nobody fits on another host").because(if why.is_empty() {
                "none has answered yet".to_owned()
            } else {
                why.join("; ")
            })
        })?;
        let plan = made(config, &guests, &fit, known[fit.room], outcome)?;
        let changes: Vec<Change> = plan.steps.iter().map(|s| s.change.clone()).collect();
        if let Some((of, same, file)) = &self.planned
            && (of, same) == (&plan.fingerprint, &changes)
        {
            return Ok(file.clone());
        }
        let file = written(&plan)?;
        self.planned = Some((plan.fingerprint, changes, file.clone()));
        Ok(file)
    }
}

fn made(
    config: &HostConfig,
    guests: &[Guest],
    fit: &Fit,
    (host, left): (&Elsewhere, Left),
    outcome: &Outcome,
) -> Result<Plan, Fault> {
    let guest = &guests[fit.vm];
    let vm = find(config, &guest.name)?;
    let Some(from) = vm.manager.moves_from() else {
        return Err(Fault::new(FaultKind::Unsupported, format!("moving VM {:?}", vm.name))
            .because("only a VM of libvirt's is moved"));
    };
    let change = Change::Host(setting::Host {
        from: from.to_owned(),
        to: host.uri().to_owned(),
        cpus: host.cpus().cloned(),
    });
    let reason = format!(
        "{}. Without {} the worst of the others takes {:.2} of its level. There {:.2} pCPUs are idle: it would answer in {:.1} ms on average, 95 of \
         100 within {:.1} ms, {:.2} of its level",
        outcome.why,
        vm.name,
        fit.rest,
        left.idle_pcpus,
        1e3 * fit.response.mean_s,
        1e3 * fit.response.p95_s,
        fit.part
    );
    let step = Step { vm: vm.id.clone(), vm_name: vm.name.clone(), change, reason };
    let nothing = |method: &str| Forecast { method: method.to_owned(), vms: Vec::new() };
    let title = format!("move VM {:?} to {}", vm.name, host.uri());
    let method = "response times: of those that stay by the estimator that steers, of the one that goes by processor sharing of what is idle there";
    let mut plan = Plan::new(config.clone(), title, vec![step], Scope::Both, nothing(method));
    plan.alternatives.push(Alternative {
        title: "other weights".to_owned(),
        why_not: outcome.why.clone(),
        forecast: nothing(method),
    });
    Ok(plan)
}

fn written(plan: &Plan) -> Result<PathBuf, Fault> {
    let folder = journal_folder().with_file_name("plans");
    let file = folder.join(format!("{}.json", plan.id));
    let text = serde_json::to_vec_pretty(plan).expect("a plan is plain data");
    std::fs::create_dir_all(&folder)
        .and_then(|()| std::fs::write(&file, text))
        .map_err(|e| Fault::io(format!("writing {}", file.display()), &e))?;
    Ok(file)
}
