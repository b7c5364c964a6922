//! Replaces the recording of an earlier run only after the new one has its first batch.
//!
//! A service that restarts must never lose what it recorded, least of all when it cannot start. So a new recording is
//! written beside the old one. With its first batch on disk, the old one becomes the former one, and the new one takes
//! its name. All writers use the open folder (`/proc/self/fd/N`), so they do not notice the new name. A run that is
//! killed between two renames is completed by the next run.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use vsteer_core::{Fault, FaultKind};
use vsteer_record::is_part;
use vsteer_record::own_folder::OwnFolder;

/// A recording that has not replaced the old one yet.
pub(super) struct Rotation {
    folder: OwnFolder,
    new: PathBuf,
    output: PathBuf,
    former: PathBuf,
    done: bool,
}

fn with_end(path: &Path, end: &str) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(end);
    path.with_file_name(name)
}

fn renamed(from: &Path, to: &Path) -> Result<(), Fault> {
    fs::rename(from, to)
        .map_err(|e| Fault::io(format!("cannot rename {} to {}", from.display(), to.display()), &e))
}

fn removed(folder: &Path) -> Result<(), Fault> {
    match fs::remove_dir_all(folder) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
            Err(Fault::io(format!("cannot remove {}", folder.display()), &e))
        }
        _ => Ok(()),
    }
}

/// Refuses a folder that holds no recording, or belongs to another user: it must not be renamed or removed.
fn need_recording(path: &Path) -> Result<(), Fault> {
    if !is_there(path) {
        return Ok(());
    }
    let of =
        fs::symlink_metadata(path).map_err(|e| Fault::io(format!("cannot read {}", path.display()), &e))?;
    let why = if !of.is_dir() {
        "it is not a folder".to_owned()
    } else if of.uid() != rustix::process::geteuid().as_raw() {
        format!("it belongs to user {}", of.uid())
    } else if !is_there(&path.join("manifest.json")) && !has_only_parts(path) {
        "it has other files and no recording".to_owned()
    } else {
        return Ok(());
    };
    Err(Fault::new(FaultKind::Usage, format!("cannot replace {} by a new recording", path.display()))
        .because(why)
        .help("move it away, or name other folders with --output and --keep-former"))
}

/// Is each file a part of a recording? A removal that was interrupted may have left some without the manifest.
fn has_only_parts(path: &Path) -> bool {
    // A file that was being replaced has `.new` at its end.
    let is_one = |name: &str| is_part(name.strip_suffix(".new").unwrap_or(name));
    fs::read_dir(path).is_ok_and(|all| all.flatten().all(|e| e.file_name().to_str().is_some_and(is_one)))
}

fn is_there(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok()
}

impl Rotation {
    /// Makes the folder of the new recording. `None` if `output` is free: then nothing is replaced.
    ///
    /// # Errors
    /// `Usage` if `former` is `output`; if a folder cannot be made, renamed or removed.
    pub(super) fn begin(output: &Path, former: &Path) -> Result<Option<Rotation>, Fault> {
        if output == former {
            return Err(Fault::new(FaultKind::Usage, "--output and --keep-former name the same folder"));
        }
        let (new, older) = (with_end(output, ".new"), with_end(former, ".old"));
        for folder in [&new, &older, former, output] {
            need_recording(folder)?;
        }
        // An earlier run was killed between two renames.
        if is_there(&older) && !is_there(former) {
            renamed(&older, former)?;
        }
        if is_there(&new) && !is_there(output) {
            renamed(&new, output)?;
        }
        removed(&new)?;
        removed(&older)?;
        if !is_there(output) {
            return Ok(None);
        }
        let folder = OwnFolder::make(&new)?;
        Ok(Some(Rotation { folder, new, output: output.to_owned(), former: former.to_owned(), done: false }))
    }

    /// Path of the new recording for the writers of this process. It stays the same.
    pub(super) fn folder(&self) -> PathBuf {
        self.folder.path()
    }

