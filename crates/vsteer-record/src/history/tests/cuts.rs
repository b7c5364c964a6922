//! A power cut, and a full disk, at every byte and at every operation.
//!
//! The disk of these tests fails from a chosen moment on. It also knows what a power cut leaves in the worst case: contents
//! that were synced, under names whose folder was synced. What is left is opened again, in both cases.

use super::super::disk::{Disk, RealDisk, Sink};
use super::super::*;
use super::stores::{DAY, all, minute};
use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// What a disk was asked to do so far, and what of it is safe.
#[derive(Default)]
struct State {
    /// Bytes and operations until the cut.
    left: u64,
    used: u64,
    /// Contents that were synced, by file, and the file of each name.
    synced: BTreeMap<u64, Vec<u8>>,
    names: BTreeMap<PathBuf, u64>,
    safe_names: BTreeMap<PathBuf, u64>,
    files: u64,
    /// When each operation other than a write began.
    operations: Vec<u64>,
}

impl State {
    /// Takes up to `n` steps. Fewer: the cut is here.
    fn take(&mut self, n: u64) -> u64 {
        let taken = n.min(self.left);
        self.left -= taken;
        self.used += taken;
        taken
    }

    fn step(&mut self) -> io::Result<()> {
        self.operations.push(self.used);
        if self.take(1) == 1 { Ok(()) } else { Err(io::Error::other("cut")) }
    }
}

#[derive(Clone, Default)]
struct CutDisk(Arc<Mutex<State>>);

struct CutSink {
    disk: CutDisk,
    file: Box<dyn Sink>,
    path: PathBuf,
    id: u64,
}

impl Write for CutSink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = self.disk.0.lock().unwrap().take(bytes.len() as u64) as usize;
        self.file.write_all(&bytes[..taken])?;
        if taken == bytes.len() { Ok(taken) } else { Err(io::Error::other("cut")) }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Sink for CutSink {
    fn sync(&mut self) -> io::Result<()> {
        let mut state = self.disk.0.lock().unwrap();
        state.step()?;
        self.file.flush()?;
        let content = fs::read(&self.path)?;
        state.synced.insert(self.id, content);
        Ok(())
    }
}

impl CutDisk {
    fn sink(&self, path: &Path, file: Box<dyn Sink>) -> Box<dyn Sink> {
        let mut state = self.0.lock().unwrap();
        let id = match state.names.get(path) {
            Some(id) => *id,
            None => {
                state.files += 1;
                let id = state.files;
                state.names.insert(path.to_owned(), id);
                id
            }
        };
        Box::new(CutSink { disk: self.clone(), file, path: path.to_owned(), id })
    }
}

impl Disk for CutDisk {
    fn create(&self, path: &Path) -> io::Result<Box<dyn Sink>> {
        self.0.lock().unwrap().step()?;
        self.0.lock().unwrap().names.remove(path);
        Ok(self.sink(path, RealDisk.create(path)?))
    }

    fn append(&self, path: &Path) -> io::Result<Box<dyn Sink>> {
        self.0.lock().unwrap().step()?;
        Ok(self.sink(path, RealDisk.append(path)?))
    }

    fn shorten(&self, path: &Path, length: u64) -> io::Result<()> {
        self.0.lock().unwrap().step()?;
        RealDisk.shorten(path, length)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.0.lock().unwrap();
        state.step()?;
        let id = state.names.remove(from).unwrap();
        state.names.insert(to.to_owned(), id);
        RealDisk.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut state = self.0.lock().unwrap();
        state.step()?;
        state.names.remove(path);
        RealDisk.remove(path)
    }

    fn sync_folder(&self, path: &Path) -> io::Result<()> {
        let mut state = self.0.lock().unwrap();
        state.step()?;
        let inside = |name: &PathBuf| name.parent() == Some(path);
        state.safe_names.retain(|name, _| !inside(name));
        let now: Vec<_> =
            state.names.iter().filter(|(n, _)| inside(n)).map(|(n, id)| (n.clone(), *id)).collect();
        state.safe_names.extend(now);
        Ok(())
    }
}

/// Writes minutes until the cut. Returns the number of minutes that were stored, as the writer says.
fn written(disk: &CutDisk, folder: &Path, of: &[u64]) -> u64 {
    let opened = Writer::open_by(Box::new(disk.clone()), folder, folder, None, DAY + of[0] * MINUTE_MS);
    let Ok(mut writer) = opened else { return 0 };
    for n in of {
        // The hour's merge may fail after the minute was stored.
        let _ = writer.append(&minute(*n, &["web"]));
    }
    writer.kept().minutes
}

