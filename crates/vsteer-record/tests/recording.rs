//! A recording survives what happens to writers: it is cut anywhere, its files are garbled, its ring turns over.

use proptest::prelude::*;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use vsteer_core::nouns::*;
use vsteer_core::topology::{Parts, Topology};
use vsteer_core::trigger::Mark;
use vsteer_core::{CpuSet, FaultKind};
use vsteer_record::{FORMAT, Manifest, Recording, Writer, read_marks};

fn config() -> HostConfig {
    let vm = VmConfig {
        accel: Some(Accel::Tcg),
        threads: vec![VmThread {
            tid: Tid(8),
            role: Role::Vcpu(0),
            affinity: CpuSet::first(2),
            class: Some(SchedClass::Other(0)),
            cgroup: Some("/a".into()),
            prefers: None,
            reserved: None,
        }],
        weight: Some(CpuWeight::Shares(1024)),
        memory_bytes: Some(1 << 27),
        ..VmConfig::new(VmId("uuid-1".into()), "quotes \" and\nnewlines", 7)
    };
    HostConfig {
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
        vms: vec![vm],
    }
}

fn manifest() -> Manifest {
    Manifest {
        format: FORMAT,
        vsteer: "0".into(),
        hostname: "h".into(),
        fingerprint: config().fingerprint(),
        mono_ns: 0,
        unix_ns: 1,
        collector: Collector { name: "ebpf".into(), missing: BTreeMap::new() },
    }
}

fn batch(i: u64) -> Batch {
    let counters = ThreadCounters {
        run_ns: Some(i * 10),
        ready_ns: i.is_multiple_of(2).then_some(i),
        costop_ns: Some(3 * i),
        wake_latency: Some(Histogram { counts: vec![(3, i + 1), (9, 2)] }),
        ..ThreadCounters::default()
    };
    Batch {
        mono_ns: i * 1_000,
        unix_ns: i * 1_000 + 5,
        threads: vec![ThreadSample {
            vm: VmId("uuid-1".into()),
            role: Role::Vcpu(0),
            tid: Tid(8),
            last_cpu: Some(1),
            waiting_ns: Some(i * 3),
            counters,
        }],
        pcpus: vec![PcpuSample { cpu: 1, user_ns: i, steal_ns: None, idle_ns: 3, ..PcpuSample::default() }],
        vms: vec![VmSample {
            vm: VmId("uuid-1".into()),
            throttled_periods: Some(2),
            throttled_above: Some(i / 2),
            throttled_ns: Some(i * 7),
            throttled_above_ns: Some(i * 9),
            io: Some(77),
            pressure: Some(Pressure { io_full: Some(10 * i), memory_some: Some(i), ..Pressure::default() }),
            memory_local_ppm: Some(930_000),
            group: i.is_multiple_of(2).then(|| GroupSample {
                worlds: Some(26),
                counters: ThreadCounters {
                    costop_ns: Some(i),
                    system_ns: None,
                    used_ns: Some(9),
                    ..Default::default()
                },
            }),
            timers: Some(TimerCounts { asked: 100 + i, honoured: 90, late: 2, refused: 3 }),
            memory_by_node: Some(vec![(0, 4096), (1, 8192)]),
        }],
        blame: vec![
            BlameSample {
                victim: VmId("uuid-1".into()),
                role: Role::Emulator,
                culprit: Culprit::process("cc1", 5),
                ns: i as i64 - 2,
            },
            BlameSample {
                victim: VmId("uuid-1".into()),
                role: Role::Emulator,
                culprit: Culprit::Process { comm: "cc1".into(), pid: 6, container: Some("lxc web".into()) },
                ns: 3,
            },
            BlameSample {
                victim: VmId("uuid-1".into()),
                role: Role::IoThread(2),
                culprit: Culprit::Placement,
                ns: 1,
            },
        ],
        pressure: Some(Pressure { cpu_some: Some(i), ..Pressure::default() }),
    }
}

fn write(folder: &Path, n: u64, ring: Option<u64>) {
    let mut w = Writer::create(folder, &manifest(), &config(), ring).unwrap();
    for i in 1..=n {
        w.append(&batch(i), &config()).unwrap();
    }
    // Dropped, not finished: as after SIGKILL.
}

#[test]
fn what_was_written_is_read_even_when_never_closed() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("a.vsteer");
    write(&folder, 5, None);
    let r = Recording::open(&folder).unwrap();
    assert_eq!(r.batches, (1..=5).map(batch).collect::<Vec<_>>());
    assert_eq!(*r.config_at(99), config());
    assert_eq!(r.between(2_005, 4_005).len(), 3);
}

