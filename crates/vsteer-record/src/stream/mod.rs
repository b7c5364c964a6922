//! Answers of the service as streams of Arrow: a table with a fixed schema, in Arrow's IPC streaming format.
//!
//! Polars, pandas and DuckDB read such a stream without a guess at types. The schema of a table does not depend on its rows: a
//! column that was not measured is there, and null. The schema's metadata say what the head of the JSON answer says.
//!
//! Rows of samples have the fields of their JSON form, where `vcpus.run` is field `run` of `vcpus` ([`Table`]); lists are left
//! out. Rows of the history have the columns of its files.
//!
//! Source: the specification of Arrow's columnar format, "IPC Streaming Format".

mod model;

pub use model::{MODEL_TABLES, ModelTable, model};

use crate::history::{Row, batch_of};
use arrow_array::{ArrayRef, BooleanArray, Float64Array, Int64Array, RecordBatch, StringArray};
use arrow_ipc::writer::StreamWriter;
use arrow_schema::{ArrowError, DataType, Field, Schema};
use serde_json::Value;
use std::collections::HashMap;
use std::sync::Arc;

/// The media type of a stream.
pub const MEDIA_TYPE: &str = "application/vnd.apache.arrow.stream";

/// What the schema's metadata say: names and values.
pub type About = Vec<(&'static str, String)>;

/// A column: how to reach its value, and its type.
struct Column {
    path: Vec<String>,
    kind: DataType,
}

/// The columns of rows that JSON can hold.
pub struct Table(Vec<Column>);

fn columns(value: &Value, path: &mut Vec<String>, found: &mut Vec<Column>) {
    let kind = match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                path.push(name.clone());
                columns(value, path, found);
                path.pop();
            }
            return;
        }
        Value::String(_) => DataType::Utf8,
        Value::Bool(_) => DataType::Boolean,
        Value::Number(n) if n.is_f64() => DataType::Float64,
        Value::Number(_) => DataType::Int64,
        Value::Array(_) | Value::Null => return,
    };
    found.push(Column { path: path.clone(), kind });
}

impl Column {
    fn of<'v>(&self, row: &'v Value) -> &'v Value {
        self.path.iter().fold(row, |value, name| &value[name.as_str()])
    }

    fn array(&self, rows: &[Value]) -> ArrayRef {
        let all = rows.iter().map(|row| self.of(row));
        match self.kind {
            DataType::Utf8 => Arc::new(all.map(Value::as_str).collect::<StringArray>()),
            DataType::Boolean => Arc::new(all.map(Value::as_bool).collect::<BooleanArray>()),
            DataType::Int64 => {
                let signed = |v: &Value| v.as_u64().map(|n| i64::try_from(n).unwrap_or(i64::MAX));
                Arc::new(all.map(|v| v.as_i64().or_else(|| signed(v))).collect::<Int64Array>())
            }
            _ => Arc::new(all.map(Value::as_f64).collect::<Float64Array>()),
        }
    }
}

impl Table {
    /// The columns of rows like this one, in which nothing is null.
    pub fn like(example: &Value) -> Table {
        let mut found = Vec::new();
        columns(example, &mut Vec::new(), &mut found);
        Table(found)
    }

    /// Rows as a stream.
    pub fn stream(&self, rows: &[Value], about: &About) -> Vec<u8> {
        let field = |c: &Column| Field::new(c.path.join("."), c.kind.clone(), true);
        let schema = Schema::new(self.0.iter().map(field).collect::<Vec<_>>());
        let arrays = self.0.iter().map(|column| column.array(rows)).collect();
        let batch = RecordBatch::try_new(Arc::new(schema), arrays);
        encoded(&batch.expect("each column has its type and a value for each row"), about)
    }
}

/// Rows of the history as a stream.
pub fn history<R: Row>(rows: &[R], about: &About) -> Vec<u8> {
    encoded(&batch_of(rows), about)
}

