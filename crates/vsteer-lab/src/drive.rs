//! Runs vsteer for the lab through its command line, as a person would, with the lab's own journal folder.

use crate::{command, interrupt};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use vsteer_core::{Fault, FaultKind};

/// The vsteer program and its settings.
#[derive(Debug, Clone)]
pub struct Vsteer {
    /// `vsteer` itself.
    pub program: PathBuf,
    /// The folder for its journals, which is not the host's own.
    pub state: PathBuf,
    /// The lab's libvirt.
    pub uri: String,
}

impl Vsteer {
    /// Runs `vsteer` with `words`; returns its JSON.
    ///
    /// # Errors
    /// vsteer's own fault, with its output.
    pub fn json(&self, words: &[&str], limit: Duration) -> Result<Value, Fault> {
        let out = self.run(words, true, limit)?;
        serde_json::from_str(&out).map_err(|e| {
            Fault::new(FaultKind::BadInput, format!("the answer of `vsteer {}`", words.join(" "))).because(e)
        })
    }

    /// Runs `vsteer` with `words`; returns what it printed.
    ///
    /// # Errors
    /// vsteer's own fault, with its output.
    pub fn run(&self, words: &[&str], json: bool, limit: Duration) -> Result<String, Fault> {
        let mut c = self.command(words);
        if json {
            c.arg("--json");
        }
        let done = command::run(&mut c, limit)?;
        match done.status {
            Some(s) if s.success() => Ok(done.stdout),
            _ => Err(Fault::new(FaultKind::Failed, format!("vsteer {}", words.join(" ")))
                .because(done.stderr.trim())),
        }
    }

    /// The command line itself, for runs that should fail.
    pub fn command(&self, words: &[&str]) -> Command {
        let mut c = Command::new(&self.program);
        c.args(words).env("VSTEER_STATE", &self.state).env("VSTEER_CONFIG", "none");
        c
    }

    /// The program beside the lab's own, without settings.
    ///
    /// # Errors
    /// `NothingThere` if it was not built.
    pub fn beside(lab: &Path) -> Result<Vsteer, Fault> {
        let path = lab.parent().map(|d| d.join("vsteer")).filter(|p| p.is_file());
        let program = path.ok_or_else(|| {
            Fault::new(FaultKind::NothingThere, "no vsteer beside vsteer-lab").help("build it: cargo build")
        })?;
        Ok(Vsteer { program, state: PathBuf::new(), uri: String::new() })
    }

    /// The VMs' settings as `vsteer plan` records them, which a rollback must restore. Short-lived threads
    /// are left out.
    ///
    /// # Errors
    /// As [`Vsteer::json`].
    pub fn settings(&self) -> Result<Value, Fault> {
        let plan = self.json(&["plan", "--for", "1s", "--connect", &self.uri], Duration::from_secs(60))?;
        let mut vms = plan["parent"]["vms"].clone();
        // Two empty answers would be equal, so a rollback would seem to have restored everything.
        if vms.as_array().is_none_or(Vec::is_empty) {
            return Err(Fault::new(FaultKind::NothingThere, "the settings of the lab's VMs"));
        }
        for vm in vms.as_array_mut().into_iter().flatten() {
            if let Some(threads) = vm["threads"].as_array_mut() {
                threads.retain(|t| t["role"] != "worker");
            }
        }
        Ok(vms)
    }
}

/// Prints what it waits for, and sleeps; can be interrupted.
///
/// # Errors
/// `Interrupted`.
pub fn wait(what: &str, length: Duration) -> Result<(), Fault> {
    eprintln!("vsteer-lab: {what}, {:.0} s", length.as_secs_f64());
    let begun = Instant::now();
    while begun.elapsed() < length {
        interrupt::check()?;
        std::thread::sleep(Duration::from_millis(100));
    }
    Ok(())
}
/// The findings of `vsteer diagnose --json`: causes in its order, each followed by what it explains.
pub fn findings(diagnosed: &Value) -> Vec<&Value> {
    below(&diagnosed["findings"])
}

fn below(list: &Value) -> Vec<&Value> {
    let all = list.as_array().into_iter().flatten();
    all.flat_map(|f| std::iter::once(f).chain(below(&f["symptoms"]))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_a_cause_explains_is_a_finding_too() {
        let of = |rule: &str, symptoms: Value| json!({ "rule": rule, "symptoms": symptoms });
        let deep = of("b", json!([of("c", json!([]))]));
        let told = json!({ "findings": [of("a", json!([deep])), { "rule": "d" }] });
        assert_eq!(findings(&told).iter().map(|f| &f["rule"]).collect::<Vec<_>>(), ["a", "b", "c", "d"]);
        assert!(findings(&json!({})).is_empty());
    }
}
