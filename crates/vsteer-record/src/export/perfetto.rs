//! Exports a recording as a Perfetto trace: a process per VM, a counter track per thread and state. If
//! context switches were recorded, the trace also shows which thread ran on which pCPU (see `switches.rs`).
//!
//! The trace format is protobuf (`protos/perfetto/trace/trace.proto`, Perfetto v50). vsteer writes the two
//! dozen fields by hand instead of using a code generator. Each counter is the share of the interval up to
//! its time stamp, in percent.
//!
//! GAP(perfetto-viewer): parsed by Perfetto's own definitions, but not opened in its viewer.

use super::protobuf::{Message, TRACE_PACKET};
use super::{must_be_new, switches};
use crate::folder::Recording;
use std::collections::BTreeMap;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use vsteer_core::Fault;
use vsteer_core::nouns::{Role, ThreadCounters, Tid, VmId};
use vsteer_core::visible::line;

const PACKET_TIMESTAMP: u32 = 8;
const PACKET_SEQUENCE: u32 = 10;
const PACKET_TRACK_EVENT: u32 = 11;
const PACKET_TRACK_DESCRIPTOR: u32 = 60;
const TRACK_UUID: u32 = 1;
const TRACK_NAME: u32 = 2;
const TRACK_PROCESS: u32 = 3;
const TRACK_PARENT: u32 = 5;
const TRACK_COUNTER: u32 = 8;
const PROCESS_PID: u32 = 1;
const PROCESS_NAME: u32 = 6;
const EVENT_TYPE: u32 = 9;
const EVENT_TRACK: u32 = 11;
const EVENT_DOUBLE_VALUE: u32 = 44;
const TYPE_COUNTER: u64 = 4;

/// The shares to show, by name.
type Shown = (&'static str, fn(&ThreadCounters) -> Option<u64>);
const SHOWN: [Shown; 5] = [
    ("run %", |c| c.run_ns),
    ("ready %", |c| c.ready_ns.or(c.wait_ns)),
    ("limited %", |c| c.limited_ns),
    ("co-stopped %", |c| c.costop_ns),
    ("lag %", |c| c.lag_ns),
];

/// Writes the trace to a new file.
///
/// # Errors
/// `Usage` if the file exists, `NoSpace` if it cannot be written.
pub fn perfetto(recording: &Recording, output: &Path) -> Result<(), Fault> {
    must_be_new(output)?;
    crate::files::replace_by(output, |file| {
        let mut to = BufWriter::new(file);
        write_trace(recording, &mut to)?;
        switches::write(recording, &mut to)?;
        to.flush()
    })
}

fn write_trace(recording: &Recording, to: &mut impl Write) -> io::Result<()> {
    let mut packet = |m: &Message| to.write_all(&Message::default().message(TRACE_PACKET, m).0);
    let mut uuids: BTreeMap<String, u64> = BTreeMap::new();
    let mut next = 1u64;
    let names: BTreeMap<&VmId, (&str, u32)> = recording
        .configs
        .iter()
        .flat_map(|c| &c.config.vms)
        .map(|vm| (&vm.id, (vm.name.as_str(), vm.pid)))
        .collect();
    for pair in recording.batches.windows(2) {
        let ns = pair[1].mono_ns.saturating_sub(pair[0].mono_ns).max(1);
        let before: BTreeMap<(&VmId, Role, Tid), &ThreadCounters> =
            pair[0].threads.iter().map(|t| ((&t.vm, t.role, t.tid), &t.counters)).collect();
        for t in &pair[1].threads {
            let Some(earlier) = before.get(&(&t.vm, t.role, t.tid)) else { continue };
            let (name, pid) = names.get(&t.vm).copied().unwrap_or((&t.vm.0, 0));
            let process = match uuids.get(&*t.vm.0) {
                Some(u) => *u,
                None => {
                    let u = next;
                    next += 1;
                    uuids.insert(t.vm.to_string(), u);
                    let p = Message::default()
                        .number(PROCESS_PID, u64::from(pid))
                        .bytes(PROCESS_NAME, line(name).as_bytes());
                    let d = Message::default().number(TRACK_UUID, u).message(TRACK_PROCESS, &p);
                    packet(&Message::default().message(PACKET_TRACK_DESCRIPTOR, &d))?;
                    u
                }
            };
            for (what, of) in SHOWN {
                let (Some(a), Some(b)) = (of(earlier), of(&t.counters)) else { continue };
                let label = format!("{} {what}", t.role);
                let key = format!("{}\u{0}{}\u{0}{label}", t.vm.0, t.tid.0);
                let track = match uuids.get(&key) {
                    Some(u) => *u,
                    None => {
                        let u = next;
                        next += 1;
                        uuids.insert(key, u);
                        let d = Message::default()
                            .number(TRACK_UUID, u)
                            .bytes(TRACK_NAME, label.as_bytes())
                            .number(TRACK_PARENT, process)
                            .message(TRACK_COUNTER, &Message::default());
                        packet(&Message::default().message(PACKET_TRACK_DESCRIPTOR, &d))?;
                        u
                    }
                };
                let value = 100.0 * b.saturating_sub(a) as f64 / ns as f64;
                let event = Message::default()
                    .number(EVENT_TYPE, TYPE_COUNTER)
                    .number(EVENT_TRACK, track)
                    .double(EVENT_DOUBLE_VALUE, value);
                let p = Message::default()
                    .number(PACKET_TIMESTAMP, pair[1].mono_ns)
                    .number(PACKET_SEQUENCE, 1)
                    .message(PACKET_TRACK_EVENT, &event);
                packet(&p)?;
            }
        }
    }
    Ok(())
}
