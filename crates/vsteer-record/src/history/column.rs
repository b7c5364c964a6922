//! Which columns do the files of the history have? One table per kind of row.
//!
//! The tables drive writing, reading and the documentation. A reader finds columns by name, and a column that a file lacks
//! reads as "not measured". So a later version can add columns. Numbers are signed: SQL then subtracts without overflow.
//! Times are timestamps in UTC, ms. Every time span is in µs.

use super::row::{Cost, Event, EventKind, HostRow, VmRow};
use arrow_array::builder::{Int64Builder, ListBuilder, StringBuilder, UInt16Builder};
use arrow_array::types::{Int64Type, TimestampMillisecondType, UInt16Type};
use arrow_array::{
    Array, ArrayRef, BooleanArray, Float64Array, Int64Array, ListArray, PrimitiveArray, RecordBatch,
    StringArray, TimestampMillisecondArray,
};
use arrow_schema::{DataType, Field, Schema, TimeUnit};
use std::sync::Arc;
use vsteer_core::nouns::Histogram;

/// How a column reads and sets its part of a row.
pub enum Cell<R> {
    /// A moment, ms since 1970.
    Time(fn(&R) -> u64, fn(&mut R, u64)),
    /// A text.
    Text(fn(&R) -> Option<&str>, fn(&mut R, &str)),
    /// A number.
    Number(fn(&R) -> Option<u64>, fn(&mut R, Option<u64>)),
    /// A number with a fraction.
    Real(fn(&R) -> Option<f64>, fn(&mut R, Option<f64>)),
    /// Yes or no.
    Flag(fn(&R) -> bool, fn(&mut R, bool)),
    /// Two columns: the buckets of a distribution, and the number of times in each.
    Histogram(fn(&R) -> Option<&Histogram>, fn(&mut R, Histogram)),
}

/// A column, or two of a distribution.
pub struct Column<R: 'static> {
    /// Name in the files.
    pub name: &'static str,
    /// Meaning, for the documentation.
    pub meaning: &'static str,
    /// How it is read and set.
    pub cell: Cell<R>,
}

/// What sorts rows, and tells apart rows that are not the same.
pub type Key<'a> = (&'a str, &'a str, u64, &'a str, &'a str, &'a str);

/// A kind of row.
pub trait Row: Default + Clone + Send + 'static {
    /// The columns.
    const COLUMNS: &'static [Column<Self>];
    /// Two rows of one key are the same row.
    fn key(&self) -> Key<'_>;
    /// Start of the row, ms since 1970.
    fn unix_ms(&self) -> u64;
}

macro_rules! number {
    ($name:ident, $meaning:literal) => {
        Column {
            name: stringify!($name),
            meaning: $meaning,
            cell: Cell::Number(|r| r.$name, |r, v| r.$name = v),
        }
    };
    ($name:ident always, $meaning:literal) => {
        Column {
            name: stringify!($name),
            meaning: $meaning,
            cell: Cell::Number(|r| Some(r.$name), |r, v| r.$name = v.unwrap_or(0)),
        }
    };
    ($name:literal of $kind:ident, $meaning:literal) => {
        Column {
            name: $name,
            meaning: $meaning,
            cell: Cell::Number(|r| r.stalled_us.$kind, |r, v| r.stalled_us.$kind = v),
        }
    };
}

macro_rules! text {
    ($name:ident, $meaning:literal) => {
        Column {
            name: stringify!($name),
            meaning: $meaning,
            cell: Cell::Text(|r| r.$name.as_deref(), |r, v| r.$name = Some(v.to_owned())),
        }
    };
    ($name:ident always, $meaning:literal) => {
        Column {
            name: stringify!($name),
            meaning: $meaning,
            cell: Cell::Text(|r| Some(&r.$name), |r, v| r.$name = v.to_owned()),
        }
    };
}

macro_rules! flag {
    ($name:ident, $meaning:literal) => {
        Column {
            name: stringify!($name),
            meaning: $meaning,
            cell: Cell::Flag(|r| r.$name, |r, v| r.$name = v),
        }
    };
}

macro_rules! time {
    ($meaning:literal) => {
        Column { name: "time", meaning: $meaning, cell: Cell::Time(|r| r.unix_ms, |r, v| r.unix_ms = v) }
    };
}

/// The culprit of this rank.
macro_rules! culprit {
    ($rank:literal, $name:literal) => {
        Column {
            name: $name,
            meaning: "Who made the VM wait, in order of time; null: nobody, or not measured",
            cell: Cell::Text(
                |r| Some(&r.costs.get($rank)?.culprit),
                |r, v| at(&mut r.costs, $rank).culprit = v.to_owned(),
            ),
        }
    };
}

