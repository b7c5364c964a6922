//! What failed, on which thing, why, and what can a person do about it?
//!
//! An expected failure (no libvirt, no privilege, a malformed file) is a [`Fault`]. It names the thing, the cause
//! and the help, and has the exit code from the manual page. A bug is an `assert!`.

use serde::ser::{Serialize, SerializeStruct, Serializer};
use std::fmt;

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

/// An expected failure: what it concerns, why, and what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The class, and so the exit code.
    pub kind: FaultKind,
    /// What failed, with the thing: `cannot read /proc/12/task/14/schedstat of VM "web"`.
    pub what: String,
    /// The cause, if known.
    pub cause: Option<String>,
    /// What the person can do about it.
    pub help: Option<String>,
}

impl Fault {
    /// A fault of class `kind` concerning `what`.
    pub fn new(kind: FaultKind, what: impl Into<String>) -> Self {
        Fault { kind, what: what.into(), cause: None, help: None }
    }

    /// Adds the cause.
    #[must_use]
    pub fn because(mut self, cause: impl fmt::Display) -> Self {
        self.cause = Some(cause.to_string());
        self
    }

    /// Adds what the person can do.
    #[must_use]
    pub fn help(mut self, remedy: impl Into<String>) -> Self {
        self.help = Some(remedy.into());
        self
    }

    /// An input/output error on `what`, classed by its errno: a missing privilege, a full disk, else `Failed`.
    pub fn io(what: impl Into<String>, error: &std::io::Error) -> Self {
        use std::io::ErrorKind as E;
        let kind = match error.kind() {
            E::PermissionDenied => FaultKind::NoPrivilege,
            E::NotFound => FaultKind::NothingThere,
            E::StorageFull | E::ReadOnlyFilesystem | E::QuotaExceeded | E::FileTooLarge => FaultKind::NoSpace,
            E::InvalidData | E::UnexpectedEof => FaultKind::BadInput,
            E::Interrupted => FaultKind::Interrupted,
            _ => FaultKind::Failed,
        };
        // The number of an error says nothing to a person.
        let cause = error.to_string();
        Fault::new(kind, what).because(cause.split(" (os error ").next().unwrap_or_default())
    }
}

impl Serialize for Fault {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("Fault", 5)?;
        fields.serialize_field("kind", &self.kind)?;
        fields.serialize_field("what", &self.what)?;
        fields.serialize_field("cause", &self.cause)?;
        fields.serialize_field("help", &self.help)?;
        // The name of `help` up to version 0.1, for programs that read it.
        fields.serialize_field("way_out", &self.help)?;
        fields.end()
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        if let Some(c) = &self.cause {
            write!(f, ": {c}")?;
        }
        if let Some(help) = &self.help {
            write!(f, "\n  help: {help}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Fault {}
