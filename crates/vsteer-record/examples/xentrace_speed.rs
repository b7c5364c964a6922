//! How fast is a trace of Xen's read, beside xenalyze on the same file?
//!
//! `xentrace_speed TRACE OUT.xentrace TIMES [XENALYZE]` writes a long trace (a real one, again and again, each time later) and
//! reads it: by the parser alone, and with every vCPU's account kept, as `vsteer record` does; and lets xenalyze summarise
//! it. Medians of five; one JSON line.
//!
//! `GAP(xenalyze-seam)`: where one time ends and the next begins a vCPU's state jumps, and xenalyze gives up on some traces ("old_runstate
//! running, but runstate blocked"), whatever its tolerance. Then there is no figure: a trace of minutes would be needed in place of a long one made.

use std::io::Read;
use std::process::{Command, Stdio};
use std::time::Instant;
use vsteer_record::xentrace::account::Accounts;
use vsteer_record::xentrace::{Reader, read};

const ROUNDS: usize = 5;
const HZ: u64 = 1_000_000_000;
/// What is fed at a time, as from a pipe.
const PIECE: usize = 1 << 16;

/// The trace `times` over, each time `span` ticks later.
fn longer(trace: &[u8], times: u64, span: u64) -> Vec<u8> {
    let mut all = Vec::with_capacity(trace.len() * times as usize);
    for time in 0..times {
        let begin = all.len();
        all.extend_from_slice(trace);
        let bytes = &mut all[begin..];
        let mut at = 0;
        while at + 4 <= bytes.len() {
            let header = u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
            let timed = header >> 31 == 1;
            if timed {
                let ticks = u64::from_le_bytes(bytes[at + 4..at + 12].try_into().expect("eight bytes"));
                bytes[at + 4..at + 12].copy_from_slice(&(ticks + time * span).to_le_bytes());
            }
            at += if timed { 12 } else { 4 } + 4 * (header >> 28 & 7) as usize;
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
    let trace = read(&bytes).expect("it is a trace");
    let ticks = |of: Option<&vsteer_record::xentrace::Change>| of.map_or(0, |c| c.ticks);
    let span = ticks(trace.changes.last()) - ticks(trace.changes.first()) + 1_000_000;
    let all = longer(&bytes, times.parse().expect("TIMES is a number"), span);
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
