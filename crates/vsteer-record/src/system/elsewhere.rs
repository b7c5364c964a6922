//! Windows and macOS, by the standard library alone.
//!
//! A name is checked before it is opened, so a file that is replaced between the two steps is not noticed. Permissions and
//! owners do not count.

use super::not_read;
use std::fs::{self, File, FileType, Metadata, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

/// Does this process run as root? vsteer needs no privilege here, and treats all users alike.
pub(crate) fn is_root() -> bool {
    false
}

/// Opens an ordinary file. A recording may come from anybody: a device may have no end, and a link may lead anywhere.
pub(crate) fn open_ordinary(path: &Path) -> io::Result<File> {
    let of = fs::symlink_metadata(path)?;
    if of.is_symlink() {
        return Err(not_read("it is a symbolic link"));
    }
    if !of.is_file() {
        return Err(not_read("it is not an ordinary file"));
    }
    File::open(path)
}

/// Owners do not count here.
pub(crate) fn is_of_same_user(_: &File, _: &Path) -> io::Result<bool> {
    Ok(true)
}

/// Can such a file be damaged by writing it as a whole? Devices have no names in folders here that a user would give.
pub(crate) fn is_block_device(_: FileType) -> bool {
    false
}

/// Opens a terminal or a device.
pub(crate) fn open_at_once(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).open(path)
}

/// Makes a file that is not there.
pub(crate) fn create_new(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).open(path)
}

/// A new file takes its permissions from its folder.
pub(crate) fn keep_mode(_: &File, _: &Metadata) -> io::Result<()> {
    Ok(())
}

/// A file cannot be told from another by its name here.
pub(crate) fn is_at(_: &File, _: &Path) -> io::Result<()> {
    Ok(())
}

/// Opens a file in a folder of vsteer's own, to write it from its start or at its end.
pub(crate) fn open_to_write(path: &Path, append: bool) -> io::Result<File> {
    OpenOptions::new().write(true).create(true).append(append).truncate(!append).open(path)
}

/// Makes a folder.
pub(crate) fn make_folder(path: &Path) -> io::Result<()> {
    fs::create_dir(path)
}

/// A folder, known by its name alone.
#[derive(Debug)]
pub(crate) struct Held;

impl Held {
    /// Checks that it is a folder.
    pub(crate) fn open(path: &Path) -> io::Result<Held> {
        fs::read_dir(path).map(|_| Held)
    }

    /// Nothing is known here of what others may write.
    pub(crate) fn unsafe_because(&self) -> io::Result<Option<String>> {
        Ok(None)
    }

    /// Access follows from the folder above.
    pub(crate) fn close_to_others(&self) -> io::Result<()> {
        Ok(())
    }

    /// The folder has only its own name.
    pub(crate) fn path(&self) -> Option<PathBuf> {
        None
    }
}
