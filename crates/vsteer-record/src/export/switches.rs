//! Exports the recorded context switches as Perfetto's own scheduling events. ui.perfetto.dev then draws a
//! track per pCPU with a slice per period of running, and the states of every thread.
//!
//! The events have the form of ftrace's `sched_switch` (`ftrace_event_bundle.proto`, `sched.proto`). A bundle
//! holds up to 256 switches of one pCPU in the recording's order, and the viewer sorts. A VM's process has
//! the VM's name; its threads have their name and role. A bundle after lost switches says so. Times are
//! `CLOCK_MONOTONIC`, as for the counters.
//!
//! Left out: priorities (not recorded), wake-ups, and thread names that change while a thread lives.

use super::names::Names;
use super::protobuf::{Message, TRACE_PACKET};
use crate::folder::Recording;
use crate::task::Task;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use vsteer_core::Fault;
use vsteer_core::timeline::Switch;
use vsteer_core::visible::line;

// Field numbers of trace_packet.proto, ftrace_event_bundle.proto, ftrace_event.proto, sched.proto, process_tree.proto.
const PACKET_FTRACE: u32 = 1;
const PACKET_PROCESS_TREE: u32 = 2;
const BUNDLE_CPU: u32 = 1;
const BUNDLE_EVENT: u32 = 2;
const BUNDLE_LOST: u32 = 3;
const EVENT_TIMESTAMP: u32 = 1;
const EVENT_PID: u32 = 2;
const EVENT_SWITCH: u32 = 4;
const SWITCH_PREV_COMM: u32 = 1;
const SWITCH_PREV_PID: u32 = 2;
const SWITCH_PREV_STATE: u32 = 4;
const SWITCH_NEXT_COMM: u32 = 5;
const SWITCH_NEXT_PID: u32 = 6;
const TREE_PROCESS: u32 = 1;
const TREE_THREAD: u32 = 2;
const PROCESS_PID: u32 = 1;
const PROCESS_CMDLINE: u32 = 3;
const THREAD_TID: u32 = 1;
const THREAD_NAME: u32 = 2;
const THREAD_TGID: u32 = 3;

/// The most switches in one bundle.
const BUNDLE: usize = 256;

/// Why the writing stopped.
enum Stop {
    Writing(io::Error),
    Reading(Fault),
}

impl From<Fault> for Stop {
    fn from(f: Fault) -> Stop {
        Stop::Reading(f)
    }
}

/// Writes a process tree and every recorded switch; nothing if none were recorded.
pub(super) fn write(recording: &Recording, to: &mut impl Write) -> io::Result<()> {
    if !recording.has_switches() {
        return Ok(());
    }
    let names = Names::of_recording(recording);
    let mut packet = |field: u32, m: &Message| {
        let packet = Message::default().message(field, m);
        to.write_all(&Message::default().message(TRACE_PACKET, &packet).0)
    };
    packet(PACKET_PROCESS_TREE, &process_tree(&names))?;

    let mut open: BTreeMap<u32, (Message, usize)> = BTreeMap::new();
    let bundle = |cpu: u32| Message::default().number(BUNDLE_CPU, u64::from(cpu));
    let result = recording.each_switch(|s| -> Result<(), Stop> {
        if s.woken().is_some() {
            return Ok(());
        }
        let (message, count) = open.entry(s.cpu).or_insert_with(|| (bundle(s.cpu), 0));
        if *count >= BUNDLE || (s.lost().is_some() && *count > 0) {
            packet(PACKET_FTRACE, message).map_err(Stop::Writing)?;
            (*message, *count) = (bundle(s.cpu), 0);
        }
        let taken = std::mem::take(message);
        *message = match s.lost() {
            Some(_) => taken.number(BUNDLE_LOST, 1),
            None => taken.message(BUNDLE_EVENT, &event(&s, &names)),
        };
        *count += 1;
        Ok(())
    });
    match result {
        Ok(_) => {}
        Err(Stop::Writing(e)) => return Err(e),
        Err(Stop::Reading(f)) => return Err(io::Error::other(f)),
    }
    open.into_values().try_for_each(|(message, _)| packet(PACKET_FTRACE, &message))
}

fn event(s: &Switch, names: &Names<'_>) -> Message {
    let switch = Message::default()
        .bytes(SWITCH_PREV_COMM, line(&names.of(s.prev, s.ns)).as_bytes())
        .number(SWITCH_PREV_PID, u64::from(s.prev.0))
        .number(SWITCH_PREV_STATE, u64::from(s.prev_state))
        .bytes(SWITCH_NEXT_COMM, line(&names.of(s.next, s.ns)).as_bytes())
        .number(SWITCH_NEXT_PID, u64::from(s.next.0));
    Message::default()
        .number(EVENT_TIMESTAMP, s.ns)
        .number(EVENT_PID, u64::from(s.prev.0))
        .message(EVENT_SWITCH, &switch)
}

fn process_tree(names: &Names<'_>) -> Message {
    let mut tree = Message::default();
    let mut processes = BTreeSet::new();
    let all: Vec<&Task> = names.tasks.iter().collect();
    for t in &all {
        if processes.insert(t.tgid) {
            // A process has the name of its main thread. A VM's process has the VM's name.
            let vm = t.vm.as_ref().and_then(|id| names.vms.get(id)).map(|n| (*n).to_owned());
            let main = all.iter().find(|m| m.tid.0 == t.tgid).map_or(&t.comm, |m| &m.comm);
            let name = vm.unwrap_or_else(|| main.clone());
            let process = Message::default()
                .number(PROCESS_PID, u64::from(t.tgid))
                .bytes(PROCESS_CMDLINE, line(&name).as_bytes());
            tree = tree.message(TREE_PROCESS, &process);
        }
    }
    for t in &all {
        let thread = Message::default()
            .number(THREAD_TID, u64::from(t.tid.0))
            .bytes(THREAD_NAME, line(&names.of_task(t)).as_bytes())
            .number(THREAD_TGID, u64::from(t.tgid));
        tree = tree.message(TREE_THREAD, &thread);
    }
    tree
}
