//! The properties of a VM or a host by path, as the API returns them, before any interpretation.

use std::collections::BTreeMap;

/// An object with its plain-text properties, and its structured properties read from XML.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Object {
    pub(super) kind: String,
    pub(super) id: String,
    /// By path; extra options by key.
    pub(super) texts: BTreeMap<String, String>,
    pub(super) host: Option<HostParts>,
    pub(super) affinity: Vec<u32>,
}

/// The structured properties of a host.
#[derive(Debug, Default, PartialEq)]
pub(super) struct HostParts {
    pub(super) packages: u32,
    pub(super) cores: u32,
    pub(super) threads: u32,
    pub(super) by_package: Vec<(u32, Vec<u32>)>,
    pub(super) by_node: Vec<(u32, Vec<u32>, Option<u64>)>,
}
