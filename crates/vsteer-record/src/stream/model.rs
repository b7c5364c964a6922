//! A model of the host as tables: a row for each VM, thread or pCPU.
//!
//! The columns come from examples in which every value is there, so that a new field of the model does not compile until the
//! example has it, and is a column then.

use super::Table;
use serde_json::{Value, json};
use vsteer_core::model::{HostModel, PcpuModel, Quantiles, ThreadModel, VmModel, Worlds};
use vsteer_core::nouns::{PressureShares, Role, Shares, Tid, VmId};

/// A table of a model.
pub struct ModelTable {
    /// Its name in a query.
    pub name: &'static str,
    /// What a row is.
    pub about: &'static str,
    example: fn() -> Value,
    rows: fn(&HostModel) -> Vec<Value>,
}

/// All tables of a model. The first is the default.
pub const MODEL_TABLES: &[ModelTable] = &[
    ModelTable {
        name: "vms",
        about: "a row for each VM",
        example: || json!(vm()),
        rows: |model| model.vms.iter().map(|vm| json!(vm)).collect(),
    },
    ModelTable {
        name: "threads",
        about: "a row for each thread of a VM",
        example: || of_vm(&vm(), &thread()),
        rows: |model| {
            model.vms.iter().flat_map(|vm| vm.threads.iter().map(move |thread| of_vm(vm, thread))).collect()
        },
    },
    ModelTable {
        name: "pcpus",
        about: "a row for each pCPU",
        example: || json!(pcpu()),
        rows: |model| model.pcpus.iter().map(|pcpu| json!(pcpu)).collect(),
    },
];

/// The columns of a table of a model, and its rows; none without a model.
pub fn model(table: &ModelTable, model: Option<&HostModel>) -> (Table, Vec<Value>) {
    (Table::like(&(table.example)()), model.map(table.rows).unwrap_or_default())
}

/// A thread with its VM. Its role is the text that vsteer prints, `vcpu0`, because JSON has an object there.
fn of_vm(vm: &VmModel, thread: &ThreadModel) -> Value {
    let mut row = json!(thread);
    row["vm"] = json!(vm.id);
    row["name"] = json!(vm.name);
    row["role"] = json!(thread.role.to_string());
    row
}

fn quantiles() -> Option<Quantiles> {
    Some(Quantiles { count: 0, p50_ns: 0.0, p95_ns: 0.0, p99_ns: 0.0, max_ns: 0.0 })
}

/// Every share is there: it is the sum over nothing.
fn shares() -> Shares {
    Shares::sum(std::iter::empty())
}

fn thread() -> ThreadModel {
    ThreadModel {
        role: Role::Emulator,
        tid: Tid(0),
        seen: 0.0,
        shares: shares(),
        switches_per_s: Some(0.0),
        preemptions_per_s: Some(0.0),
        wakeups_per_s: Some(0.0),
        migrations_per_s: Some(0.0),
        wake_latency: quantiles(),
        ready_spell: quantiles(),
        last_cpu: Some(0),
        ran_on: Vec::new(),
    }
}

fn vm() -> VmModel {
    let some = Some(0.0);
    VmModel {
        id: VmId(String::new().into()),
        name: String::new(),
        threads: Vec::new(),
        group: shares(),
        worlds: Some(Worlds { count: Some(0) }),
        vcpus: shares(),
        throttled_per_s: some,
        throttled_above_per_s: some,
        limited_estimate: some,
        io_per_s: some,
        pressure: PressureShares {
            cpu_some: some,
            io_some: some,
            io_full: some,
            memory_some: some,
            memory_full: some,
        },
        timers_per_s: some,
        timers_late: some,
        timers_refused: some,
        wake_latency: quantiles(),
        ready_spell: quantiles(),
        memory_by_node: None,
        memory_local: some,
    }
}

fn pcpu() -> PcpuModel {
    PcpuModel {
        cpu: 0,
        busy: 0.0,
        user: 0.0,
        system: 0.0,
        interrupts: 0.0,
        steal: Some(0.0),
        frequency_khz: Some(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fields of a row that hold a number or a text.
    fn leaves(value: &Value, path: &str, found: &mut Vec<(String, Value)>) {
        match value {
            Value::Object(fields) => {
                let at =
                    |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
                fields.iter().for_each(|(name, value)| leaves(value, &at(name), found));
            }
            Value::Array(_) => {}
            other => found.push((path.to_owned(), other.clone())),
        }
    }

    /// Each field of the JSON form but its lists is a column, and no example has a value that is missing.
    #[test]
    fn the_columns_are_the_fields_of_the_json_form() {
        for table in MODEL_TABLES {
            let mut found = Vec::new();
            leaves(&(table.example)(), "", &mut found);
            found.retain(|(name, _)| name != "memory_by_node");
            assert!(found.iter().all(|(_, value)| !value.is_null()), "{}: {found:?}", table.name);
            let (columns, rows) = model(table, None);
            assert_eq!((columns.0.len(), rows.len()), (found.len(), 0), "{}", table.name);
        }
        let (threads, _) = model(&MODEL_TABLES[1], None);
        let names: Vec<String> = threads.0.iter().map(|c| c.path.join(".")).collect();
        for name in ["vm", "role", "shares.ready", "wake_latency.p99_ns", "last_cpu"] {
            assert!(names.iter().any(|n| n == name), "{name}: {names:?}");
        }
    }
}