/// The minutes of the host and of the VM, and of the VM's hours, that a reader finds.
fn found(folder: &Path) -> (Vec<u64>, u64) {
    let Ok(history) = History::open(folder) else { return (Vec::new(), 0) };
    let host = history.host(&all(), Step::Minute).unwrap();
    let vms = history.vms(&all(), Step::Minute).unwrap();
    let minutes: Vec<u64> = host.rows.iter().map(|r| (r.unix_ms - DAY) / MINUTE_MS).collect();
    let of_vm: Vec<u64> = vms.rows.iter().map(|r| (r.unix_ms - DAY) / MINUTE_MS).collect();
    assert_eq!(minutes, of_vm, "a minute is there as a whole, or not at all");
    assert_eq!(history.timeline(&all()).unwrap().rows.len(), minutes.len());
    let samples = history.vms(&all(), Step::Hour).unwrap().rows.iter().map(|r| r.samples).sum();
    (minutes, samples)
}

/// What is left after a power cut in the worst case.
fn worst(disk: &CutDisk, from: &Path, to: &Path) {
    let state = disk.0.lock().unwrap();
    for (name, id) in &state.safe_names {
        let path = to.join(name.strip_prefix(from).unwrap());
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, state.synced.get(id).map_or(&[][..], Vec::as_slice)).unwrap();
    }
}

/// A disk that is never cut, and does not wait for the real one.
fn endless() -> CutDisk {
    let disk = CutDisk::default();
    disk.0.lock().unwrap().left = u64::MAX;
    disk
}

fn check(folder: &Path, of: &[u64], stored: u64, at: u64) {
    let (minutes, samples) = found(folder);
    let kept = minutes.len() as u64;
    assert!(kept >= stored, "cut at {at}: {stored} minutes were stored, and {kept} are there");
    assert!(minutes.iter().all(|n| of.contains(n)), "cut at {at}: {minutes:?}");
    assert_eq!(samples, 60 * kept, "cut at {at}: hours hold what their minutes hold");
    // The next service goes on, and nothing is lost or there twice.
    let next = of.last().unwrap() + 1;
    let now_ms = DAY + next * MINUTE_MS;
    let mut writer = Writer::open_by(Box::new(endless()), folder, folder, None, now_ms).unwrap();
    writer.append(&minute(next, &["web"])).unwrap();
    drop(writer);
    let (after, samples) = found(folder);
    assert_eq!(after, [&minutes[..], &[next]].concat(), "cut at {at}");
    assert_eq!(samples, 60 * (kept + 1), "cut at {at}");
}

/// Cuts at `at` of a run over these minutes.
fn cut(at: u64, of: &[u64]) {
    let (dir, rest) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let disk = CutDisk::default();
    disk.0.lock().unwrap().left = at;
    let stored = written(&disk, dir.path(), of);
    worst(&disk, dir.path(), rest.path());
    check(dir.path(), of, stored, at);
    check(rest.path(), of, stored, at);
}

/// All bytes and operations of a run that is not cut, and when each operation begins.
fn uncut(of: &[u64]) -> (u64, Vec<u64>) {
    let (dir, disk) = (tempfile::tempdir().unwrap(), endless());
    assert_eq!(written(&disk, dir.path(), of), of.len() as u64);
    let state = disk.0.lock().unwrap();
    (state.used, state.operations.clone())
}

#[test]
fn a_power_cut_at_any_byte_of_a_minute_costs_that_minute() {
    let of = [0, 1];
    let (all, _) = uncut(&of);
    assert!(all > 1000, "{all}");
    (0..all).for_each(|at| cut(at, &of));
}

/// Two hours end in this run. The second merge finds files that are there.
#[test]
fn a_power_cut_at_any_operation_of_a_merge_costs_nothing() {
    let of = [0, 60, 120];
    let (all, operations) = uncut(&of);
    assert!(operations.len() > 50, "{}", operations.len());
    for at in operations {
        cut(at, &of);
        cut(at + 1, &of);
    }
    // And within what is written between them.
    (0..all).step_by(1499).for_each(|at| cut(at, &of));
}
