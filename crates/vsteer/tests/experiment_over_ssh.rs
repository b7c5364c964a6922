//! Is what was better kept on another machine, and taken back there, over ssh?
//!
//! The other machine is this one behind a real sshd of its own: own port, own keys in a folder of the test's, ended by the test; the `ssh` that vsteer calls is a script
//! that gives the real one a configuration with that port and key. The sshd runs in a mount namespace in which `/etc` is a copy, `/proc/sys/vm/swappiness` a file
//! of the test's, and `/boot` and `/usr/sbin` hold stand-ins for update-grub and tuned-adm alone, so that what is changed there is not this machine's, and what is
//! changed here would be seen.
//! Ignored by default: it needs root (mounts; sshd in a namespace) and Debian's `openssh-server`: `cargo test -p vsteer --test experiment_over_ssh -- --ignored`.
//!
//! Left out: a machine that is really another, with its own tuned and boot loader.

#[path = "common/program.rs"]
mod program;

use serde_json::{Value, json};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// A folder with an sshd, and what vsteer writes.
struct Machine {
    dir: tempfile::TempDir,
    sshd: Child,
}

const GRUB: &str = "GRUB_TIMEOUT=5\nGRUB_CMDLINE_LINUX_DEFAULT=\"quiet it's\"\n";
/// Its two commands that are used; of a profile it applies one sysctl.
const TUNED_ADM: &str = r#"a=/etc/tuned/active_profile
case "$1" in
active) echo "Current active profile: $(cat $a)";;
profile) echo "$2" > $a; v=$(sed -n 's/^vm.swappiness=//p' "/etc/tuned/$2/tuned.conf" 2>/dev/null); echo "${v:-60}" > /proc/sys/vm/swappiness;;
esac"#;
const WORD: &str = "amd_pstate=active";

fn succeed(command: &mut Command) -> String {
    let done = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    assert!(done.status.success(), "{command:?}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8_lossy(&done.stdout).into_owned()
}

fn script(path: &Path, text: &str) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::write(path, format!("#!/bin/sh\n{text}\n")).unwrap();
    std::fs::set_permissions(path, PermissionsExt::from_mode(0o755)).unwrap();
}

impl Machine {
    fn start() -> Machine {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name).to_string_lossy().into_owned();
        for key in ["host", "user"] {
            succeed(Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f", &at(key)]));
        }
        // Free a moment ago: another program that takes it meanwhile makes the test fail, not pass.
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let daemon = format!(
            "Port {port}\nListenAddress 127.0.0.1\nHostKey {}\nAuthorizedKeysFile {}\nPidFile none\nStrictModes no\nUsePAM no\n\
             PasswordAuthentication no\nPermitRootLogin prohibit-password\n",
            at("host"),
            at("user.pub")
        );
        let client = format!(
            "Host other\n  HostName 127.0.0.1\n  Port {port}\n  IdentityFile {}\n  IdentitiesOnly yes\n  UserKnownHostsFile {}\n  \
             StrictHostKeyChecking accept-new\n  LogLevel ERROR\n",
            at("user"),
            at("known")
        );
        std::fs::write(at("sshd_config"), daemon).unwrap();
        std::fs::write(at("ssh_config"), client).unwrap();
        std::fs::create_dir(at("bin")).unwrap();
        script(&dir.path().join("bin/ssh"), &format!("exec /usr/bin/ssh -F {} \"$@\"", at("ssh_config")));
        std::fs::write(at("default-grub"), GRUB).unwrap();
        let update = ". /etc/default/grub; echo \"linux /vmlinuz ro $GRUB_CMDLINE_LINUX_DEFAULT\" > /boot/grub/grub.cfg";
        script(&dir.path().join("update-grub"), update);
        script(&dir.path().join("tuned-adm"), TUNED_ADM);
        std::fs::write(at("swappiness"), "60\n").unwrap();
        // sshd starts itself anew for each connection, from where it was started.
        std::fs::copy("/usr/sbin/sshd", at("sshd")).unwrap();
        let inside = format!(
            "set -e; cp -a /etc {0}/etc; mount --bind {0}/etc /etc; mount --bind {0}/swappiness /proc/sys/vm/swappiness\n\
             for d in /boot /usr/sbin /run; do mount -t tmpfs none $d; done\n\
             mkdir -p /run/sshd /etc/default /boot/grub /etc/tuned; rm -rf /etc/default/grub.d; cp -p {0}/update-grub {0}/tuned-adm /usr/sbin\n\
             cp -p {0}/default-grub /etc/default/grub; echo virtual-host > /etc/tuned/active_profile; update-grub\n\
             exec {0}/sshd -D -e -f {0}/sshd_config",
            dir.path().display()
        );
        let sshd = Command::new("unshare")
            .args(["--mount", "--propagation", "private", "--", "/bin/sh", "-c", &inside])
            .stderr(std::fs::File::create(at("sshd.log")).unwrap())
            .spawn()
            .expect("util-linux's unshare");
        let machine = Machine { dir, sshd };
        let begun = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            let log = std::fs::read_to_string(machine.path("sshd.log")).unwrap_or_default();
            assert!(begun.elapsed() < Duration::from_secs(30), "no sshd (root? openssh-server?): {log}");
            std::thread::sleep(Duration::from_millis(50));
        }
        machine
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn command(&self, program: &str) -> Command {
        let mut c = Command::new(program);
        let path = format!("{}:{}", self.path("bin").display(), std::env::var("PATH").unwrap_or_default());
        c.current_dir(self.dir.path())
            .env(program::NO_CONFIG.0, program::NO_CONFIG.1)
            .env("VSTEER_STATE", self.path("state"))
            .env("PATH", path);
        c.stdin(Stdio::null());
        c
    }

