//! Reads files of others within a limit, and writes an output file as a whole.
//!
//! Writing: the bytes go into a new file beside the old one, which replaces it by a rename after a sync. So at any moment
//! there is the old file or the new one. A full disk never costs a good file, and a symbolic
//! link in the last component is replaced, not followed. A terminal, pipe or `/dev/null` is written directly.

use crate::system;
use std::fs::{self, File};
use std::io::{BufRead, Read, Write};
use std::path::{Path, PathBuf};
use vsteer_core::limits;
use vsteer_core::plan::Plan;
use vsteer_core::{Fault, FaultKind};

/// Reads a file, `most` bytes of it at most.
///
/// # Errors
/// As the system says; `InvalidData` for a larger file.
pub fn read_at_most(path: &Path, most: u64) -> std::io::Result<Vec<u8>> {
    within(File::open(path)?, most)
}

/// Reads a plan that `vsteer plan -o FILE` wrote.
///
/// # Errors
/// `NothingThere` if the file does not exist, `BadInput` if it is not a plan.
pub fn read_plan(path: &Path) -> Result<Plan, Fault> {
    const HELP: &str = "name a file that `vsteer plan -o FILE` wrote";
    let bytes = read_at_most(path, limits::PLAN)
        .map_err(|e| Fault::io(format!("cannot read the plan {}", path.display()), &e).help(HELP))?;
    let not_one = |why: &dyn std::fmt::Display| {
        Fault::new(FaultKind::BadInput, format!("{} is not a plan", path.display())).because(why).help(HELP)
    };
    let plan: Plan = serde_json::from_slice(&bytes).map_err(|e| not_one(&e))?;
    Plan::check_id(&plan.id).map_err(|fault| not_one(&fault))?;
    Ok(plan)
}

/// As [`read_at_most`], of an ordinary file.
///
/// # Errors
/// As [`read_at_most`]; `InvalidData` for anything else than an ordinary file.
pub(crate) fn ordinary_at_most(path: &Path, most: u64) -> std::io::Result<Vec<u8>> {
    within(system::open_ordinary(path)?, most)
}

pub(crate) fn within(file: File, most: u64) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        let why = format!("it has more than {} MiB, the most that vsteer reads of such a file", most >> 20);
        return Err(std::io::Error::new(std::io::ErrorKind::InvalidData, why));
    }
    Ok(bytes)
}

/// Lines without their ends, each of `most` bytes at most: what has no line ends may have no end.
pub(crate) fn lines(mut from: impl BufRead, most: u64) -> impl Iterator<Item = std::io::Result<Vec<u8>>> {
    std::iter::from_fn(move || {
        let mut line = Vec::new();
        match from.by_ref().take(most + 1).read_until(b'\n', &mut line) {
            Err(e) => Some(Err(e)),
            Ok(0) => None,
            Ok(_) if line.last() == Some(&b'\n') => {
                line.pop();
                Some(Ok(line))
            }
            Ok(n) if n as u64 > most => {
                let why = format!("a line has more than {} MiB", most >> 20);
                Some(Err(std::io::Error::new(std::io::ErrorKind::InvalidData, why)))
            }
            Ok(_) => Some(Ok(line)),
        }
    })
}

/// Gives each line without its end to `take`, as [`lines`] does, without memory of its own for each.
///
/// # Errors
/// As the system says; `InvalidData` for a line of more than `most` bytes.
pub(crate) fn each_line(
    mut from: impl BufRead,
    most: u64,
    take: &mut dyn FnMut(&[u8]),
) -> std::io::Result<()> {
    // The part of a line that the buffer before ended with.
    let mut begun: Vec<u8> = Vec::new();
    loop {
        let buffer = from.fill_buf()?;
        if buffer.is_empty() {
            if !begun.is_empty() {
                take(&begun);
            }
            return Ok(());
        }
        let mut rest = buffer;
        while let Some(at) = memchr::memchr(b'\n', rest) {
            if begun.is_empty() {
                take(&rest[..at]);
            } else {
                begun.extend_from_slice(&rest[..at]);
                take(&begun);
                begun.clear();
            }
            rest = &rest[at + 1..];
        }
        begun.extend_from_slice(rest);
        if begun.len() as u64 > most {
            let why = format!("a line has more than {} MiB", most >> 20);
            return Err(std::io::Error::new(std::io::ErrorKind::InvalidData, why));
        }
        let all = buffer.len();
        from.consume(all);
    }
}

