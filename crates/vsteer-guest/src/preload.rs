//! `vit -- COMMAND`: runs a program so that the host is told when its timers end, and says beforehand what of it cannot be told.
//!
//! The work is done by a library that is loaded before the program's own (vsteer-vit). This looks whether that will do: a program that
//! is linked statically loads none, Go's runtime makes its own system calls, and one that runs with another user's rights loads none of its
//! caller's.

use crate::agent;
use crate::vit::Vit;
use std::convert::Infallible;
use std::ffi::OsString;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};

const USAGE: &str = "vit [--library FILE] [--report] [--quiet] -- COMMAND [WORD...]";
const LIBRARY: &str = "libvsteer_vit.so";

/// Becomes the program.
///
/// # Errors
/// There is no library, no program, or it cannot be run.
pub fn run(mut words: impl Iterator<Item = String>) -> Result<Infallible, String> {
    let (mut library, mut report, mut quiet) = (None, false, false);
    loop {
        match words.next().as_deref() {
            Some("--library") => library = Some(PathBuf::from(words.next().ok_or(USAGE)?)),
            Some("--report") => report = true,
            Some("--quiet") => quiet = true,
            Some("--") => break,
            _ => return Err(USAGE.to_owned()),
        }
    }
    let command = words.next().ok_or(USAGE)?;
    let library = library.or_else(beside_this).ok_or_else(|| {
        format!("no {LIBRARY} beside this program or in /usr/lib/vsteer: name it with --library")
    })?;
    let library = library.canonicalize().map_err(|e| format!("{}: {e}", library.display()))?;
    let program = find(&command).ok_or_else(|| format!("no program {command}"))?;
    let flag = std::env::var_os("VSTEER_VIT_FLAG").map_or_else(|| PathBuf::from(agent::FLAG), PathBuf::from);
    if !quiet {
        for line in said_before(&program, &flag, Vit::of_this_cpu()) {
            eprintln!("vsteer-guest: {line}");
        }
    }
    let mut loaded = OsString::from(&library);
    if let Some(others) = std::env::var_os("LD_PRELOAD").filter(|o| !o.is_empty()) {
        loaded.push(":");
        loaded.push(others);
    }
    let mut run = std::process::Command::new(&program);
    run.args(words).arg0(&command).env("LD_PRELOAD", loaded);
    if report {
        run.env("VSTEER_VIT_REPORT", "1");
    }
    Err(format!("{}: {}", program.display(), run.exec()))
}

fn beside_this() -> Option<PathBuf> {
    let own = std::env::current_exe().ok()?;
    let all = [own.parent()?.join(LIBRARY), Path::new("/usr/lib/vsteer").join(LIBRARY)];
    all.into_iter().find(|file| file.is_file())
}

/// As a shell finds it.
fn find(command: &str) -> Option<PathBuf> {
    if command.contains('/') {
        return Some(PathBuf::from(command)).filter(|p| p.is_file());
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(command)).find(|p| p.is_file())
}

/// What the person should know before it runs.
fn said_before(program: &Path, flag: &Path, how: Vit) -> Vec<String> {
    let mut lines = Vec::new();
    if how == Vit::Silent {
        lines.push(
            "this machine is not a guest of KVM: the program runs, but no timer reaches a host".to_owned(),
        );
    }
    match std::fs::read(flag).ok().as_deref() {
        None => lines.push(format!(
            "the agent does not run ({} is missing), so no timer reaches the host: start `vsteer-guest vit-agent`",
            flag.display()
        )),
        Some(text) if !text.starts_with(b"1") => {
            lines.push("the host has not opted this VM in: no timer reaches the host until it does".to_owned());
        }
        Some(_) => {}
    }
    let bytes = std::fs::read(program).unwrap_or_default();
    let own_rights = std::fs::metadata(program).is_ok_and(|m| m.mode() & 0o6000 != 0);
    let name = program.display();
    match kind(&bytes) {
        Kind::Static => lines.push(format!("{name} is linked statically: its timers cannot reach the host")),
        Kind::Go => lines.push(format!(
            "{name} is a Go program, which calls the kernel directly: its timers cannot reach the host"
        )),
        Kind::Script => lines.push(format!(
            "{name} is a script: timers of its interpreter and of programs that it starts reach the host"
        )),
        Kind::Unknown => {
            lines.push(format!("{name} is not a known kind of program: its timers may not reach the host"))
        }
        Kind::Dynamic if own_rights => {
            lines.push(format!("{name} runs with another user's rights and loads no library of yours: its timers cannot reach the host"));
        }
        Kind::Dynamic => {}
    }
    lines.push(
        "timers that reach the host: sleeps, timerfd, POSIX and interval timers, time limits of poll, select, epoll, condition variables, \
         semaphores and mutexes; timers that do not: system calls made without the C library, io_uring's time limits"
            .to_owned(),
    );
    lines
}

