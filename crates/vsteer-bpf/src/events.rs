//! Who got which pCPU, switch by switch? The reader's end of the observer's event mode.
//!
//! The kernel side collects switches per pCPU and hands over 256 at a time, so switches of one pCPU come in order and
//! those of different pCPUs do not: a caller that needs one order sorts. The ring buffer never wakes its reader, which
//! looks by the clock ([`Events::drain`]): at 200,000 switches a second, a look every 20 ms finds 64 KiB, and a
//! buffer of 8 MiB bridges two and a half seconds in which the reader does not come to look.
//!
//! [`Events`] shares the tables with the [`crate::Observer`] that made it and may go to a thread of its own. The last
//! switches of each pCPU lie in an unfinished batch until they are asked for ([`Events::rest`]), after the observer
//! has been detached. Wake-ups of watched threads stand among the switches of the pCPU that they were done on. Left
//! out: asking for unfinished batches while the kernel fills them.

use crate::layout::{Event, EventBatchRaw, Pcpu};
use crate::refused::refused;
use crate::shared::Shared;
use libbpf_rs::{MapCore, MapFlags, MapHandle, Object, RingBuffer, RingBufferBuilder};
use std::sync::Arc;
use vsteer_core::Fault;

/// Number of pCPUs: a recorded switch keeps its pCPU in 10 bits.
pub const EVENT_PCPUS_MAX: u32 = 1 << 10;

/// Switches of one pCPU, in order.
#[derive(Debug, Clone, Copy)]
pub struct EventBatch<'a> {
    /// Number of the pCPU.
    pub cpu: u32,
    /// Number of switches on this pCPU lost for lack of room before these.
    pub lost: u64,
    /// The switches, oldest first.
    pub events: &'a [Event],
}

/// The tables that hold the switches.
pub struct Events {
    ring: MapHandle,
    open: MapHandle,
    ran: Arc<Shared<Pcpu>>,
    count: u32,
}

/// A reader of the ring buffer.
pub struct Drain<'a>(RingBuffer<'a>);

/// Most batches per call: switches may come faster than the reader takes them, and a call must end.
const LOOK_BATCHES: usize = 1 << 10;

impl Drain<'_> {
    /// Passes on what has come since the last call, without waiting; true if there may be more already.
    ///
    /// # Errors
    /// If the ring buffer cannot be read.
    pub fn look(&self) -> Result<bool, Fault> {
        match self.0.consume_raw_n(LOOK_BATCHES) {
            n if n >= 0 => Ok(n as usize == LOOK_BATCHES),
            e => Err(refused("cannot read the recorded switches", &libbpf_rs::Error::from_raw_os_error(-e))),
        }
    }
}

impl Events {
    pub(crate) fn of(object: &Object, count: u32, ran: Arc<Shared<Pcpu>>) -> Result<Events, Fault> {
        let share = |name: &str| {
            let map = object.maps().find(|m| m.name() == name).expect("checked when loaded");
            MapHandle::try_from(&map).map_err(|e| refused(&format!("cannot share table {name}"), &e))
        };
        Ok(Events { ring: share("event_batches")?, open: share("open_batches")?, ran, count })
    }

    /// Opens the ring buffer; `sink` gets every finished batch at each call of [`Drain`].
    ///
    /// # Errors
    /// When the ring buffer cannot be opened.
    pub fn drain<'a>(&'a self, mut sink: impl FnMut(EventBatch<'_>) + 'a) -> Result<Drain<'a>, Fault> {
        let mut builder = RingBufferBuilder::new();
        builder
            .add(&self.ring, move |bytes: &[u8]| {
                give(bytes, &mut sink);
                0
            })
            .map_err(|e| refused("cannot open the ring buffer", &e))?;
        builder.build().map(Drain).map_err(|e| refused("cannot open the ring buffer", &e))
    }

    /// Passes on the unfinished batch of every pCPU. Only after [`crate::Observer::detach`]: before, the kernel writes
    /// into them.
    ///
    /// # Errors
    /// When the table cannot be read.
    pub fn rest(&self, mut sink: impl FnMut(EventBatch<'_>)) -> Result<(), Fault> {
        self.each_open(|bytes| give(bytes, &mut sink))
    }

    /// Number of switches lost so far for lack of room.
    ///
    /// # Errors
    /// When the table cannot be read.
    pub fn lost(&self) -> Result<u64, Fault> {
        let mut sum = 0;
        self.each_open(|bytes| {
            let at = std::mem::offset_of!(EventBatchRaw, lost);
            sum += bytemuck::pod_read_unaligned::<u64>(&bytes[at..at + size_of::<u64>()]);
        })?;
        Ok(sum)
    }

    /// As [`crate::Observer::unseen`].
    pub fn unseen(&self) -> u64 {
        self.ran.unseen()
    }

    fn each_open(&self, mut of: impl FnMut(&[u8])) -> Result<(), Fault> {
        for cpu in 0..self.count {
            let bytes = self.open.lookup(&cpu.to_ne_bytes(), MapFlags::ANY);
            if let Some(bytes) = bytes.map_err(|e| refused("cannot read the unfinished batches", &e))? {
                of(&bytes);
            }
        }
        Ok(())
    }
}

/// Reads a batch in place; ring buffer records are aligned to 8 bytes, so only a copy needs the fallback.
fn give(bytes: &[u8], sink: &mut impl FnMut(EventBatch<'_>)) {
    if bytes.len() != size_of::<EventBatchRaw>() {
        return;
    }
    let mut to = |raw: &EventBatchRaw| {
        let events = &raw.events[..(raw.count as usize).min(raw.events.len())];
        sink(EventBatch { cpu: raw.cpu, lost: raw.lost, events });
    };
    match bytemuck::try_from_bytes(bytes) {
        Ok(raw) => to(raw),
        Err(_) => to(&bytemuck::pod_read_unaligned(bytes)),
    }
}
