//! A folder of saved scrapes: one file per scrape, whose name or modification time is its time.

use super::reading::Reading;
use super::{SECOND_NS, Saved};
use crate::logs::Log;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;
use vsteer_core::{Fault, FaultKind, limits};
use vsteer_record::prometheus::{Histogram, Scrape};
use vsteer_record::scraped::Page;
use vsteer_record::unit::Unit;

/// Numbers that are seconds since 1970 and no date: from 2001 to 2286.
const OUR_TIME_S: std::ops::Range<f64> = 1e9..1e10;

/// Reads a folder; see [`Saved::read`].
pub(super) fn read(
    log: &Log,
    of: &Histogram,
    unit: Option<Unit>,
    note: &mut dyn FnMut(&str),
) -> Result<Saved, Fault> {
    let folder = &log.file;
    let mut reading = Reading::new(folder.display().to_string(), of);
    for (at_ns, file) in listed(folder)? {
        reading.scrape(at_ns, file.display().to_string(), scrape(&file, of, unit));
    }
    let whose = format!("VM {:?}", log.vm);
    let target = reading.done(&whose, note)?;
    Ok(Saved {
        whose: format!("{whose}: {}", folder.display()),
        help: "use a longer --interval, or name each file by its time in seconds since 1970",
        targets: vec![target],
    })
}

/// The scrape in a file, or why it is passed over.
fn scrape(file: &Path, of: &Histogram, unit: Option<Unit>) -> Result<Scrape, String> {
    let page = Page::read(file).map_err(|f| f.cause.unwrap_or(f.what))?;
    if page.bytes.is_empty() {
        return Err("the file is empty".to_owned());
    }
    let now = Scrape::read(&page.bytes, of, unit).map_err(|f| match f.cause {
        Some(cause) => format!("{}: {cause}", f.what),
        None => f.what,
    })?;
    if now.has_samples() { Ok(now) } else { Err("it holds no sample".to_owned()) }
}

/// The files of a folder with their times, in the order of these.
fn listed(folder: &Path) -> Result<Vec<(u64, PathBuf)>, Fault> {
    let failed = |e: std::io::Error| Fault::io(format!("reading {}", folder.display()), &e);
    let mut all = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let file = entry.map_err(failed)?.path();
        let hidden = file.file_name().is_none_or(|n| n.as_encoded_bytes().starts_with(b"."));
        // A link may lead to a file, and a pipe would not end.
        let Ok(metadata) = file.metadata() else { continue };
        if hidden || !metadata.is_file() {
            continue;
        }
        if all.len() == limits::METRICS_FOLDER {
            let what = format!("{} holds more than {} files", folder.display(), limits::METRICS_FOLDER);
            return Err(
                Fault::new(FaultKind::BadInput, what).help("move the scrapes of other days elsewhere")
            );
        }
        let changed = metadata.modified().ok().and_then(|at| at.duration_since(UNIX_EPOCH).ok());
        let at_ns = named_ns(&file).or(changed.map(|at| at.as_nanos() as u64)).unwrap_or(0);
        all.push((at_ns, file));
    }
    all.sort();
    Ok(all)
}

/// When a scrape was taken, as its name has it, ns since 1970.
pub(super) fn named_ns(path: &Path) -> Option<u64> {
    let s: f64 = path.file_stem()?.to_str()?.parse().ok()?;
    OUR_TIME_S.contains(&s).then_some((s * SECOND_NS) as u64)
}
