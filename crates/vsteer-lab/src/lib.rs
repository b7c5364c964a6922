//! Disposable real VMs on this machine, for trying vsteer and for knowing the truth from inside the guests.
//!
//! ```text
//! fetch      a kernel, without installing anything        image    kernel + one program
//! accel      KVM or emulation, decided by booting         libvirtd the lab's own libvirt
//! contention VMs that compete for CPUs: up, status, down  report   what the guests measured
//! emulated   a whole host with KVM guests, in exact virtual time         xen      the same with Xen
//! ```
//! The lab knows what its VMs do; an observer does not. The lab uses `vsteer` only through its command line.

#![allow(missing_docs, reason = "parts of one program, not an interface for others")]

pub mod accel;
mod captured;
pub mod case;
pub mod command;
pub mod contention;
pub mod demo;
mod drawn;
pub mod drive;
pub mod emulated;
pub mod fetch;
mod files;
pub mod image;
pub mod installed;
pub mod interrupt;
pub mod keep;
pub mod libvirtd;
pub mod partition;
pub mod preflight;
pub mod process;
pub mod report;
mod slots;
pub mod state;
pub mod suite;
pub mod vsphere;
pub mod xen;