/// The time of the culprit of this rank.
macro_rules! cost {
    ($rank:literal, $name:literal) => {
        Column {
            name: $name,
            meaning: "How long the VM's threads waited because of that culprit",
            cell: Cell::Number(
                |r| Some(r.costs.get($rank)?.us),
                |r, v| {
                    if let Some(us) = v {
                        at(&mut r.costs, $rank).us = us;
                    }
                },
            ),
        }
    };
}

fn at(costs: &mut Vec<Cost>, rank: usize) -> &mut Cost {
    while costs.len() <= rank {
        costs.push(Cost::default());
    }
    &mut costs[rank]
}

impl Row for VmRow {
    const COLUMNS: &'static [Column<VmRow>] = &[
        time!("Start of the minute or hour, UTC"),
        text!(vm always, "Id of the VM"),
        text!(name always, "Name of the VM then"),
        number!(vcpus, "Number of vCPUs; null: not known"),
        number!(samples always, "Samples that the row is made from"),
        number!(covered_us always, "Time in which the VM was observed"),
        flag!(of_group, "Times are those of the VM's group, as ESXi counts it; otherwise sums over vCPUs"),
        number!(run_us, "On a pCPU"),
        number!(ready_us, "Ready to run, without a pCPU and not limited"),
        number!(wait_us, "Ready and limited together"),
        number!(limited_us, "Limited by a quota"),
        flag!(limited_is_estimate, "limited_us is an estimate"),
        number!(costop_us, "Held back so that sibling vCPUs catch up"),
        number!(lag_us, "Ready while a sibling vCPU ran"),
        number!(wakeups, "Wake-ups of the vCPUs"),
        number!(wake_p50_us, "From wake-up to running, median"),
        number!(wake_p99_us, "From wake-up to running, 99th percentile"),
        number!(wake_max_us, "From wake-up to running, upper edge of the last bucket in use"),
        culprit!(0, "culprit_1"),
        cost!(0, "culprit_1_us"),
        culprit!(1, "culprit_2"),
        cost!(1, "culprit_2_us"),
        culprit!(2, "culprit_3"),
        cost!(2, "culprit_3_us"),
        Column {
            name: "wake",
            meaning: "Times from wake-up to running: buckets, and the number in each. Only in rows of hours",
            cell: Cell::Histogram(|r| r.wake.as_ref(), |r, v| r.wake = Some(v)),
        },
    ];

    // By name, so that the rows of a VM lie together also after a restart.
    fn key(&self) -> Key<'_> {
        (&self.name, &self.vm, self.unix_ms, "", "", "")
    }

    fn unix_ms(&self) -> u64 {
        self.unix_ms
    }
}

impl Row for HostRow {
    const COLUMNS: &'static [Column<HostRow>] = &[
        time!("Start of the minute or hour, UTC"),
        number!(samples always, "Samples that the row is made from"),
        number!(covered_us always, "Time in which the host was observed"),
        number!(pcpus, "Number of pCPUs; null: not read"),
        number!(busy_us, "Time in which pCPUs were not idle, summed over pCPUs"),
        number!(run_us, "VMs on a pCPU, summed over VMs"),
        number!(ready_us, "VMs ready, without a pCPU and not limited, summed over VMs"),
        number!(wait_us, "VMs ready or limited, summed over VMs"),
        number!(limited_us, "VMs limited by a quota, summed over VMs"),
        number!(costop_us, "VMs co-stopped, summed over VMs"),
        number!("psi_cpu_some_us" of cpu_some, "At least one task waited for a CPU"),
        number!("psi_io_some_us" of io_some, "At least one task waited for I/O"),
        number!("psi_io_full_us" of io_full, "Tasks waited for I/O and none could run"),
        number!("psi_memory_some_us" of memory_some, "At least one task waited for memory"),
        number!("psi_memory_full_us" of memory_full, "Tasks waited for memory and none could run"),
        number!(vms always, "Number of VMs; of an hour, the most at a time"),
        number!(findings always, "Number of findings; of an hour, the most at a time"),
    ];

    fn key(&self) -> Key<'_> {
        ("", "", self.unix_ms, "", "", "")
    }

    fn unix_ms(&self) -> u64 {
        self.unix_ms
    }
}

