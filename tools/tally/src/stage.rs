//! Runs one stage and keeps its output and exit status.
//!
//! The output goes to a file as a whole and to the terminal without what only says that all is well. An interrupt
//! reaches the stage by itself, because it shares the terminal's process group. This program waits until the stage has
//! cleaned up, and then ends with status 130, so that the calling script ends too.

use crate::harness;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

/// What a shell gives a command that SIGINT ended.
const INTERRUPTED: u8 = 130;
/// A service that a stage leaves behind may keep its output open for ever.
const DRAINS: Duration = Duration::from_secs(5);

/// What is in a stage's output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Nothing is counted: the stage passes or fails as a whole.
    Gate,
    /// Result lines of Rust's test harness.
    Tests,
    /// Claims, in a file of their own beside the output.
    Claims,
}

impl Kind {
    fn parse(word: &str) -> Result<Kind, String> {
        match word {
            "gate" => Ok(Kind::Gate),
            "tests" => Ok(Kind::Tests),
            "claims" => Ok(Kind::Claims),
            _ => Err(format!("{word:?} is not a kind of stage; kinds: gate, tests, claims")),
        }
    }
}

/// A stage that has run.
#[derive(Debug, Clone)]
pub struct Stage {
    pub name: String,
    pub kind: Kind,
    /// `None` where the stage did not end, which its missing status file tells.
    pub status: Option<u8>,
    pub output: String,
    /// What the stage wrote into the file of claims.
    pub claims: Option<String>,
}

fn io(what: &Path, e: &std::io::Error) -> String {
    format!("{}: {e}", what.display())
}

/// Runs a stage. The value is its exit status, or 130 if the person interrupted it.
pub fn run(folder: &Path, kind: &str, name: &str, command: &[&str]) -> Result<u8, String> {
    Kind::parse(kind)?;
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&interrupted))
            .map_err(|e| format!("cannot watch for signals: {e}"))?;
    }
    let number = std::fs::read_dir(folder).map_err(|e| io(folder, &e))?.count();
    let stem = folder.join(format!("{number:03}.{kind}.{name}"));
    let (log, status_file) = (stem.with_added_extension("log"), stem.with_added_extension("status"));
    let mut kept = File::create(&log).map_err(|e| io(&log, &e))?;
    let (out, end) = std::io::pipe().map_err(|e| format!("cannot make a pipe: {e}"))?;
    let err = end.try_clone().map_err(|e| format!("cannot make a pipe: {e}"))?;
    let mut whole = Command::new(command[0]);
    whole.args(&command[1..]).env("TALLY_CLAIMS", claims_file(&stem)).stdout(end).stderr(err);
    let started = whole.spawn();
    // The command's own ends of the pipe: while they are open here, its output never ends.
    drop(whole);
    let mut child = started.map_err(|e| format!("{}: {e}", command[0]))?;
    let (tell, ended) = channel();
    let tests = kind == "tests";
    let reader = std::thread::spawn(move || {
        let mut lines = BufReader::new(out);
        let mut line = Vec::new();
        while lines.read_until(b'\n', &mut line).is_ok_and(|n| n > 0) {
            // A full disk must not end the run: the missing lines show in the sums.
            let _ = kept.write_all(&line);
            if !(tests && harness::is_well(&String::from_utf8_lossy(&line))) {
                let _ = std::io::stdout().write_all(&line);
                let _ = std::io::stdout().flush();
            }
            line.clear();
        }
        let _ = tell.send(());
    });
    let status = child.wait().map_err(|e| format!("{}: {e}", command[0]))?;
    if ended.recv_timeout(DRAINS).is_ok() {
        reader.join().map_err(|_| "reading the output failed".to_owned())?;
    }
    if interrupted.load(Ordering::Relaxed) {
        eprintln!("interrupted in stage {name}");
        return Ok(INTERRUPTED);
    }
    // A command that a signal ended has no code of its own. 1 keeps 130 for interrupts.
    let code = status.code().map_or(1, |c| if c == i32::from(INTERRUPTED) { 1 } else { c as u8 });
    std::fs::write(&status_file, code.to_string()).map_err(|e| io(&status_file, &e))?;
    Ok(code)
}

fn claims_file(stem: &Path) -> PathBuf {
    stem.with_added_extension("claims")
}

/// All stages of a folder, in the order in which they ran.
pub fn kept(folder: &Path) -> Result<Vec<Stage>, String> {
    let entries = std::fs::read_dir(folder).map_err(|e| io(folder, &e))?;
    let mut logs: Vec<PathBuf> =
        entries.map(|e| e.map(|e| e.path())).collect::<Result<_, _>>().map_err(|e| io(folder, &e))?;
    logs.retain(|p| p.extension().is_some_and(|e| e == "log"));
    logs.sort();
    logs.iter().map(|log| stage_of(log)).collect()
}

fn stage_of(log: &Path) -> Result<Stage, String> {
    let stem = log.with_extension("");
    let title = stem.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let mut parts = title.splitn(3, '.').skip(1);
    let (Some(kind), Some(name)) = (parts.next(), parts.next()) else {
        return Err(format!("{}: not a stage's output", log.display()));
    };
    let bytes = std::fs::read(log).map_err(|e| io(log, &e))?;
    let status = std::fs::read_to_string(stem.with_added_extension("status"));
    Ok(Stage {
        name: name.to_owned(),
        kind: Kind::parse(kind)?,
        status: status.ok().and_then(|s| s.trim().parse().ok()),
        output: String::from_utf8_lossy(&bytes).into_owned(),
        claims: std::fs::read_to_string(claims_file(&stem)).ok(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_status_and_order_are_kept() {
        let dir = tempfile::tempdir().unwrap();
        let sh = |kind: &str, name: &str, script: &str| run(dir.path(), kind, name, &["sh", "-c", script]);
        assert_eq!(sh("gate", "b.first", "echo one; echo two >&2"), Ok(0));
        assert_eq!(sh("claims", "a", "echo 1..0 > \"$TALLY_CLAIMS\"; exit 3"), Ok(3));
        assert_eq!(sh("gate", "killed", "kill -9 $$"), Ok(1));
        assert!(run(dir.path(), "gate", "none", &["vsteer-no-such-program"]).is_err());
        let all = kept(dir.path()).unwrap();
        let names: Vec<&str> = all.iter().map(|s| s.name.as_str()).collect();
        assert_eq!(names, ["b.first", "a", "killed", "none"]);
        assert_eq!((all[0].output.as_str(), all[0].status, all[0].kind), ("one\ntwo\n", Some(0), Kind::Gate));
        assert_eq!((all[1].claims.as_deref(), all[1].status), (Some("1..0\n"), Some(3)));
        assert_eq!((all[2].status, all[3].status), (Some(1), None));
    }

    #[test]
    fn a_service_that_keeps_the_output_open_does_not_hold_the_run() {
        let dir = tempfile::tempdir().unwrap();
        let begun = std::time::Instant::now();
        assert_eq!(run(dir.path(), "gate", "service", &["sh", "-c", "sleep 60 & echo here"]), Ok(0));
        assert!(begun.elapsed() < Duration::from_secs(30));
        assert_eq!(kept(dir.path()).unwrap()[0].output, "here\n");
    }
}
