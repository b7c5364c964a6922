//! How does the history change files? Through these operations, so that a test can cut each of them short.
//!
//! A file counts as stored after [`Sink::sync`]; its name, or its removal, after [`Disk::sync_folder`].

use crate::system::open_to_write;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

/// A file that is written from its start, or at its end.
pub trait Sink: Write + Send {
    /// Waits until the disk has what was written.
    ///
    /// # Errors
    /// As the system says.
    fn sync(&mut self) -> io::Result<()>;
}

impl Sink for Box<dyn Sink> {
    fn sync(&mut self) -> io::Result<()> {
        self.as_mut().sync()
    }
}

impl Sink for File {
    fn sync(&mut self) -> io::Result<()> {
        self.sync_all()
    }
}

/// Operations that change files.
pub trait Disk: Send {
    /// An empty file in place of what is there.
    ///
    /// # Errors
    /// This and all below: as the system says.
    fn create(&self, path: &Path) -> io::Result<Box<dyn Sink>>;
    /// Writes at the end of a file, which may not be there yet.
    fn append(&self, path: &Path) -> io::Result<Box<dyn Sink>>;
    /// Shortens a file.
    fn shorten(&self, path: &Path, length: u64) -> io::Result<()>;
    /// Gives a file a name that another file may have.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Waits until the disk has the names of a folder.
    fn sync_folder(&self, path: &Path) -> io::Result<()>;
}

/// The file system.
pub struct RealDisk;

impl Disk for RealDisk {
    fn create(&self, path: &Path) -> io::Result<Box<dyn Sink>> {
        Ok(Box::new(open_to_write(path, false)?))
    }

    fn append(&self, path: &Path) -> io::Result<Box<dyn Sink>> {
        Ok(Box::new(open_to_write(path, true)?))
    }

    fn shorten(&self, path: &Path, length: u64) -> io::Result<()> {
        OpenOptions::new().write(true).open(path)?.set_len(length)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn sync_folder(&self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }
}
