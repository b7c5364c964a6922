//! A KVM/QEMU host: its VMs through libvirt and from `/proc`, and how they are set up.

pub mod actuate;
pub mod backend;
pub mod channel;
pub mod client;
pub mod command_line;
pub mod config;
pub mod containers;
pub mod contenders;
pub mod definition;
pub mod elsewhere;
pub mod guest_memory;
pub mod host;
pub mod identity;
pub mod inventory;
pub mod labels;
pub mod memory;
pub mod pressure;
pub mod processes;
pub mod qmp;
pub mod readconfig;
pub mod roles;
pub mod slow;
pub mod socket;
pub mod vmms;
pub mod xml;
