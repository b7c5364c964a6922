//! Runs another program so that it can neither hang the lab nor fail silently.
//!
//! Every program has a time limit, after which it is killed. Its output is kept. A failure becomes a fault
//! with the command line and the end of the program's output. Left out: programs with a dialogue.

use crate::interrupt;
use std::ffi::OsStr;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use vsteer_core::{Fault, FaultKind};

/// How often to check a running program.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// The output of a program, and how it ended.
#[derive(Debug)]
pub struct Finished {
    /// Its exit status; `None` if it was killed at the time limit.
    pub status: Option<ExitStatus>,
    /// Standard output, as text.
    pub stdout: String,
    /// Standard error, as text.
    pub stderr: String,
}

/// Runs `command` for at most `limit`.
///
/// # Errors
/// If it cannot be started, or the person interrupts. A failure of the program itself is in the result.
pub fn run(command: &mut Command, limit: Duration) -> Result<Finished, Fault> {
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    run_raw(command, limit).map(|r| Finished {
        status: r.status,
        stdout: text(r.stdout),
        stderr: text(r.stderr),
    })
}

/// The same with the output as bytes.
struct Raw {
    status: Option<ExitStatus>,
    stdout: Vec<u8>,
    stderr: Vec<u8>,
}

fn run_raw(command: &mut Command, limit: Duration) -> Result<Raw, Fault> {
    let line = line_of(command);
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|e| Fault::io(format!("starting `{line}`"), &e))?;
    let readers = [
        drain(child.stdout.take().expect("stdout is piped")),
        drain(child.stderr.take().expect("stderr is piped")),
    ];
    let begun = Instant::now();
    let mut interrupted = Ok(());
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break Some(status),
            Ok(None) => {}
            Err(e) => return Err(Fault::io(format!("waiting for `{line}`"), &e)),
        }
        interrupted = interrupt::check();
        if begun.elapsed() >= limit || interrupted.is_err() {
            // The program may end between the check and these calls; then both do nothing.
            let _ = child.kill();
            let _ = child.wait();
            break None;
        }
        std::thread::sleep(LOOK_EVERY);
    };
    let [stdout, stderr] = readers.map(|r| r.join().unwrap_or_default());
    interrupted?;
    Ok(Raw { status, stdout, stderr })
}

/// Runs `command` for at most `limit` and returns its standard output.
///
/// # Errors
/// As [`run`], and if the program fails or exceeds `limit`.
pub fn output(command: &mut Command, limit: Duration) -> Result<String, Fault> {
    let line = line_of(command);
    let finished = run(command, limit)?;
    match finished.status {
        Some(status) if status.success() => Ok(finished.stdout),
        Some(status) => Err(Fault::new(FaultKind::Failed, format!("`{line}` failed ({status})"))
            .because(last_words(&finished))),
        None => Err(Fault::new(FaultKind::Failed, format!("`{line}` did not end within {limit:?}"))
            .because(last_words(&finished))),
    }
}

/// Runs `command` for at most `limit` and returns its standard output as bytes.
///
/// # Errors
/// As [`output`].
pub fn bytes(command: &mut Command, limit: Duration) -> Result<Vec<u8>, Fault> {
    let line = line_of(command);
    let finished = run_raw(command, limit)?;
    match finished.status {
        Some(status) if status.success() => Ok(finished.stdout),
        _ => Err(Fault::new(FaultKind::Failed, format!("`{line}` failed or did not end within {limit:?}"))
            .because(String::from_utf8_lossy(&finished.stderr))),
    }
}

/// The last lines of a program's output, standard error first.
pub fn last_words(finished: &Finished) -> String {
    let said = if finished.stderr.trim().is_empty() { &finished.stdout } else { &finished.stderr };
    let lines: Vec<&str> = said.lines().map(str::trim).filter(|l| !l.is_empty()).collect();
    if lines.is_empty() {
        return "it said nothing".into();
    }
    lines[lines.len().saturating_sub(4)..].join("; ")
}

/// Finds the program `name` on the search path and in the system folders (which Debian omits from the path of
/// ordinary users).
pub fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin", "/sbin", "/usr/bin", "/bin"].map(PathBuf::from))
        .map(|folder| folder.join(name))
        .find(|file| is_executable(file))
}

fn is_executable(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    file.metadata().is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
}

fn line_of(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(OsStr::to_string_lossy).collect::<Vec<_>>().join(" ")
}

fn drain(mut from: impl Read + Send + 'static) -> std::thread::JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        // A broken pipe ends the text; what was read is kept.
        let _ = from.read_to_end(&mut bytes);
        bytes
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_hangs_is_ended_at_its_limit() {
        let begun = Instant::now();
        let fault = output(Command::new("sleep").arg("30"), Duration::from_millis(100)).unwrap_err();
        assert!(begun.elapsed() < Duration::from_secs(5));
        assert!(fault.what.contains("sleep 30"), "{fault}");
    }

    #[test]
    fn a_failure_carries_the_last_words() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo one; echo bad thing >&2; exit 3"]);
        let fault = output(&mut command, Duration::from_secs(5)).unwrap_err();
        assert_eq!(fault.cause.as_deref(), Some("bad thing"));
    }

    #[test]
    fn more_output_than_a_pipe_holds() {
        let mut command = Command::new("sh");
        command.args(["-c", "head -c 300000 /dev/zero | tr '\\0' x"]);
        assert_eq!(output(&mut command, Duration::from_secs(10)).unwrap().len(), 300_000);
    }
}
