//! Does vsteer observe other hosts over a real ssh, and leave nothing there?
//!
//! The other hosts are this one, by an sshd on loopback with keys of its own. The `ssh` that vsteer calls is a script that
//! gives the real one a configuration with that port. The sshd runs in a mount namespace, so nothing is written to `/run`
//! here. Ignored by default: it needs root (sshd, eBPF, mounts), Debian's `openssh-server` and QEMU:
//! `cargo test -p vsteer --test over_ssh -- --ignored`.
//!
//! Left out: a machine that is really another. Old and hostile agents are scripts in vsteer-host (`remote/tests.rs`).

#[path = "common/program.rs"]
mod program;
#[path = "common/qemu.rs"]
#[allow(dead_code)] // The other tests also run vsteer as another user.
mod qemu;

use program::{NO_CONFIG, VSTEER};
use qemu::Qemu;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// An sshd under several names: `one`, `two`; `looking`, whose key may only look; `wrong`, whose key is another;
/// `flipped`, to which bytes arrive changed.
struct Hosts {
    dir: tempfile::TempDir,
    sshd: Child,
    vm: Qemu,
}

fn script(path: &Path, text: &str) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::write(path, format!("#!/bin/sh\n{text}\n")).unwrap();
    std::fs::set_permissions(path, PermissionsExt::from_mode(0o755)).unwrap();
}

