//! How does a watchdog outlive what started it?
//!
//! Without systemd, a process of its own session is enough. With systemd, it is not: when a service ends, systemd kills
//! every process in the service's cgroup. So the watchdog runs in a transient unit of its own, started by `systemd-run`.
//! That program passes its standard input and output on, so the unit holds the caller's pipes themselves, and they stay
//! open if `systemd-run` is killed.
//!
//! After the start, the watchdog's cgroup is compared with the caller's. If both are in the same service, the watchdog is
//! refused, because it would die with the caller (systemd.kill(5), `KillMode=control-group`).
//!
//! Left out: a crash of the host, which ends the watchdog too. Then `vsteer rollback` undoes the journal.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// systemd runs as init (sd_booted(3)).
const BOOTED: &str = "/run/systemd/system";
/// Beginnings of variables that a transient unit does not inherit and a watchdog may need: paths of programs and state,
/// connections, proxies.
const PASSED_ON: [&str; 9] =
    ["PATH=", "HOME=", "LANG=", "LIBVIRT_", "XDG_", "SSH_AUTH_SOCK=", "SSL_CERT_", "VSTEER_", "NO_PROXY="];

/// A watchdog that is ready.
pub(crate) struct Started {
    /// The process to wait for: the watchdog, or `systemd-run`, which ends with the watchdog.
    pub child: Child,
    /// Process id of the watchdog itself.
    pub pid: u32,
}

/// Starts this program with `arguments`, and waits until it calls [`say_ready`]. `what` is a line for systemd's log.
/// Standard input is a pipe. `told` is written to it, and the pipe closed, before the wait; `None` leaves the pipe open.
///
/// # Errors
/// A sentence: the program did not start, did not report that it is ready, or would end with the caller.
pub(crate) fn start(what: &str, arguments: &[&str], told: Option<&str>) -> Result<Started, String> {
    let program = std::env::current_exe().map_err(|e| e.to_string())?;
    let alone = || {
        let mut command = Command::new(&program);
        command.args(arguments);
        command
    };
    let started = if Path::new(BOOTED).is_dir() {
        // A host without a usable systemd-run (an old one, a container): a session of its own, if that outlives us.
        ready(in_unit(what, &program, arguments), told).or_else(|_| ready(alone(), told))
    } else {
        ready(alone(), told)
    };
    let mut started = started?;
    if let Some(service) = dies_with_us(started.pid) {
        let _ = started.child.kill();
        let _ = started.child.wait();
        return Err(format!(
            "it would end together with the systemd unit {service}, because systemd-run does not work"
        ));
    }
    Ok(started)
}

/// `systemd-run` for a transient service that runs `program`.
fn in_unit(what: &str, program: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new("systemd-run");
    if !rustix::process::geteuid().is_root() {
        command.arg("--user");
    }
    // The process id makes the name unique: an earlier watchdog of the same plan may still wait.
    command.arg(format!("--unit=vsteer-undo-{}", std::process::id()));
    command.arg(format!("--description={what}"));
    command.args(["--quiet", "--collect", "--pipe", "--wait"]);
    // When the host shuts down, the watchdog is asked to end, and undoes what is not confirmed. So it ends before libvirt.
    command.args(["--property=After=libvirtd.service virtqemud.service", "--property=TimeoutStopSec=60s"]);
    for (name, value) in std::env::vars_os() {
        let (Some(name), Some(value)) = (name.to_str(), value.to_str()) else { continue };
        let passed = format!("{name}=");
        let proxy = name.to_ascii_lowercase().ends_with("_proxy");
        if proxy || PASSED_ON.iter().any(|p| passed.starts_with(p)) {
            command.arg(format!("--setenv={name}={value}"));
        }
    }
    command.arg("--").arg(program).args(arguments);
    command
}

