//! Exports how the VMs were set up, as tables for Parquet and CSV: names, settings, pins and cgroups.
//!
//! A VM has a row in `config` when the recording begins with it, when its configuration changed, and when it is gone.
//! Its rows in `config_thread` and `config_cgroup` have the same `mono_ns`, and are complete at that moment. So a program
//! finds the configuration of a moment by the last `mono_ns` that is not later.
//!
//! Schema, values and documentation come from one table of columns, in `settings.rs`. Left out: the host's own topology.

use super::settings::{CGROUP, Column, OfCgroup, THREAD, VM, Value};
use crate::folder::{ConfigAt, Recording};
use arrow_array::builder::{
    BooleanBuilder, Int64Builder, ListBuilder, StringBuilder, UInt32Builder, UInt64Builder,
};
use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{DataType, Field, Schema};
use std::collections::BTreeMap;
use std::sync::Arc;
use vsteer_core::nouns::{VmConfig, VmId};
use vsteer_core::{CpuSet, Fault};

/// The tables of this module, in the order in which they are written.
pub(super) const TABLES: [&str; 3] = ["config", "config_thread", "config_cgroup"];

/// Identifies a row: the moment, the VM, and what happened to it.
#[derive(Clone, Copy)]
struct Stamp<'a> {
    mono_ns: u64,
    unix_ns: u64,
    vm: &'a VmId,
    change: &'static str,
}

/// The columns that name a row, as `(name, unit, meaning)`.
const STAMP: [(&str, &str, &str); 3] = [
    ("mono_ns", "ns", "`CLOCK_MONOTONIC` from which on the configuration holds"),
    ("unix_ns", "ns", "Wall-clock time of that moment, since 1970 UTC"),
    ("vm", "", "Id of the VM"),
];
/// The further one of `config`.
const CHANGE: (&str, &str, &str) =
    ("change", "", "`new`, `changed`, or `gone`, in which case all columns that follow are null");

impl<R> Column<R> {
    fn field(&self) -> Field {
        let kind = match self.value {
            Value::Text(_) => DataType::Utf8,
            Value::Number(_) => DataType::UInt64,
            Value::Small(_) => DataType::UInt32,
            Value::Signed(_) => DataType::Int64,
            Value::Flag(_) => DataType::Boolean,
            Value::Cpus(_) => DataType::List(Arc::new(Field::new_list_field(DataType::UInt32, true))),
        };
        Field::new(self.name, kind, true)
    }

    fn values(&self, rows: &[(Stamp<'_>, Option<&R>)]) -> ArrayRef {
        fn all<'r, R: 'r, T>(
            rows: &'r [(Stamp<'_>, Option<&R>)],
            get: fn(&R) -> Option<T>,
        ) -> impl Iterator<Item = Option<T>> {
            rows.iter().map(move |(_, row)| row.and_then(get))
        }
        macro_rules! built {
            ($builder:ident, $get:expr) => {{
                let mut to = $builder::new();
                all(rows, $get).for_each(|v| to.append_option(v));
                Arc::new(to.finish())
            }};
        }
        match self.value {
            Value::Text(get) => built!(StringBuilder, get),
            Value::Number(get) => built!(UInt64Builder, get),
            Value::Small(get) => built!(UInt32Builder, get),
            Value::Signed(get) => built!(Int64Builder, get),
            Value::Flag(get) => built!(BooleanBuilder, get),
            Value::Cpus(get) => {
                let mut to = ListBuilder::new(UInt32Builder::new());
                for cpus in all(rows, get) {
                    cpus.iter().flat_map(CpuSet::iter).for_each(|cpu| to.values().append_value(cpu));
                    to.append(cpus.is_some());
                }
                Arc::new(to.finish())
            }
        }
    }
}

/// The columns of a table.
///
/// # Panics
/// If the name is not in [`TABLES`].
pub(super) fn schema(table: &str) -> Arc<Schema> {
    let text = |name| Field::new(name, DataType::Utf8, false);
    let number = |name| Field::new(name, DataType::UInt64, false);
    let mut fields = vec![number(STAMP[0].0), number(STAMP[1].0), text(STAMP[2].0)];
    match table {
        "config" => {
            fields.push(text(CHANGE.0));
            fields.extend(VM.iter().map(Column::field));
        }
        "config_thread" => fields.extend(THREAD.iter().map(Column::field)),
        "config_cgroup" => fields.extend(CGROUP.iter().map(Column::field)),
        other => unreachable!("no table {other}"),
    }
    Arc::new(Schema::new(fields))
}

