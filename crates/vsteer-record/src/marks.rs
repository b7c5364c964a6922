//! Stores the moments of a recording that are worth looking at, one JSON line each in `marks.jsonl`.
//!
//! vsteer syncs a mark when it is made. The file has its own size limit. Above it, vsteer drops the older
//! half, like the ring's segments. A new version of the file is written beside the old one and renamed, so
//! that after a crash one of the two exists. The reader skips a line that breaks off.
//!
//! GAP(marks-events): recorded context switches around a mark do not survive the ring.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::Path;
use vsteer_core::Fault;
use vsteer_core::limits;
use vsteer_core::trigger::Mark;

const NAME: &str = "marks.jsonl";
/// Some 5,000 marks, bytes.
const BYTES_MAX: u64 = 1 << 20;

fn failed(what: &str, path: &Path, e: &std::io::Error) -> Fault {
    Fault::io(format!("{what} {}", path.display()), e)
}

/// Adds a mark to the recording in `folder`.
pub(crate) fn append(folder: &Path, mark: &Mark) -> Result<(), Fault> {
    let path = folder.join(NAME);
    let mut text = fs::read(&path).unwrap_or_default();
    let mut line = serde_json::to_vec(mark).expect("a mark is plain data");
    line.push(b'\n');
    if text.last().is_some_and(|b| *b != b'\n') {
        // A crash left half a line. The next line must not continue it.
        line.insert(0, b'\n');
    }
    if (text.len() + line.len()) as u64 > BYTES_MAX {
        let half = text.len() / 2;
        let cut = text[half..].iter().position(|b| *b == b'\n').map_or(text.len(), |i| half + i + 1);
        text.drain(..cut);
        text.extend(line);
        return replace(&path, &text);
    }
    let written = OpenOptions::new().create(true).append(true).open(&path).and_then(|mut f| {
        f.write_all(&line)?;
        f.sync_data()
    });
    written.map_err(|e| failed("cannot write", &path, &e))
}

/// Replaces a file completely or not at all.
pub(crate) fn replace(path: &Path, text: &[u8]) -> Result<(), Fault> {
    let new = path.with_extension("new");
    let written = File::create(&new).and_then(|mut f| {
        f.write_all(text)?;
        f.sync_all()
    });
    written.and_then(|()| fs::rename(&new, path)).map_err(|e| failed("cannot write", path, &e))
}

/// The marks of the recording in `folder`, oldest first; empty if nothing was marked.
///
/// # Errors
/// If they exist but cannot be read.
pub fn read(folder: &Path) -> Result<Vec<Mark>, Fault> {
    let path = folder.join(NAME);
    match crate::files::ordinary_at_most(&path, limits::RECORDING_TEXT) {
        Ok(text) => Ok(of(&text)),
        // A recording in another format is a file, and has no marks.
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(Vec::new()),
        Err(e) => Err(failed("cannot read", &path, &e)),
    }
}

/// The marks in a text.
pub fn of(text: &[u8]) -> Vec<Mark> {
    text.split(|b| *b == b'\n').filter_map(|l| serde_json::from_slice(l).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use vsteer_core::nouns::VmId;

    fn mark(i: u64) -> Mark {
        Mark {
            unix_ns: i,
            mono_ns: i,
            window_ns: 1,
            trigger: "ready>5%".into(),
            vm: VmId("a".into()),
            vm_name: "quotes \" and\nnewlines".into(),
            found: "ready 7.00 %".into(),
        }
    }

    #[test]
    fn the_newest_marks_stay_and_the_file_is_bounded() {
        let dir = tempfile::tempdir().unwrap();
        assert!(read(dir.path()).unwrap().is_empty());
        // Already larger than the limit, so that a few appends trigger the drop.
        let old: Vec<u8> =
            (0..9_000).flat_map(|i| [serde_json::to_vec(&mark(i)).unwrap(), vec![b'\n']].concat()).collect();
        fs::write(dir.path().join(NAME), &old[..1 << 20]).unwrap();
        for i in 10_000..10_010 {
            append(dir.path(), &mark(i)).unwrap();
        }
        assert!(fs::metadata(dir.path().join(NAME)).unwrap().len() <= BYTES_MAX);
        let marks = read(dir.path()).unwrap();
        assert!(marks.is_sorted_by_key(|m| m.unix_ns));
        assert_eq!(marks[marks.len() - 10..], (10_000..10_010).map(mark).collect::<Vec<_>>());
        assert!(marks.len() > 1_000, "{} are left", marks.len());
    }

    #[test]
    fn half_a_line_is_passed_over_and_not_run_into() {
        let dir = tempfile::tempdir().unwrap();
        append(dir.path(), &mark(1)).unwrap();
        let mut f = OpenOptions::new().append(true).open(dir.path().join(NAME)).unwrap();
        f.write_all(b"{\"unix_ns\":2,").unwrap();
        append(dir.path(), &mark(3)).unwrap();
        assert_eq!(read(dir.path()).unwrap(), [mark(1), mark(3)]);
    }
}
