//! Defines the tables of a recording: their columns, and the conversion between samples and rows.
//!
//! There is one table per kind of sample. Every row has its batch's `mono_ns`. Counters are cumulative as
//! read; blame is since the previous batch; null means "not measured".
//!
//! A histogram is two lists, bucket numbers and counts (see `vsteer_core::nouns::Histogram`). In a segment
//! these are the changes since that thread's previous row in the same segment ([`Past`]), which needs a tenth
//! of the bytes. In an export they are complete. New versions only add columns. A reader finds columns by
//! name, and a missing one means not measured.

use arrow_array::builder::{
    Int64Builder, ListBuilder, StringBuilder, UInt16Builder, UInt32Builder, UInt64Builder,
};
use arrow_array::types::{Int64Type, UInt16Type, UInt32Type, UInt64Type};
use arrow_array::{Array, ArrayRef, ListArray, PrimitiveArray, RecordBatch, StringArray};
use arrow_schema::{ArrowError, DataType, Field, Schema};
use std::collections::BTreeMap;
use std::sync::Arc;
use vsteer_core::nouns::{
    Batch, BlameSample, COUNTERS, Culprit, DISTRIBUTIONS, Distribution, GroupSample, Histogram, PcpuSample,
    Pressure, Role, STALLS, ThreadCounters, ThreadSample, Tid, TimerCounts, VmId, VmSample,
};

/// The tables, in the order in which a batch is written. `thread` comes last, because a batch counts as
/// complete when it has it.
pub const TABLES: [&str; 4] = ["pcpu", "vm", "blame", "thread"];

