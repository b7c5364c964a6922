//! Runs the lab's own libvirt, so that the lab never touches the system's libvirt and its VMs.
//!
//! It is a libvirtd in a private mount and network namespace. Folders of the lab are mounted over the five
//! folders that libvirt is compiled to use. So all its state is in the lab's folder, and its socket is
//! reachable from outside by path. It sees no network of the host and no D-Bus; on a systemd host it could
//! otherwise register the VMs with machined.
//!
//! If the lab emulates, a file without write permission covers `/dev/kvm`. Otherwise a KVM that exists but
//! does not work makes libvirt ask QEMU for its capabilities at every call, which takes some seconds each.
//!
//! libvirt sees a separate host with another name and UUID, so that a VM can move from one lab to another. A
//! VM that arrives is put into the cgroup partition of its new lab.
//!
//! Among the mounts is a small tmpfs named after the lab's token, by which every process of the namespace can
//! be found after a crash ([`crate::process`]). QEMU runs as root without a security driver, because its
//! files belong to the lab. Everything runs below a process that reaps ([`crate::keep`]). Needs root. Left
//! out: virtlogd (QEMU writes its own files), storage, networks.

use crate::accel::Accel;
use crate::command;
use crate::files::{make_folder, write_file};
use crate::interrupt;
use crate::process::ProcessId;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use vsteer_core::{Fault, FaultKind};

/// libvirt's folders (sysconfdir and localstatedir of its build on every distribution), and the lab's folders
/// mounted over them.
const FOLDERS: &[(&str, &str)] = &[
    ("/etc/libvirt", "etc"),
    ("/run/libvirt", "run"),
    ("/var/lib/libvirt", "lib"),
    ("/var/cache/libvirt", "cache"),
    ("/var/log/libvirt", "log"),
];
/// Time limit for the socket: 2 s are usual, but the machine may be busy.
const START_LIMIT: Duration = Duration::from_secs(60);
/// Time limit for one call of virsh.
const CALL_LIMIT: Duration = Duration::from_secs(60);
/// `sockaddr_un` holds 108 bytes with the final zero (`man 7 unix`).
const SOCKET_PATH_MOST: usize = 107;

/// Sets up the namespace. `$1` lab folder, `$2` token, `$3` accelerator. Then the daemon replaces the shell
/// and keeps its pid.
const SCRIPT: &str = r#"set -e
mount -t tmpfs -o size=64k,mode=0755 "$2" "$1/mark"
echo "vsteer-lab-${2##*:}" > /proc/sys/kernel/hostname
if [ -d /run/dbus ]; then mount --bind "$1/mark" /run/dbus; fi
mount --bind "$1/etc" /etc/libvirt
mount --bind "$1/run" /run/libvirt
mount --bind "$1/lib" /var/lib/libvirt
mount --bind "$1/cache" /var/cache/libvirt
mount --bind "$1/log" /var/log/libvirt
if [ "$3" = tcg ] && [ -e /dev/kvm ]; then
    : > "$1/no-kvm"
    mount --bind "$1/no-kvm" /dev/kvm
    mount -o remount,bind,ro /dev/kvm
fi
for file in passwd group; do
    if [ -e "$1/account/$file" ]; then mount --bind "$1/account/$file" "/etc/$file"; fi
done
exec libvirtd --config /etc/libvirt/libvirtd.conf --pid-file /run/libvirt/libvirtd.pid
"#;

/// The connection URI of the lab's libvirt.
pub fn uri(dir: &Path) -> String {
    format!("qemu+unix:///system?socket={}", socket(dir).display())
}

fn socket(dir: &Path) -> PathBuf {
    dir.join("run/libvirt-sock")
}

/// Refuses a folder in which the socket's path would be too long or would need quoting in a URI.
///
/// # Errors
/// The refusal.
pub fn check_folder(dir: &Path) -> Result<(), Fault> {
    let path = socket(dir);
    let text = path.to_string_lossy();
    // libvirt's longest socket path in the folder is QEMU's monitor, with 12 to 60 more bytes. But libvirt
    // uses the short compiled path for it, so only libvirt's own socket counts.
    if !dir.is_absolute() || text.len() > SOCKET_PATH_MOST {
        return Err(Fault::new(FaultKind::Usage, format!("the lab cannot live in {}", dir.display()))
            .because(format!(
                "a socket's path must be absolute and have at most {SOCKET_PATH_MOST} bytes: {text}"
            ))
            .help("choose a shorter one with --dir"));
    }
    match text.chars().find(|c| !(c.is_ascii_alphanumeric() || "/._-+".contains(*c))) {
        Some(c) => Err(Fault::new(FaultKind::Usage, format!("the lab cannot live in {}", dir.display()))
            .because(format!("`{c}` would need quoting in a connection URI"))
            .help("choose another one with --dir")),
        None => Ok(()),
    }
}