impl Hosts {
    fn start(test: &str) -> Hosts {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name).to_string_lossy().into_owned();
        let text = |name: &str| std::fs::read_to_string(at(name)).unwrap();
        for key in ["host", "other", "user", "looker"] {
            let made =
                Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f", &at(key)]).status();
            assert!(made.unwrap().success());
        }
        // Free a moment ago: another program that takes it meanwhile makes the test fail, not pass.
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let keys = format!("{}command=\"{VSTEER} agent\",restrict {}", text("user.pub"), text("looker.pub"));
        std::fs::write(at("keys"), keys).unwrap();
        std::fs::create_dir(at("installed")).unwrap();
        let daemon = format!(
            "Port {port}\nListenAddress 127.0.0.1\nHostKey {}\nAuthorizedKeysFile {}\nPidFile none\nStrictModes no\nUsePAM no\n\
             PasswordAuthentication no\nPermitRootLogin prohibit-password\nSetEnv PATH={}:/usr/bin:/bin\n",
            at("host"),
            at("keys"),
            at("installed")
        );
        let known = |key: &str| format!("[127.0.0.1]:{port} {}", text(key));
        std::fs::write(at("known"), known("host.pub")).unwrap();
        std::fs::write(at("unknown"), known("other.pub")).unwrap();
        let client = format!(
            "Host wrong\n  UserKnownHostsFile {}\nHost looking\n  IdentityFile {}\nHost *\n  HostName 127.0.0.1\n  User root\n  Port {port}\n  \
             IdentityFile {}\n  IdentitiesOnly yes\n  UserKnownHostsFile {}\n  GlobalKnownHostsFile none\n",
            at("unknown"),
            at("looker"),
            at("user"),
            at("known")
        );
        std::fs::write(at("sshd_config"), daemon).unwrap();
        std::fs::write(at("ssh_config"), client).unwrap();
        std::fs::create_dir(at("bin")).unwrap();
        let real = format!("/usr/bin/ssh -F {}", at("ssh_config"));
        // The real ssh takes this script's place, so vsteer sees when it ends.
        let fifo = at("fifo");
        let flip = format!(
            "exec 3<&0; mkfifo {fifo}; {{ head -c 100 | tr '\\000-\\377' x; cat; }} <&3 >{fifo} & exec {real} \"$@\" <{fifo}"
        );
        script(
            &dir.path().join("bin/ssh"),
            &format!("case \"$*\" in *'-- flipped '*) {flip};; *) exec {real} \"$@\";; esac"),
        );
        let inside = format!(
            "set -e; mount -t tmpfs none /run; mkdir -p /run/sshd; exec /usr/sbin/sshd -D -e -f {}",
            at("sshd_config")
        );
        let sshd = Command::new("unshare")
            .args(["--mount", "--propagation", "private", "--", "/bin/sh", "-c", &inside])
            .stderr(std::fs::File::create(at("sshd.log")).unwrap())
            .spawn()
            .expect("util-linux's unshare");
        let hosts = Hosts { vm: Qemu::busy(test, dir.path()), dir, sshd };
        let begun = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            let log = std::fs::read_to_string(hosts.path("sshd.log")).unwrap_or_default();
            assert!(begun.elapsed() < Duration::from_secs(30), "no sshd (root? openssh-server?): {log}");
            std::thread::sleep(Duration::from_millis(50));
        }
        hosts
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn install(&self) {
        symlink(VSTEER, self.path("installed/vsteer")).unwrap();
    }

    /// The firmware sleeps now and then. After it, the first vCPU is never asleep.
    fn wait_until_busy(&self) {
        let tasks = || std::fs::read_dir(format!("/proc/{}/task", self.vm.pid())).unwrap().flatten();
        let runs = || {
            let stats = tasks().filter_map(|t| std::fs::read_to_string(t.path().join("stat")).ok());
            stats.filter(|s| s.contains("(CPU 0/TCG) R ")).count() == 1
        };
        let (begun, mut busy) = (Instant::now(), 0);
        while busy < 40 {
            busy = if runs() { busy + 1 } else { 0 };
            assert!(begun.elapsed() < Duration::from_secs(60), "the VM has not booted its sector");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn command(&self, program: &str, words: &[&str]) -> Command {
        let mut c = Command::new(program);
        let path = format!("{}:{}", self.path("bin").display(), std::env::var("PATH").unwrap_or_default());
        c.current_dir(self.dir.path())
            .env("VSTEER_STATE", self.path("state"))
            .env("PATH", path)
            .env(NO_CONFIG.0, NO_CONFIG.1);
        c.args(words).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        c
    }

    /// `vsteer COMMAND`, of this test's VM alone.
    fn vsteer(&self, line: &str) -> Command {
        let words: Vec<&str> = line.split_whitespace().chain(["--vm", &self.vm.name]).collect();
        self.command(VSTEER, &words)
    }

    fn run(&self, line: &str) -> Output {
        self.vsteer(line).output().unwrap()
    }

    /// Must succeed; what it printed.
    fn done(&self, line: &str) -> String {
        let done = self.run(line);
        assert!(done.status.success(), "{line}: {}", said(&done));
        String::from_utf8(done.stdout).unwrap()
    }

    /// Must fail with this code; what it said.
    fn refused(&self, line: &str, code: i32) -> String {
        let done = self.run(line);
        assert_eq!(done.status.code(), Some(code), "{line}: {}", said(&done));
        String::from_utf8_lossy(&done.stderr).into_owned()
    }

    /// Agents of this test's sshd.
    fn agents(&self) -> Vec<u32> {
        let processes = std::fs::read_dir("/proc").unwrap().flatten();
        let is_one = |pid: &u32| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let words: Vec<&[u8]> = line.split(|b| *b == 0).collect();
            let environ = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            let folder = self.path("installed").to_string_lossy().into_owned().into_bytes();
            words.len() == 3 && words[1] == b"agent" && environ.windows(folder.len()).any(|w| w == folder)
        };
        processes.filter_map(|p| p.file_name().to_str()?.parse().ok()).filter(is_one).collect()
    }

    fn no_agent_within(&self, limit: Duration) {
        let begun = Instant::now();
        while !self.agents().is_empty() {
            assert!(begun.elapsed() < limit, "agents {:?} still run", self.agents());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Starts it, and waits until its agent counts.
    fn started(&self, line: &str, rows: &str) -> Child {
        let to = self.path("rows");
        let mut c = self.vsteer(line);
        let child = c.stdout(std::fs::File::create(&to).unwrap()).stderr(Stdio::null()).spawn().unwrap();
        let begun = Instant::now();
        while !std::fs::read_to_string(&to).unwrap_or_default().contains(rows) {
            assert!(begun.elapsed() < Duration::from_secs(60), "{line}: no rows");
            std::thread::sleep(Duration::from_millis(50));
        }
        child
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        let _ = self.sshd.kill();
        let _ = self.sshd.wait();
    }
}

fn said(done: &Output) -> String {
    String::from_utf8_lossy(&done.stdout).into_owned() + &String::from_utf8_lossy(&done.stderr)
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}: {text}"))
}

/// Files that a copy could have left.
fn leftovers() -> Vec<PathBuf> {
    let folders = ["/dev/shm", "/var/tmp", "/tmp", "/root"].map(std::fs::read_dir);
    let files = folders.into_iter().flatten().flatten().flatten().map(|e| e.path());
    let is_one = |p: &PathBuf| {
        let name = p.file_name().unwrap().to_string_lossy();
        name.starts_with("vsteer.") && p.is_file()
    };
    files.filter(is_one).collect()
}

#[test]
#[ignore = "needs root, openssh-server and QEMU"]
fn another_host_is_measured_as_this_one_is() {
    let hosts = Hosts::start("measured");
    hosts.install();
    hosts.wait_until_busy();
    for collector in ["ebpf", "schedstat"] {
        let line = format!("diagnose --json --for 4s --collector {collector}");
        let far = hosts.vsteer(&format!("{line} --connect ssh://root@one")).spawn().unwrap();
        let here = json(&hosts.done(&line));
        let far = far.wait_with_output().unwrap();
        assert!(far.status.success(), "{}", said(&far));
        let far = json(&String::from_utf8(far.stdout).unwrap());
        assert_eq!(far["model"]["collector"], collector);
        let (a, b) = (&here["model"]["vms"][0], &far["model"]["vms"][0]);
        assert_eq!(a["id"], b["id"]);
        let of =
            |vm: &Value, what: &str| vm["vcpus"][what].as_f64().unwrap_or_else(|| panic!("{what}: {vm}"));
        let shares = |vm: &Value| (of(vm, "run"), of(vm, "wait"));
        let ((run, wait), (far_run, far_wait)) = (shares(a), shares(b));
        // They do not begin at the same moment, but the first vCPU is never asleep.
        assert!(run > 0.1 && (run - far_run).abs() < 0.25, "{collector}: run here {run}, there {far_run}");
        let (sum, far_sum) = (run + wait, far_run + far_wait);
        assert!((sum - far_sum).abs() < 0.05, "{collector}: not asleep here {sum}, there {far_sum}");
    }
    let node = hosts.done("plan --for 1s -o plan.json --connect ssh://one");
    assert!(node.contains("plan") || node.contains("no "), "{node}");
    let parent = json(&std::fs::read_to_string(hosts.path("plan.json")).unwrap());
    assert_eq!(parent["parent"]["vms"][0]["name"], hosts.vm.name.as_str());
}

#[test]
#[ignore = "needs root, openssh-server and QEMU"]
fn a_key_for_looking_only_looks() {
    let hosts = Hosts::start("looking");
    let rows = hosts.done("top -b -n 1 -i 300ms --connect ssh://looking");
    assert!(rows.contains(&hosts.vm.name), "{rows}");
    let marker = hosts.path("marker");
    let touch = format!("touch {}", marker.display());
    let mut ssh = hosts.command("ssh", &["looking", &touch]);
    let done = ssh.output().unwrap();
    assert!(said(&done).starts_with("{\"vsteer_agent\""), "{}", said(&done));
    assert!(!marker.exists());
    let noted = hosts.run("top -b -n 1 -i 300ms --copy-vsteer --connect ssh://looking");
    assert!(noted.status.success() && said(&noted).contains("did not copy vsteer"), "{}", said(&noted));
}

#[test]
#[ignore = "needs root, openssh-server and QEMU"]
fn hosts_that_are_unknown_gone_or_without_vsteer_are_named() {
    let hosts = Hosts::start("refused");
    let line = "top -b -n 1 --connect";
    let text = hosts.refused(&format!("{line} ssh://wrong"), 1);
    assert!(text.contains("ssh does not trust the key of wrong") && text.contains("help:"), "{text}");
    let text = hosts.refused(&format!("{line} ssh://one:1"), 3);
    assert!(text.contains("ssh cannot reach one") && text.contains("Connection refused"), "{text}");
    let text = hosts.refused(&format!("{line} ssh://one"), 3);
    assert!(text.contains("vsteer is not installed on one") && text.contains("--copy-vsteer"), "{text}");
    script(&hosts.path("installed/vsteer"), "echo Welcome");
    let text = hosts.refused(&format!("{line} ssh://one"), 6);
    assert!(text.contains("Welcome") && text.contains("login shell prints nothing"), "{text}");
}

#[test]
#[ignore = "needs root, openssh-server and QEMU"]
fn a_copy_runs_and_leaves_nothing_even_when_killed() {
    let hosts = Hosts::start("copied");
    let before = leftovers();
    let rows = hosts.run("top -b -n 1 -i 300ms --copy-vsteer --connect ssh://one");
    assert!(rows.status.success(), "{}", said(&rows));
    assert!(said(&rows).contains(&hosts.vm.name) && said(&rows).contains("copied vsteer"), "{}", said(&rows));
    hosts.no_agent_within(Duration::from_secs(5));
    assert_eq!(leftovers(), before);
    let text = hosts.refused("top -b -n 1 --copy-vsteer --connect ssh://flipped", 1);
    assert!(text.contains("cannot copy vsteer to flipped: the copy has another hash"), "{text}");

    let mut running = hosts.started("top -b -i 300ms --copy-vsteer --connect ssh://one", &hosts.vm.name);
    let agents = hosts.agents();
    assert_eq!(agents.len(), 1);
    let exe = std::fs::read_link(format!("/proc/{}/exe", agents[0])).unwrap();
    assert!(exe.to_string_lossy().ends_with(" (deleted)"), "{}", exe.display());
    assert_eq!(leftovers(), before, "not while it runs either");
    // The agent has dropped what counting no longer needs: CAP_SYS_ADMIN is bit 21.
    let status = std::fs::read_to_string(format!("/proc/{}/status", agents[0])).unwrap();
    let held = status.lines().find_map(|l| l.strip_prefix("CapPrm:")).unwrap().trim();
    assert_eq!(u64::from_str_radix(held, 16).unwrap() >> 21 & 1, 0, "{held}");
    running.kill().unwrap();
    running.wait().unwrap();
    hosts.no_agent_within(Duration::from_secs(5));
    assert_eq!(leftovers(), before);
}

#[test]
#[ignore = "needs root, openssh-server and QEMU"]
fn several_hosts_are_one_view_and_one_that_fails_does_not_stop_the_others() {
    let hosts = Hosts::start("several");
    hosts.install();
    let both = "--connect ssh://one --connect ssh://two";
    let rows = hosts.done(&format!("top -b -n 2 -i 300ms {both}"));
    assert!(rows.starts_with("host,unix_ns,vm,thread,"), "{rows}");
    for host in ["one", "two"] {
        let groups = rows.lines().filter(|l| l.starts_with(&format!("{host},")) && l.contains(",group,"));
        assert_eq!(groups.count(), 2, "{host}: {rows}");
    }
    let one = hosts.run(&format!("top -b --json -n 1 -i 300ms {both} --connect ssh://wrong"));
    assert_eq!(one.status.code(), Some(1), "{}", said(&one));
    let lines: Vec<Value> = String::from_utf8_lossy(&one.stdout).lines().map(json).collect();
    let mut names: Vec<&str> = lines.iter().map(|l| l["host"].as_str().unwrap()).collect();
    names.sort_unstable();
    assert_eq!(names, ["one", "two", "wrong"]);
    assert!(lines.iter().all(|l| l["vms"].is_array() != l["fault"].is_object()), "{lines:?}");

    let found = json(&hosts.done(&format!("diagnose --json --for 1s {both}")));
    let worst = |i: usize| found[i]["findings"][0]["loss_pcpus"].as_f64().unwrap_or_default();
    assert!(found.as_array().unwrap().len() == 2 && worst(0) >= worst(1), "{found}");
    let text = hosts.done(&format!("diagnose --for 1s {both}"));
    assert!(text.contains("host one\n") && text.contains("host two\n"), "{text}");

    let recorded = hosts.run(&format!("record -o fleet --for 1s {both} --connect ssh://wrong"));
    assert_eq!(recorded.status.code(), Some(1), "{}", said(&recorded));
    for host in ["one", "two"] {
        let mut replay = hosts.command(VSTEER, &["replay", &format!("fleet/{host}"), "-i", "300ms"]);
        let done = replay.output().unwrap();
        assert!(said(&done).contains(&hosts.vm.name), "{}", said(&done));
    }
    assert!(!hosts.path("fleet/wrong").exists());
}

#[test]
#[ignore = "needs root, openssh-server and QEMU"]
fn ctrl_c_ends_all_within_two_seconds() {
    let hosts = Hosts::start("ended");
    hosts.install();
    for connect in ["--connect ssh://one", "--connect ssh://one --connect ssh://two"] {
        let mut running = hosts.started(&format!("top -b -i 300ms {connect}"), &hosts.vm.name);
        // An agent that does not answer must not hold it up.
        let stopped = hosts.agents()[0];
        kill_process(Pid::from_raw(stopped as i32).unwrap(), Signal::STOP).unwrap();
        std::thread::sleep(Duration::from_millis(600));
        let begun = Instant::now();
        kill_process(Pid::from_child(&running), Signal::INT).unwrap();
        running.wait().unwrap();
        assert!(begun.elapsed() < Duration::from_millis(2500), "{connect}: {:?}", begun.elapsed());
        kill_process(Pid::from_raw(stopped as i32).unwrap(), Signal::CONT).unwrap();
        hosts.no_agent_within(Duration::from_secs(10));
    }
    // Without anything that hangs, a recording is closed as ever.
    let mut recording = hosts.vsteer("record -o r --interval 100ms --connect ssh://one").spawn().unwrap();
    std::thread::sleep(Duration::from_secs(4));
    kill_process(Pid::from_child(&recording), Signal::INT).unwrap();
    assert!(recording.wait().unwrap().success());
    hosts.no_agent_within(Duration::from_secs(5));
}

/// What is refused before any connection.
#[test]
fn what_several_hosts_or_ssh_cannot_do_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let refused = |line: &str| {
        let mut c = Command::new(VSTEER);
        c.args(line.split_whitespace()).current_dir(dir.path()).env("PATH", dir.path()).stdin(Stdio::null());
        let done = c.output().unwrap();
        (done.status.code(), String::from_utf8_lossy(&done.stderr).into_owned())
    };
    let both = "--connect ssh://a --connect ssh://b";
    for (line, code, part) in [
        (format!("plan {both}"), 2, "this command observes one host, but --connect names 2"),
        (format!("numa {both}"), 2, "this command observes one host"),
        (format!("apply plan.json {both}"), 2, "cannot be used multiple times"),
        (format!("rollback {both}"), 2, "cannot be used multiple times"),
        (format!("steer --sla levels.toml {both}"), 2, "cannot be used multiple times"),
        ("top -b --connect ssh://a --connect ssh://a".to_owned(), 2, "is there twice"),
        ("top -b --connect ssh://-oProxyCommand=x".to_owned(), 2, "begins with -"),
        ("top -b --connect ssh://-l@a".to_owned(), 2, "begins with -"),
        ("record -o r --events --connect ssh://a".to_owned(), 2, "--events does not work over ssh"),
        ("top -b --copy-vsteer".to_owned(), 2, "--connect"),
        ("top -b --connect ssh://a".to_owned(), 3, "cannot start ssh to reach a"),
    ] {
        let (got, said) = refused(&line);
        assert!(got == Some(code) && said.contains(part), "{line}: {got:?} {said}");
    }
}