    /// The new recording takes the place of the old one, and the old one that of the former one, which goes.
    ///
    /// # Errors
    /// If a folder cannot be renamed. The recordings are then all there.
    pub(super) fn replace(&mut self) -> Result<(), Fault> {
        if self.done {
            return Ok(());
        }
        let older = with_end(&self.former, ".old");
        if is_there(&self.former) {
            renamed(&self.former, &older)?;
        }
        renamed(&self.output, &self.former)?;
        renamed(&self.new, &self.output)?;
        self.done = true;
        removed(&older)
    }
}

impl Drop for Rotation {
    fn drop(&mut self) {
        if !self.done && is_there(&self.output) {
            // It has no batch, and the old recording is where it was.
            let _ = fs::remove_dir_all(&self.new);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(folder: &Path, text: &str) {
        fs::create_dir_all(folder).unwrap();
        fs::write(folder.join("manifest.json"), "{}").unwrap();
        fs::write(folder.join("text"), text).unwrap();
    }

    fn text(folder: &Path) -> Option<String> {
        fs::read_to_string(folder.join("text")).ok()
    }

    #[test]
    fn what_is_no_recording_is_neither_renamed_nor_removed() {
        let dir = tempfile::tempdir().unwrap();
        let (output, former) = (dir.path().join("current.vsteer"), dir.path().join("former.vsteer"));
        put(&output, "2");
        for end in ["", ".old"] {
            let notes = with_end(&former, end);
            fs::create_dir(&notes).unwrap();
            fs::write(notes.join("notes"), "mine").unwrap();
            let refused = Rotation::begin(&output, &former).err().unwrap();
            assert!(refused.to_string().contains("other files and no recording"), "{refused}");
            assert_eq!(fs::read_to_string(notes.join("notes")).unwrap(), "mine");
            fs::remove_dir_all(&notes).unwrap();
            std::os::unix::fs::symlink(dir.path(), &notes).unwrap();
            assert!(Rotation::begin(&output, &former).is_err(), "a link");
            fs::remove_file(&notes).unwrap();
        }
        // What an interrupted removal left.
        let older = with_end(&former, ".old");
        fs::create_dir(&older).unwrap();
        fs::write(older.join("thread-0001.arrows"), "x").unwrap();
        put(&former, "1");
        assert!(Rotation::begin(&output, &former).unwrap().is_some() && !older.exists());
        assert_eq!(text(&output).as_deref(), Some("2"));
    }

    #[test]
    fn the_old_recording_stays_until_the_new_one_has_something() {
        let dir = tempfile::tempdir().unwrap();
        let (output, former) = (dir.path().join("current.vsteer"), dir.path().join("former.vsteer"));
        assert!(Rotation::begin(&output, &former).unwrap().is_none());
        put(&output, "2");
        put(&former, "1");
        // Two starts that fail.
        for _ in 0..2 {
            let rotation = Rotation::begin(&output, &former).unwrap().unwrap();
            fs::write(rotation.folder().join("text"), "nothing").unwrap();
            drop(rotation);
            assert_eq!((text(&output).as_deref(), text(&former).as_deref()), (Some("2"), Some("1")));
        }
        let mut rotation = Rotation::begin(&output, &former).unwrap().unwrap();
        let folder = rotation.folder();
        rotation.replace().unwrap();
        fs::write(folder.join("text"), "3").unwrap();
        drop(rotation);
        assert_eq!((text(&output).as_deref(), text(&former).as_deref()), (Some("3"), Some("2")));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
    }

    #[test]
    fn killed_between_any_two_renames_nothing_is_lost() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        // What is left after each rename: former.old, current, former, current.new.
        for (names, kept) in [
            (&["former.old:1", "current:2", "current.new:3"][..], ["2", "1"]),
            (&["former.old:1", "former:2", "current.new:3"], ["3", "2"]),
            (&["former.old:1", "former:2", "current:3"], ["3", "2"]),
        ] {
            for name in names {
                let (name, what) = name.split_once(':').unwrap();
                put(&at(name), what);
            }
            drop(Rotation::begin(&at("current"), &at("former")).unwrap());
            let all = [text(&at("current")), text(&at("former"))].map(Option::unwrap_or_default);
            assert_eq!(all, kept, "{names:?}");
            for name in ["current", "former"] {
                fs::remove_dir_all(at(name)).unwrap();
            }
            assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        }
    }
}