/// As [`read_at_most`], as text.
///
/// # Errors
/// As [`read_at_most`]; `InvalidData` if it is not UTF-8.
pub fn text_at_most(path: &Path, most: u64) -> std::io::Result<String> {
    as_text(read_at_most(path, most)?)
}

fn as_text(bytes: Vec<u8>) -> std::io::Result<String> {
    let not_text = |_| std::io::Error::new(std::io::ErrorKind::InvalidData, "it is not UTF-8 text");
    String::from_utf8(bytes).map_err(not_text)
}

/// The text of the file `name` beside `of`, which nobody named; `None` if there is none.
///
/// A link there, or a file of another user than `of`, could be anything: such a file is refused.
///
/// # Errors
/// As [`text_at_most`]; `InvalidData` for what is not an ordinary file of root or of the user who owns `of`.
pub fn text_beside(of: &Path, name: &str) -> std::io::Result<Option<String>> {
    let path = of.with_file_name(name);
    let file = match system::open_ordinary(&path) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        other => other?,
    };
    if !system::is_of_same_user(&file, of)? {
        return Err(system::not_read("it belongs to another user than you and the file beside it"));
    }
    as_text(within(file, limits::TEXT_FILE)?).map(Some)
}

/// Writes `bytes` to `path`.
///
/// # Errors
/// `NoSpace`, `NoPrivilege`, `NothingThere`: as the system says, with the path. The old file is then as it was.
pub fn replace(path: &Path, bytes: &[u8]) -> Result<(), Fault> {
    replace_by(path, |file| file.write_all(bytes))
}

/// As [`replace`], with what `write` puts into the file.
///
/// # Errors
/// As [`replace`]; the fault of `write`.
pub fn replace_by(path: &Path, write: impl FnOnce(&mut File) -> std::io::Result<()>) -> Result<(), Fault> {
    let failed = |e: std::io::Error| Fault::io(format!("cannot write {}", path.display()), &e);
    // What a link leads to counts here: /dev/stdout is one.
    let old = fs::metadata(path).ok();
    if let Some(kind) = old.as_ref().map(fs::Metadata::file_type)
        && !kind.is_file()
    {
        if kind.is_dir() || system::is_block_device(kind) {
            let what = if kind.is_dir() { "a folder" } else { "a block device" };
            return Err(Fault::new(FaultKind::Usage, format!("cannot write {}", path.display()))
                .because(format!("it is {what}"))
                .help("name a file"));
        }
        let mut file = system::open_at_once(path).map_err(failed)?;
        return write(&mut file).map_err(failed);
    }
    let (beside, mut file) = new_beside(path).map_err(failed)?;
    let written = write(&mut file)
        .and_then(|()| match &old {
            Some(old) => system::keep_mode(&file, old),
            None => Ok(()),
        })
        .and_then(|()| file.sync_all())
        .and_then(|()| fs::rename(&beside, path))
        .and_then(|()| system::is_at(&file, path));
    written.map_err(|e| {
        let _ = fs::remove_file(&beside);
        failed(e)
    })
}

