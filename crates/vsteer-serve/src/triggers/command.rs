//! Runs the command of a trigger, with the message on its standard input.
//!
//! The administrator's own configuration is the consent: [`allowed`] refuses a command that another file names. The command
//! runs without a shell, with `PATH` as its only variable, in `/`, in a process group of its own. It inherits what its thread
//! has: no capability, no way to gain one, and, where the kernel has Landlock, no file that it may write. After the limit of time
//! the whole group is killed.
//!
//! Left out: a process that leaves the group. The unit of systemd ends it with the service.

use crate::stop::Stop;
use rustix::fs::MemfdFlags;
use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process_group, prlimit, setpriority_process};
use std::fs::File;
use std::io::{Seek, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use vsteer_core::{Fault, FaultKind};
use vsteer_host::pace::Pace;
use vsteer_record::config::Trigger;
use vsteer_record::trusted;

/// The only variable of a command.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// Niceness of a command, and the most private writable memory of each of its processes, bytes. Not address space: programs
/// in Go reserve more of that than they use.
const NICE: i32 = 10;
const MEMORY: u64 = 256 << 20;
/// How often to look whether the command has ended.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Refuses a command that root did not name.
///
/// # Errors
/// `NoPrivilege` for a file that another user could have written.
pub fn allowed(name: &str, trigger: &Trigger) -> Result<(), Fault> {
    if trigger.is_roots {
        return Ok(());
    }
    let what = format!("trigger {name} does not run its command");
    let why = format!("{} must belong to root, and nobody else may write it", trigger.file.display());
    let help = format!("chown root: {0} && chmod go-w {0}, after you have read it", trigger.file.display());
    Err(Fault::new(FaultKind::NoPrivilege, what).because(why).help(help))
}

/// Refuses, for root, a program that is not there or that another user could have written.
///
/// # Errors
/// As [`trusted::open_safe`].
pub fn is_safe(program: &str) -> Result<(), Fault> {
    match rustix::process::geteuid().is_root() {
        true => trusted::open_safe("run the program", Path::new(program)).map(drop),
        false => Ok(()),
    }
}

/// Runs a command until it ends, the time is over, or the service stops.
///
/// # Errors
/// What is wrong with the program, or how it ended, if not with status 0.
pub fn run(command: &[String], message: &[u8], limit: Duration, stop: &Stop) -> Result<(), String> {
    let Some((program, arguments)) = command.split_first() else { return Ok(()) };
    // Root runs no program that another user could have written. A check at each run: files change.
    is_safe(program).map_err(|fault| fault.to_string())?;
    let failed = |e: std::io::Error| format!("cannot run {program}: {e}");
    let mut child = Command::new(program)
        .args(arguments)
        .env_clear()
        .env("PATH", PATH)
        .current_dir("/")
        .stdin(input(message).map_err(failed)?)
        .stdout(Stdio::null())
        .stderr(Stdio::inherit())
        .process_group(0)
        .spawn()
        .map_err(failed)?;
    restrain(&child);
    let end = Instant::now() + limit;
    loop {
        match child.try_wait().map_err(failed)? {
            Some(status) if status.success() => return Ok(()),
            Some(status) => return Err(format!("{program} ended with {status}")),
            None if Instant::now() >= end => {
                kill(&mut child);
                return Err(format!("{program} took longer than {} s", limit.as_secs_f64()));
            }
            None => {}
        }
        if stop.sleep_until(Instant::now() + LOOK_EVERY) {
            kill(&mut child);
            return Err(format!("the service stopped before {program} ended"));
        }
    }
}

/// A command shares the unit's CPU time and memory with the observer, which must not wait for it. A command that has ended
/// already needs no limit.
fn restrain(child: &Child) {
    let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) else { return };
    let _ = setpriority_process(Some(pid), NICE);
    let most = Rlimit { current: Some(MEMORY), maximum: Some(MEMORY) };
    let _ = prlimit(Some(pid), Resource::Data, most);
}

/// The message as a file without a name: a command that does not read it blocks nobody.
fn input(message: &[u8]) -> std::io::Result<Stdio> {
    let mut file = File::from(rustix::fs::memfd_create("vsteer-message", MemfdFlags::CLOEXEC)?);
    file.write_all(message)?;
    file.rewind()?;
    Ok(file.into())
}