    fn vsteer(&self, words: &[&str]) -> Output {
        self.command(program::VSTEER).args(words).output().unwrap()
    }

    /// Must succeed; what it printed, and said.
    fn done(&self, words: &[&str]) -> String {
        let done = self.vsteer(words);
        let said = String::from_utf8_lossy(&done.stdout) + String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "{words:?}: {said}");
        said.into_owned()
    }

    /// A file's text on the other machine.
    fn there(&self, path: &str) -> String {
        succeed(self.command("ssh").args(["other", &format!("cat {path}")]))
    }

    fn experiment(&self, name: &str, text: &str) {
        std::fs::write(self.path(&format!("{name}.toml")), text).unwrap();
        self.done(&["experiment", "run", &format!("{name}.toml"), "--yes"]);
    }

    /// Makes a plan of what was better in an experiment.
    fn plan(&self, name: &str, text: &str) {
        self.experiment(name, text);
        self.done(&[
            "experiment",
            "report",
            &format!("{name}.experiment"),
            "--plan",
            &format!("{name}.json"),
        ]);
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = self.sshd.kill();
        let _ = self.sshd.wait();
    }
}

/// The head of an experiment, and one factor named `knob` with what else is said of it.
fn experiment(name: &str, command: &str, factor: &str) -> String {
    format!(
        "name = \"{name}\"\ndesign = \"pair\"\n[workload]\ncommand = {{ sh = '''{command}''' }}\n[[factor]]\nname = \"knob\"\nlevels = [\"a\", \"b\"]\n{factor}\n"
    )
}

