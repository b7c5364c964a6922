//! What does each column of an exported table mean, and in which unit?
//!
//! Columns of counters, distributions and pressure are documented where these are defined, the columns of the
//! configuration in `config.rs`, all others here. The reference page `exports.md` is made of [`tables`].

use super::{config, events};
use crate::table::{TABLES, of_group, schema};
use arrow_schema::{DataType, Schema};
use std::sync::Arc;
use vsteer_core::nouns::{COUNTERS, DISTRIBUTIONS, Kind, STALLS};

/// An exported table.
pub struct Table {
    /// Its name: that of its file, without the ending.
    pub name: &'static str,
    /// What a row is.
    pub about: &'static str,
    /// Its columns, in order.
    pub columns: Vec<Column>,
}

/// A column of an exported table.
pub struct Column {
    /// Its name.
    pub name: String,
    /// Type of the values: `text`, `number`, `number, signed`, `true or false`, or `list of …`.
    pub kind: String,
    /// Unit of the values; empty where they have none.
    pub unit: &'static str,
    /// Meaning of the values; empty where nobody wrote it down, which a test refuses.
    pub meaning: String,
}

/// Each table and what one of its rows is.
const ABOUT: [(&str, &str); 8] = [
    ("pcpu", "One pCPU at one moment. Counters are cumulative since the host started"),
    ("vm", "One VM at one moment: what belongs to none of its threads. Counters are cumulative"),
    ("blame", "What a thread waited for since the moment before, one row per cause. Not cumulative"),
    ("thread", "One thread of a VM at one moment. Counters are cumulative since counting began"),
    ("config", "How a VM was set up, from this moment on"),
    ("config_thread", "One thread of a VM and how it may be scheduled, from this moment on"),
    ("config_cgroup", "A cgroup of a VM's threads with a quota, a real-time budget or other settings"),
    ("event", "A context switch, a wake-up or a loss; only if `record --events` recorded them"),
];

/// A column: its table (`*`: of all samples), its name, unit and meaning.
type Documented = (&'static str, &'static str, &'static str, &'static str);

const DOCUMENTED: &[Documented] = &[
    ("*", "mono_ns", "ns", "`CLOCK_MONOTONIC` when the sample was read"),
    ("*", "unix_ns", "ns", "Wall-clock time when the sample was read, since 1970 UTC"),
    ("*", "vm", "", "Id of the VM, as in `config`"),
    ("*", "role", "", "Role of the thread: `vcpuN`, `emulator`, `iothreadN`, `vhost` or `worker`"),
    ("*", "tid", "", "Thread id on the host. A new id under the same role is a new series"),
    ("thread", "last_cpu", "", "The pCPU that the thread ran on last"),
    ("thread", "waiting_ns", "ns", "Length of the present uninterrupted wait; 0 if the thread does not wait"),
    ("pcpu", "cpu", "", "Number of the pCPU"),
    ("pcpu", "user_ns", "ns", "Processes in user mode, guests included"),
    ("pcpu", "system_ns", "ns", "Kernel mode"),
    ("pcpu", "irq_ns", "ns", "Hard interrupts"),
    ("pcpu", "softirq_ns", "ns", "Soft interrupts"),
    ("pcpu", "steal_ns", "ns", "Taken by the hypervisor below this host"),
    ("pcpu", "idle_ns", "ns", "Idle, waiting for input or output included"),
    ("pcpu", "guest_ns", "ns", "The part of `user_ns` that ran guests under KVM"),
    ("pcpu", "frequency_khz", "kHz", "Clock at that moment"),
    ("vm", "throttled_periods", "periods", "Times that the VM's own quotas ran out, summed over its cgroups"),
    ("vm", "throttled_above", "periods", "The same of quotas that it shares with others (slices, pods)"),
    ("vm", "throttled_ns", "ns", "How long the VM's own quotas held its threads, by the cgroups' own count"),
    ("vm", "throttled_above_ns", "ns", "The same of quotas that it shares with others"),
    ("vm", "io", "requests", "Requests of its disks and packets of its networks together"),
    ("vm", "memory_node", "", "NUMA nodes that hold memory of the VM; null between readings"),
    ("vm", "memory_bytes", "bytes", "Memory on each of the nodes of `memory_node`, in the same order"),
    ("vm", "timers_asked", "timers", "Timers of the VM that ended; null without `vsteer realtime`"),
    ("vm", "timers_honoured", "timers", "Timers for which a vCPU got priority"),
    ("vm", "timers_late", "timers", "Timers after which the vCPU ran more than 1.05 ms late"),
    ("vm", "timers_refused", "timers", "Timers for which the vCPU was refused priority"),
    ("vm", "memory_local_ppm", "ppm", "Part of its memory on its home nodes (esxtop's N%L)"),
    ("vm", "group_counted", "", "1 if the hypervisor counts the VM as a whole, as esxtop does; else null"),
    ("vm", "group_worlds", "worlds", "Number of worlds in the VM's group"),
    ("blame", "victim", "", "Id of the VM that waited, as `vm` elsewhere"),
    (
        "blame",
        "culprit_kind",
        "",
        "`vm`, `process`, `kernel`, `placement` (a pCPU was idle) or `unattributed`",
    ),
    ("blame", "culprit", "", "Id of the VM, or name of the process or kernel thread, that ran meanwhile"),
    ("blame", "culprit_pid", "", "Its process id; 0: several processes of that name; null: not a process"),
    ("blame", "ns", "ns", "Ready time charged to it. Negative: corrects what was charged too much before"),
    (
        "blame",
        "culprit_container",
        "",
        "Container or pod of the process: `lxc web`; null: in none, or not known",
    ),
    ("event", "ns", "ns", "`CLOCK_MONOTONIC` of the event"),
    ("event", "cpu", "", "pCPU of the event"),
    ("event", "prev", "", "Thread that left the pCPU: VM and role, or its name"),
    ("event", "prev_tid", "", "Thread id of `prev`; 0 is idle"),
    ("event", "prev_state", "", "The kernel's state of `prev`; 0: it could run on"),
    ("event", "next", "", "Thread that got the pCPU"),
    ("event", "next_tid", "", "Thread id of `next`; 0 is idle"),
    ("event", "lost", "switches", "Switches that were lost after `ns`; the row stands for them"),
    ("event", "woken", "", "Thread of a VM that was woken; the row is a wake-up"),
    ("event", "woken_tid", "", "Thread id of `woken`"),
];

