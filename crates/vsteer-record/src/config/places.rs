//! Which files hold the configuration, and may they count?
//!
//! The system's file, then the user's; or one file that `--config` or `VSTEER_CONFIG` names, in place of both. By sudo, root
//! reads root's own file and not the caller's, as the environment may still name the caller's home folder.

use crate::files::within;
use crate::system;
use crate::trusted;
use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use vsteer_core::limits;
use vsteer_core::{Fault, FaultKind};

/// The system's file.
pub const SYSTEM: &str = "/etc/vsteer/vsteer.toml";
/// The variable that names one file in place of the usual ones.
pub const VARIABLE: &str = "VSTEER_CONFIG";
/// In place of a file's name: no file is read.
pub const NO_FILE: &str = "none";
/// The user's file, in the user's configuration folder.
const USERS: &str = "vsteer/vsteer.toml";

/// Asks for an environment variable.
pub type Variables<'a> = &'a dyn Fn(&str) -> Option<OsString>;

/// Files that count, the weakest first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Places {
    /// This file alone. It must exist.
    One(PathBuf),
    /// Those of these that exist: the system's, then the user's.
    Usual(Vec<PathBuf>),
}

impl Places {
    /// Where this process looks. `chosen`: the value of `--config`.
    pub fn of(chosen: Option<&Path>, variables: Variables<'_>) -> Places {
        let named = variables(VARIABLE).filter(|v| !v.is_empty()).map(PathBuf::from);
        match chosen.map(Path::to_owned).or(named) {
            Some(none) if none.as_os_str() == NO_FILE => Places::Usual(Vec::new()),
            Some(file) => Places::One(file),
            None => {
                let systems = cfg!(unix).then(|| SYSTEM.into());
                Places::Usual([systems, users(variables)].into_iter().flatten().collect())
            }
        }
    }
}

/// The user's file, wherever the user's configuration folder is known.
fn users(variables: Variables<'_>) -> Option<PathBuf> {
    let folder = |name: &str| variables(name).map(PathBuf::from).filter(|p| p.is_absolute());
    if system::is_root() && variables("SUDO_UID").is_some() {
        return Some(roots_home().join(".config").join(USERS));
    }
    let base = if cfg!(windows) {
        folder("APPDATA")
    } else {
        folder("XDG_CONFIG_HOME").or_else(|| folder("HOME").map(|home| home.join(".config")))
    };
    Some(base?.join(USERS))
}

/// Root's home folder, of the list of users.
fn roots_home() -> PathBuf {
    let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let home = users.lines().filter(|l| l.split(':').nth(2) == Some("0")).find_map(|l| l.split(':').nth(5));
    home.filter(|h| h.starts_with('/')).map_or_else(|| PathBuf::from("/root"), PathBuf::from)
}

/// What became of a file.
pub(super) enum Read {
    Bytes {
        bytes: Vec<u8>,
        /// Does the file belong to root, and can nobody else write it?
        is_roots: bool,
    },
    /// There is none.
    Absent,
    /// It does not count, for this reason.
    Skipped(String),
}

/// Reads a file that may count. `must`: it was named, so it has to be there.
///
/// # Errors
/// `NoPrivilege` if root reads it and another user could have written it; `BadInput` for more than
/// [`limits::CONFIGURATION`] and for anything but an ordinary file; as the system says.
pub(super) fn read(path: &Path, must: bool) -> Result<Read, Fault> {
    let title = format!("cannot read the configuration {}", path.display());
    let skipped = |why: &dyn std::fmt::Display| {
        Ok(Read::Skipped(format!("{} does not count, because vsteer cannot read it: {why}", path.display())))
    };
    // Also where a part of the path is not a folder: services have /dev/null as their home.
    match std::fs::symlink_metadata(path).map_err(|e| e.kind()) {
        Err(ErrorKind::NotFound | ErrorKind::NotADirectory) if !must => return Ok(Read::Absent),
        Err(e @ ErrorKind::PermissionDenied) if !must => return skipped(&e),
        _ => {}
    }
    match trusted::open_settings(path) {
        Ok(file) => {
            // Of the open file: whatever is at its path later does not matter.
            let is_roots = trusted::is_roots(&file);
            let read = within(file, limits::CONFIGURATION).map(|bytes| Read::Bytes { bytes, is_roots });
            read.map_err(|e| Fault::io(title, &e))
        }
        // The system does not let this user read it. A refusal of vsteer has another title.
        Err(fault) if fault.kind == FaultKind::NoPrivilege && !must && fault.what == title => {
            skipped(&fault.cause.unwrap_or_default())
        }
        // A link that leads nowhere.
        Err(fault) if fault.kind == FaultKind::NothingThere && !must => {
            Ok(Read::Skipped(format!("{} is a link to a file that does not exist", path.display())))
        }
        Err(fault) if fault.kind == FaultKind::NothingThere => {
            Err(fault.help("name a file that exists, or leave out --config and VSTEER_CONFIG"))
        }
        Err(fault) => Err(fault),
    }
}
