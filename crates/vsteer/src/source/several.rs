//! Several live hosts in one command: what is seen of each as it comes, and which of them failed.

use super::live::{need_vms, only_watch, open_one_of, tell};
use crate::cli::Source;
use crate::interrupt::Interrupt;
use serde_json::json;
use std::collections::{BTreeSet, VecDeque};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use vsteer_core::visible;
use vsteer_core::{Fault, FaultKind};
use vsteer_host::privilege::{CapabilitySet, Kept, confine};
use vsteer_host::remote;
use vsteer_host::several::{Seen, Update, Watch, names};

/// How often to look for a signal while hosts are opened.
const LOOK: Duration = Duration::from_millis(200);
/// Updates that wait to be shown, over all hosts. A host that is faster than the terminal waits.
const WAITING: usize = 64;
/// Threads end by themselves within this time.
const ENDS_WITHIN: Duration = Duration::from_millis(1000);

/// Hosts that failed, in the order in which they did.
#[derive(Default)]
pub struct Failed(Option<FaultKind>);

impl Failed {
    /// Names a host that failed: on standard error, and on standard output too where `line` asks for a line of JSON.
    pub fn say(&mut self, host: &str, fault: &Fault, line: bool) {
        self.0 = self.0.or(Some(fault.kind));
        if line {
            println!("{}", visible::json(&json!({ "host": host, "fault": fault }).to_string()));
        }
        eprintln!("error: {}", visible::message(&format!("{host}: {fault}")));
    }

    /// That of the first host that failed; success if none did.
    pub fn code(&self) -> ExitCode {
        self.0.map_or(ExitCode::SUCCESS, |kind| ExitCode::from(kind.exit_code()))
    }
}

/// Hosts that are watched.
pub struct Several {
    /// Their names.
    pub names: Vec<String>,
    watch: Arc<Watch>,
    from: Receiver<(usize, Seen)>,
    threads: Vec<JoinHandle<()>>,
    /// Seen while others were opened.
    kept: VecDeque<(usize, Box<Update>)>,
    faults: VecDeque<(usize, Fault)>,
    running: usize,
}

impl Several {
    /// Opens all, and waits until each counts or has failed. From then on this process can write nowhere.
    ///
    /// # Errors
    /// `Usage` for a host that is named twice; `Interrupted`.
    pub fn open(
        source: &Source,
        interval: Duration,
        updates: Option<u64>,
        interrupt: &Interrupt,
    ) -> Result<Several, Fault> {
        let names = names(&source.connect)?;
        let watch = Arc::new(Watch::every(interval));
        let (to, from) = sync_channel(WAITING);
        let start = |(place, (source, name)): (usize, (Source, String))| {
            let (watch, to, interrupt) = (Arc::clone(&watch), to.clone(), interrupt.clone());
            let open = move || {
                let mut host = open_one_of(&source, &name, None)?;
                need_vms(&host.config()?, &source)?;
                only_watch(host.as_mut())?;
                Ok(host)
            };
            let updates = updates.unwrap_or(u64::MAX);
            std::thread::spawn(move || watch.host(place, open, updates, &interrupt, &to))
        };
        let threads: Vec<_> =
            source.each().into_iter().zip(names.iter().cloned()).enumerate().map(start).collect();
        let mut all = Several {
            running: threads.len(),
            names,
            watch,
            from,
            threads,
            kept: VecDeque::new(),
            faults: VecDeque::new(),
        };
        let mut awaited: BTreeSet<usize> = (0..all.running).collect();
        while !awaited.is_empty() {
            match all.from.recv_timeout(LOOK) {
                Ok((place, Seen::Open(notes))) => {
                    awaited.remove(&place);
                    tell(notes.into_iter().map(|note| format!("{}: {note}", all.names[place])).collect());
                }
                Ok((place, Seen::Update(update))) => all.kept.push_back((place, update)),
                Ok((place, Seen::End(fault))) => {
                    awaited.remove(&place);
                    all.ended(place, fault);
                }
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {}
            }
            if interrupt.is_set() {
                all.end();
                return Err(Fault::new(FaultKind::Interrupted, "interrupted before anything could be seen"));
            }
        }
        confine(Kept { capabilities: CapabilitySet::empty(), writes_elsewhere: false }, &[])?;
        Ok(all)
    }

    fn ended(&mut self, place: usize, fault: Option<Fault>) {
        self.running -= 1;
        // Ctrl-C does not mean that the host failed.
        let fault = fault.filter(|fault| fault.kind != FaultKind::Interrupted);
        self.faults.extend(fault.map(|fault| (place, fault)));
    }

    /// The next update within this time.
    pub fn next(&mut self, within: Duration) -> Option<(usize, Box<Update>)> {
        if let Some(kept) = self.kept.pop_front() {
            return Some(kept);
        }
        match self.from.recv_timeout(within) {
            Ok((place, Seen::Update(update))) => Some((place, update)),
            Ok((place, Seen::End(fault))) => {
                self.ended(place, fault);
                None
            }
            Ok((_, Seen::Open(_))) | Err(_) => None,
        }
    }

    /// The next host that failed.
    pub fn next_fault(&mut self) -> Option<(usize, Fault)> {
        self.faults.pop_front()
    }

    /// Does nothing more come?
    pub fn is_over(&self) -> bool {
        self.running == 0 && self.kept.is_empty()
    }

    /// Samples at another interval from now on.
    pub fn set_interval(&self, interval: Duration) {
        self.watch.set(interval);
    }

    /// Ends all connections.
    pub fn end(&mut self) {
        self.watch.over.store(true, Ordering::Relaxed);
        let begun = Instant::now();
        while !self.threads.iter().all(JoinHandle::is_finished) && begun.elapsed() < ENDS_WITHIN {
            // Room for those that wait to send.
            let _ = self.from.recv_timeout(Duration::from_millis(20));
        }
        // Those that wait for an answer.
        if !self.threads.iter().all(JoinHandle::is_finished) {
            remote::end_all();
        }
    }
}
