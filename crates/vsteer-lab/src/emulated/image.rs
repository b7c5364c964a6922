//! What does the emulated host boot? An initramfs: vsteer-guest as the first program, vsteer with its libraries,
//! modules, the job.
//!
//! Not compressed: QEMU puts it into memory at once, and unpacking would be emulated. `vsteer` is put in without its
//! debug sections where `strip` is installed (it comes with the linker), which saves the host memory.
//!
//! Left out: a shell, and everything else of a distribution.

use super::{Options, modules};
use crate::command::{self, find_program};
use crate::fetch::kernels::FullKernel;
use crate::image::cpio::Archive;
use crate::image::read_guest;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use vsteer_core::{Fault, FaultKind};

const LIMIT: Duration = Duration::from_secs(60);

/// The initramfs.
///
/// # Errors
/// A program or module that is not there.
pub fn build(kernel: &FullKernel, options: &Options, job: &str) -> Result<Vec<u8>, Fault> {
    let mut archive = Archive::new();
    let mut folders = BTreeSet::new();
    for folder in ["dev", "proc", "sys", "run", "tmp", "etc"] {
        folder_with_parents(&mut archive, &mut folders, Path::new(folder));
    }
    archive.character_device("dev/console", 5, 1);
    archive.character_device("dev/null", 1, 3);
    let mut put = |path: &str, permissions: u32, bytes: &[u8]| {
        let parent = Path::new(path).parent().unwrap_or(Path::new(""));
        folder_with_parents(&mut archive, &mut folders, parent);
        archive.file(path, permissions, bytes);
    };
    put("init", 0o755, &read_guest(&options.guest)?);
    put("job", 0o644, job.as_bytes());
    let scratch = options.output.join("vsteer.stripped");
    put("bin/vsteer", 0o755, &stripped(&options.vsteer, &scratch)?);
    for library in libraries(&options.vsteer, &[])? {
        let bytes = read(&library)?;
        put(&library.to_string_lossy()[1..], 0o755, &bytes);
    }
    for (i, (name, bytes)) in modules::closure(kernel, modules::KVM)?.iter().enumerate() {
        put(&format!("modules/{i:02}-{name}.ko"), 0o644, bytes);
    }
    Ok(archive.finish())
}

/// Adds a folder, after those that it lies in, once.
pub fn folder_with_parents(archive: &mut Archive, made: &mut BTreeSet<PathBuf>, folder: &Path) {
    let mut all: Vec<&Path> = folder.ancestors().filter(|p| !p.as_os_str().is_empty()).collect();
    all.reverse();
    for one in all {
        if made.insert(one.to_owned()) {
            archive.folder(&one.to_string_lossy());
        }
    }
}

/// Reads a file.
///
/// # Errors
/// It cannot be read.
pub fn read(file: &Path) -> Result<Vec<u8>, Fault> {
    std::fs::read(file).map_err(|e| Fault::io(format!("reading {}", file.display()), &e))
}

fn stripped(program: &Path, scratch: &Path) -> Result<Vec<u8>, Fault> {
    let Some(strip) = find_program("strip") else { return read(program) };
    command::output(Command::new(strip).arg("-o").arg(scratch).arg("--").arg(program), LIMIT)?;
    let bytes = read(scratch)?;
    std::fs::remove_file(scratch).map_err(|e| Fault::io(format!("removing {}", scratch.display()), &e))?;
    Ok(bytes)
}

/// The libraries that a program is loaded with, its dynamic linker among them, as `ldd` says; those in `folders` come
/// before the system's.
///
/// # Errors
/// It needs none, or one that is not there.
pub fn libraries(program: &Path, folders: &[PathBuf]) -> Result<Vec<PathBuf>, Fault> {
    let mut ldd = Command::new("ldd");
    if !folders.is_empty() {
        let path = std::env::join_paths(folders).map_err(|e| {
            Fault::new(FaultKind::BadInput, "a folder of libraries has `:` in its name").because(e)
        })?;
        ldd.env("LD_LIBRARY_PATH", path);
    }
    let text = command::output(ldd.arg(program), LIMIT)?;
    if let Some(missing) = text.lines().find(|l| l.ends_with("=> not found")) {
        let name = missing.trim().trim_end_matches(" => not found");
        return Err(Fault::new(FaultKind::NothingThere, format!("{} needs {name}", program.display()))
            .because("neither the packages fetched for it nor this system have that library"));
    }
    let found = parse_ldd(&text);
    if found.is_empty() {
        return Err(Fault::new(FaultKind::BadInput, format!("{} needs no library", program.display()))
            .because("so it is not the vsteer that was built beside this program")
            .way_out("name another with --vsteer"));
    }
    Ok(found)
}

/// `libc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x...)`, or the linker's path alone.
fn parse_ldd(text: &str) -> Vec<PathBuf> {
    let path = |line: &str| {
        let line = line.split(" (0x").next()?.trim();
        let path = line.split_once("=> ").map_or(line, |(_, path)| path);
        path.starts_with('/').then(|| PathBuf::from(path))
    };
    text.lines().filter_map(path).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_by_ldds_words() {
        let text = "\tlinux-vdso.so.1 (0x00007ffd)\n\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f)\n\
                    \t/lib64/ld-linux-x86-64.so.2 (0x00007f)\n";
        let expected = ["/lib/x86_64-linux-gnu/libc.so.6", "/lib64/ld-linux-x86-64.so.2"].map(PathBuf::from);
        assert_eq!(parse_ldd(text), expected);
        assert!(parse_ldd("\tstatically linked\n").is_empty());
    }

    #[test]
    fn folders_are_made_once_and_before_what_lies_in_them() {
        let (mut archive, mut made) = (Archive::new(), BTreeSet::new());
        folder_with_parents(&mut archive, &mut made, Path::new("a/b"));
        folder_with_parents(&mut archive, &mut made, Path::new("a/c"));
        let bytes = archive.finish();
        let at = |name: &[u8]| bytes.windows(name.len()).position(|w| w == name).unwrap();
        assert!(at(b"a\0") < at(b"a/b\0") && at(b"a/b\0") < at(b"a/c\0"));
        assert_eq!(bytes.windows(6).filter(|w| *w == b"070701").count(), 4);
    }
}
