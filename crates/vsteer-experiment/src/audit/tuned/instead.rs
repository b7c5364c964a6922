//! What would another profile of tuned change on this machine?
//!
//! A profile may list alternatives, `a|b`, of which tuned sets the first that the machine supports. vsteer does not know which ones a
//! machine supports, so it reports a change only if none of the alternatives is in force.

use super::super::Tree;
use super::costs;
use super::profile::{in_force, is_so, names, settings};
use serde::Serialize;
use vsteer_core::{Fault, FaultKind};

/// A profile beside what is in force.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Instead {
    /// The profile's name.
    pub profile: String,
    /// The settings that this machine has.
    pub settings: Vec<Setting>,
    /// Settings that this machine does not have: tuned passes over them.
    pub passed_over: Vec<String>,
    /// Settings that are not compared: of other plugins, or with variables.
    pub not_compared: Vec<String>,
    /// What the profile is known to cost.
    pub notes: Vec<String>,
}

/// A setting of a profile.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Setting {
    /// `SECTION.KEY`, as in tuned.conf.
    pub key: String,
    /// The value in force; of several CPUs, each value with their number.
    pub now: String,
    /// The value of the profile.
    pub then: String,
    /// Would the profile change it?
    pub changes: bool,
}

/// What the profile of this name would change.
///
/// # Errors
/// `NothingThere` if tuned has no profile of this name. The help lists the known profiles.
pub fn instead(t: &Tree, profile: &str) -> Result<Instead, Fault> {
    let Some(wanted) = settings(t, profile) else {
        let known = names(t);
        let fault = Fault::new(FaultKind::NothingThere, format!("tuned has no profile {profile:?} here"));
        return Err(if known.is_empty() {
            fault.help("no profile of tuned was found: install tuned, or give --root the copy of a machine that has it")
        } else {
            fault.help(format!("profiles: {}", known.join(", ")))
        });
    };
    let mut told = Instead {
        profile: profile.to_owned(),
        settings: Vec::new(),
        passed_over: Vec::new(),
        not_compared: Vec::new(),
        notes: costs::idle_power(profile, &wanted).map(|f| f.reason).into_iter().collect(),
    };
    for ((section, key), value) in wanted.into_iter().filter(|((section, _), _)| section != "main") {
        let name = format!("{section}.{key}");
        match in_force(t, &section, &key).filter(|_| !value.contains("${")) {
            None => told.not_compared.push(format!("{name}={value}")),
            Some(found) if found.is_empty() => told.passed_over.push(format!("{name}={value}")),
            Some(found) => {
                let is_wanted = |now: &&str| value.split('|').any(|wanted| is_so(wanted, now));
                let changes = !found.iter().all(is_wanted);
                told.settings.push(Setting { key: name, now: several(&found), then: value, changes });
            }
        }
    }
    Ok(told)
}

fn several(values: &[&str]) -> String {
    match Tree::counted(values.iter().copied()).as_slice() {
        [(only, _)] => (*only).to_owned(),
        all => all.iter().map(|(value, n)| format!("{value} on {n} CPUs")).collect::<Vec<_>>().join(", "),
    }
}