impl Row for Event {
    const COLUMNS: &'static [Column<Event>] = &[
        time!("When, UTC"),
        Column {
            name: "kind",
            meaning: "What happened: observing, stopped, came, went, restarted, changed, finding_began, finding_ended, plan_applied, plan_undone",
            cell: Cell::Text(|r| Some(r.kind.name()), |r, v| r.kind = EventKind::of(v).unwrap_or_default()),
        },
        text!(vm, "Id of the VM; null: the host"),
        text!(name, "Name of the VM"),
        text!(rule, "Rule of the finding"),
        text!(text always, "One sentence for people"),
        text!(setting, "Setting that changed"),
        text!(old, "Value of the setting before"),
        text!(new, "Value of the setting now"),
        Column {
            name: "loss_pcpus",
            meaning: "Time lost to the finding, in pCPUs",
            cell: Cell::Real(|r| r.loss_pcpus, |r, v| r.loss_pcpus = v),
        },
    ];

    fn key(&self) -> Key<'_> {
        ("", "", self.unix_ms, self.kind.name(), self.vm.as_deref().unwrap_or_default(), &self.text)
    }

    fn unix_ms(&self) -> u64 {
        self.unix_ms
    }
}

fn list_of(item: DataType) -> DataType {
    DataType::List(Arc::new(Field::new_list_field(item, true)))
}

/// The columns that a file has: distributions only if `whole`.
fn columns<R: Row>(whole: bool) -> impl Iterator<Item = &'static Column<R>> {
    R::COLUMNS.iter().filter(move |c| whole || !matches!(c.cell, Cell::Histogram(..)))
}

/// The schema of files of these rows.
pub fn schema<R: Row>(whole: bool) -> Arc<Schema> {
    let mut fields = Vec::new();
    for column in columns::<R>(whole) {
        let one = |kind: DataType| Field::new(column.name, kind, true);
        match column.cell {
            Cell::Time(..) => {
                let kind = DataType::Timestamp(TimeUnit::Millisecond, Some("UTC".into()));
                fields.push(Field::new(column.name, kind, false));
            }
            Cell::Text(..) => fields.push(one(DataType::Utf8)),
            Cell::Number(..) => fields.push(one(DataType::Int64)),
            Cell::Real(..) => fields.push(one(DataType::Float64)),
            Cell::Flag(..) => fields.push(one(DataType::Boolean)),
            Cell::Histogram(..) => {
                let name = column.name;
                fields.push(Field::new(format!("{name}_bucket"), list_of(DataType::UInt16), true));
                fields.push(Field::new(format!("{name}_count"), list_of(DataType::Int64), true));
            }
        }
    }
    Arc::new(Schema::new(fields))
}

/// Numbers of a file are signed. What does not fit was never counted.
fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// Rows as columns.
///
/// # Panics
/// If columns and schema disagree, which would be a bug here.
pub fn batch<R: Row>(rows: &[R], whole: bool) -> RecordBatch {
    let mut all: Vec<ArrayRef> = Vec::new();
    for column in columns::<R>(whole) {
        match &column.cell {
            Cell::Time(get, _) => {
                let times: TimestampMillisecondArray = rows.iter().map(|r| Some(signed(get(r)))).collect();
                all.push(Arc::new(times.with_timezone("UTC")));
            }
            Cell::Text(get, _) => {
                let mut texts = StringBuilder::new();
                rows.iter().for_each(|r| texts.append_option(get(r)));
                all.push(Arc::new(texts.finish()));
            }
            Cell::Number(get, _) => {
                all.push(Arc::new(rows.iter().map(|r| get(r).map(signed)).collect::<Int64Array>()));
            }
            Cell::Real(get, _) => all.push(Arc::new(rows.iter().map(get).collect::<Float64Array>())),
            Cell::Flag(get, _) => {
                all.push(Arc::new(rows.iter().map(|r| Some(get(r))).collect::<BooleanArray>()));
            }
            Cell::Histogram(get, _) => all.extend(lists(rows.iter().map(get))),
        }
    }
    RecordBatch::try_new(schema::<R>(whole), all).expect("the columns are made by the schema above")
}

fn lists<'a>(rows: impl Iterator<Item = Option<&'a Histogram>>) -> [ArrayRef; 2] {
    let (mut buckets, mut counts) =
        (ListBuilder::new(UInt16Builder::new()), ListBuilder::new(Int64Builder::new()));
    for row in rows {
        for (bucket, count) in row.iter().flat_map(|h| &h.counts) {
            buckets.values().append_value(*bucket);
            counts.values().append_value(signed(*count));
        }
        buckets.append(row.is_some());
        counts.append(row.is_some());
    }
    [Arc::new(buckets.finish()), Arc::new(counts.finish())]
}

