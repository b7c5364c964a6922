//! Reads the runstate changes of vCPUs from a trace that `xentrace` wrote.
//!
//! A trace consists of windows. Each window has the records of one pCPU, and its first record gives its
//! length. A record is a header (event, number of words that follow, whether a time stamp follows), the time
//! stamp counter, and words. Xen writes one whenever a vCPU's runstate changes: running, runnable, blocked,
//! offline (a vCPU that a cap parks is offline, not runnable). Windows of several pCPUs are not in order of
//! time. [`Trace::changes`] are.
//!
//! Source: Xen 4.17, xen/include/public/trace.h, xen/common/sched/core.c (trace_runstate_change).
//!
//! Left out: events other than runstate changes, which are only counted; traces of a big-endian host.

pub mod account;
mod order;

use std::collections::BTreeMap;
use vsteer_core::{Fault, FaultKind};

/// The event in a header.
const EVENT: u32 = 0x0fff_ffff;
const WORDS_SHIFT: u32 = 28;
const HAS_TIME: u32 = 1 << 31;
const LOST_RECORDS: u32 = 0x0001_f001;
const CPU_CHANGE: u32 = 0x0001_f003;
/// The old state is in bits 8 and 9, the new one in bits 4 and 5.
const RUNSTATE_CHANGE: u32 = 0x0002_1001;
const RUNSTATES: u32 = 0x0330;
const SAYS: &[u8] = b"change evtmask";
/// The domain number of the idle vCPUs, which belong to no domain (DOMID_IDLE).
pub const IDLE_DOMAIN: u16 = 0x7fff;

/// The state of a vCPU (RUNSTATE_* of xen/include/public/vcpu.h).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Runstate {
    /// On a pCPU.
    Running,
    /// Could run, but has no pCPU.
    Runnable,
    /// Waits for an event.
    Blocked,
    /// Neither: paused, or parked by a cap.
    Offline,
}

impl Runstate {
    fn of(bits: u32) -> Runstate {
        [Runstate::Running, Runstate::Runnable, Runstate::Blocked, Runstate::Offline][(bits & 3) as usize]
    }
}

/// A vCPU changes its state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Change {
    /// The pCPU's time stamp counter.
    pub ticks: u64,
    /// The pCPU that recorded the change. If a vCPU starts or stops running, this is its pCPU.
    pub pcpu: u16,
    /// The domain's number.
    pub domain: u16,
    /// The vCPU's number in the domain.
    pub vcpu: u16,
    /// The former state.
    pub from: Runstate,
    /// The new state.
    pub to: Runstate,
}

/// The content of a trace file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Trace {
    /// The changes in order of time.
    pub changes: Vec<Change>,
    /// The number of records of other events.
    pub others: u64,
    /// The number of records that Xen dropped for lack of room, as Xen reports.
    pub lost: u64,
    /// The file ends inside a record. That record and all later ones are missing.
    pub cut: bool,
}

/// The next item of a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Record {
    /// A vCPU changed its state.
    Change(Change),
    /// Number of records that Xen dropped for lack of room.
    Lost(u64),
    /// Another event.
    Other,
}

/// Reads a trace in pieces of any length.
#[derive(Debug, Default)]
pub struct Reader {
    /// The start of a record that is not complete yet.
    pending: Vec<u8>,
    /// The position of that record in the trace.
    at: u64,
    pcpu: Option<u16>,
    window_end: u64,
}

impl Reader {
    /// Reads the next piece.
    ///
    /// # Errors
    /// `BadInput` with the first byte that is not valid.
    pub fn feed(&mut self, bytes: &[u8], each: &mut impl FnMut(Record)) -> Result<(), Fault> {
        if self.pending.is_empty() {
            let read = self.read(bytes, each)?;
            self.pending.extend_from_slice(&bytes[read..]);
            return Ok(());
        }
        let mut pending = std::mem::take(&mut self.pending);
        pending.extend_from_slice(bytes);
        let read = self.read(&pending, each)?;
        pending.drain(..read);
        self.pending = pending;
        Ok(())
    }

