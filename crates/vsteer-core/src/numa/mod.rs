//! Which VM should run on which NUMA node, and how many virtual nodes should its guest have?
//!
//! - [`load`]: demand and cores of each node, bursts included.
//! - [`flowchart`]: the published flowchart (J. Park 2022), exactly as printed.
//! - [`moves`]: vsteer's own rule: the fewest moves after which every node has room, or how many vCPUs fewer or
//!   cores more suffice.
//! - [`ties`]: memory and devices that a move would leave behind.
//! - `observed`: sizes of a host and its VMs, from a recording.
//! - [`vnuma`]: virtual nodes and cores per socket of a VM, and what each ESXi version does with them.
//!
//! Source: J. Park, "VDI deployment and performance analysis for multi-core-based applications", J. Korea Inst.
//! Inf. Commun. Eng. 26(10), 2022, doi:10.6109/jkiice.2022.26.10.1432.
//!
//! GAP(numa-live): no host with several nodes was at hand; the rules were tried on recordings and files.

pub mod flowchart;
pub mod load;
pub mod moves;
mod observed;
pub mod ties;
pub mod vnuma;
