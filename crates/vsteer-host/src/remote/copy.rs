//! How does vsteer run on a host where it is not installed? It sends itself over the connection that it then uses.
//!
//! A script there makes a private file in the first folder from which programs can be run, opens it, removes its name,
//! and says which machine it runs on. Then it reads exactly the promised number of bytes into the open file, compares
//! the SHA-256 hash, and replaces itself by that file. So the file has a name only for some milliseconds, while it is
//! empty, and nothing stays when the agent ends or is killed.
//!
//! The script needs a POSIX shell, `mktemp`, `head -c` and `sha256sum`, which GNU coreutils and BusyBox have. A login
//! shell reads the line first, so the script is one line without quotes or marks that shells read in different ways.
//!
//! Left out: `vsteer-libvirt`, which needs the libvirt library of that host. GAP(ssh-copy-libvirt): a copied vsteer
//! sees the VMs of libvirt as processes, unless `vsteer-libvirt` is installed there.

use super::link::Link;
use ring::digest::{SHA256, digest};
use std::fmt::Write as _;
use vsteer_core::limits;
use vsteer_core::setting::argv::shell_word;
use vsteer_core::{Fault, FaultKind};

/// Begins the line in which the script names its machine.
const READY: &str = "ready ";

/// `$1`: the number of bytes; `$2`: their hash. Folders in memory come first: nothing of them reaches a disk.
const SCRIPT: &str = concat!(
    "umask 077; size=$1; sum=$2; f=; ",
    "for p in mktemp head sha256sum; do ",
    "command -v $p >/dev/null || { echo \"$p is not installed\" >&2; exit 92; }; done; ",
    "for d in \"$XDG_RUNTIME_DIR\" /dev/shm /var/tmp /tmp \"$HOME\"; do ",
    "test -n \"$d\" || continue; ",
    "f=$(mktemp \"$d/vsteer.XXXXXXXXXX\" 2>/dev/null) || { f=; continue; }; ",
    "trap \"rm -f \\\"$f\\\"\" EXIT; trap \"exit 1\" HUP INT TERM; ",
    "printf \"#\\041/bin/sh\\nexit 0\\n\" >\"$f\"; chmod 700 \"$f\"; ",
    "\"$f\" 2>/dev/null && break; ",
    "rm -f \"$f\"; f=; done; ",
    "test -n \"$f\" || { echo \"no folder from which programs can be run\" >&2; exit 90; }; ",
    "exec 8>\"$f\" 9<\"$f\"; rm -f \"$f\"; trap - EXIT HUP INT TERM; ",
    "echo \"ready $(uname -m)\"; ",
    "head -c \"$size\" >&8; exec 8>&-; ",
    "got=$(sha256sum <&9); ",
    "test \"${got%% *}\" = \"$sum\" || { echo \"the copy has another hash\" >&2; exit 91; }; ",
    "exec /proc/self/fd/9 agent",
);

/// This program, to be sent.
pub struct Copy {
    bytes: Vec<u8>,
    hash: String,
}