    /// Is the last record incomplete so far?
    pub fn is_cut(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Reads complete records; returns their length in bytes.
    fn read(&mut self, bytes: &[u8], each: &mut impl FnMut(Record)) -> Result<usize, Fault> {
        let word = |at: usize| -> Option<u32> {
            bytes.get(at..at + 4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]))
        };
        let begin = self.at;
        let bad = |at: usize, why: &str| {
            Fault::new(
                FaultKind::BadInput,
                format!("not a valid trace of xentrace (byte {})", begin + at as u64),
            )
            .because(why)
            .help("record it with `xentrace -D -e 0x00021000 FILE`")
        };
        let mut at = 0;
        // If xentrace writes to its standard output, a message for people comes first.
        if begin == 0 && bytes.starts_with(SAYS) {
            let Some(end) = bytes.iter().position(|b| *b == b'\n') else { return Ok(0) };
            at = end + 1;
        }
        while let Some(header) = word(at) {
            let timed = header & HAS_TIME != 0;
            let words = (header >> WORDS_SHIFT & 7) as usize;
            let data = at + if timed { 12 } else { 4 };
            let end = data + 4 * words;
            if end > bytes.len() {
                break;
            }
            let event = header & EVENT;
            if event == CPU_CHANGE {
                let (Some(cpu), Some(size), false) = (word(data), word(data + 4), words < 2) else {
                    return Err(bad(at, "a window lacks its pCPU and length"));
                };
                self.pcpu = Some(u16::try_from(cpu).map_err(|_| bad(at, "the pCPU number is not valid"))?);
                self.window_end = begin + end as u64 + u64::from(size);
                at = end;
                continue;
            }
            let Some(pcpu) = self.pcpu else {
                return Err(bad(
                    at,
                    &format!("it does not begin with the pCPU of a window, but with {header:#010x}"),
                ));
            };
            if begin + end as u64 > self.window_end {
                return Err(bad(at, "a record extends beyond its window"));
            }
            each(if event == LOST_RECORDS && words > 0 {
                Record::Lost(u64::from(word(data).unwrap_or(0)))
            } else if event & !RUNSTATES == RUNSTATE_CHANGE && timed && words >= 1 {
                let half = |n: usize| word(at + 4 + 4 * n).map_or(0, u64::from);
                let whose = word(data).unwrap_or(0);
                Record::Change(Change {
                    ticks: half(0) | half(1) << 32,
                    pcpu,
                    domain: (whose >> 16) as u16,
                    vcpu: whose as u16,
                    from: Runstate::of(event >> 8),
                    to: Runstate::of(event >> 4),
                })
            } else {
                Record::Other
            });
            at = end;
        }
        self.at += at as u64;
        Ok(at)
    }
}

/// Reads a whole file.
///
/// # Errors
/// `BadInput` with the byte that is not valid. A trace that only ends early is not an error, see
/// [`Trace::cut`].
pub fn read(bytes: &[u8]) -> Result<Trace, Fault> {
    let mut trace = Trace::default();
    let mut reader = Reader::default();
    reader.feed(bytes, &mut |record| match record {
        Record::Change(change) => trace.changes.push(change),
        Record::Lost(n) => trace.lost += n,
        Record::Other => trace.others += 1,
    })?;
    trace.cut = reader.is_cut();
    order::sort(&mut trace.changes);
    Ok(trace)
}

/// What one vCPU did from the first to the last change of a trace.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Seen {
    /// ns in each [`Runstate`].
    pub ns: [u64; 4],
    /// How often it got a pCPU.
    pub dispatches: u64,
    /// The time from each wake-up to the pCPU, ns.
    pub wakes_ns: Vec<u64>,
}

