//! The background service of `vsteer realtime`, and its clients: enable, status, report, disable, and a systemd unit.
//!
//! The service listens on a socket beside the journals, and writes its report to every client. The socket also tells the
//! service's process (`SO_PEERCRED`). A file with a process number could name a process that reused the number.

use super::text;
use crate::cli::RealtimeRun;
use crate::realtime_socket::{connect, folder, socket};
use rustix::process::{Pid, Signal};
use serde_json::Value;
use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use vsteer_core::{Fault, FaultKind};

/// Its answer is a few KB.
const ANSWERS_WITHIN: Duration = Duration::from_secs(10);
/// Loading a policy takes seconds on a busy host; so does taking back what was set.
const BEGINS_WITHIN: Duration = Duration::from_secs(60);
const ENDS_WITHIN: Duration = Duration::from_secs(60);
/// What it prints when VMs are kept first from there on.
const READY: &str = "vsteer: ready";

fn log() -> PathBuf {
    folder().join("realtime.log")
}

/// Where others ask. The socket is gone when this is.
pub struct Desk {
    listener: UnixListener,
    path: PathBuf,
}

impl Desk {
    /// Listens from here on.
    ///
    /// # Errors
    /// `Changed` where another one listens already; the socket cannot be made.
    pub fn open() -> Result<Desk, Fault> {
        let path = socket();
        let made = |e: std::io::Error| Fault::io(format!("making {}", path.display()), &e);
        std::fs::create_dir_all(folder()).map_err(made)?;
        if let Ok((_, pid)) = connect() {
            return Err(Fault::new(FaultKind::Changed, "the realtime service is already running")
                .because(format!("it is process {}", pid.as_raw_nonzero()))
                .help("to see its VMs: vsteer realtime status; to stop it: vsteer realtime disable"));
        }
        // Left behind by one that was killed.
        let _ = std::fs::remove_file(&path);
        let listener = UnixListener::bind(&path).map_err(made)?;
        listener.set_nonblocking(true).map_err(made)?;
        Ok(Desk { listener, path })
    }

    /// Can be read from once somebody asks.
    pub fn asked(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }

    /// Answers all who ask.
    pub fn answer(&self, what: &Value) {
        while let Ok((mut client, _)) = self.listener.accept() {
            // Who does not read its answer does not keep the service from its work.
            let _ = client.set_write_timeout(Some(Duration::from_millis(100)));
            let _ = client.write_all(what.to_string().as_bytes());
        }
    }

    /// VMs are kept first from here on: says so, to systemd too where it started this.
    pub fn ready(&self) {
        eprintln!("{READY}");
        vsteer_host::service_manager::ready();
    }
}

