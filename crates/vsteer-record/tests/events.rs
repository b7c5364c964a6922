//! Recorded switches survive what happens to writers, as samples do: cut, garbled, turned over by a ring.

use proptest::prelude::*;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use vsteer_core::CpuSet;
use vsteer_core::nouns::*;
use vsteer_core::timeline::Switch;
use vsteer_core::topology::{Parts, Topology};
use vsteer_record::{EventSummary, EventWriter, FORMAT, Manifest, Recording, Task, Writer};

/// The recording that the switches are part of.
fn begin(folder: &Path) {
    let config = HostConfig {
        hostname: "h".into(),
        machine_id: None,
        kernel: "6.18".into(),
        topology: Topology::new(Parts {
            online: CpuSet::first(2),
            present: CpuSet::first(2),
            allowed: CpuSet::first(2),
            ..Parts::default()
        })
        .unwrap(),
        cgroups: CgroupLayout::V2,
        contenders: Vec::new(),
        scheduler: None,
        vms: vec![VmConfig {
            threads: vec![VmThread {
                tid: Tid(8),
                role: Role::Vcpu(0),
                affinity: CpuSet::first(2),
                class: None,
                cgroup: None,
                prefers: None,
                reserved: None,
            }],
            ..VmConfig::new(VmId("uuid-1".into()), "web", 7)
        }],
    };
    let manifest = Manifest {
        format: FORMAT,
        vsteer: "0".into(),
        hostname: "h".into(),
        fingerprint: config.fingerprint(),
        mono_ns: 0,
        unix_ns: 1,
        collector: Collector { name: "ebpf".into(), missing: BTreeMap::new() },
    };
    // Dropped, not finished: as after SIGKILL.
    drop(Writer::create(folder, &manifest, &config, None).unwrap());
}

fn switch(i: u64) -> Switch {
    let (prev, next) = (Tid((i % 1000) as u32), Tid((i % 999) as u32 + 4_000_000));
    Switch { ns: 1_000 + i, cpu: (i % 1024) as u32, prev, prev_state: (i % 1023) as u16, next }
}

fn write(folder: &Path, n: u64, ring: Option<u64>) -> EventWriter {
    begin(folder);
    let mut w = EventWriter::create(folder, ring).unwrap();
    for i in 0..n {
        w.push(switch(i)).unwrap();
    }
    w.write().unwrap();
    w
}

#[test]
fn what_is_pushed_is_read_in_order_of_time() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("a.vsteer");
    begin(&folder);
    let mut w = EventWriter::create(&folder, None).unwrap();
    // As the kernel side hands them over: in order per pCPU only.
    let at = |ns, cpu, prev, next| Switch { ns, cpu, prev: Tid(prev), prev_state: 1, next: Tid(next) };
    let given = [at(10, 1023, 1, 2), at(40, 1023, 2, 1), at(20, 0, 4_194_303, 0), at(30, 0, 0, 8)];
    given.iter().for_each(|s| w.push(*s).unwrap());
    w.push(Switch::loss(0, 30, 512)).unwrap();
    let mut unnamed = w.unnamed();
    unnamed.sort_unstable();
    assert_eq!(unnamed, [(1, 10), (2, 10), (8, 30), (4_194_303, 20)]);
    let summary = EventSummary { recorded: w.recorded(), lost: 512, closed: true, ..EventSummary::default() };
    w.finish(&summary).unwrap();

    let r = Recording::open(&folder).unwrap();
    assert!(r.has_switches());
    assert_eq!((r.event_summary(), summary.recorded), (Some(summary.clone()), 4));
    let all = r.switches(0, u64::MAX).unwrap();
    assert_eq!(all.switches, [given[0], given[2], given[3], Switch::loss(0, 30, 512), given[1]]);
    assert!(all.notes.is_empty(), "{:?}", all.notes);
    // A window also has the last switch of each pCPU before it: who was running when it began.
    assert_eq!(r.switches(35, 100).unwrap().switches, [given[0], Switch::loss(0, 30, 512), given[1]]);
}

