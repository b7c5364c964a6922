//! A file that only this process may write.
//!
//! A forked process holds the same lock until it executes its program: flock(2) locks an open file description. So closing the file is not enough: a child between fork and exec would keep the lock, and the next process
//! to open the file would find it locked. Dropping unlocks explicitly, which releases every duplicate.

use rustix::fs::{FlockOperation, flock};
use std::fs::File;
use std::io;
use std::ops::{Deref, DerefMut};
use std::time::{Duration, Instant};

/// How often a lock that somebody else holds is tried.
const LOOK: Duration = Duration::from_millis(20);

/// A file with an exclusive lock on it.
#[derive(Debug)]
pub struct Locked(File);

impl Locked {
    /// Waits for the lock; `None` where somebody else still holds it after `limit`.
    ///
    /// # Errors
    /// When the file system has no locks.
    pub fn within(file: File, limit: Duration) -> io::Result<Option<Locked>> {
        let end = Instant::now() + limit;
        loop {
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(Some(Locked(file))),
                Err(rustix::io::Errno::WOULDBLOCK) if Instant::now() >= end => return Ok(None),
                Err(rustix::io::Errno::WOULDBLOCK | rustix::io::Errno::INTR) => std::thread::sleep(LOOK),
                Err(e) => return Err(e.into()),
            }
        }
    }

    /// `None` where somebody else holds the lock.
    ///
    /// # Errors
    /// When the file system has no locks.
    pub fn at_once(file: File) -> io::Result<Option<Locked>> {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(Locked(file))),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            Err(e) => Err(e.into()),
        }
    }
}

impl Deref for Locked {
    type Target = File;

    fn deref(&self) -> &File {
        &self.0
    }
}

impl DerefMut for Locked {
    fn deref_mut(&mut self) -> &mut File {
        &mut self.0
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        // Closing follows, which unlocks as well unless a child has the description.
        let _ = flock(&self.0, FlockOperation::Unlock);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dropping_unlocks_although_a_duplicate_is_open() {
        let path = tempfile::NamedTempFile::new().unwrap();
        let open = || File::open(path.path()).unwrap();
        let held = Locked::at_once(open()).unwrap().unwrap();
        // As a child has it between fork and exec.
        let duplicate = held.try_clone().unwrap();
        assert!(Locked::at_once(open()).unwrap().is_none());
        assert!(Locked::within(open(), Duration::from_millis(50)).unwrap().is_none());
        drop(held);
        assert!(Locked::at_once(open()).unwrap().is_some());
        drop(duplicate);
    }
}
