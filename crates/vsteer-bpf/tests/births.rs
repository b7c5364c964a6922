//! Is a thread counted from the moment at which it takes a vCPU's name, before anybody asks for it?
//!
//! A thread computes, ends, and is watched only then. Threads of other names take no slot.

mod common;

use rustix::thread::{gettid, set_name};
use rustix::time::{ClockId, clock_gettime};
use std::ffi::CStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};
use vsteer_bpf::Watched;
use vsteer_core::CpuSet;
use vsteer_core::nouns::{Role, Tid, VmId};

const COMPUTES: Duration = Duration::from_millis(50);

/// What a thread says of itself.
struct Lived {
    tid: Tid,
    /// Since it has its name, ms.
    elapsed_ms: f64,
    ran_ms: f64,
}

fn ran_ms() -> f64 {
    let t = clock_gettime(ClockId::ThreadCPUTime);
    t.tv_sec as f64 * 1e3 + t.tv_nsec as f64 / 1e6
}

/// The kernel reads its clock earlier in a switch than the observer does, and a thread reads the clock before it sleeps. In
/// between the hypervisor of a shared machine may take the pCPU.
const SWITCH_MS: f64 = 1.0;

/// A thread that takes this name, computes and sleeps as long, and has ended when this returns.
fn lived(name: &CStr) -> Lived {
    let live = || {
        set_name(name).unwrap();
        let (begun, ran_before) = (Instant::now(), ran_ms());
        while begun.elapsed() < COMPUTES {
            std::hint::spin_loop();
        }
        std::thread::sleep(COMPUTES);
        let tid = Tid(gettid().as_raw_nonzero().get() as u32);
        Lived { tid, elapsed_ms: begun.elapsed().as_secs_f64() * 1e3, ran_ms: ran_ms() - ran_before }
    };
    let lived = std::thread::scope(|scope| scope.spawn(live).join().unwrap());
    // A thread is joined before it gives up its pCPU for the last time.
    std::thread::sleep(Duration::from_millis(5));
    lived
}

#[test]
#[ignore = "needs root: it loads eBPF"]
fn a_thread_is_counted_since_it_has_a_vcpus_name() {
    let mut observer = common::observer(vsteer_bpf::Options::default());
    let other = lived(c"worker").tid;
    let all = [(c"CPU 3/KVM", 3), (c"fc_vcpu 0", 0), (c"crosvm_vcpu1", 1), (c"vcpu12", 12)];
    for (before, (name, vcpu)) in all.into_iter().enumerate() {
        let Lived { tid, elapsed_ms, ran_ms } = lived(name);
        let births = observer.births().unwrap();
        let birth = births.iter().find(|b| b.tid == tid).unwrap_or_else(|| panic!("{name:?}: {births:?}"));
        assert_eq!((birth.pid, birth.name.as_str()), (std::process::id(), name.to_str().unwrap()));
        assert!(births.iter().all(|b| b.tid != other));
        let told = std::env::args().collect::<Vec<_>>();
        assert!(!birth.arguments.is_empty() && told.starts_with(&birth.arguments), "{:?}", birth.arguments);

        let vm = VmId(format!("short-{vcpu}").into());
        let watched = Watched { vm: vm.clone(), role: Role::Vcpu(vcpu), tid, affinity: CpuSet::default() };
        observer.watch_more(&[watched]).unwrap();
        let of_vm = |reading: &vsteer_bpf::Reading| {
            // The kernel skips a program that an interrupt would start a second time on its pCPU. The observer says so.
            assert!(reading.surprises <= observer.unseen(), "{} surprises", reading.surprises);
            let thread = reading.threads.iter().find(|t| t.vm == vm).map(|t| t.counters.clone());
            (thread, reading.blame.iter().filter(|b| b.victim == vm).map(|b| b.ns).sum::<i64>())
        };
        let mut charged = 0;
        let mut readings = std::iter::repeat_with(|| observer.read().unwrap()).take(1_000);
        let last = readings.find(|reading| {
            charged += of_vm(reading).1;
            reading.ended > before
        });
        let counters =
            of_vm(&last.expect("it ends soon")).0.expect("the last counts of a thread that has ended");
        assert!(of_vm(&observer.read().unwrap()).0.is_none(), "the last counts come once");
        let ms = |ns: Option<u64>| ns.unwrap_or(0) as f64 / 1e6;
        let ran = ms(counters.run_ns);
        let all = ran + ms(counters.wait_ns) + ms(counters.blocked_ns);
        println!("{name:?}: ran {ran:.2} of {ran_ms:.2} ms, all {all:.2} of {elapsed_ms:.2} ms");
        // What it takes to start and end a thread is not in what it says itself.
        let ran_most = ran_ms + 5.0;
        assert!((ran_ms - SWITCH_MS..ran_most).contains(&ran), "{ran} ms, but it ran for {ran_ms} ms");
        let blocked = ms(counters.blocked_ns);
        assert!(all >= elapsed_ms, "{all} ms of {elapsed_ms} ms");
        assert!(blocked >= COMPUTES.as_secs_f64() * 1e3 - SWITCH_MS, "blocked for {blocked} ms");
        assert_eq!(counters.ready_ns, Some(charged as u64), "charges add up");
    }
}

/// Any user can name threads. That must not take the room of VMs that start later.
#[test]
#[ignore = "needs root: it loads eBPF"]
fn threads_that_only_have_such_names_leave_room_for_vms() {
    const ROOM: u32 = 64;
    let mut observer = common::observer(vsteer_bpf::Options { threads: ROOM, ..Default::default() });
    let (over, ends) = (AtomicBool::new(false), Duration::from_millis(5));
    std::thread::scope(|scope| {
        let lasting = |name: &'static CStr| {
            let (tell, told) = channel();
            let over = &over;
            scope.spawn(move || {
                set_name(name).unwrap();
                tell.send(Tid(gettid().as_raw_nonzero().get() as u32)).unwrap();
                while !over.load(Ordering::Relaxed) {
                    std::thread::sleep(ends);
                }
            });
            told.recv().unwrap()
        };
        let mut heard = 0;
        for _ in 0..3 * ROOM {
            lasting(c"vcpu0");
            heard += observer.births().map_or(0, |births| births.len());
        }
        let watched: Vec<Watched> = (0..ROOM / 2)
            .map(|n| Watched {
                vm: VmId(format!("vm-{n}").into()),
                role: Role::Vcpu(0),
                tid: lasting(c"worker"),
                affinity: CpuSet::default(),
            })
            .collect();
        let done = observer.watch_more(&watched);
        let seen = observer.read().map_or(0, |reading| reading.threads.len());
        // Before anything may fail, or the scope waits for ever.
        over.store(true, Ordering::Relaxed);
        assert!((1..=ROOM as usize / 4).contains(&heard), "{heard} births");
        done.unwrap();
        assert_eq!(seen, watched.len());
    });
}
