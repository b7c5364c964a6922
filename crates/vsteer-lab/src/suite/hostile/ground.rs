//! The place of the case `hostile`: folders of two users, the attackers, and vsteer as root.
//!
//! `theirs` belongs to another user, `ours` to root alone. In `ours` lie a file that must keep its text and a
//! secret that no output may have. Every run of vsteer is held to the same rules ([`Ran::broken`]), whatever
//! else a case looks at.

use super::actor;
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use vsteer_core::{Fault, FaultKind};

/// The other user: `nobody`.
pub const NOBODY: u32 = 65_534;
/// The most memory of a run of vsteer, kB.
const PEAK_KB_MAX: u64 = 512 << 10;
/// How long a run of vsteer may take.
pub const LIMIT: Duration = Duration::from_secs(10);
/// How long a run may take to end after a signal.
pub const END_LIMIT: Duration = Duration::from_secs(2);
const KEPT: &str = "KEEP";
const SECRET: &str = "SECRET-7f3a";

/// The folders of one hostile case; removed at its end.
pub struct Ground {
    base: PathBuf,
    /// A folder of the other user.
    pub theirs: PathBuf,
    /// A folder that only root can enter.
    pub ours: PathBuf,
    program: PathBuf,
    actor: PathBuf,
    /// Values of the environment of vsteer.
    pub env: Vec<(String, String)>,
}

fn failed(path: &Path) -> impl Fn(std::io::Error) -> Fault + '_ {
    move |e| Fault::io(format!("making {}", path.display()), &e)
}

