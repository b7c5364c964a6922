//! Any bytes are a journal or refused by name; what is read can be asked what to undo.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::path::PathBuf;
use vsteer_act::Journal;

fuzz_target!(|bytes: &[u8]| {
    let folder = std::env::temp_dir().join(format!("vsteer-fuzz-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path: PathBuf = folder.join("x.journal");
    std::fs::write(&path, bytes).unwrap();
    let listed = Journal::pending(&folder).unwrap();
    match Journal::open(&path) {
        Ok(journal) => {
            let steps = journal.plan().map_or(0, |(plan, _)| plan.steps.len());
            assert!(journal.to_undo().iter().all(|(i, _)| *i < steps));
            let _ = (journal.state(), journal.confirmed(), journal.deadline_unix_ns());
        }
        Err(fault) => {
            assert!(fault.what.contains("x.journal"), "{fault}");
            assert_eq!(listed, [path]);
        }
    }
});
