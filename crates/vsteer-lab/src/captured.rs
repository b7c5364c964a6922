//! Machines that others captured: their /sys and /proc, as files.
//!
//! Debian's source packages carry them: hwloc's (EPYC's predecessors, Xeons, Itanium, Arm, POWER, s390, guests) and
//! util-linux's, which come with what lscpu says of them. They are unpacked into the cache once.

use crate::command;
use crate::fetch::Fetcher;
use crate::files::{names, write_file};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use vsteer_core::{Fault, FaultKind};

/// Time limit of unpacking one.
const LIMIT: Duration = Duration::from_secs(60);
/// The folder of the cache.
const FOLDER: &str = "audit-trees";

/// A captured machine.
pub struct Machine {
    pub name: String,
    /// The folder that holds its /sys and /proc.
    pub root: PathBuf,
    /// The output of lscpu for it, if the package has it.
    pub lscpu: Option<BTreeMap<String, String>>,
}

/// Those of hwloc's source.
///
/// # Errors
/// They cannot be fetched or unpacked.
pub fn of_hwloc(fetcher: &mut Fetcher, cache: &Path) -> Result<Vec<Machine>, Fault> {
    let from = fetcher.source("hwloc")?.tree.join("tests/hwloc/linux");
    unpacked(&from, ".tar.bz2", &cache.join(FOLDER).join("hwloc"), &|_| None)
}

/// Those of util-linux's source.
///
/// # Errors
/// As [`of_hwloc`].
pub fn of_util_linux(fetcher: &mut Fetcher, cache: &Path) -> Result<Vec<Machine>, Fault> {
    let tests = fetcher.source("util-linux")?.tree.join("tests");
    let lscpu = |name: &str| std::fs::read_to_string(tests.join(format!("expected/lscpu/lscpu-{name}"))).ok();
    unpacked(&tests.join("ts/lscpu/dumps"), ".tar.gz", &cache.join(FOLDER).join("lscpu"), &lscpu)
}

/// The machines of a folder of archives, unpacked below `to`.
fn unpacked(
    from: &Path,
    end: &str,
    to: &Path,
    lscpu: &dyn Fn(&str) -> Option<String>,
) -> Result<Vec<Machine>, Fault> {
    let mut all = Vec::new();
    for file in names(from)? {
        let Some(name) = file.strip_suffix(end) else { continue };
        let (folder, packed) = (to.join(name), from.join(&file));
        // These are tens of thousands of small files that never change, so they are unpacked only once.
        let whole = to.join(format!("{name}.whole"));
        let told = packed.to_string_lossy().into_owned();
        if std::fs::read_to_string(&whole).ok().as_deref() != Some(&told) {
            let making = |e: std::io::Error| Fault::io(format!("making {}", folder.display()), &e);
            match std::fs::remove_dir_all(&folder) {
                Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(making(e)),
                _ => std::fs::create_dir_all(&folder).map_err(making)?,
            }
            let mut tar = Command::new("tar");
            tar.args(["--no-same-owner", "-xf"]).arg(&packed).arg("-C").arg(&folder);
            command::output(&mut tar, LIMIT)?;
            write_file(&whole, told)?;
        }
        let inside = names(&folder)?;
        let root = match inside.as_slice() {
            [one] => folder.join(one),
            _ => folder,
        };
        let fields = |text: String| {
            let each = text.lines().filter_map(|l| {
                let (key, value) = l.split_once(':')?;
                Some((key.trim().to_owned(), value.trim().to_owned()))
            });
            each.collect()
        };
        all.push(Machine { name: name.to_owned(), root, lscpu: lscpu(name).map(fields) });
    }
    if all.is_empty() {
        return Err(Fault::new(
            FaultKind::NothingThere,
            format!("{} holds no captured machine", from.display()),
        ));
    }
    Ok(all)
}
