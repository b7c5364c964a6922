//! Where do a machine's files lie? At `/`, or in a folder that holds a captured tree of another machine.
//!
//! The idea: every path is opened inside one folder with `openat2(RESOLVE_IN_ROOT)` (`man 2 openat2`, Linux 5.6), so
//! that a link in a captured tree, absolute ones too, means what it meant on that machine and cannot lead out of the
//! tree. A kernel without `openat2` opens plainly: the same for `/`, without that protection for a captured tree.
//!
//! Left out: writing.

use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, openat, openat2, readlinkat, statat};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Error, ErrorKind, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use vsteer_core::Fault;
use vsteer_core::limits;

/// How often to open a path of a captured tree before vsteer gives up. While any process renames a file, `openat2` may answer EAGAIN to a
/// path that contains `..`, as links in `/sys` do (`fs/namei.c`, `handle_dots`). Each try takes some microseconds.
const TRIES: usize = 1_000;

/// The folder that contains a machine's files.
#[derive(Debug)]
pub struct Root {
    folder: OwnedFd,
    path: PathBuf,
    seen: Option<Mutex<Seen>>,
}

/// What was read of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry {
    /// A file's bytes.
    File(Vec<u8>),
    /// There is a folder.
    Folder,
    /// What a link says.
    Link(String),
}

/// What was read, by path as on the machine.
pub type Seen = BTreeMap<String, Entry>;