#[test]
#[ignore = "needs root and openssh-server"]
fn commands_keep_on_another_machine() {
    let m = Machine::start();
    let at = |name: &str| m.path(name).to_string_lossy().into_owned();
    std::fs::write(at("knob"), "found").unwrap();
    // Each says no where it is not run over ssh.
    let remote = "test -n \"$SSH_CONNECTION\"";
    let factor = format!(
        "on = \"other\"\nset = {{ sh = '''{remote} && printf %s {{level}} > {knob}''' }}\nread = {{ sh = '''{remote} && cat {knob}''' }}\n\
         lasting = {{ commands = {{ set = {{ sh = '''{remote} && printf %s '{{level}}' > {kept}''' }}, read = {{ sh = '''{remote} && {{ cat {kept} 2>/dev/null || true; }}''' }} }} }}\n",
        knob = at("knob"),
        kept = at("kept")
    );
    m.plan("e", &experiment("e", "test $(cat knob) = b && sleep 0.02 || sleep 0.12", &factor));
    let shown = m.done(&["apply", "e.json"]);
    assert!(shown.contains("other: knob, kept: \"\" -> \"b\""), "{shown}");
    let now = || ["knob", "kept"].map(|name| std::fs::read_to_string(at(name)).unwrap_or_default());
    m.done(&["apply", "e.json", "--yes"]);
    assert_eq!(now(), ["b", "b"]);
    m.done(&["rollback"]);
    assert_eq!(now(), ["found", ""]);
}

#[test]
#[ignore = "needs root and openssh-server"]
fn a_boot_loader_of_another_machine_keeps_words() {
    let m = Machine::start();
    m.experiment("e", &experiment("e", "test {knob} = b && sleep 0.02 || sleep 0.12", ""));
    // A real log, in which what was varied is called a word of that machine's kernel afterwards: nothing boots here.
    let file = m.path("e.experiment/log.jsonl");
    let text = std::fs::read_to_string(&file).unwrap();
    let (first, rest) = text.split_once('\n').unwrap();
    let mut begun: Value = serde_json::from_str(first).unwrap();
    let of = &mut begun["begun"]["experiment"];
    of["factor"][0]["levels"] = json!(["", WORD]);
    of["factor"][0]["kernel"] = json!(true);
    of["factor"][0]["on"] = json!("other");
    of["boot"] = json!({ "set": "true", "reboot": "true" });
    begun["begun"]["found"] = json!([""]);
    std::fs::write(&file, format!("{begun}\n{rest}")).unwrap();
    m.done(&["experiment", "report", "e.experiment", "--plan", "e.json"]);
    let look = || (m.there("/etc/default/grub"), m.there("/boot/grub/grub.cfg"));
    let before = look();
    assert_eq!(before, (GRUB.to_owned(), "linux /vmlinuz ro quiet it's\n".to_owned()));
    m.done(&["apply", "e.json", "--yes"]);
    assert_eq!(
        look(),
        (GRUB.replace("it's", &format!("it's {WORD}")), format!("linux /vmlinuz ro quiet it's {WORD}\n"))
    );
    m.done(&["rollback"]);
    assert_eq!(look(), before);
    assert!(m.there("/proc/mounts").contains(" /boot tmpfs"), "it was the other machine's");
}

#[test]
#[ignore = "needs root and openssh-server"]
fn a_profile_of_tuneds_is_made_on_another_machine() {
    let m = Machine::start();
    let here = || std::fs::read_to_string("/proc/sys/vm/swappiness").unwrap();
    let ours = here();
    let file = "/proc/sys/vm/swappiness";
    let command = "test $(cat swappiness) = 20 && sleep 0.02 || sleep 0.12";
    let factor = format!("on = \"other\"\nfile = \"{file}\"\n");
    m.plan("e", &experiment("e", command, &factor).replace("\"a\", \"b\"", "\"10\", \"20\""));
    let look = || ["/etc/tuned/active_profile", file].map(|path| m.there(path).trim().to_owned());
    assert_eq!(look(), ["virtual-host", "60"], "an experiment puts back what it found");
    m.done(&["apply", "e.json", "--yes"]);
    assert_eq!(look(), ["vsteer-e", "20"]);
    let profile = m.there("/etc/tuned/vsteer-e/tuned.conf");
    assert!(
        profile.contains("include=virtual-host\n") && profile.contains("[sysctl]\nvm.swappiness=20\n"),
        "{profile}"
    );
    m.done(&["rollback"]);
    assert_eq!(look(), ["virtual-host", "60"]);
    assert!(!m.path("etc/tuned/vsteer-e").exists() && m.path("etc/tuned").exists());
    assert_eq!(here(), ours);
}
