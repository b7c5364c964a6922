//! Whatever happens while a plan is applied: is the former world back, exactly?
//!
//! On a host that is a small file of settings, so that every point of every failure can be walked: faults before, during
//! and after each change, a journal that breaks off at every byte, a process killed around every write. What libvirt
//! and the kernel make of the same is held on real VMs (`vsteer lab`, case crash).

mod faults;
mod journal;
mod kill;
mod left;
mod watchdog;
mod world;
