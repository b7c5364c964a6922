//! Any bytes are the manifest of a captured host or are refused. The folders that it names lie beneath it.

use vsteer_host::captured::Manifest;

pub fn run(bytes: &[u8]) -> bool {
    let Ok(manifest) = Manifest::parse(bytes) else { return false };
    assert!(manifest.looks.iter().all(|l| !l.folder.contains(['/', '.', '\\'])));
    true
}

pub fn seeds() -> Vec<Vec<u8>> {
    vec![crate::project_file("crates/vsteer/tests/captured/capture.json")]
}
