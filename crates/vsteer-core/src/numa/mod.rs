//! Which VM belongs on which NUMA node, and what shall its guest be shown of nodes?
//!
//! - [`load`]: what each node is asked for and has, bursts included, and how often more is wanted than there is.
//! - [`flowchart`]: the determination as published (J. Park 2022), step by step, by the letter.
//! - [`moves`]: the project's own: the fewest moves that mend every node at once, or how many vCPUs less or cores more it
//!   takes where none do.
//! - `observed`: shapes of a host and its VMs, as they were observed.
//! - [`vnuma`]: how many virtual nodes and cores per socket a VM should have, and what each version of ESXi makes of it.
//!
//! Source: J. Park, "VDI deployment and performance analysis for multi-core-based applications", J. Korea Inst. Inf. Commun.
//! Eng. 26(10), 2022, doi:10.6109/jkiice.2022.26.10.1432.

pub mod flowchart;
pub mod load;
pub mod moves;
mod observed;
pub mod vnuma;
