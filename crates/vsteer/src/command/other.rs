//! Runs a command that is a program of its own: `vsteer X` runs `vsteer-X`.

use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use vsteer_core::{Fault, FaultKind};

/// `vsteer X …` runs `vsteer-X …`, beside this program or on the PATH; `demo` is the lab's.
///
/// # Errors
/// `Usage` when there is no such program.
pub fn run(words: &[String], json: bool) -> Result<ExitCode, Fault> {
    let Some((name, rest)) = words.split_first() else { return Ok(ExitCode::SUCCESS) };
    if name == super::apply::WATCHDOG {
        super::apply::watchdog(words)?;
        return Ok(ExitCode::SUCCESS);
    }
    if name == super::steer::GUARD {
        super::steer::guard()?;
        return Ok(ExitCode::SUCCESS);
    }
    let (program, first) = if name == "demo" { ("lab", Some("demo")) } else { (name.as_str(), None) };
    let beside: Option<PathBuf> = std::env::current_exe()
        .ok()
        .and_then(|p| Some(p.parent()?.join(format!("vsteer-{program}"))))
        .filter(|p| p.is_file());
    let mut command = Command::new(beside.unwrap_or_else(|| PathBuf::from(format!("vsteer-{program}"))));
    command.args(first).args(rest);
    if let Some(file) = crate::settings::chosen() {
        command.env(vsteer_record::config::VARIABLE, file);
    }
    if json {
        command.arg("--json");
    }
    let error = command.exec();
    Err(Fault::new(
        FaultKind::Usage,
        format!("{name:?} is not a command of vsteer, and vsteer-{program} is not installed"),
    )
    .because(error)
    .help("to list the commands: vsteer --help"))
}
