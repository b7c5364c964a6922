//! How fast is a trace of Xen's read, beside xenalyze on the same file?
//!
//! `xentrace_speed TRACE OUT.xentrace TIMES [XENALYZE]` writes a long trace (a part of a real one, of one pCPU, again
//! and again, each time later) and reads it: by the parser alone, and with every vCPU's account kept, as `vsteer
//! record` does; and lets xenalyze summarise it. Medians of five; one JSON line.
//!
//! The part begins and ends between two windows, where every vCPU is in the same state as at its other end: xenalyze
//! gives up on a trace whose vCPUs jump ("old_runstate running, but runstate blocked").

use std::collections::{BTreeMap, HashMap};
use std::io::Read;
use std::ops::Range;
use std::process::{Command, Stdio};
use std::time::Instant;
use vsteer_record::xentrace::account::Accounts;
use vsteer_record::xentrace::{Reader, Record, read};

const ROUNDS: usize = 5;
const HZ: u64 = 1_000_000_000;
/// What is fed at a time, as from a pipe.
const PIECE: usize = 1 << 16;

/// Where each record begins, and the next one.
fn records(bytes: &[u8]) -> impl Iterator<Item = Range<usize>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let header = u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?);
        let end = at + if header >> 31 == 1 { 12 } else { 4 } + 4 * (header >> 28 & 7) as usize;
        let record = at..end;
        at = end;
        (end <= bytes.len()).then_some(record)
    })
}

fn begins_a_window(record: &[u8]) -> bool {
    // TRC_TRACE_CPU_CHANGE, xen/include/public/trace.h, Xen 4.17.
    record[..4] == 0x2001_f003_u32.to_le_bytes()
}

/// The longest part of the trace that can follow itself, and the ticks that it takes.
fn part(bytes: &[u8]) -> Option<(Range<usize>, u64)> {
    let vcpus = read(bytes)
        .ok()?
        .changes
        .iter()
        .map(|c| (c.domain, c.vcpu))
        .collect::<std::collections::BTreeSet<_>>();
    let (mut reader, mut states, mut now) = (Reader::default(), BTreeMap::new(), 0);
    let mut firsts = HashMap::new();
    let mut longest: Option<(Range<usize>, u64)> = None;
    for record in records(bytes) {
        if begins_a_window(&bytes[record.clone()]) && states.len() == vcpus.len() {
            let key: Vec<u8> = states.values().map(|state| *state as u8).collect();
            let (from, since) = *firsts.entry(key).or_insert((record.start, now));
            if longest.as_ref().is_none_or(|(l, _)| record.start - from > l.len()) {
                longest = Some((from..record.start, now - since));
            }
        }
        reader
            .feed(&bytes[record], &mut |record| {
                if let Record::Change(c) = record {
                    states.insert((c.domain, c.vcpu), c.to);
                    now = c.ticks;
                }
            })
            .ok()?;
    }
    longest.filter(|(part, _)| !part.is_empty())
}

/// The trace up to the end of a part of it, and then that part again, so that it is there so many times, each a span
/// later.
fn longer(trace: &[u8], (part, span): (Range<usize>, u64), times: u64) -> Vec<u8> {
    let mut all = trace[..part.end].to_vec();
    all.reserve(part.len() * times as usize);
    for time in 1..times {
        let begin = all.len();
        all.extend_from_slice(&trace[part.clone()]);
        for record in records(&trace[part.clone()]) {
            let at = begin + record.start;
            // The top bit of its header: a time stamp follows.
            if all[at + 3] & 0x80 != 0 {
                let ticks = &mut all[at + 4..at + 12];
                let later = u64::from_le_bytes((&*ticks).try_into().expect("eight bytes")) + time * span;
                ticks.copy_from_slice(&later.to_le_bytes());
            }
        }
    }
    all
}

fn median_s(mut round: impl FnMut()) -> f64 {
    let mut times: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let begin = Instant::now();
            round();
            begin.elapsed().as_secs_f64()
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times[ROUNDS / 2]
}

/// The file as it would come from a pipe.
fn pieces(file: &str, mut take: impl FnMut(&[u8])) {
    let mut file = std::fs::File::open(file).expect("it is there");
    let mut piece = vec![0; PIECE];
    while let Ok(n @ 1..) = file.read(&mut piece) {
        take(&piece[..n]);
    }
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [from, to, times, rest @ ..] = &words[..] else {
        eprintln!("xentrace_speed TRACE OUT.xentrace TIMES [XENALYZE]");
        std::process::exit(2);
    };
    let bytes = std::fs::read(from).expect("the trace can be read");
    let part = part(&bytes).expect("a trace of one pCPU, with a part that can follow itself");
    let all = longer(&bytes, part, times.parse().expect("TIMES is a number"));
    std::fs::write(to, &all).expect("the long trace can be written");
    let mut records = 0u64;
    let parse_s = median_s(|| {
        records = 0;
        let mut reader = Reader::default();
        pieces(to, |piece| reader.feed(piece, &mut |_| records += 1).expect("it is a trace"));
    });
    let account_s = median_s(|| {
        let (mut reader, mut accounts) = (Reader::default(), Accounts::new(HZ / 1000, 200));
        pieces(to, |piece| {
            reader.feed(piece, &mut |record| accounts.see(record)).expect("it is a trace");
            accounts.settle();
        });
        accounts.finish();
        assert!(accounts.vcpus().len() > 1);
    });
    let xenalyze_s = rest.first().map(|program| {
        median_s(|| {
            let mut command = Command::new(program);
            command.args(["--cpu-hz", &HZ.to_string(), "--summary", to]);
            let status = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
            assert!(status.is_ok_and(|s| s.success()), "xenalyze reads it");
        })
    });
    println!(
        "{}",
        serde_json::json!({
            "bytes": all.len(), "records": records, "parse_s": parse_s, "account_s": account_s,
            "xenalyze_s": xenalyze_s,
            "parse_times_xenalyze": xenalyze_s.map(|x| x / parse_s),
            "account_times_xenalyze": xenalyze_s.map(|x| x / account_s),
        })
    );
}