fn counter(name: &str) -> Option<(&'static str, String)> {
    let of = |c: &vsteer_core::nouns::Counter| {
        let unit = match c.kind {
            Kind::Time => "ns",
            Kind::Events => "events",
        };
        (unit, c.meaning.to_owned())
    };
    let whole = |unit, meaning| {
        (unit, format!("The same of the VM as a whole, as the hypervisor counts it: {meaning}"))
    };
    COUNTERS.iter().find_map(|c| {
        let (unit, meaning) = of(c);
        match name {
            n if n == c.name => Some((unit, meaning)),
            n if n == of_group(c.name) => Some(whole(unit, format!("`{}`", c.name))),
            _ => None,
        }
    })
}

fn distribution(name: &str) -> Option<(&'static str, String)> {
    DISTRIBUTIONS.iter().find_map(|d| match name.strip_prefix(d.name)? {
        "_bucket" => {
            Some(("", format!("{} Numbers of the buckets that are not empty (see Buckets)", d.meaning)))
        }
        "_count" => {
            Some(("events", format!("Number of times in each of the buckets of `{}_bucket`", d.name)))
        }
        _ => None,
    })
}

fn stall(table: &str, name: &str) -> Option<(&'static str, String)> {
    let of = STALLS.iter().find(|s| s.name == name)?;
    let whose =
        if table == "vm" { "of the VM's cgroup" } else { "of the host, in the row of its first pCPU" };
    Some(("ns", format!("Pressure {whose}: {}", of.meaning)))
}

fn documentation(table: &str, name: &str) -> Option<(&'static str, String)> {
    if config::TABLES.contains(&table) {
        return config::documentation(table, name);
    }
    let is = |d: &&Documented| d.1 == name && (d.0 == table || (d.0 == "*" && TABLES.contains(&table)));
    let here = || DOCUMENTED.iter().find(is).map(|d| (d.2, d.3.to_owned()));
    here().or_else(|| counter(name)).or_else(|| distribution(name)).or_else(|| stall(table, name))
}

fn kind(of: &DataType) -> String {
    match of {
        DataType::Utf8 => "text".to_owned(),
        DataType::Int64 => "number, signed".to_owned(),
        DataType::Boolean => "true or false".to_owned(),
        DataType::List(item) => format!("list of {}s", kind(item.data_type()).replace(", signed", "")),
        _ => "number".to_owned(),
    }
}

fn schema_of(table: &str) -> Arc<Schema> {
    match table {
        "event" => events::schema(),
        t if config::TABLES.contains(&t) => config::schema(t),
        t => schema(t),
    }
}

/// Every table that an export may hold, with its columns.
pub fn tables() -> Vec<Table> {
    let of = |(name, about): (&'static str, &'static str)| {
        let column = |field: &Arc<arrow_schema::Field>| {
            let (unit, meaning) = documentation(name, field.name()).unwrap_or_default();
            Column { name: field.name().clone(), kind: kind(field.data_type()), unit, meaning }
        };
        Table { name, about, columns: schema_of(name).fields().iter().map(column).collect() }
    };
    ABOUT.into_iter().map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_column_of_every_table_is_documented() {
        let tables = tables();
        let named: BTreeSet<&str> = tables.iter().map(|t| t.name).collect();
        let written = TABLES.iter().chain(&config::TABLES).chain(&["event"]).copied();
        assert_eq!(named, written.collect(), "each exported table says what its rows are");
        for table in &tables {
            let mut names = BTreeSet::new();
            for column in &table.columns {
                let at = format!("{}.{}", table.name, column.name);
                assert!(!column.meaning.is_empty(), "{at} has no documentation");
                assert!(names.insert(&column.name), "{at} is there twice");
                let unit = ["ns", "us", "bytes", "khz", "mhz"]
                    .iter()
                    .find(|u| column.name.ends_with(&format!("_{u}")));
                let said = column.unit.replace('µ', "u").to_lowercase();
                assert!(unit.is_none_or(|u| said == *u), "{at}: the unit is {:?}", column.unit);
            }
        }
    }

    #[test]
    fn nothing_is_documented_that_is_not_exported() {
        let tables = tables();
        for (table, name, ..) in DOCUMENTED {
            let of = |t: &&Table| t.name == *table || (*table == "*" && TABLES.contains(&t.name));
            let there = tables.iter().filter(of).any(|t| t.columns.iter().any(|c| c.name == *name));
            assert!(there, "{table}.{name} is not exported");
        }
    }
}
