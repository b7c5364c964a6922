//! Traces of hosts with several pCPUs, as `xentrace` writes them: in blocks of one pCPU after another.
//!
//! The schedule of each vCPU is made here, and the time in each state is added up from it, not from the trace.

use std::collections::BTreeMap;
use vsteer_record::xentrace::account::Accounts;
use vsteer_record::xentrace::{Reader, Record, read, seen};

/// One tick is one ns.
const KHZ: u64 = 1_000_000;
const BEGINS: u64 = 5 << 32;
const RUNNING: u32 = 0;
const RUNNABLE: u32 = 1;
const BLOCKED: u32 = 2;

/// A record, and when and where it was made.
#[derive(Clone)]
struct Made {
    ticks: u64,
    pcpu: u32,
    bytes: Vec<u8>,
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|w| w.to_le_bytes()).collect()
}

fn change(ticks: u64, domain: u32, vcpu: u32, from: u32, to: u32) -> Vec<u8> {
    words(&[0x9002_1001 | from << 8 | to << 4, ticks as u32, (ticks >> 32) as u32, domain << 16 | vcpu])
}

fn window(pcpu: u32, records: &[u8]) -> Vec<u8> {
    [words(&[0x2001_f003, pcpu, records.len() as u32]), records.to_vec()].concat()
}

/// A vCPU wakes every `period`, waits, runs and sleeps. It goes to the next of its pCPUs each time.
#[derive(Clone)]
struct Vcpu {
    domain: u32,
    index: u32,
    pcpus: Vec<u32>,
    /// The pCPU that wakes it.
    waker: u32,
    period: u64,
    waits: u64,
    runs: u64,
}

impl Vcpu {
    fn new(domain: u32, index: u32, pcpus: &[u32], waker: u32) -> Vcpu {
        let (waits, runs) = (20_000 + 1000 * u64::from(domain), 60_000 + 500 * u64::from(index));
        Vcpu { domain, index, pcpus: pcpus.to_vec(), waker, period: 200_000, waits, runs }
    }

    /// The records of its first periods. A record of pCPU n says that it was made n times `skew` earlier than it was.
    fn records(&self, periods: u64, skew: u64) -> Vec<Made> {
        let mut all = Vec::new();
        for k in 0..periods {
            let (wakes, on) = (BEGINS + k * self.period, self.pcpus[k as usize % self.pcpus.len()]);
            let mut add = |at: u64, pcpu: u32, from, to| {
                let ticks = at - skew * u64::from(pcpu);
                all.push(Made { ticks, pcpu, bytes: change(ticks, self.domain, self.index, from, to) });
            };
            add(wakes, self.waker, BLOCKED, RUNNABLE);
            add(wakes + self.waits, on, RUNNABLE, RUNNING);
            add(wakes + self.waits + self.runs, on, RUNNING, BLOCKED);
        }
        all
    }
}

/// The trace of these records: blocks of `block` records of each pCPU, from the last pCPU to the first.
fn trace(mut records: Vec<Made>, block: usize) -> Vec<u8> {
    records.sort_by_key(|r| r.ticks);
    let mut of: BTreeMap<u32, Vec<Made>> = BTreeMap::new();
    records.into_iter().for_each(|r| of.entry(r.pcpu).or_default().push(r));
    let blocks = of.values().map(|all| all.len().div_ceil(block)).max().unwrap_or(0);
    let mut bytes = Vec::new();
    for k in 0..blocks {
        for (pcpu, all) in of.iter().rev() {
            let some = all.iter().skip(k * block).take(block).flat_map(|r| r.bytes.clone());
            bytes.extend(window(*pcpu, &some.collect::<Vec<u8>>()));
        }
    }
    bytes
}

const PERIODS: u64 = 100;