impl Seen {
    /// A state's share of the time; `None` if no time passed.
    pub fn share(&self, state: Runstate) -> Option<f64> {
        let all: f64 = self.ns.iter().map(|ns| *ns as f64).sum();
        (all > 0.0).then(|| self.ns[state as usize] as f64 / all)
    }
}

/// What each vCPU of each domain did. The time stamp counter runs at `khz`, which Xen reports (`xl info`,
/// cpu_mhz). The result lacks vCPUs that never changed their state.
pub fn seen(trace: &Trace, khz: u64) -> BTreeMap<(u16, u16), Seen> {
    struct Now {
        since: u64,
        state: Runstate,
        woken: Option<u64>,
        seen: Seen,
    }
    // The ticks of a corrupt trace may have any value.
    let ns = |ticks: u64| {
        u64::try_from(u128::from(ticks) * 1_000_000 / u128::from(khz.max(1))).unwrap_or(u64::MAX)
    };
    let add = |sum: &mut u64, ticks: u64| *sum = sum.saturating_add(ns(ticks));
    let (first, last) = match (trace.changes.first(), trace.changes.last()) {
        (Some(first), Some(last)) => (first.ticks, last.ticks),
        _ => return BTreeMap::new(),
    };
    let mut all: BTreeMap<(u16, u16), Now> = BTreeMap::new();
    for c in trace.changes.iter().filter(|c| c.domain != IDLE_DOMAIN) {
        let now = all.entry((c.domain, c.vcpu)).or_insert_with(|| Now {
            since: first,
            state: c.from,
            woken: None,
            seen: Seen::default(),
        });
        add(&mut now.seen.ns[now.state as usize], c.ticks - now.since);
        (now.since, now.state) = (c.ticks, c.to);
        match (c.from, c.to) {
            (Runstate::Blocked, Runstate::Runnable) => now.woken = Some(c.ticks),
            (_, Runstate::Running) => {
                now.seen.dispatches += 1;
                now.seen.wakes_ns.extend(now.woken.take().map(|at| ns(c.ticks - at)));
            }
            // Preempted or paused, so the vCPU no longer waits because of its wake-up.
            _ => now.woken = None,
        }
    }
    let end = |(whose, mut now): ((u16, u16), Now)| {
        add(&mut now.seen.ns[now.state as usize], last - now.since);
        (whose, now.seen)
    };
    all.into_iter().map(end).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn window(cpu: u32, records: &[u8]) -> Vec<u8> {
        let words = [CPU_CHANGE | 2 << WORDS_SHIFT, cpu, records.len() as u32];
        let mut bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        bytes.extend(records);
        bytes
    }

    fn change(ticks: u64, domain: u32, vcpu: u32, from: u32, to: u32) -> Vec<u8> {
        let event = RUNSTATE_CHANGE | from << 8 | to << 4 | 1 << WORDS_SHIFT | HAS_TIME;
        let words = [event, ticks as u32, (ticks >> 32) as u32, domain << 16 | vcpu];
        words.iter().flat_map(|w| w.to_le_bytes()).collect()
    }

    #[test]
    fn changes_of_several_pcpus_are_put_into_order() {
        let first = window(0, &[change(5 << 32, 1, 0, 1, 0), change((5 << 32) + 9, 1, 0, 0, 2)].concat());
        let second = window(3, &change((5 << 32) + 4, 2, 1, 2, 1));
        let trace = read(&[first, second].concat()).unwrap();
        let told: Vec<_> =
            trace.changes.iter().map(|c| (c.ticks - (5 << 32), c.pcpu, c.domain, c.vcpu, c.to)).collect();
        assert_eq!(
            told,
            [
                (0, 0, 1, 0, Runstate::Running),
                (4, 3, 2, 1, Runstate::Runnable),
                (9, 0, 1, 0, Runstate::Blocked)
            ]
        );
        assert_eq!((trace.lost, trace.others, trace.cut), (0, 0, false));
    }

    #[test]
    fn what_xentrace_says_before_its_trace_is_passed_over() {
        let bytes = [b"change evtmask to 0x21000\n", &window(0, &change(7, 1, 0, 1, 0))[..]].concat();
        assert_eq!(read(&bytes).unwrap().changes[0].ticks, 7);
        let mut reader = Reader::default();
        let mut seen = 0;
        bytes.chunks(9).for_each(|piece| reader.feed(piece, &mut |_| seen += 1).unwrap());
        assert_eq!((seen, reader.is_cut()), (1, false));
    }

    #[test]
    fn what_is_lost_or_cut_is_told() {
        let lost: Vec<u8> = [LOST_RECORDS | 4 << WORDS_SHIFT, 70, 0, 0, 0]
            .iter()
            .flat_map(|w: &u32| w.to_le_bytes())
            .collect();
        let other: Vec<u8> =
            (0x0002_1002u32 | HAS_TIME | 1 << WORDS_SHIFT).to_le_bytes().into_iter().chain([0; 12]).collect();
        let whole = window(0, &[lost, other, change(1, 1, 0, 1, 0)].concat());
        let trace = read(&whole).unwrap();
        assert_eq!((trace.lost, trace.others, trace.changes.len(), trace.cut), (70, 1, 1, false));
        let trace = read(&whole[..whole.len() - 3]).unwrap();
        assert_eq!((trace.changes.len(), trace.cut), (0, true));
        for (bytes, why) in [
            (change(1, 1, 0, 1, 0), "begin"),
            ([window(0, &[]), change(1, 1, 0, 1, 0)].concat(), "beyond its window"),
            (b"PK\x03\x04 not a trace at all".to_vec(), "not a valid trace"),
        ] {
            assert!(read(&bytes).unwrap_err().to_string().contains(why), "{why}");
        }
    }

    #[test]
    fn time_in_each_state_from_the_first_change_to_the_last() {
        // At 1 MHz a tick is 1,000 ns. Domain 1 sleeps until 10, waits until 14, runs until 20; domain 2 runs, then
        // waits.
        let changes = [
            change(0, 2, 0, 1, 0),
            change(10, 1, 0, 2, 1),
            change(14, 2, 0, 0, 1),
            change(14, 1, 0, 1, 0),
            change(20, 1, 0, 0, 2),
        ];
        let idle = change(3, u32::from(IDLE_DOMAIN), 0, 0, 1);
        let trace = read(&window(0, &[changes.concat(), idle].concat())).unwrap();
        let all = seen(&trace, 1000);
        assert_eq!(all.len(), 2);
        let one = &all[&(1, 0)];
        assert_eq!((one.ns, one.dispatches, &one.wakes_ns[..]), ([6_000, 4_000, 10_000, 0], 1, &[4_000][..]));
        assert_eq!(all[&(2, 0)].ns, [14_000, 6_000, 0, 0]);
        assert_eq!(one.share(Runstate::Blocked), Some(0.5));
        assert!(seen(&Trace::default(), 1000).is_empty());
    }

    proptest! {
        /// The result is the same wherever the trace is cut into pieces.
        #[test]
        fn it_may_come_in_pieces(ticks in proptest::collection::vec(0u64..1000, 1..40), piece in 1usize..50) {
            let records: Vec<u8> = ticks.iter().flat_map(|t| change(*t, 1, 0, 1, 0)).collect();
            let whole = [window(0, &records), window(1, &records)].concat();
            let mut reader = Reader::default();
            let mut seen = Vec::new();
            for bytes in whole.chunks(piece) {
                reader.feed(bytes, &mut |r| seen.push(r)).unwrap();
            }
            prop_assert!(!reader.is_cut());
            let told: Vec<u64> =
                seen.iter().map(|r| if let Record::Change(c) = r { c.ticks } else { u64::MAX }).collect();
            prop_assert_eq!(told, [ticks.clone(), ticks].concat());
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400), cpu in 0u32..4) {
            let _ = read(&bytes);
            let _ = read(&window(cpu, &bytes));
        }
    }
}
