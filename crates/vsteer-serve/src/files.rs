//! Values that come from files, read again when a file changes: tokens and certificates are replaced while the service runs.
//!
//! A file that is faulty after a change does not end the service. The former value stays in force, and a warning says so once.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};
use vsteer_core::Fault;

/// How often to look whether a file has changed.
pub const RENEW_EVERY: Duration = Duration::from_secs(20);

type Make<T> = Box<dyn Fn() -> Result<T, Fault> + Send + Sync>;

/// When each file was changed last, and its size.
type Stamps = Vec<Option<(SystemTime, u64)>>;

/// A value made from files.
pub struct FromFiles<T> {
    files: Vec<PathBuf>,
    make: Make<T>,
    now: Mutex<(Arc<T>, Stamps)>,
}

impl<T> FromFiles<T> {
    /// Makes the value for the first time.
    ///
    /// # Errors
    /// What `make` returns.
    pub fn new(files: Vec<PathBuf>, make: Make<T>) -> Result<FromFiles<T>, Fault> {
        // Before the value, so that a change during its making counts.
        let stamps = stamps(&files);
        let first = make()?;
        Ok(FromFiles { files, make, now: Mutex::new((Arc::new(first), stamps)) })
    }

    /// The newest value.
    pub fn get(&self) -> Arc<T> {
        Arc::clone(&self.now.lock().unwrap_or_else(PoisonError::into_inner).0)
    }

    /// Makes the value again if a file has changed since. Returns whether it did.
    ///
    /// # Errors
    /// What `make` returns, once for each change. The former value stays in force.
    pub fn renew(&self) -> Result<bool, Fault> {
        let stamps = stamps(&self.files);
        {
            let mut now = self.now.lock().unwrap_or_else(PoisonError::into_inner);
            if now.1 == stamps {
                return Ok(false);
            }
            now.1 = stamps;
        }
        let value = Arc::new((self.make)()?);
        self.now.lock().unwrap_or_else(PoisonError::into_inner).0 = value;
        Ok(true)
    }
}

fn stamps(files: &[PathBuf]) -> Stamps {
    let of = |file: &PathBuf| {
        let metadata = std::fs::metadata(file as &Path).ok()?;
        Some((metadata.modified().ok()?, metadata.len()))
    };
    files.iter().map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use vsteer_core::FaultKind;

    #[test]
    fn a_faulty_file_leaves_the_former_value_in_force() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("number");
        std::fs::write(&file, "1").unwrap();
        let from = file.clone();
        let make = move || {
            let text = std::fs::read_to_string(&from).map_err(|e| Fault::io("reading", &e))?;
            text.parse::<u32>().map_err(|e| Fault::new(FaultKind::BadInput, "not a number").because(e))
        };
        let value = FromFiles::new(vec![file.clone()], Box::new(make)).unwrap();
        assert_eq!((*value.get(), value.renew()), (1, Ok(false)));
        std::fs::write(&file, "faulty").unwrap();
        assert!(value.renew().is_err());
        assert_eq!((*value.get(), value.renew()), (1, Ok(false)), "the warning comes once");
        std::fs::write(&file, "23").unwrap();
        assert_eq!((value.renew(), *value.get()), (Ok(true), 23));
    }
}