/// The outcomes of a VM's timers, by column name.
type OfTimers = (&'static str, fn(&TimerCounts) -> u64);

const TIMERS: [OfTimers; 4] = [
    ("timers_asked", |t| t.asked),
    ("timers_honoured", |t| t.honoured),
    ("timers_late", |t| t.late),
    ("timers_refused", |t| t.refused),
];

/// The column of a counter of a VM's group, as the hypervisor counts it.
pub(crate) fn of_group(counter: &str) -> String {
    format!("group_{counter}")
}

/// A group that the hypervisor counted. A separate column marks it, because every counter of it may be
/// missing.
fn group(c: &Columns<'_>, row: usize) -> Option<GroupSample> {
    c.u64("group_counted", row)?;
    let mut counters = ThreadCounters::default();
    for counter in COUNTERS {
        (counter.set)(&mut counters, c.u64(&of_group(counter.name), row));
    }
    Some(GroupSample { worlds: c.u64("group_worlds", row).and_then(|n| n.try_into().ok()), counters })
}

fn timers(c: &Columns<'_>, row: usize) -> Option<TimerCounts> {
    let [asked, honoured, late, refused] = TIMERS.map(|(name, _)| c.u64(name, row));
    Some(TimerCounts { asked: asked?, honoured: honoured?, late: late?, refused: refused? })
}

fn list_of(item: DataType) -> DataType {
    DataType::List(Arc::new(Field::new_list_field(item, true)))
}

/// The columns of a table.
///
/// # Panics
/// If the name is not in [`TABLES`].
pub fn schema(table: &str) -> Arc<Schema> {
    let u64s = |names: &[&str]| -> Vec<Field> {
        names.iter().map(|n| Field::new(*n, DataType::UInt64, true)).collect()
    };
    let stamp = || {
        vec![Field::new("mono_ns", DataType::UInt64, false), Field::new("unix_ns", DataType::UInt64, false)]
    };
    let text = |n: &str| Field::new(n, DataType::Utf8, false);
    let mut fields = stamp();
    match table {
        "thread" => {
            fields.extend([text("vm"), text("role"), Field::new("tid", DataType::UInt32, false)]);
            fields.push(Field::new("last_cpu", DataType::UInt32, true));
            fields.push(Field::new("waiting_ns", DataType::UInt64, true));
            fields.extend(COUNTERS.iter().map(|c| Field::new(c.name, DataType::UInt64, true)));
            for h in DISTRIBUTIONS.iter().map(|d| d.name) {
                fields.push(Field::new(format!("{h}_bucket"), list_of(DataType::UInt16), true));
                fields.push(Field::new(format!("{h}_count"), list_of(DataType::Int64), true));
            }
        }
        "pcpu" => {
            fields.push(Field::new("cpu", DataType::UInt32, false));
            fields.extend(u64s(&[
                "user_ns",
                "system_ns",
                "irq_ns",
                "softirq_ns",
                "steal_ns",
                "idle_ns",
                "guest_ns",
            ]));
            fields.extend(u64s(&["frequency_khz"]));
            fields.extend(u64s(&STALLS.map(|s| s.name)));
        }
        "vm" => {
            fields.push(text("vm"));
            fields.extend(u64s(&[
                "throttled_periods",
                "throttled_above",
                "throttled_ns",
                "throttled_above_ns",
                "io",
            ]));
            fields.push(Field::new("memory_node", list_of(DataType::UInt32), true));
            fields.push(Field::new("memory_bytes", list_of(DataType::UInt64), true));
            fields.extend(u64s(&TIMERS.map(|(name, _)| name)));
            fields.extend(u64s(&["memory_local_ppm", "group_counted", "group_worlds"]));
            fields.extend(COUNTERS.iter().map(|c| Field::new(of_group(c.name), DataType::UInt64, true)));
            fields.extend(u64s(&STALLS.map(|s| s.name)));
        }
        "blame" => {
            fields.extend([text("victim"), text("role"), text("culprit_kind"), text("culprit")]);
            fields.extend([
                Field::new("culprit_pid", DataType::UInt32, true),
                Field::new("ns", DataType::Int64, false),
                Field::new("culprit_container", DataType::Utf8, true),
            ]);
        }
        other => unreachable!("no table {other}"),
    }
    Arc::new(Schema::new(fields))
}

fn numbers<T: arrow_array::ArrowPrimitiveType>(values: impl Iterator<Item = Option<T::Native>>) -> ArrayRef {
    Arc::new(values.collect::<PrimitiveArray<T>>())
}

fn texts(values: impl Iterator<Item = String>) -> ArrayRef {
    let mut b = StringBuilder::new();
    values.for_each(|v| b.append_value(v));
    Arc::new(b.finish())
}

type Key = (VmId, Role, Tid);
/// The distributions of a thread.
type Histograms = [Option<Histogram>; DISTRIBUTIONS.len()];

/// Each thread's histograms in its last row of a segment, from which the next row's changes count.
#[derive(Debug, Default)]
pub struct Past(BTreeMap<Key, Histograms>);

impl Past {
    fn of(&mut self, vm: &VmId, role: Role, tid: Tid) -> &mut Histograms {
        self.0.entry((vm.clone(), role, tid)).or_default()
    }
}

/// Adds `changes` to `before`. A count below 0 cannot come from vsteer's writer and becomes 0.
fn changed(before: &Option<Histogram>, changes: Vec<(u16, i64)>) -> Histogram {
    let mut counts: BTreeMap<u16, u64> = before.iter().flat_map(|h| h.counts.iter().copied()).collect();
    for (bucket, change) in changes {
        let count = counts.entry(bucket).or_default();
        *count = count.saturating_add_signed(change);
    }
    Histogram { counts: counts.into_iter().filter(|(_, count)| *count > 0).collect() }
}

fn changes(before: &Option<Histogram>, now: &Histogram) -> Vec<(u16, i64)> {
    let mut by_bucket: BTreeMap<u16, i64> = now.counts.iter().map(|(b, c)| (*b, *c as i64)).collect();
    for (bucket, count) in before.iter().flat_map(|h| &h.counts) {
        *by_bucket.entry(*bucket).or_default() -= *count as i64;
    }
    by_bucket.into_iter().filter(|(_, change)| *change != 0).collect()
}

/// The columns of one histogram for every row, as changes since `before` (without `before`: complete).
fn histogram(rows: &[ThreadSample], of: &Distribution, before: &[Option<Histogram>]) -> [ArrayRef; 2] {
    let (mut buckets, mut counts) =
        (ListBuilder::new(UInt16Builder::new()), ListBuilder::new(Int64Builder::new()));
    for (i, row) in rows.iter().enumerate() {
        let now = (of.get)(&row.counters);
        for (bucket, change) in now.iter().flat_map(|h| changes(before.get(i).unwrap_or(&None), h)) {
            buckets.values().append_value(bucket);
            counts.values().append_value(change);
        }
        buckets.append(now.is_some());
        counts.append(now.is_some());
    }
    [Arc::new(buckets.finish()), Arc::new(counts.finish())]
}

/// The text form of a culprit: kind, name, process id.
fn culprit_text(c: &Culprit) -> (&'static str, String, Option<u32>) {
    match c {
        Culprit::Vm(id) => ("vm", id.to_string(), None),
        Culprit::Process { comm, pid, .. } => ("process", comm.clone(), Some(*pid)),
        Culprit::Kernel { comm } => ("kernel", comm.clone(), None),
        Culprit::Placement => ("placement", String::new(), None),
        Culprit::Unattributed => ("unattributed", String::new(), None),
    }
}

fn culprit(kind: &str, name: &str, pid: Option<u32>, container: Option<&str>) -> Option<Culprit> {
    Some(match kind {
        "vm" => Culprit::Vm(VmId(name.into())),
        "process" => Culprit::Process {
            comm: name.to_owned(),
            pid: pid.unwrap_or(0),
            container: container.map(str::to_owned),
        },
        "kernel" => Culprit::Kernel { comm: name.to_owned() },
        "placement" => Culprit::Placement,
        "unattributed" => Culprit::Unattributed,
        _ => return None,
    })
}

/// Parses a role from its [`std::fmt::Display`] form.
fn role(text: &str) -> Option<Role> {
    Some(match text {
        "emulator" => Role::Emulator,
        "vhost" => Role::Vhost,
        "worker" => Role::Worker,
        _ => match (text.strip_prefix("vcpu"), text.strip_prefix("iothread")) {
            (Some(n), _) => Role::Vcpu(n.parse().ok()?),
            (_, Some(n)) => Role::IoThread(n.parse().ok()?),
            _ => return None,
        },
    })
}

/// The rows of one batch in one table. Histograms are changes since `past`, which this updates; without
/// `past` they are complete.
///
/// # Panics
/// If the name is not in [`TABLES`], or if rows and schema disagree, which would be a bug here.
pub fn rows(table: &str, batch: &Batch, past: Option<&mut Past>) -> RecordBatch {
    let n = match table {
        "thread" => batch.threads.len(),
        "pcpu" => batch.pcpus.len(),
        "vm" => batch.vms.len(),
        _ => batch.blame.len(),
    };
    let stamp = |v: u64| numbers::<UInt64Type>(std::iter::repeat_n(Some(v), n));
    let mut columns = vec![stamp(batch.mono_ns), stamp(batch.unix_ns)];
    columns.extend(match table {
        "thread" => thread_columns(&batch.threads, past),
        "pcpu" => pcpu_columns(&batch.pcpus, batch.pressure),
        "vm" => vm_columns(&batch.vms),
        _ => blame_columns(&batch.blame),
    });
    RecordBatch::try_new(schema(table), columns).expect("the columns are made by the schema above")
}

fn thread_columns(t: &[ThreadSample], past: Option<&mut Past>) -> Vec<ArrayRef> {
    let mut columns = vec![
        texts(t.iter().map(|t| t.vm.to_string())),
        texts(t.iter().map(|t| t.role.to_string())),
        numbers::<UInt32Type>(t.iter().map(|t| Some(t.tid.0))),
        numbers::<UInt32Type>(t.iter().map(|t| t.last_cpu)),
        numbers::<UInt64Type>(t.iter().map(|t| t.waiting_ns)),
    ];
    for counter in COUNTERS {
        columns.push(numbers::<UInt64Type>(t.iter().map(|t| (counter.get)(&t.counters))));
    }
    let mut before: [Vec<Option<Histogram>>; DISTRIBUTIONS.len()] = Default::default();
    if let Some(past) = past {
        for row in t {
            let last = past.of(&row.vm, row.role, row.tid);
            let now = std::array::from_fn(|i| (DISTRIBUTIONS[i].get)(&row.counters).clone());
            let former = std::mem::replace(last, now);
            before.iter_mut().zip(former).for_each(|(all, one)| all.push(one));
        }
    }
    for (of, before) in DISTRIBUTIONS.iter().zip(&before) {
        columns.extend(histogram(t, of, before));
    }
    columns
}

/// The host's stalls are in the row of its first pCPU. A table of their own would make recordings without it look empty.
fn pcpu_columns(p: &[PcpuSample], of_host: Option<Pressure>) -> Vec<ArrayRef> {
    let columns_of: [fn(&PcpuSample) -> Option<u64>; 8] = [
        |p| Some(p.user_ns),
        |p| Some(p.system_ns),
        |p| Some(p.irq_ns),
        |p| Some(p.softirq_ns),
        |p| p.steal_ns,
        |p| Some(p.idle_ns),
        |p| p.guest_ns,
        |p| p.frequency_khz,
    ];
    let mut columns = vec![numbers::<UInt32Type>(p.iter().map(|p| Some(p.cpu)))];
    for get in columns_of {
        columns.push(numbers::<UInt64Type>(p.iter().map(get)));
    }
    columns.extend(stalls((0..p.len()).map(|row| of_host.filter(|_| row == 0))));
    columns
}

fn stalls(rows: impl Iterator<Item = Option<Pressure>>) -> [ArrayRef; STALLS.len()] {
    let rows: Vec<Pressure> = rows.map(Option::unwrap_or_default).collect();
    std::array::from_fn(|i| numbers::<UInt64Type>(rows.iter().map(|p| p.each()[i])))
}

fn vm_columns(vms: &[VmSample]) -> Vec<ArrayRef> {
    let of_vm = |get: &dyn Fn(&VmSample) -> Option<u64>| numbers::<UInt64Type>(vms.iter().map(get));
    let mut columns = vec![
        texts(vms.iter().map(|v| v.vm.to_string())),
        of_vm(&|v| v.throttled_periods),
        of_vm(&|v| v.throttled_above),
        of_vm(&|v| v.throttled_ns),
        of_vm(&|v| v.throttled_above_ns),
        of_vm(&|v| v.io),
    ];
    columns.extend(memory_columns(vms));
    for (_, get) in TIMERS {
        columns.push(of_vm(&|v| v.timers.as_ref().map(get)));
    }
    columns.push(of_vm(&|v| v.memory_local_ppm.map(u64::from)));
    columns.push(of_vm(&|v| v.group.as_ref().map(|_| 1)));
    columns.push(of_vm(&|v| v.group.as_ref()?.worlds.map(u64::from)));
    for counter in COUNTERS {
        columns.push(of_vm(&|v| v.group.as_ref().and_then(|g| (counter.get)(&g.counters))));
    }
    columns.extend(stalls(vms.iter().map(|v| v.pressure)));
    columns
}

/// Lists of nodes, and of the bytes on each.
fn memory_columns(vms: &[VmSample]) -> [ArrayRef; 2] {
    let (mut nodes, mut bytes) =
        (ListBuilder::new(UInt32Builder::new()), ListBuilder::new(UInt64Builder::new()));
    for v in vms {
        for (node, b) in v.memory_by_node.iter().flatten() {
            nodes.values().append_value(*node);
            bytes.values().append_value(*b);
        }
        nodes.append(v.memory_by_node.is_some());
        bytes.append(v.memory_by_node.is_some());
    }
    [Arc::new(nodes.finish()), Arc::new(bytes.finish())]
}

fn blame_columns(b: &[BlameSample]) -> Vec<ArrayRef> {
    vec![
        texts(b.iter().map(|b| b.victim.to_string())),
        texts(b.iter().map(|b| b.role.to_string())),
        texts(b.iter().map(|b| culprit_text(&b.culprit).0.to_owned())),
        texts(b.iter().map(|b| culprit_text(&b.culprit).1)),
        numbers::<UInt32Type>(b.iter().map(|b| culprit_text(&b.culprit).2)),
        numbers::<Int64Type>(b.iter().map(|b| Some(b.ns))),
        Arc::new(b.iter().map(|b| b.culprit.container()).collect::<StringArray>()),
    ]
}

/// Access to the columns of a record batch by name. A row's value is `None` if the column is missing or has
/// another type.
struct Columns<'a>(&'a RecordBatch);