/// Of a segment of which a row cannot be read what came before is, and so are all the others.
#[test]
fn one_garbled_row_costs_its_segment_from_there_on() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("a.vsteer");
    write(&folder, 400, Some(1 << 20));
    let whole = Recording::open(&folder).unwrap();
    let mut segments: Vec<_> = fs::read_dir(&folder)
        .unwrap()
        .map(|e| e.unwrap().path())
        .filter(|p| p.file_name().unwrap().to_string_lossy().starts_with("thread"))
        .collect();
    segments.sort();
    assert!(segments.len() > 2, "{segments:?}");
    let mut bytes = fs::read(&segments[1]).unwrap();
    // The role of a row in the middle: "vcpu0" becomes "vcpx0".
    let at: Vec<usize> =
        bytes.windows(5).enumerate().filter(|(_, w)| w == b"vcpu0").map(|(i, _)| i).collect();
    assert!(at.len() > 4, "{at:?}");
    bytes[at[at.len() / 2] + 3] = b'x';
    fs::write(&segments[1], bytes).unwrap();
    let r = Recording::open(&folder).unwrap();
    assert!(r.notes.iter().any(|n| n.contains("unreadable after")), "{:?}", r.notes);
    assert!(r.batches.len() < whole.batches.len() && r.batches.iter().all(|b| whole.batches.contains(b)));
    assert_eq!((r.batches.first(), r.batches.last()), (whole.batches.first(), whole.batches.last()));
    // Of the garbled one what came before the row.
    assert!(
        r.batches.len() > whole.batches.len() - whole.batches.len() / (segments.len() - 1) / 2 - 8,
        "{}",
        r.batches.len()
    );
}

/// The calendar's clock is set back by an hour in the middle: every moment is found once, by the clock of the begin.
#[test]
fn a_clock_that_was_set_back_hides_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("a.vsteer");
    let mut w = Writer::create(&folder, &manifest(), &config(), None).unwrap();
    for i in 1..=10 {
        let back = if i > 5 { 4_000 } else { 0 };
        w.append(&Batch { unix_ns: 10_000 + i * 1_000 - back, ..batch(i) }, &config()).unwrap();
    }
    w.finish().unwrap();
    let r = Recording::open(&folder).unwrap();
    assert!(r.clock_went_back());
    let found: Vec<u64> = r.between(14_000, 17_000).iter().map(|b| b.mono_ns).collect();
    assert_eq!(found, [4_000, 5_000, 6_000, 7_000]);
}

#[test]
fn a_zip_in_the_recordings_own_folder_does_not_hold_itself() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("a.vsteer");
    write(&folder, 5, None);
    let whole: u64 = size_of(&folder);
    vsteer_record::export::zip(&folder, &folder.join("a.zip")).unwrap();
    assert!(fs::metadata(folder.join("a.zip")).unwrap().len() < 2 * whole);
}

#[test]
fn a_recording_is_never_overwritten() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("a.vsteer");
    write(&folder, 1, None);
    let fault = Writer::create(&folder, &manifest(), &config(), None).err().unwrap();
    assert_eq!(fault.kind, FaultKind::Usage);
}

#[test]
fn a_changed_configuration_is_kept_with_its_moment() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("a.vsteer");
    let mut w = Writer::create(&folder, &manifest(), &config(), None).unwrap();
    w.append(&batch(1), &config()).unwrap();
    let mut other = config();
    other.vms[0].weight = Some(CpuWeight::Shares(2048));
    w.append(&batch(2), &other).unwrap();
    w.finish().unwrap();
    let r = Recording::open(&folder).unwrap();
    assert_eq!((r.configs.len(), r.config_at(1_500), r.config_at(2_000)), (2, &config(), &other));
}

#[test]
fn the_ring_keeps_the_newest_whole_segments() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("a.vsteer");
    write(&folder, 400, Some(1 << 20));
    let size: u64 = fs::read_dir(&folder).unwrap().map(|e| e.unwrap().metadata().unwrap().len()).sum();
    assert!(size < (1 << 20) + (256 << 10), "{size} bytes");
    let r = Recording::open(&folder).unwrap();
    let first = r.batches.first().unwrap().mono_ns / 1_000;
    assert!(first > 1 && r.batches.last() == Some(&batch(400)), "first {first}");
    assert_eq!(r.batches.len() as u64, 400 - first + 1);
}

