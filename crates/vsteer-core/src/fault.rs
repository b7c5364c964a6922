//! What failed, on which thing, why, and what can a person do about it?
//!
//! An expected failure (no libvirt, no privilege, a malformed file) is a [`Fault`]. It names the thing, the cause
//! and the help, and has the exit code from the manual page. A bug is an `assert!`.

use crate::exit_code::FaultKind;
use serde::ser::{Serialize, SerializeStruct, Serializer};
use std::fmt;

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