impl Root {
    /// Opens the folder.
    ///
    /// # Errors
    /// If it is not a folder or vsteer may not open it.
    pub fn open(path: impl AsRef<Path>) -> Result<Root, Fault> {
        let path = path.as_ref();
        let folder =
            rustix::fs::open(path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
                .map_err(|e| {
                    Fault::io(
                        format!("cannot open {} as the root of a machine's files", path.display()),
                        &e.into(),
                    )
                    .help("name / or a folder that holds the machine's sys and proc folders")
                })?;
        Ok(Root { folder, path: path.to_owned(), seen: None })
    }

    /// The running machine.
    ///
    /// # Errors
    /// When `/` may not be opened.
    pub fn live() -> Result<Root, Fault> {
        Root::open("/")
    }

    /// The same machine, with every path that is read noted: to be captured.
    pub fn noting(self) -> Root {
        Root { seen: Some(Mutex::default()), ..self }
    }

    /// What was read since the last call. Of a path that was read several times, the first reading.
    pub fn take_seen(&self) -> Seen {
        let seen = self.seen.as_ref().map(|s| s.lock().unwrap_or_else(PoisonError::into_inner));
        seen.map(|mut s| std::mem::take(&mut *s)).unwrap_or_default()
    }

    fn note(&self, path: &str, entry: impl FnOnce() -> Entry) {
        if let Some(seen) = &self.seen {
            let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
            let path = format!("/{}", path.trim_matches('/'));
            // A folder says less than what else was read of the path.
            if !matches!(seen.get(&path), Some(Entry::File(_) | Entry::Link(_))) {
                seen.insert(path, entry());
            }
        }
    }

    /// The folder's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Is it the running machine, so that system calls tell of the same one? One that is noted for a capture is read
    /// from files alone, as its capture will be.
    pub fn is_live(&self) -> bool {
        self.path == Path::new("/") && self.seen.is_none()
    }

    /// A file's bytes; `path` is as on the machine (`/proc/cpuinfo`).
    ///
    /// # Errors
    /// The operating system's; also if it is not a regular file (a captured tree may hold a pipe, which would block)
    /// or has more than 32 MiB.
    pub fn bytes(&self, path: &str) -> Result<Vec<u8>, Error> {
        let bytes = self.bytes_at_most(path, limits::HOST_FILE + 1)?;
        if bytes.len() as u64 > limits::HOST_FILE {
            return Err(Error::new(ErrorKind::InvalidData, "more than 32 MiB"));
        }
        Ok(bytes)
    }

    /// The first bytes of a file, at most `limit`.
    ///
    /// # Errors
    /// The operating system's; also if it is not a regular file.
    pub fn bytes_at_most(&self, path: &str, limit: u64) -> Result<Vec<u8>, Error> {
        let file = File::from(self.open_beneath(path, OFlags::RDONLY | OFlags::NONBLOCK)?);
        if !file.metadata()?.is_file() {
            return Err(Error::new(ErrorKind::InvalidData, "not a regular file"));
        }
        let mut bytes = Vec::new();
        file.take(limit).read_to_end(&mut bytes)?;
        self.note(path, || Entry::File(bytes.clone()));
        Ok(bytes)
    }

    /// The names in a folder, sorted.
    ///
    /// # Errors
    /// The operating system's. Names that are not UTF-8 are left out: none that the kernel gives is.
    pub fn names(&self, path: &str) -> Result<Vec<String>, Error> {
        let folder = self.open_beneath(path, OFlags::RDONLY | OFlags::DIRECTORY)?;
        let mut names = Vec::new();
        for entry in rustix::fs::Dir::new(folder)? {
            if let Ok(name) = entry?.file_name().to_str()
                && name != "."
                && name != ".."
            {
                names.push(name.to_owned());
            }
        }
        names.sort();
        self.note(path, || Entry::Folder);
        Ok(names)
    }

    /// What the link `name` in a folder says, without following it.
    ///
    /// # Errors
    /// The operating system's; also if it is not UTF-8.
    pub fn link(&self, folder: &str, name: &str) -> Result<String, Error> {
        let within = self.open_beneath(folder, OFlags::PATH | OFlags::DIRECTORY)?;
        let to = readlinkat(within, name, Vec::new())?;
        let to = to.into_string().map_err(|_| Error::new(ErrorKind::InvalidData, "not UTF-8"))?;
        self.note(&format!("{}/{name}", folder.trim_end_matches('/')), || Entry::Link(to.clone()));
        Ok(to)
    }

    /// Is there a folder of that path?
    pub fn has_folder(&self, path: &str) -> bool {
        let there = self.open_beneath(path, OFlags::PATH | OFlags::DIRECTORY).is_ok_and(|fd| {
            statat(fd.as_fd(), "", AtFlags::EMPTY_PATH)
                .is_ok_and(|s| FileType::from_raw_mode(s.st_mode) == FileType::Directory)
        });
        if there {
            self.note(path, || Entry::Folder);
        }
        there
    }

    fn open_beneath(&self, path: &str, flags: OFlags) -> Result<OwnedFd, Error> {
        let path = path.trim_start_matches('/');
        let path = if path.is_empty() { "." } else { path };
        let flags = flags | OFlags::CLOEXEC;
        let plainly = || openat(&self.folder, path, flags, Mode::empty());
        for _ in 0..TRIES {
            match openat2(&self.folder, path, flags, Mode::empty(), ResolveFlags::IN_ROOT) {
                // Nothing lies outside of `/`.
                Err(Errno::AGAIN) if self.path == Path::new("/") => return Ok(plainly()?),
                Err(Errno::AGAIN) => {}
                // An old kernel has no openat2; an old container filter answers EPERM to what it does not know.
                Err(Errno::NOSYS | Errno::PERM) => return Ok(plainly()?),
                other => return Ok(other?),
            }
        }
        Err(Errno::AGAIN.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_stay_in_the_tree() {
        let tree = tempfile::tempdir().unwrap();
        std::fs::create_dir(tree.path().join("etc")).unwrap();
        std::fs::write(tree.path().join("etc/hostname"), "captured\n").unwrap();
        std::os::unix::fs::symlink("/etc/hostname", tree.path().join("absolute")).unwrap();
        std::os::unix::fs::symlink("../../../../etc/hostname", tree.path().join("upwards")).unwrap();
        let root = Root::open(tree.path()).unwrap();
        for path in ["/etc/hostname", "/absolute", "/upwards"] {
            assert_eq!(root.bytes(path).unwrap(), b"captured\n", "{path}");
        }
        assert_eq!(root.names("/").unwrap(), ["absolute", "etc", "upwards"]);
        assert!(root.has_folder("/etc") && !root.has_folder("/etc/hostname"));
        assert!(root.bytes("/etc").is_err());
        assert_eq!(root.link("/", "upwards").unwrap(), "../../../../etc/hostname");
        assert!(root.link("/etc", "hostname").is_err());
        assert_eq!(
            Root::open(tree.path().join("nothing")).unwrap_err().kind,
            vsteer_core::FaultKind::NothingThere
        );
    }

    /// A build renames thousands of files. The kernel then answers EAGAIN to paths with `..`.
    #[test]
    fn a_rename_elsewhere_does_not_hide_a_file() {
        use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
        let (tree, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        std::fs::create_dir_all(tree.path().join("sys/devices/vda/mq")).unwrap();
        std::fs::create_dir_all(tree.path().join("sys/block")).unwrap();
        std::fs::write(tree.path().join("sys/devices/vda/size"), "8\n").unwrap();
        std::os::unix::fs::symlink("../devices/vda", tree.path().join("sys/block/vda")).unwrap();
        let root = Root::open(tree.path()).unwrap();
        let end = AtomicBool::new(false);
        std::thread::scope(|s| {
            s.spawn(|| {
                let names = ["a", "b"].map(|name| elsewhere.path().join(name));
                std::fs::write(&names[0], "").unwrap();
                while !end.load(Relaxed) {
                    std::fs::rename(&names[0], &names[1]).unwrap();
                    std::fs::rename(&names[1], &names[0]).unwrap();
                }
            });
            let missed = (0..20_000).filter(|_| {
                root.bytes("/sys/block/vda/size").is_err()
                    || !root.has_folder("/sys/block/vda/mq")
                    || root.names("/sys/block/vda").is_err()
            });
            let missed = missed.count();
            end.store(true, Relaxed);
            assert_eq!(missed, 0, "of 20,000");
        });
    }
}
