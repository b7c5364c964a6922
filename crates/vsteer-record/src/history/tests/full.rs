//! A full disk: the newest minutes stay, the oldest days go, and the service says so once.
//!
//! A disk that counts its bytes stands in for a small one, so that the test needs no privilege.

use super::super::disk::{Disk, RealDisk, Sink};
use super::super::*;
use super::stores::{DAY, all, minute};
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use vsteer_core::FaultKind;

/// A disk of a given size, in bytes.
struct SmallDisk {
    folder: PathBuf,
    room: u64,
}

struct SmallSink {
    file: Box<dyn Sink>,
    folder: PathBuf,
    room: u64,
}

fn used(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).unwrap().map(|e| e.unwrap());
    entries.map(|e| if e.path().is_dir() { used(&e.path()) } else { e.metadata().unwrap().len() }).sum()
}

impl Write for SmallSink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let free = self.room.saturating_sub(used(&self.folder)) as usize;
        if free == 0 && !bytes.is_empty() {
            return Err(io::ErrorKind::StorageFull.into());
        }
        // As a file system does: what fits is written.
        let fits = bytes.len().min(free);
        self.file.write_all(&bytes[..fits])?;
        Ok(fits)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Sink for SmallSink {
    fn sync(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Disk for SmallDisk {
    fn create(&self, path: &Path) -> io::Result<Box<dyn Sink>> {
        let file = RealDisk.create(path)?;
        Ok(Box::new(SmallSink { file, folder: self.folder.clone(), room: self.room }))
    }

    fn append(&self, path: &Path) -> io::Result<Box<dyn Sink>> {
        let file = RealDisk.append(path)?;
        Ok(Box::new(SmallSink { file, folder: self.folder.clone(), room: self.room }))
    }

    fn shorten(&self, path: &Path, length: u64) -> io::Result<()> {
        RealDisk.shorten(path, length)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        RealDisk.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        RealDisk.remove(path)
    }

    fn sync_folder(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_full_disk_costs_the_oldest_days() {
    let dir = tempfile::tempdir().unwrap();
    let disk = SmallDisk { folder: dir.path().to_owned(), room: 150_000 };
    let mut writer = Writer::open_by(Box::new(disk), dir.path(), dir.path(), None, DAY).unwrap();
    let (mut notes, mut n, mut last) = (Vec::new(), 0, 0);
    // Four minutes of each hour, so that days pass quickly.
    for hour in 0..240 {
        for m in 0..4 {
            n = hour * 60 + m;
            if writer.append(&minute(n, &["web", "db"])).is_ok() {
                last = n;
            }
            notes.extend(writer.take_notes());
        }
    }
    let kept = writer.kept();
    assert!(kept.dropped_days > 3, "{kept:?}");
    assert_eq!((kept.lost_minutes, last), (0, n));
    let full: Vec<_> = notes.iter().filter(|n| n.contains("the disk is full")).collect();
    assert_eq!((full.len(), notes.len()), (1, 1), "{notes:?}");
    let rows = History::open(dir.path()).unwrap().host(&all(), Step::Minute).unwrap().rows;
    let minutes: Vec<u64> = rows.iter().map(|r| (r.unix_ms - DAY) / MINUTE_MS).collect();
    let newest_day: Vec<u64> = (216..240).flat_map(|h| (0..4).map(move |m| h * 60 + m)).collect();
    assert!(minutes.ends_with(&newest_day), "the newest day is whole: {minutes:?}");
}

#[test]
fn without_any_room_the_minute_is_lost_and_counted() {
    let dir = tempfile::tempdir().unwrap();
    let disk = SmallDisk { folder: dir.path().to_owned(), room: 1_000 };
    let mut writer = Writer::open_by(Box::new(disk), dir.path(), dir.path(), None, DAY).unwrap();
    let faults: Vec<_> = (0..4).filter_map(|n| writer.append(&minute(n, &["web"])).err()).collect();
    assert!(faults.iter().all(|f| f.kind == FaultKind::NoSpace), "{faults:?}");
    let kept = writer.kept();
    assert_eq!((kept.minutes + kept.lost_minutes, kept.lost_minutes), (4, faults.len() as u64));
    assert!(kept.lost_minutes >= 2, "{kept:?}");
    let rows = History::open(dir.path()).unwrap().host(&all(), Step::Minute).unwrap();
    assert_eq!((rows.rows.len() as u64, rows.notes.len()), (kept.minutes, 0), "no half line is left");
}