/// Unit and meaning of a column of a table of this module.
pub(super) fn documentation(table: &str, name: &str) -> Option<(&'static str, String)> {
    fn of<R>(columns: &[Column<R>], name: &str) -> Option<(&'static str, String)> {
        columns.iter().find(|c| c.name == name).map(|c| (c.unit, c.meaning.to_owned()))
    }
    let stamps = STAMP.iter().chain([&CHANGE]).find(|(n, ..)| *n == name);
    let stamp = stamps.map(|(_, unit, meaning)| (*unit, (*meaning).to_owned()));
    stamp.or_else(|| match table {
        "config" => of(VM, name),
        "config_thread" => of(THREAD, name),
        _ => of(CGROUP, name),
    })
}

fn batch<R>(table: &str, columns: &[Column<R>], rows: &[(Stamp<'_>, Option<&R>)]) -> RecordBatch {
    fn texts<'a>(all: impl Iterator<Item = &'a str>) -> ArrayRef {
        Arc::new(all.map(Some).collect::<arrow_array::StringArray>())
    }
    let stamps = || rows.iter().map(|(stamp, _)| *stamp);
    let number =
        |get: fn(Stamp<'_>) -> u64| Arc::new(stamps().map(get).collect::<arrow_array::UInt64Array>());
    let mut all: Vec<ArrayRef> =
        vec![number(|s| s.mono_ns), number(|s| s.unix_ns), texts(stamps().map(|s| &*s.vm.0))];
    if table == "config" {
        all.push(texts(stamps().map(|s| s.change)));
    }
    all.extend(columns.iter().map(|c| c.values(rows)));
    RecordBatch::try_new(schema(table), all).expect("the columns are made by the schema above")
}

/// The VMs that are new, changed or gone with a configuration; a VM that is gone has no configuration.
fn changes<'a>(
    before: Option<&'a ConfigAt>,
    now: &'a ConfigAt,
    unix_ns: u64,
) -> Vec<(Stamp<'a>, Option<&'a VmConfig>)> {
    let stamp = |vm, change| Stamp { mono_ns: now.mono_ns, unix_ns, vm, change };
    let of = |at: &'a ConfigAt| at.config.vms.iter().map(|vm| (&vm.id, vm)).collect::<BTreeMap<_, _>>();
    let former = before.map(of).unwrap_or_default();
    let here = of(now);
    let there = here.iter().filter_map(|(id, vm)| match former.get(id) {
        None => Some((stamp(*id, "new"), Some(*vm))),
        Some(old) => (old != vm).then(|| (stamp(*id, "changed"), Some(*vm))),
    });
    let gone = former.keys().filter(|id| !here.contains_key(*id)).map(|id| (stamp(*id, "gone"), None));
    there.chain(gone).collect()
}

/// Wall-clock time of a moment: of the batch of that moment, else by the clock of the beginning.
fn unix_ns(recording: &Recording, mono_ns: u64) -> u64 {
    let at = recording.batches.partition_point(|b| b.mono_ns < mono_ns);
    match recording.batches.get(at).filter(|b| b.mono_ns == mono_ns) {
        Some(batch) => batch.unix_ns,
        None => {
            let begin = &recording.manifest;
            begin.unix_ns.saturating_add(mono_ns).saturating_sub(begin.mono_ns)
        }
    }
}

/// Passes the rows of a table on, one change of the configuration at a time.
pub(super) fn each(
    table: &str,
    recording: &Recording,
    mut give: impl FnMut(RecordBatch) -> Result<(), Fault>,
) -> Result<(), Fault> {
    let mut before = None;
    for now in &recording.configs {
        let vms = changes(before, now, unix_ns(recording, now.mono_ns));
        before = Some(now);
        let there = || vms.iter().filter_map(|(stamp, vm)| Some((*stamp, (*vm)?)));
        give(match table {
            "config" => batch(table, VM, &vms),
            "config_thread" => {
                let mut threads = Vec::new();
                there().for_each(|(s, vm)| threads.extend(vm.threads.iter().map(|t| (s, Some(t)))));
                batch(table, THREAD, &threads)
            }
            _ => {
                let groups: Vec<(Stamp<'_>, OfCgroup)> =
                    there().flat_map(|(s, vm)| OfCgroup::all(vm).into_iter().map(move |c| (s, c))).collect();
                batch(table, CGROUP, &groups.iter().map(|(s, c)| (*s, Some(c))).collect::<Vec<_>>())
            }
        })?;
    }
    Ok(())
}
