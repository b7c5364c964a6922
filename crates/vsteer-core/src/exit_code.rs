//! Which classes of failure does vsteer tell apart, and which exit code does each have?
//!
//! A script can rely on these codes: the manual page is made from them, and none ever changes its meaning.

/// The classes of expected failure. Each is one exit code of every vsteer command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FaultKind {
    /// Exit 1: the operating system or a service failed in a way that has no class of its own.
    Failed,
    /// Exit 2: the command line or an option's value is wrong.
    Usage,
    /// Exit 3: a VM, libvirt or a file does not exist.
    NothingThere,
    /// Exit 4: the caller lacks a privilege.
    NoPrivilege,
    /// Exit 5: this kernel or hypervisor does not support the operation or measurement.
    Unsupported,
    /// Exit 6: a file, recording, plan or another program's answer is malformed or of another kind.
    BadInput,
    /// Exit 7: the host has changed since the plan was made, or the plan is for another host.
    Changed,
    /// Exit 8: a change began but could not be completed. The message says what was rolled back.
    NotApplied,
    /// Exit 9: a disk is full or a file cannot be written.
    NoSpace,
    /// Exit 130: interrupted. Changes were rolled back and files closed.
    Interrupted,
}

impl FaultKind {
    /// Every class, in the order of the exit codes: the manual page is made from this.
    pub const ALL: [FaultKind; 10] = [
        FaultKind::Failed,
        FaultKind::Usage,
        FaultKind::NothingThere,
        FaultKind::NoPrivilege,
        FaultKind::Unsupported,
        FaultKind::BadInput,
        FaultKind::Changed,
        FaultKind::NotApplied,
        FaultKind::NoSpace,
        FaultKind::Interrupted,
    ];

    /// The process exit code.
    pub const fn exit_code(self) -> u8 {
        match self {
            FaultKind::Failed => 1,
            FaultKind::Usage => 2,
            FaultKind::NothingThere => 3,
            FaultKind::NoPrivilege => 4,
            FaultKind::Unsupported => 5,
            FaultKind::BadInput => 6,
            FaultKind::Changed => 7,
            FaultKind::NotApplied => 8,
            FaultKind::NoSpace => 9,
            FaultKind::Interrupted => 130,
        }
    }

    /// One line for the manual page.
    pub const fn meaning(self) -> &'static str {
        match self {
            FaultKind::Failed => "the system or a service failed",
            FaultKind::Usage => "the command line is wrong",
            FaultKind::NothingThere => "a VM, libvirt or a file does not exist",
            FaultKind::NoPrivilege => "the user lacks a privilege",
            FaultKind::Unsupported => "this kernel or hypervisor does not support it",
            FaultKind::BadInput => "a file, plan or recording is malformed or of another kind",
            FaultKind::Changed => "the host has changed since the plan was made",
            FaultKind::NotApplied => "a change could not be completed and was rolled back",
            FaultKind::NoSpace => "the disk is full or not writable",
            FaultKind::Interrupted => "interrupted; changes that had begun were rolled back",
        }
    }
}
