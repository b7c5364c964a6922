//! Which looks does a capture hold, and when was each taken? `capture.json` in the capture's folder.
//!
//! Strangers can send a manifest, so this module checks it: the format, the folders' names, and that time goes forward.

use crate::root::Root;
use serde::{Deserialize, Serialize};
use std::path::Path;
use vsteer_core::{Fault, FaultKind};

/// The file's name.
pub const MANIFEST: &str = "capture.json";
/// The format that this version writes and reads.
pub const FORMAT: u32 = 1;

/// What the file says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// The format's number.
    pub format: u32,
    /// The version of vsteer that made it.
    pub vsteer: String,
    /// Were names replaced?
    pub redacted: bool,
    /// The looks, in order.
    pub looks: Vec<Taken>,
}

/// One look.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Taken {
    /// The folder of its files.
    pub folder: String,
    /// The host's monotonic clock, ns.
    pub mono_ns: u64,
    /// Time since 1970, ns.
    pub unix_ns: u64,
}

impl Manifest {
    /// Reads and checks it.
    ///
    /// # Errors
    /// `BadInput` when the folder has none, or it cannot be used.
    pub fn read(root: &Root, folder: &Path) -> Result<Manifest, Fault> {
        let bad = |why: String| {
            Fault::new(FaultKind::BadInput, format!("{} is not a captured host", folder.display()))
                .because(why)
                .help("make one: vsteer capture -o FOLDER")
        };
        let bytes = root.bytes(MANIFEST).map_err(|e| bad(format!("cannot read {MANIFEST}: {e}")))?;
        Manifest::parse(&bytes).map_err(|why| bad(format!("{MANIFEST}: {why}")))
    }

    /// Reads and checks its text.
    ///
    /// # Errors
    /// Why it cannot be used.
    pub fn parse(bytes: &[u8]) -> Result<Manifest, String> {
        let manifest: Manifest = serde_json::from_slice(bytes).map_err(|e| e.to_string())?;
        manifest.check()?;
        Ok(manifest)
    }

    fn check(&self) -> Result<(), String> {
        if self.format != FORMAT {
            return Err(format!("vsteer does not know format {}, it reads format {FORMAT}", self.format));
        }
        if self.looks.len() < 2 {
            return Err("fewer than 2 samples, so no rates".to_owned());
        }
        let is_name = |name: &str| !name.is_empty() && name.bytes().all(|b| b.is_ascii_digit());
        if let Some(odd) = self.looks.iter().find(|l| !is_name(&l.folder)) {
            return Err(format!("{:?} is not a valid folder name of a sample", odd.folder));
        }
        if self.looks.windows(2).any(|pair| pair[0].mono_ns >= pair[1].mono_ns) {
            return Err("the samples are not in order of time".to_owned());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_used_is_refused() {
        let look = |folder: &str, mono_ns| Taken { folder: folder.into(), mono_ns, unix_ns: 0 };
        let of = |looks: &[Taken]| Manifest {
            format: FORMAT,
            vsteer: String::new(),
            redacted: false,
            looks: looks.to_vec(),
        };
        assert_eq!(of(&[look("1", 1), look("2", 2)]).check(), Ok(()));
        for looks in [
            &[look("1", 1)][..],
            &[look("1", 1), look("2", 1)],
            &[look("../1", 1), look("2", 2)],
            &[look("", 1), look("2", 2)],
        ] {
            assert!(of(looks).check().is_err(), "{looks:?}");
        }
        assert!(Manifest { format: 2, ..of(&[look("1", 1), look("2", 2)]) }.check().is_err());
    }
}