#[test]
fn threads_have_the_name_of_their_time() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("a.vsteer");
    let mut w = write(&folder, 1, None);
    let task = |mono_ns, tid, comm: &str| Task {
        mono_ns,
        tid: Tid(tid),
        tgid: if tid == 9 { 7 } else { tid },
        comm: comm.into(),
        vm: None,
        role: None,
    };
    for t in
        [task(5, 3, "old"), task(50, 3, "new\nline \" </script>"), task(5, 8, "CPU 0/KVM"), task(5, 9, "w")]
    {
        w.name(t).unwrap();
    }
    w.write().unwrap();
    let r = Recording::open(&folder).unwrap();
    let tasks = r.tasks();
    let comm = |tid, ns| tasks.at(Tid(tid), ns).map(|t| t.comm.clone());
    assert_eq!(comm(3, 1).as_deref(), Some("old"));
    assert_eq!(comm(3, 49).as_deref(), Some("old"));
    assert_eq!(comm(3, 50).as_deref(), Some("new\nline \" </script>"));
    assert_eq!(comm(4, 50), None);
    // What the writer did not know, the configuration says: by thread, else by process.
    let role = |tid| tasks.at(Tid(tid), 60).and_then(|t| t.role);
    assert_eq!((role(8), role(9), role(3)), (Some(Role::Vcpu(0)), Some(Role::Worker), None));
}

#[test]
fn a_thread_id_that_is_given_out_again_wants_a_new_name() {
    let dir = tempfile::tempdir().unwrap();
    begin(dir.path().join("a.vsteer").as_path());
    let mut w = EventWriter::create(&dir.path().join("a.vsteer"), None).unwrap();
    let at = |ns, prev, prev_state, next| Switch { ns, cpu: 0, prev: Tid(prev), prev_state, next: Tid(next) };
    w.push(at(1, 5, 0x80, 6)).unwrap();
    assert_eq!(w.unnamed(), [(5, 1), (6, 1)]);
    w.push(at(2, 6, 0, 5)).unwrap();
    assert_eq!(w.unnamed(), [(5, 2)]);
}

#[test]
fn a_switch_takes_less_than_16_bytes_on_disk() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("a.vsteer");
    let n = 300_000;
    write(&folder, n, None);
    let bytes = fs::metadata(folder.join("event-0001.arrows")).unwrap().len();
    assert!(bytes < n * 12 + 8 * 1024, "{bytes} bytes for {n} switches");
}

#[test]
fn switches_far_apart_in_time_come_back_exactly() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("a.vsteer");
    begin(&folder);
    let mut w = EventWriter::create(&folder, None).unwrap();
    let at = |ns, cpu| Switch { ns, cpu, prev: Tid(3), prev_state: 1, next: Tid(4) };
    // An idle host; and a pCPU whose switches arrive long after a newer one of another.
    let given = [0, u64::from(u32::MAX), 1 << 32, 1 << 33, (1 << 33) + 1, 5, u64::MAX].map(|ns| at(ns, 0));
    given.iter().for_each(|s| w.push(*s).unwrap());
    w.finish(&EventSummary::default()).unwrap();
    let mut got = Vec::new();
    let r = Recording::open(&folder).unwrap();
    let notes = r.each_switch(|s| -> Result<(), vsteer_core::Fault> {
        got.push(s);
        Ok(())
    });
    assert_eq!((got.as_slice(), notes.unwrap()), (&given[..], vec![]));
}