/// A new file in the folder of `path`, which nobody else can have made.
fn new_beside(path: &Path) -> std::io::Result<(PathBuf, File)> {
    let name = path.file_name().map_or_else(String::new, |n| n.to_string_lossy().into_owned());
    let mut last = None;
    for n in 0..100_u32 {
        let beside = path.with_file_name(format!(".{name}.{}.{n}.new", std::process::id()));
        match system::create_new(&beside) {
            Ok(file) => return Ok((beside, file)),
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => last = Some(e),
            Err(e) => return Err(e),
        }
    }
    Err(last.unwrap_or_else(|| std::io::Error::other("no free name")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn names(dir: &Path) -> Vec<String> {
        let mut all: Vec<String> = fs::read_dir(dir)
            .unwrap()
            .map(|e| e.unwrap().file_name().to_string_lossy().into_owned())
            .collect();
        all.sort();
        all
    }

    #[test]
    fn a_line_has_a_limit() {
        let read = |text: &'static [u8]| lines(text, 3).map(|l| l.map_err(|e| e.kind())).collect::<Vec<_>>();
        assert_eq!(
            read(b"ab\n\nabc\nd"),
            [Ok(b"ab".to_vec()), Ok(vec![]), Ok(b"abc".to_vec()), Ok(b"d".to_vec())]
        );
        assert_eq!(read(b"abcd")[0], Err(std::io::ErrorKind::InvalidData));
    }

    #[test]
    fn what_lies_beside_a_file_is_read_if_it_is_ones_own() {
        let dir = tempfile::tempdir().unwrap();
        let (of, beside) = (dir.path().join("e.csv"), dir.path().join("host.toml"));
        fs::write(&of, "x").unwrap();
        assert_eq!(text_beside(&of, "host.toml").unwrap(), None);
        std::os::unix::fs::symlink(&of, &beside).unwrap();
        assert!(text_beside(&of, "host.toml").unwrap_err().to_string().contains("symbolic link"));
        fs::remove_file(&beside).unwrap();
        fs::write(&beside, "mine").unwrap();
        assert_eq!(text_beside(&of, "host.toml").unwrap().as_deref(), Some("mine"));
        if std::os::unix::fs::chown(&beside, Some(65_534), None).is_ok() {
            assert!(text_beside(&of, "host.toml").unwrap_err().to_string().contains("another user"));
            std::os::unix::fs::chown(&of, Some(65_534), None).unwrap();
            assert_eq!(text_beside(&of, "host.toml").unwrap().as_deref(), Some("mine"));
        }
    }

    #[test]
    fn the_old_file_or_the_new_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("plan.json");
        replace(&path, b"old").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let full = |_: &mut File| Err(std::io::Error::from(std::io::ErrorKind::StorageFull));
        assert_eq!(replace_by(&path, full).unwrap_err().kind, FaultKind::NoSpace);
        assert_eq!(
            (fs::read(&path).unwrap(), names(dir.path())),
            (b"old".to_vec(), vec!["plan.json".to_owned()])
        );
        replace(&path, b"new").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
        assert_eq!(names(dir.path()), ["plan.json"]);
    }

    #[test]
    fn a_link_is_replaced_and_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let (victim, path) = (dir.path().join("victim"), dir.path().join("out"));
        fs::write(&victim, "precious").unwrap();
        std::os::unix::fs::symlink(&victim, &path).unwrap();
        replace(&path, b"mine").unwrap();
        assert_eq!(
            (fs::read(&victim).unwrap(), fs::read(&path).unwrap()),
            (b"precious".to_vec(), b"mine".to_vec())
        );
        assert!(!fs::symlink_metadata(&path).unwrap().is_symlink());
    }

    #[test]
    fn devices_are_written_and_folders_refused() {
        replace(Path::new("/dev/null"), b"x").unwrap();
        assert_eq!(replace(Path::new("/dev/full"), b"x").unwrap_err().kind, FaultKind::NoSpace);
        let pipe = tempfile::tempdir().unwrap();
        let pipe = pipe.path().join("pipe");
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        assert!(replace(&pipe, b"x").unwrap_err().to_string().contains("nothing reads this pipe"));
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(replace(dir.path(), b"x").unwrap_err().kind, FaultKind::Usage);
        assert_eq!(replace(&dir.path().join("none/x"), b"x").unwrap_err().kind, FaultKind::NothingThere);
    }
}
