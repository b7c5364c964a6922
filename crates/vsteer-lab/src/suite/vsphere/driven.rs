//! A simulated vSphere with a few VMs, and `vsteer` commands against it.
//!
//! govc, not vsteer, reports the settings in force, because a setting that vsteer read wrongly and restored
//! wrongly would look right.

use super::LIMIT;
use crate::command::{self, Finished};
use crate::drive::Vsteer;
use crate::suite::Bench;
use crate::vsphere::simulator::{Program, Serving, USER};
use serde_json::Value;
use std::collections::BTreeMap;
use std::process::Command;
use vsteer_core::{Fault, FaultKind};

/// The settings of a VM that a plan may change, with the API's names.
const SETTINGS: &[&str] = &[
    "name",
    "config.hardware.numCoresPerSocket",
    "config.cpuAllocation",
    "config.cpuAffinity",
    "config.latencySensitivity",
    "config.extraConfig",
];

/// A running simulator with a vsteer for it.
pub(super) struct Driven {
    pub(super) serving: Serving,
    vsteer: Vsteer,
    password: String,
}

impl Driven {
    /// This many hosts with this many VMs each.
    pub(super) fn new(
        bench: &Bench,
        program: &Program,
        password: &str,
        hosts: u32,
        vms: u32,
    ) -> Result<Driven, Fault> {
        // Separate journals, so that none is pending.
        let state = bench.fresh("vsphere-state")?;
        let vsteer = Vsteer { state: state.into(), ..Vsteer::beside(&bench.lab.program)? };
        Ok(Driven { serving: program.serve(hosts, vms)?, vsteer, password: password.to_owned() })
    }

    /// The URI of the first host for this user, with the certificate to trust and the place of the password.
    pub(super) fn uri_of(&self, user: &str, address: &str) -> String {
        format!(
            "vsphere://{user}@{address}/DC0_H0?thumbprint={}&password-file={}",
            self.serving.thumbprint, self.password
        )
    }

    pub(super) fn uri(&self) -> String {
        self.uri_of(USER, &self.serving.address)
    }

    /// `vsteer` with these words.
    pub(super) fn command(&self, words: &[&str]) -> Command {
        self.vsteer.command(words)
    }

    /// Runs it, and accepts any result.
    pub(super) fn run(&self, words: &[&str]) -> Result<Finished, Fault> {
        command::run(&mut self.command(words), LIMIT)
    }

    /// Runs it, and returns its JSON.
    pub(super) fn json(&self, words: &[&str]) -> Result<Value, Fault> {
        self.vsteer.json(words, LIMIT)
    }

    /// The settings in force according to govc: each VM's settings by its object's id.
    pub(super) fn truth(&self) -> Result<BTreeMap<String, Value>, Fault> {
        let text = self.serving.govc_collects("VirtualMachine", SETTINGS)?;
        let mut all = BTreeMap::new();
        for object in serde_json::Deserializer::from_str(&text).into_iter::<Value>() {
            let object =
                object.map_err(|e| Fault::new(FaultKind::BadInput, "what govc collects").because(e))?;
            let mut settings = serde_json::Map::new();
            for change in object["changeSet"].as_array().into_iter().flatten() {
                let (Some(name), val) = (change["name"].as_str(), change["val"].clone()) else { continue };
                // No set and an empty set mean the same.
                let empty =
                    name == "config.cpuAffinity" && val["affinitySet"].as_array().is_none_or(Vec::is_empty);
                if !val.is_null() && !empty {
                    settings.insert(name.to_owned(), val);
                }
            }
            let id = object["obj"]["value"].as_str().or(object["obj"]["Value"].as_str()).unwrap_or_default();
            all.insert(id.to_owned(), Value::Object(settings));
        }
        Ok(all)
    }
}

/// Its exit code.
pub(super) fn code(finished: &Finished) -> Option<i32> {
    finished.status.and_then(|s| s.code())
}
