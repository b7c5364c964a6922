//! What must an initramfs do before the host is one? Mount the kernel's file systems and load modules.
//!
//! Source: `man 2 finit_module`; the lab has put the modules into the order in which they need each other.

use rustix::mount::{MountFlags, mount};
use std::ffi::CString;

/// Source, folder, kind, options. Those after the first three may be missing in a kernel.
const MOUNTS: [(&str, &str, &str, &str); 8] = [
    ("proc", "/proc", "proc", ""),
    ("sysfs", "/sys", "sysfs", ""),
    ("dev", "/dev", "devtmpfs", ""),
    ("run", "/run", "tmpfs", "mode=755"),
    ("tmp", "/tmp", "tmpfs", ""),
    ("cgroup2", "/sys/fs/cgroup", "cgroup2", ""),
    ("debugfs", "/sys/kernel/debug", "debugfs", ""),
    ("tracefs", "/sys/kernel/tracing", "tracefs", ""),
];

/// Mounts everything.
///
/// # Errors
/// The first that fails.
pub fn mount_all() -> Result<(), String> {
    for (source, target, kind, options) in MOUNTS {
        // Folders of sysfs are there already, and cannot be made.
        let _ = std::fs::create_dir_all(target);
        let options = CString::new(options).expect("no zero in a constant");
        mount(source, target, kind, MountFlags::empty(), Some(options.as_c_str()))
            .map_err(|e| format!("mounting {target}: {e}"))?;
    }
    Ok(())
}

/// Starts the pCPUs that the kernel has left off (`maxcpus=1`).
///
/// # Errors
/// One that does not start.
pub fn start_pcpus() -> Result<(), String> {
    let mut all: Vec<_> = std::fs::read_dir("/sys/devices/system/cpu")
        .into_iter()
        .flatten()
        .flatten()
        .map(|e| e.path().join("online"))
        // The first pCPU lacks the file: it cannot be switched.
        .filter(|file| std::fs::read_to_string(file).is_ok_and(|text| text.trim() == "0"))
        .collect();
    all.sort();
    let start = |file: &std::path::PathBuf| {
        std::fs::write(file, "1").map_err(|e| format!("starting a pCPU by {}: {e}", file.display()))
    };
    all.iter().try_for_each(start)
}

/// Loads the modules in a folder, in the order of their names. A folder that is not there has none.
///
/// # Errors
/// The first that the kernel refuses.
pub fn load_modules(folder: &str) -> Result<(), String> {
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .map(|e| e.path())
        .filter(|p| p.extension().is_some_and(|e| e == "ko"))
        .collect();
    files.sort();
    for file in files {
        let told = |e: std::io::Error| format!("loading {}: {e}", file.display());
        let module = std::fs::File::open(&file).map_err(told)?;
        match rustix::system::finit_module(&module, c"", 0) {
            Ok(()) | Err(rustix::io::Errno::EXIST) => {}
            Err(e) => return Err(told(e.into())),
        }
    }
    Ok(())
}
