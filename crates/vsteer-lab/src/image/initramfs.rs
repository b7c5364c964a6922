//! Builds an initramfs of folders, devices, files and modules, including the libraries of its programs
//! according to `ldd`.
//!
//! Left out: compression, because decompression would be emulated.

use super::cpio::Archive;
use super::modules;
use crate::command::{self, find_program};
use crate::fetch::kernels::FullKernel;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use vsteer_core::{Fault, FaultKind};

const LIMIT: Duration = Duration::from_secs(60);

/// An initramfs that is being filled.
pub struct Initramfs {
    archive: Archive,
    made: BTreeSet<PathBuf>,
    /// Libraries that it already contains.
    carried: BTreeSet<PathBuf>,
}

impl Initramfs {
    /// A new one with these folders, and the devices without which a first program has no output and no
    /// /dev/null.
    pub fn new(folders: &[&str]) -> Initramfs {
        let mut new = Initramfs { archive: Archive::new(), made: BTreeSet::new(), carried: BTreeSet::new() };
        for folder in folders {
            new.folder(Path::new(folder));
        }
        new.folder(Path::new("dev"));
        new.archive.character_device("dev/console", 5, 1);
        new.archive.character_device("dev/null", 1, 3);
        new
    }

    /// Adds a folder, after its parents, only once.
    fn folder(&mut self, folder: &Path) {
        let mut all: Vec<&Path> = folder.ancestors().filter(|p| !p.as_os_str().is_empty()).collect();
        all.reverse();
        for one in all {
            if self.made.insert(one.to_owned()) {
                self.archive.folder(&one.to_string_lossy());
            }
        }
    }

    /// Adds a file and its parent folders.
    pub fn put(&mut self, path: &str, permissions: u32, bytes: &[u8]) {
        self.folder(Path::new(path).parent().unwrap_or(Path::new("")));
        self.archive.file(path, permissions, bytes);
    }

    /// Adds a program of this system at `path`, and its libraries at this system's paths, each only once.
    ///
    /// # Errors
    /// A missing file.
    pub fn program(&mut self, path: &str, program: &Path) -> Result<(), Fault> {
        self.put(path, 0o755, &read(program)?);
        for library in libraries(program, &[])? {
            if self.carried.insert(library.clone()) {
                self.put(&library.to_string_lossy()[1..], 0o755, &read(&library)?);
            }
        }
        Ok(())
    }

    /// Adds these modules of a kernel and the modules that they need. The names give the order in which to
    /// load them.
    ///
    /// # Errors
    /// A missing module.
    pub fn modules(&mut self, kernel: &FullKernel, names: &[&str]) -> Result<(), Fault> {
        for (i, (name, bytes)) in modules::closure(kernel, names)?.iter().enumerate() {
            self.put(&format!("modules/{i:02}-{name}.ko"), 0o644, bytes);
        }
        Ok(())
    }

    pub fn finish(self) -> Vec<u8> {
        self.archive.finish()
    }
}

/// Reads a file.
///
/// # Errors
/// It cannot be read.
pub fn read(file: &Path) -> Result<Vec<u8>, Fault> {
    std::fs::read(file).map_err(|e| Fault::io(format!("reading {}", file.display()), &e))
}

/// A program without its debug sections, if `strip` is installed (it comes with the linker). `folder` is for
/// temporary files.
///
/// # Errors
/// It cannot be read or stripped.
pub fn stripped(program: &Path, folder: &Path) -> Result<Vec<u8>, Fault> {
    let Some(strip) = find_program("strip") else { return read(program) };
    let scratch = folder.join("stripped");
    command::output(Command::new(strip).arg("-o").arg(&scratch).arg("--").arg(program), LIMIT)?;
    let bytes = read(&scratch)?;
    std::fs::remove_file(&scratch).map_err(|e| Fault::io(format!("removing {}", scratch.display()), &e))?;
    Ok(bytes)
}

/// The libraries of a program with its dynamic linker, according to `ldd`; those in `folders` come before the
/// system's.
///
/// # Errors
/// It needs no libraries, or one is missing.
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
            .help("name another with --vsteer"));
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
        let mut initramfs = Initramfs::new(&["a/b"]);
        initramfs.put("a/c/file", 0o644, b"");
        let bytes = initramfs.finish();
        let at = |name: &[u8]| bytes.windows(name.len()).position(|w| w == name).unwrap();
        assert!(at(b"a\0") < at(b"a/b\0") && at(b"a/b\0") < at(b"a/c\0"));
        // a, a/b, dev, its two devices, a/c, the file, the trailer.
        assert_eq!(bytes.windows(6).filter(|w| *w == b"070701").count(), 8);
    }
}
