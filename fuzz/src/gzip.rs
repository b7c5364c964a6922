//! Any compressed bytes are a batch file of esxtop or are refused. Half of the inputs are compressed first, so that what
//! comes after the decompression is reached.

use flate2::Compression;
use flate2::write::GzEncoder;
use std::io::{Cursor, Write};
use vsteer_record::esxtop::beside::Beside;
use vsteer_record::esxtop::{Input, Reader};

const BATCH: &str = "\"(PDH-CSV 4.0) (UTC)(0)\",\"\\\\h\\Group Cpu(7:web)\\% Run\"\r\n\
\"11/24/2026 08:00:00\",\"1\"\r\n\"11/24/2026 08:00:05\",\"1\"\r\n";

fn packed(bytes: &[u8]) -> Vec<u8> {
    let mut gz = GzEncoder::new(Vec::new(), Compression::fast());
    gz.write_all(bytes).expect("memory has room");
    gz.finish().expect("memory has room")
}

pub fn run(bytes: &[u8]) -> bool {
    let Some((kind, rest)) = bytes.split_first() else { return false };
    let bytes = if kind & 1 == 0 { packed(rest) } else { rest.to_vec() };
    let Ok(input) = Input::of(Cursor::new(bytes)) else { return false };
    let Ok(mut reader) = Reader::of(input, "file".to_owned(), Beside::default()) else { return false };
    while let Ok(Some(_)) = reader.sample() {}
    let _ = reader.notes();
    true
}

pub fn seeds() -> Vec<Vec<u8>> {
    vec![[b"\0", BATCH.as_bytes()].concat(), [b"\x01".to_vec(), packed(BATCH.as_bytes())].concat()]
}
