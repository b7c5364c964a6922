//! File operations whose faults name the file.
//!
//! Left out: reading, because only the caller knows what a missing file means.

use std::path::Path;
use vsteer_core::Fault;

/// Makes `folder` and those above it; it may exist already.
pub(crate) fn make_folder(folder: &Path) -> Result<(), Fault> {
    std::fs::create_dir_all(folder)
        .map_err(|e| Fault::io(format!("making the folder {}", folder.display()), &e))
}

/// Writes the whole `file`.
pub(crate) fn write_file(file: &Path, bytes: impl AsRef<[u8]>) -> Result<(), Fault> {
    std::fs::write(file, bytes).map_err(|e| Fault::io(format!("writing {}", file.display()), &e))
}

/// Writes the whole `file`, which its owner alone can read.
pub(crate) fn write_secret(file: &Path, bytes: impl AsRef<[u8]>) -> Result<(), Fault> {
    use std::os::unix::fs::PermissionsExt;
    // Empty first: nobody reads what it will hold.
    write_file(file, "")?;
    std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o600))
        .map_err(|e| Fault::io(format!("closing {}", file.display()), &e))?;
    write_file(file, bytes)
}

/// Replaces `file` so that a reader, or a crash, sees either the old content or the new.
pub(crate) fn replace_file(file: &Path, bytes: impl AsRef<[u8]>) -> Result<(), Fault> {
    let fresh = file.with_extension("new");
    write_file(&fresh, bytes)?;
    let synced = std::fs::File::open(&fresh).and_then(|f| f.sync_all());
    synced
        .and_then(|()| std::fs::rename(&fresh, file))
        .map_err(|e| Fault::io(format!("putting {} in place", file.display()), &e))
}

/// Removes `folder` and its content; it may be missing.
pub(crate) fn remove_folder(folder: &Path) -> Result<(), Fault> {
    match std::fs::remove_dir_all(folder) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
            Err(Fault::io(format!("removing the folder {}", folder.display()), &e))
        }
        _ => Ok(()),
    }
}

/// The names of a folder's files, sorted.
///
/// # Errors
/// It cannot be read.
pub fn names(folder: &Path) -> Result<Vec<String>, Fault> {
    let read =
        std::fs::read_dir(folder).map_err(|e| Fault::io(format!("reading {}", folder.display()), &e))?;
    let mut names: Vec<String> = read.filter_map(|e| e.ok()?.file_name().into_string().ok()).collect();
    names.sort();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replacing_leaves_no_second_file_and_names_what_fails() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.json");
        replace_file(&file, "1").unwrap();
        replace_file(&file, "2").unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "2");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
        let fault = replace_file(&folder.path().join("none/a.json"), "1").unwrap_err();
        assert!(fault.what.contains("none/a"), "{fault}");
        remove_folder(&folder.path().join("none")).unwrap();
    }
}
