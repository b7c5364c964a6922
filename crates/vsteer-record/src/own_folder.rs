//! A folder that vsteer writes into, held open, so that nobody can put another one in its place.
//!
//! Where root records into a folder of another user (`/tmp/x/`, a home), that user can rename what lies in it at
//! any time, and put a link to `/etc` under the old name. So vsteer opens the folder that it has made, checks that
//! it belongs to the user who runs vsteer, and reaches it only through the open folder (`/proc/self/fd/N`).
//!
//! Nobody else may write a new folder, whatever the umask.
//!
//! Left out: a system without `/proc`, where the name is used.

use crate::system::{self, Held};
use std::fs;
use std::path::{Path, PathBuf};
use vsteer_core::{Fault, FaultKind};

/// A folder of this process's user, held open.
#[derive(Debug)]
pub struct OwnFolder {
    held: Held,
    shown: PathBuf,
}

impl OwnFolder {
    /// Makes a new folder, and those above it that are missing.
    ///
    /// # Errors
    /// `Usage` if there is something (vsteer never overwrites a folder); `NoSpace`, `NoPrivilege`: as the system says.
    pub fn make(path: &Path) -> Result<OwnFolder, Fault> {
        let path = &plain(path);
        let failed = |e: &std::io::Error| Fault::io(format!("cannot create {}", path.display()), e);
        if let Some(above) = path.parent().filter(|above| !above.as_os_str().is_empty()) {
            fs::create_dir_all(above).map_err(|e| failed(&e))?;
        }
        match system::make_folder(path) {
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {
                Err(Fault::new(FaultKind::Usage, format!("{} already exists", path.display()))
                    .help("choose another output, or remove this one: vsteer never overwrites a folder"))
            }
            Err(e) => Err(failed(&e)),
            Ok(()) => OwnFolder::open(path),
        }
    }

    /// As [`OwnFolder::make`], or opens a folder of this user that nobody else may write.
    ///
    /// # Errors
    /// As [`OwnFolder::make`]; `NoPrivilege` if the folder belongs to another user, or all may write it.
    pub fn make_or_open(path: &Path) -> Result<OwnFolder, Fault> {
        if path.is_dir() { OwnFolder::open(&plain(path)) } else { OwnFolder::make(path) }
    }

    /// As [`OwnFolder::make_or_open`], of an empty folder, which it closes to all other users: for copies of what only
    /// root may read.
    ///
    /// # Errors
    /// As [`OwnFolder::make_or_open`]; `Usage` if the folder is not empty.
    pub fn make_private(path: &Path) -> Result<OwnFolder, Fault> {
        let folder = OwnFolder::make_or_open(path)?;
        if fs::read_dir(folder.path()).is_ok_and(|mut entries| entries.next().is_some()) {
            return Err(Fault::new(FaultKind::Usage, format!("the folder {} is not empty", path.display()))
                .help("name a folder that does not exist yet"));
        }
        folder.private()
    }

    fn private(self) -> Result<OwnFolder, Fault> {
        self.held
            .close_to_others()
            .map_err(|e| Fault::io(format!("cannot close {} to others", self.shown.display()), &e))?;
        Ok(self)
    }

    /// Removes the files that were written into a new folder, and the folder. What cannot be removed stays.
    pub fn remove(self) {
        let entries = fs::read_dir(self.path()).into_iter().flatten().flatten();
        entries.for_each(|entry| drop(fs::remove_file(entry.path())));
        // By its name, so only if it is empty and nothing else has taken the name.
        let _ = fs::remove_dir(&self.shown);
    }

    fn open(path: &Path) -> Result<OwnFolder, Fault> {
        let failed = |e: &std::io::Error| Fault::io(format!("cannot open the folder {}", path.display()), e);
        let refused = |why: String| {
            Fault::new(FaultKind::NoPrivilege, format!("vsteer does not write into {}", path.display()))
                .because(why)
                .help("name a folder that does not exist yet")
        };
        if fs::symlink_metadata(path).is_ok_and(|of| of.is_symlink()) {
            return Err(refused("it is a symbolic link: name the folder that it leads to".to_owned()));
        }
        let held = Held::open(path).map_err(|e| failed(&e))?;
        if let Some(why) = held.unsafe_because().map_err(|e| failed(&e))? {
            return Err(refused(why));
        }
        Ok(OwnFolder { held, shown: path.to_owned() })
    }

    /// The path for this process. It stays the same whatever happens to the name.
    pub fn path(&self) -> PathBuf {
        self.held.path().unwrap_or_else(|| self.shown.clone())
    }

    /// `text`, with each [`OwnFolder::path`] replaced by the path that people know.
    pub fn named(&self, text: &str) -> String {
        shown(text, &self.shown)
    }
}

/// The path without a slash at its end: with one, the system follows a link.
fn plain(path: &Path) -> PathBuf {
    path.components().collect()
}

/// `text` with `name` in place of `/proc/self/fd/N`.
pub fn shown(text: &str, name: &Path) -> String {
    let Some((before, rest)) = text.split_once("/proc/self/fd/") else { return text.to_owned() };
    format!("{before}{}{}", name.display(), rest.trim_start_matches(|c: char| c.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    #[test]
    fn what_takes_its_name_gets_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let (name, moved, victim) =
            (dir.path().join("a/out"), dir.path().join("moved"), dir.path().join("victim"));
        fs::create_dir(&victim).unwrap();
        let folder = OwnFolder::make(&name).unwrap();
        assert_eq!(OwnFolder::make(&name).unwrap_err().kind, FaultKind::Usage);
        fs::rename(&name, &moved).unwrap();
        std::os::unix::fs::symlink(&victim, &name).unwrap();
        fs::write(folder.path().join("x"), "mine").unwrap();
        assert_eq!(fs::read_to_string(moved.join("x")).unwrap(), "mine");
        assert_eq!(fs::read_dir(&victim).unwrap().count(), 0);
        for link in [name.clone(), PathBuf::from(format!("{}/", name.display()))] {
            for opened in [OwnFolder::make_or_open(&link), OwnFolder::make_private(&link)] {
                assert!(opened.unwrap_err().to_string().contains("symbolic link"), "{link:?}");
            }
        }
        let open = dir.path().join("open");
        fs::create_dir(&open).unwrap();
        fs::set_permissions(&open, fs::Permissions::from_mode(0o1777)).unwrap();
        assert!(OwnFolder::make_private(&open).unwrap_err().to_string().contains("all users may write"));
        fs::set_permissions(&open, fs::Permissions::from_mode(0o755)).unwrap();
        fs::write(open.join("x"), "x").unwrap();
        assert_eq!(OwnFolder::make_private(&open).unwrap_err().kind, FaultKind::Usage);
        assert_eq!(fs::metadata(&open).unwrap().mode() & 0o777, 0o755, "what is refused is not closed");
        let text = format!("cannot write {}/x", folder.path().display());
        assert_eq!(folder.named(&text), format!("cannot write {}/x", name.display()));
    }

    #[test]
    fn a_folder_of_another_user_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        if std::os::unix::fs::chown(dir.path(), Some(65_534), None).is_ok() {
            let refused = OwnFolder::make_or_open(dir.path()).unwrap_err();
            assert_eq!(refused.kind, FaultKind::NoPrivilege);
            assert!(refused.to_string().contains("belongs to user 65534"), "{refused}");
        }
        // /proc belongs to root, but who is not root finds a folder of another user everywhere.
        let own = tempfile::tempdir().unwrap();
        assert!(OwnFolder::make_or_open(own.path()).is_ok());
    }
}