impl Columns<'_> {
    fn number<T: arrow_array::ArrowPrimitiveType>(&self, name: &str, row: usize) -> Option<T::Native> {
        let a = self.0.column_by_name(name)?.as_any().downcast_ref::<PrimitiveArray<T>>()?;
        a.is_valid(row).then(|| a.value(row))
    }

    fn u64(&self, name: &str, row: usize) -> Option<u64> {
        self.number::<UInt64Type>(name, row)
    }

    fn text(&self, name: &str, row: usize) -> Option<&str> {
        let a = self.0.column_by_name(name)?.as_any().downcast_ref::<StringArray>()?;
        a.is_valid(row).then(|| a.value(row))
    }

    fn list<T: arrow_array::ArrowPrimitiveType>(&self, name: &str, row: usize) -> Option<Vec<T::Native>> {
        let a = self.0.column_by_name(name)?.as_any().downcast_ref::<ListArray>()?;
        if !a.is_valid(row) {
            return None;
        }
        let items = a.value(row);
        Some(items.as_any().downcast_ref::<PrimitiveArray<T>>()?.values().to_vec())
    }

    fn changes(&self, name: &str, row: usize) -> Option<Vec<(u16, i64)>> {
        let buckets = self.list::<UInt16Type>(&format!("{name}_bucket"), row)?;
        let counts = self.list::<Int64Type>(&format!("{name}_count"), row)?;
        Some(buckets.into_iter().zip(counts).collect())
    }
}

