//! Where is the time of VMs' threads, measured inside the kernel?
//!
//! `bpf/observer.bpf.c` is the kernel side (its opening essay explains the ideas); [`Observer`] loads it, tells it
//! which threads to watch, and reads what it counted as the nouns of `vsteer-core`. [`Events`] hands out every context
//! switch in the optional event mode.
//!
//! `bpf/realtime.bpf.c` schedules: [`Policy`] loads it, where the kernel has sched_ext.

mod births;
mod blame;
mod clock;
mod events;
mod kvm;
mod layout;
mod load;
mod observer;
mod realtime;
mod refused;
mod shared;

pub use births::Birth;
pub use events::{EVENT_PCPUS_MAX, EventBatch, Events};
pub use layout::Event;
pub use load::Options;
pub use observer::{Observer, Reading, Watched};
pub use realtime::{Asked, Counts, Ended, Kernel, Policy, ProgramCost, Settings, Sources};
