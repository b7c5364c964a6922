//! Any text is the description of a host beside a batch file of esxtop, or is refused; so is the batch file with it.

use std::io::Cursor;
use vsteer_record::esxtop::beside::Beside;
use vsteer_record::esxtop::{Input, Reader};

const BATCH: &str = "\"(PDH-CSV 4.0) (UTC)(0)\",\"\\\\h\\Group Cpu(7:web)\\% Run\",\"\\\\h\\Physical Cpu(0)\\% Util Time\"\r\n\
\"11/24/2026 08:00:00\",\"1\",\"1\"\r\n\"11/24/2026 08:00:05\",\"1\",\"1\"\r\n";

pub fn run(bytes: &[u8]) -> bool {
    let Ok(beside) = Beside::parse(crate::text(bytes)) else { return false };
    let input = Input::of(Cursor::new(BATCH)).unwrap();
    let Ok(mut reader) = Reader::of(input, "file".to_owned(), beside) else { return false };
    while let Ok(Some(_)) = reader.sample() {}
    let _ = reader.config();
    true
}

pub fn seeds() -> Vec<Vec<u8>> {
    crate::seeds_of(&[
        "esxi = \"7.0.2\"\nsockets = 1\ncores_per_socket = 1\nmemory_gib = 4\n[[vm]]\nname = \"web\"\n\
vcpus = 1\nmemory_gib = 1\nhome_nodes = [0]\nnode_affinity = [0]\ncores_per_socket = 1\ncpu_hot_add = false\n",
    ])
}
