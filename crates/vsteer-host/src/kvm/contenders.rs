//! Which programs run here that change by themselves what a plan changes ([`vsteer_core::nouns::contenders`])?
//!
//! A process can write anything on its own command line. So a program counts only if it runs as root or, for those that have a
//! user of their own, as a user that cannot be a person's. Python programs are known by their script.
//!
//! Sources: `man 3 sd_booted` (`/run/systemd/system`); Kubernetes' `pkg/kubelet/cm/cpumanager/state/checkpoint.go`:
//! `cpu_manager_state`. **Untried** with the real programs.
//!
//! Left out: programs in containers that map root to another user; MicroK8s, whose state lies elsewhere.

use crate::linux::task::may_be_a_persons;
use crate::root::Root;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use vsteer_core::nouns::Contender;
use vsteer_core::nouns::contenders::CONTENDERS;

/// A folder that systemd makes when it starts a machine.
pub const SYSTEMD: &str = "/run/systemd/system";
/// Where kubelet keeps the policy of its CPU manager.
pub const CPU_MANAGER: &str = "/var/lib/kubelet/cpu_manager_state";
/// The largest state of a CPU manager that is read: it has a line per container.
const STATE_MOST: u64 = 1 << 20;

/// The program that a process runs: the name of its file or, under Python, of its script.
pub fn program(arguments: &[String]) -> Option<&str> {
    let first = file_name(arguments.first()?);
    if first.starts_with("python") {
        return arguments.iter().skip(1).find(|a| !a.starts_with('-')).map(|script| file_name(script));
    }
    Some(first)
}

fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// The contender that a process with these arguments is; `user` tells its user.
pub fn of_process(arguments: &[String], user: impl FnOnce() -> Option<u32>) -> Option<Contender> {
    let program = program(arguments)?;
    let row = CONTENDERS.iter().find(|row| row.programs.contains(&program))?;
    // `numad -w` asks for advice and ends.
    if row.contender == Contender::Numad && arguments.iter().any(|a| a.starts_with("-w")) {
        return None;
    }
    let user = user()?;
    let is_trusted = if row.as_root { user == 0 } else { !may_be_a_persons(user) };
    is_trusted.then_some(row.contender)
}

/// All contenders of the machine, of which these run as processes.
pub fn all(root: &Root, processes: &BTreeMap<u32, Contender>) -> Vec<Contender> {
    let mut all: BTreeSet<Contender> = processes.values().copied().collect();
    if all.contains(&Contender::StaticCpuManager) && !is_static(root) {
        all.remove(&Contender::StaticCpuManager);
    }
    if root.has_folder(SYSTEMD) {
        all.insert(Contender::Systemd);
    }
    all.into_iter().collect()
}

/// Does kubelet's CPU manager have the policy that gives pods pCPUs of their own?
fn is_static(root: &Root) -> bool {
    let bytes = root.bytes_at_most(CPU_MANAGER, STATE_MOST).unwrap_or_default();
    policy(&bytes).is_some_and(|policy| policy == "static")
}

/// The policy in a state of kubelet's CPU manager.
pub fn policy(state: &[u8]) -> Option<String> {
    let state: Value = serde_json::from_slice(state).ok()?;
    Some(state.get("policyName")?.as_str()?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(line: &str, user: Option<u32>) -> Option<Contender> {
        let arguments: Vec<String> = line.split(' ').map(str::to_owned).collect();
        of_process(&arguments, || user)
    }

    #[test]
    fn programs_are_known_by_their_file_or_script() {
        let root = Some(0);
        assert_eq!(found("/usr/bin/numad -i 15", root), Some(Contender::Numad));
        assert_eq!(found("numad -w 4:2000", root), None, "it asks for advice");
        assert_eq!(found("/usr/bin/python3 -Es /usr/sbin/tuned -l -P", root), Some(Contender::Tuned));
        assert_eq!(found("/usr/bin/python3 /usr/bin/nova-compute", Some(162)), Some(Contender::NovaCompute));
        assert_eq!(found("/usr/bin/python3 /usr/share/vdsm/vdsmd", Some(36)), Some(Contender::Vdsm));
        assert_eq!(found("/usr/bin/kubelet --config=/k", root), Some(Contender::StaticCpuManager));
        for line in ["/usr/bin/vim numad", "python3", "python3 -c numad.x", "", "/opt/numad/agent"] {
            assert_eq!(found(line, root), None, "{line:?}");
        }
    }

    #[test]
    fn a_persons_process_of_that_name_does_not_count() {
        assert_eq!(found("numad", Some(1000)), None);
        assert_eq!(found("numad", Some(36)), None, "numad runs as root");
        assert_eq!(found("numad", None), None, "whose it is is not known");
        assert_eq!(found("nova-compute", Some(1000)), None);
        assert_eq!(found("nova-compute", Some(0)), Some(Contender::NovaCompute));
    }

    #[test]
    fn states_of_the_cpu_manager() {
        let state = br#"{"policyName":"static","defaultCpuSet":"0-1","entries":{},"checksum":14}"#;
        assert_eq!(policy(state).as_deref(), Some("static"));
        for other in [&b""[..], b"[]", b"{\"policyName\":1}", b"\xff", b"{\"policyName\":\"static\""] {
            assert_eq!(policy(other), None);
        }
    }
}