/// One row of a table.
struct Row<'a> {
    table: &'a str,
    columns: &'a Columns<'a>,
    row: usize,
}

impl Row<'_> {
    fn lacks(&self, what: &str) -> ArrowError {
        ArrowError::SchemaError(format!(
            "table {}, row {}: {what} is missing or not valid",
            self.table, self.row
        ))
    }

    fn u64(&self, name: &str) -> Option<u64> {
        self.columns.u64(name, self.row)
    }

    fn u32(&self, name: &str) -> Option<u32> {
        self.columns.number::<UInt32Type>(name, self.row)
    }

    fn vm(&self, name: &str) -> Result<VmId, ArrowError> {
        self.columns.text(name, self.row).map(|s| VmId(s.into())).ok_or_else(|| self.lacks(name))
    }

    fn role(&self) -> Result<Role, ArrowError> {
        self.columns.text("role", self.row).and_then(role).ok_or_else(|| self.lacks("role"))
    }

    /// `past` must belong to this segment.
    fn thread(&self, past: &mut Past) -> Result<ThreadSample, ArrowError> {
        let (vm, role) = (self.vm("vm")?, self.role()?);
        let tid = Tid(self.u32("tid").ok_or_else(|| self.lacks("tid"))?);
        let last = past.of(&vm, role, tid);
        for (name, h) in DISTRIBUTIONS.iter().map(|d| d.name).zip(last.iter_mut()) {
            *h = self.columns.changes(name, self.row).map(|changes| changed(h, changes));
        }
        let mut counters = ThreadCounters::default();
        for (of, h) in DISTRIBUTIONS.iter().zip(last.iter()) {
            *(of.get_mut)(&mut counters) = h.clone();
        }
        for counter in COUNTERS {
            (counter.set)(&mut counters, self.u64(counter.name));
        }
        let (last_cpu, waiting_ns) = (self.u32("last_cpu"), self.u64("waiting_ns"));
        Ok(ThreadSample { vm, role, tid, last_cpu, waiting_ns, counters })
    }

    fn pressure(&self) -> Option<Pressure> {
        Pressure::new(std::array::from_fn(|i| self.u64(STALLS[i].name))).measured()
    }

    fn pcpu(&self) -> Result<PcpuSample, ArrowError> {
        Ok(PcpuSample {
            cpu: self.u32("cpu").ok_or_else(|| self.lacks("cpu"))?,
            user_ns: self.u64("user_ns").unwrap_or(0),
            system_ns: self.u64("system_ns").unwrap_or(0),
            irq_ns: self.u64("irq_ns").unwrap_or(0),
            softirq_ns: self.u64("softirq_ns").unwrap_or(0),
            steal_ns: self.u64("steal_ns"),
            idle_ns: self.u64("idle_ns").unwrap_or(0),
            guest_ns: self.u64("guest_ns"),
            frequency_khz: self.u64("frequency_khz"),
        })
    }

    fn vm_sample(&self) -> Result<VmSample, ArrowError> {
        let nodes = self.columns.list::<UInt32Type>("memory_node", self.row);
        let bytes = self.columns.list::<UInt64Type>("memory_bytes", self.row);
        Ok(VmSample {
            vm: self.vm("vm")?,
            throttled_periods: self.u64("throttled_periods"),
            throttled_above: self.u64("throttled_above"),
            throttled_ns: self.u64("throttled_ns"),
            throttled_above_ns: self.u64("throttled_above_ns"),
            io: self.u64("io"),
            pressure: self.pressure(),
            timers: timers(self.columns, self.row),
            memory_by_node: nodes.zip(bytes).map(|(n, b)| n.into_iter().zip(b).collect()),
            memory_local_ppm: self.u64("memory_local_ppm").and_then(|ppm| ppm.try_into().ok()),
            group: group(self.columns, self.row),
        })
    }

    fn blame(&self) -> Result<BlameSample, ArrowError> {
        let text = |name: &str| self.columns.text(name, self.row);
        let pid = self.u32("culprit_pid");
        let container = text("culprit_container");
        let known =
            text("culprit_kind").zip(text("culprit")).and_then(|(k, n)| culprit(k, n, pid, container));
        let ns = self.columns.number::<Int64Type>("ns", self.row);
        Ok(BlameSample {
            victim: self.vm("victim")?,
            role: self.role()?,
            culprit: known.ok_or_else(|| self.lacks("culprit"))?,
            ns: ns.ok_or_else(|| self.lacks("ns"))?,
        })
    }
}

