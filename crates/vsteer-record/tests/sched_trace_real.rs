//! Real traces of a host with four VMs of two vCPUs, cut to some 300 lines. `vsteer record --events` ran beside them, and
//! its switches give the right answer: the time of each vCPU in each state between the first and the last event.
//!
//! Made on Linux 6.18 with perf 6.1 and trace-cmd 3.1.6, while the lab `contention` was up (QEMU without KVM):
//! - `perf-sched.txt`: `perf sched record -k mono`, `perf script`
//! - `trace-cmd.txt`: `trace-cmd record -C mono -e sched_switch -e sched_waking ...`, `trace-cmd report`
//! - `ftrace.txt`: the file `trace` with the clock `mono` and the option `record-tgid`

use std::path::Path;
use vsteer_record::sched_trace;

/// The two programs see an event at slightly different moments, and `vsteer record --events` begins a wait at
/// `sched_wakeup`, not at `sched_waking`. us.
const SLACK_US: u64 = 110;

/// A file, whether its lines name processes, and for each vCPU: thread, process, us on a pCPU, ready and blocked.
type Real = (&'static str, bool, [(u32, u32, u64, u64, u64); 8]);

const REAL: [Real; 3] = [
    (
        "ftrace.txt",
        true,
        [
            (28912, 28906, 751, 44, 15_300),
            (28913, 28906, 274, 131, 15_690),
            (28926, 28922, 3_374, 12_721, 0),
            (28927, 28922, 4_681, 11_414, 0),
            (28946, 28939, 734, 31, 15_330),
            (28947, 28939, 879, 202, 15_014),
            (28966, 28960, 2_992, 13_103, 0),
            (28967, 28960, 4_023, 12_072, 0),
        ],
    ),
    (
        "perf-sched.txt",
        false,
        [
            (28912, 28906, 335, 6_485, 11_430),
            (28913, 28906, 421, 423, 17_406),
            (28926, 28922, 4_711, 13_539, 0),
            (28927, 28922, 1_804, 16_446, 0),
            (28946, 28939, 3_982, 10_323, 3_946),
            (28947, 28939, 201, 51, 17_998),
            (28966, 28960, 3_238, 15_006, 6),
            (28967, 28960, 1_594, 16_656, 0),
        ],
    ),
    (
        "trace-cmd.txt",
        false,
        [
            (28912, 28906, 493, 380, 29_481),
            (28913, 28906, 1_014, 746, 28_594),
            (28926, 28922, 1_684, 28_670, 0),
            (28927, 28922, 2_189, 28_165, 0),
            (28946, 28939, 872, 4_983, 24_499),
            (28947, 28939, 882, 11_747, 17_725),
            (28966, 28960, 5_284, 25_061, 9),
            (28967, 28960, 240, 30_114, 0),
        ],
    ),
];

#[test]
fn real_traces_agree_with_vsteers_own_recording() {
    for (name, names_processes, vcpus) in REAL {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sched_trace").join(name);
        assert!(sched_trace::is_one(&file));
        let recording = sched_trace::read(&file).unwrap();
        let config = &recording.configs[0].config;
        assert_eq!((config.vms.len(), config.topology.online().len()), (4, 2), "{name}");
        let grouped = recording.notes.iter().any(|n| n.contains("thread ids"));
        assert_eq!(grouped, !names_processes, "{name}: {:?}", recording.notes);
        let last = recording.batches.last().unwrap();
        let length = (last.mono_ns - recording.batches[0].mono_ns) / 1000;
        for (tid, pid, run, ready, blocked) in vcpus {
            let vm = config.vms.iter().find(|vm| vm.threads.iter().any(|t| t.tid.0 == tid)).unwrap();
            assert_eq!((vm.pid, vm.vcpus().count()), (pid, 2), "{name} {tid}");
            let c = &last.threads.iter().find(|t| t.tid.0 == tid).unwrap().counters;
            let us = |ns: Option<u64>| ns.unwrap() / 1000;
            let near = |is: u64, got: u64| is.abs_diff(got) <= SLACK_US;
            assert!(near(run, us(c.run_ns)), "{name} {tid}: ran {run}, not {:?}", c.run_ns);
            assert!(
                near(blocked, us(c.blocked_ns)),
                "{name} {tid}: blocked {blocked}, not {:?}",
                c.blocked_ns
            );
            // Until its first event, the state of a thread that was ready at the start is unknown.
            let unknown = length - us(c.run_ns) - us(c.ready_ns) - us(c.blocked_ns);
            assert!(
                near(ready, us(c.ready_ns) + unknown),
                "{name} {tid}: ready {ready}, not {:?}",
                c.ready_ns
            );
        }
    }
}
