//! To which host can a VM move, if no weights keep all service levels? Writes a plan for that.
//!
//! In every period vsteer asks each listed host how much CPU is free ([`vsteer_host::kvm::elsewhere`]).
//! [`vsteer_sla::moving`] decides which VM goes where. vsteer moves nothing by itself: the plan is for a person and for
//! `vsteer apply`.

use super::file::OtherHost;
use crate::journal::journal_folder;
use std::path::PathBuf;
use vsteer_core::Fault;
use vsteer_core::nouns::HostConfig;
use vsteer_core::plan::Plan;
use vsteer_core::setting::Change;
use vsteer_host::kvm::elsewhere::{Elsewhere, Left};
use vsteer_sla::control::Candidate;
use vsteer_sla::fit::Room;
use vsteer_sla::hold::{Outcome, Promise};
use vsteer_sla::moving::{There, plan};

/// The hosts to which a VM may move.
pub(super) struct Hosts {
    all: Vec<(Elsewhere, Option<Left>)>,
    /// The last plan and its file: vsteer writes a new one only if the plan changes.
    planned: Option<(String, Vec<Change>, PathBuf)>,
}

impl Hosts {
    /// Connects to no host yet.
    pub fn new(hosts: &[OtherHost]) -> Hosts {
        let all = hosts.iter().map(|h| (Elsewhere::new(&h.connect, h.cpus.clone()), None)).collect();
        Hosts { all, planned: None }
    }

    /// Are there no hosts?
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Asks each host how much CPU was free since the last call. Notes and leaves out a host that does not answer.
    pub fn look(&mut self, notes: &mut Vec<String>) {
        for (host, left) in &mut self.all {
            *left = host.look().unwrap_or_else(|fault| {
                notes.push(format!("left out the host at {}: {fault}", host.uri()));
                None
            });
        }
    }

    /// The file with a plan that moves the first of these candidates for which a host has room.
    ///
    /// # Errors
    /// As [`plan`]; if the file cannot be written.
    pub fn plan(
        &mut self,
        config: &HostConfig,
        promises: &[Promise],
        outcome: &Outcome,
        candidates: &[Candidate],
    ) -> Result<PathBuf, Fault> {
        let there = |(host, left): &(Elsewhere, Option<Left>)| {
            let Left { idle_pcpus, free_bytes } = (*left)?;
            let room = Room { host: host.uri().to_owned(), idle_pcpus, free_bytes };
            Some(There { room, cpus: host.cpus().cloned() })
        };
        let hosts: Vec<There> = self.all.iter().filter_map(there).collect();
        let plan = plan(config, promises, outcome, candidates, &hosts)?;
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

fn written(plan: &Plan) -> Result<PathBuf, Fault> {
    let folder = journal_folder().with_file_name("plans");
    let file = folder.join(format!("{}.json", plan.id));
    let text = serde_json::to_vec_pretty(plan).expect("a plan is plain data");
    vsteer_record::trusted::make_private_folder(&folder)?;
    vsteer_record::files::replace(&file, &text)?;
    Ok(file)
}
