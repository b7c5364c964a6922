//! Disposable real VMs on this machine, to try vsteer on and to know the truth from inside.
//!
//! ```text
//! fetch      a kernel, without installing anything        image    kernel + one program
//! accel      KVM or emulation, decided by booting         libvirtd one of the lab's own
//! contention VMs that wait for CPUs: up, status, down     report   what the guests measured
//! emulated   a whole host with KVM guests, in exact virtual time         xen      the same with Xen
//! ```
//! The lab knows what its VMs do; an observer does not. It drives `vsteer`, if at all, by its command line.

#![allow(missing_docs, reason = "parts of one program, not an interface for others")]

pub mod accel;
pub mod case;
pub mod command;
pub mod contention;
pub mod demo;
pub mod drive;
pub mod emulated;
pub mod fetch;
mod files;
pub mod image;
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
