//! Where are the files and tools of a lasting setting: on this machine, or on another one over ssh?
//!
//! vsteer reaches the other machine in the same way as the runs of an experiment ([`crate::shell`]): one command per
//! question, run by `sh`, with a key login. It replaces files as a whole there too, and keeps their mode and owner.
//!
//! Left out: files too large for one command; a login shell there that does not understand `sh`.

use super::replace;
use crate::shell;
use rustix::fs::OFlags;
use std::io::{Read, Write};
use std::path::Path;
use std::time::Duration;
use vsteer_core::limits;
use vsteer_core::setting::argv::{Argv, shell_word};
use vsteer_core::{Fault, FaultKind};
use vsteer_record::trusted;

/// Looking at files, or writing one.
const LIMIT: Duration = Duration::from_secs(60);
/// Linux gives a command's word 128 KiB (MAX_ARG_STRLEN); quoting lengthens a text.
const TEXT_MAX: usize = 96 << 10;

/// A machine whose settings are kept.
#[derive(Debug, Clone, Copy, Default)]
pub struct Place<'a>(pub Option<&'a str>);

impl std::fmt::Display for Place<'_> {
    /// Behind a path: nothing here, ` on user@host` elsewhere.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.map_or(Ok(()), |on| write!(f, " on {on}"))
    }
}

fn read_here(path: &str) -> Result<String, Fault> {
    let file = trusted::open_named(Path::new(path), "read", OFlags::RDONLY)?;
    let mut text = String::new();
    let read = file.take(limits::CHANGED_FILE + 1).read_to_string(&mut text);
    read.map_err(|e| Fault::io(format!("cannot read {path}"), &e))?;
    if text.len() as u64 > limits::CHANGED_FILE {
        return Err(Fault::new(FaultKind::BadInput, format!("cannot read {path}"))
            .because(format!("it has more than {} MiB", limits::CHANGED_FILE >> 20)));
    }
    Ok(text)
}

/// Never makes a file: one of sysfs is there, or cannot be.
fn write_here(path: &str, text: &str) -> Result<(), Fault> {
    let mut file = trusted::open_named(Path::new(path), "write", OFlags::WRONLY)?;
    // sysfs has no lengths, an ordinary file has.
    let _ = file.set_len(0);
    file.write_all(text.as_bytes()).map_err(|e| Fault::io(format!("cannot write {path}"), &e))
}

impl Place<'_> {
    /// Runs a tool, and gives what it printed.
    ///
    /// # Errors
    /// As [`shell::ask`].
    pub fn ask(self, command: &Argv, limit: Duration) -> Result<String, Fault> {
        shell::ask(command, self.0, limit)
    }

    /// Runs a line in the shell of the target. vsteer writes the line itself, and has quoted every foreign text in it.
    fn there(self, line: &str, what: String) -> Result<String, Fault> {
        self.ask(&Argv::shell(line), LIMIT).map_err(|f| Fault { what, ..f })
    }

    /// A file's text.
    ///
    /// # Errors
    /// Where it cannot be read.
    pub fn text(self, path: &str) -> Result<String, Fault> {
        match self.0 {
            None => read_here(path),
            Some(_) => {
                self.there(&format!("cat -- {}", shell_word(path)), format!("cannot read {path}{self}"))
            }
        }
    }

    /// Those of these paths that are there; `*` is part of a name.
    ///
    /// # Errors
    /// Where the machine cannot be asked.
    pub fn of(self, paths: &[&str]) -> Result<Vec<String>, Fault> {
        // The shell of either machine does the matching.
        let line = format!(
            "for f in {}; do if [ -e \"$f\" ]; then printf '%s\\n' \"$f\"; fi; done",
            paths.join(" ")
        );
        let told = self.there(&line, format!("cannot look for boot loaders and tuned{self}"))?;
        Ok(told.lines().map(str::to_owned).collect())
    }

    /// Is there a file or folder of that path?
    ///
    /// # Errors
    /// Where the machine cannot be asked.
    pub fn has(self, path: &str) -> Result<bool, Fault> {
        match self.0 {
            None => Ok(Path::new(path).exists()),
            Some(_) => self.of(&[&shell_word(path)]).map(|found| !found.is_empty()),
        }
    }

    fn written(self, path: &str, text: &str, line: &str) -> Result<(), Fault> {
        let what = format!("cannot write {path}{self}");
        if text.len() > TEXT_MAX {
            let why = format!(
                "the file has {} KiB, and vsteer can send at most {} KiB over ssh",
                text.len() >> 10,
                TEXT_MAX >> 10
            );
            return Err(Fault::new(FaultKind::Unsupported, what)
                .because(why)
                .help("run vsteer on that machine"));
        }
        self.there(line, what).map(drop)
    }

    /// Replaces a file as a whole.
    ///
    /// # Errors
    /// Where it cannot be written.
    pub fn replace(self, path: &str, text: &str) -> Result<(), Fault> {
        if self.0.is_none() {
            return replace(path, text);
        }
        let (folder, name) = path.rsplit_once('/').unwrap_or((".", path));
        let line = format!(
            "f={}; t={}; {{ [ ! -e \"$f\" ] || cp -p \"$f\" \"$t\"; }} && printf %s {} > \"$t\" && sync \"$t\" && mv -f \"$t\" \"$f\" && sync {} || {{ rm -f \"$t\"; exit 1; }}",
            shell_word(path),
            shell_word(&format!("{folder}/.{name}.vsteer")),
            shell_word(text),
            shell_word(folder)
        );
        self.written(path, text, &line)
    }

    /// Writes into a file that is there: one of the kernel's.
    ///
    /// # Errors
    /// Where it cannot be written.
    pub fn write(self, path: &str, text: &str) -> Result<(), Fault> {
        match self.0 {
            None => write_here(path, text),
            Some(_) => {
                self.written(path, text, &format!("printf %s {} > {}", shell_word(text), shell_word(path)))
            }
        }
    }

    /// Makes a folder, where it is not there.
    ///
    /// # Errors
    /// Where it cannot be made.
    pub fn make_folder(self, path: &str) -> Result<(), Fault> {
        match self.0 {
            None => {
                let there = Path::new(path).ancestors().find(|above| above.is_dir());
                there.map_or(Ok(()), trusted::folder)?;
                std::fs::create_dir_all(path).map_err(|e| Fault::io(format!("cannot create {path}"), &e))
            }
            Some(_) => self
                .there(&format!("mkdir -p {}", shell_word(path)), format!("cannot create {path}{self}"))
                .map(drop),
        }
    }

    /// Removes a folder of ours with its files.
    ///
    /// # Errors
    /// Where it cannot be removed.
    pub fn remove_folder(self, path: &str) -> Result<(), Fault> {
        match self.0 {
            None => {
                trusted::folder(Path::new(path))?;
                std::fs::remove_dir_all(path).map_err(|e| Fault::io(format!("cannot remove {path}"), &e))
            }
            Some(_) => self
                .there(&format!("rm -r {}", shell_word(path)), format!("cannot remove {path}{self}"))
                .map(drop),
        }
    }
}
