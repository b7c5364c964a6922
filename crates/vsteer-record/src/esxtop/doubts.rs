//! What does vsteer say about a header that leaves doubts, or names no VM?

use super::header::Column;
use std::collections::BTreeMap;
use vsteer_core::{Fault, FaultKind};

/// The most names in a note.
const NAMED: usize = 12;

/// The fault for a header without VMs; `groups` are those that it names.
pub(super) fn holds_no_vm(file: &str, columns: &[Option<Column<'_>>], groups: &BTreeMap<u64, &str>) -> Fault {
    let fault = Fault::new(FaultKind::NothingThere, format!("{file} holds no VM"));
    let objects = ["Group Cpu", "Vcpu", "Physical Cpu", "Group Memory", "Memory", "Physical Cpu Load"];
    let is_esxtops = |c: &Column<'_>| objects.contains(&c.object);
    let Some(first) = columns.iter().flatten().next() else {
        return fault
            .because("no column has the path of a counter, which begins with two backslashes")
            .help("give the file as esxtop wrote it: esxtop -b -a > FILE");
    };
    if !columns.iter().flatten().any(is_esxtops) {
        return fault
            .because(format!(
                "its counters are not those of esxtop: the first is {:?} of {:?}",
                first.counter, first.object
            ))
            .help("give a batch file of esxtop. For the display counters of Windows: vsteer display advise --logs FILE");
    }
    if groups.is_empty() {
        return fault
            .because("no column belongs to a group with vCPUs")
            .help("let esxtop write all fields: esxtop -b -a");
    }
    let own = list(groups.values().copied());
    fault
        .because(format!("no column belongs to a group with vCPUs, and these groups are ESXi's own: {own}"))
        .help("let esxtop write all fields: esxtop -b -a. If a group is a VM, name the VM in host.toml")
}

/// The note on a file without worlds; `others` are the groups that vsteer drops.
pub(super) fn groups_only<'a>(file: &str, others: impl Iterator<Item = &'a str>) -> String {
    let dropped = list(others);
    let dropped = if dropped.is_empty() {
        String::new()
    } else {
        format!("; vsteer drops as ESXi's own: {dropped} (if one is a VM, name the VMs in host.toml)")
    };
    format!(
        "{file}: groups only (sums over all worlds of a VM), no single vCPUs: esxtop -b -a adds them{dropped}"
    )
}

/// Names between commas.
pub(super) fn list<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<&str> = names.collect();
    let shown = names[..names.len().min(NAMED)].join(", ");
    match names.len().saturating_sub(NAMED) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}
