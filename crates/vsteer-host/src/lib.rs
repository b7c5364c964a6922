//! Where vsteer meets machines: reads them into the core's nouns and carries out what the core decided.
//!
//! Everything that touches an operating system or a hypervisor is here, so that what decides can be tested without
//! one. A machine is read through a [`root::Root`]: the live one at `/`, or a captured tree of its files.

pub mod actuate;
pub mod agent;
pub mod backend;
pub mod captured;
pub mod counted;
pub mod follow;
mod http;
pub mod hypervisors;
pub mod knob;
pub mod kvm;
pub mod lasting;
pub mod linux;
pub mod observe;
pub mod pace;
pub mod post;
pub mod power;
pub mod privilege;
pub mod prometheus;
pub mod realtime;
pub mod recorder;
pub mod remote;
pub mod root;
pub mod scrape;
pub mod service_manager;
pub mod several;
pub mod shell;
#[cfg(test)]
mod stand_in;
pub mod switches;
pub mod tree;
mod trust;
pub mod vsphere;
pub mod xen;
