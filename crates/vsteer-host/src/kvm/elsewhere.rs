//! Measures how much CPU is free on another host. That host's libvirt reports how long each pCPU was idle, so
//! the host needs no vsteer.
//!
//! Two samples give the idle share of the time between them; waiting for a disk counts as idle. The numbers
//! come from the host's kernel (`/proc/stat`) and cover all work on the host, not only its VMs.
//!
//! Left out: how another VM affects the service levels of that host's VMs.

use super::client::Client;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use vsteer_core::CpuSet;
use vsteer_core::{Fault, FaultKind};

/// Another host.
pub struct Elsewhere {
    client: Client,
    cpus: Option<CpuSet>,
    /// Idle and total time of each pCPU at the last look, ns.
    last: BTreeMap<u32, (u64, u64)>,
}

/// The free resources of that host.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Left {
    /// pCPUs that were idle since the last look, on average.
    pub idle_pcpus: f64,
    /// Free memory, bytes; `None` if the host does not report it.
    pub free_bytes: Option<u64>,
}

impl Elsewhere {
    /// The host whose libvirt is at `uri`; counts only the pCPUs in `cpus`, if given.
    pub fn new(uri: &str, cpus: Option<CpuSet>) -> Elsewhere {
        Elsewhere { client: Client::new(uri, false), cpus, last: BTreeMap::new() }
    }

    /// Its connection URI.
    pub fn uri(&self) -> &str {
        self.client.uri()
    }

    /// The pCPUs that VMs may use there; `None` means all.
    pub fn cpus(&self) -> Option<&CpuSet> {
        self.cpus.as_ref()
    }

    /// The resources that were free since the last look; `None` at the first look.
    ///
    /// # Errors
    /// If its libvirt is unreachable; `NothingThere` if the host has none of the pCPUs.
    pub fn look(&mut self) -> Result<Option<Left>, Fault> {
        let answer = self.client.ask(json!({ "op": "node" }))?;
        let of = |v: &Value| -> Option<(u32, (u64, u64))> {
            Some((u32::try_from(v[0].as_u64()?).ok()?, (v[1].as_u64()?, v[2].as_u64()?)))
        };
        let all = answer["cpus"].as_array().into_iter().flatten().filter_map(of);
        let now: BTreeMap<u32, (u64, u64)> =
            all.filter(|(cpu, _)| self.cpus.as_ref().is_none_or(|c| c.contains(*cpu))).collect();
        if now.is_empty() {
            let which = self.cpus.as_ref().map_or("pCPU".to_owned(), |c| format!("pCPU {c}"));
            return Err(Fault::new(
                FaultKind::NothingThere,
                format!("cannot read CPU times of the host at {}", self.uri()),
            )
            .because(format!("the host reports no {which}"))
            .help("name pCPUs that are online on that host, or leave out `cpus`"));
        }
        let last = std::mem::replace(&mut self.last, now);
        Ok(idle(&last, &self.last)
            .map(|idle_pcpus| Left { idle_pcpus, free_bytes: answer["free_bytes"].as_u64() }))
    }
}

/// How many pCPUs were idle between two looks; `None` if no time passed on any pCPU.
fn idle(last: &BTreeMap<u32, (u64, u64)>, now: &BTreeMap<u32, (u64, u64)>) -> Option<f64> {
    let part = |(cpu, (idle, all)): (&u32, &(u64, u64))| {
        let (idle_then, all_then) = last.get(cpu)?;
        let passed = all.checked_sub(*all_then).filter(|ns| *ns > 0)?;
        Some((idle.saturating_sub(*idle_then) as f64 / passed as f64).min(1.0))
    };
    let parts: Vec<f64> = now.iter().filter_map(part).collect();
    (!parts.is_empty()).then(|| parts.iter().sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_is_what_nobody_used_between_two_looks() {
        let at = |a: (u64, u64), b: (u64, u64)| BTreeMap::from([(0, a), (1, b)]);
        let (then, now) = (at((100, 1000), (500, 1000)), at((200, 1400), (900, 1400)));
        assert_eq!(idle(&then, &now), Some(0.25 + 1.0));
        assert_eq!(idle(&BTreeMap::new(), &now), None);
        // A host that restarted, and a host whose clock stopped.
        assert_eq!(idle(&now, &then), None);
        assert_eq!(idle(&now, &now), None);
        // A pCPU that appeared in between has no first look.
        assert_eq!(idle(&BTreeMap::from([(1, (500, 1000))]), &now), Some(1.0));
    }
}
