//! A Xen host: its own trace tells exactly what its vCPUs do; its own tools tell how it is configured.
//!
//! `xentrace` writes every change of a vCPU's runstate, and [`Accounts`] turns the changes into counters. So running,
//! ready, blocked and parked times are each measured, and none is the remainder of the others. Sampling more often
//! costs nothing. Everything else comes from `xl`, in this Domain-0 or over SSH ([`tools::Place`]). `xl` takes a
//! second, so vsteer calls it only for a configuration, or when an unknown domain appears.
//!
//! Without a trace, vsteer samples the vCPUs instead ([`sampled`]).
//!
//! Times come from Xen's time stamp counters. They are slightly late, because `xentrace` writes in pieces.
//!
//! Source: xentrace(8), xl(1) of Xen 4.17; `xen/common/trace.c`.
//!
//! Left out: several readers of one trace. Two `xentrace` processes take each other's records away.

use crate::actuate::{Actuate, Former, Restored};
use crate::kvm::inventory::{is_named, no_such_vm};
use crate::observe::Observe;
use std::io::Read;
use std::process::ChildStdout;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};
use vsteer_core::nouns::{Batch, Collector, HostConfig, VmId};
use vsteer_core::setting::{Change, Scope, Step};
use vsteer_core::{Fault, FaultKind};
use vsteer_record::xentrace::Reader;
use vsteer_record::xentrace::account::Accounts;

mod act;
pub mod backend;
pub mod config;
mod io;
pub mod listing;
mod pools;
pub mod sampled;
pub mod saved;
mod told;
pub mod tools;
mod words;
mod xenctrl;

use config::{Listed, vm_id};
use told::Told;
use tools::{Place, Running};

/// Runstate changes and nothing else: TRC_SCHED_MIN of xen/include/public/trace.h.
const EVENTS: &str = "0x00021000";
/// `xentrace` looks at the buffers this often, ms.
const POLL_MS: u64 = 50;
/// So a record is this late at most.
const HOLD_MS: u64 = 4 * POLL_MS;
/// Pages of buffer per pCPU: at 12 bytes and more a record, 20,000 of them.
const PAGES: &str = "64";
const OUTPUT: &str = "/proc/self/fd/1";
/// The first records come within this.
const FIRST_WITHIN: Duration = Duration::from_secs(10);
/// How often to ask for pins, memory and the like. Weights, caps and the list of domains are read with each
/// configuration.
const ASK_ALL_EVERY: Duration = Duration::from_secs(300);
/// An unknown domain is asked for this often at most.
const ASK_AGAIN: Duration = Duration::from_secs(2);

/// A Xen host.
pub struct XenHost {
    place: Place,
    /// Names, ids or patterns of the domains that are wanted; empty: all.
    wanted: Vec<String>,
    told: Told,
    asked: Instant,
    tracer: Running,
    pieces: Receiver<Vec<u8>>,
    reader: Reader,
    /// Wall-clock time at tick 0.
    epoch_ns: Option<u64>,
    /// Number of lost records in the last message.
    told_lost: u64,
}

impl XenHost {
    /// Asks for the configuration and starts the trace.
    ///
    /// # Errors
    /// As [`Place::run`]; `NothingThere` if no domain is `wanted`.
    pub fn open(place: Place, wanted: Vec<String>) -> Result<XenHost, Fault> {
        let listed = Listed::ask(&place)?;
        need_wanted(&wanted, &listed)?;
        let accounts = Accounts::new(listed.khz()?, HOLD_MS);
        let poll = POLL_MS.to_string();
        // It must have a file to write to: its own output. -D: what lay in the buffers is of before.
        let mut tracer = place.start(&["xentrace", "-D", "-e", EVENTS, "-s", &poll, "-S", PAGES, OUTPUT])?;
        let output = tracer.take_output().expect("it was just started");
        Ok(XenHost {
            place,
            wanted,
            told: Told::new(listed, accounts),
            asked: Instant::now(),
            tracer,
            pieces: pieces_of(output),
            reader: Reader::default(),
            epoch_ns: None,
            told_lost: 0,
        })
    }

    /// What has come of the trace.
    fn read(&mut self) -> Result<(), Fault> {
        let (reader, accounts) = (&mut self.reader, &mut self.told.accounts);
        for piece in self.pieces.try_iter() {
            reader.feed(&piece, &mut |record| accounts.see(record))?;
        }
        accounts.settle();
        if accounts.lost > self.told_lost {
            eprintln!(
                "vsteer: Xen dropped {} trace records for lack of room: some waits from here on are missing",
                accounts.lost - self.told_lost
            );
            self.told_lost = accounts.lost;
        }
        Ok(())
    }

    fn ask_if_unknown(&mut self) -> Result<(), Fault> {
        if self.told.has_strangers() && self.asked.elapsed() > ASK_AGAIN {
            self.ask()?;
        }
        Ok(())
    }

