//! Boots a copy of the image, and runs commands in it as a person would: over ssh.
//!
//! The host reaches no network; only this machine reaches its ssh. A power cut kills QEMU; what the host's kernel had not
//! written is lost, as on a real machine.

use super::image::Image;
use crate::command::{self, Finished};
use crate::files::{make_folder, write_file};
use crate::interrupt;
use std::collections::BTreeMap;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use vsteer_core::{Fault, FaultKind};

/// From the start of QEMU to the end of systemd's start. Mostly it takes two minutes; a shared machine can be four times as slow.
const BOOT_LIMIT: Duration = Duration::from_secs(900);
const TRY_AGAIN: Duration = Duration::from_millis(500);
/// Until a connection stands. An emulated host beside other cases needs many seconds for its keys.
const CONNECTS_WITHIN: Duration = Duration::from_secs(180);
/// The same while the host may still boot, when it is asked again and again.
const ANSWERS_WITHIN: Duration = Duration::from_secs(5);
/// ssh's exit code when the connection fails.
const SSH_FAILED: i32 = 255;

/// A host that runs until this value is dropped.
pub struct Host {
    image: Image,
    disk: PathBuf,
    folder: PathBuf,
    port: u16,
    qemu: Child,
}

/// What a command did.
#[derive(Debug)]
pub struct Ran {
    /// `None`: killed at its time limit.
    pub code: Option<i32>,
    /// Both outputs, trimmed.
    pub out: String,
    pub err: String,
}

impl Ran {
    pub fn is_ok(&self) -> bool {
        self.code == Some(0)
    }

    /// One line about it, for what was found.
    pub fn told(&self) -> String {
        let last = |text: &str| {
            text.lines().rev().take(3).collect::<Vec<_>>().into_iter().rev().collect::<Vec<_>>().join(" / ")
        };
        let all: Vec<String> =
            [&self.out, &self.err].map(|t| last(t)).into_iter().filter(|t| !t.is_empty()).collect();
        format!(
            "exit {}: {}",
            self.code.map_or("by the limit".to_owned(), |c| c.to_string()),
            all.join(" | ")
        )
    }
}

impl Host {
    /// Boots a fresh copy of the image in `folder`, and waits until systemd has started everything.
    ///
    /// # Errors
    /// QEMU does not start, or the host does not answer in time.
    pub fn boot(image: &Image, folder: &Path) -> Result<Host, Fault> {
        make_folder(folder)?;
        let disk = folder.join("disk.ext4");
        let mut copy = Command::new("cp");
        copy.args(["--sparse=always", "--reflink=auto"]).arg(&image.disk).arg(&disk);
        command::output(&mut copy, BOOT_LIMIT)?;
        // Free now; QEMU takes it in a moment.
        let listener =
            TcpListener::bind("127.0.0.1:0").map_err(|e| Fault::io("looking for a free port", &e))?;
        let port = listener.local_addr().map_err(|e| Fault::io("looking for a free port", &e))?.port();
        drop(listener);
        let qemu = start(image, &disk, folder, port)?;
        let host = Host { image: image.clone(), disk, folder: folder.to_owned(), port, qemu };
        host.wait_until_up()?;
        Ok(host)
    }

    /// Runs a command as this user.
    ///
    /// # Errors
    /// If ssh cannot be started or connected, or the person interrupts.
    pub fn run_as(&self, user: &str, script: &str, limit: Duration) -> Result<Ran, Fault> {
        let ran = self.try_as(user, script, limit, CONNECTS_WITHIN)?;
        if ran.code == Some(SSH_FAILED) {
            let console = self.folder.join("console");
            let last = std::fs::read(&console).unwrap_or_default();
            let last = String::from_utf8_lossy(&last[last.len().saturating_sub(600)..]).into_owned();
            let what = format!("ssh to the host as {user} failed before or during `{}`", script.trim());
            return Err(Fault::new(FaultKind::NothingThere, what).because(format!(
                "{}; its console ends with: {}",
                ran.told(),
                last.trim()
            )));
        }
        Ok(ran)
    }

