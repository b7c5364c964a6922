//! Reads the lines of a file as they are written, across its rotation.
//!
//! A log is rotated in one of two ways. Either it is renamed and a new file gets its name; the server writes into the
//! renamed file until it reopens its log. Or it is copied and truncated. So vsteer reads a renamed file until the next
//! one is renamed too, and starts a file again from its beginning if it is shorter than the part already read.
//!
//! Left out: a truncated file that grows beyond the part already read before vsteer looks again (its first lines are
//! missed), and a file that is created and renamed between two looks (vsteer follows only the name, not logrotate's
//! old names).

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
    now: Option<Opened>,
    /// The file that had the name before: servers write into it until they reopen the log; Apache until its last child
    /// ends.
    before: Option<Opened>,
}

/// What had the name when it was opened.
#[derive(Debug)]
struct Opened {
    file: File,
    inode: u64,
    read: u64,
    /// A line whose end is not written yet.
    begun: Vec<u8>,
    /// It was too long, and the rest of it is passed over.
    too_long: bool,
}

impl Follower {
    /// Follows the file at `path` from its beginning, or (`from_end`) from what is written from now on. It need not
    /// exist yet.
    ///
    /// # Errors
    /// As for opening a file, but for one that is not there.
    pub fn new(path: &Path, from_end: bool) -> Result<Follower, Fault> {
        let failed = |e: std::io::Error| follower_fault(path, &e);
        let mut now = Opened::at(path).map_err(failed)?;
        if let (true, Some(opened)) = (from_end, &mut now) {
            opened.read = opened.file.seek(SeekFrom::End(0)).map_err(failed)?;
        }
        Ok(Follower { path: path.to_owned(), now, before: None })
    }

    /// Hands every line that was finished since the last time to `line`, without its end.
    ///
    /// # Errors
    /// As for reading a file. What was handed out before is not handed out again.
    pub fn poll(&mut self, line: &mut dyn FnMut(&[u8])) -> Result<(), Fault> {
        self.read_all(line).map_err(|e| follower_fault(&self.path, &e))
    }

    fn read_all(&mut self, line: &mut dyn FnMut(&[u8])) -> std::io::Result<()> {
        for opened in self.before.iter_mut().chain(&mut self.now) {
            opened.drain(line)?;
        }
        let there = match std::fs::metadata(&self.path) {
            Ok(there) => there,
            // Renamed, and the new file does not exist yet.
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(()),
            Err(e) => return Err(e),
        };
        match &mut self.now {
            Some(now) if there.ino() == now.inode => {
                if there.len() < now.read {
                    now.again()?;
                    now.drain(line)?;
                }
            }
            _ => {
                if let Some(mut renamed) = self.now.take() {
                    // What was written between the last read and the rename.
                    renamed.drain(line)?;
                    self.before = Some(renamed);
                }
                self.now = Opened::at(&self.path)?;
                if let Some(now) = &mut self.now {
                    now.drain(line)?;
                }
            }
        }
        Ok(())
    }
}

impl Opened {
    fn at(path: &Path) -> std::io::Result<Option<Opened>> {
        match File::open(path) {
            Ok(file) => {
                let inode = file.metadata()?.ino();
                Ok(Some(Opened { file, inode, read: 0, begun: Vec::new(), too_long: false }))
            }
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// From its beginning. A line that was begun will not get its end.
    fn again(&mut self) -> std::io::Result<()> {
        self.file.seek(SeekFrom::Start(0))?;
        (self.read, self.too_long) = (0, false);
        self.begun.clear();
        Ok(())
    }

    fn drain(&mut self, line: &mut dyn FnMut(&[u8])) -> std::io::Result<()> {
        let mut buffer = [0; AT_ONCE];
        loop {
            let n = match self.file.read(&mut buffer) {
                Ok(0) => return Ok(()),
                Ok(n) => n,
                Err(e) if e.kind() == ErrorKind::Interrupted => continue,
                Err(e) => return Err(e),
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
    Fault::io(format!("cannot follow {}", path.display()), error)
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
        // The server reopened its log late.
        log.write_all(b"ve\n").unwrap();
        assert_eq!(lines(&mut follower), ["five"]);
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

    /// Between two looks the log was rotated twice: what is in the file that was open, and in the one that is there
    /// now, comes.
    #[test]
    fn rotated_twice_between_looks() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::write(at("l"), "1\n").unwrap();
        let mut follower = Follower::new(&at("l"), false).unwrap();
        assert_eq!(lines(&mut follower), ["1"]);
        File::options().append(true).open(at("l")).unwrap().write_all(b"2\n").unwrap();
        std::fs::rename(at("l"), at("l.1")).unwrap();
        std::fs::write(at("l"), "missed\n").unwrap();
        std::fs::rename(at("l.1"), at("l.2")).unwrap();
        std::fs::rename(at("l"), at("l.1")).unwrap();
        std::fs::write(at("l"), "3\n").unwrap();
        assert_eq!(lines(&mut follower), ["2", "3"]);
        assert!(lines(&mut follower).is_empty());
    }

    /// The same file (same inode), but shorter: a partial line of the old content is not part of the new content.
    #[test]
    fn shorter_in_the_same_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("l");
        std::fs::write(&path, "first\nbegun").unwrap();
        let mut follower = Follower::new(&path, false).unwrap();
        assert_eq!(lines(&mut follower), ["first"]);
        let was = std::fs::metadata(&path).unwrap().ino();
        std::fs::write(&path, "new\n").unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().ino(), was);
        assert_eq!(lines(&mut follower), ["new"]);
        // Emptied, and nothing written yet.
        std::fs::write(&path, "").unwrap();
        assert!(lines(&mut follower).is_empty());
        std::fs::write(&path, "next\n").unwrap();
        assert_eq!(lines(&mut follower), ["next"]);
    }

    /// A new file that has the old one's number, as file systems give it again once the old one is gone.
    #[test]
    fn removed_and_made_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("l");
        std::fs::write(&path, "old\n").unwrap();
        let mut follower = Follower::new(&path, false).unwrap();
        assert_eq!(lines(&mut follower), ["old"]);
        std::fs::remove_file(&path).unwrap();
        assert!(lines(&mut follower).is_empty());
        std::fs::write(&path, "young\n").unwrap();
        assert_eq!(lines(&mut follower), ["young"]);
    }

    #[test]
    fn from_the_end_of_a_file_that_is_not_there_yet_all_of_it_comes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("l");
        let mut follower = Follower::new(&path, true).unwrap();
        assert!(lines(&mut follower).is_empty());
        std::fs::write(&path, "a\nb\n\nc").unwrap();
        assert_eq!(lines(&mut follower), ["a", "b", ""]);
        File::options().append(true).open(&path).unwrap().write_all(b"d\r\n").unwrap();
        assert_eq!(lines(&mut follower), ["cd\r"]);
    }

    #[test]
    fn what_cannot_be_opened_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("f");
        std::fs::write(&file, "").unwrap();
        let fault = Follower::new(&file.join("below a file"), false).unwrap_err();
        assert!(fault.to_string().contains("cannot follow"), "{fault}");
    }
}