fn list<T: arrow_array::ArrowPrimitiveType>(from: Option<&ListArray>, row: usize) -> Option<Vec<T::Native>> {
    let items = from.filter(|a| a.is_valid(row))?.value(row);
    Some(items.as_any().downcast_ref::<PrimitiveArray<T>>()?.values().to_vec())
}

/// Sets one part of a row from a record batch.
type Set<'a, R> = Box<dyn Fn(usize, &mut R) + 'a>;

/// How to read one column of `from`; `None` if it is not there or has another type.
fn setter<'a, R: Row>(from: &'a RecordBatch, column: &'static Column<R>) -> Option<Set<'a, R>> {
    let named = |name: &str| from.column_by_name(name).map(|c| c.as_any());
    Some(match &column.cell {
        Cell::Time(_, set) => {
            let a = named(column.name)?.downcast_ref::<PrimitiveArray<TimestampMillisecondType>>()?;
            Box::new(move |i, row| set(row, u64::try_from(a.value(i)).unwrap_or(0)))
        }
        Cell::Text(_, set) => {
            let a = named(column.name)?.downcast_ref::<StringArray>()?;
            Box::new(move |i, row| {
                if a.is_valid(i) {
                    set(row, a.value(i))
                }
            })
        }
        Cell::Number(_, set) => {
            let a = named(column.name)?.downcast_ref::<PrimitiveArray<Int64Type>>()?;
            Box::new(move |i, row| {
                set(row, a.is_valid(i).then(|| u64::try_from(a.value(i)).unwrap_or(0)));
            })
        }
        Cell::Real(_, set) => {
            let a = named(column.name)?.downcast_ref::<Float64Array>()?;
            Box::new(move |i, row| set(row, a.is_valid(i).then(|| a.value(i)).filter(|v| v.is_finite())))
        }
        Cell::Flag(_, set) => {
            let a = named(column.name)?.downcast_ref::<BooleanArray>()?;
            Box::new(move |i, row| set(row, a.is_valid(i) && a.value(i)))
        }
        Cell::Histogram(_, set) => {
            let lists = |end| named(&format!("{}_{end}", column.name))?.downcast_ref::<ListArray>();
            let (buckets, counts) = (lists("bucket"), lists("count"));
            Box::new(move |i, row| {
                if let (Some(b), Some(c)) = (list::<UInt16Type>(buckets, i), list::<Int64Type>(counts, i)) {
                    set(row, histogram(&b, &c));
                }
            })
        }
    })
}

/// A file may hold any numbers: buckets that do not ascend, or that do not exist, are left out.
pub fn histogram(buckets: &[u16], counts: &[i64]) -> Histogram {
    let mut all = Histogram::default();
    for (bucket, count) in buckets.iter().zip(counts) {
        let ascends = all.counts.last().is_none_or(|(last, _)| last < bucket);
        let exists = usize::from(*bucket) < vsteer_core::nouns::HISTOGRAM_BUCKETS;
        if let Some(count) = u64::try_from(*count).ok().filter(|n| *n > 0 && ascends && exists) {
            all.counts.push((*bucket, count));
        }
    }
    all
}

/// The rows of a record batch that `wanted` accepts. `wanted` sees the texts and the time of the row.
pub fn rows<R: Row>(from: &RecordBatch, wanted: &dyn Fn(&R) -> bool) -> Vec<R> {
    let quick = |c: &&'static Column<R>| matches!(c.name, "time" | "vm" | "name");
    let first: Vec<Set<'_, R>> = R::COLUMNS.iter().filter(quick).filter_map(|c| setter(from, c)).collect();
    let rest: Vec<Set<'_, R>> =
        R::COLUMNS.iter().filter(|c| !quick(c)).filter_map(|c| setter(from, c)).collect();
    let mut found = Vec::new();
    for i in 0..from.num_rows() {
        let mut row = R::default();
        first.iter().for_each(|set| set(i, &mut row));
        if wanted(&row) {
            rest.iter().for_each(|set| set(i, &mut row));
            found.push(row);
        }
    }
    found
}

/// A column for the documentation: table, name, meaning.
pub type Documented = (&'static str, &'static str, &'static str);

/// Every column of every kind of row. The tables of minutes and hours have the same columns.
pub fn documented() -> Vec<Documented> {
    fn of<R: Row>(table: &'static str) -> impl Iterator<Item = Documented> {
        R::COLUMNS.iter().map(move |c| (table, c.name, c.meaning))
    }
    of::<VmRow>("vm").chain(of::<HostRow>("host")).chain(of::<Event>("timeline")).collect()
}