/// The missing folders over which something must be mounted, outermost first.
pub fn missing_mount_points() -> Vec<PathBuf> {
    FOLDERS.iter().map(|(target, _)| PathBuf::from(target)).filter(|t| !t.exists()).collect()
}

/// Starts the daemon below [`crate::keep`], and returns that process, which lives as long as the daemon or a
/// VM. `program` is vsteer-lab. The mount points must exist.
///
/// # Errors
/// It cannot be started.
pub fn spawn(dir: &Path, program: &Path, token: &str, accel: Accel) -> Result<ProcessId, Fault> {
    for (_, folder) in FOLDERS {
        make_folder(&dir.join(folder))?;
    }
    make_folder(&dir.join("mark"))?;
    make_folder(&dir.join("account"))?;
    for file in ["passwd", "group"] {
        if let Some(text) =
            std::fs::read_to_string(Path::new("/etc").join(file)).ok().and_then(|t| with_account(&t, file))
        {
            write_file(&dir.join("account").join(file), text)?;
        }
    }
    let word = token.rsplit(':').next().unwrap_or(token);
    write_file(&dir.join("etc/libvirtd.conf"), libvirtd_conf(word))?;
    make_folder(&dir.join("etc/hooks"))?;
    let hook = dir.join("etc/hooks/qemu");
    write_file(&hook, HOOK.replace("PARTITION", &token.replace(':', "-")))?;
    std::fs::set_permissions(&hook, std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .map_err(|e| Fault::io(format!("making {} a program", hook.display()), &e))?;
    write_file(&dir.join("etc/qemu.conf"), qemu_conf())?;
    let log = dir.join("log/libvirtd.log");
    let log = std::fs::File::create(&log).map_err(|e| Fault::io(format!("writing {}", log.display()), &e))?;
    let log_too = log.try_clone().map_err(|e| Fault::io("sharing the log of libvirtd", &e))?;
    // setsid: neither an interrupt in the terminal nor closing the terminal may reach the daemon.
    let child = Command::new("setsid")
        .arg(program)
        .args([
            "keep",
            "--",
            "unshare",
            "--mount",
            "--net",
            "--uts",
            "--propagation",
            "private",
            "--",
            "/bin/sh",
            "-c",
            SCRIPT,
            "sh",
        ])
        .arg(dir)
        .arg(token)
        .arg(accel.to_string())
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(log)
        .stderr(log_too)
        .spawn()
        .map_err(|e| Fault::io("starting the private libvirtd (setsid, of util-linux)", &e))?;
    ProcessId::of(child.id() as i32).ok_or_else(|| did_not_start(dir, "it ended at once"))
}

/// Waits until the daemon answers.
///
/// # Errors
/// It ended, or does not answer in time, with the last lines of its log.
pub fn wait(dir: &Path, process: ProcessId) -> Result<(), Fault> {
    let begun = Instant::now();
    loop {
        interrupt::check()?;
        if socket(dir).exists() && virsh(dir, &["version"]).is_ok() {
            return Ok(());
        }
        if !process.is_alive() {
            return Err(did_not_start(dir, "it ended"));
        }
        if begun.elapsed() > START_LIMIT {
            return Err(did_not_start(dir, "it does not answer"));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn did_not_start(dir: &Path, how: &str) -> Fault {
    let log = std::fs::read_to_string(dir.join("log/libvirtd.log")).unwrap_or_default();
    let lines: Vec<&str> = log.lines().collect();
    Fault::new(FaultKind::Failed, format!("the lab's private libvirtd did not start: {how}"))
        .because(lines[lines.len().saturating_sub(4)..].join("; "))
        .help("the lab needs root, and namespaces and cgroups that it may use: not inside a plain container")
}

/// Calls virsh with the lab's libvirt; returns its standard output.
///
/// # Errors
/// virsh fails or hangs.
pub fn virsh(dir: &Path, arguments: &[&str]) -> Result<String, Fault> {
    let mut command = Command::new("virsh");
    command.args(["--quiet", "--connect", &uri(dir)]).args(arguments).env("LC_ALL", "C.UTF-8");
    command::output(&mut command, CALL_LIMIT)
}

/// The pid of libvirtd itself.
pub fn daemon(dir: &Path) -> Option<i32> {
    std::fs::read_to_string(dir.join("run/libvirtd.pid")).ok()?.trim().parse().ok()
}

/// The pid of the VM's QEMU, from libvirt's pid file.
pub fn pid_of(dir: &Path, vm: &str) -> Option<ProcessId> {
    let text = std::fs::read_to_string(dir.join("run/qemu").join(format!("{vm}.pid"))).ok()?;
    ProcessId::of(text.trim().parse().ok()?)
}

/// The user and group that Debian's and Ubuntu's libvirt require at start, before they read the user for QEMU
/// (here root). They come with libvirt-daemon-system, which the lab does not need; their number there is
/// 64055.
const ACCOUNT: &str = "libvirt-qemu";

/// The text of `/etc/passwd` or `/etc/group` with [`ACCOUNT`] added. `None` if it has the account already. Only
/// the private mount namespace sees the result.
fn with_account(text: &str, file: &str) -> Option<String> {
    if text.lines().any(|l| l.split(':').next() == Some(ACCOUNT)) {
        return None;
    }
    let line = match file {
        "passwd" => format!("{ACCOUNT}:x:64055:64055::/nonexistent:/usr/sbin/nologin"),
        _ => format!("{ACCOUNT}:x:64055:"),
    };
    Some(format!("{}\n{line}\n", text.trim_end_matches('\n')))
}

/// A VM from another lab names that lab's partition, so this hook replaces it (libvirt, `docs/hooks.rst`).
const HOOK: &str = "#!/bin/sh\nif [ \"$2\" = migrate ]; then\n    \
                    exec sed 's|<partition>[^<]*</partition>|<partition>/PARTITION</partition>|'\nfi\n";

/// The socket is in a folder that only root may enter. `word`: the lab's eight hexadecimal digits.
fn libvirtd_conf(word: &str) -> String {
    format!(
        "auth_unix_rw = \"none\"\nauth_unix_ro = \"none\"\nunix_sock_group = \"root\"\n\
         unix_sock_rw_perms = \"0700\"\nunix_sock_ro_perms = \"0700\"\nlog_outputs = \"3:stderr\"\n\
         host_uuid = \"{word}-0000-4000-8000-0000{word}\"\n"
    )
}

fn qemu_conf() -> String {
    let quoted: Vec<String> = crate::partition::CONTROLLERS.iter().map(|c| format!("\"{c}\"")).collect();
    format!(
        "user = \"root\"\ngroup = \"root\"\ndynamic_ownership = 0\nremember_owner = 0\n\
         security_driver = \"none\"\nnamespaces = []\ncgroup_controllers = [ {} ]\n\
         stdio_handler = \"file\"\nhugetlbfs_mount = []\n",
        quoted.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_that_a_socket_or_a_uri_cannot_bear_are_refused() {
        assert!(check_folder(Path::new("/root/.cache/vsteer/lab-contention")).is_ok());
        assert!(check_folder(Path::new("relative")).is_err());
        assert!(check_folder(Path::new("/a b")).is_err());
        assert!(check_folder(Path::new("/a?b")).is_err());
        // "/run/libvirt-sock" has 17 bytes: 90 fit, 91 do not.
        assert!(check_folder(Path::new(&format!("/{}", "x".repeat(89)))).is_ok());
        assert!(check_folder(Path::new(&format!("/{}", "x".repeat(90)))).is_err());
    }

    #[test]
    fn the_uri_names_the_socket() {
        assert_eq!(uri(Path::new("/l")), "qemu+unix:///system?socket=/l/run/libvirt-sock");
    }

    #[test]
    fn the_account_is_added_only_where_it_is_missing() {
        assert_eq!(with_account("root:x:0:\nlibvirt-qemu:x:5:\n", "group"), None);
        assert_eq!(with_account("root:x:0:\n", "group").unwrap(), "root:x:0:\nlibvirt-qemu:x:64055:\n");
        let passwd = with_account("root:x:0:0::/root:/bin/sh", "passwd").unwrap();
        assert!(passwd.lines().all(|l| l.split(':').count() == 7), "{passwd}");
    }

    #[test]
    fn every_folder_is_mounted_over() {
        for (target, folder) in FOLDERS {
            assert!(SCRIPT.contains(&format!("mount --bind \"$1/{folder}\" {target}\n")), "{target}");
        }
    }
}