/// What the trace must tell of each vCPU: ns running, runnable and blocked, within `slack` ns for each change.
#[track_caller]
fn check(what: &str, bytes: &[u8], vcpus: &[Vcpu], slack: u64) {
    let parsed = read(bytes).unwrap_or_else(|why| panic!("{what}: {why}"));
    let told = seen(&parsed, KHZ);
    assert_eq!(told.len(), vcpus.len(), "{what}");
    let mut accounts = Accounts::new(KHZ, 1_000_000);
    let mut reader = Reader::default();
    for piece in bytes.chunks(1013) {
        reader.feed(piece, &mut |r| accounts.see(r)).unwrap();
        accounts.settle();
    }
    accounts.finish();
    for v in vcpus {
        let whose = (v.domain as u16, v.index as u16);
        let (ns, count) = (told[&whose].ns, accounts.vcpu(whose).unwrap());
        let near = |a: u64, b: u64| a.abs_diff(b) <= slack * PERIODS;
        assert!(near(ns[0], PERIODS * v.runs), "{what}: {whose:?} ran {} of {}", ns[0], PERIODS * v.runs);
        assert!(
            near(ns[1], PERIODS * v.waits),
            "{what}: {whose:?} waited {} of {}",
            ns[1],
            PERIODS * v.waits
        );
        assert_eq!(ns[3], 0, "{what}");
        assert_eq!(told[&whose].dispatches, PERIODS, "{what}");
        assert_eq!(
            (count.ticks[0], count.ticks[1]),
            (ns[0], ns[1]),
            "{what}: {whose:?}, while it is written"
        );
        assert_eq!((count.dispatches, count.wakes), (PERIODS, PERIODS), "{what}");
        let moves = if v.pcpus.len() > 1 { PERIODS - 1 } else { 0 };
        assert_eq!(count.migrations, moves, "{what}: {whose:?}");
    }
}

fn records(vcpus: &[Vcpu], skew: u64) -> Vec<Made> {
    vcpus.iter().flat_map(|v| v.records(PERIODS, skew)).collect()
}

#[test]
fn hosts_of_several_pcpus_are_read_block_by_block() {
    let one = vec![Vcpu::new(1, 0, &[0], 0)];
    let two = vec![Vcpu::new(1, 0, &[0], 0), Vcpu::new(2, 0, &[1], 1)];
    let four: Vec<Vcpu> = (0..4).map(|i| Vcpu::new(1 + i / 2, i % 2, &[i], (i + 1) % 4)).collect();
    let wander: Vec<Vcpu> = (0..3).map(|i| Vcpu::new(1 + i, 0, &[i, (i + 1) % 3], 3)).collect();
    let far = vec![Vcpu::new(1, 0, &[0, 63], 255), Vcpu::new(1, 7, &[255], 0)];
    for (what, vcpus, block) in [
        ("one pCPU", &one, 1000),
        ("two pCPUs, each in one block", &two, 1000),
        ("two pCPUs in blocks of 50", &two, 50),
        ("two pCPUs record by record", &two, 1),
        ("woken by another pCPU", &four, 40),
        ("blocks of odd length", &four, 7),
        ("vCPUs that move", &wander, 30),
        ("vCPUs that move, record by record", &wander, 1),
        ("pCPUs with gaps between their numbers", &far, 25),
    ] {
        check(what, &trace(records(vcpus, 0), block), vcpus, 0);
    }
}

/// The pCPU that runs the vCPU records the run at the moment of the wake-up, which another pCPU records.
#[test]
fn changes_at_one_moment_have_the_order_of_their_states() {
    for waker in [0, 2, 7] {
        let vcpus: Vec<Vcpu> =
            (0..3).map(|i| Vcpu { waits: 0, ..Vcpu::new(1, i, &[3 + i], waker) }).collect();
        check("woken and run at once", &trace(records(&vcpus, 0), 10), &vcpus, 0);
    }
    // The clock of the pCPU that runs it is late or early by up to 2 us.
    for skew in [100, 500, 1000] {
        let vcpus = vec![
            Vcpu { waits: 0, ..Vcpu::new(1, 0, &[2], 0) },
            Vcpu { waits: 0, ..Vcpu::new(2, 0, &[0], 2) },
        ];
        check("clocks that differ", &trace(records(&vcpus, skew), 20), &vcpus, 2 * skew);
    }
}

