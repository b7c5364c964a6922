//! A recording of which one file holds any bytes is read to where it breaks off, or is refused.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use vsteer_core::CpuSet;
use vsteer_core::nouns::{
    Batch, BlameSample, CgroupLayout, Collector, Culprit, HostConfig, PcpuSample, Pressure, Role,
    ThreadCounters, ThreadSample, Tid, VmId, VmSample,
};
use vsteer_core::timeline::Switch;
use vsteer_core::topology::{Parts as Cpus, Topology};
use vsteer_record::{EventWriter, FORMAT, Manifest, Parts, Recording, Writer, marks_of};

/// The first byte of an input chooses the file that the rest replaces.
const FILES: [&str; 10] = [
    "manifest.json",
    "config.jsonl",
    "marks.jsonl",
    "thread-0001.arrows",
    "pcpu-0001.arrows",
    "vm-0001.arrows",
    "blame-0001.arrows",
    "event-0001.arrows",
    "task.jsonl",
    "events.json",
];

/// The files of a whole recording of three moments, made once.
fn whole() -> &'static BTreeMap<String, Vec<u8>> {
    static FILES: OnceLock<BTreeMap<String, Vec<u8>>> = OnceLock::new();
    FILES.get_or_init(|| {
        let folder = std::env::temp_dir().join(format!("vsteer-fuzz-{}.vsteer", std::process::id()));
        write(&folder);
        let listed = std::fs::read_dir(&folder).expect("it was written");
        let files = listed.map(|e| e.expect("it was written")).map(|e| {
            let bytes = std::fs::read(e.path()).expect("it was written");
            (e.file_name().to_string_lossy().into_owned(), bytes)
        });
        let files = files.collect();
        let _ = std::fs::remove_dir_all(&folder);
        files
    })
}

fn config() -> HostConfig {
    let one = || CpuSet::single(0);
    let cpus = Cpus { present: one(), online: one(), allowed: one(), ..Cpus::default() };
    HostConfig {
        hostname: "h".into(),
        machine_id: None,
        kernel: "6".into(),
        topology: Topology::new(cpus).expect("one CPU is a topology"),
        cgroups: CgroupLayout::None,
        contenders: Vec::new(),
        scheduler: None,
        vms: Vec::new(),
    }
}

fn batch(i: u64) -> Batch {
    let vm = || VmId("a".into());
    Batch {
        mono_ns: i,
        unix_ns: i,
        threads: vec![ThreadSample {
            vm: vm(),
            role: Role::Vcpu(0),
            tid: Tid(1),
            last_cpu: None,
            waiting_ns: None,
            counters: ThreadCounters { run_ns: Some(i), ..ThreadCounters::default() },
        }],
        pcpus: vec![PcpuSample::default()],
        vms: vec![VmSample {
            pressure: Some(Pressure { cpu_some: Some(i), ..Pressure::default() }),
            ..VmSample::new(vm())
        }],
        blame: vec![BlameSample {
            victim: vm(),
            role: Role::Vhost,
            culprit: Culprit::Placement,
            ns: i as i64,
        }],
        pressure: Some(Pressure { io_full: Some(i), ..Pressure::default() }),
    }
}

fn write(folder: &std::path::Path) {
    let config = config();
    let manifest = Manifest {
        format: FORMAT,
        vsteer: "0".into(),
        hostname: "h".into(),
        fingerprint: config.fingerprint(),
        mono_ns: 0,
        unix_ns: 0,
        collector: Collector { name: "ebpf".into(), missing: BTreeMap::default() },
    };
    let mut w = Writer::create(folder, &manifest, &config, None).expect("a temporary folder can be written");
    (1..4).for_each(|i| w.append(&batch(i), &config).expect("the disk has room"));
    w.finish().expect("the disk has room");
    let mut events = EventWriter::create(folder, None).expect("the folder is there");
    for i in 0..20 {
        let switch = Switch { ns: i, cpu: 0, prev: Tid(i as u32), prev_state: 1, next: Tid(1) };
        events.push(switch).expect("the disk has room");
    }
    events.write().expect("the disk has room");
}

pub fn run(bytes: &[u8]) -> bool {
    let Some((which, rest)) = bytes.split_first() else { return false };
    let name = FILES[usize::from(*which) % FILES.len()];
    let mut files = whole().clone();
    files.insert(name.to_owned(), rest.to_vec());
    marks_of(files.get("marks.jsonl").map_or(&[][..], Vec::as_slice));
    let Ok(recording) = Recording::of(Parts::Memory(Arc::new(files))) else { return false };
    let _ = (recording.switches(0, u64::MAX), recording.event_summary(), recording.tasks());
    !recording.batches.is_empty()
}

pub fn seeds() -> Vec<Vec<u8>> {
    let of = |(i, name): (usize, &&str)| Some([&[i as u8], whole().get(*name)?.as_slice()].concat());
    FILES.iter().enumerate().filter_map(of).collect()
}
