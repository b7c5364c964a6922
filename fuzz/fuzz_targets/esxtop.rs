//! Any bytes after the first words of a batch file of esxtop's are read or refused; no counter falls, no time runs back, and
//! what was read can be written and read again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::io::Cursor;
use vsteer_core::model;
use vsteer_record::esxtop::beside::Beside;
use vsteer_record::esxtop::{Input, Reader, write};

fuzz_target!(|bytes: &[u8]| {
    let mut text = b"\"(PDH-CSV 4.0) (UTC)(0)\",".to_vec();
    text.extend_from_slice(bytes);
    let input = Input::of(Cursor::new(text)).unwrap();
    let Ok(mut reader) = Reader::of(input, "file".to_owned(), Beside::default()) else { return };
    let mut batches = Vec::new();
    while let Ok(Some(batch)) = reader.sample() {
        batches.push(batch);
    }
    assert!(batches.windows(2).all(|w| w[0].mono_ns < w[1].mono_ns));
    let Ok(config) = reader.config() else { return };
    if batches.len() > 1 {
        model::derive(&config, &reader.collector(), &batches).unwrap();
    }
    let mut written = Vec::new();
    write::samples(&[&config], &batches, &mut written).unwrap();
    let input = Input::of(Cursor::new(written)).unwrap();
    assert!(Reader::of(input, "again".to_owned(), Beside::default()).is_ok() || batches.is_empty());
});
