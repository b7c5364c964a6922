//! Writes one line to the system's log for each change that vsteer makes or undoes: who, what, from which value to
//! which, with what result.
//!
//! The journal is enough to undo a change, but root can delete it, and nobody reads it. The system's log goes where
//! the host's administrator collects logs. A line is a datagram to `/dev/log` as in `man 3 syslog` (RFC 3164), which
//! journald and rsyslog read. Foreign text is escaped ([`vsteer_core::visible`]) and each value has a bound, so a VM's
//! name cannot forge a line or a field. The log never delays or fails a change: if nobody reads the socket, the line is
//! lost, and the journal still has the change.
//!
//! Left out: changes within a command that keeps VMs first by a real-time class. That command switches classes up to
//! 500 times per second, so the log has one line when it begins and one when it ends.

use std::borrow::Cow;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use vsteer_core::Fault;
use vsteer_core::setting::{Change, Step};
use vsteer_core::visible;
use vsteer_host::actuate::Restored;

/// Socket of the system's log (`man 3 syslog`).
const SOCKET: &str = "/dev/log";
/// Facility `authpriv` (10): only administrators read VM names. Severity notice (5) or warning (4).
const NOTICE: u8 = 10 * 8 + 5;
const WARNING: u8 = 10 * 8 + 4;
/// Facility `daemon` (3), severity error (3).
const DAEMON_ERROR: u8 = 3 * 8 + 3;
/// Longest value in a line, bytes. RFC 3164 allows 1024 bytes per line; a line has at most five such values.
const VALUE_MAX: usize = 140;
/// Longest reason of a fault outside a change, bytes.
const REASON_MAX: usize = 800;
/// The kernel's user id of a process that began without a login.
const NO_LOGIN: &str = "4294967295";

/// Which part of vsteer changes something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    /// `vsteer apply`.
    Apply,
    /// `vsteer rollback`.
    Rollback,
    /// The watchdog of `vsteer apply --try`.
    TryWatchdog,
    /// `vsteer steer`.
    Steer,
    /// `vsteer realtime`.
    Realtime,
    /// `vsteer experiment`.
    Experiment,
    /// The watchdog of `vsteer steer` and `vsteer realtime`.
    SteeringWatchdog,
}

impl By {
    fn word(self) -> &'static str {
        match self {
            By::Apply => "apply",
            By::Rollback => "rollback",
            By::TryWatchdog => "try-watchdog",
            By::Steer => "steer",
            By::Realtime => "realtime",
            By::Experiment => "experiment",
            By::SteeringWatchdog => "steering-watchdog",
        }
    }
}

/// What is changed in a line.
struct Changed<'a> {
    plan: &'a str,
    vm: &'a str,
    setting: &'a str,
    of: &'a str,
    old: &'a str,
    new: &'a str,
}

/// A step was made, or failed.
pub(crate) fn made(by: By, plan: &str, step: &Step, result: &Result<(), Fault>) {
    let word = if result.is_ok() { "done" } else { "failed" };
    of_step(by, plan, (step, &step.change), word, result.as_ref().err());
}

/// A step will be repeated and reversed at will, until a line says that it is undone.
pub(crate) fn begun(by: By, plan: &str, step: &Step) {
    of_step(by, plan, (step, &step.change), "begun", None);
}

/// A step was undone, or could not be.
pub(crate) fn undone(by: By, plan: &str, step: &Step, result: &Result<Restored, Fault>) {
    let word = match result {
        Ok(Restored::Back) => "undone",
        Ok(Restored::Defined(_)) => "undone-in-definition",
        Ok(Restored::Gone(_)) => "gone",
        Err(_) => "failed",
    };
    let back = step.change.undo();
    of_step(by, plan, (step, back.as_ref().unwrap_or(&step.change)), word, result.as_ref().err());
}

/// The sched_ext policy of `vsteer realtime` took over scheduling (`on`), or gave it back.
pub fn policy(on: bool) {
    let (own, kernel) = ("sched_ext policy of vsteer", "kernel");
    let (old, new) = if on { (kernel, own) } else { (own, kernel) };
    let changed = Changed { plan: "none", vm: "", setting: "scheduler", of: "host", old, new };
    let text = line(By::Realtime, &changed, if on { "done" } else { "undone" }, None);
    send(&socket(), NOTICE, &text);
}

fn of_step(by: By, plan: &str, (step, change): (&Step, &Change), result: &str, fault: Option<&Fault>) {
    let tagged = serde_json::to_value(change).unwrap_or_default();
    let text = change.to_string();
    let changed = Changed {
        plan,
        vm: &step.vm_name,
        setting: tagged["setting"].as_str().unwrap_or_default(),
        of: match change {
            Change::Knob(knob) => &knob.knob.name,
            _ => text.split_once(": ").map_or("", |(of, _)| of),
        },
        old: &change.before(),
        new: &change.after(),
    };
    let level = if fault.is_some() { WARNING } else { NOTICE };
    send(&socket(), level, &line(by, &changed, result, fault));
}

/// The text of a line, without the header.
fn line(by: By, changed: &Changed<'_>, result: &str, fault: Option<&Fault>) -> String {
    let Changed { plan, vm, setting, of, old, new } = changed;
    let mut text = format!("{} result={result} {} plan={}", by.word(), who(), cut(plan, 64));
    for (key, value) in [("vm", vm), ("setting", setting), ("of", of), ("old", old), ("new", new)] {
        text.push_str(&format!(" {key}=\"{}\"", cut(value, VALUE_MAX)));
    }
    if let Some(fault) = fault {
        text.push_str(&format!(" why=\"{}\"", cut(&fault.to_string(), VALUE_MAX)));
    }
    text
}

