//! Any bytes are a journal or are refused by name. What is read can be asked what to undo.

use std::path::Path;
use vsteer_act::Entry;
use vsteer_act::journal::{parse, state_of, to_undo_of};

pub fn run(bytes: &[u8]) -> bool {
    match parse(bytes, Path::new("x.journal")) {
        Ok((entries, whole)) => {
            assert!(whole <= bytes.len() as u64);
            let steps = match entries.first() {
                Some(Entry::Begin { plan, .. }) => plan.steps.len(),
                _ => 0,
            };
            assert!(to_undo_of(&entries).iter().all(|(i, _)| *i < steps));
            let _ = state_of(&entries);
            !entries.is_empty()
        }
        Err(fault) => {
            assert!(fault.what.contains("x.journal"), "{fault}");
            false
        }
    }
}

pub fn seeds() -> Vec<Vec<u8>> {
    let plan = Box::new(crate::plan::example());
    let begin = Entry::Begin { plan, connect: None, unix_ns: 1, sequence: 1 };
    let entries =
        [begin, Entry::Armed { pid: 1, deadline_unix_ns: 2 }, Entry::Done { step: 0 }, Entry::Applied];
    let lines = entries.map(|e| serde_json::to_string(&e).expect("an entry is plain data") + "\n");
    vec![lines.concat().into_bytes()]
}