#[test]
fn other_programs_get_a_column_for_each_thing() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("a.vsteer");
    begin(&folder);
    let mut w = EventWriter::create(&folder, None).unwrap();
    w.push(Switch { ns: 10, cpu: 1, prev: Tid(0), prev_state: 0, next: Tid(8) }).unwrap();
    w.push(Switch { ns: 20, cpu: 1, prev: Tid(8), prev_state: 1, next: Tid(99) }).unwrap();
    w.push(Switch::wake_up(1, 25, Tid(8))).unwrap();
    w.push(Switch::loss(1, 30, 512)).unwrap();
    assert_eq!((w.recorded(), w.wake_ups()), (2, 1), "a wake-up is not a switch");
    let task = |tid, comm: &str| Task {
        mono_ns: 5,
        tid: Tid(tid),
        tgid: tid,
        comm: comm.into(),
        vm: None,
        role: None,
    };
    w.name(task(99, "a,\"b")).unwrap();
    w.name(task(8, "CPU 0/KVM")).unwrap();
    w.finish(&EventSummary::default()).unwrap();
    let r = Recording::open(&folder).unwrap();

    let csv = dir.path().join("csv");
    assert_eq!(vsteer_record::export::csv(&r, &csv).unwrap(), Vec::<String>::new());
    assert_eq!(
        fs::read_to_string(csv.join("event.csv")).unwrap(),
        "ns,cpu,prev,prev_tid,prev_state,next,next_tid,lost,woken,woken_tid\n\
         10,1,swapper,0,0,web vcpu0,8,,,\n\
         20,1,web vcpu0,8,1,\"a,\"\"b\",99,,,\n\
         25,1,,,,,,,web vcpu0,8\n\
         30,1,,,,,,512,,\n"
    );
    let parquet = dir.path().join("parquet");
    vsteer_record::export::parquet(&r, &parquet).unwrap();
    let bytes = fs::read(parquet.join("event.parquet")).unwrap();
    assert!(bytes.starts_with(b"PAR1") && bytes.ends_with(b"PAR1"));
}

#[test]
fn the_ring_keeps_the_newest_switches_and_forgets_who_ended_before() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("a.vsteer");
    begin(&folder);
    let mut w = EventWriter::create(&folder, Some(4 << 20)).unwrap();
    let n = 1_000_000u64;
    let name =
        |tid, mono_ns| Task { mono_ns, tid: Tid(tid), tgid: tid, comm: "t".into(), vm: None, role: None };
    for i in 0..n {
        let (prev, next) = (1 + (i % 3_000) as u32, 1 + ((i + 1) % 3_000) as u32);
        // Thread 7 ends early, thread 8 never.
        let prev_state = if i == 6 { 0x80 } else { 0 };
        w.push(Switch { ns: i, cpu: 0, prev: Tid(prev), prev_state, next: Tid(next) }).unwrap();
        if i == 5 {
            w.name(name(7, i)).unwrap();
            w.name(name(8, i)).unwrap();
        }
    }
    w.write().unwrap();
    let size: u64 = fs::read_dir(&folder).unwrap().map(|e| e.unwrap().metadata().unwrap().len()).sum();
    assert!(size < (4 << 20) + (2 << 20), "{size} bytes");
    let r = Recording::open(&folder).unwrap();
    let all = r.switches(0, u64::MAX).unwrap().switches;
    assert!(all[0].ns > 0 && all[all.len() - 1].ns == n - 1, "{:?}", all[0]);
    assert!(all.windows(2).all(|w| w[1].ns == w[0].ns + 1));
    assert_eq!(r.tasks().iter().map(|t| t.tid.0).collect::<Vec<_>>(), [8]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// Cut any of its files anywhere: what is read is a prefix of what was written.
    #[test]
    fn a_cut_leaves_a_prefix(which in 0usize..3, cut in 0.0f64..1.0) {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("a.vsteer");
        let mut w = write(&folder, 500, None);
        for i in 500..900 {
            w.push(switch(i)).unwrap();
        }
        w.name(Task { mono_ns: 1, tid: Tid(3), tgid: 3, comm: "x".into(), vm: None, role: None }).unwrap();
        w.finish(&EventSummary::default()).unwrap();
        let path = folder.join(["event-0001.arrows", "task.jsonl", "events.json"][which]);
        let bytes = fs::read(&path).unwrap();
        fs::write(&path, &bytes[..(cut * bytes.len() as f64) as usize]).unwrap();
        let r = Recording::open(&folder).unwrap();
        let got = r.switches(0, u64::MAX).unwrap();
        prop_assert!([0, 500, 900].contains(&got.switches.len()));
        prop_assert!(got.switches.len() == 900 || which == 0 && !got.notes.is_empty());
        for (i, s) in got.switches.iter().enumerate() {
            prop_assert_eq!(*s, switch(i as u64));
        }
        let _ = (r.tasks(), r.event_summary());
    }

    /// Garble bytes: a note or a reading, never a panic.
    #[test]
    fn garbled_bytes_do_not_panic(which in 0usize..3, at in 0.0f64..1.0, byte: u8, len in 1usize..16) {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("a.vsteer");
        write(&folder, 50, None).finish(&EventSummary::default()).unwrap();
        let path = folder.join(["event-0001.arrows", "task.jsonl", "events.json"][which]);
        let mut bytes = fs::read(&path).unwrap();
        let from = (at * bytes.len() as f64) as usize;
        let to = (from + len).min(bytes.len());
        bytes[from..to].fill(byte);
        fs::write(&path, &bytes).unwrap();
        let r = Recording::open(&folder).unwrap();
        let _ = (r.switches(0, u64::MAX), r.tasks(), r.event_summary());
    }
}

