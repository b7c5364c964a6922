//! Runs the test binaries that `cargo test` would run, several at once.
//!
//! cargo runs one binary after another, and the last test of each often leaves every pCPU but one idle. Here as many
//! binaries run at once as there are pCPUs. Each one's output is printed whole, below the line that cargo prints before
//! it. The tests of documentation follow, run by cargo.
//!
//! Left out: libraries' paths that cargo sets for build scripts; no crate here needs them.

use std::collections::VecDeque;
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// A binary of tests that cargo has built.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Binary {
    /// As cargo names it in its own output: `tests/replay.rs`, `unittests src/lib.rs`.
    title: String,
    file: PathBuf,
    /// Where cargo starts it.
    package: PathBuf,
}

/// Builds and runs the tests of `cargo test ARGUMENTS`. The value is 0 if all passed.
pub fn run(cargo: &str, arguments: &[&str]) -> Result<u8, String> {
    let build: Vec<&str> = arguments.iter().copied().filter(|a| *a != "--no-fail-fast").collect();
    let built = Command::new(cargo)
        .args(["test", "--no-run", "-q", "--message-format=json-render-diagnostics"])
        .args(&build)
        .stderr(Stdio::inherit())
        .output()
        .map_err(|e| format!("{cargo}: {e}"))?;
    if !built.status.success() {
        return Ok(1);
    }
    let binaries = listed(&String::from_utf8_lossy(&built.stdout))?;
    let failed = AtomicBool::new(false);
    let at_once = std::thread::available_parallelism().map_or(1, usize::from);
    let waiting = Mutex::new(VecDeque::from(binaries));
    std::thread::scope(|scope| {
        for _ in 0..at_once {
            scope.spawn(|| {
                loop {
                    // The lock is given back before the binary runs.
                    let next = waiting.lock().expect("no thread panics here").pop_front();
                    let Some(binary) = next else { return };
                    if !passed(&binary, &mut std::io::stdout()) {
                        failed.store(true, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    let documentation = Command::new(cargo).args(["test", "--doc"]).args(arguments).status();
    let documentation = documentation.map_err(|e| format!("{cargo}: {e}"))?;
    Ok(u8::from(failed.into_inner() || !documentation.success()))
}

/// Runs one binary and writes its output whole to `out`.
fn passed(binary: &Binary, out: &mut impl Write) -> bool {
    // As cargo names it: the same test then has the same name when cargo runs it.
    let here = std::env::current_dir().unwrap_or_default();
    let shown = binary.file.strip_prefix(&here).unwrap_or(&binary.file).display();
    let mut text = format!("     Running {} ({shown})\n", binary.title).into_bytes();
    let passed = match run_into(binary, &mut text) {
        Ok(status) => {
            if !status.success() {
                text.extend(format!("{shown} ended with {status}\n").into_bytes());
            }
            status.success()
        }
        Err(e) => {
            text.extend(format!("{shown}: {e}\n").into_bytes());
            false
        }
    };
    // A closed terminal must not end the run: the exit status still tells.
    let _ = out.write_all(&text);
    let _ = out.flush();
    passed
}

/// Runs a binary, and adds both its outputs to `text`. They go to a file: a process that a test left behind would keep a
/// pipe open.
fn run_into(binary: &Binary, text: &mut Vec<u8>) -> std::io::Result<ExitStatus> {
    let mut file = tempfile::tempfile()?;
    let status = Command::new(&binary.file)
        .current_dir(&binary.package)
        .env("CARGO_MANIFEST_DIR", &binary.package)
        .stdout(file.try_clone()?)
        .stderr(file.try_clone()?)
        .status()?;
    file.rewind()?;
    file.read_to_end(text)?;
    Ok(status)
}

/// The test binaries in cargo's messages. Those in folders of tests come first, because they run programs and take
/// longest.
fn listed(messages: &str) -> Result<Vec<Binary>, String> {
    let mut binaries = Vec::new();
    for line in messages.lines().filter(|l| l.starts_with('{')) {
        let message: serde_json::Value =
            serde_json::from_str(line).map_err(|e| format!("cargo's message cannot be read: {e}"))?;
        let (Some(file), true) = (message["executable"].as_str(), message["profile"]["test"] == true) else {
            continue;
        };
        let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
        let manifest = PathBuf::from(text(&message["manifest_path"]));
        let package = manifest.parent().unwrap_or(Path::new("/")).to_owned();
        let source = PathBuf::from(text(&message["target"]["src_path"]));
        let source = source.strip_prefix(&package).unwrap_or(&source).display().to_string();
        let of_tests = message["target"]["kind"][0] == "test";
        let title = if of_tests { source } else { format!("unittests {source}") };
        binaries.push((!of_tests, Binary { title, file: PathBuf::from(file), package }));
    }
    if binaries.is_empty() {
        return Err("cargo names no test binary in its messages".into());
    }
    // Stable, so that cargo's order remains within both groups.
    binaries.sort_by_key(|(later, _)| *later);
    Ok(binaries.into_iter().map(|(_, binary)| binary).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn binaries_are_read_from_cargos_messages_those_of_programs_first() {
        let message = |kind: &str, source: &str, test: bool, file: &str| {
            serde_json::json!({
                "reason": "compiler-artifact",
                "manifest_path": "/w/crates/x/Cargo.toml",
                "target": { "kind": [kind], "src_path": format!("/w/crates/x/{source}") },
                "profile": { "test": test },
                "executable": file,
            })
            .to_string()
        };
        let text = [
            message("lib", "src/lib.rs", true, "/t/x-1"),
            message("bin", "src/main.rs", false, "/t/x"),
            "   Compiling x".to_owned(),
            r#"{"reason":"compiler-artifact","executable":null,"profile":{"test":true}}"#.to_owned(),
            message("test", "tests/replay.rs", true, "/t/replay-2"),
        ];
        let found = listed(&text.join("\n")).unwrap();
        let told: Vec<(&str, &str)> =
            found.iter().map(|b| (b.title.as_str(), b.file.to_str().unwrap())).collect();
        assert_eq!(told, [("tests/replay.rs", "/t/replay-2"), ("unittests src/lib.rs", "/t/x-1")]);
        assert!(found.iter().all(|b| b.package == Path::new("/w/crates/x")));
        assert!(listed("{broken").is_err());
        assert!(listed("   Compiling x").is_err());
    }

    #[test]
    fn a_process_that_is_left_behind_does_not_hold_the_run() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("leaves");
        // Another process writes it, so that no fork of this one holds it open for writing.
        let script =
            format!("printf '#!/bin/sh\\nsleep 60 &\\necho here\\n' > {0}; chmod 755 {0}", file.display());
        assert!(Command::new("sh").args(["-c", &script]).status().unwrap().success());
        let begun = std::time::Instant::now();
        let mut text = Vec::new();
        let binary = Binary { title: "t".into(), file, package: "/".into() };
        assert!(run_into(&binary, &mut text).unwrap().success());
        assert_eq!(text, b"here\n");
        assert!(begun.elapsed().as_secs() < 30);
    }

    #[test]
    fn a_binary_that_fails_or_is_missing_does_not_pass() {
        let binary = |file: &str| Binary { title: "t".into(), file: file.into(), package: "/".into() };
        // Not to the standard output, where the tests' own lines are counted.
        let mut out = Vec::new();
        assert!(passed(&binary("/bin/true"), &mut out));
        assert!(!passed(&binary("/bin/false"), &mut out));
        assert!(!passed(&binary("/vsteer-no-such-file"), &mut out));
        let out = String::from_utf8(out).unwrap();
        assert!(out.contains("/bin/false ended with exit status: 1\n"), "{out}");
    }
}