    fn try_as(&self, user: &str, script: &str, limit: Duration, connects: Duration) -> Result<Ran, Fault> {
        let mut ssh = Command::new("ssh");
        ssh.args(self.options("-p", connects)).arg(format!("{user}@127.0.0.1")).arg(script);
        ssh.current_dir(&self.folder);
        let Finished { status, stdout, stderr } = command::run(&mut ssh, limit)?;
        let trimmed = |text: String| text.trim().to_owned();
        Ok(Ran { code: status.and_then(|s| s.code()), out: trimmed(stdout), err: trimmed(stderr) })
    }

    /// Runs a command as root, for at most two minutes.
    ///
    /// # Errors
    /// As [`Host::run_as`].
    pub fn run(&self, script: &str) -> Result<Ran, Fault> {
        self.run_as("root", script, Duration::from_secs(120))
    }

    /// Copies a file into the host, readable for everybody.
    ///
    /// # Errors
    /// If it cannot be copied.
    pub fn copy(&self, file: &Path, to: &str) -> Result<(), Fault> {
        let mut scp = Command::new("scp");
        let file =
            file.canonicalize().map_err(|e| Fault::io(format!("looking for {}", file.display()), &e))?;
        scp.args(self.options("-P", CONNECTS_WITHIN))
            .arg(file)
            .arg(format!("root@127.0.0.1:{to}"))
            .current_dir(&self.folder);
        command::output(&mut scp, BOOT_LIMIT)?;
        self.run(&format!("chmod 644 {to}")).map(|_| ())
    }

    /// Writes an `ssh` for this machine that knows the host's keys and the key to log in, as a person's `~/.ssh` would,
    /// and nothing else. The folder to put before PATH.
    ///
    /// # Errors
    /// If the host does not tell its keys, or nothing can be written.
    pub fn ssh_for_others(&self) -> Result<PathBuf, Fault> {
        let folder = self.folder.join("bin");
        make_folder(&folder)?;
        let keys = self.run("cat /etc/ssh/ssh_host_*_key.pub")?.out;
        let of_host = |key: &str| format!("[127.0.0.1]:{} {key}\n", self.port);
        write_file(&folder.join("known"), keys.lines().map(of_host).collect::<String>())?;
        let ssh = folder.join("ssh");
        let (key, known) = (self.image.key.display(), folder.join("known"));
        let known = known.display();
        write_file(
            &ssh,
            format!("#!/bin/sh\nexec /usr/bin/ssh -F none -i {key} -o UserKnownHostsFile={known} \"$@\"\n"),
        )?;
        let mode = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(&ssh, mode)
            .map_err(|e| Fault::io(format!("writing {}", ssh.display()), &e))?;
        Ok(folder)
    }

    /// How long each of QEMU's threads waited for this machine's pCPUs so far, ns.
    ///
    /// # Errors
    /// QEMU has ended.
    pub fn waited_ns(&self) -> Result<BTreeMap<i32, f64>, Fault> {
        crate::process::waited_ns(self.qemu.id().cast_signed())
    }

    /// Where its ssh is, for URIs.
    pub fn at(&self) -> String {
        format!("root@127.0.0.1:{}", self.port)
    }

    fn options(&self, port: &str, connects: Duration) -> Vec<String> {
        let mut words = vec!["-q".to_owned(), port.to_owned(), self.port.to_string()];
        words.extend(["-i".to_owned(), self.image.key.display().to_string()]);
        // One connection per user: an emulated host needs a second for the keys of each. A relative path, because a
        // socket's is short.
        for option in [
            "StrictHostKeyChecking=no",
            "UserKnownHostsFile=/dev/null",
            "BatchMode=yes",
            &format!("ConnectTimeout={}", connects.as_secs()),
            "ControlMaster=auto",
            "ControlPath=ssh-%r",
            "ControlPersist=600",
        ] {
            words.extend(["-o".to_owned(), option.to_owned()]);
        }
        words
    }