/// Starts a command, tells it this, and waits until it is ready.
fn ready(mut command: Command, told: Option<&str>) -> Result<Started, String> {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    // Its own process group: Ctrl-C in the terminal is not meant for it.
    command.process_group(0);
    let mut child = command.spawn().map_err(|e| e.to_string())?;
    if let Some(told) = told {
        // A program that has ended does not read it: what it printed tells.
        let _ = child.stdin.take().expect("it was asked for").write_all(told.as_bytes());
    }
    let mut line = String::new();
    let stdout = child.stdout.take().expect("it was asked for");
    let read = BufReader::new(stdout).read_line(&mut line);
    let pid = line.trim().strip_prefix("ready ").and_then(|pid| pid.parse().ok());
    match (read, pid) {
        (Ok(_), Some(pid)) => Ok(Started { child, pid }),
        (read, _) => {
            let _ = child.kill();
            let _ = child.wait();
            Err(read.err().map_or_else(|| format!("it printed {line:?}, not \"ready\""), |e| e.to_string()))
        }
    }
}

/// Reports that it is ready, from its own session: a closing terminal's hang-up does not reach it.
pub(crate) fn say_ready() {
    let _ = rustix::process::setsid();
    println!("ready {}", std::process::id());
    let _ = std::io::stdout().flush();
}

/// The service of systemd that this process and process `pid` are both in: its end would be the end of both.
fn dies_with_us(pid: u32) -> Option<String> {
    let of = |who: &str| std::fs::read_to_string(format!("/proc/{who}/cgroup")).ok();
    let (ours, theirs) = (of("self")?, of(&pid.to_string())?);
    let service = service(&ours)?;
    (Some(service) == self::service(&theirs)).then(|| service.to_owned())
}

/// The service that a process belongs to, from its /proc/PID/cgroup: the last unit of its path in systemd's hierarchy, if
/// that is a service.
fn service(cgroups: &str) -> Option<&str> {
    let path = cgroups.lines().find_map(|line| {
        let (_, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        // Version 2 alone, or the named hierarchy of version 1.
        (controllers.is_empty() || controllers == "name=systemd").then_some(path)
    })?;
    let is_unit = |part: &&str| [".service", ".scope", ".slice"].iter().any(|kind| part.ends_with(kind));
    path.rsplit('/').find(is_unit).filter(|unit| unit.ends_with(".service"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_service_of_a_process() {
        assert_eq!(service("0::/system.slice/cron.service\n"), Some("cron.service"));
        // Delegated cgroups below a service end with it.
        assert_eq!(service("0::/system.slice/agent.service/worker-1\n"), Some("agent.service"));
        assert_eq!(service("0::/user.slice/user-0.slice/session-1.scope\n"), None);
        // A user's terminal is a scope below the user's manager, which is a service.
        let terminal = "0::/user.slice/user-1000.slice/user@1000.service/app.slice/app-term.scope\n";
        assert_eq!(service(terminal), None);
        let hybrid = "4:cpu,cpuacct:/\n1:name=systemd:/system.slice/cron.service\n0::/\n";
        assert_eq!(service(hybrid), Some("cron.service"));
        assert_eq!(service("0::/\n"), None);
    }

    #[test]
    fn what_does_not_say_that_it_is_ready_is_refused() {
        let sh = |script: &str| {
            let mut command = Command::new("sh");
            command.args(["-c", script]);
            command
        };
        // A watchdog may read what it is told to its end before it is ready.
        let told = ready(sh("test \"$(cat)\" = secret && echo ready 40"), Some("secret")).unwrap();
        assert_eq!(told.pid, 40);
        let started = ready(sh("echo ready 41; read -r line"), None).unwrap();
        assert_eq!(started.pid, 41);
        let mut child = started.child;
        drop(child.stdin.take());
        assert!(child.wait().is_ok());
        for script in ["exit 1", "echo something", "echo ready", "echo ready soon"] {
            assert!(ready(sh(script), None).is_err(), "{script}");
        }
        assert!(ready(Command::new("vsteer-no-such-program"), None).is_err());
    }

    #[test]
    fn the_unit_gets_the_program_and_what_it_needs() {
        let command = in_unit("vsteer: undo", Path::new("/usr/bin/vsteer"), &["__watchdog", "/x y"]);
        let words: Vec<String> = command.get_args().map(|a| a.to_string_lossy().into_owned()).collect();
        let rest = words.iter().position(|w| w == "--").unwrap();
        assert_eq!(words[rest + 1..], ["/usr/bin/vsteer", "__watchdog", "/x y"]);
        assert!(words[..rest].iter().any(|w| w.starts_with("--setenv=PATH=")));
        assert!(words[..rest].iter().any(|w| w == &format!("--unit=vsteer-undo-{}", std::process::id())));
    }
}
