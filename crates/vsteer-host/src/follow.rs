//! Lines of a file as they are written, across its rotation.
//!
//! A log is rotated in one of two ways: renamed, with a new file made in its place (the server goes on writing into the renamed one until
//! it is told), or copied and truncated. So a file is read to its end before its name is looked up again, and read from the
//! beginning where it has become shorter than what was read.
//!
//! Left out: a file that is truncated and has grown beyond what was read before anybody looked: its first lines are missed.

use std::fs::File;
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use vsteer_core::Fault;

/// A line that is longer is passed over: no access log has one.
const LONGEST: usize = 1 << 20;
const AT_ONCE: usize = 1 << 16;

/// A file that is followed.
#[derive(Debug)]
pub struct Follower {
    path: PathBuf,
    file: Option<File>,
    inode: u64,
    read: u64,
    /// A line whose end is not written yet.
    begun: Vec<u8>,
    /// It was too long, and the rest of it is passed over.
    too_long: bool,
}

impl Follower {
    /// Follows the file at `path` from its beginning, or (`from_end`) from what is written from now on. It need not exist yet.
    ///
    /// # Errors
    /// As for opening a file, but for one that is not there.
    pub fn new(path: &Path, from_end: bool) -> Result<Follower, Fault> {
        let (file, begun) = (None, Vec::new());
        let mut follower = Follower { path: path.to_owned(), file, inode: 0, read: 0, begun, too_long: false };
        follower.open()?;
        if let (true, Some(file)) = (from_end, &mut follower.file) {
            follower.read = file.seek(SeekFrom::End(0)).map_err(|e| follower_fault(path, &e))?;
        }
        Ok(follower)
    }

    fn open(&mut self) -> Result<(), Fault> {
        match File::open(&self.path) {
            Ok(file) => {
                self.inode = file.metadata().map_err(|e| follower_fault(&self.path, &e))?.ino();
                (self.file, self.read) = (Some(file), 0);
                Ok(())
            }
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(()),
            Err(e) => Err(follower_fault(&self.path, &e)),
        }
    }

    /// Hands every line that was finished since the last time to `line`, without its end.
    ///
    /// # Errors
    /// As for reading a file. What was handed out before is not handed out again.
    pub fn poll(&mut self, line: &mut dyn FnMut(&[u8])) -> Result<(), Fault> {
        self.drain(line)?;
        let there = match std::fs::metadata(&self.path) {
            Ok(there) => there,
            // Renamed, and not made anew yet.
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(()),
            Err(e) => return Err(follower_fault(&self.path, &e)),
        };
        if self.file.is_none() || there.ino() != self.inode {
            // What was written between the last read and the rename.
            self.drain(line)?;
        } else if there.len() >= self.read {
            return Ok(());
        }
        // A line without an end in a file that is over will not get one.
        self.begun.clear();
        self.too_long = false;
        self.open()?;
        self.drain(line)
    }

    fn drain(&mut self, line: &mut dyn FnMut(&[u8])) -> Result<(), Fault> {
        let Some(file) = &mut self.file else { return Ok(()) };
        let mut buffer = [0; AT_ONCE];
        loop {
            let n = match file.read(&mut buffer) {
                Ok(0) => return Ok(()),
                Ok(n) => n,
                Err(e) if e.kind() == ErrorKind::Interrupted => continue,
                Err(e) => return Err(follower_fault(&self.path, &e)),
            };
            self.read += n as u64;
            for part in buffer[..n].split_inclusive(|b| *b == b'\n') {
                let (text, ends) = match part.split_last() {
                    Some((b'\n', text)) => (text, true),
                    _ => (part, false),
                };
                if self.begun.len() + text.len() > LONGEST {
                    self.too_long = true;
                    self.begun.clear();
                }
                if !self.too_long {
                    self.begun.extend_from_slice(text);
                }
                if ends {
                    if !self.too_long {
                        line(&self.begun);
                    }
                    self.begun.clear();
                    self.too_long = false;
                }
            }
        }
    }
}

fn follower_fault(path: &Path, error: &std::io::Error) -> Fault {
    Fault::io(format!("following {}", path.display()), error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn lines(follower: &mut Follower) -> Vec<String> {
        let mut all = Vec::new();
        follower.poll(&mut |l| all.push(String::from_utf8_lossy(l).into_owned())).unwrap();
        all
    }

    #[test]
    fn lines_come_once_each_across_both_ways_of_rotation() {
        let dir = tempfile::tempdir().unwrap();
        let (path, old) = (dir.path().join("access.log"), dir.path().join("access.log.1"));
        let mut follower = Follower::new(&path, false).unwrap();
        assert!(lines(&mut follower).is_empty());
        let mut log = File::options().create(true).append(true).open(&path).unwrap();
        log.write_all(b"one\ntw").unwrap();
        assert_eq!(lines(&mut follower), ["one"]);
        log.write_all(b"o\n").unwrap();
        assert_eq!(lines(&mut follower), ["two"]);
        // Renamed; the server still has the old one open.
        std::fs::rename(&path, &old).unwrap();
        log.write_all(b"three\n").unwrap();
        assert_eq!(lines(&mut follower), ["three"]);
        log.write_all(b"four\nfi").unwrap();
        let mut new = File::options().create(true).append(true).open(&path).unwrap();
        new.write_all(b"six\n").unwrap();
        assert_eq!(lines(&mut follower), ["four", "six"]);
        // Copied and truncated.
        new.set_len(0).unwrap();
        new.write_all(b"7\n").unwrap();
        assert_eq!(lines(&mut follower), ["7"]);
        assert!(lines(&mut follower).is_empty());
    }

    #[test]
    fn from_its_end_only_what_is_new_comes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("l");
        std::fs::write(&path, "old\n").unwrap();
        let mut follower = Follower::new(&path, true).unwrap();
        let mut log = File::options().append(true).open(&path).unwrap();
        log.write_all(&[b'x'; LONGEST + 5]).unwrap();
        log.write_all(b"\nnew\n").unwrap();
        assert_eq!(lines(&mut follower), ["new"]);
    }
}