/// Adds the rows of a record batch of `table` to `batch`. `past` must belong to this segment.
///
/// # Errors
/// If a row lacks its identity (VM, role, thread, pCPU), because then vsteer did not write the file.
pub fn read_rows(
    table: &str,
    from: &RecordBatch,
    batch: &mut Batch,
    past: &mut Past,
) -> Result<(), ArrowError> {
    let columns = &Columns(from);
    for row in (0..from.num_rows()).map(|row| Row { table, columns, row }) {
        match table {
            "thread" => batch.threads.push(row.thread(past)?),
            "pcpu" => {
                batch.pcpus.push(row.pcpu()?);
                batch.pressure = batch.pressure.or(row.pressure());
            }
            "vm" => batch.vms.push(row.vm_sample()?),
            _ => batch.blame.push(row.blame()?),
        }
    }
    Ok(())
}

/// The time of a record batch, from its first row; `None` if it has no row.
pub fn stamp_of(rows: &RecordBatch) -> Option<(u64, u64)> {
    let c = Columns(rows);
    if rows.num_rows() == 0 { None } else { Some((c.u64("mono_ns", 0)?, c.u64("unix_ns", 0)?)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The batch, read from tables as vsteer 0.2.0 wrote them: without columns for pressure and containers.
    fn from_older(batch: &Batch) -> Batch {
        let mut read = Batch { mono_ns: batch.mono_ns, unix_ns: batch.unix_ns, ..Batch::default() };
        for table in TABLES {
            let whole = rows(table, batch, None);
            let names = whole.schema();
            let is_old = |i: &usize| {
                let name = names.field(*i).name();
                !name.starts_with("psi_") && name != "culprit_container"
            };
            let old: Vec<usize> = (0..whole.num_columns()).filter(is_old).collect();
            assert_eq!(old.len() < whole.num_columns(), ["vm", "pcpu", "blame"].contains(&table), "{table}");
            read_rows(table, &whole.project(&old).unwrap(), &mut read, &mut Past::default()).unwrap();
        }
        read
    }

    #[test]
    fn a_recording_from_before_pressure_and_containers_is_read() {
        let of = |cpu| PcpuSample { cpu, user_ns: 5, ..PcpuSample::default() };
        let pressure = Pressure { io_full: Some(7), cpu_some: Some(0), ..Pressure::default() };
        let blame = |container: Option<&str>| {
            let container = container.map(str::to_owned);
            let culprit = Culprit::Process { comm: "cc1".into(), pid: 5, container };
            BlameSample { victim: VmId("a".into()), role: Role::Emulator, culprit, ns: 4 }
        };
        let vm = VmSample { io: Some(3), pressure: Some(pressure), ..VmSample::new(VmId("a".into())) };
        let now = Batch {
            mono_ns: 1,
            unix_ns: 2,
            pcpus: vec![of(0), of(1)],
            vms: vec![vm.clone()],
            pressure: Some(pressure),
            blame: vec![blame(Some("lxc web"))],
            ..Batch::default()
        };
        let expected = Batch {
            vms: vec![VmSample { pressure: None, ..vm }],
            pressure: None,
            blame: vec![blame(None)],
            ..now.clone()
        };
        assert_eq!(from_older(&now), expected, "missing, not 0");
        // Of the host there is one figure, in one row.
        let column = rows("pcpu", &now, None).column_by_name("psi_io_full_ns").unwrap().null_count();
        assert_eq!(column, 1);
    }
}
