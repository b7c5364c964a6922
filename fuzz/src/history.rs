//! A history of which a file or a line holds any bytes is read, or the bytes are refused.

use vsteer_record::history::memory::{examples, read_file, read_line};

/// The first byte of an input chooses: a line of the journal, or a Parquet file.
const LINE: u8 = 0;

pub fn run(bytes: &[u8]) -> bool {
    match bytes.split_first() {
        Some((&LINE, line)) => read_line(line),
        Some((_, file)) => read_file(file).is_ok(),
        None => false,
    }
}

pub fn seeds() -> Vec<Vec<u8>> {
    let (line, files) = examples();
    let line = [&[LINE][..], &line].concat();
    std::iter::once(line).chain(files.into_iter().map(|file| [&[1][..], &file].concat())).collect()
}
