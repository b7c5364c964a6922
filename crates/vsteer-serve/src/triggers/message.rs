//! What does a receiver read? One JSON object, the same for commands and webhooks. docs/serve.md describes it.
//!
//! The rule of compatibility is that of `/api/v1`: within a version fields are added, and none is removed or changes its
//! meaning or unit.

use ring::rand::{SecureRandom, SystemRandom};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;
use vsteer_core::diagnose::Finding;
use vsteer_core::nouns::VmId;

/// The name of the form, with its version.
const SCHEMA: &str = "vsteer.trigger/1";

/// A finding of a list that is shared: a hundred messages of one moment hold it once.
#[derive(Debug, Clone)]
pub struct Found {
    /// All that was found then.
    pub all: Arc<Vec<Finding>>,
    /// The place of this one.
    pub at: usize,
    /// What VMs were called.
    pub names: Arc<BTreeMap<VmId, String>>,
}

impl Found {
    /// The finding.
    pub fn finding(&self) -> &Finding {
        &self.all[self.at]
    }

    /// The VMs that it concerns, with their names.
    pub fn vms(&self) -> BTreeMap<&VmId, &str> {
        let ids: BTreeSet<&VmId> = self.finding().all().flat_map(|f| f.vm.iter().chain(&f.vms)).collect();
        ids.into_iter().map(|id| (id, self.names.get(id).map_or(&*id.0, String::as_str))).collect()
    }
}

/// What happened to a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// It has lasted as long as the trigger demands.
    Began,
    /// It was absent for a while.
    Ended,
    /// Nothing: somebody tries the trigger.
    Test,
}

/// What a trigger tells.
#[derive(Debug, Clone)]
pub struct Message {
    /// What happened.
    pub event: Event,
    /// On this host.
    pub host: String,
    /// To what. Of an end: as it was found last.
    pub found: Found,
    /// When it was found first, ns since 1970.
    pub began_unix_ns: u64,
    /// When it was found last, ns since 1970.
    pub last_unix_ns: u64,
    /// When this was noticed, ns since 1970.
    pub unix_ns: u64,
    /// When this was noticed.
    pub noticed: Instant,
}

/// A name that no other message has. Every try of a message has the same.
pub fn new_id() -> String {
    let mut bytes = [0; 16];
    SystemRandom::new().fill(&mut bytes).expect("Linux gives random bytes");
    bytes.iter().fold("msg_".to_owned(), |id, byte| format!("{id}{byte:02x}"))
}

impl Message {
    /// The text that is sent. `dropped`: messages of this trigger that were dropped so far.
    pub fn body(&self, id: &str, trigger: &str, dropped: u64) -> Vec<u8> {
        let finding = self.found.finding();
        let vms = self.found.vms().into_iter().map(|(id, name)| json!({ "id": id, "name": name }));
        let of = finding.vm.as_ref().map_or("", |vm| &*vm.0);
        let (event, ended) = match self.event {
            Event::Began => ("began", None),
            Event::Test => ("test", None),
            Event::Ended => ("ended", Some(self.last_unix_ns)),
        };
        let body = json!({
            "schema": SCHEMA,
            "id": id,
            "trigger": trigger,
            "event": event,
            "host": self.host,
            "unix_ns": self.unix_ns,
            // The same from the begin of a finding to its end.
            "key": format!("{}/{}/{of}/{}", self.host, finding.rule, self.began_unix_ns),
            "began_unix_ns": self.began_unix_ns,
            "ended_unix_ns": ended,
            "dropped": dropped,
            "vms": vms.collect::<Vec<_>>(),
            "finding": finding,
        });
        body.to_string().into_bytes()
    }
}
