//! A recording of which one file holds any bytes is read to where it breaks, or refused; it never ends the program.
#![no_main]

use libfuzzer_sys::{Corpus, fuzz_target};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use vsteer_core::CpuSet;
use vsteer_core::nouns::{
    Batch, BlameSample, CgroupLayout, Collector, Culprit, HostConfig, PcpuSample, Role, ThreadCounters,
    ThreadSample, Tid, VmId, VmSample,
};
use vsteer_core::topology::{Parts, Topology};
use vsteer_record::{FORMAT, Manifest, Recording, Writer, read_marks};

const FILES: [&str; 7] = [
    "manifest.json",
    "config.jsonl",
    "marks.jsonl",
    "thread-0001.arrows",
    "pcpu-0001.arrows",
    "vm-0001.arrows",
    "blame-0001.arrows",
];

/// A whole recording of three moments, made once.
fn whole() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        // Garbled lengths make Arrow panic, which the reader contains; libFuzzer would abort on the hook.
        std::panic::set_hook(Box::new(|_| {}));
        let folder = std::env::temp_dir().join(format!("vsteer-fuzz-{}.vsteer", std::process::id()));
        let one = || CpuSet::single(0);
        let topology =
            Topology::new(Parts { present: one(), online: one(), allowed: one(), ..Parts::default() });
        let config = HostConfig {
            hostname: "h".into(),
            machine_id: None,
            kernel: "6".into(),
            topology: topology.unwrap(),
            cgroups: CgroupLayout::None,
            scheduler: None,
            vms: Vec::new(),
        };
        let collector = Collector { name: "ebpf".into(), missing: Default::default() };
        let manifest = Manifest {
            format: FORMAT,
            vsteer: "0".into(),
            hostname: "h".into(),
            fingerprint: config.fingerprint(),
            mono_ns: 0,
            unix_ns: 0,
            collector,
        };
        let vm = || VmId("a".into());
        let mut w = Writer::create(&folder, &manifest, &config, None).unwrap();
        for i in 1..4 {
            let counters = ThreadCounters { run_ns: Some(i), ..ThreadCounters::default() };
            let batch = Batch {
                mono_ns: i,
                unix_ns: i,
                threads: vec![ThreadSample {
                    vm: vm(),
                    role: Role::Vcpu(0),
                    tid: Tid(1),
                    last_cpu: None,
                    waiting_ns: None,
                    counters,
                }],
                pcpus: vec![PcpuSample::default()],
                vms: vec![VmSample {
                    vm: vm(),
                    throttled_periods: None,
                    io: None,
                    timers: None,
                    memory_by_node: None,
                    memory_local_ppm: None,
                    group: None,
                }],
                blame: vec![BlameSample {
                    victim: vm(),
                    role: Role::Vhost,
                    culprit: Culprit::Placement,
                    ns: i as i64,
                }],
            };
            w.append(&batch, &config).unwrap();
        }
        w.finish().unwrap();
        folder
    })
}

fuzz_target!(|bytes: &[u8]| -> Corpus {
    let Some((which, rest)) = bytes.split_first() else { return Corpus::Reject };
    let path = whole().join(FILES[usize::from(*which) % FILES.len()]);
    let before = std::fs::read(&path).ok();
    std::fs::write(&path, rest).unwrap();
    let _ = (Recording::open(whole()), read_marks(whole()));
    match before {
        Some(before) => std::fs::write(&path, before).unwrap(),
        None => std::fs::remove_file(&path).unwrap(),
    }
    Corpus::Keep
});
