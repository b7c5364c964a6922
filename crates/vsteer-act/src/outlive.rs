//! How does a watchdog outlive what started it?
//!
//! In a shell, a process of its own session is enough. In a service of systemd, it is not: when the service ends, systemd
//! kills every process in the service's cgroup. There the watchdog runs in a transient unit, started by `systemd-run`. That
//! program passes its standard input and output on, so the unit holds the caller's pipes themselves, and they stay open if
//! `systemd-run` is killed.
//!
//! A unit has other rights and another environment than its caller. So a watchdog says that it is ready only when it has
//! seen that it can undo. After the start, its cgroup is compared with the caller's. If both are in the same service, the
//! watchdog is refused, because it would die with the caller (systemd.kill(5), `KillMode=control-group`).
//!
//! Left out: a crash of the host, which ends the watchdog too. Then `vsteer rollback` undoes the journal.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::channel;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use vsteer_core::Fault;

/// systemd runs as init (sd_booted(3)).
const BOOTED: &str = "/run/systemd/system";
/// How long a watchdog may take until it is ready: it connects to the host, which may be busy.
const READY_WITHIN: Duration = Duration::from_secs(30);
/// Beginnings of variables that a transient unit does not inherit and a watchdog may need. Everybody can read a unit's
/// variables, so proxies, whose addresses may hold passwords, are not among them.
const PASSED_ON: [&str; 10] = [
    "PATH=",
    "HOME=",
    "LANG=",
    "LIBVIRT_",
    "XDG_",
    "SSH_AUTH_SOCK=",
    "SSL_CERT_",
    "VSTEER_",
    "SUDO_UID=",
    "KRB5CCNAME=",
];

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
    let ours = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let (mut started, refused) = match service(&ours).filter(|_| Path::new(BOOTED).is_dir()) {
        None => (child(&program, arguments, told)?, None),
        // A host without a usable systemd-run (an old one, a container): a child, if that outlives us.
        Some(_) => match in_unit(what, &program, arguments, told) {
            Ok(started) => (started, None),
            Err(why) => (child(&program, arguments, told)?, Some(why)),
        },
    };
    if let Some(service) = dies_with_us(started.pid) {
        let _ = started.child.kill();
        let _ = started.child.wait();
        let why = refused.unwrap_or_else(|| "systemd-run started it there".to_owned());
        return Err(format!(
            "it would end together with the systemd unit {service}; a unit of its own failed: {why}"
        ));
    }
    Ok(started)
}

/// The watchdog as a child of this process. It leaves this process's session by itself ([`say_ready`]).
fn child(program: &Path, arguments: &[&str], told: Option<&str>) -> Result<Started, String> {
    let mut command = Command::new(program);
    command.args(arguments);
    ready(command, told)
}

/// The watchdog in a transient service.
fn in_unit(what: &str, program: &Path, arguments: &[&str], told: Option<&str>) -> Result<Started, String> {
    // Unique: an earlier watchdog of this process, or of one that had its number, may still wait.
    let ns = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos());
    let unit = format!("vsteer-undo-{}-{ns}", std::process::id());
    let mut command = systemd_run(&unit, what, program, arguments);
    // Its own process group: Ctrl-C in the terminal is not meant for it.
    command.process_group(0);
    ready(command, told).inspect_err(|_| {
        // systemd-run is gone; the unit may have started all the same.
        let mut stop = Command::new("systemctl");
        if !rustix::process::geteuid().is_root() {
            stop.arg("--user");
        }
        let _ = stop.args(["--quiet", "stop", &unit]).stdout(Stdio::null()).stderr(Stdio::null()).status();
    })
}