/// Who asked: the user of the login session, the user who called sudo, and the user with whose rights vsteer runs.
/// Only the first survives `su` and `sudo` and cannot be set by the caller.
fn who() -> String {
    let login = std::fs::read_to_string("/proc/self/loginuid").unwrap_or_default();
    let number =
        |text: &str| text.trim().parse::<u32>().map_or_else(|_| "none".to_owned(), |n| n.to_string());
    let login = if login.trim() == NO_LOGIN { "none".to_owned() } else { number(&login) };
    let sudo = number(&std::env::var("SUDO_UID").unwrap_or_default());
    format!("login={login} sudo={sudo} uid={}", rustix::process::geteuid().as_raw())
}

/// A value as it stands between quotes, in at most `most` bytes. A cut one ends in `...`.
fn cut(value: &str, most: usize) -> String {
    let mut out = String::new();
    for c in value.chars() {
        let mut one = [0; 4];
        let shown = if c == '"' { Cow::Borrowed("\\u{22}") } else { visible::line(c.encode_utf8(&mut one)) };
        if out.len() + shown.len() > most - 3 {
            return out + "...";
        }
        out.push_str(&shown);
    }
    out
}

/// The log's socket. Only a build with debug assertions lets a test name another.
fn socket() -> PathBuf {
    let other = std::env::var_os("VSTEER_LOG_SOCKET").filter(|_| cfg!(debug_assertions));
    other.map_or_else(|| PathBuf::from(SOCKET), PathBuf::from)
}

/// Sends a line, and never waits. A log that does not exist or listen loses the line.
fn send(socket: &Path, level: u8, text: &str) {
    let datagram = format!("<{level}>vsteer[{}]: {text}", std::process::id());
    let _ = UnixDatagram::unbound().and_then(|from| {
        from.set_nonblocking(true)?;
        from.send_to(datagram.as_bytes(), socket)
    });
}

/// Writes why a watchdog cannot roll `journal` back.
pub(crate) fn cannot_roll_back(journal: &Path, fault: &Fault) {
    // One message is one line.
    let why = fault.to_string().replace('\n', ";");
    let text =
        format!("cannot roll back {}: {}", cut(&journal.to_string_lossy(), VALUE_MAX), cut(&why, REASON_MAX));
    send(&socket(), DAEMON_ERROR, &text);
}

#[cfg(test)]
mod tests {
    use super::*;
    use vsteer_core::FaultKind;

    /// A socket that receives what is sent to it.
    fn listening() -> (tempfile::TempDir, PathBuf, UnixDatagram) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let socket = UnixDatagram::bind(&path).unwrap();
        socket.set_nonblocking(true).unwrap();
        (dir, path, socket)
    }

    fn heard(socket: &UnixDatagram) -> Option<String> {
        let mut text = [0; 4096];
        socket.recv(&mut text).ok().map(|n| String::from_utf8_lossy(&text[..n]).into_owned())
    }

    fn changed(vm: &str) -> Changed<'_> {
        Changed { plan: "p1", vm, setting: "weight", of: "CPU weight", old: "100", new: "800" }
    }

    #[test]
    fn a_line_says_who_changed_what_from_which_value_to_which() {
        let (_dir, path, socket) = listening();
        send(&path, NOTICE, &line(By::Apply, &changed("web"), "done", None));
        let text = heard(&socket).unwrap();
        let begin = format!("<85>vsteer[{}]: apply result=done login=", std::process::id());
        assert!(text.starts_with(&begin), "{text}");
        assert!(text.contains(&format!(" uid={} plan=p1 ", rustix::process::geteuid().as_raw())), "{text}");
        let end = r#"vm="web" setting="weight" of="CPU weight" old="100" new="800""#;
        assert!(text.ends_with(end), "{text}");
    }

    #[test]
    fn a_name_forges_neither_a_line_nor_a_field_and_has_a_bound() {
        let forged = "a\" result=done\n<85>vsteer[1]: apply result=done\0\u{202e}";
        let text = line(By::Apply, &changed(forged), "failed", Some(&Fault::new(FaultKind::Failed, forged)));
        assert!(!text.contains(['\n', '\0', '\u{202e}']), "{text}");
        assert_eq!(text.matches("vm=\"").count(), 1);
        assert!(text.contains(r#"vm="a\u{22} result=done\u{a}<85>vsteer"#), "{text}");
        // Two quotes for each of six values: none of them comes from the name.
        assert_eq!(text.matches('"').count(), 12, "{text}");
        let long = "\u{202e}".repeat(100_000);
        let all = Changed { plan: &long, vm: &long, setting: "x", of: &long, old: &long, new: &long };
        let text = line(By::SteeringWatchdog, &all, "failed", Some(&Fault::new(FaultKind::Failed, &long)));
        assert!(text.len() < 1000, "{} bytes", text.len());
    }

    #[test]
    fn a_full_or_missing_log_neither_blocks_nor_fails() {
        let (dir, path, socket) = listening();
        let begin = std::time::Instant::now();
        // More than any queue of datagrams holds.
        for _ in 0..2_000 {
            send(&path, NOTICE, "x");
        }
        send(&dir.path().join("none"), NOTICE, "x");
        assert!(begin.elapsed().as_secs() < 5);
        assert!(heard(&socket).unwrap().ends_with(": x"));
    }

    #[test]
    fn a_failed_rollback_is_one_line() {
        let fault = Fault::new(FaultKind::Failed, "asking libvirt").because("refused").help("start it");
        let why = fault.to_string().replace('\n', ";");
        assert!(cut(&why, REASON_MAX).contains("start it"), "{why}");
        assert!(!cut("a\nb", REASON_MAX).contains('\n'));
    }
}