fn mark(i: u64) -> Mark {
    Mark {
        unix_ns: i * 1_000 + 5,
        mono_ns: i * 1_000,
        window_ns: 1_000,
        trigger: "ready>5%".into(),
        vm: VmId("uuid-1".into()),
        vm_name: "a".into(),
        found: "ready 7.00 %".into(),
    }
}

fn size_of(folder: &Path) -> u64 {
    fs::read_dir(folder).unwrap().map(|e| e.unwrap().metadata().unwrap().len()).sum()
}

#[test]
fn what_lies_around_a_mark_outlives_the_rings_turn() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("a.vsteer");
    let mut w = Writer::create(&folder, &manifest(), &config(), Some(1 << 20)).unwrap();
    for i in 1..=1_000 {
        w.append(&batch(i), &config()).unwrap();
        if i == 100 {
            w.mark(&mark(i)).unwrap();
        }
    }
    assert_eq!(read_marks(&folder).unwrap(), [mark(100)]);
    let r = Recording::open(&folder).unwrap();
    let there = |i: u64| r.batches.iter().any(|b| b.mono_ns == i * 1_000);
    assert!((95..=105).all(there), "the moments around the mark are gone");
    assert!(!there(300) && (990..=1_000).all(there), "the ring does not turn");
    assert!(size_of(&folder) < (1 << 20) + (256 << 10));
}

#[test]
fn marks_without_end_and_changes_without_end_stay_within_bounds() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("a.vsteer");
    let mut w = Writer::create(&folder, &manifest(), &config(), Some(1 << 20)).unwrap();
    for i in 1..=1_000 {
        let changed = HostConfig { kernel: i.to_string(), ..config() };
        w.append(&batch(i), &changed).unwrap();
        w.mark(&mark(i)).unwrap();
    }
    assert!(size_of(&folder) < (1 << 20) + (512 << 10), "{} bytes", size_of(&folder));
    let r = Recording::open(&folder).unwrap();
    assert_eq!(r.batches.last(), Some(&batch(1_000)));
    assert_eq!(r.config_at(1_000_000).kernel, "1000");
    assert!(r.configs.len() < 900, "{} configurations", r.configs.len());
}

#[test]
fn foreign_folders_are_named_as_such() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(Recording::open(&dir.path().join("none")).err().unwrap().kind, FaultKind::NothingThere);
    fs::write(dir.path().join("manifest.json"), "{\"hello\":1}").unwrap();
    assert_eq!(Recording::open(dir.path()).err().unwrap().kind, FaultKind::BadInput);
    for (form, help) in [(999, "newer vsteer"), (1, "make a new recording")] {
        fs::write(dir.path().join("manifest.json"), format!("{{\"format\":{form}}}")).unwrap();
        let fault = Recording::open(dir.path()).err().unwrap();
        assert_eq!(fault.kind, FaultKind::BadInput);
        assert!(fault.to_string().contains(help), "{fault}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// Cut any file anywhere: what is read is a prefix of what was written.
    #[test]
    fn a_cut_leaves_a_prefix(table in 0usize..4, cut in 0.0f64..1.0) {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("a.vsteer");
        write(&folder, 6, None);
        let path = folder.join(format!("{}-0001.arrows", ["pcpu", "vm", "blame", "thread"][table]));
        let bytes = fs::read(&path).unwrap();
        fs::write(&path, &bytes[..(cut * bytes.len() as f64) as usize]).unwrap();
        let r = Recording::open(&folder).unwrap();
        let want: Vec<Batch> = (1..=r.batches.len() as u64).map(batch).collect();
        prop_assert_eq!(&r.batches, &want);
        prop_assert!(r.batches.len() == 6 || !r.notes.is_empty());
    }

    /// Garble bytes: a fault or a reading, never a panic.
    #[test]
    fn garbled_bytes_do_not_panic(table in 0usize..4, at in 0.0f64..1.0, byte: u8, len in 1usize..16) {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("a.vsteer");
        write(&folder, 2, None);
        let path = folder.join(format!("{}-0001.arrows", ["pcpu", "vm", "blame", "thread"][table]));
        let mut bytes = fs::read(&path).unwrap();
        let from = (at * bytes.len() as f64) as usize;
        let to = (from + len).min(bytes.len());
        bytes[from..to].fill(byte);
        fs::write(&path, &bytes).unwrap();
        let _ = Recording::open(&folder);
    }
}
