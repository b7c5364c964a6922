//! A QEMU of a user without privilege, in its firmware.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The user of the QEMU, and the user who runs vsteer with few capabilities.
pub const OWNER: u32 = 65533;
pub const NOBODY: u32 = 65534;

/// Ends with this value.
pub struct Qemu {
    child: Child,
    pub name: String,
}

/// A command as a user and group without others, with exactly these capabilities (`cap_bpf`), which it can never
/// extend.
pub fn as_user(user: u32, capabilities: &[String], program: &Path) -> Command {
    let set = capabilities
        .iter()
        .fold("-all".to_owned(), |set, c| format!("{set},+{}", c.to_lowercase().trim_start_matches("cap_")));
    let mut c = Command::new("setpriv");
    c.args(["--reuid", &user.to_string(), "--regid", &user.to_string(), "--clear-groups"]);
    for which in ["--inh-caps", "--ambient-caps", "--bounding-set"] {
        c.args([which, &set]);
    }
    c.arg("--").arg(program);
    c
}

impl Qemu {
    /// A QEMU with two vCPUs. It names its threads unless `monitor` names the socket at which it can be asked.
    pub fn start(test: &str, monitor: Option<&Path>) -> Qemu {
        Qemu::start_with(test, monitor, None)
    }

    /// One whose first vCPU never sleeps: it boots a sector that jumps to itself.
    #[allow(dead_code)]
    pub fn busy(test: &str, folder: &Path) -> Qemu {
        let disk = folder.join("busy.img");
        let mut sector = vec![0; 1 << 20];
        sector[..2].copy_from_slice(&[0xeb, 0xfe]);
        sector[510..512].copy_from_slice(&[0x55, 0xaa]);
        std::fs::write(&disk, sector).unwrap();
        // The owner of the QEMU reads it.
        std::fs::set_permissions(folder, PermissionsExt::from_mode(0o755)).unwrap();
        Qemu::start_with(test, None, Some(&disk))
    }

    fn start_with(test: &str, monitor: Option<&Path>, disk: Option<&Path>) -> Qemu {
        let name = format!("{test}-{}", std::process::id());
        let mut c = as_user(OWNER, &[], Path::new("qemu-system-x86_64"));
        let named = if monitor.is_some() { "off" } else { "on" };
        c.args(["-name", &format!("{name},debug-threads={named}"), "-display", "none", "-serial", "none"]);
        c.args(["-m", "32", "-accel", "tcg,thread=multi", "-smp", "2"]);
        if let Some(path) = disk {
            c.args([
                "-nic",
                "none",
                "-drive",
                &format!("file={},format=raw,readonly=on,if=floppy", path.display()),
            ]);
        }
        if let Some(path) = monitor {
            c.args(["-qmp", &format!("unix:{},server=on,wait=off", path.display())]);
        }
        c.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = c.spawn().unwrap_or_else(|e| panic!("setpriv, qemu-system-x86_64: {e}"));
        let qemu = Qemu { child, name };
        let begun = Instant::now();
        let tasks = || std::fs::read_dir(format!("/proc/{}/task", qemu.pid())).map_or(0, Iterator::count);
        while tasks() < 4 {
            assert!(begun.elapsed() < Duration::from_secs(20), "the vCPUs have not begun");
            std::thread::sleep(Duration::from_millis(50));
        }
        qemu
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Qemu {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
