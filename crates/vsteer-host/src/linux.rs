//! What sysfs and procfs report about a Linux machine, and how the kernel schedules a thread.

pub mod cgroups;
pub mod cpuset;
pub mod files;
pub mod numa_maps;
pub mod pcpu;
pub mod psi;
pub mod sched;
pub mod schedstat;
pub mod task;
pub mod topology;
pub mod tuning;