fn encoded(batch: &RecordBatch, about: &About) -> Vec<u8> {
    let metadata: HashMap<String, String> = about.iter().map(|(k, v)| ((*k).to_owned(), v.clone())).collect();
    let schema = Arc::new(batch.schema().as_ref().clone().with_metadata(metadata));
    let write = || -> Result<Vec<u8>, ArrowError> {
        let mut writer = StreamWriter::try_new(Vec::new(), &schema)?;
        writer.write(&batch.clone().with_schema(Arc::clone(&schema))?)?;
        writer.finish()?;
        writer.into_inner()
    };
    write().expect("memory takes all")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::{Cost, HostRow, VmRow};
    use arrow_array::Array;
    use arrow_array::cast::AsArray;
    use arrow_array::types::{Float64Type, Int64Type, TimestampMillisecondType};
    use arrow_ipc::reader::StreamReader;
    use serde_json::json;

    fn read(bytes: &[u8]) -> RecordBatch {
        let mut reader = StreamReader::try_new(bytes, None).unwrap();
        let batch = reader.next().unwrap().unwrap();
        assert!(reader.next().is_none());
        batch
    }

    #[test]
    fn a_value_that_was_not_measured_is_null_in_a_column_of_its_type() {
        let table =
            Table::like(&json!({ "name": "", "of": { "run": 0.0, "count": 1 }, "is": true, "list": [1] }));
        let rows = [
            json!({ "name": "a", "of": { "run": 1, "count": u64::MAX }, "is": false }),
            json!({ "of": null }),
        ];
        let batch = read(&table.stream(&rows, &vec![("schema", "vsteer.state/1".to_owned())]));
        let schema = batch.schema();
        assert_eq!(schema.metadata()["schema"], "vsteer.state/1");
        let names: Vec<_> = schema.fields().iter().map(|f| f.name().as_str()).collect();
        assert_eq!(names, ["is", "name", "of.count", "of.run"]);
        assert_eq!(batch.column(2).as_primitive::<Int64Type>().value(0), i64::MAX);
        assert_eq!(batch.column(3).as_primitive::<Float64Type>().value(0), 1.0);
        assert!((0..4).all(|i| batch.column(i).is_null(1)));
        let none = read(&table.stream(&[], &Vec::new()));
        assert_eq!((none.num_rows(), none.schema().fields()), (0, schema.fields()), "the schema stays");
    }

    /// Other programs read what vsteer writes: values, nulls, types and metadata. To run it:
    /// `python3 -m venv V && V/bin/pip install pyarrow polars`, then with `VSTEER_PYTHON=V/bin/python` this test with `--ignored`.
    #[test]
    #[ignore = "needs VSTEER_PYTHON: a python3 with pyarrow and polars"]
    fn pyarrow_and_polars_read_a_stream() {
        const CHECK: &str = "\
import sys, pyarrow.ipc, polars
table = pyarrow.ipc.open_stream(sys.argv[1]).read_all()
table.validate(full=True)
assert table.schema.metadata == {b'schema': b'vsteer.state/1'}, table.schema.metadata
types = {f.name: str(f.type) for f in table.schema}
assert types['vcpus.run'] == 'double' and types['wake_latency.count'] == 'int64' and types['name'] == 'string', types
assert table.column('vcpus.run').to_pylist() == [0.5, None]
frame = polars.read_ipc_stream(sys.argv[1])
assert frame['name'].to_list() == ['web', 'db'] and frame['vcpus.run'].null_count() == 1
history = polars.read_ipc_stream(sys.argv[2])
assert history['time'].dtype == polars.Datetime('ms', 'UTC') and history['ready_us'].to_list() == [7]
assert history['wake_count'].to_list() == [[3, 4]]";
        let row = |name: &str, run: Value| json!({ "name": name, "vcpus": { "run": run } });
        let (table, _) = model(&MODEL_TABLES[0], None);
        let about = vec![("schema", "vsteer.state/1".to_owned())];
        let vms = table.stream(&[row("web", json!(0.5)), row("db", Value::Null)], &about);
        let wake = Some(vsteer_core::nouns::Histogram { counts: vec![(40, 3), (41, 4)] });
        let hour = VmRow { unix_ms: 3_600_000, ready_us: Some(7), wake, ..VmRow::default() };
        let folder = tempfile::tempdir().unwrap();
        let files = [("vms", vms), ("history", history(&[hour], &about))].map(|(name, bytes)| {
            let path = folder.path().join(name);
            std::fs::write(&path, bytes).unwrap();
            path
        });
        let python = std::env::var("VSTEER_PYTHON").expect("VSTEER_PYTHON names a python3");
        let status = std::process::Command::new(python).args(["-c", CHECK]).args(files).status().unwrap();
        assert!(status.success());
    }

    #[test]
    fn rows_of_the_history_have_the_columns_of_its_files() {
        let row = VmRow {
            unix_ms: 60_000,
            vm: "id".into(),
            ready_us: Some(7),
            costs: vec![Cost { culprit: "process backup".into(), us: 5 }],
            ..VmRow::default()
        };
        let batch = read(&history(&[row], &Vec::new()));
        let column = |name: &str| batch.column_by_name(name).unwrap();
        assert_eq!(column("time").as_primitive::<TimestampMillisecondType>().value(0), 60_000);
        assert_eq!(column("ready_us").as_primitive::<Int64Type>().value(0), 7);
        assert_eq!(column("culprit_1").as_string::<i32>().value(0), "process backup");
        assert!(column("run_us").is_null(0) && column("wake_count").is_null(0));
        assert_eq!(read(&history::<HostRow>(&[], &Vec::new())).num_rows(), 0);
    }
}