#[derive(Debug, PartialEq, Eq)]
enum Kind {
    Dynamic,
    Static,
    Go,
    Script,
    Unknown,
}

/// What a program is, by its first bytes: the ELF header's table of segments (System V ABI, chapter 5), or `#!`.
fn kind(bytes: &[u8]) -> Kind {
    const INTERPRETER: u32 = 3;
    if bytes.starts_with(b"#!") {
        return Kind::Script;
    }
    if !bytes.starts_with(b"\x7fELF\x02\x01") {
        return Kind::Unknown;
    }
    let number = |at: usize, n: usize| -> Option<usize> {
        let bytes = bytes.get(at..at.checked_add(n)?)?;
        Some(bytes.iter().rev().fold(0, |sum, b| sum << 8 | usize::from(*b)))
    };
    let segments = || -> Option<Vec<u32>> {
        let (at, size, count) = (number(32, 8)?, number(54, 2)?, number(56, 2)?);
        (0..count).map(|i| number(at.checked_add(i * size)?, 4)?.try_into().ok()).collect()
    };
    // A mark in every program of Go's linker (debug/buildinfo).
    if bytes.windows(14).any(|w| w == b"\xff Go buildinf:") {
        return Kind::Go;
    }
    match segments() {
        Some(all) if all.contains(&INTERPRETER) => Kind::Dynamic,
        Some(_) => Kind::Static,
        None => Kind::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An ELF header with segments of these kinds.
    fn elf(segments: &[u32]) -> Vec<u8> {
        let mut bytes = vec![0; 64];
        bytes[..6].copy_from_slice(b"\x7fELF\x02\x01");
        bytes[32] = 64;
        bytes[54] = 56;
        bytes[56] = segments.len() as u8;
        for kind in segments {
            let mut segment = vec![0; 56];
            segment[..4].copy_from_slice(&kind.to_le_bytes());
            bytes.extend(segment);
        }
        bytes
    }

    #[test]
    fn programs_are_told_apart() {
        assert_eq!(kind(&elf(&[6, 3, 1])), Kind::Dynamic);
        assert_eq!(kind(&elf(&[1, 1])), Kind::Static);
        assert_eq!(kind(&[elf(&[1]), b"\xff Go buildinf:".to_vec()].concat()), Kind::Go);
        assert_eq!(kind(b"#!/bin/sh\n"), Kind::Script);
        assert_eq!(kind(b""), Kind::Unknown);
        // Cut off anywhere, and with a table that lies beyond it.
        let whole = elf(&[6, 3, 1]);
        for n in 0..whole.len() {
            let _ = kind(&whole[..n]);
        }
        let mut beyond = whole;
        beyond[32..40].copy_from_slice(&[0xff; 8]);
        assert_eq!(kind(&beyond), Kind::Unknown);
    }

    #[test]
    fn a_person_is_told_what_cannot_be() {
        let own = std::env::current_exe().unwrap();
        let lines = said_before(&own, Path::new("/nowhere/vit"), Vit::Silent).join("\n");
        assert!(
            lines.contains("not a guest of KVM") && lines.contains("vit-agent") && lines.contains("timerfd"),
            "{lines}"
        );
    }
}
