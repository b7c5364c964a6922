//! Any text is a workload of rt-app, or is refused. A workload is read back from its own text as it was.

use vsteer_record::rt_app::{read, text};

pub fn run(bytes: &[u8]) -> bool {
    let Ok(workload) = read(crate::text(bytes)) else { return false };
    assert_eq!(read(&text(&workload)).as_ref(), Ok(&workload));
    true
}

pub fn seeds() -> Vec<Vec<u8>> {
    crate::seeds_of(&[
        r#"{"tasks": {"a": {"run": 10, "timer": {"ref": "unique", "period": 100}}}}"#,
        r#"{"global": {"duration": 2}, /* b */ "tasks": {"b": {"instance": 2, "cpus": [0], "policy": "SCHED_RR",
            "phases": {"p": {"loop": -1, "run": 1, "sleep": 2,}}}}} // end"#,
    ])
}
