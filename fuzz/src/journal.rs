//! Any bytes are a journal or are refused by name. What is read can be asked what to undo.

use std::path::Path;
use vsteer_act::Entry;
use vsteer_act::journal::{parse, state_of, to_undo_of};
use vsteer_core::CpuSet;
use vsteer_core::nouns::{Role, Tid};
use vsteer_core::setting::{Affinity, Change};
use vsteer_host::actuate::{Former, Part, QmOption, Run};

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

/// A journal in which a step was made, set again and undone.
fn undone() -> [Entry; 9] {
    let plan = Box::new(crate::plan::of_every_kind());
    let (from, to) = (CpuSet::first(2), CpuSet::single(1));
    let (role, tid) = (Role::Vcpu(0), Tid(12));
    let former = Former {
        live: Some(Change::Affinity(Affinity { role, tid, from: from.clone(), to })),
        affinities: vec![(tid, from)],
        cpusets: vec![("/sys/fs/cgroup/cpuset/a/cpuset.cpus".into(), "0-1\n".into())],
        period_us: Some(100_000),
        definition: vec![Part {
            parent: "cputune".into(),
            tag: "vcpupin".into(),
            key: Some(("vcpu".into(), "0".into())),
            elements: vec!["<vcpupin vcpu='0' cpuset='0'/>".into()],
        }],
        files: vec![("/etc/default/grub".into(), "X=\"a\"\n".into())],
        run: Some(Run { pid: 11, start_ticks: 5 }),
        keeper: Some("qemu:///system".into()),
        qm: Some(QmOption { id: 100, name: "affinity".into(), value: Some("0-1".into()), to: "1".into() }),
        vsphere: None,
    };
    [
        Entry::Begin { plan, connect: Some("qemu:///system".into()), unix_ns: 3, sequence: 2 },
        Entry::Guarded { pid: 7 },
        Entry::Intent { step: 0, former: Box::new(former) },
        Entry::Done { step: 0 },
        Entry::Applied,
        Entry::Again { what: "the affinity: somebody changed it".into() },
        Entry::Confirmed,
        Entry::Undone { step: 0, note: Some("the VM is gone".into()) },
        Entry::RolledBack,
    ]
}

pub fn seeds() -> Vec<Vec<u8>> {
    let plan = Box::new(crate::plan::example());
    let begin = Entry::Begin { plan, connect: None, unix_ns: 1, sequence: 1 };
    let entries =
        [begin, Entry::Armed { pid: 1, deadline_unix_ns: 2 }, Entry::Done { step: 0 }, Entry::Applied];
    let line = |e: &Entry| serde_json::to_string(e).expect("an entry is plain data") + "\n";
    let text = |all: &[Entry]| all.iter().map(line).collect::<String>().into_bytes();
    vec![text(&entries), text(&undone())]
}
