//! Linux: links are not followed, what was opened is what gets checked, and owners count.

use super::not_read;
use rustix::fs::{Mode, OFlags, fcntl_getfl, fcntl_setfl};
use std::fs::{self, DirBuilder, File, FileType, Metadata, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Mode of a new folder before the umask.
const FOLDER_MODE: u32 = 0o755;
const FILE_MODE: u32 = 0o666;

/// Does this process run as root?
pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Opens an ordinary file. A recording may come from anybody: a pipe would block, a device may have no end, and a
/// link may lead to what only root can read.
pub(crate) fn open_ordinary(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match rustix::fs::open(path, flags, Mode::empty()) {
        Err(rustix::io::Errno::LOOP) => return Err(not_read("it is a symbolic link")),
        other => File::from(other?),
    };
    if file.metadata()?.is_file() { Ok(file) } else { Err(not_read("it is not an ordinary file")) }
}

/// Does the file belong to root, to this user, or to the owner of `of`?
pub(crate) fn is_of_same_user(file: &File, of: &Path) -> io::Result<bool> {
    let owner = file.metadata()?.uid();
    Ok(owner == 0 || owner == rustix::process::geteuid().as_raw() || owner == fs::metadata(of)?.uid())
}

/// Can such a file be damaged by writing it as a whole?
pub(crate) fn is_block_device(kind: FileType) -> bool {
    kind.is_block_device()
}

/// Opens a terminal, pipe or device. A pipe without a reader would block.
pub(crate) fn open_at_once(path: &Path) -> io::Result<File> {
    let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = match rustix::fs::open(path, flags, Mode::empty()) {
        Err(rustix::io::Errno::NXIO) => return Err(io::Error::other("nothing reads this pipe")),
        other => File::from(other?),
    };
    // What reads slowly is waited for.
    fcntl_setfl(&file, fcntl_getfl(&file)? - OFlags::NONBLOCK)?;
    Ok(file)
}

/// Makes a file that is not there. This does not follow a link.
pub(crate) fn create_new(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(FILE_MODE).open(path)
}

/// Gives the file the permissions of the old one, but nothing that a shell would not give a new file. The mode that
/// another user chose does not count.
pub(crate) fn keep_mode(file: &File, old: &Metadata) -> io::Result<()> {
    if file.metadata()?.uid() != old.uid() {
        return Ok(());
    }
    file.set_permissions(fs::Permissions::from_mode(old.permissions().mode() & 0o777))
}

/// Fails if `path` is not this file: the owner of the folder could replace it before a rename.
pub(crate) fn is_at(file: &File, path: &Path) -> io::Result<()> {
    let (is, own) = (fs::symlink_metadata(path)?, file.metadata()?);
    if (is.dev(), is.ino()) == (own.dev(), own.ino()) {
        return Ok(());
    }
    Err(io::Error::other("another process put a file of its own there"))
}

/// Opens a file in a folder of vsteer's own, to write it from its start or at its end.
pub(crate) fn open_to_write(path: &Path, append: bool) -> io::Result<File> {
    let place = if append { OFlags::APPEND } else { OFlags::TRUNC };
    // A link in the folder could lead to any file of the system.
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC | place;
    Ok(File::from(rustix::fs::open(path, flags, Mode::from_raw_mode(0o644))?))
}

/// Makes a folder that nobody else may write.
pub(crate) fn make_folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(FOLDER_MODE).create(path)
}

/// A folder, held open.
#[derive(Debug)]
pub(crate) struct Held(File);

impl Held {
    /// Opens a folder.
    pub(crate) fn open(path: &Path) -> io::Result<Held> {
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(Held(File::from(rustix::fs::open(path, flags, Mode::empty())?)))
    }

    /// Why vsteer must not write here, if somebody else could put a link into the folder.
    pub(crate) fn unsafe_because(&self) -> io::Result<Option<String>> {
        let of = self.0.metadata()?;
        Ok(if of.uid() != rustix::process::geteuid().as_raw() {
            Some(format!("it belongs to user {}, who could put links into it", of.uid()))
        } else if of.mode() & 0o002 != 0 {
            Some("all users may write it, and could put links into it".to_owned())
        } else {
            None
        })
    }

    /// Takes all access from other users.
    pub(crate) fn close_to_others(&self) -> io::Result<()> {
        self.0.set_permissions(fs::Permissions::from_mode(0o700))
    }

    /// A path to the folder that stays the same whatever happens to its name; `None` without `/proc`.
    pub(crate) fn path(&self) -> Option<PathBuf> {
        let held = PathBuf::from(format!("/proc/self/fd/{}", self.0.as_raw_fd()));
        held.is_dir().then_some(held)
    }
}