/// Kills the command with all that it started.
fn kill(child: &mut Child) {
    // Not yet waited for, so the number is still its own.
    let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let _ = group.map(|group| kill_process_group(group, Signal::KILL));
    let _ = child.wait();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run_shell(script: &str, limit: Duration) -> Result<(), String> {
        let command = ["/bin/sh", "-c", script].map(str::to_owned);
        run(&command, b"{\"a\":1}", limit, &Stop::default())
    }

    #[test]
    fn a_command_gets_the_message_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("out");
        let _open = File::create(folder.path().join("ours")).unwrap();
        let script = format!("{{ cat; echo; env; pwd; ls -l /proc/self/fd; }} > {}", out.display());
        run_shell(&script, Duration::from_secs(20)).unwrap();
        let text = std::fs::read_to_string(out).unwrap();
        // The shell sets PWD and _ itself.
        let lines: Vec<&str> =
            text.lines().filter(|l| !l.starts_with("PWD=") && !l.starts_with('_')).collect();
        assert_eq!(lines[..3], ["{\"a\":1}", &format!("PATH={PATH}"), "/"], "{text}");
        assert!(text.contains("vsteer-message") && !text.contains("ours"), "{text}");
    }

    #[test]
    fn a_command_is_nice_and_its_memory_is_limited() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("out");
        // The limits are set just after the start.
        let script = format!("sleep 0.3; {{ nice; ulimit -d; }} > {}", out.display());
        run_shell(&script, Duration::from_secs(20)).unwrap();
        let text = std::fs::read_to_string(out).unwrap();
        let numbers: Vec<i64> = text.lines().map(|line| line.parse().unwrap()).collect();
        assert!(numbers[0] >= i64::from(NICE) && numbers[1] == (MEMORY >> 10) as i64, "{text}");
    }

    #[test]
    fn a_command_that_hangs_is_killed_with_its_children() {
        let folder = tempfile::tempdir().unwrap();
        let mark = folder.path().join("mark");
        let begun = Instant::now();
        let script = format!("(sleep 2; touch {}) & sleep 100", mark.display());
        let said = run_shell(&script, Duration::from_millis(300)).unwrap_err();
        assert!(said.contains("took longer than 0.3 s"), "{said}");
        assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
        std::thread::sleep(Duration::from_secs(3));
        assert!(!mark.exists(), "its child went on");
        let stop = Stop::default();
        stop.set();
        let said =
            run(&["/bin/sleep".into(), "100".into()], b"", Duration::from_secs(50), &stop).unwrap_err();
        assert!(said.contains("the service stopped"), "{said}");
    }

    #[test]
    fn how_a_command_failed_is_said() {
        let of = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|w| (*w).to_owned()).collect();
            run(&words, b"", Duration::from_secs(20), &Stop::default()).unwrap_err()
        };
        assert!(of(&["/bin/false"]).contains("/bin/false ended with exit status: 1"));
        assert!(of(&["/nowhere/x"]).contains("/nowhere/x"));
        // More than a pipe holds, and nobody reads it.
        assert_eq!(
            run(&["/bin/true".into()], &vec![b'x'; 1 << 20], Duration::from_secs(20), &Stop::default()),
            Ok(())
        );
    }

    /// A program that others may write is not run by root.
    #[test]
    #[ignore = "needs root"]
    fn root_runs_only_programs_that_others_cannot_write() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("program");
        std::fs::copy("/bin/true", &program).unwrap();
        let of = |mode| {
            std::fs::set_permissions(&program, std::fs::Permissions::from_mode(mode)).unwrap();
            run(&[program.display().to_string()], b"", Duration::from_secs(20), &Stop::default())
        };
        assert_eq!(of(0o755), Ok(()));
        assert!(of(0o777).unwrap_err().contains("others may write it"));
    }

    #[test]
    fn only_a_file_of_roots_names_commands() {
        let config = vsteer_record::config::of_text("[triggers.a]\ncommand = [\"/bin/true\"]\n").config;
        let mut trigger = config.triggers().next().unwrap().1.clone();
        assert_eq!(allowed("a", &trigger).unwrap_err().kind, FaultKind::NoPrivilege);
        trigger.is_roots = true;
        assert_eq!(allowed("a", &trigger), Ok(()));
    }
}
