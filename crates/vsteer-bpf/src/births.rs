//! Threads that took a vCPU's name, which the kernel side counts before anybody here knows their VM.
//!
//! [`Births`] lays slots ready for them (`bpf/births.h`), hears which thread got which, and keeps those slots until the
//! caller watches the thread or too much time has passed.

use crate::layout::{ARGUMENTS, BirthRaw};
use crate::refused::refused;
use libbpf_rs::{MapCore, MapFlags, MapHandle, Object, RingBuffer, RingBufferBuilder};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::{Duration, Instant};
use vsteer_core::Fault;
use vsteer_core::nouns::Tid;

/// By then a look at all processes and at libvirt's list has found the VM, if there is one.
const WAITS: Duration = Duration::from_secs(10);

/// A thread that took a vCPU's name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Birth {
    /// Its host thread id.
    pub tid: Tid,
    /// Its process.
    pub pid: u32,
    /// The effective user of it.
    pub user: u32,
    /// When its process started, `CLOCK_BOOTTIME` ns.
    pub started_ns: u64,
    /// The name.
    pub name: String,
    /// The first arguments of its process; empty if they are not known.
    pub arguments: Vec<String>,
}

/// The slots that are laid ready, and those that threads got.
pub(crate) struct Births {
    spares: MapHandle,
    ring: RingBuffer<'static>,
    told: Rc<RefCell<Vec<BirthRaw>>>,
    /// 0-based, laid ready.
    ready: BTreeSet<u32>,
    /// Got by threads that are not watched yet.
    got: BTreeMap<Tid, (u32, Instant)>,
    /// Got by threads that ended, and whose id another one has now.
    orphans: Vec<u32>,
    /// Not handed out yet.
    heard: Vec<Birth>,
}

impl Births {
    pub(crate) fn of(object: &Object) -> Result<Births, Fault> {
        let map = |name: &str| object.maps().find(|m| m.name() == name).expect("checked when loaded");
        let spares = MapHandle::try_from(&map("spares"))
            .map_err(|e| refused("cannot share the table of spare slots", &e))?;
        let told = Rc::new(RefCell::default());
        let sink: Rc<RefCell<Vec<BirthRaw>>> = Rc::clone(&told);
        let births = map("births");
        let mut builder = RingBufferBuilder::new();
        let cannot = |e: libbpf_rs::Error| refused("cannot open the ring buffer of births", &e);
        let add = builder.add(&births, move |bytes: &[u8]| {
            if bytes.len() == size_of::<BirthRaw>() {
                sink.borrow_mut().push(bytemuck::pod_read_unaligned(bytes));
            }
            0
        });
        add.map_err(cannot)?;
        let ring = builder.build().map_err(cannot)?;
        Ok(Births {
            spares,
            ring,
            told,
            ready: BTreeSet::new(),
            got: BTreeMap::new(),
            orphans: Vec::new(),
            heard: Vec::new(),
        })
    }

    /// How many slots are laid ready, or are with threads of which nobody knows whether a VM has them.
    pub(crate) fn held(&self) -> usize {
        self.ready.len() + self.got.len() + self.orphans.len()
    }

    /// Lays this slot ready, which must be blank.
    pub(crate) fn lay(&mut self, slot: u32) -> Result<(), Fault> {
        let one_based = slot + 1;
        self.spares
            .update(&[], &one_based.to_ne_bytes(), MapFlags::ANY)
            .map_err(|e| refused("cannot lay a slot ready", &e))?;
        self.ready.insert(slot);
        Ok(())
    }

    /// Takes what the kernel side has told, so that [`Births::take`] knows it.
    pub(crate) fn hear(&mut self) -> Result<(), Fault> {
        self.ring.consume().map_err(|e| refused("cannot read births", &e))?;
        let raw = std::mem::take(&mut *self.told.borrow_mut());
        let now = Instant::now();
        for birth in &raw {
            let slot = birth.slot.saturating_sub(1);
            if self.ready.remove(&slot) {
                let former = self.got.insert(Tid(birth.tid), (slot, now));
                self.orphans.extend(former.map(|(slot, _)| slot));
            }
        }
        self.heard.extend(raw.iter().map(Birth::of));
        Ok(())
    }

    /// The births since the last call.
    pub(crate) fn heard(&mut self) -> Vec<Birth> {
        std::mem::take(&mut self.heard)
    }

    /// The slot that this thread got: the caller's from now on.
    pub(crate) fn take(&mut self, tid: Tid) -> Option<u32> {
        self.got.remove(&tid).map(|(slot, _)| slot)
    }

    /// The slots of threads that nobody has asked for in time.
    pub(crate) fn unwanted(&mut self) -> Vec<u32> {
        let old = self.got.extract_if(.., |_, (_, heard)| heard.elapsed() > WAITS);
        old.map(|(_, (slot, _))| slot).chain(self.orphans.drain(..)).collect()
    }
}

impl Birth {
    fn of(raw: &BirthRaw) -> Birth {
        let end = raw.comm.iter().position(|b| *b == 0).unwrap_or(raw.comm.len());
        let bytes = &raw.arguments[..(raw.arguments_bytes as usize).min(ARGUMENTS)];
        // The last one may be cut.
        let whole = bytes.iter().rposition(|b| *b == 0).unwrap_or(0);
        let arguments = bytes[..whole].split(|b| *b == 0);
        let is_known = whole > 0;
        Birth {
            tid: Tid(raw.tid),
            pid: raw.tgid,
            user: raw.user,
            started_ns: raw.started,
            name: String::from_utf8_lossy(&raw.comm[..end]).into_owned(),
            arguments: arguments
                .filter(|_| is_known)
                .map(|bytes| String::from_utf8_lossy(bytes).into_owned())
                .collect(),
        }
    }
}