impl Ground {
    /// Makes the folders of the case `name`. `actor`: a copy of this program that everybody may run.
    ///
    /// # Errors
    /// If they cannot be made.
    pub fn make(name: &str, program: &Path, actor: &Path) -> Result<Ground, Fault> {
        let base = std::env::temp_dir().join(format!("vsteer-hostile-{}-{name}", std::process::id()));
        let (theirs, ours) = (base.join("theirs"), base.join("ours"));
        for (path, mode) in [(&base, 0o755), (&theirs, 0o755), (&ours, 0o700)] {
            fs::create_dir(path).map_err(failed(path))?;
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).map_err(failed(path))?;
        }
        let ground = Ground {
            base,
            theirs,
            ours,
            program: program.to_owned(),
            actor: actor.to_owned(),
            env: Vec::new(),
        };
        std::os::unix::fs::chown(&ground.theirs, Some(NOBODY), Some(NOBODY))
            .map_err(failed(&ground.theirs))?;
        for (name, text) in [("victim", KEPT), ("secret", SECRET)] {
            let path = ground.ours.join(name);
            fs::write(&path, text).map_err(failed(&path))?;
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).map_err(failed(&path))?;
        }
        Ok(ground)
    }

    /// A path in the other user's folder.
    pub fn their(&self, name: &str) -> String {
        actor::path_of(&self.theirs, name).1
    }

    /// A path in root's folder.
    pub fn our(&self, name: &str) -> String {
        actor::path_of(&self.ours, name).1
    }

    /// Writes a file of the other user.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn give(&self, name: &str, bytes: impl AsRef<[u8]>) -> Result<String, Fault> {
        let (path, text) = actor::path_of(&self.theirs, name);
        fs::write(&path, bytes).map_err(failed(&path))?;
        std::os::unix::fs::chown(&path, Some(NOBODY), Some(NOBODY)).map_err(failed(&path))?;
        Ok(text)
    }

    /// Starts an attacker of the other user and waits until it is ready.
    ///
    /// # Errors
    /// If it does not start.
    pub fn nobody(&self, role: &str, values: &[&str], line: &[&str]) -> Result<Actor, Fault> {
        self.start(NOBODY, role, values, line)
    }

    /// As [`Ground::nobody`], as any user. `line`: the command line, with the program's name first.
    ///
    /// # Errors
    /// As [`Ground::nobody`].
    pub fn start(&self, user: u32, role: &str, values: &[&str], line: &[&str]) -> Result<Actor, Fault> {
        let mut command = Command::new(&self.actor);
        let (name, rest) = line.split_first().map_or(("attacker", &[][..]), |(n, r)| (*n, r));
        command.arg0(name).args(rest).uid(user).gid(user).current_dir("/");
        command.env(actor::ROLE, role).env(actor::VALUES, serde_json::to_string(values).unwrap_or_default());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().map_err(|e| Fault::io("starting an attacker", &e))?;
        let mut line = String::new();
        let out = child.stdout.take().expect("stdout is piped");
        let said = BufReader::new(out).read_line(&mut line);
        let actor = Actor(child);
        if said.is_err() || line != "ready\n" {
            return Err(Fault::new(FaultKind::Failed, format!("the attacker {role} did not start")));
        }
        Ok(actor)
    }

    /// A process that poses as a QEMU with this name and these vCPU threads.
    ///
    /// # Errors
    /// As [`Ground::nobody`].
    pub fn qemu(&self, user: u32, name: &str, threads: &[&str], more: &[&str]) -> Result<Actor, Fault> {
        let guest = format!("guest={},debug-threads=on", name.replace(',', ",,"));
        let mut line = vec!["qemu-system-x86_64", "-name", &guest, "-m", "64"];
        line.extend(more);
        self.start(user, "threads", threads, &line)
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(words).current_dir(&self.ours).env_clear();
        command.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").env("HOME", &self.ours).env("TZ", "UTC");
        command.env("VSTEER_STATE", self.ours.join("state"));
        command.envs(self.env.iter().map(|(k, v)| (k, v)));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Runs vsteer as root.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn vsteer(&self, words: &[&str]) -> Result<Ran, Fault> {
        self.run(words, self.command(words), None)
    }

    /// As [`Ground::vsteer`], with SIGTERM after `after`.
    ///
    /// # Errors
    /// As [`Ground::vsteer`].
    pub fn ended(&self, words: &[&str], after: Duration) -> Result<Ran, Fault> {
        self.run(words, self.command(words), Some(after))
    }

    /// As [`Ground::vsteer`], after `change` changed the command.
    ///
    /// # Errors
    /// As [`Ground::vsteer`].
    pub fn vsteer_with(&self, words: &[&str], change: impl FnOnce(&mut Command)) -> Result<Ran, Fault> {
        let mut command = self.command(words);
        change(&mut command);
        self.run(words, command, None)
    }

    /// As [`Ground::vsteer`], started by `program` with `before` and then vsteer's own words.
    ///
    /// # Errors
    /// As [`Ground::vsteer`].
    pub fn under(&self, program: &str, before: &[&str], words: &[&str]) -> Result<Ran, Fault> {
        let own = self.command(words);
        let mut command = Command::new(program);
        command.args(before).arg(&self.program).args(words).current_dir(&self.ours).env_clear();
        command.envs(own.get_envs().filter_map(|(k, v)| Some((k, v?))));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        self.run(words, command, None)
    }

    /// Runs vsteer with a pipe that nobody reads, and SIGTERM once the pipe is full. Did it end in time?
    ///
    /// # Errors
    /// As [`Ground::vsteer`].
    pub fn blocked(&self, words: &[&str]) -> Result<bool, Fault> {
        let mut child = self.command(words).spawn().map_err(|e| Fault::io("starting vsteer", &e))?;
        std::thread::sleep(Duration::from_secs(3));
        let signal = rustix::process::Signal::TERM;
        let _ = rustix::process::kill_process(rustix::process::Pid::from_child(&child), signal);
        let begun = Instant::now();
        while begun.elapsed() < END_LIMIT {
            if matches!(child.try_wait(), Ok(Some(_))) {
                return Ok(true);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = child.kill();
        let _ = child.wait();
        Ok(false)
    }

    fn run(&self, words: &[&str], mut command: Command, term: Option<Duration>) -> Result<Ran, Fault> {
        let mut child = command.spawn().map_err(|e| Fault::io("starting vsteer", &e))?;
        let outputs = [
            drain(child.stdout.take().expect("stdout is piped")),
            drain(child.stderr.take().expect("stderr is piped")),
        ];
        let (begun, pid) = (Instant::now(), child.id());
        let (mut peak_kb, mut termed, mut killed) = (0, None, false);
        let status = loop {
            if let Some(status) = child.try_wait().map_err(|e| Fault::io("waiting for vsteer", &e))? {
                break status;
            }
            peak_kb = peak_kb.max(peak_of(pid));
            if termed.is_none() && term.is_some_and(|after| begun.elapsed() >= after) {
                let signal = rustix::process::Signal::TERM;
                let _ = rustix::process::kill_process(rustix::process::Pid::from_child(&child), signal);
                termed = Some(Instant::now());
            }
            let late = termed.map_or(begun.elapsed() > LIMIT, |at| at.elapsed() > END_LIMIT);
            if late && !killed {
                killed = child.kill().is_ok();
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        let took = begun.elapsed();
        let [stdout, stderr] = outputs.map(|o| o.join().unwrap_or_default());
        let words = words.join(" ");
        Ok(Ran { words, code: status.code(), signal: status.signal(), killed, took, peak_kb, stdout, stderr })
    }

    /// What the attack changed or read in root's folder.
    pub fn broken(&self) -> Vec<String> {
        let mut broken = Vec::new();
        if fs::read_to_string(self.ours.join("victim")).ok().as_deref() != Some(KEPT) {
            broken.push("root's file has changed".to_owned());
        }
        if self.ours.join("ran").exists() {
            broken.push("an attacker's program ran as root".to_owned());
        }
        broken
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.base);
    }
}

fn drain(mut from: impl Read + Send + 'static) -> std::thread::JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = from.read_to_end(&mut bytes);
        bytes
    })
}

/// The most memory that a process had so far, kB.
fn peak_of(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"));
    line.and_then(|l| l.trim().strip_suffix(" kB")?.parse().ok()).unwrap_or(0)
}

/// An attacker; ended with the value.
pub struct Actor(Child);

impl Actor {
    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Actor {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A run of vsteer.
pub struct Ran {
    words: String,
    pub code: Option<i32>,
    signal: Option<i32>,
    killed: bool,
    pub took: Duration,
    peak_kb: u64,
    stdout: Vec<u8>,
    stderr: Vec<u8>,
}

impl Ran {
    /// Standard output as text.
    pub fn out(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// Standard error as text.
    pub fn err(&self) -> String {
        String::from_utf8_lossy(&self.stderr).into_owned()
    }

    /// Both outputs.
    pub fn said(&self) -> String {
        self.out() + &self.err()
    }

    /// The JSON values that it printed, one or one a line.
    pub fn json(&self) -> Vec<Value> {
        serde_json::Deserializer::from_slice(&self.stdout)
            .into_iter::<Value>()
            .map_while(Result::ok)
            .collect()
    }

    /// The rules that every run of vsteer keeps, and which this one broke.
    pub fn broken(&self) -> Vec<String> {
        let mut broken = Vec::new();
        let mut rule = |kept: bool, what: String| {
            if !kept {
                broken.push(format!("`vsteer {}` {what}", self.words));
            }
        };
        rule(!self.killed, format!("did not end in {:.1} s", self.took.as_secs_f64()));
        let known = |code: i32| {
            code == 0 || code == 130 || FaultKind::ALL.iter().any(|k| i32::from(k.exit_code()) == code)
        };
        rule(
            self.killed || self.code.is_some_and(known) || self.signal == Some(15),
            format!("ended with {:?}, signal {:?}: {}", self.code, self.signal, self.err().trim_end()),
        );
        rule(self.peak_kb <= PEAK_KB_MAX, format!("took {} MiB", self.peak_kb >> 10));
        for (name, bytes) in [("output", &self.stdout), ("errors", &self.stderr)] {
            let raw = |c: char| vsteer_core::visible::acts(c) && c != '\n' && c != '\t';
            match std::str::from_utf8(bytes) {
                Err(_) => rule(false, format!("printed {name} that are not UTF-8")),
                Ok(text) => {
                    let bad = text.chars().find(|c| raw(*c));
                    rule(bad.is_none(), format!("printed {bad:?} in its {name}"));
                    rule(!text.contains(SECRET), format!("printed a secret in its {name}"));
                }
            }
        }
        if self.words.contains("--json") && self.code == Some(0) {
            let whole: Result<Vec<Value>, _> =
                serde_json::Deserializer::from_slice(&self.stdout).into_iter::<Value>().collect();
            rule(whole.is_ok(), format!("printed bad JSON: {whole:?}"));
        }
        broken
    }
}
