//! Any bytes after the first words of a batch file of esxtop are read or refused. No counter falls, no time runs back, and
//! what was read can be written and read again.

use std::io::Cursor;
use vsteer_core::model;
use vsteer_record::esxtop::beside::Beside;
use vsteer_record::esxtop::{Input, Reader, write};

fn opened(bytes: Vec<u8>) -> Option<Reader> {
    let input = Input::of(Cursor::new(bytes)).expect("memory is read");
    Reader::of(input, "file".to_owned(), Beside::default()).ok()
}

pub fn run(bytes: &[u8]) -> bool {
    let mut text = b"\"(PDH-CSV 4.0) (UTC)(0)\",".to_vec();
    text.extend_from_slice(bytes);
    let Some(mut reader) = opened(text) else { return false };
    let mut batches = Vec::new();
    while let Ok(Some(batch)) = reader.sample() {
        batches.push(batch);
    }
    assert!(batches.windows(2).all(|w| w[0].mono_ns < w[1].mono_ns));
    let Ok(config) = reader.config() else { return false };
    if batches.len() > 1 {
        model::derive(&config, &reader.collector(), &batches).expect("two samples are enough");
    }
    let mut written = Vec::new();
    write::samples(&[&config], &batches, &mut written).expect("memory has room");
    assert!(opened(written).is_some() || batches.is_empty());
    true
}

pub fn seeds() -> Vec<Vec<u8>> {
    let column = |name: &str| format!("\"\\\\h\\{name}\"");
    let names =
        ["Group Cpu(7:web)\\% Run", "Vcpu(7:web:9:vmx-vcpu-0:web)\\% Ready", "Physical Cpu(0)\\% Util Time"];
    let header = names.map(column).join(",");
    let rows =
        "\r\n\"11/24/2026 08:00:00\",\"1\",\"2\",\"3\"\r\n\"11/24/2026 08:00:05\",\"1\",\"2\",\"3\"\r\n";
    vec![format!("{header}{rows}").into_bytes()]
}
