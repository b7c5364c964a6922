//! What a Linux machine tells of itself through sysfs and procfs.

pub mod cpuset;
pub mod files;
pub mod topology;
