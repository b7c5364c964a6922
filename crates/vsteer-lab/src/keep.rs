//! Reaps the processes that libvirt leaves behind.
//!
//! QEMU started by libvirt makes itself a daemon, so its parent is process 1. libvirt waits until its pid
//! disappears. If process 1 reaps slowly (in some containers and virtual machines), each start and end of a
//! VM takes seconds, and ended VMs remain as zombies. So the private libvirtd runs below a small process that
//! is the reaper of all its descendants (`man 2 PR_SET_CHILD_SUBREAPER`), waits for each, and ends after the
//! last one. Left out: everything else; it does not restart what fails.

use rustix::process::{WaitOptions, getpid, set_child_subreaper, wait};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use vsteer_core::{Fault, FaultKind};

/// Runs `command` and reaps all its descendants until none is left. It ignores SIGTERM: the descendants must
/// be ended by their own pids, and then this ends by itself.
///
/// # Errors
/// The command cannot be started.
pub fn run(command: &[String]) -> Result<(), Fault> {
    let (program, arguments) =
        command.split_first().ok_or_else(|| Fault::new(FaultKind::Usage, "keep: there is no command"))?;
    let ignored = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGTERM, signal_hook::consts::SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&ignored))
            .map_err(|e| Fault::io("asking to be told of signals", &e))?;
    }
    set_child_subreaper(Some(getpid()))
        .map_err(|e| Fault::io("becoming the reaper of descendants", &e.into()))?;
    // It is reaped below like all others.
    drop(
        Command::new(program)
            .args(arguments)
            .spawn()
            .map_err(|e| Fault::io(format!("starting {program}"), &e))?,
    );
    while matches!(wait(WaitOptions::empty()), Ok(_) | Err(rustix::io::Errno::INTR)) {}
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_command_or_with_a_wrong_one() {
        assert_eq!(run(&[]).unwrap_err().kind, FaultKind::Usage);
        assert_eq!(run(&["/no/such/program".into()]).unwrap_err().kind, FaultKind::NothingThere);
    }
}