#[test]
fn other_records_are_passed_over() {
    let vcpus = vec![Vcpu::new(1, 0, &[0], 1), Vcpu::new(2, 0, &[1], 0)];
    let plain = records(&vcpus, 0);
    let other = |event: u32, n: u32, timed: bool| {
        let mut all = vec![event | n << 28 | u32::from(timed) << 31];
        all.extend(std::iter::repeat_n(7, n as usize + if timed { 2 } else { 0 }));
        words(&all)
    };
    for (what, more) in [
        ("switches of the scheduler", other(0x0002_800e, 4, true)),
        ("events of HVM without a time", other(0x0008_2001, 7, false)),
        ("ends of buffers", other(0x0001_f002, 0, false)),
        ("a runstate without a time", other(0x0002_1011, 1, false)),
    ] {
        let with: Vec<Made> = plain
            .iter()
            .map(|r| Made { bytes: [more.clone(), r.bytes.clone()].concat(), ..r.clone() })
            .collect();
        check(what, &trace(with, 33), &vcpus, 0);
    }
    let bytes = trace(plain, 50);
    check("a message in front", &[b"change evtmask to 0x21000\n", &bytes[..]].concat(), &vcpus, 0);
    let empty = [window(9, &[]), bytes.clone(), window(0, &[])].concat();
    check("empty windows", &empty, &vcpus, 0);
    let lost = window(1, &words(&[0xc001_f001, 1, 0, 17, 1 << 16, 1, 0]));
    let parsed = read(&[lost.clone(), bytes.clone()].concat()).unwrap();
    assert_eq!(parsed.lost, 17);
    check("lost records are counted", &[lost, bytes].concat(), &vcpus, 0);
}

/// A vCPU of which the end of a run was lost runs on one pCPU, not on two: another one is not blamed on it.
#[test]
fn a_lost_end_of_a_run_leaves_nobody_behind() {
    use vsteer_record::xentrace::account::Ran;
    let at = |ticks, pcpu, domain, from, to| (pcpu, change(BEGINS + ticks, domain, 0, from, to));
    let all = [
        at(0, 0, 1, RUNNABLE, RUNNING),
        // Domain 1 left pCPU 0 in the meantime, but that record is lost.
        at(5000, 1, 1, RUNNABLE, RUNNING),
        at(6000, 0, 2, BLOCKED, RUNNABLE),
        at(9000, 1, 1, RUNNING, BLOCKED),
    ];
    let bytes: Vec<u8> = all.iter().flat_map(|(pcpu, bytes)| window(*pcpu, bytes)).collect();
    let mut accounts = Accounts::new(KHZ, 0);
    Reader::default().feed(&bytes, &mut |r: Record| accounts.see(r)).unwrap();
    accounts.finish();
    let blame = accounts.take_blame();
    assert_eq!(blame, [((2, 0), Ran::Unknown, 3000)]);
}

#[test]
fn a_cut_trace_tells_what_is_whole_and_a_wrong_one_is_refused() {
    let vcpus = vec![Vcpu::new(1, 0, &[0], 1), Vcpu::new(2, 0, &[1], 0)];
    let bytes = trace(records(&vcpus, 0), 50);
    let whole = read(&bytes).unwrap();
    let cut = read(&bytes[..bytes.len() - 5]).unwrap();
    assert!(cut.cut && !whole.cut && cut.changes.len() + 1 == whole.changes.len());
    let swapped =
        |bytes: &[u8]| bytes.chunks(4).flat_map(|w| w.iter().rev().copied().collect::<Vec<u8>>()).collect();
    let files: [(&str, Vec<u8>, &str); 4] = [
        ("without its first window", bytes[12..].to_vec(), "does not begin with the pCPU of a window"),
        ("a window that is too short", [window(0, &[]), bytes[12..].to_vec()].concat(), "beyond its window"),
        ("of a big-endian host", swapped(&bytes), "does not begin"),
        ("text", b"CPU0  0 (+ 0)  runstate_change".to_vec(), "does not begin"),
    ];
    for (what, bytes, why) in files {
        let fault = read(&bytes).err().unwrap_or_else(|| panic!("{what} was read")).to_string();
        assert!(fault.contains(why), "{what}: {fault}");
    }
}