    /// What a change is about, as it is now.
    fn ask_of(&mut self, change: &Change) -> Result<(), Fault> {
        let of_shares = matches!(change, Change::Weight(_) | Change::Quota(_));
        if of_shares && self.told.listed.ask_shares(&self.place)? { Ok(()) } else { self.ask() }
    }

    fn ask(&mut self) -> Result<(), Fault> {
        self.told.listed = Listed::ask(&self.place)?;
        self.asked = Instant::now();
        self.told.introduce();
        Ok(())
    }
}

impl Observe for XenHost {
    fn config(&mut self) -> Result<HostConfig, Fault> {
        // `xl` takes long: what seldom changes is not asked for each time.
        if self.asked.elapsed() > ASK_ALL_EVERY || !self.told.listed.ask_shares(&self.place)? {
            self.ask()?;
        }
        let mut config = self.told.listed.config()?;
        config.vms.retain(|vm| is_wanted(&self.wanted, &vm.name, &vm.id));
        Ok(config)
    }

    fn collector(&self) -> Collector {
        Told::collector()
    }

    fn sample(&mut self) -> Result<Batch, Fault> {
        let begin = Instant::now();
        self.read()?;
        while self.told.accounts.now().is_none() {
            if let Some(fault) = self.tracer.ended() {
                return Err(fault);
            }
            if begin.elapsed() > FIRST_WITHIN {
                let what = format!(
                    "no vCPU on {} changed its state for {} s",
                    self.place.told(),
                    FIRST_WITHIN.as_secs()
                );
                return Err(Fault::new(FaultKind::NothingThere, what)
                    .because("xentrace wrote nothing")
                    .help("stop any other xentrace: it takes the records away"));
            }
            std::thread::sleep(Duration::from_millis(POLL_MS));
            self.read()?;
        }
        if let Some(fault) = self.tracer.ended() {
            return Err(fault);
        }
        self.ask_if_unknown()?;
        let epoch_ns = &mut self.epoch_ns;
        let mut batch =
            self.told.batch(|mono_ns| *epoch_ns.get_or_insert_with(|| unix_ns().saturating_sub(mono_ns)));
        batch.vms = io::samples(&self.place, &self.told.listed.domains);
        if !self.wanted.is_empty() {
            let domains = &self.told.listed.domains;
            let wanted =
                |id: &VmId| domains.iter().any(|d| vm_id(d) == *id && is_wanted(&self.wanted, &d.name, id));
            batch.threads.retain(|t| wanted(&t.vm));
            batch.vms.retain(|vm| wanted(&vm.vm));
            batch.blame.retain(|b| wanted(&b.victim));
        }
        Ok(batch)
    }
}

/// As its tools are asked ([`act`]); of who is known, for weights and caps alone, no more is asked than those.
impl Actuate for XenHost {
    fn current(&mut self, step: &Step) -> Result<Change, Fault> {
        self.ask_of(&step.change)?;
        act::current(&self.told.listed, step)
    }

    fn touches(&mut self, step: &Step) -> Vec<String> {
        act::touches(&self.place, &self.told.listed, step)
    }

    fn former(&mut self, step: &Step, scope: Scope) -> Result<Former, Fault> {
        self.ask_of(&step.change)?;
        act::former(&self.told.listed, step, scope)
    }

    fn act(&mut self, step: &Step, scope: Scope) -> Result<(), Fault> {
        self.ask_of(&step.change)?;
        act::act(&self.place, &self.told.listed, step, scope)
    }

    fn restore(&mut self, step: &Step, former: &Former) -> Result<Restored, Fault> {
        self.ask_of(&step.change)?;
        act::restore(&self.place, &self.told.listed, step, former)
    }
}

/// Refuses names that match no domain.
fn need_wanted(wanted: &[String], listed: &Listed) -> Result<(), Fault> {
    if wanted.is_empty() || listed.domains.iter().any(|d| is_wanted(wanted, &d.name, &vm_id(d))) {
        return Ok(());
    }
    let there: Vec<String> = listed.domains.iter().map(|d| format!("{:?}", d.name)).collect();
    Err(no_such_vm(wanted, &there))
}

/// Is this domain one that is asked for?
fn is_wanted(wanted: &[String], name: &str, id: &VmId) -> bool {
    wanted.is_empty() || wanted.iter().any(|pattern| is_named(pattern, name, id))
}

/// What a pipe brings, as it comes.
fn pieces_of(mut output: ChildStdout) -> Receiver<Vec<u8>> {
    let (send, pieces) = channel();
    std::thread::spawn(move || {
        let mut piece = vec![0; 1 << 16];
        while let Ok(n @ 1..) = output.read(&mut piece) {
            if send.send(piece[..n].to_vec()).is_err() {
                break;
            }
        }
    });
    pieces
}

fn unix_ns() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(0, |d| u64::try_from(d.as_nanos()).unwrap_or(u64::MAX))
}
