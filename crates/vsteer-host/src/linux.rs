//! What a Linux machine tells of itself through sysfs and procfs, and how a thread of it is scheduled.

pub mod cgroups;
pub mod cpuset;
pub mod files;
pub mod numa_maps;
pub mod pcpu;
pub mod sched;
pub mod schedstat;
pub mod task;
pub mod topology;
pub mod tuning;