/// The fields of a protobuf message: number and contents (bytes of a length-delimited one, else the value).
fn fields(mut m: &[u8]) -> Vec<(u32, u64, &[u8])> {
    fn varint(m: &mut &[u8]) -> u64 {
        let mut v = 0;
        for shift in (0..).step_by(7) {
            let (b, rest) = m.split_first().expect("a whole message");
            *m = rest;
            v |= u64::from(b & 0x7f) << shift;
            if b & 0x80 == 0 {
                break;
            }
        }
        v
    }
    let mut all = Vec::new();
    while !m.is_empty() {
        let key = varint(&mut m);
        let (value, length) = match key & 7 {
            0 => (varint(&mut m), 0),
            1 => (0, 8),
            2 => (0, varint(&mut m) as usize),
            other => panic!("wire type {other}"),
        };
        let (bytes, rest) = m.split_at(length);
        m = rest;
        all.push(((key >> 3) as u32, value, bytes));
    }
    all
}

#[test]
fn perfetto_gets_every_switch_with_its_names() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("a.vsteer");
    begin(&folder);
    let mut w = EventWriter::create(&folder, None).unwrap();
    let task = |tid, tgid, comm: &str| Task {
        mono_ns: 1,
        tid: Tid(tid),
        tgid,
        comm: comm.into(),
        vm: None,
        role: None,
    };
    w.name(task(8, 7, "CPU 0/KVM")).unwrap();
    w.name(task(50, 50, "cc1")).unwrap();
    for i in 0..300 {
        let (prev, next) = if i % 2 == 0 { (50, 8) } else { (8, 50) };
        w.push(Switch { ns: i, cpu: 1, prev: Tid(prev), prev_state: 1, next: Tid(next) }).unwrap();
    }
    w.push(Switch::loss(1, 299, 256)).unwrap();
    w.push(Switch { ns: 400, cpu: 1, prev: Tid(0), prev_state: 0, next: Tid(8) }).unwrap();
    w.finish(&EventSummary::default()).unwrap();
    let output = dir.path().join("a.pftrace");
    vsteer_record::export::perfetto(&Recording::open(&folder).unwrap(), &output).unwrap();

    let bytes = fs::read(&output).unwrap();
    let (mut switches, mut lost_after, mut named) = (Vec::new(), None, Vec::new());
    for (_, _, packet) in fields(&bytes) {
        for (kind, _, body) in fields(packet) {
            for (field, value, inner) in fields(body) {
                match (kind, field) {
                    (1, 1) => assert_eq!(value, 1, "the pCPU"),
                    (1, 2) => {
                        let event = fields(inner);
                        let switch = fields(event.iter().find(|f| f.0 == 4).unwrap().2);
                        let comm = |n| {
                            let f = switch.iter().find(|f| f.0 == n).unwrap();
                            String::from_utf8(f.2.to_vec()).unwrap()
                        };
                        switches.push((event[0].1, comm(1), comm(5)));
                    }
                    (1, 3) => lost_after = Some(switches.len()),
                    (2, 2) => named.push(String::from_utf8(fields(inner)[1].2.to_vec()).unwrap()),
                    _ => {}
                }
            }
        }
    }
    assert_eq!(switches.len(), 301);
    assert_eq!(switches[0], (0, "cc1".into(), "web vcpu0".into()));
    assert_eq!(switches[300], (400, "swapper".into(), "web vcpu0".into()));
    assert_eq!((lost_after, named), (Some(300), vec!["web vcpu0".to_owned(), "cc1".to_owned()]));
}