impl Copy {
    /// Reads the program that runs, also if its file was replaced since.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn of_this_program() -> Result<Copy, Fault> {
        let read = std::fs::read("/proc/self/exe");
        let bytes = read.map_err(|e| Fault::io("cannot read vsteer's own program to copy it", &e))?;
        Ok(Copy::of(bytes))
    }

    fn of(bytes: Vec<u8>) -> Copy {
        let hash = digest(&SHA256, &bytes).as_ref().iter().fold(String::new(), |mut hash, b| {
            let _ = write!(hash, "{b:02x}");
            hash
        });
        Copy { bytes, hash }
    }

    /// The command line that receives it.
    pub fn command(&self) -> String {
        format!("exec sh -c {} vsteer {} {}", shell_word(SCRIPT), self.bytes.len(), self.hash)
    }

    /// Its size in words.
    pub fn size(&self) -> String {
        format!("{:.1} MB", self.bytes.len() as f64 / 1e6)
    }

    /// Sends it, and returns the agent's first line. A key that allows one command only ignores the script: then the
    /// first line comes without a copy, and `false`.
    ///
    /// # Errors
    /// `Unsupported` for another machine type, before anything is sent; as [`Link::line`].
    pub fn send(&self, link: &mut Link) -> Result<(Vec<u8>, bool), Fault> {
        let first = link.line(limits::AGENT_HELLO, limits::AGENT_LOGIN_TIME)?;
        let text = String::from_utf8_lossy(&first).into_owned();
        let Some(machine) = text.strip_prefix(READY) else { return Ok((first, false)) };
        let (machine, here) = (machine.trim(), rustix::system::uname());
        let here = here.machine().to_string_lossy();
        if machine != here {
            return Err(Fault::new(FaultKind::Unsupported, format!("cannot copy vsteer to {}", link.host()))
                .because(format!("that host is of type {machine:?}, and this vsteer is for {here}"))
                .help("install vsteer there"));
        }
        link.not_reached();
        link.send(&self.bytes, limits::AGENT_COPY_TIME)?;
        Ok((link.line(limits::AGENT_HELLO, limits::AGENT_LOGIN_TIME)?, true))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::remote::link::{NO_FOLDER, NO_PROGRAM, WRONG_HASH};
    use std::io::{BufRead, BufReader, Read, Write};
    use std::process::{Command, Stdio};

    /// Runs the line as a login shell there would. What it printed after its first line, its errors and its code.
    fn received(copy: &Copy, sent: &[u8], folder: &std::path::Path) -> (String, String, Option<i32>) {
        let mut child = Command::new("sh")
            .args(["-c", &copy.command()])
            .env("XDG_RUNTIME_DIR", folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut first = String::new();
        out.read_line(&mut first).unwrap();
        assert_eq!(first.trim(), format!("ready {}", rustix::system::uname().machine().to_string_lossy()));
        assert_eq!(
            std::fs::read_dir(folder).unwrap().count(),
            0,
            "the file has no name while it is received"
        );
        let mut input = child.stdin.take().unwrap();
        let _ = input.write_all(sent);
        drop(input);
        let mut said = String::new();
        out.read_to_string(&mut said).unwrap();
        let done = child.wait_with_output().unwrap();
        (said, String::from_utf8_lossy(&done.stderr).into_owned(), done.status.code())
    }

    #[test]
    fn what_is_sent_runs_if_its_hash_is_right() {
        let folder = tempfile::tempdir().unwrap();
        let copy = Copy::of(b"#!/bin/sh\necho \"ran $1\"; ls /proc/$$/fd >/dev/null\n".to_vec());
        let (said, errors, code) = received(&copy, &copy.bytes, folder.path());
        assert_eq!((said.as_str(), code), ("ran agent\n", Some(0)), "{errors}");
        let mut wrong = copy.bytes.clone();
        wrong[12] ^= 1;
        for sent in [&wrong[..], &copy.bytes[..20]] {
            let (said, errors, code) = received(&copy, sent, folder.path());
            assert_eq!((said.as_str(), code), ("", Some(WRONG_HASH)));
            assert!(errors.contains("another hash"), "{errors}");
        }
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn another_machine_type_is_refused_before_anything_is_sent() {
        let dir = tempfile::tempdir().unwrap();
        let got = dir.path().join("got");
        let mut program = Command::new("sh");
        program.args(["-c", &format!("echo ready riscv32; cat >{}", got.display())]);
        let mut link = Link::run(program, "far").unwrap();
        let fault = Copy::of(vec![7; 1000]).send(&mut link).unwrap_err();
        assert_eq!(fault.kind, FaultKind::Unsupported);
        assert!(fault.to_string().contains("riscv32") && fault.to_string().contains("install vsteer there"));
        drop(link);
        let sent = std::fs::read(got).unwrap_or_default();
        assert!(!sent.contains(&7), "{} bytes", sent.len());
    }

    #[test]
    fn the_script_has_nothing_that_login_shells_read_in_their_own_way() {
        assert!(!SCRIPT.contains(['\'', '!', '\n']));
        for code in [NO_FOLDER, WRONG_HASH, NO_PROGRAM] {
            assert!(SCRIPT.contains(&format!("exit {code}")));
        }
    }
}
