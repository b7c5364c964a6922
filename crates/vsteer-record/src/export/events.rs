//! Exports the recorded context switches as a table with one column per value, for Parquet and CSV.
//!
//! There is one row per switch, in order of time per pCPU. Columns: `ns` (`CLOCK_MONOTONIC`), `cpu`, the
//! thread that left (`prev`, `prev_tid`, `prev_state`: the kernel's state; 0 means it could run on), the
//! thread that got the pCPU (`next`, `next_tid`; thread 0 is idle). A row with `lost` stands for this number
//! of switches lost after `ns`. A row with `woken` and `woken_tid` is a wake-up of a VM's thread. In these
//! two kinds of rows the other columns are null, except `cpu`.

use super::names::Names;
use crate::folder::Recording;
use arrow_array::builder::{PrimitiveBuilder, StringBuilder};
use arrow_array::types::{UInt16Type, UInt32Type, UInt64Type};
use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{DataType, Field, Schema};
use std::sync::Arc;
use vsteer_core::Fault;
use vsteer_core::timeline::Switch;

/// Rows per batch.
const ROWS: usize = 1 << 16;

pub(super) fn schema() -> Arc<Schema> {
    let required = |name: &str, of| Field::new(name, of, false);
    let optional = |name: &str, of| Field::new(name, of, true);
    Arc::new(Schema::new(vec![
        required("ns", DataType::UInt64),
        required("cpu", DataType::UInt32),
        optional("prev", DataType::Utf8),
        optional("prev_tid", DataType::UInt32),
        optional("prev_state", DataType::UInt16),
        optional("next", DataType::Utf8),
        optional("next_tid", DataType::UInt32),
        optional("lost", DataType::UInt32),
        optional("woken", DataType::Utf8),
        optional("woken_tid", DataType::UInt32),
    ]))
}

#[derive(Default)]
struct Rows {
    ns: PrimitiveBuilder<UInt64Type>,
    cpu: PrimitiveBuilder<UInt32Type>,
    prev: StringBuilder,
    prev_tid: PrimitiveBuilder<UInt32Type>,
    prev_state: PrimitiveBuilder<UInt16Type>,
    next: StringBuilder,
    next_tid: PrimitiveBuilder<UInt32Type>,
    lost: PrimitiveBuilder<UInt32Type>,
    woken: StringBuilder,
    woken_tid: PrimitiveBuilder<UInt32Type>,
    count: usize,
}

impl Rows {
    fn push(&mut self, s: &Switch, names: &Names<'_>) {
        let (lost, woken, there) = (s.lost(), s.woken(), s.is_switch());
        self.ns.append_value(s.ns);
        self.cpu.append_value(s.cpu);
        self.prev.append_option(there.then(|| names.of(s.prev, s.ns)));
        self.prev_tid.append_option(there.then_some(s.prev.0));
        self.prev_state.append_option(there.then_some(s.prev_state));
        self.next.append_option(there.then(|| names.of(s.next, s.ns)));
        self.next_tid.append_option(there.then_some(s.next.0));
        self.lost.append_option(lost);
        self.woken.append_option(woken.map(|tid| names.of(tid, s.ns)));
        self.woken_tid.append_option(woken.map(|tid| tid.0));
        self.count += 1;
    }

    fn finish(&mut self) -> RecordBatch {
        self.count = 0;
        let columns: Vec<ArrayRef> = vec![
            Arc::new(self.ns.finish()),
            Arc::new(self.cpu.finish()),
            Arc::new(self.prev.finish()),
            Arc::new(self.prev_tid.finish()),
            Arc::new(self.prev_state.finish()),
            Arc::new(self.next.finish()),
            Arc::new(self.next_tid.finish()),
            Arc::new(self.lost.finish()),
            Arc::new(self.woken.finish()),
            Arc::new(self.woken_tid.finish()),
        ];
        RecordBatch::try_new(schema(), columns).expect("the columns are made by the schema above")
    }
}

/// Passes every recorded switch on, some rows at a time. Returns one line for each part that could not be
/// read.
pub(super) fn each(
    recording: &Recording,
    mut give: impl FnMut(RecordBatch) -> Result<(), Fault>,
) -> Result<Vec<String>, Fault> {
    let names = Names::of_recording(recording);
    let mut rows = Rows::default();
    let notes = recording.each_switch(|s| -> Result<(), Fault> {
        rows.push(&s, &names);
        if rows.count == ROWS { give(rows.finish()) } else { Ok(()) }
    })?;
    give(rows.finish())?;
    Ok(notes)
}
