//! If more threads come than the tables have room for, does the observer keep counting the others, and report the rest?

mod common;

use rustix::thread::gettid;
use std::sync::mpsc::channel;
use std::time::Duration;
use vsteer_bpf::{Options, Watched};
use vsteer_core::nouns::{Role, Tid, VmId};
use vsteer_core::{CpuSet, FaultKind};

const ROOM: u32 = 2;

#[test]
#[ignore = "needs root: it loads eBPF"]
fn those_for_whom_there_is_room_are_counted() {
    let mut observer = common::observer(Options { threads: ROOM, ..Options::default() });
    std::thread::scope(|scope| {
        let (tell, tids) = channel();
        let ends: Vec<_> = (0..2 * ROOM)
            .map(|_| {
                let (end, ended) = channel::<()>();
                let tell = tell.clone();
                scope.spawn(move || {
                    tell.send(gettid().as_raw_nonzero().get() as u32).unwrap();
                    while ended
                        .recv_timeout(Duration::from_millis(1))
                        .is_err_and(|e| e == std::sync::mpsc::RecvTimeoutError::Timeout)
                    {}
                });
                end
            })
            .collect();
        let vcpus: Vec<Watched> = (0..2 * ROOM)
            .map(|n| Watched {
                vm: VmId("one".into()),
                role: Role::Vcpu(n),
                tid: Tid(tids.recv().unwrap()),
                affinity: CpuSet::first(1),
            })
            .collect();
        for _ in 0..2 {
            let full = observer.watch(&vcpus).unwrap_err();
            assert!(
                full.kind == FaultKind::Unsupported && full.to_string().contains("more than 2 threads"),
                "{full}"
            );
            std::thread::sleep(Duration::from_millis(50));
            let reading = observer.read().unwrap();
            let ran = reading.threads.iter().filter(|t| t.counters.run_ns > Some(0)).count();
            assert_eq!((reading.threads.len(), ran), (ROOM as usize, ROOM as usize));
        }
        drop(ends);
    });
}
