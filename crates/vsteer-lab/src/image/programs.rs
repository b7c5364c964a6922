//! The programs that a lab VM with Linux can run: C programs that are compiled here, and programs of this
//! project.
//!
//! `loops` multiplies matrices with OpenMP (loops.c), statically linked. `vsteer-display` is the one that was
//! built beside the lab, with its libraries. The programs are in a separate part of the initramfs, before the
//! others. It is not compressed, because decompression would be emulated.

use super::initramfs::{Initramfs, read, stripped};
use crate::command;
use crate::files::write_file;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use vsteer_core::{Fault, FaultKind};

/// The compiled programs, by name.
pub const COMPILED: [(&str, &str); 1] = [("loops", include_str!("loops.c"))];
/// The programs beside the lab's own program.
const BESIDE: [&str; 1] = ["vsteer-display"];
const LIMIT: Duration = Duration::from_secs(120);

/// The program that a workload names: `program,run=NAME/WORD/WORD`.
pub fn named(workload: &str) -> Option<&str> {
    let words = workload.strip_prefix("program,")?;
    let run = words.split(',').find_map(|word| word.strip_prefix("run="))?;
    run.split('/').next()
}

/// Compiles one of [`COMPILED`]. `scratch` is a folder for temporary files.
///
/// # Errors
/// No compiler, or one without OpenMP or a static C library, with its output.
pub fn compiled((name, text): (&str, &str), scratch: &Path) -> Result<Vec<u8>, Fault> {
    let (source, built) = (scratch.join(format!("{name}.c")), scratch.join(name));
    write_file(&source, text)?;
    let mut gcc = Command::new("gcc");
    gcc.args(["-O2", "-fopenmp", "-static", "-s", "-o"]).arg(&built).arg(&source);
    let bytes = command::output(&mut gcc, LIMIT).and_then(|_| read(&built));
    for file in [&source, &built] {
        let _ = std::fs::remove_file(file);
    }
    bytes
}

/// The part of an initramfs with these programs; empty without programs. `lab` is the lab's own program.
///
/// # Errors
/// A program that is unknown, cannot be compiled, or was not built.
pub fn part(names: &BTreeSet<&str>, lab: &Path, scratch: &Path) -> Result<Vec<u8>, Fault> {
    if names.is_empty() {
        return Ok(Vec::new());
    }
    let mut initramfs = Initramfs::new(&["tmp"]);
    for name in names {
        let path = format!("bin/{name}");
        if let Some(known) = COMPILED.iter().find(|(known, _)| known == name) {
            initramfs.put(&path, 0o755, &compiled(*known, scratch)?);
        } else if BESIDE.contains(name) {
            let small = scratch.join(name);
            write_file(&small, stripped(&lab.with_file_name(name), scratch)?)?;
            initramfs.program(&path, &small)?;
            let _ = std::fs::remove_file(&small);
        } else {
            let known: Vec<&str> = COMPILED.iter().map(|(known, _)| *known).chain(BESIDE).collect();
            return Err(Fault::new(FaultKind::Usage, format!("a VM that runs {name}"))
                .because(format!("there is no such program (there are {})", known.join(", "))));
        }
    }
    Ok(initramfs.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_workload_names_its_program() {
        assert_eq!(named("program,run=loops/static/200/4/30"), Some("loops"));
        assert_eq!((named("burn"), named("program")), (None, None));
    }

    #[test]
    fn what_is_not_known_is_said() {
        let fault = part(&BTreeSet::from(["mail"]), Path::new("/x/vsteer-lab"), Path::new("/x")).unwrap_err();
        assert!(fault.to_string().contains("loops, vsteer-display"), "{fault}");
        assert_eq!(part(&BTreeSet::new(), Path::new("/x"), Path::new("/x")).unwrap(), b"");
    }
}