/// `systemd-run` for a transient service that runs `program`.
fn systemd_run(unit: &str, what: &str, program: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new("systemd-run");
    if !rustix::process::geteuid().is_root() {
        command.arg("--user");
    }
    command.arg(format!("--unit={unit}")).arg(format!("--description={what}"));
    command.args(["--quiet", "--collect", "--pipe", "--wait"]);
    // When the host shuts down, systemd asks the watchdog to end, and the watchdog undoes the plan. It needs libvirt and
    // the network for that, so systemd stops these later.
    command.arg("--property=After=network-online.target libvirtd.service virtqemud.service");
    command.arg("--property=TimeoutStopSec=60s");
    if let Ok(folder) = std::env::current_dir() {
        command.arg(format!("--property=WorkingDirectory={}", folder.display()));
    }
    for (name, value) in std::env::vars_os() {
        let (Some(name), Some(value)) = (name.to_str(), value.to_str()) else { continue };
        if PASSED_ON.iter().any(|p| format!("{name}=").starts_with(p)) {
            command.arg(format!("--setenv={name}={value}"));
        }
    }
    command.arg("--").arg(program);
    // systemd replaces variables in a unit's command line.
    command.args(arguments.iter().map(|a| a.replace('$', "$$")));
    command
}

/// Starts a command, tells it this, and waits until it is ready.
fn ready(mut command: Command, told: Option<&str>) -> Result<Started, String> {
    // Nobody reads its standard error once this process is gone.
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().map_err(|e| e.to_string())?;
    if let Some(told) = told {
        // A program that has ended does not read it: what it printed tells.
        let _ = child.stdin.take().expect("it was asked for").write_all(told.as_bytes());
    }
    let stdout = child.stdout.take().expect("it was asked for");
    let (tell, heard) = channel();
    std::thread::spawn(move || {
        let mut line = String::new();
        let _ = BufReader::new(stdout).read_line(&mut line);
        let _ = tell.send(line);
    });
    let failed = match heard.recv_timeout(READY_WITHIN) {
        Ok(line) => match line.trim().split_once(' ') {
            Some(("ready", pid)) if pid.parse::<u32>().is_ok() => {
                return Ok(Started { child, pid: pid.parse().expect("it is a number") });
            }
            Some(("failed", why)) => why.to_owned(),
            _ if line.is_empty() => "it ended at once".to_owned(),
            _ => format!("it printed {line:?}, not \"ready\""),
        },
        Err(_) => format!("it was not ready within {} s", READY_WITHIN.as_secs()),
    };
    let _ = child.kill();
    let _ = child.wait();
    Err(failed)
}

/// Reports that it is ready, from its own session: a closing terminal's hang-up does not reach it.
pub(crate) fn say_ready() {
    let _ = rustix::process::setsid();
    println!("ready {}", std::process::id());
    let _ = std::io::stdout().flush();
}

/// Reports why it cannot undo, in place of [`say_ready`].
pub(crate) fn say_failed(fault: &Fault) {
    println!("failed {}", fault.to_string().replace('\n', " "));
    let _ = std::io::stdout().flush();
}

/// The service of systemd that this process and process `pid` are both in: its end would be the end of both, unless the
/// unit leaves its other processes alone. The units of vsteer that do so say it in their environment.
fn dies_with_us(pid: u32) -> Option<String> {
    if std::env::var_os("VSTEER_KILL_MODE").is_some_and(|mode| mode == "process") {
        return None;
    }
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
        // A watchdog may read its standard input to the end before it is ready.
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
        assert_eq!(ready(sh("echo failed no rights"), None).err().as_deref(), Some("no rights"));
    }

    #[test]
    fn the_unit_gets_the_program_and_what_it_needs() {
        let program = Path::new("/usr/bin/vsteer");
        let command = systemd_run("vsteer-undo-1", "vsteer: undo", program, &["__watchdog", "/x $y"]);
        let words: Vec<String> = command.get_args().map(|a| a.to_string_lossy().into_owned()).collect();
        let rest = words.iter().position(|w| w == "--").unwrap();
        assert_eq!(words[rest + 1..], ["/usr/bin/vsteer", "__watchdog", "/x $$y"]);
        assert!(words[..rest].iter().any(|w| w.starts_with("--setenv=PATH=")));
        assert!(words[..rest].iter().any(|w| w == "--unit=vsteer-undo-1"));
        assert!(words[..rest].iter().all(|w| !w.to_ascii_lowercase().contains("proxy")));
    }
}
