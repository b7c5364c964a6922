//! Which settings does a VM have only on vSphere?
//!
//! Source: VMware, vSphere Resource Management, "Using NUMA Systems with ESXi" (7.0): home nodes,
//! `numa.nodeAffinity`, CPU hot add; vSphere Web Services API reference: VirtualMachineConfigInfo (7.0): shares,
//! reservation, limit, CPU affinity, latency sensitivity. Left out: resource pools, and what only vCenter holds
//! (DRS rules).

use crate::CpuSet;
use serde::{Deserialize, Serialize};
use std::fmt;

/// How much of a pCPU's time ESXi keeps free of its own work for a VM, in the API's words
/// (LatencySensitivitySensitivityLevel).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LatencySensitivity {
    /// Less than others; the client no longer offers it.
    Low,
    /// As every VM, unless said otherwise.
    Normal,
    /// More; the client no longer offers it.
    Medium,
    /// Its vCPUs have pCPUs of their own once their time is reserved, and all its memory must be reserved.
    High,
}

impl LatencySensitivity {
    /// All, with the API's words.
    pub const ALL: [(LatencySensitivity, &'static str); 4] = [
        (LatencySensitivity::Low, "low"),
        (LatencySensitivity::Normal, "normal"),
        (LatencySensitivity::Medium, "medium"),
        (LatencySensitivity::High, "high"),
    ];

    /// Of the API's word; `None` for another one (`custom`, which vSphere gave up).
    pub fn of(word: &str) -> Option<LatencySensitivity> {
        LatencySensitivity::ALL.iter().find(|(_, w)| *w == word).map(|(level, _)| *level)
    }
}

impl fmt::Display for LatencySensitivity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = LatencySensitivity::ALL.iter().find(|(level, _)| level == self).map_or("", |(_, w)| w);
        f.write_str(word)
    }
}

/// A VM's settings on ESXi. What was not read is `None`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct VsphereVm {
    /// How many vCPUs it has, said by its settings: a file of group values alone shows none of them.
    pub vcpus: Option<u32>,
    /// Its home nodes: where ESXi keeps its vCPUs and takes its memory until it decides otherwise (esxtop's NHN). Not a
    /// setting, and so no precondition of a plan.
    pub home_nodes: Option<CpuSet>,
    /// `numa.nodeAffinity`: the nodes that it is kept on; `None`: none said.
    pub node_affinity: Option<CpuSet>,
    /// The pCPUs that all its vCPUs are kept on (`sched.cpu.affinity`); `None`: none said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_affinity: Option<CpuSet>,
    /// May vCPUs be added while it runs? That switches vNUMA off.
    pub cpu_hot_add: Option<bool>,
    /// CPU time kept for it, MHz; 0: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reservation_mhz: Option<u64>,
    /// CPU time it gets at most, MHz; the inner `None`: no limit.
    #[serde(skip_serializing_if = "Option::is_none", with = "said")]
    pub limit_mhz: Option<Option<u64>>,
    /// Its latency sensitivity; `None` also where it is one that vSphere gave up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency: Option<LatencySensitivity>,
    /// Is all its memory reserved, as a high latency sensitivity wants it?
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_reserved: Option<bool>,
    /// Is it on? Not a setting: some settings want it off, and a plan made while it was on holds then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub powered_on: Option<bool>,
}

impl VsphereVm {
    /// Only the settings, which are the preconditions of a plan.
    #[must_use]
    pub fn settings(&self) -> VsphereVm {
        VsphereVm { home_nodes: None, powered_on: None, ..self.clone() }
    }
}

/// Serialises a setting that can be unset or unknown: a missing field is unknown, `null` is unset.
mod said {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(value: &Option<Option<u64>>, to: S) -> Result<S::Ok, S::Error> {
        value.flatten().serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Option<u64>>, D::Error> {
        Option::deserialize(from).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_limit_is_not_an_unknown_limit() {
        for limit_mhz in [None, Some(None), Some(Some(2_400))] {
            let vm = VsphereVm { limit_mhz, ..VsphereVm::default() };
            let text = serde_json::to_string(&vm).unwrap();
            assert_eq!(serde_json::from_str::<VsphereVm>(&text).unwrap(), vm, "{text}");
        }
    }

    #[test]
    fn levels_have_the_apis_words() {
        assert!(
            LatencySensitivity::ALL
                .iter()
                .all(|(l, w)| LatencySensitivity::of(w) == Some(*l) && l.to_string() == *w)
        );
        assert_eq!(LatencySensitivity::of("custom"), None);
    }
}
