//! Where is the time of VMs' threads, measured inside the kernel?
//!
//! `bpf/observer.bpf.c` is the kernel side (its opening essay explains the ideas); [`Observer`] loads it, tells it
//! which threads to watch, and reads what it counted as the nouns of `vsteer-core`. [`Event`] is one context
//! switch of the optional event mode.

mod layout;
mod observer;

pub use layout::Event;
pub use observer::{EventBatch, Observer, Options, Reading, Watched};
