//! Any bytes are named as what they are, or are unknown. A name and help are never empty.

use vsteer_record::sniff::what_is;

pub fn run(bytes: &[u8]) -> bool {
    let Some(known) = what_is(bytes) else { return false };
    assert!(!known.name.is_empty() && !known.help.is_empty());
    true
}

pub fn seeds() -> Vec<Vec<u8>> {
    let texts = [
        "{\"a\": 1}",
        "<!DOCTYPE html>",
        "\"Time\",\"Readiness\"\n1,2\n",
        "a\tb\n1\t2\n",
        "PK\u{3}\u{4}[Content_Types].xml",
        "\"(PDH-CSV 4.0)\",\"\\\\h\\Group Cpu(1:a)\\% Run\"\n",
    ];
    let gzip = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3, 0x4b, 0xe4, 2, 0, 7, 0xa1, 0xea, 0xdd, 2, 0, 0, 0];
    texts
        .iter()
        .map(|text| text.as_bytes().to_vec())
        .chain([gzip.to_vec(), b"(\0P\0D\0H\0".to_vec()])
        .collect()
}