    fn wait_until_up(&self) -> Result<(), Fault> {
        let end = Instant::now() + BOOT_LIMIT;
        while Instant::now() < end {
            interrupt::check()?;
            let limit = Duration::from_secs(120);
            let state = self.try_as("root", "systemctl is-system-running --wait", limit, ANSWERS_WITHIN)?;
            if ["running", "degraded"].contains(&state.out.as_str()) {
                return Ok(());
            }
            std::thread::sleep(TRY_AGAIN);
        }
        let console = self.folder.join("console");
        Err(Fault::new(
            FaultKind::NothingThere,
            format!("the host did not start in {} s", BOOT_LIMIT.as_secs()),
        )
        .help(format!("see its console: {}", console.display())))
    }

    /// Reboots it, and waits until it is up again.
    ///
    /// # Errors
    /// As [`Host::boot`].
    pub fn reboot(&mut self) -> Result<(), Fault> {
        let boot = "cat /proc/sys/kernel/random/boot_id";
        let before = self.run(boot)?.out;
        // The reboot may close the connection before the command's end.
        self.try_as("root", "systemctl reboot", ANSWERS_WITHIN, ANSWERS_WITHIN)?;
        self.disconnect();
        let end = Instant::now() + BOOT_LIMIT;
        while Instant::now() < end {
            interrupt::check()?;
            let now = self.try_as("root", boot, Duration::from_secs(10), ANSWERS_WITHIN)?;
            if now.is_ok() && now.out != before {
                return self.wait_until_up();
            }
            std::thread::sleep(TRY_AGAIN);
        }
        Err(Fault::new(FaultKind::NothingThere, "the host did not reboot"))
    }

    /// Cuts the power, and boots it again.
    ///
    /// # Errors
    /// As [`Host::boot`].
    pub fn power_cut(&mut self) -> Result<(), Fault> {
        self.off();
        self.qemu = start(&self.image, &self.disk, &self.folder, self.port)?;
        self.wait_until_up()
    }

    /// Ends the connections, so that the next command makes a new one.
    fn disconnect(&self) {
        for user in ["root", "admin", "vmadmin", "plain"] {
            let mut ssh = Command::new("ssh");
            ssh.args(["-o", "ControlPath=ssh-%r", "-O", "exit", &format!("{user}@127.0.0.1")]);
            // It fails for a user without a connection.
            let _ = command::run(ssh.current_dir(&self.folder), Duration::from_secs(5));
        }
    }

    fn off(&mut self) {
        self.disconnect();
        let _ = self.qemu.kill();
        let _ = self.qemu.wait();
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.off();
        let _ = std::fs::remove_file(&self.disk);
    }
}

fn start(image: &Image, disk: &Path, folder: &Path, port: u16) -> Result<Child, Fault> {
    let mut qemu = Command::new("qemu-system-x86_64");
    qemu.args([
        "-accel",
        "tcg,thread=multi",
        "-cpu",
        "EPYC,+svm,+npt,-rdrand,-monitor",
        "-smp",
        "2",
        "-m",
        "2G",
    ]);
    qemu.args(["-nodefaults", "-no-user-config", "-display", "none", "-device", "virtio-rng-pci"]);
    qemu.arg("-serial").arg(format!("file:{}", folder.join("console").display()));
    // A power cut kills QEMU and not this machine: what the host flushed is in this machine's memory then, and need not
    // reach its disk.
    qemu.arg("-drive")
        .arg(format!("if=virtio,file={},format=raw,cache=unsafe,discard=unmap", disk.display()));
    qemu.arg("-netdev").arg(format!("user,id=n,restrict=on,hostfwd=tcp:127.0.0.1:{port}-:22"));
    qemu.args(["-device", "virtio-net-pci,netdev=n,romfile="]);
    qemu.arg("-kernel").arg(&image.kernel).arg("-initrd").arg(&image.initrd);
    qemu.args(["-append", "root=/dev/vda rw console=ttyS0 nokaslr mitigations=off"]);
    let log = std::fs::File::create(folder.join("qemu")).map_err(|e| Fault::io("creating QEMU's log", &e))?;
    qemu.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
    qemu.spawn().map_err(|e| Fault::io("starting qemu-system-x86_64", &e))
}