impl Drop for Desk {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// The service: what it tells, and its process.
fn ask() -> Result<(Value, Pid), Fault> {
    let what = || Fault::new(FaultKind::NothingThere, "the realtime service is not running");
    let (mut stream, pid) = connect().map_err(|e| match e.kind() {
        ErrorKind::NotFound | ErrorKind::ConnectionRefused => {
            let fault = what().help("to start it: vsteer realtime enable --vm NAME --yes");
            // Why the last one ended, where it ended by itself.
            let said = said_since(0).unwrap_or_default();
            let last: Vec<&str> =
                said.rsplit(|line| line == READY).next().into_iter().flatten().map(|l| l.trim()).collect();
            if last.is_empty() {
                fault
            } else {
                fault.because(format!("the last run ended with: {}", last.join("; ")))
            }
        }
        ErrorKind::PermissionDenied => {
            Fault::new(FaultKind::NoPrivilege, "cannot connect to the realtime service")
                .because(e)
                .help("run as the user who started it")
        }
        _ => what().because(e),
    })?;
    let mut told = String::new();
    let _ = stream.set_read_timeout(Some(ANSWERS_WITHIN));
    stream.read_to_string(&mut told).map_err(|e| Fault::io("cannot read from the realtime service", &e))?;
    let told = serde_json::from_str(&told)
        .map_err(|e| Fault::new(FaultKind::Failed, "cannot understand the realtime service").because(e))?;
    Ok((told, pid))
}

/// `vsteer realtime status`.
///
/// # Errors
/// `NothingThere` when the service does not run.
pub fn status(json: bool) -> Result<(), Fault> {
    show(json, text::status)
}

/// `vsteer realtime report`.
///
/// # Errors
/// As [`status`].
pub fn report(json: bool) -> Result<(), Fault> {
    show(json, text::report)
}

fn show(json: bool, in_words: impl Fn(&Value) -> String) -> Result<(), Fault> {
    let (told, _) = ask()?;
    if json {
        crate::text::print_json(&told);
    } else {
        print!("{}", in_words(&told));
    }
    Ok(())
}

/// `vsteer realtime disable`.
///
/// # Errors
/// `NothingThere` when the service does not run; it does not end.
pub fn disable(json: bool) -> Result<(), Fault> {
    let (told, pid) = ask()?;
    rustix::process::kill_process(pid, Signal::TERM)
        .map_err(|e| Fault::new(FaultKind::NoPrivilege, "cannot stop the realtime service").because(e))?;
    let begun = Instant::now();
    // A process that somebody else has not waited for yet is still there: the socket is what says that all was put back.
    while socket().exists() && rustix::process::test_kill_process(pid).is_ok() {
        if begun.elapsed() > ENDS_WITHIN {
            return Err(Fault::new(FaultKind::Failed, "the realtime service does not stop")
                .because(format!(
                    "process {} still runs after {} s",
                    pid.as_raw_nonzero(),
                    ENDS_WITHIN.as_secs()
                ))
                .help("kill it with kill -9: a watchdog then restores all settings"));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    if json {
        crate::text::print_json(&serde_json::json!({ "ended": told }));
    } else {
        print!("{}", text::report(&told));
        println!("The realtime service is stopped, and all settings are restored.");
    }
    Ok(())
}

fn named(value: &impl clap::ValueEnum) -> String {
    value.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}

/// What `run` was asked, as words.
fn words(a: &RealtimeRun) -> Vec<String> {
    let ms = |d: Duration| format!("{}ms", d.as_secs_f64() * 1e3);
    let mut words: Vec<String> = ["realtime", "run", "--yes"].map(str::to_owned).to_vec();
    let mut option = |name: &str, value: String| words.extend([format!("--{name}"), value]);
    if let Some(file) = crate::settings::chosen() {
        option("config", file.display().to_string());
    }
    a.vms.iter().for_each(|vm| option("vm", vm.clone()));
    a.users.iter().for_each(|user| option("user", user.clone()));
    // The service does not run by sudo, and would not know who trusts their own VMs.
    if let Some(caller) = vsteer_record::trusted::caller().map(|user| user.to_string())
        && !a.users.contains(&caller)
    {
        option("user", caller);
    }
    option("by", named(&a.by));
    option("source", named(&a.source));
    option("warp", ms(a.warp));
    option("limit", ms(a.limit));
    if let Some(uri) = &a.connect {
        option("connect", uri.clone());
    }
    words.extend(a.measure_only.then(|| "--measure-only".to_owned()));
    words
}

/// `vsteer realtime enable`: [`super::keep`] in a process of its own session.
///
/// # Errors
/// What the service said before it ended, where it does not begin.
pub fn enable(a: &RealtimeRun, json: bool) -> Result<(), Fault> {
    if !a.yes || a.length.is_some() || a.warm_up.is_some() || a.costs {
        if a.yes {
            return Err(Fault::new(
                FaultKind::Usage,
                "--for, --warm-up and --costs work only with `realtime run`",
            ));
        }
        return super::keep(a, json);
    }
    let failed = |e: std::io::Error| Fault::io("cannot start the realtime service", &e);
    std::fs::create_dir_all(folder()).map_err(failed)?;
    let log_file = OpenOptions::new().create(true).append(true).open(log()).map_err(failed)?;
    let from = log_file.metadata().map_err(failed)?.len();
    let mut command = Command::new(std::env::current_exe().map_err(failed)?);
    command.args(words(a)).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log_file);
    // A terminal that closes does not end it.
    command.process_group(0).current_dir("/");
    let mut service = command.spawn().map_err(failed)?;
    let begun = Instant::now();
    loop {
        let said = said_since(from).map_err(failed)?;
        if said.iter().any(|line| line == READY) {
            let notes: Vec<&String> = said.iter().filter(|line| *line != READY).collect();
            if json {
                crate::text::print_json(&serde_json::json!({ "pid": service.id(), "said": notes }));
            } else {
                notes.iter().for_each(|line| println!("{line}"));
                println!(
                    "The realtime service runs as process {}.\n  next: vsteer realtime status, report or disable",
                    service.id()
                );
            }
            return Ok(());
        }
        let ended = service.try_wait().map_err(failed)?;
        if ended.is_some() || begun.elapsed() > BEGINS_WITHIN {
            let _ = service.kill();
            let _ = service.wait();
            let said = said_since(from).map_err(failed)?.join("\n");
            return Err(Fault::new(FaultKind::Failed, "the realtime service did not start").because(said));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Lines that the service has written to its log.
fn said_since(from: u64) -> std::io::Result<Vec<String>> {
    let mut file = std::fs::File::open(log())?;
    std::io::Seek::seek(&mut file, std::io::SeekFrom::Start(from))?;
    Ok(BufReader::new(file).lines().map_while(Result::ok).collect())
}

/// `vsteer realtime unit`: a unit for systemd, on standard output.
///
/// # Errors
/// This program's own path cannot be told.
pub fn unit(a: &RealtimeRun) -> Result<(), Fault> {
    let program = std::env::current_exe().map_err(|e| Fault::io("cannot find this program", &e))?;
    let all: Vec<String> =
        std::iter::once(program.to_string_lossy().into_owned()).chain(words(a)).map(|w| quoted(&w)).collect();
    print!(
        "# systemd: write this to /etc/systemd/system/vsteer-realtime.service, then systemctl enable --now vsteer-realtime\n\
         [Unit]\n\
         Description=vsteer: VMs that run when they wake\n\
         Documentation=man:vsteer-realtime(1)\n\
         After=libvirtd.service virtqemud.service\n\
         \n\
         [Service]\n\
         Type=notify\n\
         ExecStart={}\n\
         Restart=on-failure\n\
         # The watchdog that puts everything back is not to be killed along with it.\n\
         KillMode=process\n\
         Environment=VSTEER_KILL_MODE=process\n\
         \n\
         [Install]\n\
         WantedBy=multi-user.target\n",
        all.join(" ")
    );
    Ok(())
}

/// A word as systemd reads it: quotes, and its specifiers and variables doubled.
pub fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=+,@".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    let escaped: String = word
        .chars()
        .map(|c| match c {
            '"' | '\\' => format!("\\{c}"),
            '%' | '$' => format!("{c}{c}"),
            c => c.to_string(),
        })
        .collect();
    format!("\"{escaped}\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_for_systemd() {
        assert_eq!(quoted("--vm"), "--vm");
        assert_eq!(quoted("web*"), "\"web*\"");
        assert_eq!(quoted("a b\"c%d$"), "\"a b\\\"c%%d$$\"");
        assert_eq!(quoted(""), "\"\"");
    }
}
